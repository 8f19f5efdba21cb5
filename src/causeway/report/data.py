"""A report as plain data: ``causeway report --json`` prints it, and the pieces are drawn from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.audit.auditing import Audit
from causeway.audit.backlog import chains_shown
from causeway.audit.plain import plain_row
from causeway.figures.codes import FORGED_KIND, FROM_USERS
from causeway.ledger.outcomes import UNSUCCESSFUL
from causeway.ledger.schema import LANE
from causeway.network.ledgers import OpenedLedger
from causeway.pipeline.ledger_passes import Steps
from causeway.pipeline.ledger_search import MessageKey
from causeway.report.checked import findings_of_lanes
from causeway.report.chosen import chosen_messages, key_of, message_of_finding
from causeway.report.lanes import lanes_data
from causeway.report.running import run_data
from causeway.report.summary import over_time_data, rows_of, summary_data

FORMAT = 2

SHOWN_CODES, SHOWN_FEES, SHOWN_SUMS, SHOWN_CHAINS, SHOWN_WINDOWS = 40, 60, 60, 60, 60
"""Rows of the tables of a report; the number of the others is stated."""


def report_data(
    opened: OpenedLedger, *, compare: Mapping[str, Any] | None = None, steps: Steps | None = None
) -> dict[str, Any]:
    """Return the report of a ledger, or of a lake, as plain data.

    Args:
        opened: the ledger, or the lake (``cw.open``).
        compare: a comparison of protocols (``compared.compare_section``).
        steps: begins the steps after the audit and the figures, and returns the progress of each.

    Raises:
        InvalidInput: the ledger has rows that cannot be read.
        LedgerDamaged: a file is not as it was written.
    """
    audit = opened.audit().audit
    figures = opened.figures
    found = summary_data(audit, figures, opened.stored.quarantined())
    told = None if steps is None else steps("looking up examples")
    messages = chosen_messages(opened, found["checks"], figures.worst, told)
    wanted = [tuple(each[name] for name in LANE) for each in messages]
    wanted += [tuple(row[name] for name in LANE) for check in found["checks"] for row in check["examples"]]
    wanted += [tuple(row[name] for name in LANE) for row in found["incomplete"]["rows"]]
    lanes = lanes_data(figures.lanes, findings_of_lanes(audit), wanted)
    _link(found, messages, lanes)
    return {
        "format": FORMAT,
        "lake": _named(opened.place),
        "kind": opened.kind,
        **found,
        "input": _input(figures, opened),
        **over_time_data(figures),
        "lanes": lanes,
        "messages": messages,
        "outcomes": _bounded(_told(figures.codes), SHOWN_CODES),
        "value": _value(figures.fees, audit.sums, audit.abroad),
        "run": run_data(opened.place),
        "completeness": found["completeness"] | _completeness(opened, audit),
        "compare": None if compare is None else dict(compare),
    }


def _told(codes: pa.Table) -> pa.Table:
    """Return the outcomes of messages, and of what is counted apart those that did not succeed."""
    apart = pc.is_in(codes["kind"], pa.array(("control", FROM_USERS, FORGED_KIND)))
    failed = pc.is_in(codes["outcome"], pa.array([each.value for each in UNSUCCESSFUL]))
    return codes.filter(pc.or_(pc.invert(apart), failed))


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


def _link(found: Mapping[str, Any], messages: list[dict[str, Any]], lanes: Mapping[str, Any]) -> None:
    """Add the anchors of messages and lanes to the rows that name them."""
    of_lanes = {tuple(row[name] for name in LANE): row["ident"] for row in lanes["rows"]}
    of_messages: dict[MessageKey | None, str] = {key_of(each): each["ident"] for each in messages}
    named = [row for check in found["checks"] for row in (*check["examples"], check["first"], check["worst"]) if row]
    for row in named:
        row["message_ident"] = of_messages.get(message_of_finding(row))
    if found["oldest_pending"] is not None:
        found["oldest_pending"]["message_ident"] = of_messages.get(key_of(found["oldest_pending"]))
    for row in (*named, *messages, *found["incomplete"]["rows"]):
        row["lane_ident"] = of_lanes.get(tuple(row[name] for name in LANE))


def _value(fees: pa.Table, sums: pa.Table, abroad: pa.Table) -> dict[str, Any]:
    """Return movements of value by reason, and sums by lane, those with a difference first."""
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
    """Return movements of all lanes by reason and asset, exactly."""
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


def _completeness(opened: OpenedLedger, audit: Audit) -> dict[str, Any]:
    """Return the coverage of each chain, the lanes with holes, and the records in quarantine."""
    observed = opened.observed.arrow()
    chains = [vars(each) for each in chains_shown(audit, observed)]
    chains.sort(key=lambda each: (-each["rows"], each["chain"]))
    sides = audit.completeness
    gaps = sides.filter(pc.or_(pc.not_equal(sides["missing"], pa.scalar(0, pa.uint64())), sides["one_sided"]))
    gaps = gaps.take(pc.sort_indices(gaps, [("missing", "descending"), *((name, "ascending") for name in LANE)]))
    tallies = [name for name in sides.column_names if name.startswith("without_") or name == "unnamed"]
    quarantine = opened.quarantine.arrow()
    named = pa.table({name: quarantine[name].cast(pa.string()) for name in ("reason", "field")})
    reasons = named.group_by(["reason", "field"]).aggregate([([], "count_all")])
    in_order = [("count_all", "descending"), ("reason", "ascending"), ("field", "ascending")]
    return {
        "rows": int(pc.sum(sides["rows"]).as_py() or 0),
        "unseen": {name: int(pc.sum(sides[name]).as_py() or 0) for name in tallies},
        "chains": {
            "rows": [plain_row(each) for each in chains[:SHOWN_CHAINS]],
            "more": max(0, len(chains) - SHOWN_CHAINS),
        },
        "gaps": _bounded(gaps, SHOWN_WINDOWS),
        "quarantine": rows_of(reasons.take(pc.sort_indices(reasons, in_order)).slice(0, SHOWN_CODES)),
        "windows": observed.num_rows,
    }


def _bounded(table: pa.Table, most: int) -> dict[str, Any]:
    return {"rows": rows_of(table.slice(0, most)), "more": max(0, table.num_rows - most)}


__all__ = ["FORMAT", "report_data"]
