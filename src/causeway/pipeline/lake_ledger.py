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

from causeway.ingest.run_drafts import no_drafts, reverted_rows, with_positions
from causeway.ingest.run_events import Telling, Told, ending, queued_sendings
from causeway.ingest.run_index import Messages, among, spoken_of
from causeway.ingest.run_messages import (
    CALL,
    NO_PLACE,
    Form,
    RunLogs,
    SpokenOf,
    messages_of,
    numbered_rows,
    of_calls,
    of_lanes,
    run_logs,
)
from causeway.ingest.run_names import RunNames, ledger_rows
from causeway.ingest.run_value import LOG, value_rows
from causeway.ledger.schema import VALUE_SCHEMA
from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame, concat, from_table
from causeway.model.intervals import Intervals
from causeway.model.joins import codes
from causeway.model.ledger import REVERTED
from causeway.pipeline.lake import Lake
from causeway.pipeline.lake_logs import LakeLogs
from causeway.pipeline.layout import LAKE_FILE
from causeway.pipeline.schemas import stamped_schema, type_name
from causeway.protocols.contract import HEADERS_SCHEMA
from causeway.protocols.events import LEDGER_LOGS
from causeway.protocols.messages import LANE_COLUMNS, OUTBOUND_SCHEMA
from causeway.protocols.registry import protocol, simulated

RANGE_ROWS = 1 << 18
"""Log rows that are derived at a time, about; a height is never cut."""

MOST_HELD = 1 << 20
"""Messages that are held for rows of later heights."""

FEWER = 16
"""Messages of earlier heights are first looked for in so many times fewer rows, and then in twice as many each time."""

READ = ("outbound", "events", "collected")
_LOGS = {
    name: stamped_schema(schema)
    for name, schema in {"outbound": OUTBOUND_SCHEMA, **LEDGER_LOGS, "headers": HEADERS_SCHEMA}.items()
}
"""The log tables that every protocol has, with the columns that are read."""

Progress = Callable[[int, int], None]
"""Told how many heights are done, and of how many."""


class Derived(NamedTuple):
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
class LakeLedger:
    """Derives the ledger of a lake: ``rows`` range by range; then ``waiting``, what waits for a lane at the end.
    ``substreams``: those that messages used, and whether of a chain to itself."""

    lake: Lake
    range_rows: int = RANGE_ROWS
    most_held: int = MOST_HELD
    substreams: set[tuple[int, bool]] = field(default_factory=set)
    logs: LakeLogs = field(init=False)

    def __post_init__(self) -> None:
        about = self.lake.about()
        if simulated(about["protocol"]):
            title = protocol(about["protocol"]).title
            raise InvalidInput(f"{self.lake.storage.uri}: a lake of {title}: no messages of users are in it")
        self.lake = self.lake.identified()
        self.logs = LakeLogs(self.lake)
        self._require_logs()
        self.names = run_names(self.lake)
        self._own = np.array([not item.get("external") for item in about["chains"]], dtype=bool)
        self._abroad = _programs_abroad(self.lake)
        info = protocol(about["protocol"]).load_semantics()
        self._telling = Telling(self._heights_of, self._own, info.expired, info.pairing, info.collects_answered)
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

    def rows(self, first: int, end: int, waiting: Frame | None = None) -> Iterator[Derived]:
        """Yield the rows of the heights from ``first`` to ``end`` - 1. ``waiting``: drafts of what waited before.

        Raises ``LakeError``, ``LakeDamaged``.
        """
        held: Frame | None = None
        self._waiting = waiting
        undone = self._undone(first)
        for heights in self.logs.ranges(first, end, self.range_rows, READ):
            self._until = heights.stop - 1
            logs = self._read(heights)
            told, held = self._told(logs, heights.start, held)
            drafts = [told.rows]
            self._waiting = _not_of(concat([self.waiting(), told.queued]), told.gone)
            forks = list(self._forks(heights, undone))
            taken_back = [rows for fork in forks for rows in self._taken_back(fork, heights, drafts)]
            rows = with_positions(concat([*drafts, *taken_back]))
            self._seen(rows.filter(rows["index"] != np.uint64(NO_PLACE)))
            yield Derived(heights, self.as_rows(rows), self._value(heights, forks))

    def waiting(self) -> Frame:
        """Return drafts of the sendings of messages that wait for a lane after the last range."""
        return no_drafts() if self._waiting is None else self._waiting

    def still_waiting(self, first: int, end: int) -> Frame:
        """Return drafts of the sendings of messages that were sent at the heights from ``first`` to ``end`` - 1 and
        wait for a lane after them, as ``rows`` finds them on the way. Raises as ``rows``."""
        waiting = no_drafts()
        for heights in self.logs.ranges(first, end, self.range_rows, READ[:2]):
            logs = run_logs(self._empty("outbound"), self.logs.read("events", heights), self._empty("collected"))
            messages, events = messages_of(logs), logs.events
            queued = messages.filter((messages["form"] == Form.QUEUED) & (messages["ended"] == 0))
            moved = from_table(self.logs.read("outbound", heights, (*CALL, "tick", "sent_tick")))
            moved = moved.filter(moved["sent_tick"] < moved["tick"].astype(np.uint64))
            over = events.filter(of_calls(events) & ending(events))
            gone = concat([moved.select(CALL), over.select(CALL)])
            waiting = _not_of(concat([waiting, queued_sendings(queued)]), gone)
        return waiting

    def movements(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the movements of value of the heights from ``first`` to ``end`` - 1. Raises as ``rows``."""
        undone = self._undone(first)
        for heights in self.logs.ranges(first, end, self.range_rows, [LOG]):
            yield self._value(heights, list(self._forks(heights, undone)))

    def see_lanes(self, first: int, end: int) -> None:
        """Add what messages used at the heights from ``first`` to ``end`` - 1 to ``substreams``, as ``rows`` does."""
        lane = LANE_COLUMNS[:3]
        for heights in self.logs.ranges(first, end, self.range_rows, READ[:2]):
            outbound = from_table(self.logs.read("outbound", heights, lane))
            events = from_table(self.logs.read("events", heights, (*lane, "kind", "via", "events")))
            self._seen(concat([outbound, events.filter(of_lanes(events)).select(lane)]))

    def own_chains(self) -> list[str]:
        """Return the names of the chains that the lake runs."""
        return [name for name, own in zip(self.names.chains, self._own.tolist(), strict=True) if own]

    def as_rows(self, drafts: Frame) -> pa.Table:
        """Return drafts as rows of the ledger."""
        return ledger_rows(drafts, self.names, self._telling.reasons)

    # ---- ranges

    def _read(self, heights: range) -> RunLogs:
        return run_logs(*(self.logs.read(table, heights) for table in READ))

    def _told(self, logs: RunLogs, first: int, held: Frame | None) -> tuple[Told, Frame]:
        """Return what log rows from the height ``first`` on tell, and the messages to hold for those after them."""
        new = messages_of(logs)
        wanted = spoken_of(logs, self._own, self._telling.further(logs, new))
        messages = Messages.of(new) if held is None else Messages.of(held, new)
        found = self._sought(messages.missing(wanted), first)
        if len(found):
            messages = Messages.of(found, messages.rows)
        told = self._telling.told(logs, new, messages)
        count = len(messages)
        return told, messages.rows.slice(max(0, count - self.most_held), count)

    def _sought(self, wanted: SpokenOf, first: int) -> Frame:
        """Return the messages of heights before ``first`` that rows speak of."""
        abroad = np.isin(wanted.calls["sender"], self._abroad)
        wanted = SpokenOf(wanted.lanes, wanted.calls.filter(~abroad))
        found: list[Frame] = []
        stop, size = first, max(self.range_rows // FEWER, 1)
        while stop > 0 and len(wanted):
            heights = next(self.logs.ranges_back(stop, size, READ[:2]))
            outbound, events = (self.logs.read(table, heights) for table in READ[:2])
            messages = messages_of(run_logs(outbound, events, self._empty("collected")))
            messages = messages.filter(among(messages, wanted))
            found.insert(0, messages)
            wanted = Messages.of(messages).missing(wanted)
            stop, size = heights.start, min(2 * size, self.range_rows)
        return concat(found) if found else messages_of(run_logs(*map(self._empty, READ)))

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
            yield reverted_rows(rows.filter(hit), self._telling.reasons, fork.height, fork.tick)

    # ---- value

    def _value(self, heights: range, forks: list[_Fork]) -> pa.Table:
        """Return the movements of value of a range of heights, and those that move back what forks took back."""
        if LOG not in self.logs.schemas:
            return VALUE_SCHEMA.empty_table()
        own = numbered_rows(self.logs.read(LOG, heights), "chain")
        parts = [value_rows(own, self.names)]
        for fork in forks:
            before = numbered_rows(self.logs.read(LOG, fork.before(heights.start)), "chain")
            for rows in (before, own):
                back = rows.filter(fork.hits(rows["chain"], rows["height"]))
                parts.append(value_rows(back, self.names, at=(fork.height, fork.tick)))
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
    own, named = codes(CALL, rows, names)
    return rows.filter(~np.isin(own, named))


def run_names(lake: Lake) -> RunNames:
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


__all__ = ["Derived", "LakeLedger", "run_names"]
