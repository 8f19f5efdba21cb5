"""External tables: equivalent types are audited alike, and unsuitable columns are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.audit.engine import AuditResult, audit_table
from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger
from tests.support.properties.audit_ledgers import table

LANE = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "t"}
ROWS = table(
    [
        {**LANE, "index": 1, "event": "sent", "chain": "a", "time": 5, "payload_hash": b"1" * 32},
        {**LANE, "index": 1, "event": "received", "chain": "b", "time": 9, "payload_hash": b"2" * 32},
        {**LANE, "index": 3, "event": "sent", "chain": "a", "time": 6, "payload_hash": None},
    ],
    LEDGER_SCHEMA,
)
PROMISES = table([{"promise": "numbered", "stated_by": "t"}], PROMISES_SCHEMA)


def audited(rows: pa.Table, promises: pa.Table = PROMISES) -> AuditResult:
    return audit_table(rows, OBSERVED_SCHEMA.empty_table(), promises)


def with_column(name: str, values: Any) -> pa.Table:
    return ROWS.set_column(ROWS.schema.get_field_index(name), name, values)


@pytest.mark.parametrize(
    "other",
    [
        lambda rows: pa.Table.from_pandas(rows.to_pandas()),
        lambda rows: rows.select(list(reversed(rows.column_names))).append_column("more", pa.array([1, 2, 3])),
        lambda rows: rows.drop_columns(["detail", "code", "amount_0", "height", "stated_by"]),
        lambda rows: with_column("index", pa.array([1, 1, 3], pa.int32())),
        lambda rows: with_column("time", pa.array([5_000, 9_000, 6_000], pa.timestamp("ns"))),
        lambda rows: with_column("payload_hash", rows["payload_hash"].cast(pa.large_binary())),
    ],
    ids=["pandas", "order", "missing", "numbers", "times", "binary"],
)
def test_equivalent_types_give_equal_results(other: Callable[[pa.Table], pa.Table]) -> None:
    one, two = audited(ROWS), audited(other(ROWS))
    assert one.checks["authenticity"].violated == 1 and one.checks["gaps"].unknown == 1
    assert {name: check.reasons for name, check in one.checks.items()} == {
        name: check.reasons for name, check in two.checks.items()
    }


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (ROWS.drop_columns(["event"]), "rows: there is no column event; needed are "),
        (ROWS.append_column("lane", ROWS["lane"]), "rows: lane: there are two columns of this name"),
        (with_column("index", pa.array([1, 1, -3])), "rows: index: -3: must be a whole number from 0 to "),
        (with_column("index", pa.array(["a", "b", "c"])), "rows: index: is of type string: must be uint64"),
        (with_column("payload_hash", pa.array(["aa", "bb", None])), "rows: payload_hash: is of type string"),
        (
            with_column("payload_hash", pa.array([b"a", None, None])),
            "rows: payload_hash: a value of 1 bytes: must be 32",
        ),
        (with_column("event", pa.array(["sent", "seen", "sent"])), "rows: event: seen: must be one of sent, "),
        (with_column("kind", pa.array(["request", "call", "call"])), "rows: kind: call: must be one of request, "),
        (with_column("lane", pa.array([b"x", b"x", b"a\xffb"])), "rows: lane: a\\xffb: must be UTF-8"),
        (
            with_column("event", pa.array(["sent", "x" * 5_000, "sent"])),
            f"rows: event: {'x' * 99}…{'x' * 20}: must be one of sent, ",
        ),
        (
            with_column("revision", pa.array([None, None, 2**26 - 1])),
            "rows: revision: 67108863: must be from 0 to 67108862",
        ),
        (
            with_column("timeout_revision", pa.array([0, 0, 0])).set_column(
                LEDGER_SCHEMA.get_field_index("timeout_height"), "timeout_height", pa.array([1, 2**38, None])
            ),
            "rows: timeout_height: 274877906944: must be from 0 to 274877906943 with a revision",
        ),
        (
            with_column("amount_2", pa.array([None, 0, None])),
            "rows: amount_0 and amount_2: one is null in a row without the other: must not be",
        ),
        (with_column("event", pa.array(["sent", None, "sent"])), "rows: event: is null in a row: must not be"),
        ([1, 2], "rows: is a list: must be an Arrow table"),
    ],
)
def test_unsuitable_column_is_named(wrong: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        audited(wrong)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("wrong", [-(2**63), 2**63 - 1])
def test_time_that_means_unknown_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidInput, match=rf"^rows: time: {wrong} microseconds from 1970: must be from "):
        audited(with_column("time", pa.array([5, wrong, None], pa.timestamp("us", "UTC"))))


@pytest.mark.parametrize(
    ("observed", "promises", "text"),
    [
        ({"first_height": 9, "last_height": 1}, {}, r"observed: last_height: 1: lies before first_height \(9\)"),
        ({"last_time": 2**62}, {}, "observed: first_time: missing: first_time and last_time are given together"),
        ({"first_time": 1, "last_time": 2, "revision": 3}, {}, "observed: revision: 3: has no effect without first_"),
        ({}, {}, "observed: first_height: missing: give first_height and last_height, or first_time and last_time"),
        (None, {"promise": "final_after"}, "promises: number: missing: final_after needs number"),
        (None, {"promise": "clock_tolerance"}, "promises: number: missing: clock_tolerance needs number"),
        (None, {"promise": "answered", "detail": "x"}, "promises: detail: x: has no effect on answered"),
    ],
)
def test_windows_and_guarantees_are_those_of_mappings(observed: Any, promises: Any, text: str) -> None:
    windows = [] if observed is None else [{"chain": "a", "how": "declared", "stated_by": "t", **observed}]
    stated = [{"promise": "answered", "stated_by": "t", **promises}]
    with pytest.raises(InvalidInput, match=f"^{text}"):
        audit_table(ROWS, table(windows, OBSERVED_SCHEMA), table(stated, PROMISES_SCHEMA))


def test_time_outside_the_calendar_is_unrecorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = with_column("time", pa.array([-(2**62), 2**62, 2**62], pa.timestamp("us", "UTC")))
    assert audited(far).checks["authenticity"].violated == 1
    place = str(tmp_path / "ledger")
    writer = LedgerWriter(create_ledger(place, 1))
    writer.write("ledger", sort_rows(far), 0)
    writer.commit([], {})
    for arguments in (
        ["trace", place, "x/1"],
        ["trace", place, "x/1", "--json"],
        ["audit", place, "--check", "exactly_once"],
    ):
        assert execute(arguments, build_app, "causeway") == OK
        assert "sent" in capsys.readouterr().out or arguments[0] == "audit"
