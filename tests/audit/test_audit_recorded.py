"""Audits of recorded traffic: known facts are confirmed, and forged messages are named."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causeway.audit.engine import AuditResult, audit_table
from causeway.audit.passes.bucket_pass import FIGURES
from causeway.audit.verdict import Verdict
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from tests.recordings import Recordings
from tests.support.properties.audit_ledgers import table

SECOND = 1_000_000
LANE = {"protocol": "bridge", "source": "here", "destination": "there", "lane": "1"}
Row = dict[str, Any]


def audited(rows: pa.Table, observed: list[Row], promises: list[Row]) -> AuditResult:
    observed = [{"how": "inferred", "stated_by": "test", **row} for row in observed]
    stated = [{"stated_by": "test", **row} for row in promises]
    return audit_table(rows, table(observed, OBSERVED_SCHEMA), table(stated, PROMISES_SCHEMA))


def bridged(rows: list[Row]) -> AuditResult:
    """Audit rows of a bridge with one window per chain, from its first row to its last."""
    observed = []
    for chain in ("here", "there"):
        times = [row["time"] for row in rows if row["chain"] == chain]
        observed.append({"chain": chain, "first_time": min(times), "last_time": max(times)})
    promises: list[Row] = [{"promise": "numbered"}, {"promise": "ordered_sends"}]
    promises.append({"promise": "final_after", "number": 1800 * SECOND})
    return audited(table(rows, LEDGER_SCHEMA), observed, promises)


def event(side: str, index: int, seconds: int, what: str, row: int) -> Row:
    happened, chain = ("sent", "here") if side == "send" else ("received", "there")
    content = hashlib.sha256(what.encode()).digest()
    own = {"kind": "request", "event": happened, "chain": chain, "time": seconds * SECOND, "payload_hash": content}
    return {**LANE, "index": index, **own, "stated_by": "test", "source_row": row}


def find_rows(found: AuditResult, check: str, verdict: str) -> list[Row]:
    rows = found.violations.to_pylist()
    return [row for row in rows if row["check"] == check and row["verdict"] == verdict]


def test_bridge_with_one_altered_and_five_premature_messages(recordings: Recordings) -> None:
    with recordings.bridge_events.open() as file:
        rows = [
            event(
                r["side"], int(r["nonce"]), int(r["timestamp"]), f"{r['token_dst']},{r['beneficiary']},{r['amount']}", n
            )
            for n, r in enumerate(csv.DictReader(file), start=1)
        ]
    found = bridged(rows)
    lane = found.lanes.to_pylist()[0]
    assert (lane["sent"], lane["received"], lane["matched"], lane["missing"]) == (11_410, 11_417, 11_409, 20)
    assert [(row["index"], row["reason"]) for row in find_rows(found, "authenticity", "violated")] == [
        (11_367, "content_differs")
    ]
    unmatched = find_rows(found, "authenticity", "unknown")
    assert [row["index"] for row in unmatched] == [2164, 2194, 2201, 2203, 2206, 2208, 2216]
    assert {row["reason"] for row in unmatched} == {"missing_in_sequence"}
    assert [(row["index"], row["reason"]) for row in find_rows(found, "exactly_once", "unknown")] == [
        (11_367, "not_received")
    ]
    assert len(find_rows(found, "finality", "violated")) == 5
    verdicts = {name: check.verdict for name, check in found.checks.items() if check.examined}
    assert verdicts == {
        **dict.fromkeys(("authenticity", "finality"), Verdict.FAILED),
        **dict.fromkeys(("exactly_once", "gaps"), Verdict.INCONCLUSIVE),
        **dict.fromkeys(("delivery", "order", "causality"), Verdict.PASSED),
    }


def test_attack_names_forged_messages_and_no_honest_one() -> None:
    random = Random(5)
    rows: list[Row] = []
    forged, again = set(), set()

    def add(side: str, index: int, seconds: int, what: str) -> int:
        rows.append(event(side, index, seconds, what, len(rows)))
        return len(rows) - 1

    for index in range(400):
        seconds = 1000 * index
        add("send", index, seconds, f"honest {index}")
        came = seconds + 1800 + random.randrange(9000)
        add("recv", index, came, f"honest {index}")
        if random.random() < 0.03:
            again.add(add("recv", index, came + 5, f"honest {index}"))
        for number in range(random.choice((0, 0, 0, 0, 1, 2, 40))):
            forged.add(add("recv", index, came + random.randrange(-1000, 1000), f"forged {number % 20}"))
    for index in (400, 401, 9999):
        forged.add(add("recv", index, 200_000, "never sent"))
    found = bridged(rows)
    assert len(forged) > 500 and len(again) > 5
    assert {row["source_row"] for row in find_rows(found, "authenticity", "violated")} == forged
    twice = {row["source_row"] for row in find_rows(found, "exactly_once", "violated")}
    assert again <= twice <= again | forged
    assert not find_rows(found, "finality", "violated") and found.checks["causality"].verdict == "PASSED"
    assert not found.checks["exactly_once"].unknown and not found.checks["authenticity"].unknown


WINDOWS = ((22_500_001, 22_709_000), (22_709_901, 23_054_500), (23_144_450, 23_224_440), (23_500_009, 23_501_000))


def packets(path: Path) -> pa.Table:
    """Ledger rows of packets recorded only on their sender."""
    read = pq.read_table(path)
    tables = []
    for name, happened in (("send", "sent"), ("ack", "acknowledged")):
        own = read.filter(pc.is_valid(read[f"{name}_height"]))
        known = {
            "protocol": pa.array(["packets"] * own.num_rows), "source": own["source_chain"], "lane": own["channel_id"],
            "index": own["sequence"], "kind": pa.array(["request"] * own.num_rows), "chain": own["source_chain"],
            "event": pa.array([happened] * own.num_rows), "height": own[f"{name}_height"],
            "time": own[f"{name}_time"], "stated_by": pa.array(["test"] * own.num_rows),
        }  # fmt: skip
        columns = []
        for field in LEDGER_SCHEMA:
            column = known.get(field.name, pa.nulls(own.num_rows, field.type))
            if pa.types.is_dictionary(field.type):
                column = column.cast(pa.string()).dictionary_encode()
            columns.append(column.cast(field.type))
        tables.append(pa.table(columns, LEDGER_SCHEMA))
    return pa.concat_tables(tables)


def test_one_sided_packets_are_in_order_and_gaps_are_missing_input(recordings: Recordings) -> None:
    rows = packets(recordings.hub_packets)
    observed = [{"chain": "cosmoshub-4", "first_height": a, "last_height": b} for a, b in WINDOWS]
    found = audited(rows, observed, [{"promise": name} for name in ("numbered", "ordered_sends", "answered")])
    total = {name: int(np.sum(found.lanes[name].to_numpy())) for name in FIGURES}
    assert found.lanes.num_rows == 55 and total["sent"] == 161_478
    assert found.checks["order"].verdict == "PASSED" and found.checks["order"].lanes == 55
    assert total["acknowledged_out_of_order"] == 449 and total["sent_out_of_order"] == 0
    assert found.checks["answers"].reasons == {("unknown", "open"): 705}
    assert total["unacknowledged"] == 705 and total["open"] == 705
    waiting = rows.to_pandas()
    last = waiting[waiting["event"] == "acknowledged"][["lane", "index"]]
    waiting = waiting[waiting["event"] == "sent"].merge(last, on=["lane", "index"], how="left", indicator=True)
    oldest = waiting[waiting["_merge"] == "left_only"].groupby("lane", observed=True)["time"].min()
    for lane in found.lanes.select(["lane", "oldest_open", "oldest_unacknowledged"]).to_pylist():
        expected = oldest.get(lane["lane"])
        for name in ("oldest_open", "oldest_unacknowledged"):
            assert lane[name] == (None if pd.isna(expected) else expected), lane
    assert (total["missing_runs_inside_windows"], total["missing_runs"]) == (44, 109)
    inside = [row for row in find_rows(found, "gaps", "unknown") if row["reason"] == "missing_inside_window"]
    assert (len(inside), sum(row["magnitude"] for row in inside)) == (44, 99)
    assert found.holds and all(found.completeness["one_sided"].to_pylist())


def test_journeys_received_twice_or_received_after_a_timeout(recordings: Recordings) -> None:
    lines = recordings.xcm_journeys.read_text().splitlines()
    events = {"xcm.sent": "sent", "xcm.relayed": "relayed", "xcm.received": "received", "xcm.timeout": "observed"}
    rows = []
    for number, line in enumerate(lines, start=1):
        said = json.loads(line)
        lane = {
            "protocol": "journeys",
            "source": said["origin"]["chainId"],
            "destination": said["destination"]["chainId"],
        }
        rows.append(
            {
                **lane,
                "message_id": said["messageId"],
                "kind": "request",
                "event": events[said["type"]],
                "chain": said["waypoint"]["chainId"],
                "height": int(said["waypoint"]["blockNumber"]),
                "time": said["waypoint"]["timestamp"] * 1000,
                "stated_by": "test",
                "source_row": number,
                "detail": "timeout" if said["type"] == "xcm.timeout" else None,
            }
        )
    honest = audited(table(rows, LEDGER_SCHEMA), [], [])
    total = {name: sum(honest.lanes[name].to_pylist()) for name in ("messages", "sent", "received", "matched", "open")}
    assert total == {"messages": 18, "sent": 16, "received": 15, "matched": 15, "open": 1}
    assert [each.reasons for each in honest.checks.values() if each.name == "exactly_once"] == [
        {("unknown", "timeout_observed"): 2, ("unknown", "not_received"): 1}
    ]
    receipts = [row for row in rows if row["event"] == "received"]
    twice = {**receipts[0], "time": receipts[0]["time"] + 1, "height": receipts[0]["height"] + 1, "source_row": 100}
    late = {**receipts[1], "event": "observed", "detail": "timeout", "source_row": 101}
    found = audited(table([*rows, twice, late], LEDGER_SCHEMA), [], [])
    assert [row["source_row"] for row in find_rows(found, "exactly_once", "violated")] == [100]
    reasons = {row["reason"]: row["message_id"] for row in find_rows(found, "exactly_once", "unknown")}
    assert reasons["timeout_observed_and_received"] == receipts[1]["message_id"]
