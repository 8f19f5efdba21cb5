"""The state of a set of chains whose rows are the frames of tables by name, with tries derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.protocols.contract import Chains, StateTable
from causeway.protocols.execution import PROGRAM_TABLE, ProgramRunner, outdated_on, program_frames
from causeway.protocols.hosting import Hosting


@dataclass
class KeptTries:
    """Tries that are derived from tables, None where they are to be built: without them every root is the same."""

    tries: object = None


@dataclass(frozen=True)
class TabledState:
    """The states of a set of chains at one height: the frames of a wing's tables, in the order of each, and the
    programs' by the names of their classes. ``kept``: a derived index."""

    tables: Mapping[str, Frame]
    programs: Mapping[str, Frame]
    kept: KeptTries = field(default_factory=KeptTries, compare=False)

    def __getitem__(self, name: str) -> Frame:
        return self.tables[name]

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by its name. A round that does not change a table keeps the object."""
        return dict(self.tables) | {PROGRAM_TABLE + name: frame for name, frame in self.programs.items()}

    def with_tables(self, **tables: Frame) -> Self:
        """Return the state with some of its tables replaced."""
        return replace(self, tables={**self.tables, **tables})

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> Self:
        """Return the state with what execution left."""
        return replace(self.with_tables(accounts=accounts), programs=programs)

    @classmethod
    def of_frames(
        cls, frames: Mapping[str, Frame], tables: Mapping[str, StateTable], program_schemas: Mapping[str, pa.Schema]
    ) -> Self:
        """Return the state that has these frames; of ``tables`` and program classes, absent ones are empty."""
        rows = {name: frames.get(name, empty_frame(table.schema)) for name, table in tables.items()}
        programs = {name: empty_frame(schema) for name, schema in program_schemas.items()}
        return cls(rows, programs | program_frames(frames))


Tabled = TypeVar("Tabled", bound=TabledState)


def with_changed_programs(state: Tabled, hosting: Hosting, programs: ProgramRunner, chains: Chains) -> Tabled:
    """Return the state with the programs that changes installed on ``chains``, or gave another class."""
    hosts = hosting.host_of(programs.changed)
    due = outdated_on(programs, hosts, chains, state["accounts"], state.programs)
    return state.with_programs(*programs.brought_up(due, state["accounts"], state.programs)) if len(due) else state
