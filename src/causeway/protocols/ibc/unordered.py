"""Unordered queues (IBC reference X-6): what of them is still to be brought, and what of them is there.

Entries come and go in any order, so neither head nor tail says what is missing: each entry that is offered is held
against the queue that it goes to.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat, repeated
from causeway.model.order import U64, Groups, Rows, groups_of, pair_codes
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.keys import Part
from causeway.protocols.ibc.seen import Alteration, Call, Seen
from causeway.protocols.ibc.state import RECEIPT, SEND, State, keys_of, lane_keys, lane_positions


def unsettled(state: State, lanes: Frame, seen: Seen) -> Frame:
    """Return what of the offered queues ``lanes`` is to be brought: ranges ``begin`` to ``end`` - 1 of ``proof``.

    Of packets those that have no receipt and no place for one; of receipts those whose packets still wait.
    """
    proofs = seen.proofs
    rows = np.flatnonzero((proofs["part"] == Part.INDEX) & (lane_positions_of(lanes, proofs) >= 0))
    runs = proofs.take(rows)
    spread, index = _expanded(runs)
    chain, remote = runs["chain"][spread], runs["remote"][spread]
    sent = runs["substream"][spread] == SEND
    slots = state.slots.select(["chain", "remote", "index"]).with_columns(
        substream=np.full(len(state.slots), RECEIPT, dtype=np.uint64)
    )
    held = concat([state.leaves.select(slots.names), slots])
    own = np.where(sent, RECEIPT, SEND).astype(np.uint64)
    known, asked = pair_codes((keys_of(held), held["index"]), (lane_keys(chain, remote, own), index))
    here = np.isin(asked, known)
    head = state.queues["begin"][lane_positions(state.queues, chain, remote, own)]
    wanted = np.where(sent, ~here & (index >= head), here)
    spread, index = spread[wanted], index[wanted]
    groups = groups_of(spread, index - np.arange(len(index), dtype=np.uint64))
    found = runs.select(["chain", "remote", "substream", "pushed"]).take(spread[groups.starts])
    begin = index[groups.starts]
    return found.with_columns(
        begin=begin, end=begin + groups.counts.astype(np.uint64), proof=rows[spread[groups.starts]].astype(np.int64)
    )


def lane_positions_of(lanes: Frame, rows: Frame) -> Rows:
    """Return the row of ``lanes`` (ascending) of each of ``rows``, -1 where its lane is not among them."""
    return lane_positions(lanes, rows["chain"], rows["remote"], rows["substream"])


def bring(missing: Frame, seen: Seen, relayer: int, context: Context) -> Frame:
    """Return what a relayer submits of ``missing``: not too little, not too much, its share (``RelayOptions``)."""
    options, count = context.options.relay, len(context.options.relayers)
    size = (missing["end"] - missing["begin"]).astype(np.int64)
    groups = groups_of(keys_of(missing))
    total = np.add.reduceat(size, groups.starts) if len(size) else size
    before = np.cumsum(size) - size
    before -= groups.spread(before[groups.starts])
    waited = np.uint64(context.height - 1) - missing["pushed"][groups.starts]
    total = np.where((total >= options.min_batch) | (waited >= np.uint64(options.max_wait)), total, 0)
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
    call = np.where(rows["substream"] == SEND, Call.RECEIVE, Call.RECEIPT).astype(np.uint8)
    return rows.select(["chain", "remote", "substream"]).with_columns(
        relayer=repeated(np.uint32(relayer), length),
        call=call,
        begin=rows["begin"] + begin[kept],
        end=rows["begin"] + end[kept],
        alteration=repeated(np.uint8(Alteration.NONE), length),
        proof=rows["proof"],
    )


def present(runs: Frame, leaves: Frame) -> Frame:
    """Return runs of entries (``first``, ``count``) without the entries that are gone: cut in pieces where need be."""
    own, first, last = pair_codes(
        (keys_of(leaves), leaves["index"]),
        (keys_of(runs), runs["first"]),
        (keys_of(runs), runs["first"] + runs["count"] - np.uint64(1)),
    )
    held = np.searchsorted(own, last, side="right") - np.searchsorted(own, first)
    if np.array_equal(held, runs["count"].astype(np.int64)):
        return runs
    spread, index = _expanded(runs)
    own, asked = pair_codes((keys_of(leaves), leaves["index"]), (keys_of(runs)[spread], index))
    here = np.isin(asked, own)
    spread, index = spread[here], index[here]
    groups = groups_of(spread, index - np.arange(len(index), dtype=np.uint64))
    return runs.take(spread[groups.starts]).with_columns(
        first=index[groups.starts], count=groups.counts.astype(np.uint64)
    )


def first_missing(queues: Frame, leaves: Frame) -> U64:
    """Return for each queue the first index from its head on that it has no entry of; ``leaves`` by lane and index."""
    keys, own = keys_of(leaves), keys_of(queues)
    row = np.searchsorted(own, keys)
    rank = np.arange(len(leaves)) - np.searchsorted(keys, keys)
    # From the first that is missing on, every index is ahead of its rank.
    unbroken = leaves["index"] == queues["begin"][row] + rank.astype(np.uint64)
    found: U64 = queues["begin"] + np.bincount(row[unbroken], minlength=len(queues)).astype(np.uint64)
    return found


def _expanded(runs: Frame) -> tuple[Rows, U64]:
    """Return the run and the index of every entry of runs (``first``, ``count``)."""
    counts = runs["count"].astype(np.int64)
    groups = Groups(np.cumsum(counts) - counts, counts, int(counts.sum()))
    return np.repeat(np.arange(len(runs)), counts), groups.spread(runs["first"]) + groups.ranks().astype(np.uint64)
