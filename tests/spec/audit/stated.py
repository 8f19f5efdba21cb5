"""The checks of what chains state of themselves: watermarks that never fall, and headers that follow each other."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

from tests.spec.audit.ledger import EVERY, Finding, Ledger, Row, lane_of

Checked = tuple[int, list[Finding]]


def watermarks(ledger: Ledger) -> Checked:
    """Of one lane, chain and name, the value never falls: by height and position, without heights by time.

    In a block of which not all positions were seen (and at one time), rows stand in order of their values.
    """
    found = []

    def named(verdict: str, reason: str, row: Row, magnitude: int | None = None) -> None:
        own = (lane_of(row), row["value"], row["source_row"])
        found.append(Finding("watermarks", verdict, reason, *own, magnitude))

    for rows in kept_watermarks(ledger.watermarks):
        for row in rows:
            if row["height"] is None and row["time"] is None:
                named("unknown", "place_unseen", row)
        blocks = [row for row in rows if row["height"] is not None]
        times = [row for row in rows if row["height"] is None and row["time"] is not None]
        unseen = {row["height"] for row in blocks if row["position"] is None}
        blocks.sort(key=lambda row: (row["height"], row["height"] not in unseen and row["position"], row["value"]))
        times.sort(key=lambda row: (row["time"], row["value"]))
        for one, other in [*pairwise(blocks), *pairwise(times)]:
            if other["value"] < one["value"]:
                named("violated", "fell", other, one["value"] - other["value"])
        placed = [row for row in blocks if row["position"] is not None]
        placed.sort(key=lambda row: (row["height"], row["position"], row["value"]))
        for one, other in pairwise(placed):
            same = (one["height"], one["position"]) == (other["height"], other["position"])
            if same and one["value"] != other["value"]:
                named("violated", "two_values", other)
    return len(ledger.watermarks), found


def kept_watermarks(rows: list[Row]) -> list[list[Row]]:
    """Those of one lane, chain and name, without what a fork took back."""

    def key(row: Row) -> tuple[Any, ...]:
        own = (lane_of(row), row["chain"], row["name"], row["height"], row["position"], row["value"])
        return own if row["height"] is not None else (*own, row["time"])

    reverted = {key(row) for row in rows if row["status"] == "reverted"}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if key(row) not in reverted:
            found.setdefault(key(row)[:3], []).append(row)
    return list(found.values())


def headers(ledger: Ledger) -> Checked:
    """A chain has one header a height, which follows the one before it."""
    found = []

    def named(
        verdict: str, reason: str, chain: str, height: int, row: int | None, magnitude: int | None = None
    ) -> None:
        found.append(Finding("headers", verdict, reason, (None, chain, None, None), height, row, magnitude))

    rows = sorted(kept_headers(ledger.headers), key=lambda row: row["chain"])
    for chain, group in groupby(rows, lambda row: row["chain"]):
        blocks: dict[int, list[Row]] = {}
        for row in group:
            blocks.setdefault(row["height"], []).append(row)
        latest: int | None = None  # time of the header before
        for height in sorted(blocks):
            row = blocks[height][0]["source_row"]
            hashes, roots = shown(blocks[height], "hash"), shown(blocks[height], "root")
            if len(hashes or roots) > 1:
                named("violated", "two_headers", chain, height, row)
            before = shown(blocks.get(height - 1, []), "hash")
            if before and shown(blocks[height], "parent") - before:
                named("violated", "parent_differs", chain, height, row)
            times = shown(blocks[height], "time")
            if times:
                if latest is not None and min(times) < latest:
                    named("violated", "time_fell", chain, height, row, latest - min(times))
                latest = min(times)
        windows = ledger.windows(chain, EVERY, "header", "height")
        for one, other in pairwise(sorted(blocks)):
            inside = any(first <= one and other <= last for first, last in windows)
            follows = shown(blocks[other], "parent") & shown(blocks[one], "hash")
            if inside and other - one > 1 and not follows:
                named("unknown", "missing_inside_window", chain, one + 1, None, other - one - 1)
    return len(ledger.headers), found


def kept_headers(rows: list[Row]) -> list[Row]:
    """Those of blocks that count: of which no fork took back the last statement."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["chain"] is not None and row["height"] is not None:
            block = (1, row["hash"]) if row["hash"] is not None else (0, row["root"])
            found.setdefault((row["chain"], row["height"], *block), []).append(row)

    def tick(row: Row) -> int:
        return -1 if row["tick"] is None else row["tick"]

    def counts(same: list[Row]) -> bool:
        last = max(map(tick, same))
        return not any(row["status"] == "reverted" for row in same if tick(row) == last)

    kept = {id(row) for same in found.values() if counts(same) for row in same if row["status"] is None}
    return [row for row in rows if id(row) in kept]


def shown(rows: list[Row], column: str) -> set[Any]:
    """What rows say in a column, without what was not seen."""
    return {row[column] for row in rows if row[column] is not None}
