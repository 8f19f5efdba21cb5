"""The data of pages: the latest snapshot of a ledger, and tables derived from it.

Pages of a lane, a message or a height read only their rows of the ledger. Derived tables are built once a snapshot.
Figures of chain pairs are merged from lanes in columns, since there may be hundreds of thousands of lanes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from causeway_proofs.order import stable_order

from causeway.analysis.tracing import MAX_TRACED, MessageHistory, MessageTrace, message_histories, read_histories
from causeway.core.arrow_types import to_python_rows
from causeway.explorer.addresses import LaneNames, lane_address, page_address
from causeway.explorer.live import LedgerSnapshot
from causeway.ledger.row_order import SEGMENT_BITS, drop_repeats, message_bucket, sort_rows
from causeway.ledger.schema import HEADERS_SCHEMA, LANE, LEDGER_SCHEMA, WATERMARKS_SCHEMA
from causeway.ledger.search import (
    Condition,
    MessageKey,
    TextPattern,
    ValueRange,
    find_related,
    message_keys,
    read_matching,
    read_message_rows,
)
from causeway.ledger.store import Ledger
from causeway.network.opened_lake import OpenedLake
from causeway.report.elements import format_in_unit
from causeway.report.matrix import MAX_CHAINS, OTHERS, UNSEEN, MatrixEnd, PairFigures, natural_key
from causeway.report.summary import count_lane_findings, summary_data
from causeway.storage.layout import LakeError

__all__ = [
    "ChainPairs",
    "LedgerView",
    "PairSummary",
    "PairWeight",
    "height_events",
    "height_headers",
    "history_key",
    "lane_watermarks",
    "last_header_height",
    "outcome_delay",
    "related_histories",
    "select_lane",
    "unnumbered_histories",
    "window_histories",
]

MAX_ROWS = 20_000
"""Maximum rows read for a window of a lane, or for a height."""

LedgerRow = Mapping[str, Any]


def select_lane(table: pa.Table, lane: LaneNames) -> pa.Table:
    """Return the rows of a lane.

    Args:
        table: a table with the columns ``LANE``.
        lane: protocol, source, destination and lane.

    Returns:
        The rows.
    """
    mask = None
    for name, value in zip(LANE, lane, strict=True):
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        own = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        mask = own if mask is None else pc.and_(mask, own)
    return table.filter(mask)


def window_histories(ledger: Ledger, lane: LaneNames, first: int, last: int) -> list[MessageHistory]:
    """Return the histories of a lane's messages in a range of indices, by index.

    Only row groups that may contain them are read.

    Args:
        ledger: the ledger.
        lane: protocol, source, destination and lane.
        first: the first index.
        last: the last index.

    Returns:
        The histories.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    buckets = {
        message_bucket(tuple(lane), segment << SEGMENT_BITS, None, ledger.buckets)
        for segment in range(first >> SEGMENT_BITS, (last >> SEGMENT_BITS) + 1)
    }
    condition: dict[str, Any] = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    condition["index"] = ValueRange(first, last)
    parts = [LEDGER_SCHEMA.empty_table()]
    for bucket in sorted(buckets):
        for file in ledger.files("ledger", bucket):
            parts.append(read_matching(ledger, file, condition, LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA))
    rows = _in_order(parts).slice(0, MAX_ROWS)
    found = message_histories(rows, ledger.table("promises"))
    return sorted(found, key=lambda life: life.index or 0)


def unnumbered_histories(ledger: Ledger, lane: LaneNames, most: int) -> list[MessageKey]:
    """Return the first messages of a lane's files without index.

    Args:
        ledger: the ledger.
        lane: protocol, source, destination and lane.
        most: maximum number of messages.

    Returns:
        Message keys.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    condition: dict[str, Any] = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    condition["index"] = (None,)
    found: dict[MessageKey, None] = {}
    for file in ledger.files("ledger"):
        found |= dict.fromkeys(
            message_keys(read_matching(ledger, file, condition, (*LANE, "index", "message_id"), most))
        )
        if len(found) >= most:
            break
    return [*found][:most]


def related_histories(ledger: Ledger, key: MessageKey) -> MessageTrace:
    """Return the trace of a message.

    Args:
        ledger: the ledger.
        key: the key of the message.

    Returns:
        The trace.

    Raises:
        InvalidInput: there is no such message.
        LedgerDamaged: a file is corrupted.
    """
    rows = read_message_rows(ledger, [key])
    if not rows.num_rows:
        raise InvalidInput("no such message")
    keys = [*dict.fromkeys([key, *find_related(ledger, rows, MAX_TRACED)])]
    found = read_histories(ledger, keys[:MAX_TRACED])
    return MessageTrace(found.lives, found.headers, len(keys) - len(found.lives))


def history_key(life: MessageHistory) -> MessageKey:
    """Return the key of a message.

    Args:
        life: the history.

    Returns:
        The key.
    """
    return MessageKey(life.lane, life.index, life.message_id if life.index is None else None)


def outcome_delay(life: MessageHistory) -> str | None:
    """Return the time of a message to its outcome, in ticks if known.

    Args:
        life: the history.

    Returns:
        The time in words, or None.
    """
    if life.duration_ticks is not None:
        return format_in_unit(life.duration_ticks, "ticks")
    return None if life.took is None else format_in_unit(life.took.total_seconds(), "seconds")


def lane_watermarks(ledger: Ledger, lane: LaneNames) -> list[LedgerRow]:
    """Return the last valid value of each watermark of a lane, by chain and name.

    Args:
        ledger: the ledger.
        lane: protocol, source, destination and lane.

    Returns:
        Rows of the table ``watermarks``.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    condition: Condition = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    newest: dict[tuple[str, str], LedgerRow] = {}
    for file in ledger.files("watermarks"):
        for row in to_python_rows(read_matching(ledger, file, condition, WATERMARKS_SCHEMA.names)):
            if row["status"] is None:
                key = row["chain"] or "", row["name"] or ""
                before = newest.get(key)
                if before is None or _place(row) >= _place(before):
                    newest[key] = row
    return [newest[key] for key in sorted(newest)]


def height_headers(
    ledger: Ledger, height: int, ticks: Collection[int], chain: str | None, most: int
) -> list[LedgerRow]:
    """Return the headers of a height, of all chains or one, valid ones first.

    The height of a run is that of the network. A chain with another numbering, such as a subnet created by a split, has
    its last header in the tick of the height. ``ticks``: those of the height, if known; else the tick of the first
    block
    with this number.

    Args:
        ledger: the ledger.
        height: the height.
        ticks: the ticks of the height, if known; else the tick of the first block with this number.
        chain: only this chain; None: all.
        most: maximum number of rows.

    Returns:
        Rows of the table ``headers``.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    condition: dict[str, Any] = {} if chain is None else {"chain": (chain,)}
    found = _headers(ledger, {**condition, "height": (height,)}, most)
    now = {*ticks}
    if height and not now:
        all_chains = found if chain is None else _headers(ledger, {"height": (height,)}, most)
        known = [row["tick"] for row in all_chains if row["tick"] is not None and row["status"] is None]
        now = {min(known)} if known else set()
    if height and now:
        found = [row for row in found if row["status"] is not None or row["tick"] is None or row["tick"] in now]
        own = {row["chain"] for row in found if row["status"] is None}
        last: dict[str | None, LedgerRow] = {}
        for row in _headers(ledger, {**condition, "tick": now, "height": ValueRange(1)}, most):
            if row["status"] is None and row["chain"] not in own:
                last[row["chain"]] = max(row, last.get(row["chain"], row), key=itemgetter("height"))
        found += last.values()
    seen: dict[tuple[Any, ...], LedgerRow] = {}
    for row in found:
        name = (row["chain"], row["hash"] or row["root"])
        if name not in seen or (row["tick"] or 0) > (seen[name]["tick"] or 0):
            seen[name] = row
    return sorted(seen.values(), key=lambda row: (row["chain"] or "", row["status"] is not None, row["hash"] or ""))[
        :most
    ]


def _headers(ledger: Ledger, condition: Condition, most: int) -> list[LedgerRow]:
    found: list[LedgerRow] = []
    for file in ledger.files("headers"):
        found += to_python_rows(read_matching(ledger, file, condition, HEADERS_SCHEMA.names, most))
        if len(found) >= most:
            break
    return found


def height_events(ledger: Ledger, height: int, chain: str | None, most: int) -> tuple[list[LedgerRow], bool]:
    """Return the message events at a height, those in lanes first, and True if complete.

    Args:
        ledger: the ledger.
        height: the height.
        chain: only this chain; None: all.
        most: maximum number of rows.

    Returns:
        Rows of the ledger, and True if complete.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    condition: dict[str, Any] = {"height": (height,)}
    if chain is not None:
        condition["chain"] = (chain,)
    names = [*LANE, "index", "message_id", "kind", "event", "chain", "tick", "sender", "receiver", "code", "detail"]
    found: dict[tuple[Any, ...], LedgerRow] = {}
    for lanes in (TextPattern(""), (None,)):
        for file in ledger.files("ledger"):
            if len(found) > most:
                break
            rows = to_python_rows(read_matching(ledger, file, {**condition, "lane": lanes}, names, most + 1))
            found |= {tuple(row.values()): row for row in rows[: most + 1]}
    ordered = sorted(
        found.values(),
        key=lambda row: (
            *(row["lane"] is None, row["chain"] or "", *(row[name] or "" for name in LANE)),
            *(row["index"] or 0, row["message_id"] or ""),
        ),
    )
    return ordered[:most], len(found) <= most


def last_header_height(ledger: Ledger) -> int | None:
    """Return the last height with a header.

    Args:
        ledger: the ledger.

    Returns:
        The height, or None.

    Raises:
        LedgerDamaged: a file is corrupted.
    """
    heights = [pc.max(ledger.read(file, ["height"])["height"]).as_py() for file in ledger.files("headers")]
    return max((height for height in heights if height is not None), default=None)


def _place(row: LedgerRow) -> tuple[int, int, int]:
    return (row["height"] or 0, row["tick"] or 0, row["position"] or 0)


def _in_order(parts: Sequence[pa.Table]) -> pa.Table:
    return drop_repeats(sort_rows(pa.concat_tables(parts).unify_dictionaries().combine_chunks()))


PAIR_COLUMNS = ("source", "destination")

PairWeight = tuple[int, int, int]
"""Violations, pending messages and messages."""

_SUMS = ("violated", "pending", "messages")


@dataclass(frozen=True)
class PairSummary:
    """The traffic from a chain to another one; None: unknown.

    ``latency``: of the slowest lane. ``href``: address of the lane, or of the list of lanes.
    """

    source: str | None
    destination: str | None
    lanes: int
    messages: int
    pending: int
    violated: int
    latency: float | None
    href: str | None


class ChainPairs:
    """The lanes of a ledger by pair of chains. ``lanes``: one row a lane, with ``violated``."""

    def __init__(self, lanes: pa.Table) -> None:
        self._lanes = lanes

    @cached_property
    def table(self) -> pa.Table:
        """Return one row a pair, by violations, then pending, then messages."""
        wanted = [*((name, "sum") for name in _SUMS), ("delivery_p99", "max"), ("lane", "min"), ("protocol", "min")]
        found = self._lanes.group_by([*PAIR_COLUMNS], use_threads=False).aggregate([*wanted, ([], "count_all")])
        order = [(f"{name}_sum", "descending") for name in _SUMS] + [(name, "ascending") for name in PAIR_COLUMNS]
        return found.sort_by(order)

    @cached_property
    def weights(self) -> Mapping[str, PairWeight]:
        """Return the traffic of each chain, by violations, then size."""
        parts = []
        for name in PAIR_COLUMNS:
            own = self.table.select([name, *(f"{each}_sum" for each in _SUMS)])
            if name == "destination":  # loopback traffic counts once
                same = pc.fill_null(pc.equal(self.table["source"], self.table["destination"]), False)
                own = own.filter(pc.invert(same))
            parts.append(own.rename_columns(["chain", *_SUMS]))
        whole = pa.concat_tables(parts)
        whole = whole.filter(pc.is_valid(whole["chain"]))
        found = whole.group_by("chain", use_threads=False).aggregate([(each, "sum") for each in _SUMS])
        order = [*((f"{each}_sum", "descending") for each in _SUMS), ("chain", "ascending")]
        found = found.sort_by(order)
        columns = [found[name].to_pylist() for name in ("chain", *(f"{each}_sum" for each in _SUMS))]
        return {
            chain: (violated, pending, messages) for chain, violated, pending, messages in zip(*columns, strict=True)
        }

    def between(self, chains: Collection[str], most: int) -> tuple[list[PairSummary], int]:
        """Return the first pairs among some chains, and the number of all known pairs."""
        seen = pc.and_(pc.is_valid(self.table["source"]), pc.is_valid(self.table["destination"]))
        both = self.table.filter(seen)
        names = pa.array([*chains], pa.string())
        inside = pc.and_(*(pc.is_in(both[name].cast(pa.string()), names) for name in PAIR_COLUMNS))
        return [_pair(row) for row in both.filter(inside).slice(0, most).to_pylist()], both.num_rows

    def one_sided(self, most: int) -> list[PairSummary]:
        """Return the first pairs with one unknown chain."""
        own = pc.xor(pc.is_null(self.table["source"]), pc.is_null(self.table["destination"]))
        return [_pair(row) for row in self.table.filter(own).slice(0, most).to_pylist()]

    def cells(self, most: int = MAX_CHAINS) -> Mapping[tuple[MatrixEnd, MatrixEnd], PairFigures]:
        """Return the cells of the matrix: one row for each of the first chains, one for the others."""
        listed = [*self.weights] if len(self.weights) <= most else [*self.weights][: most - 1]
        ends: list[MatrixEnd] = [*((0, chain) for chain in listed), UNSEEN, OTHERS]
        codes = []
        for name in PAIR_COLUMNS:
            column = self.table[name].cast(pa.string())
            code = np.asarray(
                pc.fill_null(pc.index_in(column, pa.array(listed, pa.string())), len(listed) + 1), np.int64
            )
            codes.append(np.where(np.asarray(column.is_null()), len(listed), code))
        if not len(codes[0]):
            return {}
        order = stable_order(codes[0].astype(np.uint64), codes[1].astype(np.uint64))
        coded = self.table.append_column("from", pa.array(codes[0])).append_column("to", pa.array(codes[1]))
        sums = [*((f"{name}_sum", "sum") for name in _SUMS), ("delivery_p99_max", "max"), ("count_all", "sum")]
        alone = [(name, "min") for name in (*PAIR_COLUMNS, "lane_min", "protocol_min")]
        folded = coded.take(pa.array(order)).group_by(["from", "to"], use_threads=False)
        cells = {}
        for row in folded.aggregate([*sums, *alone, ([], "count_all")]).to_pylist():
            pair = (ends[row["from"]], ends[row["to"]])
            others = OTHERS in pair
            href = None if others else _href(row["count_all_sum"], *(row[f"{name}_min"] for name in _NAMES))
            messages, pending, violated = (row[f"{name}_sum_sum"] or 0 for name in ("messages", "pending", "violated"))
            latency = row["delivery_p99_max_max"]
            cells[pair] = PairFigures(row["count_all_sum"], messages, pending, violated, 0, latency, href)
        return cells


_NAMES = ("protocol_min", "source", "destination", "lane_min")


def _pair(row: Mapping[str, Any]) -> PairSummary:
    figures = (row["count_all"], row["messages_sum"] or 0, row["pending_sum"] or 0, row["violated_sum"] or 0)
    href = _href(row["count_all"], *(row[name] for name in _NAMES))
    return PairSummary(row["source"], row["destination"], *figures, row["delivery_p99_max"], href)


def _href(
    lanes: int, protocol: str | None, source: str | None, destination: str | None, lane: str | None
) -> str | None:
    if lanes == 1:
        return lane_address((protocol, source, destination, lane))
    return page_address("/lanes", {"source": source, "destination": destination})


class LedgerView:
    """A snapshot of a ledger. ``opened``: its lake, or None."""

    def __init__(self, snapshot: LedgerSnapshot, opened: OpenedLake | None) -> None:
        self.snapshot, self.opened = snapshot, opened
        self.ledger, self.audit, self.figures = snapshot.ledger, snapshot.audit, snapshot.figures

    @property
    def verdict(self) -> str:
        """Return the verdict of the audit."""
        return self.audit.verdict.value

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return verdict, checks and key figures, as in the report."""
        return summary_data(self.audit, self.figures, self.ledger.quarantined())

    @property
    def unit(self) -> str:
        """Return the unit of delays: ``ticks`` or ``seconds``."""
        return self.figures.totals.get("unit") or "seconds"

    @cached_property
    def violated(self) -> Mapping[tuple[str | None, ...], int]:
        """Return the number of violations of each lane."""
        return {lane: violated for lane, (violated, _) in count_lane_findings(self.audit).items() if violated}

    @cached_property
    def lanes(self) -> pa.Table:
        """Return the figures of all lanes with ``violated``, without messages in no lane."""
        found = self.figures.lanes
        seen = None
        for name in LANE[1:]:
            own = pc.is_valid(found[name])
            seen = own if seen is None else pc.or_(seen, own)
        found = found.filter(seen)
        counts = [0] * found.num_rows
        if self.violated:
            rows = {
                lane: place for place, lane in enumerate(zip(*(found[name].to_pylist() for name in LANE), strict=True))
            }
            for lane, count in self.violated.items():
                if lane in rows:
                    counts[rows[lane]] = count
        return found.append_column("violated", pa.array(counts, pa.int64()))

    def lane(self, lane: LaneNames) -> dict[str, Any] | None:
        """Return the figures of a lane, or None."""
        found = to_python_rows(select_lane(self.lanes, lane))
        return found[0] if found else None

    def pair_figures(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the figures of the lanes between two chains; None: unknown."""
        found = self.lanes
        for name, value in (("source", source), ("destination", destination)):
            column = found[name]
            found = found.filter(pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False))
        return to_python_rows(found)

    @cached_property
    def pairs(self) -> ChainPairs:
        """Return the lanes by pair of chains."""
        return ChainPairs(self.lanes)

    @cached_property
    def chains(self) -> list[str]:
        """Return the names of all chains: of the lake in its order, then others in the ledger."""
        known = [] if self.opened is None else list(self.opened.names)
        seen = {*self.pairs.weights, *self.figures.chains["chain"].to_pylist()} - {None, *known}
        return known + sorted(seen, key=natural_key)

    @cached_property
    def last_height(self) -> int | None:
        """Return the last height, or None for a ledger without heights."""
        return self.snapshot.height if self.opened is not None else last_header_height(self.ledger)

    def height_tick(self, height: int) -> int | None:
        """Return the tick of a height of the lake; None for a ledger or an unreadable lake."""
        if self.opened is None or self.last_height is None or height > self.last_height:
            return None
        try:
            return self.opened.manifest(height).tick
        except LakeError:
            return None
