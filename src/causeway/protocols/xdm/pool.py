"""The pool of a destination: what it takes for one and the same transaction (XDM reference D-8, hazard 17), and what
waits there for its predecessors (D-3).

Where nothing early is stored (``inbox = pool``), an early message waits as the transaction that carries it: its proof
is judged again in every block, for at most ``LONGEVITY`` blocks. What waits is the carriers': no root commits to it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.protocols.xdm.carrying import in_order, kept_late, since
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import Validity
from causeway.protocols.xdm.prepare import Accepted
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import BASE, INDEXED, LATE_BASES_SCHEMA, LATE_NODES_SCHEMA, LATE_SCHEMA
from causeway.protocols.xdm.validate import Brought, Envelopes

LONGEVITY = 10
"""Blocks after which a message that still waits for its predecessors is dropped."""

_TAG = ("destination", "substream", "index")


def pooled(found: Envelopes, verdicts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the verdicts on envelopes after the pool.

    ``pool_tag = without_src``: of valid messages with the same channel and nonce that come from different chains in one
    block only the first chain's is kept; the others are ``AlreadyImported`` until their operators bring them again.
    """
    rows = found.rows
    if found.context.options.pool_tag == "with_src":
        return verdicts
    valid = np.flatnonzero(verdicts == Validity.VALID)
    order = valid[stable_order(*(rows[key][valid] for key in (*_TAG, "source")))]
    groups = groups_of(*(rows[key][order] for key in _TAG))
    other = rows["source"][order] != groups.spread(rows["source"][order][groups.starts])
    verdicts = verdicts.copy()
    verdicts[order[other]] = Validity.AlreadyImported
    return verdicts


def waiting(
    state: State, now: Accepted, brought: Brought, verdicts: npt.NDArray[np.int64], context: Context
) -> tuple[State, Accepted]:
    """Return the state in which early messages wait in the pool, and what was accepted and refused without them.

    ``verdicts``: on each envelope that was brought, before the order of nonces was looked at.
    """
    early = [place for place, (_, codes) in enumerate(now.refused) if (codes == Validity.Future).any()]
    rows = brought.envelopes
    fresh = (verdicts == Validity.VALID) & (context.number - since(rows["base"]) < LONGEVITY)
    if not early or not fresh.any():
        return state, now
    (place,) = early
    told, codes = now.refused[place]
    some = np.flatnonzero(fresh)
    some = some[stable_order(*(rows[name][some] for name in INDEXED))]
    some = some[groups_of(*(rows[name][some] for name in INDEXED)).starts]
    candidates = rows.take(some)
    stays = candidates.filter(lookup(in_order(told, INDEXED), candidates, INDEXED) >= 0)
    gone = lookup(candidates, told, INDEXED) < 0
    refused = [*now.refused]
    refused[place] = (told.filter(gone), codes[gone])
    due = np.full(len(stays), context.number + 1, dtype=np.uint64)
    late = concat([state["late"], stays.with_columns(due=due).select(LATE_SCHEMA.names)])
    nodes = concat([state["late_nodes"], _missing(state["late_nodes"], brought.nodes.select(LATE_NODES_SCHEMA.names))])
    bases = concat([state["late_bases"], _missing(state["late_bases"], brought.bases.select(LATE_BASES_SCHEMA.names))])
    return state.with_tables(**kept_late(late, nodes, bases)), replace(now, refused=refused)


def _missing(known: Frame, rows: Frame) -> Frame:
    """Return the rows of nodes or bases that are not known."""
    keys = (*BASE, "number") if "number" in rows else BASE
    return rows.filter(lookup(known, rows, keys) < 0)
