"""A report as plain data, printed by ``causeway report --json``.

It consists of lanes (listed ones, the others merged, and the matrix of chains), messages with journeys (example
findings, the slowest, the oldest pending), coverage, value, and the data of a run beside its ledger (settings,
relayers,
failed handlers, stopped chains).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway.analysis.figures.outcomes import FORGED_KIND, FROM_USERS
from causeway.analysis.tracing import history_to_dict
from causeway.audit.backlog import chain_coverage
from causeway.audit.engine import AuditResult
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.json_output import row_to_json
from causeway.core.arrow_types import to_python_rows
from causeway.ledger.bucket_scan import PassProgressCallback, Steps
from causeway.ledger.lake.ingest import is_lake
from causeway.ledger.outcomes import UNSUCCESSFUL
from causeway.ledger.schema import LANE
from causeway.ledger.search import MessageKey
from causeway.network.opened_lake import open_lake
from causeway.network.opened_ledger import OpenedLedger
from causeway.network.run_records import carrier_summary, read_failures, stopped_chains
from causeway.protocols.registry import find_protocol
from causeway.report.findings import CHAIN_CHECKS
from causeway.report.matrix import PairFigures, fold_matrix
from causeway.report.summary import (
    LaneKey,
    count_lane_findings,
    over_time_data,
    rows_to_json,
    summary_data,
    worst_and_first,
)

__all__ = [
    "FORMAT",
    "MAX_LANES",
    "MEASURES",
    "OF_DELAYS",
    "VERDICT_REASONS",
    "choose_shading",
    "chosen_messages",
    "finding_message_key",
    "lanes_data",
    "report_data",
    "row_message_key",
    "run_data",
]

MAX_LANES = 150
"""Maximum listed lanes: by violations, then pending, then messages; messages in no lane are last."""

MEASURES = ("delivery", "round_trip")
"""Delays of lanes; the first with values shades the matrix."""

_ADDED = ("messages", "sent", "received", "pending", "in_flight")


def lanes_data(
    lanes: pa.Table, findings: Mapping[LaneKey, tuple[int, int]], wanted: Iterable[LaneKey] = ()
) -> dict[str, Any]:
    """Return the lanes as plain data.

    ``total`` and ``others`` exclude messages in no lane, since these have a row of their own.

    Args:
        lanes: of ``LANES_SCHEMA``.
        findings: number of violated and unknown findings of each lane.
        wanted: lanes to list in any case, because others link to them.

    Returns:
        Plain data.
    """
    keys: list[LaneKey] = [*zip(*(lanes[name].to_pylist() for name in LANE), strict=True)]
    found = [findings.get(key, (0, 0)) for key in keys]
    violated, unknown = (np.array([each[place] for each in found], np.int64) for place in (0, 1))
    pending, messages = (lanes[name].to_numpy() for name in ("pending", "messages"))
    nowhere = np.array([all(name is None for name in key[1:]) for key in keys], bool)
    order = np.lexsort((np.arange(len(keys)), -messages, nowhere, -pending, -violated))
    required = set(wanted)
    listed = sorted({*order[:MAX_LANES].tolist(), *(row for row, key in enumerate(keys) if key in required)})
    rank = {row: place for place, row in enumerate(order.tolist())} if len(listed) < len(keys) else None
    chosen = sorted(listed, key=lambda row: rank[row]) if rank is not None else order.tolist()
    rows = [row_to_json(row) or {} for row in to_python_rows(lanes.take(pa.array(chosen, pa.int64())))]
    for place, (row, number) in enumerate(zip(rows, chosen, strict=True)):
        row |= {"ident": f"lane-{place + 1}", "violated": int(violated[number])}
        row["unknown_findings"] = int(unknown[number])
    left = np.ones(len(keys), bool)
    left[chosen] = False
    others = {name: int(lanes[name].to_numpy()[left].sum()) for name in _ADDED}
    others |= {"lanes": int((left & ~nowhere).sum()), "violated": int(violated[left].sum())}
    others["unknown_findings"] = int(unknown[left].sum())
    measure, unit = choose_shading(lanes)
    idents = {keys[number]: row["ident"] for row, number in zip(rows, chosen, strict=True)}
    pairs = _pairs(lanes, keys, found, measure, idents)
    return {
        "total": int((~nowhere).sum()),
        "latency": measure,
        "unit": unit,
        "chains": len({chain for key in keys for chain in key[1:3] if chain is not None}),
        "rows": rows,
        "others": others,
        "matrix": [
            {"source": [*source], "destination": [*destination], **vars(figures)}
            for (source, destination), figures in sorted(fold_matrix(pairs).items())
        ],
    }


def choose_shading(lanes: pa.Table) -> tuple[str | None, str]:
    """Return the delay known for most lanes, and its unit.

    Args:
        lanes: rows of ``LANES_SCHEMA``.

    Returns:
        The measure, or None, and its unit.
    """
    for measure in MEASURES:
        known = lanes.filter(lanes[f"{measure}_p99"].is_valid())
        if known.num_rows:
            units = sorted(known["unit"].drop_null().to_pylist())
            return measure, max(dict.fromkeys(units), key=units.count, default="seconds")
    return None, "seconds"


def _pairs(
    lanes: pa.Table,
    keys: list[LaneKey],
    findings: list[tuple[int, int]],
    measure: str | None,
    idents: Mapping[LaneKey, str],
) -> dict[tuple[str | None, str | None], PairFigures]:
    messages, pending = lanes["messages"].to_pylist(), lanes["pending"].to_pylist()
    delays = [None] * len(keys) if measure is None else lanes[f"{measure}_p99"].to_pylist()
    pairs: dict[tuple[str | None, str | None], PairFigures] = {}
    for key, sent, open_, delay, (violated, unknown) in zip(keys, messages, pending, delays, findings, strict=True):
        if all(name is None for name in key[1:]):
            continue  # in no lane
        href = f"#{idents[key]}" if key in idents else None
        one = PairFigures(1, sent, open_, violated, unknown, delay, href)
        pair = key[1], key[2]
        pairs[pair] = pairs[pair] + one if pair in pairs else one
    return pairs


VERDICT_REASONS = {VIOLATED: 24, UNKNOWN: 12, NOTED: 6}
OF_REASON, OF_DELAYS = 3, 6
"""Messages with journeys: of the findings of each verdict, of each reason, and of each ranking of delays."""

_WHY = ("slowest_delivery", "slowest_round_trip", "oldest_pending")

_NO_MESSAGE = ("headers", "watermarks")


def row_message_key(row: Mapping[str, Any]) -> MessageKey | None:
    """Return the message of a row, or None.

    Args:
        row: a row of a ledger or of a figure.

    Returns:
        The key, or None.
    """
    if row["index"] is None and row["message_id"] is None:
        return None
    lane = tuple(row[name] for name in LANE)
    return MessageKey(lane, row["index"], row["message_id"] if row["index"] is None else None)


def finding_message_key(row: Mapping[str, Any]) -> MessageKey | None:
    """Return the message of a finding; None for a finding about a chain or a missing number.

    Args:
        row: a row of the table ``violations``.

    Returns:
        The key, or None.
    """
    if row["check"] in _NO_MESSAGE or row["reason"] in CHAIN_CHECKS:
        return None
    return row_message_key(row)


def chosen_messages(
    opened: OpenedLedger,
    checks: Sequence[Mapping[str, Any]],
    worst: pa.Table,
    progress: PassProgressCallback | None = None,
) -> list[dict[str, Any]]:
    """Return the messages of a report with all events, and the reasons for each.

    Args:
        opened: the ledger.
        checks: as of ``checks_data``.
        worst: of ``worst_messages``.
        progress: receives the number of looked-up messages, and of all.

    Returns:
        One object a message.
    """
    why: dict[MessageKey, list[dict[str, Any]]] = {}
    of_findings = (each for verdict in VERDICT_REASONS for each in _finding_examples(checks, verdict))
    for key, reason in (*of_findings, *_delay_examples(worst)):
        why.setdefault(key, []).append(reason)
    if progress is not None:
        progress(0, len(why))
    traced = opened.lives([*why])
    if progress is not None:
        progress(len(why), len(why))
    lives = {MessageKey(life.lane, life.index, _name(life)): history_to_dict(life, traced) for life in traced.lives}
    found = [(key, reasons) for key, reasons in why.items() if key in lives]
    return [
        {"ident": f"message-{number}", "why": reasons, **lives[key]}
        for number, (key, reasons) in enumerate(found, start=1)
    ]


def _name(life: Any) -> str | None:
    return life.message_id if life.index is None else None


def _finding_examples(checks: Sequence[Mapping[str, Any]], verdict: str) -> Iterable[tuple[MessageKey, dict[str, Any]]]:
    """Yield the findings of the first screen, then the first example of each reason, and so on."""
    reasons: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    wanted: list[Mapping[str, Any]] = []
    for check in checks:
        own = [row for row in check["examples"] if row["verdict"] == verdict]
        wanted += [row for _, row in worst_and_first(check, verdict)]
        for row in own:
            reasons.setdefault((row["check"], row["reason"]), []).append(row)
    for place in range(OF_REASON):
        wanted += [rows[place] for rows in reasons.values() if place < len(rows)]
    left = VERDICT_REASONS[verdict]
    for row in {id(row): row for row in wanted}.values():
        key = finding_message_key(row)
        if key is not None and left > 0:
            left -= 1
            yield key, {"kind": verdict, "finding": row}


def _delay_examples(worst: pa.Table) -> Iterable[tuple[MessageKey, dict[str, Any]]]:
    for kind in _WHY:
        rows = worst.filter(pc.and_(pc.equal(worst["why"], kind), pc.less_equal(worst["rank"], OF_DELAYS)))
        for row in rows.select([*LANE, "index", "message_id", "rank", "delay", "unit"]).to_pylist():
            key = row_message_key(row)
            if key is not None:
                yield key, {"kind": kind, "rank": row["rank"], "delay": row["delay"], "unit": row["unit"]}


def run_data(place: str) -> dict[str, Any] | None:
    """Return the settings, relayers and failures of a run; None for other places.

    Args:
        place: path or URI.

    Returns:
        Plain data, or None.
    """
    if not is_lake(place):
        return None
    opened = open_lake(place)
    if opened.lake.last_height() < 0:
        return None
    manifest = opened.manifest()
    carriers = carrier_summary(opened.lake, manifest)
    failed = read_failures(opened.lake, opened.topology)
    return {
        "protocol": opened.protocol,
        "chains": len(opened.names),
        "programs": len(opened.program_names),
        "heights": manifest.height,
        "ticks": manifest.tick + 1,
        "at_rest": manifest.line.wake is None,
        "seconds_per_tick": float(opened.about["seconds_per_tick"]),
        "seed": opened.seed,
        "carriers": [*carriers.lines],
        "carriers_content": dict(carriers.content),
        "handler_failures": {"count": failed.count, "first": [asdict(each) for each in failed.first]},
        "stopped_chains": [asdict(each) for each in stopped_chains(opened.lake, manifest)],
        "remark": find_protocol(opened.protocol).load_semantics().remark(opened.options),
    }


FORMAT = 2

SHOWN_CODES, SHOWN_FEES, SHOWN_SUMS, SHOWN_CHAINS, SHOWN_WINDOWS = 40, 60, 60, 60, 60
"""Maximum rows of the tables of a report; the number of further rows is given."""


def report_data(
    opened: OpenedLedger, *, compare: Mapping[str, Any] | None = None, steps: Steps | None = None
) -> dict[str, Any]:
    """Return the report of a ledger, or of a lake, as plain data.

    Args:
        opened: the ledger, or the lake (``cw.open``).
        compare: a comparison of protocols (``section_data``).
        steps: starts a step after the audit and the figures, and returns its progress callback.

    Returns:
        Plain data.

    Raises:
        InvalidInput: the ledger has unreadable rows.
        LedgerDamaged: a file is corrupted.
    """
    audit = opened.audit().audit
    figures = opened.figures
    found = summary_data(audit, figures, opened.stored.quarantined())
    progress = None if steps is None else steps("looking up examples")
    messages = chosen_messages(opened, found["checks"], figures.worst, progress)
    wanted = [tuple(each[name] for name in LANE) for each in messages]
    wanted += [tuple(row[name] for name in LANE) for check in found["checks"] for row in check["examples"]]
    wanted += [tuple(row[name] for name in LANE) for row in found["incomplete"]["rows"]]
    lanes = lanes_data(figures.lanes, count_lane_findings(audit), wanted)
    _link(found, messages, lanes)
    return {
        "format": FORMAT,
        "lake": _base_name(opened.place),
        "kind": opened.kind,
        **found,
        "input": _input(figures, opened),
        **over_time_data(figures),
        "lanes": lanes,
        "messages": messages,
        "outcomes": _bounded(_select_codes(figures.codes), SHOWN_CODES),
        "value": _value(figures.fees, audit.sums, audit.abroad),
        "run": run_data(opened.place),
        "completeness": found["completeness"] | _completeness(opened, audit),
        "compare": None if compare is None else dict(compare),
    }


def _select_codes(codes: pa.Table) -> pa.Table:
    """Select the outcomes of messages, and the unsuccessful ones of separately counted kinds."""
    apart = pc.is_in(codes["kind"], pa.array(("control", FROM_USERS, FORGED_KIND)))
    failed = pc.is_in(codes["outcome"], pa.array([each.value for each in UNSUCCESSFUL]))
    return codes.filter(pc.or_(pc.invert(apart), failed))


def _base_name(place: str) -> str:
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
    """Add anchors of messages and lanes to the rows that name them."""
    of_lanes = {tuple(row[name] for name in LANE): row["ident"] for row in lanes["rows"]}
    of_messages: dict[MessageKey | None, str] = {row_message_key(each): each["ident"] for each in messages}
    named = [row for check in found["checks"] for row in (*check["examples"], check["first"], check["worst"]) if row]
    for row in named:
        row["message_ident"] = of_messages.get(finding_message_key(row))
    if found["oldest_pending"] is not None:
        found["oldest_pending"]["message_ident"] = of_messages.get(row_message_key(found["oldest_pending"]))
    for row in (*named, *messages, *found["incomplete"]["rows"]):
        row["lane_ident"] = of_lanes.get(tuple(row[name] for name in LANE))


def _value(fees: pa.Table, sums: pa.Table, abroad: pa.Table) -> dict[str, Any]:
    """Return value movements by reason, and sums by lane, those with a difference first."""
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
    """Return exact value movements of all lanes by reason and asset."""
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


def _completeness(opened: OpenedLedger, audit: AuditResult) -> dict[str, Any]:
    """Return the coverage of each chain, the lanes with holes, and the records in quarantine."""
    observed = opened.observed.arrow()
    chains = [vars(each) for each in chain_coverage(audit, observed)]
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
            "rows": [row_to_json(each) for each in chains[:SHOWN_CHAINS]],
            "more": max(0, len(chains) - SHOWN_CHAINS),
        },
        "gaps": _bounded(gaps, SHOWN_WINDOWS),
        "quarantine": rows_to_json(reasons.take(pc.sort_indices(reasons, in_order)).slice(0, SHOWN_CODES)),
        "windows": observed.num_rows,
    }


def _bounded(table: pa.Table, most: int) -> dict[str, Any]:
    return {"rows": rows_to_json(table.slice(0, most)), "more": max(0, table.num_rows - most)}
