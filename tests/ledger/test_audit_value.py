"""Audits of paid and transferred value: small hand-written ledgers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from causeway.audit.engine import AuditResult, audit_ledger_rows
from causeway.audit.passes import bucket_pass
from causeway.audit.stored import audit_ledger
from causeway.ledger import maintenance, parts, store
from causeway.ledger.maintenance import maintain_ledger
from causeway.ledger.row_order import assign_value_buckets, deduplicate_value, message_buckets, sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA, VALUE_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, open_ledger
from tests.ledger.test_audit_by_hand import LANE, WHOLE, Row, event_row, promised, window
from tests.support.properties.audit_ledgers import table

CONSERVED = promised("conserved", "numbered")


def worth(index: int | None, event: str, at: int, amount: int | None, **known: Any) -> Row:
    return event_row(index, event, at, asset="coin", amount=amount, **known)


def payment_row(index: int | None, at: int, amount: int | None, **known: Any) -> Row:
    own = {**LANE, "index": index, "chain": "b", "height": at, "time": at * 1_000_000, "asset": "coin"}
    return {**own, "amount": amount, "why": "fee", "from": "message", "to": "relayer", "stated_by": "test", **known}


def refund_row(index: int, at: int, amount: int, **known: Any) -> Row:
    return payment_row(index, at, amount, **{"why": "reverted", "from": "relayer", "to": "message", **known})


def movement_row(chain: str, at: int, to: str, amount: int | None, **known: Any) -> Row:
    """A movement that leaves a chain."""
    own = {"chain": chain, "height": at, "time": at * 1_000_000, "asset": "coin", "amount": amount, "why": "sent"}
    return {"protocol": "p", **own, "from": "account:one", "to": f"abroad:{to}", "stated_by": "test", **known}


def came(chain: str, at: int, source: str, amount: int | None, **known: Any) -> Row:
    return {**movement_row(chain, at, source, amount), "from": f"abroad:{source}", "to": "account:one", **known}


def audited(
    rows: Iterable[Row],
    value: Iterable[Row],
    observed: Iterable[Row] = WHOLE,
    promises: Iterable[Row] = CONSERVED,
    buckets: int = 1,
) -> AuditResult:
    events = table([{**row, "source_row": at} for at, row in enumerate(rows, 1)], LEDGER_SCHEMA)
    movements = table([{**row, "source_row": at} for at, row in enumerate(value, 1)], VALUE_SCHEMA)
    numbers, places = message_buckets(events, buckets), assign_value_buckets(movements, buckets)
    given = [
        (sort_rows(events.filter(pa.array(numbers == at))), movements.filter(pa.array(places == at)))
        for at in range(buckets)
    ]
    return audit_ledger_rows(
        [lambda own=own: own for own, _ in given],  # type: ignore[misc]
        *(table(observed, OBSERVED_SCHEMA), table(promises, PROMISES_SCHEMA)),
        value=[lambda own=own: own for _, own in given],  # type: ignore[misc]
    )


def findings_of(found: AuditResult) -> list[tuple[Any, ...]]:
    names = ("verdict", "reason", "index", "event", "magnitude", "source_row")
    rows = [row for row in found.violations.to_pylist() if row["check"] == "conservation"]
    return [tuple(row[name] for name in names) for row in rows]


def fees(found: AuditResult) -> list[tuple[str, ...]]:
    names = ("sent", "received", "fees", "refunded", "pending", "difference")
    return [tuple(row[name] for name in names) for row in found.sums.to_pylist()]


SENT, GOT = worth(1, "sent", 5, 100), worth(1, "received", 9, 97)


def test_received_and_paid_value_equals_the_sent_value() -> None:
    found = audited(
        [SENT, GOT], [payment_row(1, 9, 2), payment_row(1, 9, 1), payment_row(1, 9, 50, **{"from": "account:one"})]
    )
    assert findings_of(found) == []
    assert fees(found) == [("100", "97", "3", "0", "0", "0")]
    assert found.checks["conservation"].examined == 1 and found.checks["conservation"].verdict == "PASSED"
    less = ("violated", "less_received", 1, "received", 3.0, 2)
    assert findings_of(audited([SENT, GOT], [])) == [less]
    assert findings_of(audited([SENT, GOT], [payment_row(1, 9, 5)])) == [
        ("violated", "more_received", 1, "received", 2.0, 2)
    ]
    # Also for amounts of all four words.
    large = worth(1, "sent", 5, 2**256 - 1), worth(1, "received", 9, 2**255)
    assert findings_of(audited(large, [payment_row(1, 9, 2**255 - 2), payment_row(1, 9, 1)])) == []
    assert findings_of(audited(large, [payment_row(1, 9, 2**255 - 2)])) == [
        ("violated", "less_received", 1, "received", 1.0, 2)
    ]


def test_unrecorded_payment_is_unknown() -> None:
    unseen = [("unknown", "amount_unseen", 1, "received", None, 2)]
    assert findings_of(audited([SENT, GOT], [payment_row(1, 9, None)])) == unseen
    assert findings_of(audited([SENT, GOT], [payment_row(1, 9, 3, asset=None)])) == unseen
    assert findings_of(audited([SENT], [payment_row(1, 9, None)])) == [("unknown", "amount_unseen", 1, "sent", None, 1)]
    # The input has only the revert of a payment.
    assert findings_of(audited([SENT, GOT], [refund_row(1, 9, 3)])) == [
        ("unknown", "payments_not_covered", 1, "received", 6.0, 2)
    ]
    # A window of value that ends before the receipt may have missed a payment.
    early = [
        *(window(name, 1, 1000, events=["sent", "received"]) for name in "ab"),
        window("b", 1, 8, events=["value"]),
    ]
    # So may one of the sending chain that ends before that, or without a recorded time.
    no_time = {"first_time": None, "last_time": None}
    for source in (window("a", 1, 6), {**window("a", 1, 1000), **no_time}):
        found = findings_of(audited([SENT, GOT], [], [source, window("b", 1, 1000)]))
        assert found == [("unknown", "payments_not_covered", 1, "received", 3.0, 2)]
    assert findings_of(audited([SENT, GOT], [], early)) == [("unknown", "payments_not_covered", 1, "received", 3.0, 2)]


def test_row_without_content_may_repeat_another_row() -> None:
    again = {"payload_hash": None, "height": None}
    for more in (worth(1, "sent", 5, 100, **again), worth(1, "received", 9, 97, **again)):
        for payments in ([], [payment_row(1, 9, 3)]):
            assert [row[:2] for row in findings_of(audited([SENT, GOT, more], payments))] == [
                ("unknown", "content_unseen")
            ]


def test_other_asset_differs_from_the_sent_one() -> None:
    assert findings_of(audited([SENT, GOT], [payment_row(1, 9, 3), payment_row(1, 9, 1, asset="other")])) == [
        ("violated", "asset_differs", 1, "received", None, 2)
    ]
    taken_back = [payment_row(1, 9, 3), payment_row(1, 8, 1, asset="other"), refund_row(1, 9, 1, asset="other")]
    assert findings_of(audited([SENT, GOT], taken_back)) == []


def test_paid_value_without_receipt_does_not_exceed_the_sent_value() -> None:
    assert findings_of(audited([SENT], [payment_row(1, 9, 100)])) == []
    assert findings_of(audited([SENT], [payment_row(1, 9, 101)])) == [("violated", "more_paid", 1, "sent", 1.0, 1)]
    late = worth(1, "timed_out", 20, None)
    assert fees(audited([SENT, late], [payment_row(1, 9, 3)])) == [("100", "0", "3", "97", "0", "0")]
    assert fees(audited([SENT], [payment_row(1, 9, 5), refund_row(1, 10, 2)])) == [("100", "0", "3", "0", "97", "0")]
    # No more can be deducted from a refund than was sent.
    assert fees(audited([SENT, late], [payment_row(1, 9, 101)])) == [("100", "0", "101", "0", "0", "-1")]
    assert fees(audited([SENT, late], [refund_row(1, 9, 2)])) == [("100", "0", "-2", "100", "0", "2")]
    both = audited([SENT, GOT, late], [payment_row(1, 9, 3)])
    assert findings_of(both) == [("violated", "received_and_refunded", 1, "timed_out", 97.0, 3)]


def test_payment_of_an_unsent_message_is_named() -> None:
    # Row 1 belongs to a message above the last sent one, row 2 to one missing in the sequence.
    rows = [SENT, worth(1, "received", 9, 100), worth(3, "sent", 6, 5), worth(3, "received", 9, 5)]
    found = audited(rows, [payment_row(4, 9, 3), payment_row(2, 9, 3)])
    assert findings_of(found) == [
        ("violated", "paid_not_sent", 4, None, None, 1),
        ("unknown", "missing_in_sequence", 2, None, None, 2),
    ]
    assert found.checks["conservation"].examined == 4
    named = next(row for row in found.violations.to_pylist() if row["reason"] == "paid_not_sent")
    assert (named["chain"], named["height"], named["lane"]) == ("b", 9, "x")
    ordered = promised("conserved", "numbered", "ordered_sends")
    early = audited(rows, [payment_row(2, 4, 3)], promises=ordered)
    assert findings_of(early) == [("violated", "paid_not_sent", 2, None, None, 1)]
    assert findings_of(audited(rows, [payment_row(4, 9, 3)], [window("a", 3, 1000), window("b", 1, 1000)]))[0][:2] == (
        *("violated", "paid_not_sent"),
    )
    assert findings_of(audited(rows, [payment_row(4, 9, 3)], [window("a", 1, 5)])) == [
        ("unknown", "sends_not_covered", 4, None, None, 1)
    ]
    assert findings_of(audited(rows, [payment_row(4, 9, 3), refund_row(4, 9, 3)])) == []
    named_only = audited([], [payment_row(None, 9, 3, message_id="m")])
    assert findings_of(named_only) == [("violated", "paid_not_sent", None, None, None, 1)]


def test_messages_without_index_are_found_by_name() -> None:
    rows = [
        worth(None, event, at, amount, message_id="m") for event, at, amount in (("sent", 5, 9), ("received", 6, 8))
    ]
    assert findings_of(audited(rows, [payment_row(None, 6, 1, message_id="m")])) == []
    assert findings_of(audited(rows, [payment_row(None, 6, 2, message_id="m")])) == [
        ("violated", "more_received", None, "received", 1.0, 2)
    ]


def test_returned_value_does_not_exceed_the_departed_value() -> None:
    out, back = movement_row("a", 5, "b", 100), came("b", 9, "a", 100)
    found = audited([], [out, back, movement_row("b", 20, "a", 60), came("a", 25, "b", 60)])
    assert findings_of(found) == [] and found.checks["conservation"].examined == 1
    assert [tuple(row.values()) for row in found.abroad.to_pylist()] == [
        ("a", "b", "coin", "100", "60", "0"),
        ("b", "a", "coin", "60", "100", "0"),
    ]
    more = [out, came("b", 9, "a", 70), came("b", 12, "a", 31)]
    assert findings_of(audited([], more)) == [("violated", "more_came_than_left", None, None, 1.0, 3)]
    named = audited([], more).violations.to_pylist()[0]
    assert (named["source"], named["destination"], named["chain"], named["unit"]) == ("a", "b", "b", "coin")
    hole = [window("a", 1, 11), window("b", 1, 1000)]
    assert findings_of(audited([], more, hole)) == [("unknown", "departures_not_covered", None, None, 1.0, 3)]
    others = [window("a", 1, 1000, events=["sent"]), window("b", 1, 1000)]
    assert findings_of(audited([], more, others))[0][1] == "departures_not_covered"
    placeless = {**movement_row("a", 5, "b", 1), "chain": None}
    assert [row[:2] for row in findings_of(audited([], [*more, placeless]))] == [
        ("unknown", "chain_unseen"),
        ("unknown", "departures_not_covered"),
    ]
    assert findings_of(audited([], [*more, movement_row("a", 6, "b", None)])) == [
        ("unknown", "amount_unseen", None, None, None, 4)
    ]
    assert [row[1] for row in findings_of(audited([], [*more, movement_row("a", 6, "b", 1, asset=None)]))] == [
        "amount_unseen"
    ] * 2


@pytest.mark.parametrize("waiting", [1_000, 0])
def test_buckets_and_parts_make_no_difference(waiting: int) -> None:
    rows, value = [], []
    for index in (*range(1, 40), *(1 << 18, (1 << 18) + 3, 5 << 18)):
        rows += [worth(index, "sent", index % 90 + 1, 100), worth(index, "received", index % 90 + 3, 100 - index % 5)]
        value += [payment_row(index, index % 90 + 3, 1) for _ in range(index % 4)] + [
            movement_row("a", index % 90 + 1, "b", index)
        ]
        value += [came("b", 7, "a", index + 1, height=index)]
    value += [payment_row((3 << 18) + at, 70, 4) for at in range(5)] + [
        payment_row((1 << 18) + 1, 2, 4),
        payment_row(7 << 18, 70, 4),
    ]
    ordered = promised("conserved", "numbered", "ordered_sends")
    whole = audited(rows, value, promises=ordered)
    reasons = ("paid_not_sent", "missing_in_sequence", "less_received", "more_received", "more_came_than_left")
    assert {row[1] for row in findings_of(whole)} == {*reasons}
    for buckets, cut in ((1, 3), (4, 100_000), (5, 2)):
        with patch.object(parts, "PART_ROWS", cut), patch.object(bucket_pass, "PENDING_COLUMNS", waiting):
            found = audited(rows, value, promises=ordered, buckets=buckets)
        assert found.checks == whole.checks
        for name in ("violations", "completeness", "lanes", "sums", "abroad"):
            assert getattr(found, name).equals(getattr(whole, name)), name


def test_movements_recorded_by_several_files_are_one() -> None:
    one, two = ({"source_file": name} for name in ("one", "two"))
    rows = [
        payment_row(1, 9, 3, **one),
        payment_row(1, 9, 3, **one),
        payment_row(1, 9, 3, **two),
        payment_row(2, 9, 3, **two),
        payment_row(2, 9, 3, **one),
    ]
    rows += [
        payment_row(3, 9, 3, height=None, **two),
        payment_row(3, 9, 3, height=None, **one),
        payment_row(4, 9, 3),
        payment_row(4, 9, 4),
    ]
    kept = deduplicate_value(table(rows, VALUE_SCHEMA)).select(["index", "source_file"]).to_pylist()
    assert [tuple(row.values()) for row in kept] == [
        *((1, "one"), (1, "one"), (2, "one"), (3, "two"), (3, "one"), (4, None), (4, None)),
    ]
    assert deduplicate_value(table(rows[:2], VALUE_SCHEMA)).num_rows == 2


def test_unbucketed_value_is_read_and_assigned_to_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [movement_row("a", 5, "b", 100), came("b", 9, "a", 70), came("b", 12, "a", 31)]
    place = str(tmp_path / "ledger")
    writer = LedgerWriter(create_ledger(place, 4))
    with monkeypatch.context() as as_before:
        as_before.setattr(store, "LOOSE_TABLES", ("ledger",))
        writer.write("value", table([{**row, "source_file": "one"} for row in rows], VALUE_SCHEMA))
    writer.write("value", table([{**row, "source_file": "two"} for row in rows], VALUE_SCHEMA))
    writer.write("observed", table(WHOLE, OBSERVED_SCHEMA))
    writer.commit([], {})
    found = audit_ledger(open_ledger(place), executor="in_process")
    assert found.checks["conservation"].reasons == {("violated", "more_came_than_left"): 1}
    monkeypatch.setattr(maintenance, "MINIMUM", 1)
    maintain_ledger(open_ledger(place))
    after = open_ledger(place)
    assert {file.bucket for file in after.files("value")} == {1, 3}
    assert sum(after.rows(bucket, table="value").num_rows for bucket in range(4)) == len(rows)
    again = audit_ledger(after, executor="in_process")
    assert again.checks == found.checks and again.abroad.equals(found.abroad)
