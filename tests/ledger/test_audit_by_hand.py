"""Audits of small hand-written ledgers with evident results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.audit.checks import delivery
from causeway.audit.engine import AuditResult, audit_table
from causeway.audit.passes import cross_bucket_join
from causeway.ledger.schema import (
    CLOCK_TOLERANCE,
    HEADERS_SCHEMA,
    LEDGER_SCHEMA,
    OBSERVED_SCHEMA,
    PROMISES_SCHEMA,
    REPORTER_COLUMN,
    RESTARTED,
)
from tests.support.properties.audit_ledgers import content, table

Row = dict[str, Any]
LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "x"}
AT_DESTINATION = ("received", "executed", "answered", "rejected")


def event_row(index: int | None, event: str, at: int, **known: Any) -> Row:
    """An event at height ``at`` of its chain, with the time in seconds."""
    chain = "b" if event in AT_DESTINATION else "a"
    row = {**LANE, "index": index, "kind": "request", "event": event, "chain": chain, "height": at, "stated_by": "test"}
    return {**row, "time": at * 1_000_000, "payload_hash": content(1), **known}


def window(chain: str, first: int, last: int, **known: Any) -> Row:
    own = {"first_height": first, "last_height": last, "how": "declared", "stated_by": "test"}
    return {"chain": chain, **own, "first_time": first * 1_000_000, "last_time": last * 1_000_000, **known}


WHOLE = (window("a", 1, 1000), window("b", 1, 1000))


def promised(*names: str | tuple[str, int]) -> list[Row]:
    pairs = [(name, None) if isinstance(name, str) else name for name in names]
    return [{**LANE, "promise": name, "number": number, "stated_by": "test"} for name, number in pairs]


def of_chain(chain: str, promise: str, number: int | None = None) -> Row:
    return {"source": chain, "promise": promise, "number": number, "stated_by": "test"}


def audited(
    rows: Iterable[Row], promises: Iterable[Row] = (), observed: Iterable[Row] = WHOLE, **tables: Any
) -> AuditResult:
    numbered = [{**row, "source_row": number} for number, row in enumerate(rows, start=1)]
    given = table(observed, OBSERVED_SCHEMA), table(promises, PROMISES_SCHEMA)
    return audit_table(table(numbered, LEDGER_SCHEMA), *given, **tables)


def findings_of(found: AuditResult, check: str) -> list[tuple[str, str, int | None, int | None]]:
    """Verdict, reason, index and row of the findings of a check."""
    rows = [row for row in found.violations.to_pylist() if row["check"] == check]
    return [(row["verdict"], row["reason"], row["index"], row["source_row"]) for row in rows]


def test_timeout_in_an_input_gap_is_not_a_skipped_message() -> None:
    rows = [event_row(index, "sent", index) for index in (1, 2, 3)]
    rows += [event_row(index, "received", index + 10) for index in (1, 3)]
    ordered = promised("ordered_receives")
    assert findings_of(audited([*rows, event_row(2, "timed_out", 20)], ordered), "gaps") == []
    assert findings_of(audited(rows, ordered), "gaps") == [("violated", "skipped", 2, None)]
    cut = [window("a", 1, 15), window("a", 25, 1000), window("b", 1, 1000)]
    assert findings_of(audited(rows, ordered, cut), "gaps") == [("unknown", "skipped_not_covered", 2, None)]
    cut = [window("a", 1, 1000, events=["sent"]), window("b", 1, 1000)]
    assert findings_of(audited(rows, ordered, cut), "gaps") == [("unknown", "skipped_not_covered", 2, None)]
    cut = [window("a", 1, 1000), window("b", 1, 1000, events=["received"])]
    assert findings_of(audited(rows, ordered, cut), "gaps") == [("unknown", "skipped_not_covered", 2, None)]


def test_possible_timeout_after_the_input_of_the_source_is_not_skipped() -> None:
    for far in (0, 2**18):  # in one segment, and in two
        rows = [event_row(index, "sent", index % 10) for index in (1, 2, far + 3)]
        rows += [event_row(1, "received", 5), event_row(far + 3, "received", 50)]
        ordered, there = promised("ordered_receives"), window("b", 0, 90)
        for last, found in ((49, "skipped_not_covered"), (50, "skipped")):
            verdict = "unknown" if found == "skipped_not_covered" else "violated"
            assert findings_of(audited(rows, ordered, [window("a", 0, last), there]), "gaps") == [
                (verdict, found, 2, None)
            ]
        not_covered = [("unknown", "skipped_not_covered", 2, None)]
        cut = [window("a", 0, 90, events=["sent", "dropped", "rejected"])]
        cut += [window("a", 0, 49, events=["timed_out"]), there]
        assert findings_of(audited(rows, ordered, cut), "gaps") == not_covered
        in_heights = [window("a", 0, 90, first_time=None, last_time=None), there]
        assert findings_of(audited(rows, ordered, in_heights), "gaps") == not_covered
        untimed = [*rows[:-1], {**rows[-1], "time": None}]
        assert findings_of(audited(untimed, ordered, [window("a", 0, 90), there]), "gaps") == not_covered


def test_unsent_index_is_received_once_with_any_content() -> None:
    rows = [event_row(index, "sent", index) for index in (1, 3)]
    rows += [
        event_row(2, "received", at, payload_hash=content(number)) for at, number in ((14, 7), (13, 8), (12, None))
    ]
    found = audited(rows, promised("numbered"))
    assert findings_of(found, "exactly_once")[:1] == [("violated", "received_again", 2, 3)]
    assert findings_of(found, "authenticity")[0] == ("violated", "number_reused", 2, None)
    assert {verdict for verdict, *_ in findings_of(found, "authenticity")[1:]} == {"unknown"}
    sent = event_row(2, "sent", 2, payload_hash=content(7))
    assert findings_of(audited([*rows, sent], promised("numbered")), "exactly_once") == [
        ("noted", "not_arrived", 1, 1),
        ("noted", "not_arrived", 3, 2),
    ]


def test_copy_before_the_send_or_its_finality_is_named_instead_of_the_receipt() -> None:
    final = promised(("final_after", 30_000_000))
    sent, early, soon, honest, late = (
        event_row(5, "sent", 100),
        *(event_row(5, "received", at) for at in (50, 110, 140, 150)),
    )
    again = ("violated", "received_again", 5)
    found = audited([sent, early, honest], final)
    assert findings_of(found, "exactly_once") == [(*again, 2)] and findings_of(found, "finality") == []
    assert findings_of(found, "causality") == [("violated", "received_before_sent", 5, 2)]
    found = audited([sent, late, honest, soon, early], final)
    assert sorted(findings_of(found, "exactly_once")) == [(*again, row) for row in (2, 4, 5)]
    assert findings_of(found, "finality") == []
    # If none is final, the first one not before the send counts; if all are before it, the first of them.
    found = audited([sent, soon, early])
    assert findings_of(found, "exactly_once") == [(*again, 3)]
    found = audited([sent, soon, event_row(5, "received", 111), early], final)
    assert sorted(findings_of(found, "exactly_once")) == [(*again, 3), (*again, 4)]
    assert findings_of(found, "finality") == [("violated", "too_early", 5, 2)]
    found = audited([sent, event_row(5, "received", 60), early], final)
    assert findings_of(found, "exactly_once") == [(*again, 2)] and findings_of(found, "finality")[0][3] == 3
    # An unrecorded time is not too early, and heights count on one chain alone.
    found = audited([sent, soon, {**honest, "time": None}], final)
    assert findings_of(found, "exactly_once") == [(*again, 2)] and findings_of(found, "finality") == [
        ("unknown", "time_unseen", 5, 3)
    ]
    here = [{**row, "chain": "a"} for row in (sent, {**early, "time": 200_000_000}, {**honest, "time": 90_000_000})]
    assert findings_of(audited(here), "exactly_once") == [(*again, 2)]
    # Only the sent content decides which is right.
    assert findings_of(audited([early, honest], final), "exactly_once") == [(*again, 2)]
    many = [event_row(5, "received", 101 + n) for n in range(40)]
    assert {row[3] for row in findings_of(audited([sent, early, *many]), "exactly_once")} == {2, *range(4, 43)}


def test_first_receipt_is_retained_if_no_send_has_its_content() -> None:
    sent = event_row(5, "sent", 100, payload_hash=None)
    rows = [event_row(5, "received", at, payload_hash=content(at)) for at in (50, 110, 120)]
    found = audited([sent, *rows])
    assert findings_of(found, "exactly_once") == [("violated", "received_again", 5, row) for row in (2, 4)]
    found = audited([sent, rows[0], {**rows[1], "payload_hash": None}, rows[2]])
    assert findings_of(found, "exactly_once") == [("violated", "received_again", 5, 4)]


def test_repeated_receipts_exceed_the_sent_amount() -> None:
    amount = {"asset": "gold", "amount_0": 7, "amount_1": 0, "amount_2": 0, "amount_3": 0}
    rows = [event_row(5, "sent", 100, **amount), *(event_row(5, "received", at, **amount) for at in (50, 140))]
    found = audited(rows, promised("conserved"))
    assert findings_of(found, "conservation") == [("violated", "more_received", 5, 2)]


def test_repeated_acknowledgement_is_harmless_for_a_message_received_once() -> None:
    def acknowledged(again: str | None, *others: Row) -> list[str]:
        rows = [event_row(1, "sent", 1), event_row(1, "acknowledged", 9, transaction="t"), *others]
        rows.append(event_row(1, "acknowledged", 12, transaction=again))
        return [reason for _, reason, _, _ in findings_of(audited(rows), "exactly_once")]

    came = event_row(1, "received", 5, transaction="r")
    assert acknowledged("u", came) == ["redundant_relay"]
    assert acknowledged("t", came) == acknowledged(None, came) == ["acknowledged_again"]
    assert acknowledged("u") == ["acknowledged_again"]
    twice = (came, event_row(1, "received", 6, transaction="s"))
    assert acknowledged("u", *twice) == ["acknowledged_again", "received_again"]
    executed = [event_row(1, "executed", 5 + n, transaction=f"e{n}") for n in (0, 1)]
    assert acknowledged("u", came, *executed) == ["acknowledged_again", "executed_again"]


def inferred(*spans: tuple[str, int, int], events: list[str] | None = None) -> list[Row]:
    return [window(chain, first, last, how="inferred", events=events) for chain, first, last in spans]


def test_open_message_is_judged_in_the_window_of_its_send() -> None:
    def judged(*windows: Row, came: bool = False) -> dict[int, str]:
        rows = [event_row(at, "sent", at) for at in (2, 8, 15, 22, 38)]
        rows += [event_row(1, "sent", 1), event_row(1, "received", 3)] * came
        found = audited(rows, promised(("received", 5_000_000)), windows)
        reasons = ("overdue", "arrival_not_covered", "ends_not_recorded", "pending")
        return {index: reason for _, reason, index, _ in findings_of(found, "delivery") if reason in reasons and index}

    hole = ("b", 1, 10), ("b", 20, 40)
    expected = {2: "overdue", 8: "arrival_not_covered", 15: "arrival_not_covered", 22: "overdue", 38: "pending"}
    assert judged(*inferred(("a", 1, 40), *hole)) == expected
    # Heights alone do not give the end time of a window.
    heights = [{**each, "first_time": None, "last_time": None} for each in inferred(*hole)]
    assert judged(*inferred(("a", 1, 40)), *heights) == dict.fromkeys(expected, "arrival_not_covered")
    # The first window covers sends up to a deadline before it.
    late = inferred(("a", 1, 40), ("b", 19, 30), ("b", 35, 40))
    assert judged(*late) == expected | {2: "arrival_not_covered", 15: "overdue"}
    # One window: the input may end later than its last row.
    assert judged(*inferred(("a", 1, 40), ("b", 1, 10))) == dict.fromkeys(expected, "overdue") | {38: "pending"}
    # The rows of a chain as a source do not cover its arrivals.
    source = inferred(("a", 1, 10), ("a", 15, 40)) + inferred(("b", 1, 40), events=["sent"])
    assert judged(*source, came=True) == expected | {15: "overdue"}
    assert judged(*source) == {at: "ends_not_recorded" if why == "overdue" else why for at, why in expected.items()} | {
        15: "ends_not_recorded"
    }


def test_reply_is_expected_in_the_window_of_its_request() -> None:
    rows = [event_row(at, "sent", at) for at in (2, 8, 22, 38)]
    found = audited(rows, promised(("answered", 5_000_000)), inferred(("a", 1, 10), ("a", 20, 40)))
    assert {index: reason for _, reason, index, _ in findings_of(found, "answers")} == {
        2: "unanswered", 8: "open", 22: "unanswered", 38: "open",
    }  # fmt: skip


def test_acknowledgement_needs_a_receipt_only_if_receipts_are_recorded() -> None:
    rows = [event_row(1, "sent", 2), event_row(1, "acknowledged", 9)]
    chains = inferred(("a", 1, 40), events=["sent", "acknowledged"])
    for events, expected in ((["sent"], []), (["received", "sent"], [("violated", "acknowledged_not_received", 1, 2)])):
        assert findings_of(audited(rows, (), chains + inferred(("b", 1, 40), events=events)), "agreement") == expected


def test_timeout_is_too_early_if_any_lane_has_a_lower_height_later(monkeypatch: pytest.MonkeyPatch) -> None:
    late, early = ("violated", "timed_out_too_early", 1, 2), ("unknown", "not_compared", 1, 2)

    def judged(height: int, *promises: Row, **other: Any) -> list[tuple[str, str, int | None, int | None]]:
        rows = [event_row(1, "sent", 2, timeout_height=50), event_row(1, "timed_out", 9)]
        seen = {"height": height, "message_id": None, "lane": "other", **other}
        rows += [event_row(2, "sent", 3, timeout_height=90, lane="other"), event_row(2, "received", 12, **seen)]
        return findings_of(audited(rows, promises), "agreement")

    assert judged(49) == [late] and judged(50) == []
    assert judged(49, of_chain("b", CLOCK_TOLERANCE, 2_999_999)) == [late]
    assert judged(49, of_chain("b", CLOCK_TOLERANCE, 3_000_000)) == []
    assert judged(49, of_chain("b", RESTARTED)) == []  # its heights prove nothing
    assert judged(49, destination="c") == []  # of the chain of another lane
    monkeypatch.setattr(delivery, "MAX_HEIGHTS", 0)
    assert judged(49) == [early]


def test_message_with_a_continuation_is_not_overdue() -> None:
    def judged(*promise: str | tuple[str, int], **other: Any) -> list[tuple[str, int | None]]:
        hop = {**event_row(7, "sent", 12, message_id="f", continues="t"), "lane": "hop", **other}
        rows = [event_row(1, "sent", 2, message_id="t"), event_row(2, "sent", 3, message_id="u"), hop]
        found = findings_of(audited(rows, promised(*promise)), "delivery")
        return [(reason, index) for _, reason, index, _ in found if index in (1, 2)]

    assert judged(("received", 5_000_000)) == [("overdue", 2), ("carried_on", 1)]
    assert judged("settled") == [("lost", 2), ("carried_on", 1)]
    assert judged("settled", time=1_000_000) == [("lost", 1), ("lost", 2)]  # sent before it
    # Of another protocol, or not sent.
    assert judged("settled", protocol="q") == judged("settled", event="observed") == [("lost", 1), ("lost", 2)]


@pytest.mark.parametrize("length", [1, 2, 5])
def test_messages_that_continue_each_other_in_a_cycle_are_lost(length: int) -> None:
    def judged(ends: bool) -> list[tuple[str, int | None]]:
        rows = [
            event_row(n, "sent", 2, message_id=f"m{n}", continues=f"m{(n + 1) % length}") for n in range(length + ends)
        ]
        if ends:
            rows[0] |= {"continues": None}
        found = findings_of(audited(rows, promised("settled")), "delivery")
        return [(reason, index) for _, reason, index, _ in found]

    assert judged(False) == [("lost", index) for index in range(length)]
    assert ("carried_on", 0) in judged(True) or length == 1


@pytest.mark.parametrize(
    ("reason", "events"),
    [
        ("executed_and_timed_out", [("executed", {}), ("timed_out", {})]),
        ("executed_and_timed_out", [("failed", {}), ("timed_out", {})]),
        ("executed_and_refunded", [("executed", {}), ("acknowledged", {"code": 1}), ("refunded", {})]),
        ("executed_and_refunded", [("executed", {}), ("refunded", {"asset": "gold", "amount": 5})]),
        (None, [("executed", {}), ("refunded", {"asset": "gold", "amount": 4})]),
        (None, [("executed", {"code": 1}), ("acknowledged", {"code": 1}), ("refunded", {})]),
        (None, [("executed", {}), ("answered", {"code": 1}), ("acknowledged", {"code": 1}), ("refunded", {})]),
        ("executed_and_failed", [("executed", {}), ("failed", {})]),
        ("executed_and_rejected", [("executed", {}), ("rejected", {})]),
        (None, [("executed", {}), ("rejected", {"chain": "a"})]),
        ("failed_and_acknowledged", [("failed", {}), ("acknowledged", {"code": 0})]),
        (None, [("failed", {}), ("acknowledged", {})]),
        (None, [("executed", {}), ("acknowledged", {"code": 1})]),
        ("acknowledged_another_answer", [("answered", {"code": 0}), ("acknowledged", {"code": 1})]),
        ("acknowledged_another_answer", [("answered", {"code": 1}), ("acknowledged", {"code": 0})]),
        ("refund_exceeds_amount", [("timed_out", {}), ("refunded", {"asset": "gold", "amount": 6})]),
        ("refund_exceeds_amount", [("timed_out", {}), ("refunded", {"asset": "gold", "amount": 2**70})]),
        (None, [("timed_out", {}), ("refunded", {"asset": "silver", "amount": 6})]),
    ],
)
def test_mutually_exclusive_endings_of_a_message_are_named(reason: str | None, events: list[tuple[str, Row]]) -> None:
    rows = [event_row(1, "sent", 2, asset="gold", amount=5)]
    rows += [event_row(1, event, 3 + at, **known) for at, (event, known) in enumerate(events)]
    found = [verdict + " " + reason for verdict, reason, *_ in findings_of(audited(rows), "agreement")]
    unseen = ["unknown receipt_not_covered"]
    assert [each for each in found if each not in unseen] == ([] if reason is None else [f"violated {reason}"])


def test_acknowledgement_without_receipt_is_unknown_on_a_lane_with_arrivals() -> None:
    rows = [event_row(1, "sent", 2), event_row(1, "acknowledged", 9), event_row(2, "sent", 3)]
    arrived = [event_row(2, "received", 12)]
    assert findings_of(audited(rows, observed=()), "agreement") == []  # the input does not cover the destination
    found = findings_of(audited([*rows, *arrived], observed=inferred(("a", 1, 40))), "agreement")
    assert found == [("unknown", "receipt_not_covered", 1, 2)]


def test_lost_messages_are_unknown_above_the_continuation_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MAX_NAMES", 1)
    before = (None, None, "m1", "m2")
    rows = [event_row(n, "sent", 2 + n, message_id=f"m{n}", continues=name) for n, name in enumerate(before)]
    found = findings_of(audited(rows, promised("settled")), "delivery")
    assert sorted((verdict, reason, index) for verdict, reason, index, _ in found) == [
        ("unknown", "not_compared", index) for index in range(4)
    ]


def test_protocol_messages_are_not_lost() -> None:
    rows = [event_row(1, "sent", 1), event_row(2, "sent", 2, kind="control")]
    found = audited(rows, promised("settled"))
    assert findings_of(found, "delivery") == [("violated", "lost", 1, 1)] and found.checks["delivery"].examined == 1


def test_revert_in_an_input_gap_reverts_no_later_event() -> None:
    ordered = promised("numbered", "ordered_sends", "ordered_receives")
    sent = [event_row(index, "sent", at) for index, at in ((4, 1), (5, 1), (6, 2))]
    received = [event_row(index, "received", at) for index, at in ((4, 6), (5, 8), (6, 9))]

    def back(at: int, **known: Any) -> Row:
        return event_row(5, "reverted", at, chain="b", detail="received", **known)

    holes = [window("a", 0, 20), window("b", 6, 20)]
    not_received = ("unknown", "not_received", 5, 2)
    found = audited([*sent, *received, back(7)], ordered, holes)
    assert not [check for check in found.checks.values() if check.verdict == "FAILED"]
    assert findings_of(found, "exactly_once") == []
    assert findings_of(audited([*sent, *received, back(8)], ordered, holes), "exactly_once") == [not_received]
    # Heights do not ascend over a fork, times do; an unrecorded one may be any.
    untimed = {"height": None, "time": None}
    for known, gone in (
        ({"height": None}, False),
        ({"height": None, "time": 8_000_000}, True),
        (untimed, True),
        ({"time": None}, True),
        ({"height": 20}, False),
        ({"height": 3, "time": 8_000_000}, True),
    ):
        found = audited([*sent, *received, back(7, **known)], ordered, holes)
        assert findings_of(found, "exactly_once") == ([not_received] if gone else []), known
    # Of several, the earliest remaining one not after it; reverts apply in their order.
    sent, twice = [event_row(5, "sent", 1)], [event_row(5, "received", at) for at in (4, 6, 9)]
    assert findings_of(audited([*sent, *twice, back(5), back(7)], ordered, holes), "exactly_once") == []
    assert findings_of(audited([*sent, *twice, back(5), back(5)], ordered, holes), "exactly_once") == [
        ("violated", "received_again", 5, 4)
    ]


def test_index_received_before_its_lane_reached_it_was_not_sent() -> None:
    for far in (0, 2**18):  # in one segment, and in two
        rows = [event_row(far + index, "sent", 10 * index) for index in (1, 2, 4)]
        rows += [event_row(far + 3, "received", at) for at in (19, 21)]
        rows += [event_row(9, "sent", 5)] if far else []
        promises = promised("numbered", "ordered_sends")
        assert findings_of(audited(rows, promises), "authenticity") == [
            ("violated", "not_sent_yet", far + 3, 4),
            ("unknown", "missing_in_sequence", far + 3, 5),
        ]
        assert findings_of(audited(rows, promised("numbered")), "authenticity")[0][:2] == (
            "unknown",
            "missing_in_sequence",
        )
    last = [event_row(7, "sent", 100), event_row(2**18 + 7, "received", 50), event_row(2**19, "sent", 200)]
    assert ("violated", "not_sent_yet", 2**18 + 7, 2) in findings_of(
        audited(last, promised("ordered_sends")), "authenticity"
    )


CALLS = {"protocol": "q", "source": "a", "destination": "b", "lane": "calls"}
REPLIES = {"protocol": "q", "source": "b", "destination": "a", "lane": "replies"}


def request_row(index: int, at: int, **known: Any) -> Row:
    return event_row(index, "sent", at, **CALLS, message_id=f"call {index}", **known)


def replied(index: int, call: int, at: int, **known: Any) -> Row:
    own = {"message_id": f"reply {index}", "answers": f"call {call}", "kind": "response", "chain": "a"}
    return {**event_row(index, "received", at), **REPLIES, **own, **known}


def in_time(limit: int) -> list[Row]:
    return [{**CALLS, "promise": "answered", "number": limit * 1_000_000, "stated_by": "test"}]


def test_requests_are_answered_over_other_lanes_by_the_deadline_or_not() -> None:
    rows = [request_row(1, 10), request_row(2, 10), request_row(3, 10), request_row(4, 990)]
    rows += [replied(1, 1, 15), replied(2, 2, 40)]
    found = audited(rows, in_time(20))
    assert findings_of(found, "answers") == [
        ("violated", "late", 2, 6),
        ("violated", "unanswered", 3, 3),
        ("noted", "pending", 4, 4),
    ]
    own = [row for row in found.violations.to_pylist() if row["check"] == "answers"]
    late, unanswered = (row["magnitude"] for row in own if row["verdict"] == "violated")
    assert (late, unanswered) == (30_000_000, 990_000_000)
    assert found.checks["answers"].examined == 4 and found.checks["answers"].violated == 2
    assert found.checks["answers_without_request"].verdict == "PASSED"
    # Which chain would record a response, and which only an acknowledgement?
    seen = [window("a", 1, 1000, events=["sent", "acknowledged", "timed_out"]), window("b", 1, 1000)]
    not_seen = [("unknown", "open", 3, 3), ("unknown", "open", 4, 4)]
    assert findings_of(audited(rows, in_time(20), seen), "answers")[1:] == not_seen


def test_first_of_two_replies_counts_and_the_second_is_a_duplicate() -> None:
    rows = [request_row(1, 10), replied(7, 1, 30), replied(8, 1, 15, kind="reject"), replied(9, 1, 15, chain="b")]
    found = audited(rows, in_time(10))
    assert findings_of(found, "answers") == []
    assert ("violated", "answered_twice", 7, 2) in findings_of(found, "exactly_once")
    own = event_row(1, "acknowledged", 12, **CALLS)
    assert findings_of(audited([request_row(1, 10), replied(7, 1, 30), own], in_time(10)), "answers") == []


def test_response_without_a_request_is_wrong_if_requests_are_recorded() -> None:
    rows = [request_row(1, 10), replied(1, 1, 20), replied(2, 5, 20)]
    assert findings_of(audited(rows), "answers_without_request") == [("violated", "no_request", 2, 3)]
    late = [window("a", 5, 1000), window("b", 1, 1000)]
    assert findings_of(audited(rows, (), late), "answers_without_request") == [("unknown", "request_not_covered", 2, 3)]
    other = [request_row(1, 10), replied(1, 1, 20), {**request_row(5, 10), "protocol": "other"}, replied(2, 5, 20)]
    assert findings_of(audited(other), "answers_without_request") == [("violated", "no_request", 2, 4)]


def test_response_follows_a_migrated_caller() -> None:
    """The end of the request names the chain; a response to another chain answers no request."""
    back = {"source": "b", "lane": "y", "kind": "response", "answers": "m1"}
    request = [event_row(1, "sent", 5, message_id="m1"), event_row(1, "acknowledged", 9, message_id="m1", chain="c")]
    windows = [window(chain, 1, 1000) for chain in "abc"]
    for chain, wrong in (("c", []), ("d", [("unknown", "request_not_covered", 1, 3)])):
        response = event_row(1, "received", 9, chain=chain, **{**back, "destination": chain})
        assert findings_of(audited([*request, response], (), windows), "answers_without_request") == wrong
    response = event_row(1, "received", 9, chain="c", **back, destination="c")
    request[1]["chain"] = "a"
    found = findings_of(audited([*request, response], (), windows), "answers_without_request")
    assert found == [("violated", "no_request", 1, 3)]


def test_response_counts_on_the_chain_of_its_caller() -> None:
    """An end on another chain does not identify the caller: a request in another lane of that chain depends only on
    its own lane."""
    back = {"source": "b", "destination": "a", "lane": "y"}
    rows = [event_row(1, "sent", 5), event_row(1, "received", 9, kind="response", answers="r", chain="b", **back)]
    windows = [window("a", 1, 1000, **LANE)]
    found = audited(rows, promised(("answered", 1_000_000)), windows)
    assert findings_of(found, "answers") == [("violated", "unanswered", 1, 1)]
    rows[1]["chain"] = "a"
    assert findings_of(audited(rows, promised(("answered", 1_000_000)), windows), "answers") == [
        ("unknown", "open", 1, 1)
    ]


def test_cross_bucket_joins_may_spill_and_run_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [request_row(index, 10) for index in range(200)]
    rows += [replied(1000 + index, index % 150, 15 + index) for index in range(199, 0, -1)]
    whole = audited(rows, in_time(100))
    monkeypatch.setattr(cross_bucket_join, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(cross_bucket_join, "PART_RECORDS", 10)
    apart = audited(rows, in_time(100))
    assert apart.checks == whole.checks and apart.violations.equals(whole.violations)
    assert apart.checks["exactly_once"].reasons["violated", "answered_twice"] == 49


def test_message_without_a_lane_has_no_unrecorded_end() -> None:
    """A lane with one known end has another one, also if that has no name."""
    nowhere = {"source": None, "destination": None, "lane": None, "message_id": "m"}
    rows = [event_row(None, "executed", 3, **nowhere), event_row(1, "sent", 1)]
    rows += [event_row(None, "executed", 4, **{**nowhere, "destination": "b"})]
    shown = [(row["source"], row["destination"], row["one_sided"]) for row in audited(rows).completeness.to_pylist()]
    assert shown == [(None, None, False), (None, "b", True), ("a", "b", True)]


@pytest.mark.parametrize("begin", [0, 10**16 + 1, 253_402_300_799_999_000, -62_135_596_799_999_999])
def test_microseconds_count_in_any_year(begin: int) -> None:
    def at(index: int, event: str, time: int) -> Row:
        return event_row(index, event, 1, time=begin + time, height=None)

    rows = [at(1, "sent", 10), at(1, "received", 13), at(1, "acknowledged", 17)]
    rows += [at(2, "sent", 20), at(2, "received", 17), at(2, "acknowledged", 16)]
    found = audited(rows, promised(("final_after", 3), ("answered", 7)), ())
    assert findings_of(found, "finality") == [("violated", "too_early", 2, 5)] and findings_of(found, "answers") == []
    assert found.checks["finality"].worst is not None and found.checks["finality"].worst["magnitude"] == 6
    sizes = [row["magnitude"] for row in found.violations.to_pylist() if row["check"] == "causality"]
    assert sorted(sizes) == [1, 3, 4]
    found = audited(rows, promised(("final_after", 2**64 - 1), ("answered", 6)), ())
    assert [row[:3] for row in findings_of(found, "answers")] == [("violated", "late", 1)]
    assert found.checks["finality"].violated == 2
    marks = [{"chain": "a", "height": n, "time": begin + 5 - n, "root": "r", "stated_by": "test"} for n in (1, 2, 3)]
    headers = table(marks, HEADERS_SCHEMA)
    found = audit_table(
        table([], LEDGER_SCHEMA), table([], OBSERVED_SCHEMA), table([], PROMISES_SCHEMA), headers=headers
    )
    fell = [row["magnitude"] for row in found.violations.to_pylist() if row["reason"] == "time_fell"]
    assert fell == [1, 1]


def test_windows_of_adjacent_blocks_have_no_gap_between_them() -> None:
    """A chain may be recorded in files, each with a window of its blocks and times."""
    rows = [event_row(1, "sent", 3)]
    limit = promised(("answered", 5_000_000))
    for first, verdict in ((4, "violated"), (5, "unknown")):
        found = audited(rows, limit, [window("a", 0, 3), window("a", first, 20)])
        assert {row["verdict"] for row in found.violations.to_pylist() if row["check"] == "answers"} == {verdict}


def test_window_from_height_1_is_incomplete_if_another_has_block_0() -> None:
    rows = [event_row(1, "received", 5)]
    for others, verdict in (([], "FAILED"), ([window("a", 0, 0, events=["acknowledged"])], "INCONCLUSIVE")):
        found = audited(rows, observed=[window("a", 1, 20), window("b", 1, 20), *others])
        assert found.checks["authenticity"].verdict == verdict


def test_height_windows_and_time_windows_do_not_close_each_others_gaps() -> None:
    heights = {"first_time": None, "last_time": None}
    times = {"first_height": None, "last_height": None}
    observed = [window("a", 0, 7, **heights), window("a", 15, 30, **times), window("b", 0, 30)]
    rows = [event_row(1, "sent", 1), event_row(2, "sent", 2), event_row(2, "received", 13)]
    found = findings_of(audited(rows, promised("ordered_receives", "numbered"), observed), "gaps")
    assert found == [("unknown", "skipped_not_covered", 1, None)], "1 may have timed out between them"


def test_no_index_below_the_first_was_sent_if_the_input_starts_at_block_1() -> None:
    rows = [event_row(5, "sent", 5), event_row(5, "received", 6), event_row(1, "received", 7, payload_hash=content(2))]
    found = findings_of(audited(rows, promised("numbered")), "authenticity")
    assert found == [("violated", "not_sent", 1, 3)]
    later = [window("a", 4, 1000), window("b", 4, 1000)]
    found = findings_of(audited(rows, promised("numbered"), later), "authenticity")
    assert found == [("unknown", "before_first_sent", 1, 3)]


def test_row_order_makes_no_difference() -> None:
    """The first of two rows of one send with different amounts counts."""
    money = {"asset": "gold", "amount_1": 0, "amount_2": 0, "amount_3": 0}
    rows = [
        event_row(1, "sent", 5, stated_by="u", amount_0=100, source_row=1, **money),
        event_row(1, "sent", 5, stated_by="t", amount_0=90, source_row=2, **money),
        event_row(1, "received", 6, amount_0=100, source_row=3, **money),
    ]
    given = table(WHOLE, OBSERVED_SCHEMA), table(promised("conserved"), PROMISES_SCHEMA)
    for order in (rows, rows[::-1], [rows[1], rows[0], rows[2]]):
        found = audit_table(table(order, LEDGER_SCHEMA), *given)
        assert findings_of(found, "exactly_once") == [("violated", "sent_again", 1, 1)]
        assert findings_of(found, "conservation") == [("violated", "more_received", 1, 3)]


def test_named_rows_of_a_message_do_not_depend_on_the_limit() -> None:
    rows = [event_row(5, "sent", 100)]
    places: tuple[tuple[int, Row], ...] = (
        (110, {}),
        (120, {"height": None}),
        (130, {}),
        (140, {"chain": "a"}),
        (150, {"height": None}),
    )
    rows += [event_row(5, "received", at, **known) for at, known in places]
    every = findings_of(audited(rows), "exactly_once")
    assert len(every) == 4
    for limit in (1, 2, 3):
        assert findings_of(audited(rows, limit=limit), "exactly_once") == every[:limit]


def test_dropped_message_is_lost_without_a_send_row() -> None:
    rows = [event_row(1, "dropped", 5, detail="full"), event_row(2, "dropped", 5, kind="control")]
    found = audited(rows)
    assert findings_of(found, "delivery") == [("violated", "dropped", 1, 1)]
    assert found.checks["delivery"].examined == 1


def test_message_is_sent_by_the_source_chain_of_its_lane() -> None:
    rows = [event_row(1, "sent", 5), event_row(2, "sent", 6, chain="c"), event_row(3, "sent", 7, chain=None)]
    assert findings_of(audited(rows), "authenticity") == [("violated", "wrong_source", 2, 2)]


def test_remarks_name_tolerances_and_guarantees_without_a_lane() -> None:
    rows = [event_row(1, "sent", 5), event_row(1, "received", 6)]
    elsewhere = [
        {"lane": "y", "promise": "numbered", "stated_by": "test"},
        {"source": "b", "destination": "a", "promise": "conserved", "stated_by": "test"},
        {"destination": "B", "promise": "conserved", "stated_by": "test"},
        of_chain("c", RESTARTED),
        of_chain("b", CLOCK_TOLERANCE, 90_500_000),
        of_chain("d", CLOCK_TOLERANCE, 0),
        {"lane": "z", "promise": "numbered", "stated_by": REPORTER_COLUMN},
        *promised("numbered"),
    ]
    assert audited(rows, elsewhere).remarks == (
        "Clocks may be wrong, and messages early by as much: b 90.5 s.",
        "Promises without effect, as the input has no such chain or lane: numbered of lane 'y', conserved of "
        "destination 'B', restarted of source 'c' and 1 more.",
    )
    assert audited(rows, promised("numbered")).remarks == ()


@pytest.mark.parametrize("detail", [None, "recieved"])
def test_reverted_row_must_name_an_event(detail: str | None) -> None:
    rows = [event_row(1, "sent", 5), event_row(1, "received", 6), event_row(1, "reverted", 6, chain="b", detail=detail)]
    with pytest.raises(InvalidInput, match=f"detail of a reverted row: {detail or 'null'}: must be one of sent, "):
        audited(rows)


def test_message_after_the_last_arrival_is_judged_by_the_end_of_its_source() -> None:
    """The rows show that the destination was recorded from 1 to 5 and from 15 to 20, and the source longer."""
    rows = [event_row(index, event, at) for index, event, at in ((1, "sent", 2), (1, "received", 5))]
    rows += [event_row(index, "sent", at) for index, at in ((2, 4), (3, 8), (4, 18), (5, 24))]
    there = [window("b", first, last, how="inferred", events=["received"]) for first, last in ((1, 5), (15, 20))]
    observed = [*there, window("a", 1, 60, how="inferred", events=["sent"])]
    found = audited(rows, promised(("received", 10_000_000)), observed)
    assert findings_of(found, "delivery") == [
        ("violated", "overdue", 4, 5),
        ("violated", "overdue", 5, 6),
        ("unknown", "arrival_not_covered", 2, 3),
        ("unknown", "arrival_not_covered", 3, 4),
    ]


@pytest.mark.parametrize("carrier", [{"detail": "forged"}, {"kind": "control"}])
def test_unjudged_message_is_no_continuation(carrier: Row) -> None:
    rows = [
        event_row(1, "sent", 5, message_id="m1"),
        event_row(2, "sent", 6, message_id="m2", continues="m1", **carrier),
    ]
    assert findings_of(audited(rows, promised(("received", 5_000_000))), "delivery") == [("violated", "overdue", 1, 1)]


def test_destination_heights_are_those_after_the_timeout() -> None:
    limit = {"timeout_height": 100}
    for at, known, reasons in (
        (50, {}, []),
        (51, {}, ["timed_out_too_early"]),
        (51, {"chain": "c"}, []),
        (51, {"chain": None}, ["timed_out_too_early"]),
    ):
        rows = [event_row(1, "sent", 1, **limit), event_row(1, "timed_out", 50), event_row(2, "sent", 1, **limit)]
        rows.append({**event_row(2, "received", at, **known), "height": 99})
        assert [reason for _, reason, *_ in findings_of(audited(rows), "agreement")] == reasons


def test_message_is_executed_by_the_destination_chain_of_its_lane() -> None:
    rows = [event_row(1, "sent", 5), event_row(1, "executed", 6, chain="c")]
    assert findings_of(audited(rows), "authenticity") == [("violated", "wrong_chain", 1, 2)]


def test_migrated_program_keeps_the_messages_received_by_its_chain() -> None:
    sent, executed = event_row(1, "sent", 5), event_row(1, "executed", 7, chain="c")
    assert findings_of(audited([sent, event_row(1, "received", 6), executed]), "authenticity") == []
    elsewhere = event_row(1, "received", 6, chain="c")
    found = findings_of(audited([sent, elsewhere, executed]), "authenticity")
    assert [(verdict, reason) for verdict, reason, *_ in found] == [("violated", "wrong_chain")] * 2


def test_successfully_acknowledged_message_is_not_refunded() -> None:
    money = {"asset": "gold", "amount_1": 0, "amount_2": 0, "amount_3": 0}
    events = (("sent", 10, None), ("received", 10, None), ("acknowledged", None, 0), ("refunded", 10, None))
    rows = [
        event_row(1, event, at, amount_0=amount, code=code, **(money if amount else {}))
        for at, (event, amount, code) in enumerate(events, start=1)
    ]
    assert findings_of(audited(rows), "agreement") == [("violated", "executed_and_refunded", 1, 4)]


def test_time_outside_the_calendar_is_shown_in_remarks() -> None:
    row = {**event_row(1, "sent", 5), "time": 1 << 62}
    [remark] = audited([row], promised(("received", 5)), ()).remarks
    assert "(4,611,686,018,427 s after 1970): no window is declared" in remark
