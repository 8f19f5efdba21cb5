"""Validation of a scenario without a run: mistakes, the plan, settings without effect.

A scenario is validated repeatedly. Each mistake is recorded, then repaired in a copy of the document: its element or
key is removed, or required keys get a placeholder. So the next validation finds the mistakes behind it. ``stuck`` marks
a mistake that cannot be repaired.
"""

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

from causeway.cluster.masters import available_cores
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

MAXIMUM = 100
"""Maximum number of mistakes named."""

_NAMED = ("chains", "programs", "install")
"""Lists with named elements."""

_REFERENCED = ("install", "inject", "heal")
"""Lists of a change with elements that others refer to."""

_REMOVABLE: tuple[tuple[Key, ...], ...] = (("faults",), ("moves",), ("nodes",), ("splits",), ("traffic", "send"))
"""Lists with elements that nothing refers to: a wrong element can be removed."""

_REPLACED = ("name", "chain", "source", "destination", "program", "kind", "tick")
"""Required keys of list elements, or keys others refer to: a wrong value is replaced."""

_UNIQUE_OPTIONS = ("relayers",)
"""Options whose elements others refer to: repeated names are removed, never the list."""

_KEY = re.compile(r'([A-Za-z_][\w-]*(?:\.[\w-]+|\."[^"]*"|\[\d+\])*)(?=: )')
_UNKNOWN = ": unknown key"
_SUGGESTION = re.compile(r": unknown key; did you mean ([\w-]+)\?")
_MISSING = ": missing"
_PLACEHOLDER = "unnamed-"
"""Prefix of placeholder names."""

_LISTED = re.compile(r"there are (\d+): (.*)$")
_TOML_LINE = re.compile(r"\(at line (\d+),")


@dataclass(frozen=True)
class ScenarioRemark:
    """A mistake in a scenario, or a setting without effect.

    Attributes:
        key: Key in the file; None: not tied to a key.
        line: Line from 1; None: given on the command line, or missing.
        text: Description.
    """

    key: str | None
    line: int | None
    text: str


@dataclass(frozen=True)
class ScenarioExamination:
    """The result of validating a scenario.

    Attributes:
        path: The scenario file.
        wrong: Mistakes, by line.
        plan: The plan of a run; None with mistakes.
        idle: Settings without effect, by line.
        more: True if further mistakes may show only after the named ones are fixed.
    """

    path: str
    wrong: tuple[ScenarioRemark, ...]
    plan: ScenarioPlan | None = None
    idle: tuple[ScenarioRemark, ...] = ()
    more: bool = False


def examine_scenario(path: str | os.PathLike[str], overrides: Mapping[str, str] | None = None) -> ScenarioExamination:
    """Validate a scenario file without running it.

    Programs are imported; a recording is read into a temporary folder.

    Args:
        path: The TOML file.
        overrides: As in ``load_scenario``.

    Raises:
        InvalidInput: The file does not exist, or an override names no key.
    """
    text = read_text(Path(path))
    try:
        document = read_scenario_document(path, overrides, text)
    except InvalidInput as error:
        found = _TOML_LINE.search(str(error))
        if found is None:
            raise
        return ScenarioExamination(
            str(path), (ScenarioRemark(None, int(found[1]), _strip_path(str(error), path)),), more=True
        )
    return _Examination(str(path), text, document, overrides or {}).examine()


@dataclass
class _Examination:
    """Collects the mistakes of a document and repairs its copy for the next validation.

    Attributes:
        path: The scenario file.
        text: Text of the file.
        document: The document, repaired step by step.
        overrides: Overridden keys.
        wrong: Mistakes so far.
        stuck: True after a mistake that cannot be repaired.
    """

    path: str
    text: str
    document: dict[str, Any]
    overrides: Mapping[str, str]
    wrong: list[ScenarioRemark] = field(default_factory=list)
    stuck: bool = False
    """True after a mistake that cannot be repaired."""

    def __post_init__(self) -> None:
        self.document = copy.deepcopy(self.document)
        self._lines = key_lines(self.text)
        self._removed_keys: set[tuple[Key, ...]] = set()
        self._suggested_keys: set[tuple[Key, ...]] = set()
        self._placeholders: set[tuple[Key, ...]] = set()
        self._options: tuple[str, ...] = ("options",)
        self._positions: dict[tuple[Key, ...], list[int]] = {}
        changes = self.document.get("changes")
        changes = changes if isinstance(changes, list) else []
        of_changes: list[tuple[Key, ...]] = [
            ("changes", place, what)
            for place, change in enumerate(changes)
            for what in (change if isinstance(change, dict) else {})
            if what not in _REFERENCED
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
                self._positions[steps] = [*range(len(node))]

    def examine(self) -> ScenarioExamination:
        """Validate and deploy the scenario; return the mistakes, or the plan."""
        scenario = self._validate()
        deployed: DeployedScenario | None = None
        if scenario is not None:
            with tempfile.TemporaryDirectory(prefix="causeway-check-") as folder:
                deployed = self._deploy(folder)
                if deployed is not None and not self.wrong:
                    plan, idle = plan_scenario(scenario, deployed)
                    remarks = sorted((self._remark(text) for text in idle), key=lambda each: each.line or 0)
                    return ScenarioExamination(self.path, (), plan, tuple(remarks))
        wrong = sorted(self.wrong, key=lambda each: each.line or 0)
        return ScenarioExamination(self.path, tuple(wrong), more=self.stuck)

    def _validate(self) -> Scenario | None:
        """Validate the document, repairing it as needed; return None if it cannot be repaired."""
        while True:
            try:
                model, document = (
                    scenario_model(self.document, self.path),
                    select_protocol_tables(self.document, self.path),
                )
            except InvalidInput as error:
                if self._note_all([_strip_path(str(error), self.path)]):
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
                    texts = [_strip_path(str(error), self.path)]
            if not self._note_all(texts):
                return None

    def _deploy(self, folder: str) -> DeployedScenario | None:
        """Deploy the scenario, repairing it as needed; return None if it cannot be repaired."""
        while True:
            scenario = self._validate()
            if scenario is not None and self._replace_missing_programs(scenario):
                scenario = self._validate()
            if scenario is None:
                return None
            try:
                return deploy_scenario(scenario, os.path.join(folder, "lake"), None, available_cores())
            except InvalidInput as error:
                if not self._note_all([_strip_path(str(error), self.path)]):
                    return None

    def _replace_missing_programs(self, scenario: Scenario) -> bool:
        """Replace program classes that cannot be loaded by nothing; return True if there were any."""
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

    def _note_all(self, texts: list[str]) -> bool:
        """Record mistakes and repair them; return True if all were repaired."""
        noted = [(self._note(text), _UNKNOWN in text) for text in texts]
        # A key that was removed may be required: then a placeholder lets the rest be validated.
        done = all(steps is not None or self._fill_removed(text) for (steps, _), text in zip(noted, texts, strict=True))
        done = done and len(self.wrong) < MAXIMUM
        wrong = [(steps, unknown) for steps, unknown in noted if steps is not None]
        # Later elements of a list first, so that the positions of the others stay valid.
        wrong.sort(key=lambda each: [step for step in each[0] if isinstance(step, int)], reverse=True)
        removed: set[tuple[Key, ...]] = set()
        for steps, unknown in wrong:
            done = self._repair(steps, unknown, removed) and done
        self.stuck = self.stuck or not done
        return done

    def _repair(self, steps: tuple[Key, ...], unknown: bool, removed: set[tuple[Key, ...]]) -> bool:
        """Remove a list element, or remove or replace a key; return True on success.

        Args:
            steps: Path in the current document.
            unknown: True for an unknown key.
            removed: List elements removed in this pass.
        """
        if any(steps[:size] in removed for size in range(1, len(steps) + 1)):
            return True
        element = self._element(steps)
        if element is not None:
            listed, number = element
            table = self._parent(steps)
            if unknown and len(steps) > len(listed) + 1 and table is not None:
                del table[str(steps[-1])]  # the rest of the element can be validated
                return True
            removed.add((*listed, number))
            node: Any = self.document
            for step in listed:
                node = node[step]
            del node[number], self._positions[listed][number]
            if listed[0] == "changes":
                self._make_effective(listed[1])
            if listed == ("faults",):
                # Renumber the faults that changes heal after one fault was removed.
                changes = self.document.get("changes")
                for change in changes if isinstance(changes, list) else []:
                    healed = change.get("heal") if isinstance(change, dict) else None
                    if isinstance(healed, list) and all(isinstance(each, int) for each in healed):
                        change["heal"] = [each - (each > number) for each in healed if each != number] or True
            return True
        if steps[-2:-1] == ("inject",):  # a fault that begins before its change
            return self._fill_key((*steps, "from"))
        if steps[:-1] == ("changes",):
            return self._make_effective(steps[-1])
        if isinstance(steps[-1], int):  # a duplicate or missing name
            return steps[-2] in _NAMED and self._fill_key((*steps, "name"))
        parent = self._parent(steps)
        if parent is None:
            return False
        if steps[-1] not in parent:
            return self._fill_key(steps)
        if steps[-1] in _UNIQUE_OPTIONS:
            return self._deduplicate(parent, steps[-1])
        if steps[-1] in _REPLACED and not unknown and any(isinstance(step, int) for step in steps):
            self._removed_keys.add(steps)
            return self._fill_key(steps)
        self._removed_keys.add(steps)
        del parent[steps[-1]]
        return True

    def _deduplicate(self, parent: dict[str, Any], key: Key) -> bool:
        """Remove repeated names of an option; return True if there were any."""
        names = parent[str(key)]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return False
        parent[str(key)] = [*dict.fromkeys(names)]
        return len(parent[str(key)]) < len(names)

    def _parent(self, steps: tuple[Key, ...]) -> dict[str, Any] | None:
        """Return the table that holds a key, or None."""
        parent: Any = self.document
        for step in steps[:-1]:
            exists = step in parent if isinstance(parent, dict) else isinstance(step, int) and step < len(parent)
            if not exists or not isinstance(parent[step], dict | list):
                return None
            parent = parent[step]
        return parent if isinstance(parent, dict) else None

    def _make_effective(self, place: Key) -> bool:
        """Give a change without effect one, since each needs one; return True if it had none."""
        change = self.document["changes"][place]
        idle = isinstance(change, dict) and "heal" not in change
        if idle:
            change["heal"] = True
        return idle

    def _fill_removed(self, text: str) -> bool:
        """Give a removed but required key a placeholder; return True on success."""
        steps = self._steps(text)[0]
        return steps is not None and steps in self._removed_keys and self._fill_key(steps)

    def _fill_key(self, steps: tuple[Key, ...]) -> bool:
        """Give a key of a list element a valid placeholder, once; return True on success."""
        if steps in self._placeholders or not any(isinstance(step, int) for step in steps):
            return False
        parent, value = self._parent(steps), self._placeholder(steps)
        if parent is None or value is None:
            return False
        self._placeholders.add(steps)
        if steps[-1] == "kind":  # other keys of a fault depend on its kind
            parent.clear()
            parent.update({"from": self._placeholder((*steps[:-1], "from"))} if "inject" in steps else {})
        parent[str(steps[-1])] = value
        if steps[-1] == "tick":
            self._reorder_ticks()
        return True

    def _reorder_ticks(self) -> None:
        """Move changes after their predecessor where only a placeholder tick is in the way.

        Faults that they inject begin no earlier than the change.
        """
        last, given = -1, -1
        for place, (change, own) in enumerate(zip(self.document["changes"], self._ticks, strict=True)):
            if not isinstance(change, dict) or not isinstance(tick := change.get("tick"), int):
                continue
            if ("changes", place, "tick") in self._placeholders or own is None or own > given:
                change["tick"] = max(tick, last + 1)
            last, given = max(last, change["tick"]), max(given, own or 0)
            faults = change.get("inject")
            for fault in faults if isinstance(faults, list) and change["tick"] != own else []:
                if isinstance(fault, dict):
                    fault["from"] = change["tick"]
                    fault.pop("until", None)

    def _placeholder(self, steps: tuple[Key, ...]) -> object:
        """Return a valid value for a required key, or None."""
        chains = self.document.get("chains")
        listed = [each for each in chains if isinstance(each, dict)] if isinstance(chains, list) else []
        names = [each["name"] for each in listed if isinstance(each.get("name"), str)]
        names += [f"{each['prefix']}0" for each in listed if isinstance(each.get("prefix"), str)]
        match steps[-1]:
            case "name":
                return f"{_PLACEHOLDER}{len(self._placeholders)}"
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

    def _note(self, text: str) -> tuple[Key, ...] | None:
        """Record a mistake; return its path in the current document.

        None for a mistake named before, or one without a key.
        """
        steps, remark = self._steps(text)[0], self._remark(text)
        if remark in self.wrong or steps in self._removed_keys:
            return None
        if steps is not None and text.endswith(_MISSING) and self._original_steps(steps) in self._suggested_keys:
            return steps
        if steps is not None and (meant := _SUGGESTION.search(text)) is not None:
            self._suggested_keys.add((*self._original_steps(steps)[:-1], meant[1]))
        self.wrong.append(remark)
        return steps

    def _steps(self, text: str) -> tuple[tuple[Key, ...] | None, str]:
        """Parse the key of an error line; return its path in the document, or None, and the message."""
        found = _KEY.match(text)
        if found is None:
            return None, text
        steps = tuple(parse_key(found[1]))
        steps = (*self._options, *steps[1:]) if steps[0] == "options" else steps
        return steps, text[found.end() + 2 :]

    def _remark(self, text: str) -> ScenarioRemark:
        """Build the remark of an error line."""
        steps, message = self._steps(text)
        if steps is None:
            return ScenarioRemark(None, None, message)
        steps = self._original_steps(steps)
        return ScenarioRemark(format_key(steps), self._line(steps), _without_placeholders(message))

    def _original_steps(self, steps: tuple[Key, ...]) -> tuple[Key, ...]:
        """Map a path in the current document to the path in the file."""
        element = self._element(steps)
        if element is None:
            return steps
        listed, number = element
        return (*listed, self._positions[listed][number], *steps[len(listed) + 1 :])

    def _element(self, steps: tuple[Key, ...]) -> tuple[tuple[Key, ...], int] | None:
        """Return the list with removable elements on a path, and the element's position, or None."""
        for listed, places in self._positions.items():
            number = steps[len(listed)] if len(steps) > len(listed) and steps[: len(listed)] == listed else None
            if isinstance(number, int) and number < len(places):
                return listed, number
        return None

    def _line(self, steps: tuple[Key, ...]) -> int | None:
        """Return the line of a path in the file, or None."""
        if any(tuple(parse_key(key)) == steps[: len(parse_key(key))] for key in self.overrides):
            return None
        while steps and steps not in self._lines:
            steps = steps[:-1]
        return self._lines.get(steps)


def _without_placeholders(text: str) -> str:
    """Remove placeholder names from an error message."""
    listed = _LISTED.search(text)
    if listed is None or _PLACEHOLDER not in listed[2]:
        return text
    names = [name for name in listed[2].split(", ") if not name.startswith(_PLACEHOLDER)]
    count = int(listed[1]) - (listed[2].count(", ") + 1 - len(names))
    return f"{text[: listed.start()]}there are {count}: {', '.join(names) or 'none'}"


def _strip_path(text: str, path: str | os.PathLike[str]) -> str:
    return text.removeprefix(f"{path}: ")


__all__ = ["MAXIMUM", "ScenarioExamination", "ScenarioRemark", "examine_scenario"]
