"""A comparison as table rows and chart data, from its JSON; for terminals and reports alike."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.compare.comparison import MEASURES, QUANTILES
from causeway.ledger.outcomes import OUTCOMES

__all__ = ["section_data"]

COUNT, TICKS, SECONDS, BYTES, TEXT = "count", "ticks", "seconds", "bytes", "text"
"""Units of a row."""

USERS, CALLS, DELAYS_TICKS, DELAYS_SECONDS = "messages of users", "calls", "{0}, blocks", "{0}, seconds"
CARRIED, FEES, REST, AUDIT, MEASURED = "carried", "fees", "until rest", "checked", "measured on this machine"
"""Groups of rows."""

CellValue = int | float | str | None
_Content = Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonRow:
    """One row: ``values`` by protocol (None: missing); ``better``: ``less`` or ``more``."""

    group: str
    what: str
    unit: str
    values: Mapping[str, CellValue]
    better: str | None = None


def comparison_rows(found: _Content) -> list[ComparisonRow]:
    """Return the rows of a comparison, in order and by group.

    Args:
        found: JSON of ``Comparison.as_json``.

    Returns:
        The rows.
    """
    columns = {name: column for name, column in found["columns"].items() if column["failed"] is None}
    measured = {name: found["measured"]["columns"][name] for name in columns}
    return [*_traffic_rows(columns), *_fees(columns), *_audit_rows(columns), *_measurement_rows(measured)]


def _row(
    group: str, what: str, unit: str, columns: _Content, value: Callable[[Any], CellValue], better: str | None
) -> ComparisonRow:
    return ComparisonRow(group, what, unit, {name: value(column) for name, column in columns.items()}, better)


_OUTCOMES = [each.value for each in OUTCOMES]
_OF_USERS = {"received": "received", "refused": "refused at ingress", "waiting": "waiting at ingress"}


def _traffic_rows(columns: _Content) -> Iterator[ComparisonRow]:
    for name, words in _OF_USERS.items():
        yield _row(USERS, words, COUNT, columns, lambda one, key=name: one.get("ingress", {}).get(key), None)  # type: ignore[misc]
    always = {"sent": None, "answered": "more", "rejected": None, "pending": "less", "dropped": "less"}
    others = [name for name in _OUTCOMES if any(column["calls"][name] for column in columns.values())]
    for name, better in {**always, **{name: None for name in others if name not in always}}.items():
        yield _row(CALLS, name.replace("_", " "), COUNT, columns, lambda one, key=name: one["calls"][key], better)  # type: ignore[misc]
    for measure, words in MEASURES.items():
        for unit, group in ((TICKS, DELAYS_TICKS), (SECONDS, DELAYS_SECONDS)):
            for quantile in QUANTILES:

                def delay(one: Any, measure: str = measure, unit: str = unit, quantile: str = quantile) -> CellValue:
                    found: CellValue = one["latency"].get(measure, {}).get(unit, {}).get(quantile)
                    return found

                yield _row(group.format(words), quantile, unit, columns, delay, "less")
    for what, key, unit in (
        ("messages between chains", "messages", COUNT),
        ("messages a call", "messages_a_call", COUNT),
        ("bytes of proofs", "proof_bytes", BYTES),
        ("bytes of proofs a call", "proof_bytes_a_call", BYTES),
        ("headers made", "headers", COUNT),
    ):
        yield _row(CARRIED, what, unit, columns, lambda one, key=key: one[key], "less")  # type: ignore[misc]
    yield _row(REST, "heights", COUNT, columns, lambda one: one["heights"], "less")
    yield _row(REST, "ticks", TICKS, columns, lambda one: one["ticks"], "less")
    yield _row(REST, "most open calls", COUNT, columns, lambda one: one["backlog"]["most"], "less")
    at_rest = {True: "yes", False: "no"}
    yield _row(REST, "came to rest", TEXT, columns, lambda one: at_rest[one["at_rest"]], None)


def _fees(columns: _Content) -> Iterator[ComparisonRow]:
    """Yield one row an asset and fee reason; amounts are text, of any size."""
    paid = {
        name: {(fee["asset"], fee["why"]): int(fee["amount"]) for fee in column["fees"]}
        for name, column in columns.items()
    }
    for asset, why in sorted({key for of_column in paid.values() for key in of_column}):
        values = {name: of_column.get((asset, why)) for name, of_column in paid.items()}
        yield ComparisonRow(FEES, f"{why.replace('_', ' ')} ({asset})", COUNT, values)
    if not any(paid.values()):
        yield ComparisonRow(FEES, "none", TEXT, dict.fromkeys(columns))


def _audit_rows(columns: _Content) -> Iterator[ComparisonRow]:
    yield _row(AUDIT, "audit", TEXT, columns, lambda one: one["audit"]["verdict"], None)
    named = dict.fromkeys(name for column in columns.values() for name in column["audit"]["checks"])
    for name in named:
        verdicts = {
            protocol: column["audit"]["checks"].get(name, {}).get("verdict") for protocol, column in columns.items()
        }
        yield ComparisonRow(AUDIT, name.replace("_", " "), TEXT, verdicts)


def _measurement_rows(columns: _Content) -> Iterator[ComparisonRow]:
    yield _row(MEASURED, "hashes", COUNT, columns, lambda one: sum(one["hashes"].values()), "less")
    yield _row(MEASURED, "processor seconds", SECONDS, columns, lambda one: one["processor_seconds"], "less")
    yield _row(MEASURED, "seconds of the ticks", SECONDS, columns, lambda one: one["seconds"], "less")
    yield _row(MEASURED, "peak memory", BYTES, columns, lambda one: one["peak_memory_bytes"], "less")


@dataclass(frozen=True)
class GuaranteeRow:
    """A guarantee of one protocol, its audit check, and the check's verdict in the run, if any."""

    what: str
    holds: str
    how: str
    reference: str
    check: str | None
    verdict: str | None


def guarantee_rows(found: _Content) -> dict[str, list[GuaranteeRow]]:
    """Return the guarantees of each protocol, in the order of topics.

    Args:
        found: JSON of ``Comparison.as_json``.

    Returns:
        The rows by protocol.
    """
    rows: dict[str, list[GuaranteeRow]] = {}
    for name, stated in found["guarantees"].items():
        by_topic = {each["topic"]: each for each in stated}
        checks = found["columns"][name].get("audit", {}).get("checks", {})
        rows[name] = [
            GuaranteeRow(words, one["holds"], one["how"], one["reference"], check, checks.get(check, {}).get("verdict"))
            for topic, words in found["topics"].items()
            if (one := by_topic.get(topic)) is not None
            for check in [one.get("check")]
        ]
    return rows


def format_cell(value: CellValue, unit: str) -> str:
    """Format a value of the table.

    Args:
        value: the value.
        unit: its unit.

    Returns:
        The text.
    """
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if unit == BYTES and value >= 10 * 1024:
        for name in ("KiB", "MiB", "GiB"):
            value /= 1024
            if value < 1024:
                return f"{value:,.1f} {name}"
        return f"{value:,.1f} GiB"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def group_rows_by_title(rows: Sequence[ComparisonRow]) -> Iterator[tuple[str, list[ComparisonRow]]]:
    """Yield the groups of rows in order.

    Args:
        rows: the rows.

    Yields:
        Title and rows of a group.
    """
    found: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    yield from found.items()


_CHART_ROWS = ("bytes of proofs a call", "messages a call")
"""Rows that are also charts."""

MAX_POINTS = 240
"""Maximum number of points of a chart's line."""

LARGEST = 2**256
"""Upper limit of all counts and measurements."""

LOG_FROM = 4
"""Ratio of delays between columns from which the axis is logarithmic."""


def section_data(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a comparison page.

    The input may come from any file.

    Args:
        found: JSON of ``Comparison.as_json``.

    Returns:
        The data of ``report.comparison.compare_section``.

    Raises:
        ValueError: it is no comparison; also LookupError, TypeError or AttributeError.
    """
    for part in ("seconds_per_tick", "traffic", "columns", "measured"):
        _require_counts(found[part])
    columns = [name for name in found["protocols"] if found["columns"][name]["failed"] is None]
    failed = {name: why for name in found["protocols"] if (why := found["columns"][name]["failed"]) is not None}
    rows = comparison_rows(found)
    ran = list(columns)
    if failed:
        columns = list(found["protocols"])
        rows = [ComparisonRow("failed", "why", TEXT, failed), *rows]
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
            if row.what in _CHART_ROWS or (row.group == MEASURED and row.unit == SECONDS)
        ],
        "lines": [*_distributions(found, ran), *_backlogs(found, ran)],
        "guarantees": {
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
        },
        "faults": _faults(found),
    }


def _require_counts(value: Any) -> None:
    """Validate numbers.

    Raises:
        ValueError: a number is negative, not finite or too large.
    """
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
    """Return the share of completed calls after each tick, by measure.

    The axis is logarithmic if one column takes several times as long as another.
    """
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
            # The share completed at the end of the interval.
            series[name] = [round(100 * reached[bisect_left(ticks, edge)] / total, 3) for edge in edges[1:]]
        title = f"Calls through after so many ticks, {words} (percent)"
        lines.append({"title": title, "axis": "tick", "unit": "count", "at": edges, "series": series, "log": log})
    return lines


def _backlogs(found: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the number of unanswered calls at each tick, on the longest column's axis."""
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
    """Return at least two equidistant ticks from 0 to slightly beyond ``end``."""
    step = max(1, -(-end // MAX_POINTS))
    return list(range(0, max(end, 2 * step), step))


def _even_ratios(end: int) -> list[int]:
    """Return edges from 0 to ``end`` at equal ratios, or single ticks if these are wider."""
    edges = {0, end, *(round((1 + end) ** (place / MAX_POINTS)) - 1 for place in range(MAX_POINTS + 1))}
    return sorted(edges)


def _faults(found: Mapping[str, Any]) -> dict[str, Any] | None:
    faults = found["faults"]
    if faults is None:
        return None
    rows = [
        [f"{name}: {what}", *(faults["found"][protocol][name]["text"] for protocol in faults["found"])]
        for name, what in faults["tries"].items()
    ]
    return {"columns": ["", *faults["found"]], "rows": rows}
