"""How relayers leave alone for a while what was refused to them (IBC reference 3.5): nobody pays for ever.

What a relayer submits and gets back for a lasting reason, it submits again after 2 blocks; refused again, after 4, and
so on up to ``LONGEST``. What moves on by anybody's hand counts as new. This is the relayers' memory, not the zones': no
store commits to it.
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
"""Blocks that a relayer waits at most; and for how long afterwards it remembers what it did not submit again."""

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
"""Reasons that change by themselves: a header or an entry has to come first, another relayer was faster, it is too
early. In order, OutOfOrder does only where the queue moves on (``_lasts``)."""

Mask = npt.NDArray[np.bool_]

Moved = tuple[int, int, int]
"""A zone, its counterparty, and a kind of call."""


def drop_backed_off(rows: Frame, waiting: Frame, context: Context) -> Frame:
    """Return submissions (``SUBMISSIONS_SCHEMA``) without those that their relayers leave alone (``left_alone``).

    In an ordered queue nothing is submitted behind an entry that is left alone either; and nothing at all of a zone
    whose header is.
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
    # What of submissions comes before the first entry that is left alone.
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
    """Return ranges (lane, ``begin``, ``end``) of unordered queues without the entries that a relayer leaves alone.

    ``waiting``: what all of them do (``left_alone``). Of these none counts as pending: they take no other entry's turn.
    """
    if len(waiting) == 0 or len(ranges) == 0:
        return ranges
    call = np.where(ranges["substream"] == SEND, SubmissionKind.RECEIVE, SubmissionKind.RECEIPT).astype(np.uint8)
    asked = ranges.with_columns(relayer=repeat_value(np.uint32(relayer), len(ranges)), call=call)
    return _without(ranges, _keys(asked), waiting)


def record_backoffs(state: State, made: Sequence[CallTally], context: Context) -> State:
    """Return the state with what relayers leave alone after a block in which calls were ``made``."""
    refused = _refused(made, context)
    if len(refused) == 0 and len(state.backoffs) == 0:
        return state
    # Rows without those of ordered queues that have moved on: what had to come first may have come.
    moved = np.array(sorted(_moved(made)), dtype=np.uint64).reshape(-1, 3)
    if context.options.order != "ordered" or len(moved) == 0 or len(state.backoffs) == 0:
        before = state.backoffs
    else:
        names = ("chain", "source", "call")
        keys = Frame(
            {name: moved[:, place].astype(state.backoffs[name].dtype) for place, name in enumerate(names)}, len(moved)
        )
        before = state.backoffs.filter(
            (lookup_rows(keys, state.backoffs, names) < 0) | (state.backoffs["call"] == SubmissionKind.UPDATE)
        )
    held = _holding(before, refused.with_columns(at=refused["first"]))
    counts = np.ones(len(refused), dtype=np.uint64)
    counts[held >= 0] += before["refusals"][held[held >= 0]]
    pause = np.uint64(1) << np.minimum(counts, np.uint64(DOUBLINGS))
    refused = refused.with_columns(refusals=counts, until=np.uint64(context.height) + pause)
    # Rows of `before`, and where they hold the same indices those of `now`, of these the highest counts.
    rows = concat([before, refused.select(before.names)])
    is_new = (np.arange(len(rows)) >= len(before)).astype(np.uint8)
    ends = (rows.select(STRETCH).with_columns(at=rows[name]) for name in ("first", "stop"))
    points, where = np.unique(np.concatenate(encode_keys((*STRETCH, "at"), *ends)), return_inverse=True)
    at = np.empty(len(points), dtype=np.uint64)
    at[where] = np.concatenate([rows["first"], rows["stop"]])
    row, piece = expand_ranges(where[: len(rows)], where[len(rows) :])
    order = stable_order(piece.view(np.uint64), is_new[row], rows["refusals"][row])
    groups = group_rows(piece[order])
    last = order[groups.starts + groups.counts - 1]
    rows = _not_processed(
        rows.take(row[last]).with_columns(first=at[piece[last]], stop=at[piece[last] + 1]), state, made, context
    )
    rows = rows.filter(rows["until"] + np.uint64(LONGEST) > np.uint64(context.height))
    return replace(state, backoffs=_merged(rows).select(BACKOFFS_SCHEMA.names))


def _refused(made: Sequence[CallTally], context: Context) -> Frame:
    """Return what relayers of the scenario were refused for a lasting reason: ``STRETCH``, ``first``, ``stop``.

    Of what comes in order the first alone, all the rest is behind it; a header has the index 0.
    """
    one_each = context.options.order == "ordered"
    moved = _moved(made)
    rows = [
        (
            one.chain,
            one.source,
            one.relayer,
            one.call,
            0 if one.of_header else one.first,
            1 if one_each or one.call >= SubmissionKind.CLEANUP else one.many,
        )
        for one in made
        if one.user is None and one.call != SubmissionKind.MISBEHAVIOUR and _lasts(one, moved, context)
    ]
    columns = np.array(rows, dtype=np.uint64).reshape(-1, len(STRETCH) + 2).T
    keys = {name: columns[place].astype(kind) for place, (name, kind) in enumerate(_KEY_TYPES.items())}
    return Frame({**keys, "first": columns[-2], "stop": columns[-2] + columns[-1]}, len(rows))


def _lasts(one: CallTally, moved: set[Moved], context: Context) -> bool:
    """Return whether calls were refused for a lasting reason.

    In order that is also OutOfOrder where nobody was faster: what has to come first does not come, and whose share that
    is does not bring it.
    """
    if one.why == Refusal.OutOfOrder and context.options.order == "ordered":
        return (one.chain, one.source, one.call) not in moved
    return one.why not in (Refusal.ACCEPTED, *PASSING)


def _moved(made: Sequence[CallTally]) -> set[Moved]:
    """Return the queues of which something was taken, by the call."""
    return {(one.chain, one.source, one.call) for one in made if one.why == Refusal.ACCEPTED}


def _without(ranges: Frame, keys: Frame, waiting: Frame) -> Frame:
    """Return ranges (``begin``, ``end``) without the entries that rows of a table hold; ``keys``: whose they are."""
    spread, index = expand_ranges(ranges["begin"], ranges["end"])
    free = _holding(waiting, keys.take(spread).with_columns(at=index)) < 0
    return ranges if free.all() else _stretches(ranges, spread[free], index[free], "begin", "end")


def _keys(rows: Frame) -> Frame:
    """Return whose submissions rows are (``STRETCH``)."""
    return Frame({"chain": rows["destination"], **{name: rows[name] for name in STRETCH[1:]}}, len(rows))


def _holding(table: Frame, asked: Frame) -> Rows:
    """Return the row of a table (``STRETCH``, ``first``, ``stop``) that holds each index ``at``, -1 where none does."""
    if len(table) == 0 or len(asked) == 0:
        return np.full(len(asked), -1, dtype=np.int64)
    own, wanted = encode_keys((*STRETCH, "at"), table.with_columns(at=table["first"]), asked)
    row = np.searchsorted(own, wanted, side="right") - 1
    found = np.maximum(row, 0)
    inside = (row >= 0) & (asked["at"] < table["stop"][found])
    for name in STRETCH:
        inside &= table[name][found] == asked[name]
    return np.where(inside, found, -1)


def _not_processed(rows: Frame, state: State, made: Sequence[CallTally], context: Context) -> Frame:
    """Return rows without what has moved on: packets received, packets of ours that have ended, receipts cleaned,
    headers taken."""
    taken = {
        (one.chain, one.source)
        for one in made
        if one.call == SubmissionKind.UPDATE and one.why in (Refusal.ACCEPTED, Refusal.NoOp)
    }
    ends = np.array(sorted(taken), dtype=np.uint32).reshape(-1, 2)
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
    kept = stop > first
    rows, lanes = rows.with_columns(first=first, stop=stop).filter(kept), lanes.filter(kept)
    if ordered:
        return rows
    spread, index = expand_ranges(rows["first"], rows["stop"])
    call = rows["call"][spread]
    gone = is_processed(state, lanes.take(spread).with_columns(index=index), call == SubmissionKind.RECEIVE)
    gone &= call <= SubmissionKind.TIMEOUT
    return _stretches(rows, spread[~gone], index[~gone], "first", "stop")


def _stretches(rows: Frame, spread: Rows, index: npt.NDArray[np.uint64], begin: str, end: str) -> Frame:
    """Return rows for the stretches of neighbouring indices that are left of each; ``spread``: the row of each index.
    ``begin``, ``end``: the columns with the ends of a stretch."""
    at, first, stop = merge_ranges(index, spread)
    return rows.take(spread[at]).with_columns(**{begin: first, end: stop})


def _merged(rows: Frame) -> Frame:
    """Return rows, which ascend, with neighbours that say the same as one."""
    if len(rows) < 2:
        return rows
    same: Mask = rows["first"][1:] == rows["stop"][:-1]
    for name in (*STRETCH, "refusals", "until"):
        same &= rows[name][1:] == rows[name][:-1]
    starts = np.flatnonzero(np.append(True, ~same))
    return rows.take(starts).with_columns(stop=rows["stop"][np.append(starts[1:], len(rows)) - 1])
