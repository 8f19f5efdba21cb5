"""The ledger of a lake that Causeway ran, derived from its logs without Spark, a range of heights at a time.

What is in memory is a range of log rows, and the messages that later rows may speak of; a message of which a row speaks
and that is not there any more is looked for in the ranges before.
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
"""Log rows that are derived at a time, about; a height is never cut."""

MAX_PENDING = 1 << 20
"""Messages that are held for rows of later heights."""

MIN_RANGE_ROWS = 16
"""Messages of earlier heights are first looked for in so many times fewer rows, and then in twice as many each time."""

READ_TABLES = ("outbound", "events", "collected")
_LOGS = {
    name: stamped_schema(schema)
    for name, schema in {"outbound": OUTBOUND_SCHEMA, **LEDGER_LOGS, "headers": HEADERS_SCHEMA}.items()
}
"""The log tables that every protocol has, with the columns that are read."""

DeriveProgress = Callable[[int, int], None]
"""Told how many heights are done, and of how many."""


class DerivedRows(NamedTuple):
    """What a range of heights gives: ``rows`` of the ledger, and movements of ``value``."""

    heights: range
    rows: pa.Table
    value: pa.Table


class _Fork(NamedTuple):
    """A fork of a chain, at a height and tick, that took back its heights in ``spans`` (begin, end)."""

    chain: int
    spans: tuple[tuple[int, int], ...]
    height: int
    tick: int

    def before(self, height: int) -> range:
        """Return the heights below one among which are those that it took back."""
        return range(min(start for start, _ in self.spans), min(height, max(stop for _, stop in self.spans)))

    def hits(self, chains: np.ndarray, heights: np.ndarray) -> np.ndarray:
        """Return which log rows it took back, by the chain and height of each."""
        hit = np.zeros(len(heights), dtype=bool)
        for start, stop in self.spans:
            hit |= (heights >= np.uint64(start)) & (heights < np.uint64(stop))
        hit &= chains == np.uint32(self.chain)
        return hit


@dataclass
class LedgerDerivation:
    """Derives the ledger of a lake: ``rows`` range by range; then ``waiting``, what waits for a lane at the end.
    ``substreams``: those that messages used, and whether of a chain to itself."""

    lake: Lake
    range_rows: int = RANGE_ROWS
    most_held: int = MAX_PENDING
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
        self._abroad = _programs_abroad(self.lake)
        info = find_protocol(about["protocol"]).load_semantics()
        self._telling = EventDerivation(self._heights_of, self._own, info.expired, info.pairing, info.collects_answered)
        self._until = 0
        self._waiting: Frame | None = None

    def _require_logs(self) -> None:
        """Raise ``LakeDamaged`` unless the logs have the tables and columns that those of every protocol have."""
        for table, schema in _LOGS.items():
            found = self.logs.schemas.get(table, pa.schema([]))
            for each in schema:
                place = found.get_field_index(each.name)
                if place < 0 or type_name(found.field(place).type) != type_name(each.type):
                    what = f"{table} has no column {each.name} of type {type_name(each.type)}"
                    raise self.lake.damaged(LAKE_FILE, f"is not what was written: {what}")

    def rows(self, first: int, end: int, waiting: Frame | None = None) -> Iterator[DerivedRows]:
        """Yield the rows of the heights from ``first`` to ``end`` - 1. ``waiting``: drafts of what waited before.

        Raises ``LakeError``, ``LakeDamaged``.
        """
        held: Frame | None = None
        self._waiting = waiting
        undone = self._undone(first)
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES):
            self._until = heights.stop - 1
            logs = self._read(heights)
            told, held = self._told(logs, heights.start, held)
            drafts = [told.rows]
            self._waiting = _not_of(concat([self.waiting(), told.queued]), told.gone)
            forks = list(self._forks(heights, undone))
            taken_back = [rows for fork in forks for rows in self._taken_back(fork, heights, drafts)]
            rows = assign_positions(concat([*drafts, *taken_back]))
            self._seen(rows.filter(rows["index"] != np.uint64(NO_PLACE)))
            yield DerivedRows(heights, self.drafts_to_rows(rows), self._value(heights, forks))

    def waiting(self) -> Frame:
        """Return drafts of the sendings of messages that wait for a lane after the last range."""
        return empty_drafts() if self._waiting is None else self._waiting

    def pending_drafts(self, first: int, end: int) -> Frame:
        """Return drafts of the sendings of messages that were sent at the heights from ``first`` to ``end`` - 1 and
        wait for a lane after them, as ``rows`` finds them on the way. Raises as ``rows``."""
        waiting = empty_drafts()
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES[:2]):
            logs = read_run_logs(self._empty("outbound"), self.logs.read("events", heights), self._empty("collected"))
            messages, events = extract_messages(logs), logs.events
            queued = messages.filter((messages["form"] == MessageForm.QUEUED) & (messages["ended"] == 0))
            moved = from_table(self.logs.read("outbound", heights, (*CALL, "tick", "sent_tick")))
            moved = moved.filter(moved["sent_tick"] < moved["tick"].astype(np.uint64))
            over = events.filter(is_call_reference(events) & ending_rows(events))
            gone = concat([moved.select(CALL), over.select(CALL)])
            waiting = _not_of(concat([waiting, draft_queued_sends(queued)]), gone)
        return waiting

    def movements(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the movements of value of the heights from ``first`` to ``end`` - 1. Raises as ``rows``."""
        undone = self._undone(first)
        for heights in self.logs.ranges(first, end, self.range_rows, [VALUE_LOG]):
            yield self._value(heights, list(self._forks(heights, undone)))

    def add_used_lanes(self, first: int, end: int) -> None:
        """Add what messages used at the heights from ``first`` to ``end`` - 1 to ``substreams``, as ``rows`` does."""
        lane = LANE_COLUMNS[:3]
        for heights in self.logs.ranges(first, end, self.range_rows, READ_TABLES[:2]):
            outbound = from_table(self.logs.read("outbound", heights, lane))
            events = from_table(self.logs.read("events", heights, (*lane, "kind", "via", "events")))
            self._seen(concat([outbound, events.filter(is_lane_reference(events)).select(lane)]))

    def local_chains(self) -> list[str]:
        """Return the names of the chains that the lake runs."""
        return [name for name, own in zip(self.names.chains, self._own.tolist(), strict=True) if own]

    def drafts_to_rows(self, drafts: Frame) -> pa.Table:
        """Return drafts as rows of the ledger."""
        return ledger_rows(drafts, self.names, self._telling.reasons)

    # ---- ranges

    def _read(self, heights: range) -> RunLogs:
        return read_run_logs(*(self.logs.read(table, heights) for table in READ_TABLES))

    def _told(self, logs: RunLogs, first: int, held: Frame | None) -> tuple[RangeEvents, Frame]:
        """Return what log rows from the height ``first`` on tell, and the messages to hold for those after them."""
        new = extract_messages(logs)
        wanted = find_referenced_messages(logs, self._own, self._telling.further(logs, new))
        messages = RunMessageIndex.of(new) if held is None else RunMessageIndex.of(held, new)
        found = self._sought(messages.missing(wanted), first)
        if len(found):
            messages = RunMessageIndex.of(found, messages.rows)
        told = self._telling.told(logs, new, messages)
        count = len(messages)
        return told, messages.rows.slice(max(0, count - self.most_held), count)

    def _sought(self, wanted: MessageReferences, first: int) -> Frame:
        """Return the messages of heights before ``first`` that rows speak of."""
        abroad = np.isin(wanted.calls["sender"], self._abroad)
        wanted = MessageReferences(wanted.lanes, wanted.calls.filter(~abroad))
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

    def _undone(self, first: int) -> dict[int, Intervals]:
        """Return the heights that each chain had abandoned before the height ``first``."""
        undone: dict[int, Intervals] = {}
        if REVERTED in self.logs.schemas and first > 0:
            rows = self.logs.read(REVERTED, range(first))
            for chain, begin, last in zip(
                *(rows[name].to_pylist() for name in ("chain", "first", "last")), strict=True
            ):
                undone.setdefault(chain, Intervals()).add(begin, last + 1)
        return undone

    def _forks(self, heights: range, undone: dict[int, Intervals]) -> Iterator[_Fork]:
        """Yield what forks of a range of heights took back, and nothing twice."""
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

    def _taken_back(self, fork: _Fork, heights: range, drafts: list[Frame]) -> Iterator[Frame]:
        """Yield the rows that take back what a chain logged at heights that it abandoned."""
        told = list(drafts)
        before = fork.before(heights.start)
        if len(before):
            told.append(self._told(self._read(before), before.start, None)[0].rows)
        for rows in told:
            hit = fork.hits(rows["owner"], rows["at"])
            yield draft_reverts(rows.filter(hit), self._telling.reasons, fork.height, fork.tick)

    # ---- value

    def _value(self, heights: range, forks: list[_Fork]) -> pa.Table:
        """Return the movements of value of a range of heights, and those that move back what forks took back."""
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

    # ---- what is known of the chains

    def _seen(self, rows: Frame) -> None:
        own = rows["source"] == rows["destination"]
        for of_own in (False, True):
            seen = np.unique(rows["substream"][own == of_own])
            self.substreams |= {(substream, of_own) for substream in seen.tolist()}


def _not_of(rows: Frame, names: Frame) -> Frame:
    """Return the rows that have none of some calls (``CALL``)."""
    if len(names) == 0 or len(rows) == 0:
        return rows
    own, named = encode_keys(CALL, rows, names)
    return rows.filter(~np.isin(own, named))


def read_run_names(lake: Lake) -> RunNames:
    """Return what the numbers in the logs of a lake are called."""
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


def _programs_abroad(lake: Lake) -> np.ndarray:
    """Return the numbers of programs on chains that other lakes run: what they ask is in no log of this one."""
    chains = [int(item["number"]) for item in lake.about()["chains"] if item.get("external")]
    programs = lake.topology("programs")
    there = np.array([chain in chains for chain in programs["chain"].to_pylist()], dtype=bool)
    found: np.ndarray = programs["number"].to_numpy().astype(np.uint64)[there]
    return found


__all__ = ["DerivedRows", "LedgerDerivation", "read_run_names"]
