"""All programs of a network behind the kernels' contract (``ProgramRunner``).

``Programs`` groups messages by program class and passes them to scalar and vector runners. After a change of the
network it installs and upgrades programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, find_positions, group_rows, stable_order

from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.vocabulary import PortableCode
from causeway.programs.catalogue import find_program_class
from causeway.programs.naming import NO_NAMES, ProgramNames
from causeway.programs.outputs import (
    ASKED_COLUMNS,
    BALANCE,
    MESSAGE_COLUMNS,
    NO_FAILURES,
    ClassOutcome,
    HandlerError,
    balance_words,
    failure_rows,
    failure_text,
    sort_by_production,
)
from causeway.programs.scalar import Program
from causeway.programs.scalar_runner import ScalarRunner
from causeway.programs.state_values import read_only
from causeway.programs.vector import VectorProgram, ensure_rootable
from causeway.programs.vector_runner import VectorRunner
from causeway.protocols.shared.execution import ACCEPTED_SCHEMA, CERTIFIED_DATA_SCHEMA, Execution, program_reject_code

DENSE_LIMIT = 1 << 24
NOT_INSTALLED = -1


class Programs:
    """The programs of a topology; picklable, without state of chains.

    Args:
        topology: The topology.
        meaning: Maps the protocol's reject codes to portable codes.
        before: The programs before a change of the network.

    Raises:
        InvalidInput: A program is unknown, its state cannot have a root, or it cannot take over the state of another
            class.
    """

    def __init__(
        self, topology: Topology, meaning: PortableCode = program_reject_code, before: Programs | None = None
    ) -> None:
        self._meaning = meaning
        rows = topology.programs.select(["number", "program", "options", "balance"]).to_pylist()
        rows.sort(key=lambda row: int(row["number"]))
        installed = [row for row in rows if row["program"] is not None]
        self.classes: list[str] = sorted({*(row["program"] for row in installed), *(before.classes if before else ())})
        self._numbers = np.array([row["number"] for row in installed], dtype=np.uint64)
        places = {name: place for place, name in enumerate(self.classes)}
        self._class_of = np.array([places[row["program"]] for row in installed], dtype=np.int16)
        self._options: dict[str, dict[int, Mapping[str, Any]]] = {name: {} for name in self.classes}
        self._balances: dict[int, int] = {}
        for row in installed:
            if row["options"] not in ("", "{}"):
                self._options[row["program"]][int(row["number"])] = read_only(json.loads(row["options"]))
            if row["balance"]:
                self._balances[int(row["number"])] = int(row["balance"])
        self._names = NO_NAMES
        for name in self.classes:
            found = find_program_class(name)
            if issubclass(found, VectorProgram):
                ensure_rootable(name, found.schema)
            else:  # only scalar programs call others by name
                self._names = ProgramNames(topology.programs["number"], topology.programs["name"])

        self._changed = self._changes(before) if before else np.empty(0, dtype=np.uint64)

    def _changes(self, before: Programs) -> U64:
        """Return the newly installed or upgraded programs.

        Raises ``InvalidInput`` for an invalid upgrade.
        """
        was = before.class_names(self._numbers)
        now = self.class_names(self._numbers)
        for one, other in sorted(
            {(one, other) for one, other in zip(was, now, strict=True) if one not in (None, other)}
        ):
            ensure_upgradable(str(one), str(other))
        differs = np.array([one != other for one, other in zip(was, now, strict=True)], dtype=bool)
        return np.union1d(before.changed, self._numbers[differs])

    def class_names(self, programs: U64) -> list[str | None]:
        """Return the class of each program, or None."""
        return [
            None if place == NOT_INSTALLED else self.classes[place] for place in self._classes_of(programs).tolist()
        ]

    @cached_property
    def _runners(self) -> list[ScalarRunner | VectorRunner]:
        runners: list[ScalarRunner | VectorRunner] = []
        for name in self.classes:
            program = find_program_class(name)
            if issubclass(program, Program):
                runners.append(ScalarRunner(program, self._options[name], self._names, self._meaning))
            else:
                runners.append(VectorRunner(program, self._options[name]))
        return runners

    @cached_property
    def _dense(self) -> npt.NDArray[np.int16] | None:
        if len(self._numbers) == 0 or int(self._numbers[-1]) >= DENSE_LIMIT:
            return None
        table = np.full(int(self._numbers[-1]) + 2, NOT_INSTALLED, dtype=np.int16)
        table[self._numbers] = self._class_of
        return table

    def _classes_of(self, programs: U64) -> npt.NDArray[np.int16]:
        if self._dense is not None:
            dense: npt.NDArray[np.int16] = self._dense[np.minimum(programs, np.uint64(len(self._dense) - 1))]
            return dense
        if len(self._numbers) == 0:
            return np.full(len(programs), NOT_INSTALLED, dtype=np.int16)
        places = np.minimum(np.searchsorted(self._numbers, programs), len(self._numbers) - 1)
        return np.where(self._numbers[places] == programs, self._class_of[places], NOT_INSTALLED).astype(np.int16)

    def installed(self, programs: U64) -> npt.NDArray[np.bool_]:
        """Return a mask of the programs (numbers) that have a class."""
        installed: npt.NDArray[np.bool_] = self._classes_of(programs) != NOT_INSTALLED
        return installed

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schema of the state table of every program class."""
        return {name: runner.schema for name, runner in zip(self.classes, self._runners, strict=True)}

    @property
    def changed(self) -> U64:
        """Numbers of the programs installed or upgraded after genesis, ascending."""
        return self._changed

    def outdated(self, programs: U64, accounts: Frame, states: Mapping[str, Frame]) -> U64:
        """Return the programs to install, or whose state belongs to another class.

        Args:
            programs: Numbers among ``changed``.
            accounts: Current accounts.
            states: Current states by class.
        """
        missing = find_positions(accounts["program"], programs) < 0
        elsewhere = np.zeros(len(programs), dtype=bool)
        classes = self._classes_of(programs)
        for place, name in enumerate(self.classes):
            if name in states and len(states[name]):
                elsewhere |= (find_positions(states[name]["program"], programs) >= 0) & (classes != place)
        return programs[missing | elsewhere]

    def install(self, programs: U64, accounts: Frame, states: Mapping[str, Frame]) -> tuple[Frame, Mapping[str, Frame]]:
        """Install and upgrade programs.

        Args:
            programs: Numbers of the outdated programs.
            accounts: Current accounts.
            states: Current states by class.

        Returns:
            The new accounts and states.

        Raises:
            InvalidInput: A program cannot create its state.
        """
        missing = find_positions(accounts["program"], programs) < 0
        more, begun = self.genesis(programs[missing])
        after = {name: sort_by_program([states[name], begun[name]]) for name in self.classes}
        for name, runner in zip(self.classes, self._runners, strict=True):
            upgraded = programs[~missing & (self._classes_of(programs) == self.classes.index(name))]
            for other in self.classes:
                is_moving = np.isin(after[other]["program"], upgraded) if other != name else np.zeros(0, dtype=bool)
                if not is_moving.any():
                    continue
                rows = after[other].filter(is_moving)
                try:
                    converted = runner.upgraded(rows["program"], rows)
                except Exception as error:  # programs may raise anything
                    raise InvalidInput(
                        f'program "{name}" has no state after "{other}": {failure_text(error)}'
                    ) from error
                after[other] = after[other].filter(~is_moving)
                after[name] = sort_by_program([after[name], converted])
        return sort_by_program([accounts, more]), after

    def genesis(self, programs: U64) -> tuple[Frame, Mapping[str, Frame]]:
        """Create accounts and states.

        Args:
            programs: Numbers of installed programs, ascending.

        Raises:
            InvalidInput: A program cannot create its first state.
        """
        balances = [balance_words(self._balances.get(number, 0)) for number in programs.tolist()]
        accounts = Frame(
            {
                "program": programs,
                "next_callback": np.zeros(len(programs), dtype=np.uint64),
                **{
                    name: np.array([words[place] for words in balances], dtype=np.uint64)
                    for place, name in enumerate(BALANCE)
                },
            }
        )
        classes = self._classes_of(programs)
        states = {}
        for place, (name, runner) in enumerate(zip(self.classes, self._runners, strict=True)):
            try:
                states[name] = runner.initial_state(programs[classes == place])
            except Exception as error:  # programs may raise anything
                raise InvalidInput(f'program "{name}" has no first state: {failure_text(error)}') from error
        return accounts, states

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers of installed programs.

        Args:
            inputs: Messages; those of a program are adjacent, in order of consumption.
            accounts: Current accounts.
            states: Current states by class.
        """
        groups = group_rows(inputs["receiver"])
        classes = groups.spread(self._classes_of(inputs["receiver"][groups.starts]))
        after = dict(states)
        outputs: list[Frame] = []
        failed: list[Frame] = [NO_FAILURES]
        raised: list[HandlerError] = []
        certified: list[Frame] = [empty_frame(CERTIFIED_DATA_SCHEMA)]
        accepted: list[Frame] = [empty_frame(ACCEPTED_SCHEMA)]
        for place in np.unique(classes).tolist():
            rows = np.flatnonzero(classes == place)
            class_inputs = inputs if len(rows) == len(inputs) else inputs.take(rows)
            name = self.classes[place]
            outcome: ClassOutcome = self._runners[place].run(class_inputs, rows, accounts, after[name])
            accounts, after[name] = outcome.accounts, outcome.state
            outputs.append(outcome.outputs)
            failed.append(outcome.failures)
            raised.extend(outcome.raised)
            certified.append(outcome.certified)
            accepted.append(outcome.accepted)
        produced = sort_by_production(outputs)
        raised.sort(key=lambda each: each.row)
        return Execution(
            produced=produced.select(MESSAGE_COLUMNS),
            origins=produced["row"],
            failures=concat(failed),
            accounts=accounts,
            programs=after,
            raised=failure_rows(raised),
            asked=produced.select(ASKED_COLUMNS),
            certified=concat(certified),
            accepted=concat(accepted),
        )


def sort_by_program(parts: list[Frame]) -> Frame:
    """Merge frames and sort them by program; empty frames are skipped."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else parts[0]
    rows = concat(some)
    return rows.take(stable_order(rows["program"]))


def ensure_upgradable(was: str, now: str) -> None:
    """Check that a class can take over the state of another. Raises ``InvalidInput``.

    Scalar programs accept any state; vector programs need the same schema.
    """
    before_class, after_class = find_program_class(was), find_program_class(now)
    scalar = issubclass(before_class, Program), issubclass(after_class, Program)
    if scalar == (True, True):
        return
    if any(scalar):
        kinds = ["a scalar" if each else "a vectorised" for each in scalar]
        raise InvalidInput(f'program "{now}" is {kinds[1]} program, and takes over from "{was}", {kinds[0]} one')
    assert issubclass(before_class, VectorProgram) and issubclass(after_class, VectorProgram)
    if before_class.schema != after_class.schema:
        raise InvalidInput(f'program "{now}" keeps other columns than "{was}", whose state it takes over')
