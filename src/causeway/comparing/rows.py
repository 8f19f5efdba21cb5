"""The rows of a comparison's table, from its JSON: for a terminal and for a report alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from causeway.comparing.column import MEASURES, QUANTILES
from causeway.ledger.outcomes import OUTCOMES

COUNT, TICKS, SECONDS, BYTES, TEXT = "count", "ticks", "seconds", "bytes", "text"
"""Units of a row."""

USERS, CALLS, DELAYS_TICKS, DELAYS_SECONDS = "messages of users", "calls", "{0}, blocks", "{0}, seconds"
CARRIED, FEES, REST, AUDIT, MEASURED = "carried", "fees", "until rest", "checked", "measured on this machine"
"""Groups of rows."""

Value = int | float | str | None
_Content = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One row: ``values`` by protocol, None where there is none; ``better``: whether less or more is."""

    group: str
    what: str
    unit: str
    values: Mapping[str, Value]
    better: str | None = None


def rows_of(found: _Content) -> list[Row]:
    """Return the rows of a comparison (``Comparison.as_json``), in their order, grouped."""
    columns = {name: column for name, column in found["columns"].items() if column["failed"] is None}
    measured = {name: found["measured"]["columns"][name] for name in columns}
    return [*_of_columns(columns), *_fees(columns), *_checked(columns), *_measured(measured)]


def _row(group: str, what: str, unit: str, columns: _Content, value: Callable[[Any], Value], better: str | None) -> Row:
    return Row(group, what, unit, {name: value(column) for name, column in columns.items()}, better)


_OUTCOMES = [each.value for each in OUTCOMES]
_OF_USERS = {"received": "received", "refused": "refused at ingress", "waiting": "waiting at ingress"}


def _of_columns(columns: _Content) -> Iterator[Row]:
    for name, words in _OF_USERS.items():
        yield _row(USERS, words, COUNT, columns, lambda one, key=name: one.get("ingress", {}).get(key), None)  # type: ignore[misc]
    always = {"sent": None, "answered": "more", "rejected": None, "pending": "less", "dropped": "less"}
    others = [name for name in _OUTCOMES if any(column["calls"][name] for column in columns.values())]
    for name, better in {**always, **{name: None for name in others if name not in always}}.items():
        yield _row(CALLS, name.replace("_", " "), COUNT, columns, lambda one, key=name: one["calls"][key], better)  # type: ignore[misc]
    for measure, words in MEASURES.items():
        for unit, group in ((TICKS, DELAYS_TICKS), (SECONDS, DELAYS_SECONDS)):
            for quantile in QUANTILES:

                def delay(one: Any, measure: str = measure, unit: str = unit, quantile: str = quantile) -> Value:
                    found: Value = one["latency"].get(measure, {}).get(unit, {}).get(quantile)
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


def _fees(columns: _Content) -> Iterator[Row]:
    """Yield what was paid, a row an asset and reason; amounts are text, since they may be of any size."""
    paid = {
        name: {(fee["asset"], fee["why"]): int(fee["amount"]) for fee in column["fees"]}
        for name, column in columns.items()
    }
    for asset, why in sorted({key for of_column in paid.values() for key in of_column}):
        values = {name: of_column.get((asset, why)) for name, of_column in paid.items()}
        yield Row(FEES, f"{why.replace('_', ' ')} ({asset})", COUNT, values)
    if not any(paid.values()):
        yield Row(FEES, "none", TEXT, dict.fromkeys(columns))


def _checked(columns: _Content) -> Iterator[Row]:
    yield _row(AUDIT, "audit", TEXT, columns, lambda one: one["audit"]["verdict"], None)
    named = dict.fromkeys(name for column in columns.values() for name in column["audit"]["checks"])
    for name in named:
        verdicts = {
            protocol: column["audit"]["checks"].get(name, {}).get("verdict") for protocol, column in columns.items()
        }
        yield Row(AUDIT, name.replace("_", " "), TEXT, verdicts)


def _measured(columns: _Content) -> Iterator[Row]:
    yield _row(MEASURED, "hashes", COUNT, columns, lambda one: sum(one["hashes"].values()), "less")
    yield _row(MEASURED, "processor seconds", SECONDS, columns, lambda one: one["processor_seconds"], "less")
    yield _row(MEASURED, "seconds of the ticks", SECONDS, columns, lambda one: one["seconds"], "less")
    yield _row(MEASURED, "peak memory", BYTES, columns, lambda one: one["peak_memory_bytes"], "less")


@dataclass(frozen=True)
class GuaranteeRow:
    """A guarantee of one protocol, the check that judges it, and the verdict of that check in the run, if any."""

    what: str
    holds: str
    how: str
    reference: str
    check: str | None
    verdict: str | None


def guarantee_rows(found: _Content) -> dict[str, list[GuaranteeRow]]:
    """Return the guarantees of each protocol of a comparison (``Comparison.as_json``), in the order of its topics."""
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


def in_words(value: Value, unit: str) -> str:
    """Return a value as a table has it."""
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


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Yield the groups of rows in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    yield from found.items()
