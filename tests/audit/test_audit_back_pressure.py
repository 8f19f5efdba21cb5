"""``back_pressure``: in-flight messages of a lane, across parts and input gaps."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from causeway.audit.checks import back_pressure
from causeway.audit.passes import cross_bucket_join, inflight
from causeway.ledger import parts
from tests.support.properties.audit_ledgers import Case, compare

LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "x"}
Row = dict[str, Any]


def row(event: str, index: int, height: int | None, **more: Any) -> Row:
    known = {"message_id": None, "kind": "request", "position": None, "payload_hash": None, "asset": None}
    at = {"height": height, "time": None, "amount": None, "detail": None, "answers": None}
    return {**LANE, **known, **at, "index": index, "event": event, "chain": "a", **more}


def case(rows: list[Row], last: int, capacity: int) -> Case:
    observed: list[Row] = [{"chain": "a", "first_height": 1, "last_height": last}]
    return Case(rows, observed, [{**LANE, "promise": "capacity", "number": capacity}])


def test_over_capacity_message_is_named_and_an_end_frees_capacity() -> None:
    rows = [row("sent", number, 9 + number) for number in (1, 2, 3)]
    found = case([*rows, row("acknowledged", 1, 12)], 20, 2).audit()
    assert found.checks["back_pressure"].verdict == "PASSED"
    found = case([*rows, row("acknowledged", 1, 13)], 20, 2).audit()
    (named,) = [each for each in found.violations.to_pylist() if each["check"] == "back_pressure"]
    assert (named["reason"], named["index"], named["magnitude"], named["event"]) == ("over_capacity", 3, 1.0, "sent")
    assert found.checks["back_pressure"].violated == 1


def test_any_capacity_guarantee_is_accepted() -> None:
    assert case([row("sent", 1, 9)], 20, 2**64 - 1).audit().checks["back_pressure"].verdict == "PASSED"
    assert case([row("sent", 1, 9)], 20, 0).audit().checks["back_pressure"].violated == 1


def test_back_pressure_is_unknown_if_ends_may_be_missing() -> None:
    rows = [row("sent", number, 9 + number) for number in (1, 2, 3)]
    found = case(rows, 11, 2).audit()
    assert found.checks["back_pressure"].reasons == {("unknown", "ends_not_covered"): 1}


@pytest.mark.parametrize("parts_of", [100_000, 1, 3])
def test_lane_over_many_parts_and_buckets_is_audited_as_one(parts_of: int) -> None:
    draw, rows = Random(parts_of), []
    for number in range(60):
        index = number * 2**16  # four per segment
        sent = 10 + number // 2
        rows.append(row("sent", index, sent))
        if draw.random() < 0.9:
            event = draw.choice(["acknowledged", "collected", "rejected", "timed_out", "dropped"])
            rows.append(row(event, index, sent + draw.randrange(8)))
    given = case(rows, 38, 6)
    with patch.object(parts, "PART_ROWS", parts_of):
        found = given.audit(5)
    compare(given, found)
    assert found.checks["back_pressure"].violated and found.checks["back_pressure"].unknown
    assert found.violations.equals(given.audit(1).violations)


@pytest.mark.parametrize("seed", range(6))
def test_large_lane_is_audited_in_ranges_spilled_to_a_file(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, rows = Random(seed), []
    for number in range(200):
        named = {"index": None, "message_id": f"message-{number}"} if draw.random() < 0.3 else {}
        index = draw.choice((number, 2**64 - 1 - number, number * 2**17))
        sent, chain = draw.choice((10, number // 8, draw.randrange(40))), draw.choice(("a", "a", "b"))
        rows.append({**row("sent", index, sent), **named})
        if draw.random() < 0.9:
            end = row(draw.choice(["acknowledged", "dropped"]), index, sent + draw.randrange(9))
            rows.append({**end, **named, "chain": chain})
    if seed == 3:
        rows[0]["height"] = None  # so that the few times count
        for number, each in enumerate(rows[:300]):
            each["time"] = number // 3
    given = case(rows, 38, 8)
    whole = given.audit()
    for name, value in (("RANGE_COLUMNS", 7), ("PART_RECORDS", 13), ("MEMORY_BYTES", 1), ("STEP", 2), ("POINTS", 50)):
        module = {"RANGE_COLUMNS": inflight, "STEP": back_pressure, "POINTS": back_pressure}.get(
            name, cross_bucket_join
        )
        monkeypatch.setattr(module, name, value)
    most = 0

    def met(self: cross_bucket_join.JoinPlan, pieces: Any) -> Any:
        nonlocal most
        own = [*pieces]
        most = max(most, sum(table.num_rows for kind, table in own if kind == "flights"))
        return before(self, own)

    before = cross_bucket_join.JoinPlan.met
    monkeypatch.setattr(cross_bucket_join.JoinPlan, "met", met)
    monkeypatch.setattr(parts, "PART_ROWS", 30)
    found = given.audit(4)
    compare(given, found)
    assert found.violations.equals(whole.violations)
    own = found.checks["back_pressure"]
    assert (own.unknown if seed == 3 else own.violated) and 0 < most < 100


def test_messages_are_not_retained_below_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most four of 3,000 messages are in flight according to the run summaries."""
    rows = [row("sent", number, number) for number in range(3000)]
    rows += [row("acknowledged", number, number + 3) for number in range(3000)]
    monkeypatch.setattr(parts, "PART_ROWS", 500)

    def none(*_: Any) -> None:
        raise AssertionError("messages were kept")

    monkeypatch.setattr(cross_bucket_join.JoinPlan, "pieces", none)
    assert case(rows, 4000, 8).audit(2).checks["back_pressure"].verdict == "PASSED"
    with pytest.raises(AssertionError, match="were kept"):
        case(rows, 4000, 2).audit(2)


def test_message_with_an_untimed_end_is_not_certainly_in_flight() -> None:
    rows = [row("sent", 1, 1), row("acknowledged", 1, None), row("sent", 2, 4)]
    timed = [{**each, "time": 10 * number} for number, each in enumerate(rows)]
    timed[1]["time"] = None
    given = case(timed, 20, 1)
    for each in given.observed:
        each.update(first_time=0, last_time=1000)
    found = given.audit()
    compare(given, found)
    assert found.checks["back_pressure"].reasons == {("unknown", "ends_not_covered"): 1}
