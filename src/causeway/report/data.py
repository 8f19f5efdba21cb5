"""All that a report says, as plain data: what ``causeway report --json`` prints, and what the pieces are drawn from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.backlog import chains_shown
from causeway.audit.plain import input_figures, plain_row
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.network.ledgers import OpenedLedger
from causeway.pipeline.ledger_passes import Steps
from causeway.report.checked import (
    HOLDS,
    VIOLATED,
    checks_data,
    findings_of_lanes,
    verdict_of,
)
from causeway.report.chosen import chosen_messages, key_of, message_of_finding
from causeway.report.lanes import lanes_data
from causeway.report.running import run_data

FORMAT = 1

SHOWN_CODES, SHOWN_FEES, SHOWN_SUMS, SHOWN_CHAINS, SHOWN_WINDOWS = 40, 60, 60, 60, 60
"""Rows of tables of a report; how many more there are, it says."""


def report_data(
    opened: OpenedLedger, *, compare: Mapping[str, Any] | None = None, steps: Steps | None = None
) -> dict[str, Any]:
    """Return what a report of a ledger, or of a lake, says.

    Args:
        opened: the ledger, or the lake (``cw.open``).
        compare: what a comparison of protocols says (``compared.compare_section``).
        steps: begins the steps after the audit and the figures, and gives what is told how far each is.

    Raises ``InvalidInput``, ``LedgerDamaged``.
    """
    found = opened.audit()
    figures = opened.figures
    checks = checks_data(found)
    verdict = verdict_of(found.checks)
    told = None if steps is None else steps("looking up examples")
    messages = chosen_messages(opened, checks, figures.worst, told)
    wanted = [tuple(each[name] for name in LANE) for each in messages]
    wanted += [tuple(row[name] for name in LANE) for check in checks for row in check["examples"]]
    lanes = lanes_data(figures.lanes, findings_of_lanes(found), wanted)
    _link(checks, messages, lanes)
    return {
        "format": FORMAT,
        "lake": _named(opened.place),
        "kind": opened.kind,
        "verdict": verdict,
        "holds": verdict != VIOLATED,
        "held": sum(check["verdict"] == HOLDS for check in checks),
        "input": _input(figures, opened),
        "totals": _plain(figures.totals),
        "requests": requests_of(figures.codes),
        "checks": checks,
        "backlog": columns_over_time(figures.backlog),
        "latency": _rows(figures.latency.filter(pc.equal(figures.latency["scope"], "all"))),
        "latency_over_time": columns_over_time(figures.latency_over_time),
        "lanes": lanes,
        "messages": messages,
        "outcomes": _bounded(figures.codes, SHOWN_CODES),
        "value": _value(figures.fees, found.sums.arrow(), found.abroad.arrow()),
        "run": run_data(opened.place),
        "completeness": _completeness(opened, found),
        "compare": None if compare is None else dict(compare),
    }


def _named(place: str) -> str:
    """Return the last part of a path or URI."""
    if "://" in place:
        return place.rstrip("/").rpartition("/")[2] or place
    return os.path.basename(os.path.abspath(place)) or place


def _input(figures: Any, opened: OpenedLedger) -> dict[str, Any]:
    protocols = sorted({name for name in figures.lanes["protocol"].unique().to_pylist() if name is not None})
    chains = figures.chains
    return {
        "protocols": protocols,
        "chains": chains.num_rows,
        "names": chains["chain"].slice(0, SHOWN_CHAINS).to_pylist(),
        "rows": figures.totals["rows"],
        "stated_by": sorted({*opened.promises.arrow()["stated_by"].unique().to_pylist()} - {None}),
    }


def requests_of(codes: pa.Table) -> dict[str, int]:
    """Return how many requests came to each outcome: what relayers tried, and answers themselves, are none."""
    rows = codes.filter(pc.equal(codes["kind"], "request")).group_by("outcome").aggregate([("messages", "sum")])
    return {
        row["outcome"]: row["messages_sum"] for row in sorted(rows.to_pylist(), key=lambda row: str(row["outcome"]))
    }


def _link(checks: list[dict[str, Any]], messages: list[dict[str, Any]], lanes: Mapping[str, Any]) -> None:
    """Say in each finding where its lane and message are shown, and in each message where its lane is."""
    of_lanes = {tuple(row[name] for name in LANE): row["ident"] for row in lanes["rows"]}
    of_messages = {key_of(each): each["ident"] for each in messages}
    for check in checks:
        for row in [*check["examples"], check["first"], check["worst"]]:
            if row is not None:
                key = message_of_finding(row)
                row["lane_ident"] = of_lanes.get(tuple(row[name] for name in LANE))
                row["message_ident"] = None if key is None else of_messages.get(key)
    for each in messages:
        each["lane_ident"] = of_lanes.get(tuple(each[name] for name in LANE))


def _value(fees: pa.Table, sums: pa.Table, abroad: pa.Table) -> dict[str, Any]:
    """Return movements of value by why, and what sums of lanes leave over: first where something is left."""
    off = pc.not_equal(sums["difference"], "0")
    moved = pc.or_(off, pc.or_(pc.not_equal(sums["sent"], "0"), pc.not_equal(sums["received"], "0")))
    ordered = pa.concat_tables([sums.filter(off), sums.filter(pc.and_(moved, pc.invert(off)))])
    return {
        "movements": _movements(fees),
        "sums": _bounded(ordered, SHOWN_SUMS),
        "not_equal": int(pc.sum(off).as_py() or 0),
        "abroad": _bounded(abroad, SHOWN_SUMS),
    }


def _movements(fees: pa.Table) -> dict[str, Any]:
    """Return movements of all lanes by why and asset, exactly."""
    names = ("why", "asset", "is_fee")
    totals: dict[tuple[Any, ...], list[int]] = {}
    for *key, movements, amount in zip(
        *(fees[each].to_pylist() for each in (*names, "movements", "amount")), strict=True
    ):
        total = totals.setdefault(tuple(key), [0, 0])
        total[0] += movements
        total[1] += int(amount or 0)
    ordered = sorted(totals.items(), key=lambda item: (not item[0][2], str(item[0][0]), str(item[0][1])))
    rows = [
        {**dict(zip(names, key, strict=True)), "movements": movements, "amount": str(amount)}
        for key, (movements, amount) in ordered[:SHOWN_FEES]
    ]
    return {"rows": rows, "more": max(0, len(ordered) - SHOWN_FEES)}


def _completeness(opened: OpenedLedger, found: Any) -> dict[str, Any]:
    """Return how far the input shows each chain, and what of it is missing."""
    observed = opened.observed.arrow()
    chains = [vars(each) for each in chains_shown(found.audit, observed)]
    chains.sort(key=lambda each: (-each["rows"], each["chain"]))
    sides = found.audit.completeness
    gaps = sides.filter(pc.or_(pc.not_equal(sides["missing"], pa.scalar(0, pa.uint64())), sides["one_sided"]))
    gaps = gaps.take(pc.sort_indices(gaps, [("missing", "descending"), *((name, "ascending") for name in LANE)]))
    tallies = [name for name in sides.column_names if name.startswith("without_") or name == "unnamed"]
    quarantine = opened.quarantine.arrow()
    named = pa.table({name: quarantine[name].cast(pa.string()) for name in ("reason", "field")})
    reasons = named.group_by(["reason", "field"]).aggregate([([], "count_all")])
    in_order = [("count_all", "descending"), ("reason", "ascending"), ("field", "ascending")]
    return {
        **input_figures(found.audit),
        "rows": int(pc.sum(sides["rows"]).as_py() or 0),
        "unseen": {name: int(pc.sum(sides[name]).as_py() or 0) for name in tallies},
        "chains": {
            "rows": [plain_row(each) for each in chains[:SHOWN_CHAINS]],
            "more": max(0, len(chains) - SHOWN_CHAINS),
        },
        "gaps": _bounded(gaps, SHOWN_WINDOWS),
        "quarantine": _rows(reasons.take(pc.sort_indices(reasons, in_order)).slice(0, SHOWN_CODES)),
        "windows": observed.num_rows,
    }


def _bounded(table: pa.Table, most: int) -> dict[str, Any]:
    return {"rows": _rows(table.slice(0, most)), "more": max(0, table.num_rows - most)}


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [plain_row(row) or {} for row in plain_rows(table)]


def columns_over_time(table: pa.Table) -> dict[str, list[Any]]:
    """Return a table over time by columns. ``begin``: where each bin begins, in ticks or seconds since 1970; ``time``
    is None where no calendar has it."""
    rows = _rows(table)
    found = {name: [row[name] for row in rows] for name in table.column_names}
    micros = table["time"].cast(pa.int64()).to_pylist()
    begins = zip(table["tick"].to_pylist(), micros, strict=True)
    found["begin"] = [time / 1_000_000 if tick is None else tick for tick, time in begins]
    return found


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(value) for name, value in row.items()}


def _text(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


__all__ = ["FORMAT", "columns_over_time", "report_data", "requests_of"]
