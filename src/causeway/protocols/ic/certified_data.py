"""What canisters let their subnets certify: the state table ``certified_data`` (``ic0.certified_data_set``).

In the state tree it is the leaf ``canister / <canister id> / certified_data`` (IC reference 2.9). A canister that never
set any has no row and no leaf. The row moves with the canister, and goes with it when it is removed.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.order import groups_of, positions_in, stable_order
from causeway.proofs.ic.state_columns import CertifiedData
from causeway.protocols.contract import Chains, StateTable
from causeway.protocols.execution import CERTIFIED_DATA_SCHEMA
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.ids import canister_ids

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


def certified_leaves(data: Frame, chains: Chains, context: Context) -> CertifiedData:
    """Return the certified data of canisters on some subnets (``chains``, ascending), as their state trees have it.

    ``data``: ``CERTIFIED_DATA_SCHEMA``; what belongs to canisters on other subnets, or on none, is left out.
    """
    hosts = context.host_of(data["program"])
    rows = positions_in(chains.astype(np.uint64), hosts.view(np.uint32).astype(np.uint64))
    there = np.flatnonzero(rows >= 0)
    # Ids of canisters are ordered as their numbers are.
    there = there[stable_order(rows[there].astype(np.uint64))]
    values = data["data"].take(pa.array(there))
    return CertifiedData(rows[there], canister_ids(data["program"][there]), values)
