"""Observed windows of chains, declared or inferred from rows, and guarantees of lanes.

Inferred windows are kept as merged spans a chain and revision, so that memory grows with windows, not with rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import distinct, group_rows, stable_order

from causeway.core.frame import repeat_text
from causeway.ledger.encodings import NameCodes, valid_mask
from causeway.ledger.ingest.fields import is_one_of
from causeway.ledger.ingest.mapping import ARRIVALS, MappingDocument
from causeway.ledger.schema import (
    CLOCK_TOLERANCE,
    DECLARED,
    EXPECTED_WITHIN,
    INFERRED,
    LANE,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    RESTARTED,
    VALUE,
)
from causeway.ledger.windows import HeightBounds

ChainRevision = tuple[str, int | None]
"""A chain, and the revision of its heights."""

WindowSpans = npt.NDArray[np.int64]
"""Disjoint windows, ascending, shape (n, 4): first and last value, and for windows in heights the first and last time.
``_UNSEEN`` stands for no time."""

_FIRST = -(1 << 62)
_UNSEEN = (int(np.iinfo(np.int64).max), int(np.iinfo(np.int64).min))
_NOTHING: WindowSpans = np.array([[1, 0, *_UNSEEN]], dtype=np.int64)
_NONE: WindowSpans = np.zeros((0, 4), dtype=np.int64)


EVERY_CHAIN = "*"
"""Name of every chain in ``[clocks]``."""

MAX_WINDOWS = 1 << 20
"""Maximum number of inferred windows; more of them mean that ``gap`` is too small."""


class ObservedWindows:
    """Windows that rows of the ledger show.

    Movements of value have windows of their own, so that they do not extend those of events. Arrivals have too, if the
    mapping says so (``arrivals``).

    Attributes:
        bounds: Earliest and latest block of each chain.
    """

    def __init__(self, mapping: MappingDocument, *, of: Literal["events", "value", "arrivals"] = "events") -> None:
        self._inferred, self._by = mapping.windows, mapping.stated_by
        self._arrivals: ObservedWindows | None = None
        if self._inferred is not None and self._inferred.arrivals:
            if of == "events":
                self._arrivals = ObservedWindows(mapping, of="arrivals")
            elif of == "arrivals":
                self._inferred = self._inferred.model_copy(update={"events": []})
        self._is_of_arrivals = of == "arrivals"
        self._mapping = mapping
        self._spans: dict[ChainRevision, WindowSpans] = {}
        self._events: dict[str, set[str]] = {}
        self._between: set[tuple[str, str]] = set()
        self.bounds = HeightBounds()
        self._value = None if of != "events" or not mapping.value else ObservedWindows(mapping, of="value")

    def add_value(self, value: pa.Table) -> None:
        """Add movements of value."""
        if self._value is not None:
            self._value.add(value.append_column("event", repeat_text(VALUE, value.num_rows)))

    def add(self, ledger: pa.Table) -> None:
        """Add rows of the ledger."""
        if not ledger.num_rows:
            return
        self.bounds.add(ledger)
        if self._inferred is None:
            return
        if self._arrivals is not None:
            self._arrivals.add(_arrivals_of(ledger))
        places = ledger["height" if self._inferred.by == "height" else "time"].combine_chunks()
        kind = pa.uint64() if self._inferred.by == "height" else pa.int64()
        values = places.cast(kind).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        names, events = NameCodes(), NameCodes()
        chains, happened = names.codes(ledger["chain"]), events.codes(ledger["event"])
        shown = set(self._inferred.events)
        showing = np.array([not shown or name in shown for name in events.known()], dtype=bool)
        known = names.known()
        pairs = (chains.astype(np.int64) * len(showing) + happened)[chains >= 0]
        if len(known) * len(showing) <= len(pairs):
            present = np.zeros(len(known) * len(showing), dtype=bool)
            present[pairs] = True
            pairs = np.flatnonzero(present)
        for pair in distinct(pairs).tolist():
            chain, event = divmod(pair, len(showing))
            self._events.setdefault(known[chain], set()).add(events.known()[event])
        if self._inferred.together or self._is_of_arrivals:
            self._between |= _message_pairs(ledger)
        # Heights beyond 63 bits are ignored.
        mine = np.flatnonzero((chains >= 0) & valid_mask(places) & showing[happened] & (values >= _FIRST))
        of_rows, numbers = self._chain_revisions(known, chains, ledger["revision"], mine)
        values = values[mine]
        times = self._times(ledger["time"].combine_chunks(), mine)
        outside = ~self._inside(of_rows, numbers, values)
        self._widen(of_rows, numbers[~outside], times[:, ~outside])
        for code, spans in _spans_by(numbers[outside], values[outside], self._gap, times[:, outside]):
            self.merge(*of_rows[code], spans)
        self._check()

    def _times(self, column: pa.Array, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the times of rows as first and last time of height windows, shape (2, n)."""
        found = np.tile(np.array(_UNSEEN, dtype=np.int64)[:, None], len(rows))
        if self._inferred is not None and self._inferred.by == "height" and column.null_count < len(column):
            seen = valid_mask(column)[rows]
            found[:, seen] = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)[rows[seen]]
        return found

    def _widen(
        self, of_rows: list[ChainRevision], numbers: npt.NDArray[np.int32], times: npt.NDArray[np.int64]
    ) -> None:
        """Extend the first window of each chain to the times of rows within it."""
        firsts, lasts = (np.full(len(of_rows), unseen) for unseen in _UNSEEN)
        np.minimum.at(firsts, numbers, times[0])
        np.maximum.at(lasts, numbers, times[1])
        for place, first, last in zip(of_rows, firsts.tolist(), lasts.tolist(), strict=True):
            if first <= last:
                own = self._spans[place][0]
                own[2:] = min(own[2], first), max(own[3], last)

    def _chain_revisions(
        self, known: list[str], chains: npt.NDArray[np.int32], revision: pa.ChunkedArray, rows: npt.NDArray[np.int64]
    ) -> tuple[list[ChainRevision], npt.NDArray[np.int32]]:
        """Return the chains and revisions of rows, and the index of each row among them."""
        by_time = self._inferred is not None and self._inferred.by == "time"
        if by_time or revision.null_count == len(revision):
            return [(name, None) for name in known], chains[rows]
        revisions, at = np.unique(revision.cast(pa.int64()).fill_null(-1).to_numpy()[rows], return_inverse=True)
        count = len(revisions)
        of_revision = [None if each < 0 else each for each in revisions.tolist()]
        return [(name, each) for name in known for each in of_revision], (chains[rows] * count + at).astype(np.int32)

    def _inside(
        self, of_rows: list[ChainRevision], numbers: npt.NDArray[np.int32], values: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return a mask of values in the first window of their chain: they add nothing."""
        bounds = np.array([self._spans.get(place, _NOTHING)[0] for place in of_rows], dtype=np.int64).reshape(-1, 4)
        found: npt.NDArray[np.bool_] = (values >= bounds[numbers, 0]) & (values <= bounds[numbers, 1])
        return found

    def _check(self) -> None:
        if sum(len(spans) for spans in self._spans.values()) > MAX_WINDOWS:
            raise InvalidInput(f"windows.gap: more than {MAX_WINDOWS:,} windows with it; let it be larger")

    @property
    def _gap(self) -> int | None:
        inferred = self._inferred
        if inferred is None or inferred.gap is None:
            return None
        return inferred.gap if inferred.by == "height" else _from_seconds(inferred.gap)

    def merge(self, chain: str, revision: int | None, spans: WindowSpans) -> None:
        """Merge windows into those of a chain."""
        place = chain, revision
        self._spans[place] = merge_windows(np.concatenate([self._spans.get(place, _NONE), spans]), self._gap)

    def merge_observed(self, other: ObservedWindows) -> None:
        """Merge the windows of another part of the rows."""
        for chain, events in other._events.items():
            self._events.setdefault(chain, set()).update(events)
        for place, spans in other._spans.items():
            self.merge(*place, spans)
        self._between |= other._between
        self.bounds.merge(other.bounds)
        if self._value is not None and other._value is not None:
            self._value.merge_observed(other._value)
        if self._arrivals is not None and other._arrivals is not None:
            self._arrivals.merge_observed(other._arrivals)
        self._check()

    def resume(self, observed: pa.Table) -> None:
        """Restore the windows inferred by earlier commits."""
        if self._inferred is None:
            return
        names = ("first_height", "last_height") if self._inferred.by == "height" else ("first_time", "last_time")
        for row in observed.to_pylist():
            if row["how"] == INFERRED and row["stated_by"] == self._by and row[names[0]] is not None:
                part = self._value if row["events"] == [VALUE] else None
                if set(row["events"]) <= set(ARRIVALS):
                    part = self._arrivals
                if part is not None:
                    part.resume(pa.Table.from_pylist([row], schema=OBSERVED_SCHEMA))
                    continue
                times = [None if row[name] is None else _micros(row[name]) for name in ("first_time", "last_time")]
                ends = [row[name] for name in names] if self._inferred.by == "height" else times
                if self._inferred.by == "time" or None in times:
                    times = [*_UNSEEN]
                self._events.setdefault(row["chain"], set()).update(row["events"])
                self.merge(row["chain"], row["revision"], np.array([[*ends, *times]], dtype=np.int64))

    def observed(self, before: pa.Table) -> pa.Table:
        """Return all windows: of other reporters in ``before``, declared ones and inferred ones."""
        retained = [
            row
            for row in before.to_pylist()
            if row["stated_by"] != self._by or (row["how"] == INFERRED and self._inferred is None)
        ]
        rows = retained + [row for row in self._declared() if row not in retained]
        return _table([*rows, *self._windows()], OBSERVED_SCHEMA)

    def _windows(self) -> list[dict[str, Any]]:
        """Return the inferred windows as rows."""
        inferred, rows = self._inferred, list[dict[str, Any]]()
        self._join()
        elsewhere = set() if self._arrivals is None else set(ARRIVALS)
        for chain, revision in sorted(self._spans, key=lambda place: (place[0], place[1] is not None, place[1] or 0)):
            for first, last, first_time, last_time in self._spans[chain, revision].tolist():
                row = _row(chain, sorted(self._events[chain] - elsewhere), INFERRED, self._by) | {"revision": revision}
                if inferred is not None and inferred.by == "height":
                    row |= {"first_height": first, "last_height": last}
                    if first_time <= last_time:
                        row |= {"first_time": first_time, "last_time": last_time}
                else:
                    row |= {"first_time": first, "last_time": last}
                rows.append(row)
        if self._arrivals is not None:
            self._arrivals._merge_while_recorded(self)
            rows += self._arrivals._windows()
        return rows + (self._value._windows() if self._value is not None else [])

    def _merge_while_recorded(self, sources: ObservedWindows) -> None:
        """Merge arrival windows of each chain while its sources were recorded.

        There may be any number of blocks between two arrivals; only a pause of all sources of the chain ends a window.
        Without times on both sides, a window ends after the gap of the mapping. Windows merged by earlier commits stay
        merged.
        """
        for (chain, revision), spans in self._spans.items():
            others = {source for source, destination in self._between if destination == chain != source}
            times = [sources._span_times(own) for (source, _), own in sources._spans.items() if source in others]
            arrived = self._span_times(spans)
            if not times or not all((each[:, 0] <= each[:, 1]).all() for each in (*times, arrived)):
                continue
            recorded = np.concatenate(times)
            begins = merge_windows(np.concatenate([recorded, recorded], axis=1), 0)[1:, 0]
            before = np.searchsorted(begins, arrived[:, 0], side="right")
            starts = np.flatnonzero(np.diff(before, prepend=-1))
            low, high = (ends.reduceat(spans, starts) for ends in (np.minimum, np.maximum))
            self._spans[chain, revision] = np.stack([low[:, 0], high[:, 1], low[:, 2], high[:, 3]], axis=1)

    def _span_times(self, spans: WindowSpans) -> npt.NDArray[np.int64]:
        """Return first and last time of windows, shape (n, 2); reversed if unknown."""
        by_time = self._inferred is not None and self._inferred.by == "time"
        return spans[:, :2] if by_time else spans[:, 2:]

    def _join(self) -> None:
        """Give chains connected by messages, directly or not, the union of their windows."""
        groups = {chain: {chain} for chain, _ in self._spans}
        for one, other in sorted(self._between):
            if one in groups and other in groups and groups[one] is not groups[other]:
                both = groups[one] | groups[other]
                groups.update(dict.fromkeys(both, both))
        of_group = {
            id(group): merge_windows(np.concatenate([self._spans[chain, None] for chain in sorted(group)]), self._gap)
            for group in groups.values()
            if len(group) > 1
        }
        for chain, group in groups.items():
            if len(group) > 1:
                self._spans[chain, None] = of_group[id(group)]

    def _declared(self) -> list[dict[str, Any]]:
        rows = []
        for window in self._mapping.observed:
            row = _row(window.chain, window.events or None, DECLARED, self._by)
            row |= dict(zip(("revision", "first_height", "last_height"), window.heights, strict=True))
            for name in ("first_time", "last_time"):
                text = getattr(window, name)
                row[name] = None if text is None else datetime.fromisoformat(text)
            rows.append(row)
        return rows


def build_promises(mapping: MappingDocument, before: pa.Table, restarted: Iterable[str] = ()) -> pa.Table:
    """Build the table of guarantees.

    Args:
        mapping: Source of guarantees: its own ones, its deadline and its clocks.
        before: Guarantees so far (``PROMISES_SCHEMA``).
        restarted: Restarted chains; earlier ones stay.

    Returns:
        Guarantees of other reporters, and those of the mapping (``PROMISES_SCHEMA``).
    """
    known = before.to_pylist()
    rows = [row for row in known if row["stated_by"] != mapping.stated_by]
    of_others = {row["source"] for row in rows if row["promise"] == RESTARTED}
    all_restarted = {row["source"] for row in known if row["promise"] == RESTARTED}.union(restarted) - of_others
    own: list[dict[str, Any]] = []
    for each in mapping.promises:
        number = each.number if each.seconds is None else _from_seconds(each.seconds)
        names = {name: getattr(each, name) for name in LANE}
        own.append({**names, "promise": each.promise, "number": number, "detail": each.cause})
    if mapping.deadline and mapping.events:
        expected = {"promise": EXPECTED_WITHIN, "number": _from_seconds(mapping.deadline)}
        own += [{"protocol": each, **expected} for each in mapping.protocols or (None,)]
    for chain, seconds in sorted(mapping.clocks.items()):
        source = None if chain == EVERY_CHAIN else chain
        own.append({"source": source, "promise": CLOCK_TOLERANCE, "number": _from_seconds(seconds)})
    own += [{"source": chain, "promise": RESTARTED} for chain in sorted(all_restarted)]
    return _table([*rows, *({**row, "stated_by": mapping.stated_by} for row in own)], PROMISES_SCHEMA)


def _from_seconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _arrivals_of(ledger: pa.Table) -> pa.Table:
    """Return the rows of the ledger that show an arrival at the destination."""
    rows = ledger.select(["event", "chain", "revision", "height", "time", "source", "destination"])
    rows = rows.unify_dictionaries().combine_chunks()
    events, chain, destination = (rows[name].combine_chunks() for name in ("event", "chain", "destination"))
    arrived = is_one_of(events, ARRIVALS)
    if not arrived.any():
        return rows.slice(0, 0)
    names = NameCodes()
    return rows.filter(pa.array(arrived & (names.codes(chain) == names.codes(destination))))


def _message_pairs(ledger: pa.Table) -> set[tuple[str, str]]:
    """Return the pairs of chains with messages between them."""
    names = NameCodes()
    sources, destinations = names.codes(ledger["source"]), names.codes(ledger["destination"])
    both = (sources >= 0) & (destinations >= 0)
    known = names.known()
    pairs = sources[both].astype(np.int64) * len(known) + destinations[both]
    if len(known) ** 2 <= len(pairs):
        present = np.zeros(len(known) ** 2, dtype=bool)
        present[pairs] = True
        pairs = np.flatnonzero(present)
    pairs = distinct(pairs)
    return {(known[pair // len(known)], known[pair % len(known)]) for pair in pairs.tolist()}


def infer_windows(values: npt.NDArray[np.int64], gap: int | None) -> WindowSpans:
    """Infer windows from values: a gap above ``gap`` starts a new one; None: one window."""
    codes, times = np.zeros(len(values), dtype=np.int32), np.tile(np.array(_UNSEEN)[:, None], len(values))
    return next((spans for _, spans in _spans_by(codes, values, gap, times)), _NONE)


def _spans_by(
    codes: npt.NDArray[np.int32], values: npt.NDArray[np.int64], gap: int | None, times: npt.NDArray[np.int64]
) -> Iterator[tuple[int, WindowSpans]]:
    """Yield the windows of each code, with their first and last times."""
    if not len(codes):
        return
    low = int(values.min())
    order = stable_order(codes.astype(np.uint64), (values - low).view(np.uint64))
    codes, values, times = codes[order], values[order], times[:, order]
    groups = group_rows(codes)
    begins = np.zeros(len(codes), dtype=bool)
    begins[groups.starts] = True
    if gap is not None:
        begins[1:] |= values[1:] - values[:-1] > gap
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(codes)) - 1
    firsts, lasts = np.minimum.reduceat(times[0], starts), np.maximum.reduceat(times[1], starts)
    spans = np.stack([values[starts], values[ends], firsts, lasts], axis=1)
    own = group_rows(codes[starts])
    for start, count in zip(own.starts.tolist(), own.counts.tolist(), strict=True):
        yield int(codes[starts[start]]), spans[start : start + count]


def merge_windows(spans: WindowSpans, gap: int | None) -> WindowSpans:
    """Merge windows that are at most ``gap`` apart; None merges all."""
    if not len(spans):
        return spans
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    cuts = np.flatnonzero(ordered[1:, 0] - ends[:-1] > gap) if gap is not None else np.zeros(0, dtype=np.int64)
    starts = np.concatenate([[0], cuts + 1])
    lasts = ends[np.concatenate([cuts, [len(ordered) - 1]])]
    times = np.minimum.reduceat(ordered[:, 2], starts), np.maximum.reduceat(ordered[:, 3], starts)
    return np.stack([ordered[starts, 0], lasts, *times], axis=1)


def _row(chain: str, events: list[str] | None, how: str, by: str) -> dict[str, Any]:
    return {**dict.fromkeys(OBSERVED_SCHEMA.names), "chain": chain, "events": events, "how": how, "stated_by": by}


def _micros(time: datetime) -> int:
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, pa.string()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)


__all__ = ["ObservedWindows", "build_promises"]
