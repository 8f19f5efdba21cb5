"""Indices that a source shares among destinations are missing if no lane has them."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from causeway.audit.backlog import count_lanes
from causeway.audit.checks import lane_order
from causeway.audit.engine import AuditResult
from causeway.audit.json_output import input_figures
from causeway.ledger import parts
from tests.support.properties.audit_ledgers import Case, compare, content

Row = dict[str, Any]


def sent_row(index: int, destination: str | None, source: str = "a", lane: str = "mailbox") -> Row:
    place = {"chain": source, "height": index % 2**40, "time": index % 2**40, "kind": "request", "event": "sent"}
    return {"protocol": "p", "source": source, "destination": destination, "lane": lane, "index": index, **place,
            "payload_hash": content(index % 200)}  # fmt: skip


def ledger(rows: list[Row], *promises: Row) -> Case:
    return Case(rows, [{"chain": "a", "first_time": 0, "last_time": 2**40}], [*(promises or [{"promise": "numbered"}])])


def missing(found: AuditResult) -> dict[tuple[str, int, int], str | None]:
    """Reason, first index and number of missing messages, and the destination of their lane."""
    return {
        (row["reason"], row["index"], int(row["size"])): row["destination"]
        for row in found.violations.to_pylist()
        if row["check"] == "gaps"
    }


@pytest.mark.parametrize("first", [0, 2**18 - 30, 2**64 - 90])
def test_indices_missing_on_one_lane_are_found_on_another(first: int) -> None:
    random = Random(first)
    lost = {first + 7, first + 40, first + 41}
    case = ledger([sent_row(n, random.choice("bcd")) for n in range(first, first + 80) if n not in lost])
    for buckets, cut in ((1, 100_000), (3, 2)):
        with patch.object(parts, "PART_ROWS", cut):
            found = case.audit(buckets)
        compare(case, found)
        assert missing(found) == dict.fromkeys(
            (("missing_on_all_lanes", first + 7, 1), ("missing_on_all_lanes", first + 40, 2))
        )
        assert input_figures(found) == {"lanes": 3, "one_sided_lanes": 3, "missing": 3}
        assert sum(found.completeness["missing"].to_pylist()) == 0 and count_lanes(found) == 3
        assert found.checks["gaps"].lanes == 3 and found.checks["gaps"].examined == 77


def test_no_index_is_missing_if_all_lanes_together_have_it() -> None:
    found = ledger([sent_row(n, "bcd"[n % 3]) for n in range(60)]).audit()
    assert not missing(found) and found.checks["gaps"].verdict == "PASSED"
    assert found.lanes.num_rows == 3 and not any(found.lanes["missing"].to_pylist())


@pytest.mark.parametrize(
    "other",
    [
        [sent_row(n, "c") for n in (5, 6, 8)],  # an index shared by both
        [sent_row(n, "c") for n in (1000, 1001, 1003)],  # together they would lack more
        [sent_row(n, "c", lane="other") for n in (4, 5, 7)],
        [sent_row(n, "c", source="b") for n in (4, 5, 7)],
    ],
    ids=["overlap", "apart", "lane", "source"],
)
def test_separately_numbered_lanes_stay_separate(other: list[Row]) -> None:
    case = ledger([sent_row(n, "b") for n in (1, 2, 3, 6)] + other)
    found = case.audit()
    compare(case, found)
    assert {reason for reason, _, _ in missing(found)} <= set(lane_order.REPLACED_REASONS) and (
        "b" in missing(found).values()
    )


def test_only_numbered_lanes_share_their_indices() -> None:
    rows = [sent_row(n, "bc"[n % 2]) for n in range(10)]
    found = ledger(rows, {"destination": "b", "promise": "numbered"}).audit()
    assert set(missing(found).values()) == {"b"} and len(missing(found)) == 4


def test_lane_without_a_destination_shares_indices() -> None:
    case = ledger([sent_row(n, (None, "b", "c")[n % 3]) for n in range(30) if n != 10])
    found = case.audit(2)
    compare(case, found)
    assert missing(found) == {("missing_on_all_lanes", 10, 1): None}
    (row,) = [row for row in found.lanes.to_pylist() if row["destination"] is None]
    assert (row["messages"], row["missing"], row["missing_runs"]) == (10, 1, 1) and count_lanes(found) == 3


def test_lanes_are_checked_separately_above_the_index_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_order, "MAX_INDICES", 59)
    found = ledger([sent_row(n, "bc"[n % 2]) for n in range(60)]).audit()
    assert len(missing(found)) == 58
