"""What the parts of a network in memory share: the engine, what was sent, and names for numbers.

What a test changes in a network in memory: faults, and programs that come, get another class and end.

What a test sends into a network in memory: messages from users, and calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.config.document import validate_document
from causeway.core.ingress_call import CALL_METHOD, encode_calls
from causeway.core.text import format_value, is_text, shorten_name, suggest_known
from causeway.core.vocabulary import RejectCode
from causeway.scenarios.traffic_settings import CallSection, SendSection
from causeway.testing.declarations import (
    CALLER,
    CALLER_BALANCE,
    CALLERS,
    Deploy,
    Fault,
    FaultKind,
    ProgramClass,
    ProtocolName,
    class_name,
    fault_section,
)
from causeway.testing.engine import Document, Engine
from causeway.testing.handles import SentCall, SentMessage, SentRecord
from causeway.testing.log import IngressPosition, MessageLog
from causeway.testing.messages import TimelineNames
from causeway.testing.recent_networks import note_network
from causeway.testing.tracing import TracedKey


class NamedNetwork:
    """A network in memory: what there is, by name."""

    _engine: Engine
    _handles: list[SentMessage]
    _records: set[SentRecord]
    _faults: list[Fault]

    def _begin(self, engine: Engine) -> None:
        self._engine = engine
        self._handles: list[SentMessage] = []
        self._open: list[SentMessage] = []
        self._undone = 0
        self._records: set[SentRecord] = set()
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
            raise InvalidInput(f"{key}: {suggest_known('program', reference, numbers)}")
        return numbers[reference]

    def _holds(self, record: SentRecord) -> bool:
        return record in self._records

    def _acting(self) -> list[str]:
        return self._engine.acting()

    def _read_log(self) -> MessageLog:
        return self._engine.log

    def _run_until(self, is_true: Callable[[], bool], rounds: int) -> bool:
        """Run until something is true, at most so many rounds; return whether the network came to rest without it."""
        note_network(self)
        for _ in range(rounds):
            if is_true():
                return False
            if not self._engine.step():
                return True
        return False

    def _askings(self) -> Mapping[TracedKey, None]:
        """Return the messages by which programs were told to make the calls of a test, in their order: nobody wants to
        see them."""
        log = self._engine.log
        found = [log.users.get(handle.record.place) for handle in self._handles if isinstance(handle, SentCall)]
        return {key: None for key in found if isinstance(key, TracedKey) and log.messages[key].handled is not None}

    def _still_open(self) -> list[SentMessage]:
        """Return what was sent or called and has not come to its end."""
        undone = len(self._engine.log.undone)
        if undone != self._undone:  # a fork took back blocks: what had ended may be open again
            self._undone, self._open = undone, list(self._handles)
        self._open = [handle for handle in self._open if not handle.done]
        return self._open

    def _names(self) -> TimelineNames:
        programs = {number: name for name, number in self._numbers().items()}
        return TimelineNames(programs, [shorten_name(chain) for chain in self.chains], self._meaning)

    def _meaning(self, code: int, text: bytes) -> RejectCode:
        return self._engine.scenario.protocol.load_semantics().reject_code(code, text)


class ChangingNetwork(NamedNetwork):
    """A network in memory that changes while it runs."""

    def inject(self, kind: FaultKind, **keys: Any) -> Fault:
        """Let something go wrong from the next tick on: a fault of the protocol, with the ``keys`` that a scenario has
        for it (``from_`` for ``from``). It begins now unless they say otherwise. Raises ``InvalidInput``."""
        section = fault_section(self._engine.scenario.protocol, kind, keys, self.now)
        with _about("inject", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("inject", []).append(section))
        fault = Fault(self._new_fault(), kind, self.now)
        self._faults.append(fault)
        return fault

    def heal(self, *faults: Fault) -> None:
        """End faults from the next tick on: those given, or all, those of the scenario too."""
        unknown_one = next((fault for fault in faults if fault not in self._faults), None)
        if unknown_one is not None:
            raise InvalidInput(f"heal: {unknown_one} is no fault of this network")
        ended = list(faults) if faults else list(self._faults)
        fresh = [fault for fault in ended if fault.since == self.now]
        before = len(self._engine.scenario.document.faults)
        positions = [before + self._faults.index(fault) for fault in ended if fault.since != self.now]

        def heal(change: Document) -> None:
            injected = [fault for fault in self._faults if fault.since == self.now]
            kept = [one for one, fault in zip(change.pop("inject", []), injected, strict=True) if fault not in fresh]
            if kept:
                change["inject"] = kept
            if not faults:
                change["heal"] = bool(before or positions)
            elif positions and change.get("heal") is not True:
                change["heal"] = sorted({*(change.get("heal") or ()), *positions})
            if not (change.get("heal") or change.keys() - {"tick", "heal"}):
                change.pop("heal", None)

        with _about("heal", self._engine.scenario.path):
            self._engine.change(heal)
        self._faults = [fault for fault in self._faults if fault not in fresh]

    def _new_fault(self) -> int:
        return 1 + max((fault.number for fault in self._faults), default=-1)

    def install(
        self,
        program: ProgramClass | Deploy,
        *,
        chain: str | None = None,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        balance: int = 0,
    ) -> str:
        """Install a program, which is there with the next block of its chain; return its name. Raises
        ``InvalidInput``, so where the protocol does not allow it."""
        asked = program if isinstance(program, Deploy) else Deploy(program, chain, name, options or {}, balance)
        section = asked.section(self._engine.topology.chains["name"].to_pylist()[0], self._engine.bound)
        with _about("install", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("install", []).append(section))
        installed: str = section["name"]
        return installed

    def upgrade(self, name: str, program: ProgramClass, *, options: Mapping[str, Any] | None = None) -> None:
        """Let a program go on under another class from the next block of its chain on, with its state, its balance and
        its open calls. ``options``: those that it has then; without them it keeps its own. Raises ``InvalidInput``."""
        section: Document = {"program": name, "to": class_name(program, self._engine.bound)}
        if options is not None:
            section["options"] = dict(options)
        with _about("upgrade", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("upgrade", []).append(section))

    def move(self, name: str, chain: str) -> None:
        """Let a program go to another chain in the next tick, with its state, its balance and its open calls, where
        programs may leave theirs; what is on its way to it is not taken where it was. Raises ``InvalidInput``, so where
        they may not."""
        section: Document = {"program": name, "chain": chain}
        with _about("move", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("move", []).append(section))

    def remove(self, name: str) -> None:
        """End a program in the next tick, where programs may leave their chain. Raises ``InvalidInput``, so where they
        may not, and for one that was removed before."""
        before = next((change["tick"] for change in self._engine.asked() if name in change.get("remove", ())), None)
        if before is not None:
            raise InvalidInput(f"remove: {format_value(name)} was removed at tick {before}")
        with _about("remove", self._engine.scenario.path):
            self._engine.change(lambda change: change.setdefault("remove", []).append(name))


@contextmanager
def _about(what: str, path: str) -> Iterator[None]:
    """Let errors about a change of the scenario ``path`` be about what was asked for."""
    try:
        yield
    except CausewayError as error:
        text = re.sub(rf"^changes\[\d+\](\.{what}(\[\d+\])?)?[.:]? *", "", str(error).removeprefix(f"{path}: "))
        raise type(error)(f"{what}: {text}") from None


WORD_PATTERN = 2**64


class SendingNetwork(ChangingNetwork):
    """A network in memory to which messages can be sent."""

    def send(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: int | str = 0
    ) -> SentMessage:
        """Let somebody send a message to a program in the next tick.

        ``sender``: the number of a user, whose messages come to ``on_ingress``; users have neither accounts nor
        answers. Or the name of a program of the class ``caller``: then, and where there is an ``amount``, it is a call,
        as ``call`` makes it, which comes to ``on_request``. Raises ``InvalidInput``.
        """
        if isinstance(sender, str) or amount:
            if sender and not isinstance(sender, str):
                text = "a user has no account to pay an amount from; give the name of a caller, or none"
                raise InvalidInput(f"send.sender: {format_value(sender)}: {text}")
            return self._call("send", to, method, payload, amount, str(sender) if sender else None)
        content = _bytes(payload, "send")
        section: Document = {"to": to, "method": method, **_said(content), **({"sender": sender} if sender else {})}
        validate_document(SendSection, {"tick": 0, **section}, "send")
        number = self._program(to, "send.to")
        place = self._arrive(number, section, sender, method, content)
        text = self._names().describe_user_message(sender, number, method, content)
        return self._held(SentMessage(self, SentRecord(place, text)))

    def call(
        self, to: str | int, method: str, payload: bytes | str = b"", *, amount: int = 0, sender: str | None = None
    ) -> SentCall:
        """Let a program call another in the next tick: its ``on_request``.

        ``amount``: what is attached. ``sender``: the name of a program of the class ``caller``; without it the one that
        the network has on the chain of the program called. Raises ``InvalidInput``.
        """
        return self._call("call", to, method, payload, amount, sender)

    def _call(
        self, what: str, to: str | int, method: str, payload: bytes | str, amount: int, sender: str | None
    ) -> SentCall:
        body = _bytes(payload, what)
        call = {"receiver": to, "method": method, **_said(body), **({"amount": amount} if amount else {})}
        asked = validate_document(CallSection, call, what)
        receiver = self._program(to, f"{what}.to")
        caller = self._caller(receiver, sender, f"{what}.sender")
        number, high, low = (
            np.array([word], dtype=np.uint64) for word in (receiver, *divmod(asked.amount, WORD_PATTERN))
        )
        content: bytes = encode_calls(number, high, low, method, pa.array([body], pa.binary()))[0].as_py()
        section = {"to": self._names().program(caller), "call": call}
        place = self._arrive(caller, section, 0, CALL_METHOD, content)
        text = self._names().call(caller, receiver, method, body, asked.amount)
        handle = SentCall(self, SentRecord(place, text))
        self._held(handle)
        return handle

    def _arrive(self, program: int, section: Document, sender: int, method: str, payload: bytes) -> IngressPosition:
        chain = self._engine.host_of(program)
        if chain is None:
            chain = next(iter(self._engine.chains)) if program not in self._engine.classes else None
        if chain is None:
            raise InvalidInput(f"to: {format_value(section['to'])} is on no chain at tick {self.now}")
        name = self._engine.chains[chain]
        row = {"chain": chain, "receiver": program, "sender": sender, "method": method, "payload": payload}
        return self._engine.send({**section, "chain": name}, row)

    def _caller(self, receiver: int, sender: str | None, key: str) -> int:
        """Return the program that calls ``receiver``. Raises ``InvalidInput``."""
        if sender is not None:
            number = self._program(sender, key)
            runs = self._engine.classes.get(number)
            if runs != CALLER:
                text = f'runs {format_value(runs)}; who calls for a test is a program of the class "{CALLER}"'
                raise InvalidInput(f"{key}: {format_value(sender)} {text}")
            return number
        host = self._engine.host_of(receiver)
        named = self._engine.chains
        name = f"{CALLERS}{named[min(named) if host is None else host]}"
        if name not in self._numbers():
            balance = 0 if self._engine.scenario.protocol.fixed_issue else CALLER_BALANCE
            self.install(CALLER, chain=name.removeprefix(CALLERS), name=name, balance=balance)
        return self._numbers()[name]

    def _held(self, handle: SentMessage) -> SentMessage:
        note_network(self)
        self._handles.append(handle)
        self._open.append(handle)
        self._records.add(handle.record)
        return handle


def _said(payload: bytes) -> Document:
    """Return a payload as in a scenario, as text where a person can read it."""
    if not payload:
        return {}
    readable = payload.isascii() and payload.decode().isprintable()
    return {"text": payload.decode()} if readable else {"hex": payload.hex()}


def _bytes(payload: bytes | str, key: str) -> bytes:
    if isinstance(payload, str):
        if not is_text(payload):
            raise InvalidInput(f"{key}.payload: {format_value(payload)}: half of a surrogate pair is no text")
        return payload.encode()
    if not isinstance(payload, bytes):
        raise InvalidInput(f"{key}.payload: {format_value(payload)}: must be bytes or text")
    return payload
