"""Derive the ledger of a lake from its logs without Spark, one range of heights at a time.

Memory is bounded by a range of log rows, and recent messages that later rows may reference. Older referenced messages
are searched in the ranges before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame, concat, from_table
from causeway.core.joins import Intervals, encode_keys
from causeway.core.vocabulary import REVERTED
from causeway.ledger.lake.events import EventDerivation, RangeEvents, draft_queued_sends, ending_rows
from causeway.ledger.lake.messages import (
    CALL,
    NO_PLACE,
    MessageForm,
    MessageReferences,
    RunLogs,
    RunMessageIndex,
    assign_positions,
    draft_reverts,
    empty_drafts,
    extract_messages,
    find_referenced_messages,
    has_wanted_name,
    is_call_reference,
    is_lane_reference,
    number_rows,
    read_run_logs,
)
from causeway.ledger.lake.names import VALUE_LOG, RunNames, build_value_rows, ledger_rows
from causeway.ledger.schema import VALUE_SCHEMA
from causeway.protocols.contract import HEADERS_SCHEMA
from causeway.protocols.registry import find_protocol, is_simulation
from causeway.protocols.shared.events import LEDGER_LOGS
from causeway.protocols.shared.messages import LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.storage.lake import Lake
from causeway.storage.layout import LAKE_FILE
from causeway.storage.log_reader import LogReader
from causeway.storage.table_schemas import stamped_schema, type_name

RANGE_ROWS = 1 << 18
"""Approximate number of log rows derived at a time; a height is never split."""

MAX_PENDING = 1 << 20
"""Maximum number of messages in memory for rows of later heights."""

MIN_RANGE_ROWS = 16
"""Divisor of the first range in a search for earlier messages; each further range doubles."""

READ_TABLES = ("outbound", "events", "collected")
_LOGS = {
    name: stamped_schema(schema)
    for name, schema in {"outbound": OUTBOUND_SCHEMA, **LEDGER_LOGS, "headers": HEADERS_SCHEMA}.items()
}
"""Log tables of every protocol, with the required columns."""

DeriveProgress = Callable[[int, int], None]
"""Callback with the number of derived heights, and their total."""


class DerivedRows(NamedTuple):
    """Rows of a range of heights.

    Attributes:
        heights: The range.
        rows: Rows of ``ledger``.
        value: Movements of value.
    """

    heights: range
    rows: pa.Table
    value: pa.Table


class _Fork(NamedTuple):
    """A fork of a chain at a height and tick; ``spans``: reverted heights (begin, end)."""

    chain: int
    spans: tuple[tuple[int, int], ...]
    height: int
    tick: int

    def before(self, height: int) -> range:
        """Return a range of heights below ``height`` that has its reverted ones."""
        return range(min(start for start, _ in self.spans), min(height, max(stop for _, stop in self.spans)))

    def hits(self, chains: np.ndarray, heights: np.ndarray) -> np.ndarray:
        """Return a mask of reverted log rows, by chain and height."""
        hit = np.zeros(len(heights), dtype=bool)
        for start, stop in self.spans:
            hit |= (heights >= np.uint64(start)) & (heights < np.uint64(stop))
        hit &= chains == np.uint32(self.chain)
        return hit


@dataclass
class LedgerDerivation:
    """Derives the ledger of a lake.

    ``rows`` gives the rows by range; then ``waiting`` gives the messages without a lane at the end.

    Attributes:
        lake: The lake.
        range_rows: Approximate number of log rows a range.
        max_retained: Maximum number of messages in memory.
        substreams: Used substreams, with a flag for lanes from a chain to itself.
        logs: Log reader of the lake.
    """

    lake: Lake
    range_rows: int = RANGE_ROWS
    max_retained: int = MAX_PENDING
    substreams: set[tuple[int, bool]] = field(default_factory=set)
    logs: LogReader = field(init=False)

    def __post_init__(self) -> None:
        about = self.lake.about()
        if is_simulation(about["protocol"]):
            title = find_protocol(about["protocol"]).title
            raise InvalidInput(f"{self.lake.storage.uri}: a lake of {title}: no messages of users are in it")
        self.lake = self.lake.with_identity()
        self.logs = LogReader(self.lake)
        self._require_logs()
        self.names = read_run_names(self.lake)
        self._own = np.array([not item.get("external") for item in about["chains"]], dtype=bool)
        self._remote_programs = _find_remote_programs(self.lake)
        info = find_protocol(about["protocol"]).load_semantics()
        self._events = EventDerivation(self._heights_of, self._own, info.expired, info.pairing, info.collects_answered)
        self._until = 0
        self._waiting: Frame | None = None

    def _require_logs(self) -> None:
        """Raise ``LakeDamaged`` unless the logs have the required tables and columns."""
        for table, schema in _LOGS.items():
            found = self.logs.schemas.get(table, pa.schema([]))
            for each in schema:
                place = found.get_field_index(each.name)
                if place < 0 or type_name(found.field(place).type) != type_name(each.type):
                    text = f"{table} has no column {each.name} of type {type_name(each.type)}"
                    raise self.lake.damaged(LAKE_FILE, f"has invalid content: {text}")

    def rows(self, first: int, end: int, waiting: Frame | None = None) -> Iterator[DerivedRows]:
        """Yield the rows of a range of heights.

        Args:
            first: First height.
            end: Height after the last one.
            waiting: Drafts of messages that waited for a lane before.

        Raises:
            LakeError: The lake is unreadable.
            LakeDamaged: A log is damaged.
        """
        recent: Frame | None = None
        self._waiting = waiting
        undone = self._abandoned(first)
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES):
            self._until = heights.stop - 1
            logs = self._read(heights)
            derived, recent = self._derive_events(logs, heights.start, recent)
            drafts = [derived.rows]
            self._waiting = _exclude_calls(concat([self.waiting(), derived.queued]), derived.gone)
            forks = list(self._forks(heights, undone))
            reverts = [rows for fork in forks for rows in self._reverts(fork, heights, drafts)]
            rows = assign_positions(concat([*drafts, *reverts]))
            self._add_substreams(rows.filter(rows["index"] != np.uint64(NO_PLACE)))
            yield DerivedRows(heights, self.drafts_to_rows(rows), self._value(heights, forks))

    def waiting(self) -> Frame:
        """Return drafts of sendings that wait for a lane after the last range."""
        return empty_drafts() if self._waiting is None else self._waiting

    def pending_drafts(self, first: int, end: int) -> Frame:
        """Return drafts of messages sent in a range of heights that wait for a lane after it.

        Args:
            first: First height.
            end: Height after the last one.

        Raises:
            LakeError: The lake is unreadable.
            LakeDamaged: A log is damaged.
        """
        waiting = empty_drafts()
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES[:2]):
            logs = read_run_logs(self._empty("outbound"), self.logs.read("events", heights), self._empty("collected"))
            messages, events = extract_messages(logs), logs.events
            queued = messages.filter((messages["form"] == MessageForm.QUEUED) & (messages["ended"] == 0))
            placed = from_table(self.logs.read("outbound", heights, (*CALL, "tick", "sent_tick")))
            placed = placed.filter(placed["sent_tick"] < placed["tick"].astype(np.uint64))
            ended = events.filter(is_call_reference(events) & ending_rows(events))
            finished = concat([placed.select(CALL), ended.select(CALL)])
            waiting = _exclude_calls(concat([waiting, draft_queued_sends(queued)]), finished)
        return waiting

    def movements(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the movements of value of a range of heights.

        Args:
            first: First height.
            end: Height after the last one.

        Raises:
            LakeError: The lake is unreadable.
            LakeDamaged: A log is damaged.
        """
        undone = self._abandoned(first)
        for heights in self.logs.ranges(first, end, self.range_rows, [VALUE_LOG]):
            yield self._value(heights, list(self._forks(heights, undone)))

    def add_used_lanes(self, first: int, end: int) -> None:
        """Add the used lanes of a range of heights to ``substreams``."""
        lane = LANE_COLUMNS[:3]
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES[:2]):
            outbound = from_table(self.logs.read("outbound", heights, lane))
            events = from_table(self.logs.read("events", heights, (*lane, "kind", "via", "events")))
            self._add_substreams(concat([outbound, events.filter(is_lane_reference(events)).select(lane)]))

    def local_chains(self) -> list[str]:
        """Return the names of the chains that the lake runs."""
        return [name for name, own in zip(self.names.chains, self._own.tolist(), strict=True) if own]

    def drafts_to_rows(self, drafts: Frame) -> pa.Table:
        """Convert drafts to ledger rows."""
        return ledger_rows(drafts, self.names, self._events.reasons)

    # ---- ranges

    def _read(self, heights: range) -> RunLogs:
        return read_run_logs(*(self.logs.read(table, heights) for table in READ_TABLES))

    def _derive_events(self, logs: RunLogs, first: int, recent: Frame | None) -> tuple[RangeEvents, Frame]:
        """Derive log rows from height ``first`` on; return events and messages for later rows."""
        new = extract_messages(logs)
        wanted = find_referenced_messages(logs, self._own, self._events.further(logs, new))
        messages = RunMessageIndex.of(new) if recent is None else RunMessageIndex.of(recent, new)
        found = self._find_earlier(messages.missing(wanted), first)
        if len(found):
            messages = RunMessageIndex.of(found, messages.rows)
        derived = self._events.derive(logs, new, messages)
        count = len(messages)
        return derived, messages.rows.slice(max(0, count - self.max_retained), count)

    def _find_earlier(self, wanted: MessageReferences, first: int) -> Frame:
        """Search heights below ``first`` for referenced messages."""
        remote = np.isin(wanted.calls["sender"], self._remote_programs)
        wanted = MessageReferences(wanted.lanes, wanted.calls.filter(~remote))
        found: list[Frame] = []
        stop, size = first, max(self.range_rows // MIN_RANGE_ROWS, 1)
        while stop > 0 and len(wanted):
            heights = next(self.logs.ranges_back(stop, size, READ_TABLES[:2]))
            outbound, events = (self.logs.read(table, heights) for table in READ_TABLES[:2])
            messages = extract_messages(read_run_logs(outbound, events, self._empty("collected")))
            messages = messages.filter(has_wanted_name(messages, wanted))
            found.insert(0, messages)
            wanted = RunMessageIndex.of(messages).missing(wanted)
            stop, size = heights.start, min(2 * size, self.range_rows)
        return concat(found) if found else extract_messages(read_run_logs(*map(self._empty, READ_TABLES)))

    def _empty(self, table: str) -> pa.Table:
        return self.logs.schemas[table].empty_table()

    def _heights_of(self, ticks: np.ndarray) -> np.ndarray:
        distinct, at = np.unique(ticks, return_inverse=True)
        heights = [self.logs.height_of(int(tick), self._until) for tick in distinct.tolist()]
        return np.array(heights, dtype=np.uint64)[at]

    # ---- forks

    def _abandoned(self, first: int) -> dict[int, Intervals]:
        """Return the heights that each chain abandoned before height ``first``."""
        undone: dict[int, Intervals] = {}
        if REVERTED in self.logs.schemas and first > 0:
            rows = self.logs.read(REVERTED, range(first))
            for chain, begin, last in zip(
                *(rows[name].to_pylist() for name in ("chain", "first", "last")), strict=True
            ):
                undone.setdefault(chain, Intervals()).add(begin, last + 1)
        return undone

    def _forks(self, heights: range, undone: dict[int, Intervals]) -> Iterator[_Fork]:
        """Yield the forks of a range of heights, with newly reverted heights only."""
        if REVERTED not in self.logs.schemas:
            return
        rows = self.logs.read(REVERTED, heights)
        columns = (rows[name].to_pylist() for name in ("height", "tick", "chain", "first", "last"))
        for height, tick, chain, begin, last in zip(*columns, strict=True):
            known = undone.setdefault(chain, Intervals())
            spans = [(start, stop) for start, stop, inside in known.cut(begin, last + 1) if not inside]
            known.add(begin, last + 1)
            if spans:
                yield _Fork(chain, tuple(spans), height, tick)

    def _reverts(self, fork: _Fork, heights: range, drafts: list[Frame]) -> Iterator[Frame]:
        """Yield rows that revert the log rows of abandoned heights."""
        derived = list(drafts)
        before = fork.before(heights.start)
        if len(before):
            derived.append(self._derive_events(self._read(before), before.start, None)[0].rows)
        for rows in derived:
            hit = fork.hits(rows["owner"], rows["at"])
            yield draft_reverts(rows.filter(hit), self._events.reasons, fork.height, fork.tick)

    # ---- value

    def _value(self, heights: range, forks: list[_Fork]) -> pa.Table:
        """Return the movements of a range of heights, and reversals of reverted ones."""
        if VALUE_LOG not in self.logs.schemas:
            return VALUE_SCHEMA.empty_table()
        own = number_rows(self.logs.read(VALUE_LOG, heights), "chain")
        parts = [build_value_rows(own, self.names)]
        for fork in forks:
            before = number_rows(self.logs.read(VALUE_LOG, fork.before(heights.start)), "chain")
            for rows in (before, own):
                back = rows.filter(fork.hits(rows["chain"], rows["height"]))
                parts.append(build_value_rows(back, self.names, at=(fork.height, fork.tick)))
        return pa.concat_tables(parts).unify_dictionaries()

    # ---- lanes

    def _add_substreams(self, rows: Frame) -> None:
        own = rows["source"] == rows["destination"]
        for of_own in (False, True):
            seen = np.unique(rows["substream"][own == of_own])
            self.substreams |= {(substream, of_own) for substream in seen.tolist()}


def _exclude_calls(rows: Frame, names: Frame) -> Frame:
    """Return the rows without some calls (``CALL``)."""
    if len(names) == 0 or len(rows) == 0:
        return rows
    own, named = encode_keys(CALL, rows, names)
    return rows.filter(~np.isin(own, named))


def read_run_names(lake: Lake) -> RunNames:
    """Return the names behind the numbers in the logs of a lake.

    Args:
        lake: Lake of a run.

    Returns:
        Names of protocol, asset, chains and programs, and the length of a tick in microseconds.
    """
    about, programs = lake.about(), lake.topology("programs")
    numbers = programs["number"].to_numpy().astype(np.uint64)
    order = np.argsort(numbers)
    names = programs["name"].to_pylist()
    return RunNames(
        protocol=about["protocol"],
        asset=about["asset"],
        chains=tuple(item["name"] for item in about["chains"]),
        numbers=numbers[order],
        programs=tuple(names[row] for row in order.tolist()),
        tick_micros=round(float(about["seconds_per_tick"]) * 1_000_000),
    )


def _find_remote_programs(lake: Lake) -> np.ndarray:
    """Return the numbers of programs on remote chains; no log here has their requests."""
    chains = [int(item["number"]) for item in lake.about()["chains"] if item.get("external")]
    programs = lake.topology("programs")
    there = np.array([chain in chains for chain in programs["chain"].to_pylist()], dtype=bool)
    found: np.ndarray = programs["number"].to_numpy().astype(np.uint64)[there]
    return found


__all__ = ["DerivedRows", "LedgerDerivation", "read_run_names"]
