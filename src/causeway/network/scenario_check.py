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

from causeway_proofs.errors import InvalidInput

from causeway.config.document import Key, collect_errors, format_key, key_lines, parse_key, read_text
from causeway.network.deploy import DeployedScenario, deploy_scenario
from causeway.network.scenario_plan import ScenarioPlan, plan_scenario
from causeway.programs.catalogue import find_program_class
from causeway.programs.user_modules import allow_scenario_folder
from causeway.scenarios.scenario import (
    PROTOCOLS,
    Scenario,
    read_scenario_document,
    scenario_from,
    scenario_model,
    select_protocol_tables,
)
from causeway.scenarios.settings import NOTHING_INSTALLED
from causeway.spark.masters import available_cores

MAXIMUM = 100
"""So many things that are wrong are named at most."""

_NAMED = ("chains", "programs", "install")
"""Lists whose elements have names."""

_REFERRED = ("install", "inject", "heal")
"""Lists of a change whose elements others refer to."""

_REMOVABLE: tuple[tuple[Key, ...], ...] = (("faults",), ("moves",), ("nodes",), ("splits",), ("traffic", "send"))
"""Lists whose elements nothing else refers to: what comes after a wrong one can be judged without it."""

_NEEDED = ("name", "chain", "source", "destination", "program", "kind", "tick")
"""Keys of elements of lists that others refer to, or that must be there: a wrong one is replaced, not left out."""

_NAMING = ("relayers",)
"""Options whose elements others refer to: each name stands for itself once, and without them nothing can be judged."""

_KEY = re.compile(r'([A-Za-z_][\w-]*(?:\.[\w-]+|\."[^"]*"|\[\d+\])*)(?=: )')
_UNKNOWN = ": unknown key"
_MEANT = re.compile(r": unknown key; did you mean ([\w-]+)\?")
_MISSING = ": missing"
_STAND_IN = "unnamed-"
"""How names begin that stand for wrong ones."""

_LISTED = re.compile(r"there are (\d+): (.*)$")
_TOML_LINE = re.compile(r"\(at line (\d+),")


@dataclass(frozen=True)
class ScenarioRemark:
    """Something that is wrong, or does nothing. ``key``: where, None: nowhere in the file; ``line``: from 1, None: it
    is said on the command line, or missing; ``text``: what."""

    key: str | None
    line: int | None
    text: str


@dataclass(frozen=True)
class ScenarioExamination:
    """What came of it. ``plan``: what would run, None where something is wrong. ``more``: something may be wrong that
    can be judged only when what is named is mended."""

    path: str
    wrong: tuple[ScenarioRemark, ...]
    plan: ScenarioPlan | None = None
    idle: tuple[ScenarioRemark, ...] = ()
    more: bool = False


def examine_scenario(path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> ScenarioExamination:
    """Look at the scenario of a TOML file; ``overrides``: as of ``load_scenario``.

    Its programs are imported; a recording is read, into a temporary folder. Raises ``InvalidInput`` where there is no
    such file, or an override leads nowhere.
    """
    text = read_text(Path(path))
    try:
        document = read_scenario_document(path, overrides, text)
    except InvalidInput as error:
        found = _TOML_LINE.search(str(error))
        if found is None:
            raise
        return ScenarioExamination(
            str(path), (ScenarioRemark(None, int(found[1]), _without(str(error), path)),), more=True
        )
    return _Examination(str(path), text, document, overrides or {}).examined()


@dataclass
class _Examination:
    """Collects what is wrong with a document, which is mended on the way by leaving out what is wrong."""

    path: str
    text: str
    document: dict[str, Any]
    overrides: Mapping[str, str]
    wrong: list[ScenarioRemark] = field(default_factory=list)
    stuck: bool = False
    """What is wrong cannot be left out."""

    def __post_init__(self) -> None:
        self.document = copy.deepcopy(self.document)
        self._lines = key_lines(self.text)
        self._gone: set[tuple[Key, ...]] = set()
        self._meant: set[tuple[Key, ...]] = set()
        self._filled: set[tuple[Key, ...]] = set()
        self._options: tuple[str, ...] = ("options",)
        self._places: dict[tuple[Key, ...], list[int]] = {}
        changes = self.document.get("changes")
        changes = changes if isinstance(changes, list) else []
        of_changes: list[tuple[Key, ...]] = [
            ("changes", place, what)
            for place, change in enumerate(changes)
            for what in (change if isinstance(change, dict) else {})
            if what not in _REFERRED
        ]
        given = [each.get("tick") if isinstance(each, dict) else None for each in changes]
        self._ticks = [tick if isinstance(tick, int) else None for tick in given]
        for steps in (*_REMOVABLE, *of_changes):
            node: Any = self.document
            for step in steps:
                if isinstance(node, list) and isinstance(step, int):
                    node = node[step]
                else:
                    node = node.get(step) if isinstance(node, dict) else None
            if isinstance(node, list):
                self._places[steps] = [*range(len(node))]

    def examined(self) -> ScenarioExamination:
        scenario = self._validated()
        deployed: DeployedScenario | None = None
        if scenario is not None:
            with tempfile.TemporaryDirectory(prefix="causeway-check-") as folder:
                deployed = self._deployed(folder)
                if deployed is not None and not self.wrong:
                    plan, idle = plan_scenario(scenario, deployed)
                    remarks = sorted((self._remark(text) for text in idle), key=lambda each: each.line or 0)
                    return ScenarioExamination(self.path, (), plan, tuple(remarks))
        wrong = sorted(self.wrong, key=lambda each: each.line or 0)
        return ScenarioExamination(self.path, tuple(wrong), more=self.stuck)

    def _validated(self) -> Scenario | None:
        """Return the scenario of the document, mended if need be."""
        while True:
            try:
                model, document = (
                    scenario_model(self.document, self.path),
                    select_protocol_tables(self.document, self.path),
                )
            except InvalidInput as error:
                if self._noted([_without(str(error), self.path)]):
                    continue
                return None
            found, texts = collect_errors(model, document)
            if found is not None:
                scenario = Scenario(self.path, found)
                own = (PROTOCOLS, scenario.network.protocol)
                self._options = own if own[1] in self.document.get(PROTOCOLS, {}) else ("options",)
                texts = collect_errors(scenario.protocol.load_options(), scenario.options, ("options",))[1]
            if not texts:
                try:
                    return scenario_from(self.document, self.path)
                except InvalidInput as error:
                    texts = [_without(str(error), self.path)]
            if not self._noted(texts):
                return None

    def _deployed(self, folder: str) -> DeployedScenario | None:
        """Return the network, mended if need be."""
        while True:
            scenario = self._validated()
            if scenario is not None and self._programs_left_out(scenario):
                scenario = self._validated()
            if scenario is None:
                return None
            try:
                return deploy_scenario(scenario, os.path.join(folder, "lake"), None, available_cores())
            except InvalidInput as error:
                if not self._noted([_without(str(error), self.path)]):
                    return None

    def _programs_left_out(self, scenario: Scenario) -> bool:
        """Return whether classes of programs cannot be had; in their place nothing is installed."""
        allow_scenario_folder(self.path)
        before = len(self.wrong)
        for key, name in scenario.installed.items():
            if name == NOTHING_INSTALLED:
                continue
            try:
                find_program_class(name)
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
        # A key that was left out may be one that must be there: then it gets a value with which all else is judged.
        done = all(steps is not None or self._fill(text) for (steps, _), text in zip(noted, texts, strict=True))
        done = done and len(self.wrong) < MAXIMUM
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
        if any(steps[:size] in removed for size in range(1, len(steps) + 1)):
            return True
        element = self._element(steps)
        if element is not None:
            listed, number = element
            table = self._parent(steps)
            if needless and len(steps) > len(listed) + 1 and table is not None:
                del table[str(steps[-1])]  # all else that the element has can be judged
                return True
            removed.add((*listed, number))
            node: Any = self.document
            for step in listed:
                node = node[step]
            del node[number], self._places[listed][number]
            if listed[0] == "changes":
                self._let_do_something(listed[1])
            if listed == ("faults",):
                self._renumber_healed(number)
            return True
        if steps[-2:-1] == ("inject",):  # one that begins before its change
            return self._fill_in((*steps, "from"))
        if steps[:-1] == ("changes",):
            return self._let_do_something(steps[-1])
        if isinstance(steps[-1], int):  # a name that is taken, or that is not given
            return steps[-2] in _NAMED and self._fill_in((*steps, "name"))
        parent = self._parent(steps)
        if parent is None:
            return False
        if steps[-1] not in parent:
            return self._fill_in(steps)
        if steps[-1] in _NAMING:
            return self._named_once(parent, steps[-1])
        if steps[-1] in _NEEDED and not needless and any(isinstance(step, int) for step in steps):
            self._gone.add(steps)
            return self._fill_in(steps)
        self._gone.add(steps)
        del parent[steps[-1]]
        return True

    def _named_once(self, parent: dict[str, Any], key: Key) -> bool:
        """Leave out names that are there before; return whether some were."""
        names = parent[str(key)]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return False
        parent[str(key)] = [*dict.fromkeys(names)]
        return len(parent[str(key)]) < len(names)

    def _parent(self, steps: tuple[Key, ...]) -> dict[str, Any] | None:
        """Return the table that a key stands in; None where there is none."""
        parent: Any = self.document
        for step in steps[:-1]:
            there = step in parent if isinstance(parent, dict) else isinstance(step, int) and step < len(parent)
            if not there or not isinstance(parent[step], dict | list):
                return None
            parent = parent[step]
        return parent if isinstance(parent, dict) else None

    def _let_do_something(self, place: Key) -> bool:
        """Let a change do something, as each must; return whether it did nothing."""
        change = self.document["changes"][place]
        idle = isinstance(change, dict) and "heal" not in change
        if idle:
            change["heal"] = True
        return idle

    def _fill(self, text: str) -> bool:
        """Give a key a value that was left out and must be there; return whether that could be done."""
        steps = self._steps(text)[0]
        return steps is not None and steps in self._gone and self._fill_in(steps)

    def _fill_in(self, steps: tuple[Key, ...]) -> bool:
        """Give a key of an element of a list a value with which nothing else becomes wrong; return whether there is
        one. Each key gets one once."""
        if steps in self._filled or not any(isinstance(step, int) for step in steps):
            return False
        parent, value = self._parent(steps), self._stand_in(steps)
        if parent is None or value is None:
            return False
        self._filled.add(steps)
        if steps[-1] == "kind":  # the keys of a fault are those of its kind
            parent.clear()
            parent.update({"from": self._stand_in((*steps[:-1], "from"))} if "inject" in steps else {})
        parent[str(steps[-1])] = value
        if steps[-1] == "tick":
            self._settle_ticks()
        return True

    def _settle_ticks(self) -> None:
        """Let changes come after the one before them, where only a value that stands for a wrong one is in the way; the
        faults that they inject begin no earlier."""
        last, given = -1, -1
        for place, (change, own) in enumerate(zip(self.document["changes"], self._ticks, strict=True)):
            if not isinstance(change, dict) or not isinstance(tick := change.get("tick"), int):
                continue
            if ("changes", place, "tick") in self._filled or own is None or own > given:
                change["tick"] = max(tick, last + 1)
            last, given = max(last, change["tick"]), max(given, own or 0)
            faults = change.get("inject")
            for fault in faults if isinstance(faults, list) and change["tick"] != own else []:
                if isinstance(fault, dict):
                    fault["from"] = change["tick"]
                    fault.pop("until", None)

    def _stand_in(self, steps: tuple[Key, ...]) -> object:
        """Return a value for a key that must be there; None for one that has none."""
        chains = self.document.get("chains")
        listed = [each for each in chains if isinstance(each, dict)] if isinstance(chains, list) else []
        names = [each["name"] for each in listed if isinstance(each.get("name"), str)]
        names += [f"{each['prefix']}0" for each in listed if isinstance(each.get("prefix"), str)]
        match steps[-1]:
            case "name":
                return f"{_STAND_IN}{len(self._filled)}"
            case "chain" | "source" | "destination":
                return names[0] if names else None
            case "program" if steps[0] == "programs" or "install" in steps:
                return NOTHING_INSTALLED
            case "kind":
                return "drop"
            case "from" if "inject" in steps and isinstance(steps[1], int):
                return self.document["changes"][steps[1]].get("tick", 0)
            case "tick" if steps[0] == "changes" and isinstance(steps[1], int):
                before = self.document["changes"][: steps[1]]
                ticks = [each["tick"] for each in before if isinstance(each.get("tick"), int)]
                return max(ticks, default=-1) + 1
        return None

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
        if steps is not None and text.endswith(_MISSING) and self._as_written(steps) in self._meant:
            return steps
        if steps is not None and (meant := _MEANT.search(text)) is not None:
            self._meant.add((*self._as_written(steps)[:-1], meant[1]))
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

    def _remark(self, text: str) -> ScenarioRemark:
        steps, said = self._steps(text)
        if steps is None:
            return ScenarioRemark(None, None, said)
        steps = self._as_written(steps)
        return ScenarioRemark(format_key(steps), self._line(steps), _without_stand_ins(said))

    def _as_written(self, steps: tuple[Key, ...]) -> tuple[Key, ...]:
        """Return the steps in the file to what stands at others in the document as it is now."""
        element = self._element(steps)
        if element is None:
            return steps
        listed, number = element
        return (*listed, self._places[listed][number], *steps[len(listed) + 1 :])

    def _element(self, steps: tuple[Key, ...]) -> tuple[tuple[Key, ...], int] | None:
        """Return the list with removable elements that steps lead into, and which element; None for any other place."""
        for listed, places in self._places.items():
            number = steps[len(listed)] if len(steps) > len(listed) and steps[: len(listed)] == listed else None
            if isinstance(number, int) and number < len(places):
                return listed, number
        return None

    def _line(self, steps: tuple[Key, ...]) -> int | None:
        if any(tuple(parse_key(key)) == steps[: len(parse_key(key))] for key in self.overrides):
            return None
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps)


def _without_stand_ins(text: str) -> str:
    """Return what is said of a name without those that only stand for wrong ones."""
    listed = _LISTED.search(text)
    if listed is None or _STAND_IN not in listed[2]:
        return text
    names = [name for name in listed[2].split(", ") if not name.startswith(_STAND_IN)]
    count = int(listed[1]) - (listed[2].count(", ") + 1 - len(names))
    return f"{text[: listed.start()]}there are {count}: {', '.join(names) or 'none'}"


def _without(text: str, path: str | os.PathLike[str]) -> str:
    return text.removeprefix(f"{path}: ")


__all__ = ["MAXIMUM", "ScenarioExamination", "ScenarioRemark", "examine_scenario"]
