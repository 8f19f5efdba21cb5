"""Deployments, and the schedule of their ticks.

``Deployment`` is the network as a task knows it. ``height_line`` merges the reports of buckets; ``find_next_tick``
skips idle ticks. ``TickGroup`` and ``CommitEvery`` bound the ticks of one commit.

``count_round_calls`` counts calls begun and ended, as part of ``RoundResult.work`` and thus as running totals in every
manifest. So the number of open calls is known at any commit. A call begins when its request is sent. It ends when its
response arrives, or one of the two messages is dropped. Reverted blocks are not subtracted; the exact count comes from
ledger rows.
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
"""Height of genesis."""

GENESIS = Tick(FIRST_HEIGHT, 0)


class HeightReport(NamedTuple):
    """Report of a bucket for a height: fields of ``RoundResult``, and new rows by log table."""

    wake: int | None
    needs: int | None
    gives_up: int | None
    rows: Mapping[str, int]
    upkeep: Sequence[str] = ()


def height_line(tick: Tick, reports: Sequence[HeightReport]) -> HeightLine:
    """Merge the reports of buckets into the summary of a height.

    A bucket past its idle limit is not woken; activity counts over all buckets.

    Args:
        tick: The height's tick.
        reports: Reports of the buckets.
    """
    rows: dict[str, int] = {}
    for report in reports:
        for table, count in report.rows.items():
            rows[table] = rows.get(table, 0) + count
    upkeep = {table for report in reports for table in report.upkeep}
    quiet = not has_activity({table: count for table, count in rows.items() if table not in upkeep})
    ends = tick.tick if quiet and tick.coming is None else -1
    wakes = [
        report.wake
        for report in reports
        if report.wake is not None and (report.gives_up is None or report.gives_up > ends)
    ]
    needs = [report.needs for report in reports if report.needs is not None]
    quiet_since = tick.quiet_since if quiet else tick.tick + 1
    return HeightLine(tick.height, tick.tick, min(wakes, default=None), quiet_since, min(needs, default=None), rows)


def has_activity(rows: Mapping[str, int]) -> bool:
    """Return True if anything happened at a height.

    Headers, carrier events and failures do not count, since they may repeat for ever; a moved message has its own
    events.

    Args:
        rows: New rows by log table.
    """
    passive = ("headers", "events", "of_carriers", "failures")
    others = sum(count for table, count in rows.items() if table not in passive)
    return others > 0 or rows.get("events", 0) > rows.get("of_carriers", 0)


def next_height_tick(before: HeightLine, tick: int, traffic: Traffic, outside: ExternalInput = NO_INPUT) -> Tick:
    """Return a tick as the next height.

    Args:
        before: Summary of the previous height.
        tick: The tick.
        traffic: The traffic.
        outside: External input of the tick.
    """
    has_traffic = has_input(outside) or traffic.next_tick(tick) == tick
    quiet_since = max(before.quiet_since, tick) if has_traffic else before.quiet_since
    return Tick(before.height + 1, tick, traffic.next_tick(tick + 1), quiet_since)


def find_next_tick(before: HeightLine, traffic: Traffic) -> int | None:
    """Find the next tick to run, skipping idle ones without traffic.

    Args:
        before: Summary of the last height.
        traffic: The traffic.

    Returns:
        The tick, or None if nothing is left to do.
    """
    earliest = before.tick + (1 if before.height else 0)
    due = (before.wake, traffic.next_tick(earliest))
    return min((max(tick, earliest) for tick in due if tick is not None), default=None)


MAX_HEIGHTS = 4096
"""Maximum number of heights in a commit; its manifest has a line for each."""


@dataclass(frozen=True)
class CommitEvery:
    """Limits of a commit group: heights, bytes of logs in memory, or seconds of execution.

    A killed run loses at most one group, which is executed again.
    """

    heights: int = MAX_HEIGHTS
    bytes: int = 64 << 20
    seconds: float = 2.0

    def full(self, heights: int, held: int, seconds: float) -> bool:
        """Return True if a group has reached a limit."""
        return heights >= self.heights or held >= self.bytes or seconds >= self.seconds


EACH_HEIGHT = CommitEvery(heights=1)
"""One height a commit."""


@dataclass(frozen=True)
class TickGroup:
    """Ticks run at once.

    Attributes:
        first: First tick.
        outside: External input of the first tick.
        until: Exclusive last tick; None: none.
        every: Limits of the group.
    """

    first: Tick
    outside: ExternalInput = field(default_factory=lambda: NO_INPUT)
    until: int | None = None
    every: CommitEvery = EACH_HEIGHT


BEGUN, ENDED = "calls_begun", "calls_ended"
"""Names of the call counters."""

_OUTBOUND = {"kind", "sent_tick", "queue_index"}
_EVENTS = {"kind", "events"}


def count_round_calls(outbound: Frame, logs: Mapping[str, Frame], tick: int) -> dict[str, int]:
    """Count the calls that a round began and ended, from its logs; zero counts are omitted.

    Args:
        outbound: Outbound entries.
        logs: Rows of log tables.
        tick: Tick of the round.
    """
    begun = ended = 0
    if len(outbound) and set(outbound.names) >= _OUTBOUND:
        sent = (outbound["kind"] == Kind.REQUEST) & (outbound["sent_tick"] == tick)
        begun += int(np.count_nonzero(sent & (outbound["queue_index"] < FORGED)))
    events = logs.get("events")
    if events is not None and len(events) and set(events.names) >= _EVENTS:
        kinds, flags = events["kind"], events["events"]
        request, response = kinds == Kind.REQUEST, kinds == Kind.RESPONSE
        begun += int(np.count_nonzero(request & ((flags & int(Event.SENT)) > 0)))
        ended += int(np.count_nonzero(response & ((flags & int(Event.RECEIVED)) > 0)))
        ended += int(np.count_nonzero((request | response) & ((flags & int(Event.DROPPED)) > 0)))
    return {name: count for name, count in ((BEGUN, begun), (ENDED, ended)) if count}


def count_open_calls(work: Mapping[str, int], totals: Mapping[str, int]) -> int | None:
    """Return the number of open calls after a commit.

    Args:
        work: Work counters of the manifest.
        totals: Row totals of the manifest.

    Returns:
        The number, or None if unknown: after reverted forks, or without counters from the start.
    """
    if totals.get(REVERTED) or (totals.get("outbound") and BEGUN not in work):
        return None
    return max(work.get(BEGUN, 0) - work.get(ENDED, 0), 0)


_NOTHING = {kind: schema.empty_table() for kind, schema in INPUT_SCHEMAS.items()}


@dataclass(frozen=True)
class Deployment:
    """A network ready to run; picklable.

    Attributes:
        kernel: The protocol's kernel.
        traffic: The traffic.
        buckets: First and end position of each bucket's chains.
        numbers: Chain numbers by position.
        record: Record of external input; None: none.
    """

    kernel: AnyKernel
    traffic: Traffic
    buckets: tuple[tuple[int, int], ...]
    numbers: npt.NDArray[np.uint64]
    record: InputRecord | None = None

    def ingress(self, tick: int, outside: ExternalInput, chains: Chains) -> pa.Table:
        """Return the user messages to chains (positions) in a tick: traffic, then recorded input."""
        rows = self.traffic.rows(tick, self.numbers[chains])
        return pa.concat_tables([rows, self._recorded(outside, "ingress", chains)]) if outside else rows

    def carried(self, outside: ExternalInput, chains: Chains) -> pa.Table:
        """Return the wire bytes carried to chains (positions)."""
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
        """Return chain names by position.

        An invalid position, from a corrupted lake, gets a placeholder.
        """
        known = self.kernel.chains()
        return tuple(known[chain] if chain < len(known) else f"chain {chain}" for chain in chains)

    def buckets_of(self, chains: Chains) -> npt.NDArray[np.int64]:
        """Return the bucket of each chain."""
        ends = np.array([end for _, end in self.buckets])
        return np.searchsorted(ends, chains, side="right")
