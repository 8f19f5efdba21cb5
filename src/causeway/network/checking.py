"""A scenario looked at without running it: all that is wrong with it, what it would run, what in it does nothing."""

from __future__ import annotations

import copy
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causeway.model.document import Key, dotted, examined, parse_key, read_text
from causeway.model.document_lines import lines_of
from causeway.model.errors import InvalidInput
from causeway.network.deploy import Deployed, deploy
from causeway.network.per_protocol import PROTOCOLS
from causeway.network.planned import Plan, plan_of
from causeway.network.scenario import Scenario, document_of, model_of, own_tables, scenario_from
from causeway.network.settings import NOTHING_INSTALLED
from causeway.pipeline.masters import cores_here
from causeway.programs.catalogue import program_class
from causeway.programs.own import look_beside

MOST = 100
"""So many things that are wrong are named at most."""

_REMOVABLE = (("faults",), ("moves",), ("nodes",), ("traffic", "send"))
"""Lists whose elements nothing else refers to: what comes after a wrong one can be judged without it."""

_KEY = re.compile(r'([A-Za-z_][\w-]*(?:\.[\w-]+|\."[^"]*"|\[\d+\])*)(?=: )')
_UNKNOWN = ": unknown key"
_TOML_LINE = re.compile(r"\(at line (\d+),")


@dataclass(frozen=True)
class Remark:
    """Something that is wrong, or does nothing. ``key``: where, None: nowhere in the file; ``line``: from 1, None: it
    is said on the command line, or missing; ``text``: what."""

    key: str | None
    line: int | None
    text: str


@dataclass(frozen=True)
class Examined:
    """What came of it. ``plan``: what would run, None where something is wrong. ``more``: something may be wrong that
    can be judged only when what is named is mended."""

    path: str
    wrong: tuple[Remark, ...]
    plan: Plan | None = None
    idle: tuple[Remark, ...] = ()
    more: bool = False


def examine(path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> Examined:
    """Look at the scenario of a TOML file; ``overrides``: as of ``load_scenario``.

    Its programs are imported; a recording is read, into a temporary folder. Raises ``InvalidInput`` where there is no
    such file, or an override leads nowhere.
    """
    text = read_text(Path(path))
    try:
        document = document_of(path, overrides, text)
    except InvalidInput as error:
        found = _TOML_LINE.search(str(error))
        if found is None:
            raise
        return Examined(str(path), (Remark(None, int(found[1]), _without(str(error), path)),), more=True)
    return _Examination(str(path), text, document, overrides or {}).examined()


@dataclass
class _Examination:
    """Collects what is wrong with a document, which is mended on the way by leaving out what is wrong."""

    path: str
    text: str
    document: dict[str, Any]
    overrides: Mapping[str, str]
    wrong: list[Remark] = field(default_factory=list)
    stuck: bool = False
    """What is wrong cannot be left out."""

    def __post_init__(self) -> None:
        self.document = copy.deepcopy(self.document)
        self._lines = lines_of(self.text)
        self._gone: set[tuple[Key, ...]] = set()
        self._options: tuple[str, ...] = ("options",)
        self._places: dict[tuple[Key, ...], list[int]] = {}
        for steps in _REMOVABLE:
            node: Any = self.document
            for step in steps:
                node = node.get(step) if isinstance(node, dict) else None
            if isinstance(node, list):
                self._places[steps] = [*range(len(node))]

    def examined(self) -> Examined:
        scenario = self._validated()
        deployed: Deployed | None = None
        if scenario is not None:
            with tempfile.TemporaryDirectory(prefix="causeway-check-") as folder:
                deployed = self._deployed(folder)
                if deployed is not None and not self.wrong:
                    plan, idle = plan_of(scenario, deployed)
                    remarks = sorted((self._remark(text) for text in idle), key=lambda each: each.line or 0)
                    return Examined(self.path, (), plan, tuple(remarks))
        wrong = sorted(self.wrong, key=lambda each: each.line or 0)
        return Examined(self.path, tuple(wrong), more=self.stuck)

    def _validated(self) -> Scenario | None:
        """Return the scenario of the document, mended if need be."""
        while True:
            try:
                model, document = model_of(self.document, self.path), own_tables(self.document, self.path)
            except InvalidInput as error:
                if self._noted([_without(str(error), self.path)]):
                    continue
                return None
            found, texts = examined(model, document)
            if found is not None:
                scenario = Scenario(self.path, found)
                own = (PROTOCOLS, scenario.network.protocol)
                self._options = own if own[1] in self.document.get(PROTOCOLS, {}) else ("options",)
                texts = examined(scenario.protocol.load_options(), scenario.options, ("options",))[1]
            if not texts:
                break
            if not self._noted(texts):
                return None
        try:
            return scenario_from(self.document, self.path)
        except InvalidInput as error:
            self._note(_without(str(error), self.path))
            return None

    def _deployed(self, folder: str) -> Deployed | None:
        """Return the network, mended if need be."""
        while True:
            scenario = self._validated()
            if scenario is not None and self._programs_left_out(scenario):
                scenario = self._validated()
            if scenario is None:
                return None
            try:
                return deploy(scenario, os.path.join(folder, "lake"), None, cores_here())
            except InvalidInput as error:
                if not self._noted([_without(str(error), self.path)]):
                    return None

    def _programs_left_out(self, scenario: Scenario) -> bool:
        """Return whether classes of programs cannot be had; in their place nothing is installed."""
        look_beside(self.path)
        before = len(self.wrong)
        for key, name in scenario.installed.items():
            if name == NOTHING_INSTALLED:
                continue
            try:
                program_class(name)
            except InvalidInput as error:
                self._note(f"{key}: {error}")
                node: Any = self.document
                *steps, last = parse_key(key)
                for step in steps:
                    node = node[step]
                node[last] = NOTHING_INSTALLED
        return len(self.wrong) > before

    def _noted(self, texts: list[str]) -> bool:
        """Take notice of what is wrong, and leave it out; return whether that could be done."""
        noted = [(self._note(text), _UNKNOWN in text) for text in texts]
        done = all(steps is not None for steps, _ in noted) and len(self.wrong) < MOST
        wrong = [(steps, needless) for steps, needless in noted if steps is not None]
        # Later elements of a list first, so that the others keep their places.
        wrong.sort(key=lambda each: [step for step in each[0] if isinstance(step, int)], reverse=True)
        removed: set[tuple[Key, ...]] = set()
        for steps, needless in wrong:
            done = self._left_out(steps, needless, removed) and done
        self.stuck = self.stuck or not done
        return done

    def _left_out(self, steps: tuple[Key, ...], needless: bool, removed: set[tuple[Key, ...]]) -> bool:
        """Leave out what stands somewhere: an element of a list, or a key that has another value then. ``needless``: it
        is a key that nobody knows. ``removed``: elements that are gone by now."""
        for listed, places in self._places.items():
            size = len(listed)
            number = steps[size] if len(steps) > size and steps[:size] == listed else None
            if isinstance(number, int) and number < len(places):
                if steps[: size + 1] not in removed:
                    removed.add(steps[: size + 1])
                    node: Any = self.document
                    for step in listed:
                        node = node[step]
                    del node[number], places[number]
                    if listed == ("faults",):
                        self._renumber_healed(number)
                return True
        if any(isinstance(step, int) for step in steps) and not needless:
            return False  # of a chain or program without it something else would be wrong
        parent: Any = self.document
        for step in steps[:-1]:
            there = step in parent if isinstance(parent, dict) else isinstance(step, int) and step < len(parent)
            if not there or not isinstance(parent[step], dict | list):
                return False
            parent = parent[step]
        if not isinstance(parent, dict) or steps[-1] not in parent:
            return False
        self._gone.add(steps)
        del parent[steps[-1]]
        return True

    def _renumber_healed(self, removed: int) -> None:
        """Let changes heal the same faults as before one was left out."""
        changes = self.document.get("changes")
        for change in changes if isinstance(changes, list) else []:
            healed = change.get("heal") if isinstance(change, dict) else None
            if isinstance(healed, list) and all(isinstance(each, int) for each in healed):
                change["heal"] = [each - (each > removed) for each in healed if each != removed] or True

    def _note(self, text: str) -> tuple[Key, ...] | None:
        """Take notice of what is wrong; return the steps to it in the document as it is now, None where it was named
        before, or is nowhere."""
        steps, remark = self._steps(text)[0], self._remark(text)
        if remark in self.wrong or steps in self._gone:
            return None
        self.wrong.append(remark)
        return steps

    def _steps(self, text: str) -> tuple[tuple[Key, ...] | None, str]:
        """Return where a line about a mistake leads in the document as it is now (None: nowhere), and what it says."""
        found = _KEY.match(text)
        if found is None:
            return None, text
        steps = tuple(parse_key(found[1]))
        steps = (*self._options, *steps[1:]) if steps[0] == "options" else steps
        return steps, text[found.end() + 2 :]

    def _remark(self, text: str) -> Remark:
        steps, said = self._steps(text)
        if steps is None:
            return Remark(None, None, said)
        for listed, places in self._places.items():
            size = len(listed)
            number = steps[size] if len(steps) > size and steps[:size] == listed else None
            if isinstance(number, int) and number < len(places):
                steps = (*steps[:size], places[number], *steps[size + 1 :])
        return Remark(dotted(steps), self._line(steps), said)

    def _line(self, steps: tuple[Key, ...]) -> int | None:
        if any(tuple(parse_key(key)) == steps[: len(parse_key(key))] for key in self.overrides):
            return None
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps)


def _without(text: str, path: str | os.PathLike[str]) -> str:
    return text.removeprefix(f"{path}: ")


__all__ = ["MOST", "Examined", "Remark", "examine"]
