"""Ledgers of any size of which it is known what an audit finds: lanes of skewed sizes, and planted faults.

Everything about a message is a function of its lane and index, so that rows can be made for any bucket, in the order of
the ledger, and for any span of time, in the order in which they arrived: the same rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput

U64 = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]

SECOND = 1_000_000
"""Times are microseconds."""

CHAINS = 40
PROTOCOLS = ("bridge", "bridge-in-order")
"""Of lanes that keep no order in receiving, and of those that do."""

GENESIS = 1_735_689_600 * SECOND
"""When every chain began: 2025-01-01."""

BEGIN, SPAN = 86_400 * SECOND, 30 * 86_400 * SECOND
"""When the first message is sent, after the chains began, and for how long messages are sent, at most."""

QUICK = 200 * SECOND
"""Some lanes send so often at least, also where there are few rows: the span is shorter there."""

BLOCK = 6 * SECOND
FINAL_AFTER = 1_800 * SECOND
ANSWERED_WITHIN = 86_400 * SECOND
SPREAD = 3_600 * SECOND
"""Messages of unordered lanes are received within so long after they are final."""

ORDERED_DELAY = 2_400 * SECOND
ANSWER_DELAY = 600 * SECOND
LONGEST = FINAL_AFTER + SPREAD + ANSWER_DELAY + BLOCK
"""What happens to a message happens within so long after it was sent, unless a fault is planted there."""

END = BEGIN + SPAN + 2 * ANSWERED_WITHIN
"""Until when all chains were recorded."""

SENT, COMMITTED, RECEIVED, ACKNOWLEDGED = range(4)
"""The events of a message by their place among its rows."""

LOST, TWICE, DIFFERS, FORGED, MISSING, EARLIER, BEFORE, EARLY, LATE, MORE = range(1, 11)
"""What is planted: never received; received twice; received with another content; received and never sent; without a
row; in an ordered lane, received before the one before it; received before it was sent; received before it was final;
answered late; received with a greater amount."""

PLANTED = 24
"""Messages with each fault, in ledgers that have room for them."""

VIOLATED = {
    "exactly_once": (TWICE,),
    "authenticity": (DIFFERS, FORGED),
    "order": (EARLIER,),
    "gaps": (),
    "causality": (BEFORE,),
    "finality": (BEFORE, EARLY),
    "answers": (LATE, LOST),
    "answers_without_request": (),
    "conservation": (TWICE, DIFFERS, FORGED, MORE),
}
"""The faults that violate each check."""

UNKNOWN = {"gaps": (MISSING,)}
"""The faults that are holes in the input to a check."""


@dataclass(frozen=True)
class Rows:
    """Rows of the ledger as numbers. ``event``: ``SENT`` to ``ACKNOWLEDGED``; ``content``: words, (n, 4)."""

    lane: npt.NDArray[np.int32]
    index: U64
    event: npt.NDArray[np.int32]
    time: Ints
    amount: U64
    content: U64
    name: U64

    def take(self, rows: Any) -> Rows:
        """Return some rows."""
        return Rows(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Workload:
    """A ledger of about ``rows`` rows: four a message, each lane ``l`` about 1 / (l + 3) of them."""

    rows: int
    lanes: int = 5_000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.lanes < 4 or self.rows < 40 * self.lanes:
            raise InvalidInput(f"rows: {self.rows} in {self.lanes} lanes: at least 4 lanes, and 40 rows a lane")

    @cached_property
    def messages(self) -> Ints:
        """How many messages each lane has, from index 1 on, forged ones not counted."""
        weights = 1 / (np.arange(self.lanes) + 3)
        found: Ints = np.maximum(weights / weights.sum() * (self.rows / 4), 2).astype(np.int64)
        return found

    @cached_property
    def steps(self) -> Ints:
        """How long after each other the messages of each lane are sent, in microseconds."""
        return self.span // self.messages

    @cached_property
    def span(self) -> int:
        """For how long messages are sent, in microseconds."""
        return min(SPAN, int(self.messages[1]) * QUICK)

    @cached_property
    def names(self) -> list[tuple[str, str, str, str]]:
        """The names of each lane: protocol, source, destination, lane."""
        ends = [(7 * lane % CHAINS, (7 * lane + 1 + lane % (CHAINS - 1)) % CHAINS) for lane in range(self.lanes)]
        return [
            (PROTOCOLS[self.ordered(lane)], f"chain-{a:02}", f"chain-{b:02}", f"lane-{lane:05}")
            for lane, (a, b) in enumerate(ends)
        ]

    @cached_property
    def in_order(self) -> Ints:
        """The lanes in the order of their names."""
        return np.array(sorted(range(self.lanes), key=lambda lane: self.names[lane]), dtype=np.int64)

    def ordered(self, lane: Any) -> Any:
        """Return whether lanes promise to keep order in receiving and acknowledging: every other one does."""
        return lane % 2 == 1

    @cached_property
    def faults(self) -> dict[tuple[int, int], int]:
        """What is planted: (lane, index) -> fault. No two are neighbours."""
        wanted = min(PLANTED, self.rows // 40_000 + 1)
        found: dict[tuple[int, int], int] = {}
        draws = iter(range(1 << 30))
        big = [int(lane) for lane in np.flatnonzero(self.messages >= 64 * wanted)[:200]] or [0, 1]
        fast = [lane for lane in big if self.ordered(lane) and self.steps[lane] <= QUICK] or [1]
        for fault in range(LOST, MORE + 1):
            lanes = [lane for lane in (fast if fault == EARLIER else big) if fault == EARLIER or not self.ordered(lane)]
            for number in range(wanted):
                lane = lanes[number % len(lanes)]
                while True:
                    last = int(self.messages[lane])
                    index = last + 1 + number // len(lanes) if fault == FORGED else self._draw(next(draws), last)
                    if fault == FORGED or not any((lane, index + near) in found for near in (-1, 0, 1)):
                        break
                found[lane, index] = fault
        return found

    def _draw(self, number: int, last: int) -> int:
        """Return an index that is neither the first nor the last."""
        word = int(mixed(np.array([number], np.uint64), self.seed)[0])
        return 2 + word % (last - 3)

    @cached_property
    def _keys(self) -> tuple[Ints, npt.NDArray[np.int8]]:
        keys = np.array([lane << 40 | index for lane, index in self.faults], dtype=np.int64)
        kinds = np.array(list(self.faults.values()), dtype=np.int8)
        order = np.argsort(keys)
        return keys[order], kinds[order]

    @property
    def expected(self) -> dict[str, tuple[int, int]]:
        """How many findings each check has: violated, unknown."""
        counts = Counter(self.faults.values())
        return {
            check: (sum(counts[fault] for fault in faults), sum(counts[fault] for fault in UNKNOWN.get(check, ())))
            for check, faults in VIOLATED.items()
        }

    @cached_property
    def last_indices(self) -> Ints:
        """The last index of each lane that has rows, forged ones too."""
        last = self.messages.copy()
        for lane, index in self.faults:
            last[lane] = max(last[lane], index)
        return last

    def events(self, lane: npt.NDArray[np.int32], index: U64) -> Rows:
        """Return the rows of messages, message by message, each one's by event and then time."""
        keys, kinds = self._keys
        key = lane.astype(np.int64) << 40 | index.astype(np.int64)
        at = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        fault = np.where(keys[at] == key, kinds[at], np.int8(0))
        word = mixed(key.view(np.uint64), self.seed)
        time = self._times(lane, index, word, fault)
        amount = np.empty((len(lane), 4, 2), dtype=np.uint64)
        amount[:, :, 0] = mixed(word, 1)[:, None]
        amount[:, :, 1] = (mixed(word, 2) >> np.uint64(32))[:, None]
        amount[fault == MORE, RECEIVED, 0] ^= np.uint64(1)
        amount[fault == MORE, RECEIVED, 1] += np.uint64(1)
        content = np.empty((len(lane), 4, 4), dtype=np.uint64)
        for place in range(4):
            content[:, :, place] = mixed(word, 3 + place)[:, None]
        content[fault == DIFFERS, RECEIVED, 0] ^= np.uint64(1)
        shown = np.ones((len(lane), 4), dtype=bool)
        shown[fault == LOST, RECEIVED:] = False
        shown[fault == MISSING] = False
        shown[fault == FORGED] = np.arange(4) == RECEIVED
        name = np.stack((word, mixed(word, 7)), axis=1)
        event = np.broadcast_to(np.arange(4, dtype=np.int32), (len(lane), 4))
        rows = Rows(
            *(lane.repeat(4), index.repeat(4), event.reshape(-1), time.reshape(-1), amount.reshape(-1, 2)),
            *(content.reshape(-1, 4), name.repeat(4, axis=0)),
        )
        if shown.all() and not (fault == TWICE).any():
            return rows
        order = np.flatnonzero(shown.reshape(-1))
        again = 4 * np.flatnonzero(fault == TWICE) + RECEIVED
        order = np.sort(np.concatenate((order, again)))
        rows = rows.take(order)
        second = np.flatnonzero(order[1:] == order[:-1]) + 1
        rows.time[second] += 60 * SECOND
        return rows

    def _times(self, lane: npt.NDArray[np.int32], index: U64, word: U64, fault: npt.NDArray[np.int8]) -> Ints:
        step = self.steps[lane]
        # After the last message that is sent there is one that is forged, some time later.
        place = np.minimum(index.astype(np.int64), self.messages[lane]) - 1
        sent = GENESIS + BEGIN + place * step + (word % np.maximum(step, 1).astype(np.uint64)).astype(np.int64)
        ordered = self.ordered(lane)
        spread = (mixed(word, 8) % np.uint64(SPREAD)).astype(np.int64)
        received = sent + np.where(ordered, ORDERED_DELAY, FINAL_AFTER + spread)
        spread = (mixed(word, 9) % np.uint64(ANSWER_DELAY - BLOCK)).astype(np.int64)
        acknowledged = received + BLOCK + np.where(ordered, ANSWER_DELAY // 2, spread)
        if fault.any():
            before = self._sent_before(lane, index, fault == EARLIER)
            received = np.where(fault == EARLIER, before + ORDERED_DELAY - 60 * SECOND, received)
            received = np.where(fault == BEFORE, sent - 100 * SECOND, received)
            received = np.where(fault == EARLY, sent + FINAL_AFTER // 2, received)
            acknowledged = np.where(fault == LATE, sent + ANSWERED_WITHIN + 3_600 * SECOND, acknowledged)
        committed = (sent // BLOCK + 1) * BLOCK
        return np.stack((sent, committed, received, acknowledged), axis=1)

    def _sent_before(self, lane: npt.NDArray[np.int32], index: U64, which: npt.NDArray[np.bool_]) -> Ints:
        sent = np.zeros(len(lane), dtype=np.int64)
        if which.any():
            own, before = lane[which], index[which] - np.uint64(1)
            word = mixed(own.astype(np.uint64) << np.uint64(40) | before, self.seed)
            sent[which] = self._times(own, before, word, np.zeros(len(own), np.int8))[:, SENT]
        return sent

    def between(self, begin: int, end: int) -> Rows:
        """Return the rows of a span of time, in the order in which they arrived: by time, then lane and index.

        ``begin``, ``end``: microseconds after ``GENESIS``; the end is not included.
        """
        first = np.clip((begin - LONGEST - BEGIN) // self.steps, 0, self.messages)
        last = np.clip((end - BEGIN) // self.steps + 1, first, self.messages)
        counts = last - first
        lane = np.repeat(np.arange(self.lanes, dtype=np.int32), counts)
        start = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        index = (np.arange(len(lane)) + start + 1).astype(np.uint64)
        keys, _ = self._keys
        planted = np.isin(lane.astype(np.int64) << 40 | index.astype(np.int64), keys)
        lane, index = lane[~planted], index[~planted]
        faulty = (keys >> 40).astype(np.int32), (keys & ((1 << 40) - 1)).astype(np.uint64)
        rows = self.events(np.concatenate((lane, faulty[0])), np.concatenate((index, faulty[1])))
        rows = rows.take((rows.time >= GENESIS + begin) & (rows.time < GENESIS + end))
        return rows.take(np.lexsort((rows.event, rows.index, rows.lane, rows.time)))


def mixed(words: U64, seed: int) -> U64:
    """Return words that look like chance: SplitMix64 of each, with a seed."""
    found = words + np.uint64((seed * 2 + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found
