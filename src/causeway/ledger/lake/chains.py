"""Derive the header and watermark rows of a ledger from the logs of a lake.

Only canonical headers count: the ancestors of each chain's last header. A chain that can fork may log several headers
at one height. So ancestry is resolved backwards, one range of heights at a time. The rows describe the chains after the
last ingested height. When a ledger is extended, rows that a later fork reverted are written again with the status
``REVERTED``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import U64, group_rows, stable_order

from causeway.config.document import validate_document
from causeway.core.frame import Frame, repeat_text
from causeway.core.joins import encode_keys
from causeway.core.vocabulary import COLLECTED_MESSAGES
from causeway.core.vocabulary import REVERTED as REVERTED_LOG
from causeway.ledger.encodings import text_slices
from causeway.ledger.lake.names import RunNames, format_lane_names
from causeway.ledger.schema import DECLARED, HEADER, HEADERS_SCHEMA, REPORTER_COLUMN, REVERTED, WATERMARKS_SCHEMA
from causeway.protocols.registry import find_protocol
from causeway.protocols.shared.semantics import Lanes, StateWatermark
from causeway.storage.lake import Lake
from causeway.storage.layout import LAKE_FILE
from causeway.storage.log_reader import LogReader
from causeway.storage.manifests import Manifest
from causeway.storage.reorgs import RevertedRanges, find_reverted

__all__ = [
    "COLLECTED",
    "COLUMNS",
    "FORGOTTEN",
    "MARKS_SCHEMA",
    "SENT",
    "ChainDerivation",
    "HeaderAncestry",
    "build_header_rows",
    "build_watermark_rows",
    "extract_watermarks",
    "hex_column",
    "number_watermarks",
    "protocol_lanes",
    "sort_headers_by_chain",
]

SENT, COLLECTED, FORGOTTEN = "sent", "collected", "forgotten"
"""Watermarks of every protocol: the next index of a lane; the index up to which its source has removed messages; and
the index up to which its destination has removed signals."""

_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


def build_header_rows(headers: pa.Table, names: RunNames, taken_back_at: int | None = None) -> pa.Table:
    """Build ledger rows (``HEADERS_SCHEMA``) from rows of the header log.

    Args:
        headers: Log rows, with each row's number among those of its chain and height (``row``).
        names: Names of the run's chains, and its clock.
        taken_back_at: Tick of the report that the headers are reverted; None if they count.

    Returns:
        One row a header. Reverted headers have no time.
    """
    count = headers.num_rows
    tick = headers["tick"].to_numpy()
    columns: dict[str, Any] = {
        "chain": names.chain_column(headers["chain"].to_numpy()),
        "height": headers["number"],
        "time": names.times(tick),
        "tick": pa.array(tick.astype(np.uint64)),
        **{name: hex_column(headers[name]) for name in ("hash", "parent", "root")},
        "stated_by": repeat_text(REPORTER_COLUMN, count),
        "source_file": repeat_text("headers", count),
        "source_row": headers["row"],
    }
    if taken_back_at is not None:
        columns["time"] = pa.nulls(count, HEADERS_SCHEMA.field("time").type)
        columns["tick"] = pa.array(np.full(count, taken_back_at, dtype=np.uint64))
        columns["status"] = repeat_text(REVERTED, count)
    return _table(columns, count, HEADERS_SCHEMA)


def hex_column(column: pa.ChunkedArray) -> pa.Array:
    """Format bytes as hexadecimal digits; empty values become null.

    Args:
        column: Bytes, n values.

    Returns:
        Texts (string), two digits a byte, without ``0x``.
    """
    whole = column.combine_chunks().cast(pa.large_binary())
    data, offsets = text_slices(whole)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(whole) else (0, 0)
    digits = np.empty((last - first, 2), dtype=np.uint8)
    digits[:, 0], digits[:, 1] = _DIGITS[data[first:last] >> 4], _DIGITS[data[first:last] & 15]
    empty = offsets[1:] == offsets[:-1]
    valid = pa.py_buffer(np.packbits(~empty, bitorder="little")) if empty.any() else None
    ends = pa.py_buffer(np.ascontiguousarray((offsets - first) * 2))
    return pa.Array.from_buffers(pa.large_string(), len(whole), [valid, ends, pa.py_buffer(digits)]).cast(pa.string())


def extract_watermarks(outbound: pa.Table, collected: pa.Table) -> pa.Table:
    """Extract watermarks (``MARKS_SCHEMA``) from the logs of messages and collections.

    Each collection gives two rows, before and after it, in log order.

    Args:
        outbound: Messages in lanes: lane columns, ``height``, ``index`` and ``tick``.
        collected: Collections: lane columns, ``chain``, ``what``, ``begin`` and ``end``.

    Returns:
        ``SENT`` of the messages, ``COLLECTED`` and ``FORGOTTEN`` of the collections.
    """
    lane = {name: outbound[name].to_numpy() for name in ("source", "destination", "substream")}
    height, index = outbound["height"].to_numpy().astype(np.uint64), outbound["index"].to_numpy()
    order = stable_order(*(key.astype(np.uint64) for key in lane.values()), height, index)
    groups = group_rows(*(key[order] for key in lane.values()), height[order])
    last = order[groups.starts + groups.counts - 1]
    sent = number_watermarks(
        SENT,
        chain=lane["source"][last],
        **{name: key[last] for name, key in lane.items()},
        height=height[last],
        tick=outbound["tick"].to_numpy()[last],
        value=index[last] + np.uint64(1),
    )
    return pa.concat_tables([sent, *_collections(collected)])


def _collections(collected: pa.Table) -> list[pa.Table]:
    removals = collected["what"].to_numpy()
    tables = []
    for name, chosen in ((COLLECTED, removals == COLLECTED_MESSAGES), (FORGOTTEN, removals != COLLECTED_MESSAGES)):
        rows = collected.filter(pa.array(chosen))
        pairs = {
            column: rows[column].to_numpy().repeat(2)
            for column in ("chain", "source", "destination", "substream", "height", "tick")
        }
        value = np.stack((rows["begin"].to_numpy(), rows["end"].to_numpy()), axis=1).reshape(-1)
        keys = [pairs[column].astype(np.uint64) for column in ("source", "destination", "substream", "height")]
        order = stable_order(*keys)
        position = np.empty(len(value), dtype=np.uint64)
        position[order] = group_rows(*(key[order] for key in keys)).ranks().astype(np.uint64)
        pairs["height"] = pairs["height"].astype(np.uint64)
        tables.append(number_watermarks(name, **pairs, value=value, position=position))
    return tables


def number_watermarks(name: str, **columns: npt.NDArray[Any]) -> pa.Table:
    """Build a table of numbered watermarks (``MARKS_SCHEMA``) of one name.

    Args:
        name: Name of the watermark.
        columns: ``chain``, ``source``, ``destination``, ``substream``, ``height``, ``tick``, ``value`` and, optionally,
            ``position``.

    Returns:
        One row a value.
    """
    count = len(columns["value"])
    content: dict[str, Any] = {column: pa.array(np.ascontiguousarray(values)) for column, values in columns.items()}
    content.setdefault("position", pa.nulls(count, pa.uint64()))
    content["name"] = repeat_text(name, count)
    return pa.table([content[field.name].cast(field.type) for field in MARKS_SCHEMA], MARKS_SCHEMA)


MARKS_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.uint32()) for name in ("chain", "source", "destination")),
        *(pa.field(name, pa.uint64()) for name in ("substream", "height", "position", "tick", "value")),
        pa.field("name", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""Watermarks whose chains and lanes are numbers instead of names."""


def build_watermark_rows(found: pa.Table, names: RunNames, taken_back_at: int | None = None) -> pa.Table:
    """Build ledger rows (``WATERMARKS_SCHEMA``) from numbered watermarks.

    Args:
        found: Watermarks (``MARKS_SCHEMA``).
        names: Names of the run's chains and lanes, and its clock.
        taken_back_at: Tick of the report that the watermarks are reverted; None if they count.

    Returns:
        One row a watermark. Reverted watermarks have no time.
    """
    count = found.num_rows
    source, destination = found["source"].to_numpy(), found["destination"].to_numpy()
    substream: U64 = found["substream"].to_numpy()
    tick = found["tick"].to_numpy()
    columns: Mapping[str, Any] = {
        "protocol": repeat_text(names.protocol, count),
        "source": names.chain_column(source),
        "destination": names.chain_column(destination),
        "lane": format_lane_names(source, destination, substream, np.ones(count, dtype=bool)),
        "chain": names.chain_column(found["chain"].to_numpy()),
        **{name: found[name] for name in ("name", "height", "position", "value")},
        "tick": pa.array(tick if taken_back_at is None else np.full(count, taken_back_at, dtype=np.uint64)),
        "stated_by": repeat_text(REPORTER_COLUMN, count),
    }
    if taken_back_at is None:
        columns = {**columns, "time": names.times(tick.astype(np.int64))}
    else:
        columns = {**columns, "status": repeat_text(REVERTED, count)}
    return _table(columns, count, WATERMARKS_SCHEMA)


def _table(columns: Mapping[str, Any], count: int, schema: pa.Schema) -> pa.Table:
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema)


Bools = npt.NDArray[np.bool_]

COLUMNS = ("height", "tick", "chain", "number", "hash", "parent", "root")
"""Columns of the header log that ancestry needs."""


def sort_headers_by_chain(headers: pa.Table) -> pa.Table:
    """Sort header log rows by chain and height, stably, in one chunk a column.

    Args:
        headers: Rows with ``chain`` and ``height``.

    Returns:
        The sorted rows, all columns.
    """
    headers = headers.combine_chunks()
    order = stable_order(headers["chain"].to_numpy(), headers["height"].to_numpy().astype(np.uint64))
    return headers if bool((order[1:] > order[:-1]).all()) else headers.take(pa.array(order)).combine_chunks()


@dataclass
class HeaderAncestry:
    """State of a backward search for the canonical headers of each chain.

    Attributes:
        since: Height of the last header that may count, by chain. Other chains are ignored.
        back: Ranges that forks reverted.
        wanted: Parent hashes of each chain's lowest headers: several while a fork is unresolved.
        top: Number of the highest canonical header, by chain.
        lowest: Height of the lowest canonical header, by chain.
        skipped: Chains with lower headers that are not canonical.
        nameless: Chains whose headers have no hashes, and so no forks.
    """

    since: Mapping[int, int]
    back: RevertedRanges | None = None
    wanted: dict[int, set[bytes]] = field(default_factory=dict)
    top: dict[int, int] = field(default_factory=dict)
    lowest: dict[int, int] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    nameless: set[int] = field(default_factory=set)

    def take(self, headers: pa.Table) -> Bools:
        """Return a mask of the canonical headers.

        Args:
            headers: Rows of ``sort_headers_by_chain``, all below those of earlier calls.
        """
        found = np.zeros(headers.num_rows, dtype=bool)
        chain = headers["chain"].to_numpy()
        groups = group_rows(chain)
        rows = _Rows(headers)
        reverted = np.zeros(0, dtype=bool) if self.back is None else self.back.hits(headers, "chain")
        for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
            own = int(chain[start])
            if own in self.since:
                self._take_chain(own, rows, range(start, start + count), reverted, found)
        return found

    def agrees(self, other: HeaderAncestry) -> bool:
        """Return True if both searches give the same result from here on."""
        return self.wanted == other.wanted and self.nameless == other.nameless

    def broken(self) -> dict[int, int]:
        """Return chains with a missing parent, and the last height of a new search for each.

        Call it after the last range of headers.
        """
        return {chain: self.lowest.get(chain, self.since[chain]) - 1 for chain in sorted(self.skipped)}

    def _take_chain(self, chain: int, rows: _Rows, segment: range, reverted: Bools, found: Bools) -> None:
        at = segment.stop - 1
        if chain in self.nameless:
            at = self._all(chain, rows, segment, at, found)
        elif chain not in self.wanted:
            while at >= segment.start and (rows.height[at] > self.since[chain] or (len(reverted) and reverted[at])):
                at -= 1
            if at >= segment.start:
                at = self._tips(chain, rows, segment, at, found)
        while at >= segment.start and chain in self.wanted:
            if len(self.wanted[chain]) == 1:
                at = self._follow(chain, rows, segment, at, found)
            else:
                self._step(chain, rows, at)
                at -= 1

    def _tips(self, chain: int, rows: _Rows, segment: range, at: int, found: Bools) -> int:
        """Start from the headers at the height of row ``at``; return the next row to visit."""
        if not rows.hash(at):
            self.nameless.add(chain)
            return self._all(chain, rows, segment, at, found)
        first = at
        while first > segment.start and rows.height[first - 1] == rows.height[at]:
            first -= 1
        parents = {rows.parent(row) for row in range(first, at + 1)}
        self.wanted[chain] = {rows.hash(row) for row in range(first, at + 1)} - parents
        return at

    def _step(self, chain: int, rows: _Rows, at: int) -> None:
        """Visit one header while a fork is unresolved."""
        own = rows.hash(at)
        if own not in self.wanted[chain]:
            self.skipped.add(chain)
            return
        self.wanted[chain] = (self.wanted[chain] - {own}) | {rows.parent(at)}
        self.lowest[chain] = int(rows.height[at])

    def _all(self, chain: int, rows: _Rows, segment: range, at: int, found: Bools) -> int:
        found[segment.start : at + 1] = True
        self.top.setdefault(chain, int(rows.number[at]))
        return segment.start - 1

    def _follow(self, chain: int, rows: _Rows, segment: range, at: int, found: Bools) -> int:
        """Find the wanted header and its linked ancestors; return the next row to visit."""
        (wanted,) = self.wanted[chain]
        row = at if rows.hash(at) == wanted else rows.last(wanted, segment, at)
        if row < at:
            self.skipped.add(chain)
        if row < segment.start:
            return row
        first = max(rows.run(row), segment.start)
        found[first : row + 1] = True
        self.top.setdefault(chain, int(rows.number[row]))
        self.lowest[chain] = int(rows.height[first])
        self.skipped.discard(chain)
        self.wanted[chain] = {rows.parent(first)}
        return first - 1


class _Rows:
    """Columns of headers ``by_chain``, asked by row."""

    def __init__(self, headers: pa.Table) -> None:
        self.height, self.number = (headers[name].to_numpy() for name in ("height", "number"))
        self._hash, self._parent = (_whole(headers[name]) for name in ("hash", "parent"))
        chain = headers["chain"].to_numpy()
        linked = np.zeros(headers.num_rows, dtype=bool)
        if headers.num_rows > 1:
            linked[1:] = np.asarray(pc.equal(self._parent[1:], self._hash[:-1])) & (chain[1:] == chain[:-1])
        self._begins = np.flatnonzero(~linked)
        self._known: dict[int, dict[bytes, int]] = {}

    def hash(self, row: int) -> bytes:
        found: bytes = self._hash[row].as_py()
        return found

    def parent(self, row: int) -> bytes:
        found: bytes = self._parent[row].as_py()
        return found

    def run(self, row: int) -> int:
        """Return the first row of the parent-linked run that ends at this row."""
        return int(self._begins[np.searchsorted(self._begins, row, side="right") - 1])

    def last(self, wanted: bytes, segment: range, at: int) -> int:
        """Return the last row up to ``at`` with this hash, or ``segment.start - 1``."""
        if segment.start not in self._known:
            hashes = self._hash[segment.start : segment.stop].to_pylist()
            self._known[segment.start] = {own: place for place, own in enumerate(hashes, start=segment.start)}
        row = self._known[segment.start].get(wanted, segment.start - 1)
        return row if row <= at else segment.start - 1


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)


RANGE_ROWS = 1 << 18
"""Approximate number of log rows read at a time."""

SMALL_RANGE_ROWS = 1 << 10
"""Headers read first below an already ingested height; the number doubles with each step."""

MAX_BREAKS = 16
"""Maximum number of missing parents of a chain before the search for earlier headers stops."""

MAX_CHANGES = 1 << 20
"""Maximum number of already ingested headers that one extension may change."""

EVERY_COMMIT, EVERY = 64, 32
"""State tables are read at each of the first 64 commits, then at every 32nd."""

LANE_COLUMNS = ("source", "destination", "substream", "height", "tick")


@dataclass
class ChainDerivation:
    """Derives header and watermark rows from the logs of a lake.

    Attributes:
        logs: Log reader of the lake.
        names: Names of the run.
        top: Number of the last header of each chain, after ``headers``.
    """

    logs: LogReader
    names: RunNames
    top: dict[str, int] = field(default_factory=dict)
    _promising: dict[tuple[str, int, bool], bool] = field(default_factory=dict)

    def headers(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield new canonical headers, preceded by changes of earlier ones (``HEADERS_SCHEMA``).

        Args:
            first: First height to ingest.
            end: Height after the last one.

        Raises:
            LakeDamaged: A log cannot be read.
        """
        now = HeaderAncestry(dict.fromkeys(range(len(self.names.chains)), end - 1), self._reverted(end))
        yield from self._canonical_headers(now, first, end)
        broken = now.broken()
        if first:
            changes, broken = self._changes(now, first, end)
            yield from changes
        for _ in range(MAX_BREAKS if not first else 1):
            if not broken:
                break
            below = HeaderAncestry(broken, now.back)
            yield from self._canonical_headers(below, first, max(broken.values()) + 1)
            broken = below.broken()
        self.top |= {self.names.chains[chain]: number for chain, number in now.top.items()}

    def watermarks(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield new watermarks, and earlier ones that forks reverted since (``WATERMARKS_SCHEMA``).

        Args:
            first: First height to ingest.
            end: Height after the last one.

        Raises:
            LakeDamaged: A log cannot be read.
        """
        back = self._reverted(end)
        for heights in self.logs.ranges(first, end, RANGE_ROWS, ("outbound", "collected")):
            found = self._marks(heights)
            yield build_watermark_rows(
                found if back is None else found.filter(pa.array(~_hits(back, found))), self.names
            )
        before = self._reverted(first) if first else None
        if back is None or not first:
            return
        # Later forks may have reverted heights from this one on.
        rows = self.logs.read(REVERTED_LOG, range(first, end), ("first",))
        low = min(rows["first"].to_pylist(), default=first)
        for heights in self.logs.ranges(low, first, RANGE_ROWS, ("outbound", "collected")):
            found = self._marks(heights)
            reverted = _hits(back, found) & ~_hits(before, found)
            if reverted.any():
                yield build_watermark_rows(found.filter(pa.array(reverted)), self.names, self.logs.tick(end - 1))

    def windows(self, stated: pa.Table) -> list[dict[str, Any]]:
        """Return rows of the table of windows for the headers of all chains.

        Call it after ``headers``.

        Args:
            stated: The table of windows before the extension.
        """
        top = {
            row["chain"]: row["last_height"]
            for row in stated.to_pylist()
            if row["events"] == [HEADER] and row["stated_by"] == REPORTER_COLUMN
        } | self.top
        rest = {"events": [HEADER], "how": DECLARED, "stated_by": REPORTER_COLUMN, "first_height": 0}
        return [{**rest, "chain": chain, "last_height": top[chain]} for chain in self.names.chains if chain in top]

    # ---- headers

    def _canonical_headers(self, ancestry: HeaderAncestry, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the rows of canonical headers from height ``first`` to ``end`` - 1."""
        for heights in self._down(end, first, RANGE_ROWS):
            rows = self._headers(heights)
            found = ancestry.take(rows)
            if found.any():
                yield build_header_rows(rows.filter(pa.array(found)), self.names)

    def _changes(self, now: HeaderAncestry, first: int, end: int) -> tuple[list[pa.Table], dict[int, int]]:
        """Return changed headers below ``first``, and chains replaced without a fork.

        The second result has the last height of a new search for each such chain.
        """
        before = HeaderAncestry(dict.fromkeys(now.since, first - 1), self._reverted(first))
        tick, stop, size, count = self.logs.tick(end - 1), first, SMALL_RANGE_ROWS, 0
        changes: list[tuple[pa.Table, Bools, bool]] = []
        while stop > 0 and count < MAX_CHANGES:
            heights = next(self._down(stop, 0, size))
            rows = self._headers(heights)
            has, had = now.take(rows), before.take(rows)
            for mask, back in ((had & ~has, True), (has & ~had, False)):
                if mask.any():
                    changes.append((rows, mask, back))
                    count += int(mask.sum())
            if now.agrees(before):
                break
            stop, size = heights.start, min(2 * size, RANGE_ROWS)
        lost = {chain for chain in now.since if now.wanted.get(chain) != before.wanted.get(chain)}
        tables = []
        for rows, mask, back in changes:
            chosen = mask & ~np.isin(rows["chain"].to_numpy(), list(lost))
            tables.append(build_header_rows(rows.filter(pa.array(chosen)), self.names, tick if back else None))
        broken = {chain: now.lowest[chain] - 1 for chain in lost if now.lowest.get(chain, 0) > first}
        return tables, broken

    def _headers(self, heights: range) -> pa.Table:
        """Read the header log by chain, with the rank of each row in its chain and height."""
        rows = sort_headers_by_chain(self.logs.read("headers", heights, COLUMNS))
        groups = group_rows(rows["chain"].to_numpy(), rows["height"].to_numpy())
        return rows.append_column("row", pa.array((groups.ranks() + 1).astype(np.uint64)))

    def _down(self, end: int, first: int, rows: int) -> Iterator[range]:
        """Yield the heights from ``end`` - 1 down to ``first`` in ranges."""
        for heights in self.logs.ranges_back(end, rows, ["headers"]):
            yield range(max(heights.start, first), heights.stop)
            if heights.start <= first:
                return

    def _reverted(self, end: int) -> RevertedRanges | None:
        """Return the ranges that forks reverted below height ``end``."""
        lake = self.logs.lake
        return find_reverted(lake, lake.manifest(end - 1), end - 1)

    # ---- watermarks

    def _marks(self, heights: range) -> pa.Table:
        """Return the watermarks of a range of heights (``MARKS_SCHEMA``)."""
        outbound = self.logs.read("outbound", heights, (*LANE_COLUMNS, "index"))
        collected = self.logs.read("collected", heights, (*LANE_COLUMNS, "chain", "what", "begin", "end"))
        # An IBC receipt has the index of its packet, and receipts are written in any order.
        outbound, collected = (
            self._filter_lanes(outbound, "numbered"),
            self._filter_lanes(collected, "ordered_receives"),
        )
        return pa.concat_tables(
            [extract_watermarks(outbound, collected), *self._state_watermarks(heights)]
        ).unify_dictionaries()

    def _filter_lanes(self, rows: pa.Table, promise: str) -> pa.Table:
        """Return the rows of lanes with a guarantee."""
        own = rows["source"].to_numpy() == rows["destination"].to_numpy()
        lanes = np.stack((rows["substream"].to_numpy(), own.astype(np.uint64)), axis=1)
        distinct, at = np.unique(lanes, axis=0, return_inverse=True)
        promising = [self._promises(promise, substream, bool(own)) for substream, own in distinct.tolist()]
        return rows.filter(pa.array(np.array(promising, dtype=bool)[at.reshape(-1)]))

    def _promises(self, promise: str, substream: int, own: bool) -> bool:
        key = promise, substream, own
        if key not in self._promising:
            promised = find_protocol(self.names.protocol).load_semantics().promises
            lanes = protocol_lanes(self.logs.lake, self.names, [(substream, own)])
            self._promising[key] = promised is not None and any(
                each.promise == promise and (each.substream is None or each.own == own) for each in promised(lanes)
            )
        return self._promising[key]

    def _state_watermarks(self, heights: range) -> Iterator[pa.Table]:
        """Yield the watermarks in state tables at the ends of commits, unless unchanged."""
        for commit in self.logs.lake.commits(heights):
            manifest = commit.at(commit.last)
            if manifest.last not in heights or not _is_sampled(manifest.number):
                continue
            earlier = self._previous_sample(manifest.number)
            for declared in self._declared:
                now = self._table_watermarks(manifest, declared)
                if earlier is not None:
                    now = _without(now, self._table_watermarks(earlier, declared))
                if now.num_rows:
                    yield now

    def _previous_sample(self, number: int) -> Manifest | None:
        before = next((each for each in range(number - 1, -1, -1) if _is_sampled(each)), None)
        return None if before is None else self.logs.lake.numbered(before)

    def _table_watermarks(self, manifest: Manifest, declared: StateWatermark) -> pa.Table:
        lake, at = self.logs.lake, declared
        if lake.freed(manifest.last) is not None:
            return MARKS_SCHEMA.empty_table()
        named = [at.chain, at.source, at.destination, at.value, *([at.substream] if at.substream else [])]
        parts = lake.state(manifest, at.table, list(dict.fromkeys(named)))
        if not parts:
            return MARKS_SCHEMA.empty_table()
        rows = pa.concat_tables(parts)
        count = rows.num_rows
        lane = {"chain": at.chain, "source": at.source, "destination": at.destination, "value": at.value}
        columns = {name: rows[column].to_numpy() for name, column in lane.items()}
        columns["substream"] = rows[at.substream].to_numpy() if at.substream else np.zeros(count, dtype=np.uint64)
        stamps = {"height": manifest.last, "tick": manifest.tick}
        columns |= {name: np.full(count, value, dtype=np.uint64) for name, value in stamps.items()}
        return number_watermarks(at.name, **columns)

    @cached_property
    def _declared(self) -> Sequence[StateWatermark]:
        """Monotonic counters in the state tables of this lake."""
        about = self.logs.lake.about()
        tables = {table["name"] for table in about["tables"]["state"]}
        return [each for each in find_protocol(about["protocol"]).load_semantics().watermarks if each.table in tables]


def protocol_options(lake: Lake, about: Mapping[str, Any]) -> Any:
    """Return the protocol options of a lake.

    Raises:
        LakeDamaged: The stored options are invalid.
    """
    model = find_protocol(about["protocol"]).load_options()
    try:
        return validate_document(model, about["scenario"]["options"], "has invalid content", ("scenario", "options"))
    except InvalidInput as error:
        raise lake.damaged(LAKE_FILE, str(error)) from None


def protocol_lanes(lake: Lake, names: RunNames, substreams: Iterable[tuple[int, bool]]) -> Lanes[Any]:
    """Return the lanes of a lake's network that use given substreams.

    Args:
        lake: The lake.
        names: Names of its run.
        substreams: Pairs of substream and "source equals destination".

    Returns:
        The lanes, as input of the protocol's guarantees.
    """
    about = lake.about()
    options = protocol_options(lake, about)
    roles = {item["name"]: item["role"] for item in about["chains"] if item.get("role")}
    return Lanes(options, names.chains, roles, names.tick_micros, tuple(sorted(substreams)))


def _is_sampled(number: int) -> bool:
    return number < EVERY_COMMIT or number % EVERY == 0


def _hits(back: RevertedRanges | None, found: pa.Table) -> Bools:
    if back is None:
        return np.zeros(found.num_rows, dtype=bool)
    return back.hits(found, "chain")


def _without(now: pa.Table, before: pa.Table) -> pa.Table:
    """Return the watermarks of one name that differ from those of an earlier table."""
    keys = ("chain", "source", "destination", "substream", "value")
    frames = [Frame({key: table[key].to_numpy() for key in keys}, table.num_rows) for table in (now, before)]
    own, known = encode_keys(keys, *frames)
    return now.filter(pa.array(~np.isin(own, known)))
