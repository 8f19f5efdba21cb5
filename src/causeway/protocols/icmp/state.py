"""The state of any set of chains as columns: the rows of its tables (``tables``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.model.queues import Queues
from causeway.protocols.contract import StateTable
from causeway.protocols.execution import PROGRAM_TABLE, program_frames, program_tables
from causeway.protocols.icmp.tables import QUEUES_SCHEMA, RUNS_SCHEMA, STATE_TABLES
from causeway.protocols.messages import LANE, OUTBOUND_SCHEMA


@dataclass
class KeptTries:
    """Tries that are derived from tables, None where they are to be built: without them every root is the same."""

    tries: object = None


@dataclass(frozen=True)
class State:
    """The states of a set of chains at one height: the frames of ``STATE_TABLES``, in the order of each, and the
    programs' by the names of their classes. ``kept``: a derived index."""

    tables: Mapping[str, Frame]
    programs: Mapping[str, Frame]
    kept: KeptTries = field(default_factory=KeptTries, compare=False)

    def __getitem__(self, name: str) -> Frame:
        return self.tables[name]

    def frames(self) -> dict[str, Frame]:
        """Return the rows of every table by its name. A round that does not change a table keeps the object."""
        return dict(self.tables) | {PROGRAM_TABLE + name: frame for name, frame in self.programs.items()}

    def with_tables(self, **tables: Frame) -> State:
        """Return the state with some of its tables replaced."""
        return replace(self, tables={**self.tables, **tables})

    def lanes(self) -> Queues:
        """Return the lanes; their messages lie in the lake."""
        return Queues(LANE, self["queues"], empty_frame(OUTBOUND_SCHEMA), self["runs"], base=0)

    def with_lanes(self, queues: Queues) -> State:
        """Return the state with other lanes."""
        assert queues.segments is not None
        rows = {"queues": queues.counters.select(QUEUES_SCHEMA.names)}
        if queues.segments is not self["runs"]:
            rows["runs"] = queues.segments.select(RUNS_SCHEMA.names)
        return self.with_tables(**rows)

    def with_programs(self, accounts: Frame, programs: Mapping[str, Frame]) -> State:
        """Return the state with what execution left."""
        return replace(self.with_tables(accounts=accounts), programs=programs)


def state_tables(program_schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return all tables of a state, with whose their rows are, given the schemas of the program classes in use."""
    return STATE_TABLES | program_tables(program_schemas)


def state_of_frames(frames: Mapping[str, Frame], program_schemas: Mapping[str, pa.Schema]) -> State:
    """Return the state that has these tables; absent ones are empty."""
    tables = {name: frames.get(name, empty_frame(table.schema)) for name, table in STATE_TABLES.items()}
    programs = {name: empty_frame(schema) for name, schema in program_schemas.items()}
    return State(tables, programs | program_frames(frames))
