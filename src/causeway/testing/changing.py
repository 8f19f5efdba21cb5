"""What a test changes in a network in memory: faults, and programs that come, get another class and end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from causeway.model.errors import CausewayError, InvalidInput
from causeway.model.text import shown
from causeway.testing.deploys import Deploy, ProgramClass, class_name
from causeway.testing.engine import Document
from causeway.testing.faults import Fault, fault_section
from causeway.testing.named import Named
from causeway.testing.words import FaultKind


class Changing(Named):
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
            raise InvalidInput(f"remove: {shown(name)} was removed at tick {before}")
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
