"""The state of any set of chains as columns: the rows of its tables (``tables``)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.model.queues import Queues
from causeway.protocols.icmp.tables import QUEUES_SCHEMA, RUNS_SCHEMA
from causeway.protocols.messages import LANE, OUTBOUND_SCHEMA
from causeway.protocols.tabled_state import TabledState


class State(TabledState):
    """The states of a set of chains at one height: the frames of ``STATE_TABLES``, and the programs'."""

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


def blank_rows(schema: pa.Schema, count: int, **given: np.ndarray) -> Frame:
    """Return so many rows of a table: the columns that are given, zeros in the others."""
    columns = {}
    for column in schema:
        digest = pa.types.is_fixed_size_binary(column.type)
        shape, kind = ((count, 32), np.uint8) if digest else (count, column.type.to_pandas_dtype())
        columns[column.name] = given.get(column.name, np.zeros(shape, dtype=kind))
    return Frame(columns, count)
