"""Whose turn it is: the order in which a canister that takes a limited number of messages takes them (X-4).

Round robin over three sources, messages from canisters of the same subnet, from users, from canisters of other subnets;
inside the first and the last the senders stand in a line, and one that had its turn goes behind all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import NO_CHAIN

QUEUE = ("receiver", "sender")

TURNS_SCHEMA = pa.schema([pa.field(name, pa.uint64(), nullable=False) for name in (*QUEUE, "turn")])
"""The place of the input queue (sender, receiver), which is not empty, in the line of its receiver: from 0 on without
gaps. Empty without a limit."""

NEXT_SOURCES_SCHEMA = pa.schema(
    [pa.field("receiver", pa.uint64(), nullable=False), pa.field("next_source", pa.uint8(), nullable=False)]
)
"""The source that a canister begins with in the next round, where it is not the first. Empty without a limit."""

LOCAL, INGRESS, REMOTE = 0, 1, 2
"""The sources in their order."""

SOURCES = 3


@dataclass(frozen=True)
class ScheduledMessages:
    """What is taken: ``order``, rows of the ingress queues' elements and behind them of the input queues'; ``turns``
    and ``next_sources`` after it."""

    order: Rows
    turns: Frame
    next_sources: Frame


def enqueued_queues(arrivals: Sequence[Frame]) -> Frame:
    """Return the input queues that the pushes of a round's steps (``ARRIVALS_SCHEMA``) are to, in the order of pushing.

    A step has what came over lanes in the order of the queues, and behind it what routing made, as it was made.
    """
    ordered = []
    for rows in arrivals:
        made = (rows["source"] == NO_CHAIN).astype(np.uint8)
        ordered.append(rows.select(QUEUE).take(stable_order(made, rows["source"], rows["substream"], rows["index"])))
    return concat(ordered)


def move_behind(turns: Frame, queues: Frame) -> Frame:
    """Return the turns with those of ``queues`` (in the order of pushing) that were empty put behind all others."""
    if len(queues) == 0:
        return turns
    known, asked = encode_keys(QUEUE, turns, queues)
    new = np.flatnonzero(find_positions(known, asked) < 0)
    if len(new) == 0:
        return turns
    first = np.sort(new[np.unique(asked[new], return_index=True)[1]])
    added = queues.select(QUEUE).take(first)
    added = added.take(stable_order(added["receiver"]))
    line = group_rows(added["receiver"])
    before = np.searchsorted(turns["receiver"], added["receiver"][line.starts], side="right")
    before -= np.searchsorted(turns["receiver"], added["receiver"][line.starts], side="left")
    added = added.with_columns(turn=(line.spread(before) + line.ranks()).astype(np.uint64))
    joined = concat([turns, added])
    return joined.take(stable_order(*(joined[name] for name in QUEUE)))


def take_in_turn(
    ingress: Frame,
    queued: Frame,
    turns: Frame,
    next_sources: Frame,
    local: npt.NDArray[np.bool_],
    limit: int,
) -> ScheduledMessages:
    """Return what every canister takes, at most ``limit`` messages each.

    ``ingress``, ``queued``: the elements of the queues in their order. ``turns``: of all input queues that are not
    empty. ``local``: whether an element of an input queue comes from the subnet of its receiver.
    """
    queues = group_rows(queued["receiver"], queued["sender"])
    turn = queues.spread(turns["turn"])
    near = np.flatnonzero(queues.ranks() < limit)  # of one queue no more than that are taken
    source = np.where(local[near], np.uint8(LOCAL), np.uint8(REMOTE))
    receiver = queued["receiver"][near]
    by_source = stable_order(receiver, source, queues.ranks()[near].astype(np.uint64), turn[near])
    position = np.empty(len(near), dtype=np.uint64)
    position[by_source] = group_rows(receiver[by_source], source[by_source]).ranks()
    # Users' messages are one line, in their order.
    receivers = np.concatenate([ingress["receiver"], receiver])
    sources = np.concatenate([np.full(len(ingress), INGRESS, dtype=np.uint8), source])
    positions = np.concatenate([group_rows(ingress["receiver"]).ranks().astype(np.uint64), position])
    begin = _first_sources(next_sources, receivers)
    cyclic = (sources + np.uint8(SOURCES) - begin) % np.uint8(SOURCES)
    order = stable_order(receivers, positions, cyclic)
    order = order[group_rows(receivers[order]).ranks() < limit]
    taken = group_rows(receivers[order])
    last = order[taken.starts + taken.counts - 1]
    following = Frame(
        {"receiver": receivers[last], "next_source": (sources[last] + np.uint8(1)) % np.uint8(SOURCES)}, len(last)
    )
    rows = np.concatenate([np.arange(len(ingress)), len(ingress) + near])[order]
    used = np.zeros(len(queued), dtype=np.int64)
    used[rows[rows >= len(ingress)] - len(ingress)] = 1
    # The next sources with those of canisters that took something.
    others = next_sources.filter(~np.isin(next_sources["receiver"], following["receiver"]))
    joined = concat([others, following.filter(following["next_source"] != LOCAL)])
    return ScheduledMessages(
        rows, _renumbered(turns, queues.counts, used, queues.starts), joined.take(stable_order(joined["receiver"]))
    )


def _first_sources(next_sources: Frame, receivers: U64) -> npt.NDArray[np.uint8]:
    """Return the source that each receiver begins with."""
    rows = lookup_rows(next_sources, Frame({"receiver": receivers}), ("receiver",))
    found = np.append(next_sources["next_source"], np.uint8(LOCAL))[rows]
    begin: npt.NDArray[np.uint8] = np.where(rows >= 0, found, np.uint8(LOCAL))
    return begin


def _renumbered(turns: Frame, counts: Rows, used: Rows, starts: Rows) -> Frame:
    """Return the turns of the queues that are not empty after ``used`` elements were taken: those that had most turns
    stand last."""
    if len(turns) == 0:
        return turns
    taken = np.add.reduceat(used, starts)
    left = np.flatnonzero(taken < counts)
    rows, had = turns.take(left), taken[left].astype(np.uint64)
    order = stable_order(rows["receiver"], had, rows["turn"])
    turn = np.empty(len(left), dtype=np.uint64)
    turn[order] = group_rows(rows["receiver"][order]).ranks()
    return rows.with_columns(turn=turn)
