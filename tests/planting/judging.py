"""Check that an audit names the planted violations and no others, also with missing input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from causeway.audit.engine import AuditResult
from tests.planting.traffic import Named, Planted
from tests.planting.windows import Cut, without
from tests.spec.audit.ledger import NAMES, Row, lane_of
from tests.support.properties.audit_ledgers import Case, compare

LIMIT = 100_000
"""Number of named findings per lane, check and reason: all."""


def named(found: AuditResult, verdict: str) -> set[Named]:
    """The findings of an audit with this verdict."""
    rows = [row for row in found.violations.to_pylist() if row["verdict"] == verdict]
    return {(row["check"], verdict, row["reason"], tuple(row[name] for name in NAMES), message_of(row)) for row in rows}


def message_of(row: Row) -> Any:
    return row["index"] if row["index"] is not None else row["message_id"]


def judge(case: Case, planted: Iterable[Planted], buckets: int = 1, *, oracle: bool = True) -> AuditResult:
    """Audit formerly honest traffic, compare the violations with the planted ones, and every finding with the
    ``oracle``."""
    found = case.audit(buckets, LIMIT)
    if oracle:
        compare(case, found)
    violated = named(found, "violated")
    expected = {each for one in planted for each in one.violated}
    assert violated == expected, (violated - expected, expected - violated)
    return found


def judge_cut(case: Case, whole: AuditResult, planted: Iterable[Planted], cut: Cut) -> AuditResult:
    """Audit without a part of the input. Nothing is violated of a message of which nothing was, but where half of what
    was planted is missing: what is left of a lie may seem to say something of the lane. What was planted elsewhere is
    found, and what is unknown now is so because of what is missing."""
    left, gone = without(case, cut)
    found = left.audit(1, LIMIT)
    compare(left, found)
    violated, before = named(found, "violated"), named(whole, "violated")
    first, last = cut.heights or (0, 2**64)
    halves = set()
    for one in planted:
        if all(place[0] != cut.chain or place[2] < first or last < place[1] for place in one.evidence):
            assert one.violated <= violated, one
        else:
            halves |= {lane for _, _, _, lane, _ in one.violated} | one.suspects
    was = {each[3:] for each in before}
    new = {each for each in violated if each[3:] not in was and each[3] not in halves}
    assert not new, (cut, new)
    missing = touched(case, gone)
    open_before = {(check, lane, message) for check, _, _, lane, message in named(whole, "unknown")}
    for each in named(found, "unknown"):
        check, _, _, lane, message = each
        if (check, lane, message) in open_before:
            continue
        of_chain = check in ("back_pressure", "headers") and lane[1] == cut.chain
        of_chain |= check == "conservation" and lane[0] is None and cut.chain in lane  # of departed value
        assert of_chain or lane in halves or (lane, message) in was | missing, each
    return found


def touched(case: Case, gone: list[Row]) -> set[tuple[Any, ...]]:
    """The messages of missing rows, and those that ask or answer one of them."""
    found = {(lane_of(row), message_of(row)) for row in gone}
    names = {row.get(name) for row in gone for name in ("message_id", "answers")} - {None}
    return found | {
        (lane_of(row), message_of(row)) for row in case.rows if row["message_id"] in names or row["answers"] in names
    }
