"""The checks of what chains state of themselves: watermarks that never fall, and headers that follow each other."""

from __future__ import annotations

from itertools import groupby, pairwise

from tests.spec.audit.ledger import EVERY, Finding, Ledger, Row, lane_of

Checked = tuple[int, list[Finding]]


def watermarks(ledger: Ledger) -> Checked:
    """Of one lane, chain and name, the value never falls: by height and position, without heights by time.

    In one block (or at one time) rows of which no position was seen stand behind the others, in order of their values.
    """
    found = []
    marks: dict[tuple[object, ...], list[Row]] = {}
    for row in ledger.watermarks:
        marks.setdefault((lane_of(row), row["chain"], row["name"]), []).append(row)

    def named(verdict: str, reason: str, row: Row, magnitude: int | None = None) -> None:
        own = (lane_of(row), row["value"], row["source_row"])
        found.append(Finding("watermarks", verdict, reason, *own, magnitude))

    for rows in marks.values():
        for row in rows:
            if row["height"] is None and row["time"] is None:
                named("unknown", "place_unseen", row)
        blocks = [row for row in rows if row["height"] is not None]
        times = [row for row in rows if row["height"] is None and row["time"] is not None]
        blocks.sort(key=lambda row: (row["height"], row["position"] is None, row["position"] or 0, row["value"]))
        times.sort(key=lambda row: (row["time"], row["value"]))
        for one, other in [*pairwise(blocks), *pairwise(times)]:
            same = (one["height"], one["position"]) == (other["height"], other["position"])
            if other["value"] < one["value"]:
                named("violated", "fell", other, one["value"] - other["value"])
            elif same and other["position"] is not None and other["value"] != one["value"]:
                named("violated", "two_values", other)
    return len(ledger.watermarks), found


def headers(ledger: Ledger) -> Checked:
    """A chain has one header a height, which follows the one before it."""
    found = []

    def named(verdict: str, reason: str, chain: str, height: int, magnitude: int | None = None) -> None:
        found.append(Finding("headers", verdict, reason, (None, chain, None, None), height, None, magnitude))

    rows = sorted((row for row in ledger.headers if row["height"] is not None), key=lambda row: row["chain"])
    for chain, group in groupby(rows, lambda row: row["chain"]):
        blocks: dict[int, list[Row]] = {}
        for row in group:
            blocks.setdefault(row["height"], []).append(row)
        latest: int | None = None  # time of the header before
        for height in sorted(blocks):
            hashes, roots = shown(blocks[height], "hash"), shown(blocks[height], "root")
            if len(hashes or roots) > 1:
                named("violated", "two_headers", chain, height)
            before = shown(blocks.get(height - 1, []), "hash")
            if before and shown(blocks[height], "parent") - before:
                named("violated", "parent_differs", chain, height)
            times = shown(blocks[height], "time")
            if times:
                if latest is not None and min(times) < latest:
                    named("violated", "time_fell", chain, height, latest - min(times))
                latest = min(times)
        windows = ledger.windows(chain, EVERY, "header", "height")
        for one, other in pairwise(sorted(blocks)):
            inside = any(first <= one and other <= last for first, last in windows)
            if inside and other - one > 1:
                named("unknown", "missing_inside_window", chain, one + 1, other - one - 1)
    return len(ledger.headers), found


def shown(rows: list[Row], column: str) -> set:  # type: ignore[type-arg]
    """What rows say in a column, without what was not seen."""
    return {row[column] for row in rows if row[column] is not None}
