"""What a task knows of a network.

One height after the other: what all buckets together say of a height, and when the next one is.

A group of ticks that one commit covers, and how much of them is one.

How many calls a round begins and ends, so that whoever watches a run knows how many are open, whatever was before.

The counts are parts of ``RoundResult.work``, and so of every manifest, as sums since the beginning. A call begins when
its request is sent, and ends when its response comes back or one of its two messages is dropped; ``calls`` says it
exactly, from all rows. What forks took back is not subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.config.traffic import Traffic
from causeway.core.frame import Frame
from causeway.core.vocabulary import REVERTED, Event, Kind
from causeway.protocols.contract import AnyKernel, Chains, Tick
from causeway.protocols.shared.messages import FORGED
from causeway.storage.external_input import INPUT_SCHEMAS, NO_INPUT, ExternalInput, InputRecord, has_input
from causeway.storage.manifests import HeightLine

__all__ = ["BEGUN", "ENDED", "count_open_calls", "count_round_calls"]

FIRST_HEIGHT = 0
"""The height of genesis."""

GENESIS = Tick(FIRST_HEIGHT, 0)


class HeightReport(NamedTuple):
    """What one bucket says of a height: as of ``RoundResult``, and how many rows each log table got."""

    wake: int | None
    needs: int | None
    gives_up: int | None
    rows: Mapping[str, int]
    upkeep: Sequence[str] = ()


def height_line(tick: Tick, said: Sequence[HeightReport]) -> HeightLine:
    """Return what is known of a height from what each bucket says of it.

    A bucket that gives up does not wake any more: whether anything moved is known here, of all of them.
    """
    rows: dict[str, int] = {}
    for one in said:
        for table, count in one.rows.items():
            rows[table] = rows.get(table, 0) + count
    upkeep = {table for one in said for table in one.upkeep}
    quiet = not has_activity({table: count for table, count in rows.items() if table not in upkeep})
    ends = tick.tick if quiet and tick.coming is None else -1
    wakes = [one.wake for one in said if one.wake is not None and (one.gives_up is None or one.gives_up > ends)]
    needs = [one.needs for one in said if one.needs is not None]
    quiet_since = tick.quiet_since if quiet else tick.tick + 1
    return HeightLine(tick.height, tick.tick, min(wakes, default=None), quiet_since, min(needs, default=None), rows)


def has_activity(rows: Mapping[str, int]) -> bool:
    """Return whether anything happened at a height, by its numbers of rows.

    Headers do not count, nor what carriers brought, refused or taken, nor handlers that failed, which may be tried for
    ever: where that moved a message, it has events of its own.
    """
    still = ("headers", "events", "of_carriers", "failures")
    others = sum(count for table, count in rows.items() if table not in still)
    return others > 0 or rows.get("events", 0) > rows.get("of_carriers", 0)


def next_height_tick(before: HeightLine, tick: int, traffic: Traffic, outside: ExternalInput = NO_INPUT) -> Tick:
    """Return a tick as the height after ``before``. ``outside``: what was recorded for it."""
    came = has_input(outside) or traffic.next_tick(tick) == tick
    quiet_since = max(before.quiet_since, tick) if came else before.quiet_since
    return Tick(before.height + 1, tick, traffic.next_tick(tick + 1), quiet_since)


def find_next_tick(before: HeightLine, traffic: Traffic) -> int | None:
    """Return the tick that runs after a height, None when nothing is left to do: idle ticks without traffic are
    skipped."""
    following = before.tick + (1 if before.height else 0)
    due = (before.wake, traffic.next_tick(following))
    return min((max(tick, following) for tick in due if tick is not None), default=None)


MAX_HEIGHTS = 4096
"""A commit has at most so many heights: its manifest has a line for each."""


@dataclass(frozen=True)
class CommitEvery:
    """When a group is full: after so many heights, bytes of what they logged in memory, or seconds of running it.

    What is lost when a run is killed is at most one group, which is run again.
    """

    heights: int = MAX_HEIGHTS
    bytes: int = 64 << 20
    seconds: float = 2.0

    def full(self, heights: int, held: int, seconds: float) -> bool:
        """Return whether a group that has so much is full."""
        return heights >= self.heights or held >= self.bytes or seconds >= self.seconds


EACH_HEIGHT = CommitEvery(heights=1)
"""Every height is a commit of its own."""


@dataclass(frozen=True)
class TickGroup:
    """The ticks that are run at once: ``first``, into which comes what was recorded (``outside``), and then whatever is
    due, below the tick ``until``, as far as ``every`` allows."""

    first: Tick
    outside: ExternalInput = field(default_factory=lambda: NO_INPUT)
    until: int | None = None
    every: CommitEvery = EACH_HEIGHT


BEGUN, ENDED = "calls_begun", "calls_ended"
"""What the counts are called."""

_OUTBOUND = {"kind", "sent_tick", "queue_index"}
_EVENTS = {"kind", "events"}


def count_round_calls(outbound: Frame, logs: Mapping[str, Frame], tick: int) -> dict[str, int]:
    """Return how many calls the round of a tick began and ended, by what it logged; what is 0 is left out."""
    begun = ended = 0
    if len(outbound) and set(outbound.names) >= _OUTBOUND:
        sent = (outbound["kind"] == Kind.REQUEST) & (outbound["sent_tick"] == tick)
        begun += int(np.count_nonzero(sent & (outbound["queue_index"] < FORGED)))
    events = logs.get("events")
    if events is not None and len(events) and set(events.names) >= _EVENTS:
        kinds, what = events["kind"], events["events"]
        request, response = kinds == Kind.REQUEST, kinds == Kind.RESPONSE
        begun += int(np.count_nonzero(request & ((what & int(Event.SENT)) > 0)))
        ended += int(np.count_nonzero(response & ((what & int(Event.RECEIVED)) > 0)))
        ended += int(np.count_nonzero((request | response) & ((what & int(Event.DROPPED)) > 0)))
    return {name: count for name, count in ((BEGUN, begun), (ENDED, ended)) if count}


def count_open_calls(work: Mapping[str, int], totals: Mapping[str, int]) -> int | None:
    """Return how many calls are open after a commit; None where that is not known: forks took something back, or the
    run began under a Causeway that did not count them. ``work``, ``totals``: of its manifest."""
    if totals.get(REVERTED) or (totals.get("outbound") and BEGUN not in work):
        return None
    return max(work.get(BEGUN, 0) - work.get(ENDED, 0), 0)


_NOTHING = {kind: schema.empty_table() for kind, schema in INPUT_SCHEMAS.items()}


@dataclass(frozen=True)
class Deployment:
    """A network, ready to be run: its kernel, its traffic, and how its chains are cut into buckets. Picklable.

    ``buckets``: positions [first, end) of each bucket's chains. ``numbers``: the chains' numbers by position, as the
    traffic knows them. ``record``: of what comes from outside beside the traffic, None where nothing
    does.
    """

    kernel: AnyKernel
    traffic: Traffic
    buckets: tuple[tuple[int, int], ...]
    numbers: npt.NDArray[np.uint64]
    record: InputRecord | None = None

    def ingress(self, tick: int, outside: ExternalInput, chains: Chains) -> pa.Table:
        """Return the messages of users to ``chains`` (positions) in ``tick``: the traffic's, then the record's."""
        rows = self.traffic.rows(tick, self.numbers[chains])
        return pa.concat_tables([rows, self._recorded(outside, "ingress", chains)]) if outside else rows

    def carried(self, outside: ExternalInput, chains: Chains) -> pa.Table:
        """Return the wire bytes that were carried to ``chains`` (positions)."""
        return self._recorded(outside, "carried", chains)

    def _recorded(self, outside: ExternalInput, kind: str, chains: Chains) -> pa.Table:
        if self.record is None or kind not in outside:
            return _NOTHING[kind]
        return self.record.rows(outside, kind, self.numbers[chains])

    def chains(self, bucket: int) -> Chains:
        """Return the positions of a bucket's chains."""
        first, end = self.buckets[bucket]
        return np.arange(first, end, dtype=np.uint32)

    def names(self, chains: Iterable[int]) -> tuple[str, ...]:
        """Return the names of chains by their positions; a position of no chain, which only an altered lake has, is
        named as such."""
        known = self.kernel.chains()
        return tuple(known[chain] if chain < len(known) else f"chain {chain}" for chain in chains)

    def buckets_of(self, chains: Chains) -> npt.NDArray[np.int64]:
        """Return the bucket of each chain."""
        ends = np.array([end for _, end in self.buckets])
        return np.searchsorted(ends, chains, side="right")
