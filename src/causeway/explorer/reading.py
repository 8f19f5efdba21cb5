"""What pages read of a ledger as it was seen last: a lane, a message, a height, each without reading the whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.lives import Life, lives_of
from causeway.explorer.addresses import Lane
from causeway.ledger.order import SEGMENT_BITS, bucket_of, sorted_rows, without_repeats
from causeway.ledger.schema import HEADERS_SCHEMA, LANE, LEDGER_SCHEMA, WATERMARKS_SCHEMA
from causeway.ledger.typed import plain_rows
from causeway.model.errors import InvalidInput
from causeway.network.tracing import FOLLOWED, Traced, lives
from causeway.pipeline.ledger_search import Between, Condition, Like, MessageKey, keys_of, matching, related, rows_of
from causeway.pipeline.ledger_store import Ledger
from causeway.report.text import in_unit

MOST_ROWS = 20_000
"""Rows of a window of a lane, or of a height, that are read at most."""

Row = Mapping[str, Any]


def of_lane(table: pa.Table, lane: Lane) -> pa.Table:
    """Return the rows of a table that are of a lane."""
    kept = None
    for name, value in zip(LANE, lane, strict=True):
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        own = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)
        kept = own if kept is None else pc.and_(kept, own)
    return table.filter(kept)


def window(ledger: Ledger, lane: Lane, first: int, last: int) -> list[Life]:
    """Return the lives of the messages of a lane with the indices from ``first`` to ``last``, both included, by index.

    Read are the row groups that may have them. Raises ``LedgerDamaged``.
    """
    buckets = {
        bucket_of(tuple(lane), segment << SEGMENT_BITS, None, ledger.buckets)
        for segment in range(first >> SEGMENT_BITS, (last >> SEGMENT_BITS) + 1)
    }
    condition: dict[str, Any] = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    condition["index"] = Between(first, last)
    parts = [LEDGER_SCHEMA.empty_table()]
    for bucket in sorted(buckets):
        for file in ledger.files("ledger", bucket):
            parts.append(matching(ledger, file, condition, LEDGER_SCHEMA.names).cast(LEDGER_SCHEMA))
    rows = _in_order(parts).slice(0, MOST_ROWS)
    found = lives_of(rows, ledger.table("promises"))
    return sorted(found, key=lambda life: life.index or 0)


def unnumbered(ledger: Ledger, lane: Lane, most: int) -> list[MessageKey]:
    """Return messages of a lane that have no index, the first ones of its files. Raises ``LedgerDamaged``."""
    condition: dict[str, Any] = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    condition["index"] = (None,)
    found: dict[MessageKey, None] = {}
    for file in ledger.files("ledger"):
        found |= dict.fromkeys(keys_of(matching(ledger, file, condition, (*LANE, "index", "message_id"), most)))
        if len(found) >= most:
            break
    return [*found][:most]


def followed(ledger: Ledger, key: MessageKey) -> Traced:
    """Return the life of a message and of those that belong to it. Raises ``InvalidInput`` where it is not there,
    ``LedgerDamaged``."""
    rows = rows_of(ledger, [key])
    if not rows.num_rows:
        raise InvalidInput("no such message")
    keys = [*dict.fromkeys([key, *related(ledger, rows, FOLLOWED)])]
    found = lives(ledger, keys[:FOLLOWED])
    return Traced(found.lives, found.headers, len(keys) - len(found.lives))


def key_of(life: Life) -> MessageKey:
    """Return what names a message."""
    return MessageKey(life.lane, life.index, life.message_id if life.index is None else None)


def took_of(life: Life) -> str | None:
    """Return the time until a message came to its outcome, in ticks where its steps have theirs."""
    if life.took_ticks is not None:
        return in_unit(life.took_ticks, "ticks")
    return None if life.took is None else in_unit(life.took.total_seconds(), "seconds")


def watermarks(ledger: Ledger, lane: Lane) -> list[Row]:
    """Return the last value of each watermark of a lane that counts, by chain and name. Raises ``LedgerDamaged``."""
    condition: Condition = {name: (value,) for name, value in zip(LANE, lane, strict=True)}
    newest: dict[tuple[str, str], Row] = {}
    for file in ledger.files("watermarks"):
        for row in plain_rows(matching(ledger, file, condition, WATERMARKS_SCHEMA.names)):
            if row["status"] is None:
                key = row["chain"] or "", row["name"] or ""
                before = newest.get(key)
                if before is None or _place(row) >= _place(before):
                    newest[key] = row
    return [newest[key] for key in sorted(newest)]


def headers_of(ledger: Ledger, height: int, ticks: Collection[int], chain: str | None, most: int) -> list[Row]:
    """Return the headers of a height, of all chains or one, those that count first of each.

    Of a run the height is that of the network: of a chain that numbers its blocks otherwise, such as a subnet that a
    split made, it is the last header that it made in the tick of the height. ``ticks``: those of the height, as far as
    they are known; without any, the tick is that in which a chain first had a block of this number. Raises
    ``LedgerDamaged``.
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
        last: dict[str | None, Row] = {}
        for row in _headers(ledger, {**condition, "tick": now, "height": Between(1)}, most):
            if row["status"] is None and row["chain"] not in own:
                last[row["chain"]] = max(row, last.get(row["chain"], row), key=itemgetter("height"))
        found += last.values()
    seen: dict[tuple[Any, ...], Row] = {}
    for row in found:
        name = (row["chain"], row["hash"] or row["root"])
        if name not in seen or (row["tick"] or 0) > (seen[name]["tick"] or 0):
            seen[name] = row
    return sorted(seen.values(), key=lambda row: (row["chain"] or "", row["status"] is not None, row["hash"] or ""))[
        :most
    ]


def _headers(ledger: Ledger, condition: Condition, most: int) -> list[Row]:
    found: list[Row] = []
    for file in ledger.files("headers"):
        found += plain_rows(matching(ledger, file, condition, HEADERS_SCHEMA.names, most))
        if len(found) >= most:
            break
    return found


def events_at(ledger: Ledger, height: int, chain: str | None, most: int) -> tuple[list[Row], bool]:
    """Return what happened to messages at a height, first to those in lanes, and whether that is all. Raises
    ``LedgerDamaged``."""
    condition: dict[str, Any] = {"height": (height,)}
    if chain is not None:
        condition["chain"] = (chain,)
    names = [*LANE, "index", "message_id", "kind", "event", "chain", "tick", "sender", "receiver", "code", "detail"]
    found: dict[tuple[Any, ...], Row] = {}
    for lanes in (Like(""), (None,)):
        for file in ledger.files("ledger"):
            if len(found) > most:
                break
            rows = plain_rows(matching(ledger, file, {**condition, "lane": lanes}, names, most + 1))
            found |= {tuple(row.values()): row for row in rows[: most + 1]}
    ordered = sorted(
        found.values(),
        key=lambda row: (
            *(row["lane"] is None, row["chain"] or "", *(row[name] or "" for name in LANE)),
            *(row["index"] or 0, row["message_id"] or ""),
        ),
    )
    return ordered[:most], len(found) <= most


def last_header(ledger: Ledger) -> int | None:
    """Return the last height of which a ledger has a header. Raises ``LedgerDamaged``."""
    heights = [pc.max(ledger.read(file, ["height"])["height"]).as_py() for file in ledger.files("headers")]
    return max((height for height in heights if height is not None), default=None)


def _place(row: Row) -> tuple[int, int, int]:
    return (row["height"] or 0, row["tick"] or 0, row["position"] or 0)


def _in_order(parts: Sequence[pa.Table]) -> pa.Table:
    return without_repeats(sorted_rows(pa.concat_tables(parts).unify_dictionaries().combine_chunks()))


__all__ = [
    "events_at", "followed", "headers_of", "key_of", "last_header", "of_lane", "took_of", "unnumbered",
    "watermarks", "window",
]  # fmt: skip
