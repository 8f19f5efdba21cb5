"""What follows from the declaration of state tables, for all protocols: states as tables and back, cut apart and put
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, from_table
from causeway.model.order import stable_order
from causeway.protocols.contract import Chains, ChainState, Kernel, StateTable

State = TypeVar("State", bound=ChainState)


def state_of(kernel: Kernel[State, Any], tables: Mapping[str, pa.Table]) -> State:
    """Return the state whose tables these are, in any order; a table that is absent is empty."""
    return kernel.state(
        {
            name: in_order(table, from_table(tables[name])) if name in tables else empty_frame(table.schema)
            for name, table in kernel.tables().items()
        }
    )


def part(kernel: Kernel[State, Any], state: State, chains: Chains, tick: int) -> State:
    """Return the rows of ``state`` that belong to ``chains`` in the round of ``tick``."""
    tables = kernel.tables()

    def mine(name: str, frame: Frame) -> Frame:
        return frame.filter(np.isin(owners(kernel, tables[name], frame, tick), chains)) if len(frame) else frame

    return kernel.state({name: mine(name, frame) for name, frame in state.frames().items()})


def owners(kernel: Kernel[State, Any], table: StateTable, frame: Frame, tick: int) -> npt.NDArray[np.uint32]:
    """Return the position of the chain that each row of a table belongs to in the round of ``tick``."""
    column = frame[table.owner]
    if table.owned_by_program:
        return kernel.hosts(column, tick).view(np.uint32)
    owner: npt.NDArray[np.uint32] = column
    return owner


def union(kernel: Kernel[State, Any], states: Sequence[State]) -> State:
    """Return the states of disjoint sets of chains as one, every table in its order."""
    if len(states) == 1:
        return states[0]
    frames = [state.frames() for state in states]
    return kernel.state(
        {
            name: in_order(
                table, concat([part[name] for part in frames if name in part] or [empty_frame(table.schema)])
            )
            for name, table in kernel.tables().items()
        }
    )


def in_order(table: StateTable, frame: Frame) -> Frame:
    """Return a table's rows in its order."""
    order = stable_order(*(frame[key] for key in table.order))
    return frame if bool((order[1:] > order[:-1]).all()) else frame.take(order)
