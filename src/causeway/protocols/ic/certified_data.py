"""What canisters let their subnets certify: the state table ``certified_data`` (``ic0.certified_data_set``).

In the state tree it is the leaf ``canister / <canister id> / certified_data`` (IC reference 2.9). A canister that never
set any has no row and no leaf. The row moves with the canister, and goes with it when it is removed.
"""

from __future__ import annotations

from causeway.model.frame import Frame, concat
from causeway.model.order import groups_of, stable_order
from causeway.protocols.contract import StateTable
from causeway.protocols.execution import CERTIFIED_DATA_SCHEMA

CERTIFIED_DATA = StateTable(CERTIFIED_DATA_SCHEMA, "program", ("program",), programs=("program",))


def certified_data_after(data: Frame, given: Frame) -> Frame:
    """Return the certified data of canisters (``CERTIFIED_DATA_SCHEMA``, ascending) after some was set.

    ``given``: what was set in a round, in that order (``Execution.certified``); the table itself comes back when
    nothing was.
    """
    if len(given) == 0:
        return data
    rows = concat([data, given])
    rows = rows.take(stable_order(rows["program"]))
    groups = groups_of(rows["program"])
    return rows.take(groups.starts + groups.counts - 1)
