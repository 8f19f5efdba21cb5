"""Round-robin scheduling of canisters that consume a limited number of messages (X-4).

The sources take turns: messages from canisters of the same subnet, from users, and from canisters of other subnets.
Within the first and the last the senders form a queue; a sender moves to its end after its turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import NO_CHAIN
from causeway.protocols.contract import UINT8, UINT64, table_schema

QUEUE = ("receiver", "sender")

TURNS_SCHEMA = table_schema(**dict.fromkeys((*QUEUE, "turn"), UINT64))
"""The position of a non-empty input queue (sender, receiver) in its receiver's line.

Positions count from 0 without gaps.

Empty without a limit.
"""

NEXT_SOURCES_SCHEMA = table_schema(receiver=UINT64, next_source=UINT8)
"""The first source of a canister in the next round, unless it is 0. Empty without a limit."""

LOCAL, INGRESS, REMOTE = 0, 1, 2
"""The sources, in order."""

SOURCES = 3


def enqueued_queues(arrivals: Sequence[Frame]) -> Frame:
    """Return the input queues of a round's pushes (``ARRIVALS_SCHEMA``), in push order.

    Each step first pushes messages of lanes, in queue order, then those of routing.
    """
    ordered = []
    for rows in arrivals:
        is_synthetic = (rows["source"] == NO_CHAIN).astype(np.uint8)
        ordered.append(
            rows.select(QUEUE).take(stable_order(is_synthetic, rows["source"], rows["substream"], rows["index"]))
        )
    return concat(ordered)


def move_behind(turns: Frame, queues: Frame) -> Frame:
    """Add the new ones of ``queues`` (in push order) to the end of their lines."""
    if len(queues) == 0:
        return turns
    known, keys = encode_keys(QUEUE, turns, queues)
    new = np.flatnonzero(find_positions(known, keys) < 0)
    if len(new) == 0:
        return turns
    first = np.sort(new[np.unique(keys[new], return_index=True)[1]])
    added = queues.select(QUEUE).take(first)
    added = added.take(stable_order(added["receiver"]))
    line = group_rows(added["receiver"])
    before = np.searchsorted(turns["receiver"], added["receiver"][line.starts], side="right")
    before -= np.searchsorted(turns["receiver"], added["receiver"][line.starts], side="left")
    added = added.with_columns(turn=(line.spread(before) + line.ranks()).astype(np.uint64))
    joined = concat([turns, added])
    return joined.take(stable_order(*(joined[name] for name in QUEUE)))


def take_in_turn(
    ingress: Frame, queued: Frame, turns: Frame, next_sources: Frame, local: npt.NDArray[np.bool_], limit: int
) -> tuple[Rows, Frame, Frame]:
    """Select the messages that every canister consumes, at most ``limit`` each.

    Args:
        ingress: The elements of ingress queues, in order.
        queued: The elements of input queues, in order.
        turns: The turns of all non-empty input queues.
        next_sources: The next sources.
        local: Mask of the elements of input queues from the receiver's own subnet.
        limit: The maximum number of messages.

    Returns:
        Rows of the elements of ingress queues, then of input queues; and the turns and the next sources afterwards.
    """
    queues = group_rows(queued["receiver"], queued["sender"])
    turn = queues.spread(turns["turn"])
    near = np.flatnonzero(queues.ranks() < limit)  # at most `limit` of one queue
    source = np.where(local[near], np.uint8(LOCAL), np.uint8(REMOTE))
    receiver = queued["receiver"][near]
    by_source = stable_order(receiver, source, queues.ranks()[near].astype(np.uint64), turn[near])
    position = np.empty(len(near), dtype=np.uint64)
    position[by_source] = group_rows(receiver[by_source], source[by_source]).ranks()
    # Users' messages form one line, in their order.
    receivers = np.concatenate([ingress["receiver"], receiver])
    sources = np.concatenate([np.full(len(ingress), INGRESS, dtype=np.uint8), source])
    positions = np.concatenate([group_rows(ingress["receiver"]).ranks().astype(np.uint64), position])
    begin = _first_sources(next_sources, receivers)
    cyclic = (sources + np.uint8(SOURCES) - begin) % np.uint8(SOURCES)
    order = stable_order(receivers, positions, cyclic)
    order = order[group_rows(receivers[order]).ranks() < limit]
    consumed = group_rows(receivers[order])
    last = order[consumed.starts + consumed.counts - 1]
    following = Frame(
        {"receiver": receivers[last], "next_source": (sources[last] + np.uint8(1)) % np.uint8(SOURCES)}, len(last)
    )
    rows = np.concatenate([np.arange(len(ingress)), len(ingress) + near])[order]
    used = np.zeros(len(queued), dtype=np.int64)
    used[rows[rows >= len(ingress)] - len(ingress)] = 1
    # Update the next sources of canisters that consumed messages.
    others = next_sources.filter(~np.isin(next_sources["receiver"], following["receiver"]))
    joined = concat([others, following.filter(following["next_source"] != LOCAL)])
    if len(turns):
        # The turns of the non-empty queues, most turns last.
        consumed_of = np.add.reduceat(used, queues.starts)
        left = np.flatnonzero(consumed_of < queues.counts)
        remaining, turns_taken = turns.take(left), consumed_of[left].astype(np.uint64)
        by_turn = stable_order(remaining["receiver"], turns_taken, remaining["turn"])
        position = np.empty(len(left), dtype=np.uint64)
        position[by_turn] = group_rows(remaining["receiver"][by_turn]).ranks()
        turns = remaining.with_columns(turn=position)
    return rows, turns, joined.take(stable_order(joined["receiver"]))


def _first_sources(next_sources: Frame, receivers: U64) -> npt.NDArray[np.uint8]:
    """Return the first source of each receiver."""
    rows = lookup_rows(next_sources, Frame({"receiver": receivers}), ("receiver",))
    found = np.append(next_sources["next_source"], np.uint8(LOCAL))[rows]
    begin: npt.NDArray[np.uint8] = np.where(rows >= 0, found, np.uint8(LOCAL))
    return begin
