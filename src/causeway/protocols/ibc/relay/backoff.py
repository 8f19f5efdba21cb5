"""Back-off of relayers after refused submissions: no relayer pays forever.

See IBC reference 3.5.

After a refusal for a lasting reason, a relayer submits again after 2 blocks, then after 4, and so on up to ``LONGEST``.
An entry that advances counts as new. This is the relayers' memory and in no store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.joins import encode_keys, expand_ranges, lookup_rows, merge_ranges
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.progress import is_processed
from causeway.protocols.ibc.relay.accounts import CallTally
from causeway.protocols.ibc.relayer_view import SubmissionKind
from causeway.protocols.ibc.state import BACKOFFS_SCHEMA, RECEIPT, SEND, STRETCH, State, lanes_of

DOUBLINGS = 6
LONGEST = 2**DOUBLINGS
"""Maximum blocks of a pause; a relayer remembers a refusal for as long afterwards."""

_KEY_TYPES = {name: BACKOFFS_SCHEMA.field(name).type.to_pandas_dtype() for name in STRETCH}

PASSING = (
    Refusal.MissingHeader,
    Refusal.OutOfOrder,
    Refusal.NoOp,
    Refusal.NeedIntermediateHeader,
    Refusal.DelayNotElapsed,
    Refusal.TimeoutNotReached,
    Refusal.CleanupBackwards,
)
"""Reasons that resolve themselves.

A header or entry must come first, another relayer was faster, or it is too early.

In ordered queues OutOfOrder does so only while the queue advances (``_lasts``).
"""

Mask = npt.NDArray[np.bool_]

Moved = tuple[int, int, int]
"""A zone, its counterparty, and a kind of call."""


def drop_backed_off(rows: Frame, waiting: Frame, context: Context) -> Frame:
    """Remove submissions (``SUBMISSIONS_SCHEMA``) in back-off (``waiting``).

    In an ordered queue an entry in back-off blocks the later ones; a header in back-off blocks its whole zone.
    """
    if len(waiting) == 0 or len(rows) == 0:
        return rows
    of_header = waiting["call"] == SubmissionKind.UPDATE
    rows = rows.filter(lookup_rows(waiting.filter(of_header), _keys(rows), STRETCH[:3]) < 0)
    entries = waiting.filter(~of_header)
    singly = (
        rows["call"] <= SubmissionKind.TIMEOUT if context.options.order == "unordered" else np.zeros(len(rows), bool)
    )
    singles, others = rows.filter(singly), rows.filter(~singly)
    # Truncate submissions at the first entry in back-off.
    groups = group_rows(*(entries[name] for name in STRETCH))
    first = entries.take(groups.starts)
    row = lookup_rows(first, _keys(others), STRETCH)
    stop = others["end"].copy()
    stop[row >= 0] = np.minimum(stop[row >= 0], first["first"][row[row >= 0]])
    return concat(
        [
            others.with_columns(end=stop).filter((stop > others["begin"]) | (others["call"] == SubmissionKind.UPDATE)),
            _without(singles, _keys(singles), entries),
        ]
    )


def exclude_backed_off(ranges: Frame, relayer: int, waiting: Frame) -> Frame:
    """Remove a relayer's entries in back-off from ranges of unordered queues.

    A range has a lane, ``begin`` and ``end``.

    Entries in back-off (``waiting``, of all relayers) are not pending, so they take no other entry's turn.
    """
    if len(waiting) == 0 or len(ranges) == 0:
        return ranges
    call = np.where(ranges["substream"] == SEND, SubmissionKind.RECEIVE, SubmissionKind.RECEIPT).astype(np.uint8)
    submissions = ranges.with_columns(relayer=repeat_value(np.uint32(relayer), len(ranges)), call=call)
    return _without(ranges, _keys(submissions), waiting)


def record_backoffs(state: State, tallies: Sequence[CallTally], context: Context) -> State:
    """Update the back-offs after a block with the calls ``tallies``."""
    refused = _refused(tallies, context)
    if len(refused) == 0 and len(state.backoffs) == 0:
        return state
    # Forget rows of ordered queues that advanced: the missing entry may have come.
    moved = np.array(sorted(_moved(tallies)), dtype=np.uint64).reshape(-1, 3)
    if context.options.order != "ordered" or len(moved) == 0 or len(state.backoffs) == 0:
        before = state.backoffs
    else:
        names = ("chain", "source", "call")
        keys = Frame(
            {name: moved[:, column].astype(state.backoffs[name].dtype) for column, name in enumerate(names)}, len(moved)
        )
        before = state.backoffs.filter(
            (lookup_rows(keys, state.backoffs, names) < 0) | (state.backoffs["call"] == SubmissionKind.UPDATE)
        )
    row_before = _holding(before, refused.with_columns(at=refused["first"]))
    counts = np.ones(len(refused), dtype=np.uint64)
    counts[row_before >= 0] += before["refusals"][row_before[row_before >= 0]]
    pause = np.uint64(1) << np.minimum(counts, np.uint64(DOUBLINGS))
    refused = refused.with_columns(refusals=counts, until=np.uint64(context.height) + pause)
    # Split all rows at common points; new rows override old ones, and higher counts lower ones.
    rows = concat([before, refused.select(before.names)])
    is_new = (np.arange(len(rows)) >= len(before)).astype(np.uint8)
    ends = (rows.select(STRETCH).with_columns(at=rows[name]) for name in ("first", "stop"))
    points, inverse = np.unique(np.concatenate(encode_keys((*STRETCH, "at"), *ends)), return_inverse=True)
    at = np.empty(len(points), dtype=np.uint64)
    at[inverse] = np.concatenate([rows["first"], rows["stop"]])
    row, piece = expand_ranges(inverse[: len(rows)], inverse[len(rows) :])
    order = stable_order(piece.view(np.uint64), is_new[row], rows["refusals"][row])
    groups = group_rows(piece[order])
    last = order[groups.starts + groups.counts - 1]
    rows = _not_processed(
        rows.take(row[last]).with_columns(first=at[piece[last]], stop=at[piece[last] + 1]), state, tallies, context
    )
    rows = rows.filter(rows["until"] + np.uint64(LONGEST) > np.uint64(context.height))
    return replace(state, backoffs=_merged(rows).select(BACKOFFS_SCHEMA.names))


def _refused(tallies: Sequence[CallTally], context: Context) -> Frame:
    """Return the lasting refusals of the scenario's relayers: ``STRETCH``, ``first``, ``stop``.

    In ordered queues only the first entry counts, since it blocks the rest; a header has the index 0.
    """
    one_each = context.options.order == "ordered"
    moved = _moved(tallies)
    rows = [
        (
            one.chain,
            one.source,
            one.relayer,
            one.call,
            0 if one.of_header else one.first,
            1 if one_each or one.call >= SubmissionKind.CLEANUP else one.many,
        )
        for one in tallies
        if one.user is None and one.call != SubmissionKind.MISBEHAVIOUR and _lasts(one, moved, context)
    ]
    columns = np.array(rows, dtype=np.uint64).reshape(-1, len(STRETCH) + 2).T
    keys = {name: columns[position].astype(kind) for position, (name, kind) in enumerate(_KEY_TYPES.items())}
    return Frame({**keys, "first": columns[-2], "stop": columns[-2] + columns[-1]}, len(rows))


def _lasts(one: CallTally, moved: set[Moved], context: Context) -> bool:
    """Return True if calls were refused for a lasting reason.

    In ordered queues this includes OutOfOrder, unless the queue advanced: the missing entry, another relayer's share,
    does not come.
    """
    if one.why == Refusal.OutOfOrder and context.options.order == "ordered":
        return (one.chain, one.source, one.call) not in moved
    return one.why not in (Refusal.ACCEPTED, *PASSING)


def _moved(tallies: Sequence[CallTally]) -> set[Moved]:
    """Return the queues with accepted entries, by call."""
    return {(one.chain, one.source, one.call) for one in tallies if one.why == Refusal.ACCEPTED}


def _without(ranges: Frame, keys: Frame, waiting: Frame) -> Frame:
    """Remove the entries that rows of a table contain from ranges.

    ``keys``: the owners of the ranges.
    """
    spread, index = expand_ranges(ranges["begin"], ranges["end"])
    free = _holding(waiting, keys.take(spread).with_columns(at=index)) < 0
    return ranges if free.all() else _stretches(ranges, spread[free], index[free], "begin", "end")


def _keys(rows: Frame) -> Frame:
    """Return the keys (``STRETCH``) of submissions."""
    return Frame({"chain": rows["destination"], **{name: rows[name] for name in STRETCH[1:]}}, len(rows))


def _holding(table: Frame, indices: Frame) -> Rows:
    """Return the row of a table that contains each index ``at``, or -1.

    The table has ``STRETCH``, ``first`` and ``stop``.
    """
    if len(table) == 0 or len(indices) == 0:
        return np.full(len(indices), -1, dtype=np.int64)
    own, wanted = encode_keys((*STRETCH, "at"), table.with_columns(at=table["first"]), indices)
    row = np.searchsorted(own, wanted, side="right") - 1
    found = np.maximum(row, 0)
    inside = (row >= 0) & (indices["at"] < table["stop"][found])
    for name in STRETCH:
        inside &= table[name][found] == indices[name]
    return np.where(inside, found, -1)


def _not_processed(rows: Frame, state: State, tallies: Sequence[CallTally], context: Context) -> Frame:
    """Remove processed entries.

    These are received packets, ended own packets, cleaned receipts, and accepted headers.
    """
    updated = {
        (one.chain, one.source)
        for one in tallies
        if one.call == SubmissionKind.UPDATE and one.why in (Refusal.ACCEPTED, Refusal.NoOp)
    }
    ends = np.array(sorted(updated), dtype=np.uint32).reshape(-1, 2)
    fresh = lookup_rows(Frame({"chain": ends[:, 0], "source": ends[:, 1]}), rows, ("chain", "source")) >= 0
    rows = rows.filter(~fresh | (rows["call"] != SubmissionKind.UPDATE))
    call, ordered = rows["call"], context.options.order == "ordered"
    ours = (call == SubmissionKind.RECEIPT) | (call == SubmissionKind.TIMEOUT)
    lanes = lanes_of(rows["chain"], rows["source"], np.where(ours, np.uint64(SEND), np.uint64(RECEIPT)))
    head, tail = (state.queues.read_counters(name, lanes) for name in ("begin", "next_index"))
    low = np.where((call == SubmissionKind.RECEIVE) & ordered, tail, head)
    low = np.where(call == SubmissionKind.UPDATE, np.uint64(0), low)
    first = np.maximum(rows["first"], low)
    stop = np.where(ours, np.minimum(rows["stop"], tail), rows["stop"])
    remaining = stop > first
    rows, lanes = rows.with_columns(first=first, stop=stop).filter(remaining), lanes.filter(remaining)
    if ordered:
        return rows
    spread, index = expand_ranges(rows["first"], rows["stop"])
    call = rows["call"][spread]
    is_done = is_processed(state, lanes.take(spread).with_columns(index=index), call == SubmissionKind.RECEIVE)
    is_done &= call <= SubmissionKind.TIMEOUT
    return _stretches(rows, spread[~is_done], index[~is_done], "first", "stop")


def _stretches(rows: Frame, spread: Rows, index: npt.NDArray[np.uint64], begin: str, end: str) -> Frame:
    """Split rows into ranges of adjacent indices.

    Args:
        rows: The rows.
        spread: The row of each index.
        index: The remaining indices.
        begin: The column of the begin.
        end: The column of the end.
    """
    at, first, stop = merge_ranges(index, spread)
    return rows.take(spread[at]).with_columns(**{begin: first, end: stop})


def _merged(rows: Frame) -> Frame:
    """Merge adjacent rows with equal values; rows ascend."""
    if len(rows) < 2:
        return rows
    same: Mask = rows["first"][1:] == rows["stop"][:-1]
    for name in (*STRETCH, "refusals", "until"):
        same &= rows[name][1:] == rows[name][:-1]
    starts = np.flatnonzero(np.append(True, ~same))
    return rows.take(starts).with_columns(stop=rows["stop"][np.append(starts[1:], len(rows)) - 1])
