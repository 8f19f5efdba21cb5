"""Positions of the queues of a block's zones, advanced by its submissions in sequence.

This module decides if an entry was received, or a packet answered, before.

Reference:
    IBC reference 3.3, 3.4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64

from causeway.core.frame import Frame
from causeway.core.joins import Intervals, lookup_rows
from causeway.protocols.ibc.keys import MAX_INDEX
from causeway.protocols.ibc.leaves import find_row, lane_key, lane_keys
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_key, connection_keys, slot_entries
from causeway.protocols.shared.messages import LANE_COLUMNS

Pair = tuple[int, int]
"""A connection: a zone and its counterparty."""

Span = tuple[int, int]
"""A range of indices, the second exclusive."""


Mask = npt.NDArray[np.bool_]


def is_processed(state: State, own: Frame, packets: Mask) -> Mask:
    """Return a mask of processed entries of unordered queues (see ``QueueProgress.processed``).

    Args:
        state: The state.
        own: The own lane that each entry goes to, and its ``index``.
        packets: Mask of the packets; the others are receipts.
    """
    is_present = state.leaves.holds(own, own["index"])
    if len(state.slots):
        is_present |= lookup_rows(slot_entries(state), own, LANE_COLUMNS, ordered=False) >= 0
    return np.where(packets, is_present | (own["index"] < state.queues.read_counters("begin", own)), ~is_present)


class QueueProgress:
    """Heads and tails of queues.

    ``substream``: RECEIPT for received packets, SEND for answered own packets.
    """

    def __init__(self, state: State, *, ordered: bool) -> None:
        self._state = state
        self._ordered = ordered
        self._next: dict[tuple[Pair, int], int] = {}
        self._processed: dict[tuple[Pair, int], Intervals] = {}
        self._heads: dict[Pair, int] = {}
        counters = state.queues.counters
        self._lanes = lane_keys(counters)
        self._counters: dict[str, U64] = {name: counters[name] for name in ("begin", "next_index", "ready")}
        self._connections = connection_keys(state.connections)

    def is_connected(self, pair: Pair) -> bool:
        """Return True if the connection is registered."""
        return pair[1] >= 0 and find_row(self._connections, connection_key(*pair)) >= 0

    def expected(self, pair: Pair, substream: int) -> int:
        """Return the next index: the tail of a receipt queue, the head of a send queue."""
        found = self._next.get((pair, substream))
        if found is None:
            found = self._next[pair, substream] = self._counter(
                pair, substream, "next_index" if substream == RECEIPT else "begin"
            )
        return found

    def head(self, pair: Pair) -> int:
        """Return the current head of a receipt queue."""
        if pair not in self._heads:
            self._heads[pair] = self._counter(pair, RECEIPT, "begin")
        return self._heads[pair]

    def processed(self, pair: Pair, substream: int, span: Span) -> list[Span]:
        """Return the parts of a span that were processed before: received, or answered."""
        if self._ordered:
            done = (span[0], min(span[1], self.expected(pair, substream)))
            return [done] if done[1] > done[0] else []
        cut = self._done(pair, substream).cut(*span)
        return [(first, stop) for first, stop, inside in cut if inside]

    def in_turn(self, pair: Pair, substream: int, span: Span) -> list[Span]:
        """Return the parts of a span that are next: step 5 of 3.3, step 7 of 3.4; unordered: X-6."""
        # A foreign zone may write an index past the limit, which no receipt could have.
        limit = MAX_INDEX if substream == RECEIPT else self._counter(pair, SEND, "next_index")
        stop = min(span[1], limit)
        if self._ordered:
            expected = self.expected(pair, substream)
            return [(expected, stop)] if span[0] <= expected < stop else []
        cut = self._done(pair, substream).cut(span[0], stop)
        return [(first, stop) for first, stop, inside in cut if not inside]

    def take(self, pair: Pair, substream: int, span: Span) -> None:
        """Record a span as processed."""
        self._next[pair, substream] = span[1]
        if not self._ordered:
            self._done(pair, substream).add(*span)

    def clean(self, pair: Pair, head: int) -> None:
        """Advance the head of a receipt queue to ``head``, and a lower tail with it (X-2)."""
        self._heads[pair] = head
        if not self._ordered:
            self._done(pair, RECEIPT).add(0, head)
        self._next[pair, RECEIPT] = max(self.expected(pair, RECEIPT), head)

    def _counter(self, pair: Pair, substream: int, name: str) -> int:
        row = find_row(self._lanes, lane_key(*pair, substream)) if pair[1] >= 0 else -1
        return 0 if row < 0 else int(self._counters[name].item(row))

    def _done(self, pair: Pair, substream: int) -> Intervals:
        """Return the processed indices of an unordered queue: received, or answered."""
        found = self._processed.get((pair, substream))
        if found is None:
            if substream == RECEIPT:
                # All indices below the first missing one were written or pruned.
                found = Intervals.of(self._occupied_indices(pair, substream, self._counter(pair, RECEIPT, "ready")))
                found.add(0, max(self._counter(pair, RECEIPT, name) for name in ("begin", "ready")))
            else:
                found = Intervals.of(self._occupied_indices(pair, substream)).without(
                    0, self._counter(pair, SEND, "next_index")
                )
            self._processed[pair, substream] = found
        return found

    def _occupied_indices(self, pair: Pair, substream: int, first: int = 0) -> U64:
        """Return the indices from ``first`` on with an entry or an unanswered slot, ascending."""
        entries, slots = self._state.leaves.get(lane_key(*pair, substream)), self._state.slots
        own: U64 = np.empty(0, dtype=np.uint64) if entries is None else entries.indices_from(first)
        if substream == RECEIPT and len(slots):
            mine = (slots["destination"] == pair[0]) & (slots["source"] == pair[1])
            own = np.sort(np.concatenate([own, slots["index"][mine]]))
        return own
