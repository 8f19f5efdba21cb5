"""Unordered queues (IBC reference X-6): what of them is still to be brought, and what of them is there.

Entries come and go in any order, so neither head nor tail says what is missing: each entry that is offered is held
against the queue that it goes to.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, repeated
from causeway.model.joins import lookup, over, stretches
from causeway.model.order import U64, Groups, Rows, groups_of
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.expiry import is_past
from causeway.protocols.ibc.keys import Part
from causeway.protocols.ibc.leaves import Leaves, lane_keys, row_of
from causeway.protocols.ibc.progress import were_processed
from causeway.protocols.ibc.seen import Alteration, CallKind, Seen
from causeway.protocols.ibc.state import RECEIPT, SEND, State, answering
from causeway.protocols.messages import LANE


def unsettled(state: State, lanes: Frame, seen: Seen, context: Context) -> Frame:
    """Return what of the offered queues ``lanes`` is to be brought: ranges ``begin`` to ``end`` - 1 of ``proof``.

    Of packets those that have no receipt and no index for one, and are in time; of receipts those whose packets still
    wait.
    """
    proofs = seen.proofs
    brought = (proofs["part"] == Part.INDEX) & (lookup(lanes, proofs, LANE) >= 0)
    if context.options.absence:
        brought &= (proofs["substream"] == RECEIPT) | ~is_past(proofs, context)
    rows = np.flatnonzero(brought)
    runs = proofs.take(rows)
    spread, index = over(runs["first"], runs["first"] + runs["count"])
    offered = runs.select(LANE).take(spread)
    sent = offered["substream"] == SEND
    own = answering(offered, np.where(sent, RECEIPT, SEND))
    wanted = ~were_processed(state, own.with_columns(index=index), sent)
    spread, index = spread[wanted], index[wanted]
    at, begin, end = stretches(index, spread)
    run = spread[at]
    found = runs.select([*LANE, "pushed"]).take(run)
    return found.with_columns(begin=begin, end=end, proof=rows[run].astype(np.int64))


def bring(missing: Frame, seen: Seen, relayer: int, context: Context) -> Frame:
    """Return what a relayer submits of ``missing``: not too little, not too much, its share (``RelayOptions``)."""
    options, count = context.options.relay, len(context.options.relayers)
    size = (missing["end"] - missing["begin"]).astype(np.int64)
    groups, total = _worth(missing, context)
    before = np.cumsum(size) - size
    before -= groups.spread(before[groups.starts])
    if options.max_packets:
        total = np.minimum(total, options.max_packets)
    first, stop = np.zeros_like(total), total
    if options.coordination == "partition":
        first, stop = total * relayer // count, total * (relayer + 1) // count
    elif options.coordination == "leader" and relayer:
        stop = first
    begin = np.clip(groups.spread(first) - before, 0, size).astype(np.uint64)
    end = np.clip(groups.spread(stop) - before, 0, size).astype(np.uint64)
    kept = end > begin
    rows = missing.filter(kept)
    length = len(rows)
    call = np.where(rows["substream"] == SEND, CallKind.RECEIVE, CallKind.RECEIPT).astype(np.uint8)
    return rows.select(LANE).with_columns(
        relayer=repeated(np.uint32(relayer), length),
        call=call,
        begin=rows["begin"] + begin[kept],
        end=rows["begin"] + end[kept],
        alteration=repeated(np.uint8(Alteration.NONE), length),
        proof=rows["proof"],
    )


def worth_bringing(missing: Frame, context: Context) -> Frame:
    """Return what is missing in queues that are not too short to be served now (``min_batch``, ``max_wait``)."""
    groups, total = _worth(missing, context)
    return missing.filter(groups.spread(total) > 0)


def _worth(missing: Frame, context: Context) -> tuple[Groups, Rows]:
    """Return the rows of each queue, and how many entries are missing there; 0 where they can wait."""
    options = context.options.relay
    size = (missing["end"] - missing["begin"]).astype(np.int64)
    groups = groups_of(*(missing[name] for name in LANE))
    total = np.add.reduceat(size, groups.starts) if len(size) else size
    waited = np.uint64(context.height - 1) - missing["pushed"][groups.starts]
    return groups, np.where((total >= options.min_batch) | (waited >= np.uint64(options.max_wait)), total, 0)


def present(runs: Frame, leaves: Leaves) -> Frame:
    """Return runs of entries (``first``, ``count``) without the entries that are gone: cut in pieces where need be."""
    lanes, ends = runs.select(LANE), runs["first"] + runs["count"]
    held = leaves.ranks(lanes, ends) - leaves.ranks(lanes, runs["first"])
    if np.array_equal(held, runs["count"].astype(np.int64)):
        return runs
    spread, index = over(runs["first"], ends)
    here = leaves.holds(lanes.take(spread), index)
    spread, index = spread[here], index[here]
    at, first, stop = stretches(index, spread)
    return runs.take(spread[at]).with_columns(first=first, count=stop - first)


def first_missing(state: State, before: State) -> U64:
    """Return ``ready`` of each queue: of receipt queues the first index from the head on that they have no entry of.

    ``before``: the state that the block began with. Where nothing has come or gone since, nothing is looked for.
    """
    counters, numbers = state.queues.counters, lane_keys(state.queues.counters)
    receipts = (counters["substream"] == RECEIPT) & (counters["source"] != counters["destination"])
    first: U64 = np.maximum(counters["ready"], counters["begin"])
    found: U64 = np.where(receipts, first, counters["next_index"])
    for lane in state.leaves.changed(before.leaves):
        row, held = row_of(numbers, lane), state.leaves.get(lane)
        if receipts[row] and held is not None:
            found[row] = held.first_missing(int(found[row]))
    return found
