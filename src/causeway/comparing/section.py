"""A comparison as plain data for pages (``report.compared.compare_section``)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from causeway.comparing.column import MEASURES
from causeway.comparing.rows import MEASURED, SECONDS, TEXT, Row, guarantee_rows, rows_of

_DRAWN = ("bytes of proofs a call", "messages a call")
"""Rows that are charts, too."""

MOST_POINTS = 240
"""Points of a line of a chart."""

LARGEST = 2**256
"""No count, and nothing that is measured, is larger."""

LOG_FROM = 4
"""So many times as long as in another column calls take where the axis is logarithmic."""


def section_data(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a page shows of a comparison (``Comparison.as_json``).

    Of a file that somebody else wrote: raises ``ValueError``, ``LookupError``, ``TypeError``, ``AttributeError`` where
    it is no comparison.
    """
    for part in ("seconds_per_tick", "traffic", "columns", "measured"):
        _require_counts(found[part])
    columns = [name for name in found["protocols"] if found["columns"][name]["failed"] is None]
    failed = {name: why for name in found["protocols"] if (why := found["columns"][name]["failed"]) is not None}
    rows = rows_of(found)
    ran = list(columns)
    if failed:
        columns = list(found["protocols"])
        rows = [Row("failed", "why", TEXT, failed), *rows]
    return {
        "title": f"{found['scenario']} under {', '.join(found['protocols'])}",
        "note": _note(found),
        "columns": columns,
        "rows": [
            {
                "what": row.what,
                "unit": row.unit,
                "values": [row.values.get(name) for name in columns],
                "better": row.better,
                "group": row.group,
            }
            for row in rows
        ],
        "charts": [
            {"title": f"{row.what}, {row.group}", "unit": row.unit, "values": dict(row.values)}
            for row in rows
            if row.what in _DRAWN or (row.group == MEASURED and row.unit == SECONDS)
        ],
        "lines": [*_distributions(found, ran), *_backlogs(found, ran)],
        "guarantees": _guarantees(found),
        "faults": _faults(found),
    }


def _require_counts(value: Any) -> None:
    """Raise ``ValueError`` where a number is negative, none, or larger than any is."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key != "options":
                _require_counts(each)
    elif isinstance(value, list):
        for each in value:
            _require_counts(each)
    elif isinstance(value, int | float) and not (value >= 0 and value <= LARGEST):
        raise ValueError(f"{value!r} is no count")


def _note(found: Mapping[str, Any]) -> str:
    traffic = found["traffic"]
    text = (
        f"The same {traffic['messages']:,} messages of users under each (digest {str(traffic['digest'])[:16]}...). "
        f"A tick is one block of each chain, {found['seconds_per_tick']:g} s."
    )
    with_defaults = [name for name, column in found["columns"].items() if column.get("note")]
    return text + (f" With default options: {', '.join(with_defaults)}." if with_defaults else "")


def _distributions(found: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return which share of the calls was through after how many ticks, by measure; on a logarithmic axis where one
    column takes several times as long as another."""
    lines = []
    for measure, words in MEASURES.items():
        steps = {name: found["columns"][name]["distribution"].get(measure) for name in columns}
        steps = {name: of_column for name, of_column in steps.items() if of_column}
        if not steps:
            continue
        ends = [of_column[-1][0] for of_column in steps.values()]
        log = max(ends) > LOG_FROM * max(min(ends), 1)
        edges = _even_ratios(max(ends) + 1) if log else _even(1 + max(ends))
        edges = edges if log else [*edges, edges[-1] + edges[1]]
        series = {}
        for name, of_column in steps.items():
            ticks, reached, total = [step[0] for step in of_column], [0], sum(step[1] for step in of_column)
            for _, count in of_column:
                reached.append(reached[-1] + count)
            # Of an interval the share that is through at its end.
            series[name] = [round(100 * reached[bisect_left(ticks, edge)] / total, 3) for edge in edges[1:]]
        title = f"Calls through after so many ticks, {words} (percent)"
        lines.append({"title": title, "axis": "tick", "unit": "count", "at": edges, "series": series, "log": log})
    return lines


def _backlogs(found: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return how many calls had no answer at each tick, on the axis of the column that has most ticks."""
    backlogs = {name: found["columns"][name]["backlog"] for name in columns}
    backlogs = {name: backlog for name, backlog in backlogs.items() if backlog["at"]}
    if not backlogs:
        return []
    at = _even(max(backlog["at"][-1] + backlog["ticks"] for backlog in backlogs.values()))
    series: dict[str, list[float | None]] = {}
    for name, backlog in backlogs.items():
        values: list[float | None] = []
        for tick in at:
            place = bisect_right(backlog["at"], tick) - 1
            over = tick >= backlog["at"][-1] + backlog["ticks"]
            values.append(backlog["pending"][-1 if over else place] if place >= 0 else 0)
        series[name] = values
    edges = [*at, at[-1] + at[1]]
    return [{"title": "Calls without an answer", "axis": "tick", "unit": "count", "at": edges, "series": series}]


def _even(end: int) -> list[int]:
    """Return ticks from 0 to ``end`` and a little more at equal distances, two at least."""
    step = max(1, -(-end // MOST_POINTS))
    return list(range(0, max(end, 2 * step), step))


def _even_ratios(end: int) -> list[int]:
    """Return edges from 0 to ``end`` at equal ratios, each tick alone where these are less than one."""
    edges = {0, end, *(round((1 + end) ** (place / MOST_POINTS)) - 1 for place in range(MOST_POINTS + 1))}
    return sorted(edges)


def _guarantees(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of guarantees for each protocol."""
    return {
        name: {
            "columns": ["", "holds", "reference", "judged by", "verdict in this run"],
            "rows": [
                [
                    row.what,
                    {"holds": row.holds, "text": row.how},
                    row.reference,
                    None if row.check is None else row.check.replace("_", " "),
                    {"verdict": row.verdict},
                ]
                for row in rows
            ],
        }
        for name, rows in guarantee_rows(found).items()
    }


def _faults(found: Mapping[str, Any]) -> dict[str, Any] | None:
    faults = found["faults"]
    if faults is None:
        return None
    rows = [
        [f"{name}: {what}", *(faults["found"][protocol][name]["text"] for protocol in faults["found"])]
        for name, what in faults["tries"].items()
    ]
    return {"columns": ["", *faults["found"]], "rows": rows}


__all__ = ["section_data"]
