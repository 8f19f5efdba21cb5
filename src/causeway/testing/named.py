"""What the parts of a network in memory share: the engine, what was sent, and names for numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from causeway.model.errors import InvalidInput
from causeway.model.reject_codes import RejectCode
from causeway.model.text import name_of, unknown
from causeway.testing.engine import Engine
from causeway.testing.faults import Fault
from causeway.testing.handles import Asked, Record, Sent
from causeway.testing.log import Log
from causeway.testing.timeline import Names
from causeway.testing.touched import note
from causeway.testing.tracing import Key
from causeway.testing.words import ProtocolName


class Named:
    """A network in memory: what there is, by name."""

    _engine: Engine
    _handles: list[Sent]
    _records: set[Record]
    _faults: list[Fault]

    def _begin(self, engine: Engine) -> None:
        self._engine = engine
        self._handles: list[Sent] = []
        self._open: list[Sent] = []
        self._undone = 0
        self._records: set[Record] = set()
        self._faults: list[Fault] = []

    @property
    def protocol(self) -> ProtocolName:
        """Return the name of its protocol."""
        return cast(ProtocolName, self._engine.scenario.network.protocol)

    @property
    def chains(self) -> list[str]:
        """Return the names of its chains, in their order."""
        return list(self._engine.kernel.chains())

    @property
    def programs(self) -> list[str]:
        """Return the names of its programs, by number."""
        names: list[str] = self._engine.topology.programs["name"].to_pylist()
        return names

    @property
    def now(self) -> int:
        """Return the tick that comes next: what is sent now arrives in it."""
        return self._engine.clock

    def _numbers(self) -> Mapping[str, int]:
        return self._engine.programs

    def _program(self, reference: str | int, key: str) -> int:
        if isinstance(reference, int):
            return reference
        numbers = self._numbers()
        if reference not in numbers:
            raise InvalidInput(f"{key}: {unknown('program', reference, numbers)}")
        return numbers[reference]

    def _holds(self, record: Record) -> bool:
        return record in self._records

    def _acting(self) -> list[str]:
        return self._engine.acting()

    def _read_log(self) -> Log:
        return self._engine.log

    def _run_until(self, is_true: Callable[[], bool], rounds: int) -> bool:
        """Run until something is true, at most so many rounds; return whether the network came to rest without it."""
        note(self)
        for _ in range(rounds):
            if is_true():
                return False
            if not self._engine.step():
                return True
        return False

    def _askings(self) -> Mapping[Key, None]:
        """Return the messages by which programs were told to make the calls of a test, in their order: nobody wants to
        see them."""
        log = self._engine.log
        found = [log.users.get(handle.record.place) for handle in self._handles if isinstance(handle, Asked)]
        return {key: None for key in found if isinstance(key, Key) and log.messages[key].handled is not None}

    def _still_open(self) -> list[Sent]:
        """Return what was sent or called and has not come to its end."""
        undone = len(self._engine.log.undone)
        if undone != self._undone:  # a fork took back blocks: what had ended may be open again
            self._undone, self._open = undone, list(self._handles)
        self._open = [handle for handle in self._open if not handle.done]
        return self._open

    def _names(self) -> Names:
        programs = {number: name for name, number in self._numbers().items()}
        return Names(programs, [name_of(chain) for chain in self.chains], self._meaning)

    def _meaning(self, code: int, text: bytes) -> RejectCode:
        return self._engine.scenario.protocol.load_semantics().reject_code(code, text)
