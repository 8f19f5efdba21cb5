"""Fields of a mapping: heights with revisions, timeouts, rules, options without effect."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from causeway.ledger.ingest.mapping import MappingDocument
from causeway.ledger.ingest.reader import ingest_file
from causeway.ledger.ingest.records import IngestedRecords
from causeway.ledger.ingest.windows import ObservedWindows
from causeway.ledger.schema import MAX_HEIGHT, MAX_REVISION, OBSERVED_SCHEMA
from tests.ledger.ingest.test_ingest import rows_of, why

FIELDS: dict[str, Any] = {"protocol": {"text": "p"}, "chain": {"text": "a"}, "index": "n"}


def mapping(fields: dict[str, Any], **changes: Any) -> MappingDocument:
    given = {"format": ["csv", "parquet"], "stated_by": "t", "fields": {**FIELDS, **fields}, "nulls": ["nan"]}
    return MappingDocument.model_validate({**given, "events": [{"event": {"text": "sent"}}], **changes})


def read_records(of: MappingDocument, data: str | pa.Table) -> IngestedRecords:
    """Read CSV, or a table as Parquet."""
    out = io.BytesIO()
    if isinstance(data, str):
        out.write(data.strip().encode() + b"\n")
    else:
        pq.write_table(data, out)
    content, name = out.getvalue(), "f.csv" if isinstance(data, str) else "f.parquet"
    (found,) = ingest_file(io.BytesIO(content), name, len(content), of)
    return found


def columns(found: IngestedRecords, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows_of(found)]


def test_new_fields_are_ordinary_numbers_texts_and_times() -> None:
    names = ["revision", "block", "continues", "timeout_revision", "timeout_height"]
    fields: dict[str, Any] = {name: name for name in names}
    of = mapping({**fields, "timeout_time": {"column": "until", "unit": "any"}})
    found = read_records(of, f"n,{','.join(names)},until\n1,3,0xab,m7,4,5,1641902381\n")
    assert columns(found, *names) == [(3, "0xab", "m7", 4, 5)]
    assert rows_of(found)[0]["timeout_time"] == datetime(2022, 1, 11, 11, 59, 41, tzinfo=UTC)


def test_height_with_its_revision_fills_both_columns() -> None:
    of = mapping({"height": "h", "timeout_height": "t", "timeout_time": {"column": "u", "unit": "any"}})
    lines = ["1,1-2241421,2-7,0", "2, 5 ,0-0,", "3,nan,0,5", "4,0x10,nan,", "5,-5,,", "6,1-,,", "7,1-2-3,,"]
    found = read_records(of, "\n".join(["n,h,t,u", *lines]))
    assert columns(found, "revision", "height", "timeout_revision", "timeout_height") == [
        (1, 2241421, 2, 7), (None, 5, None, None), (None, None, None, None), (None, 16, None, None),
    ]  # fmt: skip
    # A timeout of 0 is none.
    assert [row["timeout_time"] is None for row in rows_of(found)] == [True, True, False, True]
    assert why(found) == [(5, "negative", "height"), (6, "not_a_number", "height"), (7, "not_a_number", "height")]


def test_explicit_revision_precedes_that_of_the_text() -> None:
    of = mapping({"revision": "r", "height": "h"})
    found = read_records(of, "n,r,h\n1,4,1-10\n2,,1-10\n3,2,10\n")
    assert columns(found, "revision", "height") == [(4, 10), (1, 10), (2, 10)]


def test_incomparable_heights_and_revisions_are_quarantined() -> None:
    of = mapping({"height": "h", "timeout_height": "t"})
    high, last = MAX_HEIGHT + 1, MAX_REVISION + 1
    lines = [f"1,{high},{high}", f"2,1-{high},", f"3,{last}-1,", f"4,,1-{high}", f"5,1-{MAX_HEIGHT},{MAX_REVISION}-1"]
    found = read_records(of, "\n".join(["n,h,t", *lines]))
    assert [row["index"] for row in rows_of(found)] == [1, 5]
    assert why(found) == [
        (2, "too_large", "height"), (3, "too_large", "revision"), (4, "too_large", "timeout_height"),
    ]  # fmt: skip
    assert found.quarantine["value"].to_pylist() == [f"1-{high}", f"{last}-1", f"1-{high}"]


NUMBERS: list[tuple[dict[str, Any], list[str], list[Any], list[str]]] = [
    ({"split": "-", "part": 1}, ["1-7", "2-8", "9", "nan", ""], [7, 8, None, None], ["not_allowed"]),
    ({"values": {"first": "1"}}, ["first", "2", "last"], [1, 2], ["not_a_number"]),
    ({"values": {"a": "1"}, "others": "null"}, ["a", "b"], [1, None], []),
    ({"split": "-", "part": 1, "values": {"x": "3"}, "others": "null"}, ["1-x", "9"], [3, None], []),
    ({"values": {"a": "1"}, "ignore_case": True}, ["A", "a", "2"], [1, 1, 2], []),
    ({"otherwise": "5"}, ["1", ""], [1, 5], []),
]


@pytest.mark.parametrize(("rules", "texts", "expected", "reasons"), NUMBERS, ids=lambda given: str(given)[:40])
def test_field_rules_apply_to_numbers(
    rules: dict[str, Any], texts: list[str], expected: list[Any], reasons: list[str]
) -> None:
    of = mapping({"height": {"column": "h", **rules}})
    table = pa.table({"n": list(range(len(texts))), "h": pa.array(texts)})
    coded = table.set_column(1, "h", table["h"].dictionary_encode())
    for data in ("\n".join(["n,h", *(f"{n},{text}" for n, text in enumerate(texts))]), table, coded):
        found = read_records(of, data)
        assert [row["height"] for row in rows_of(found)] == expected
        assert [reason for _, reason, _ in why(found)] == reasons


def test_field_rules_apply_to_parquet_times_amounts_and_integers() -> None:
    fields = {
        "time": {"column": "at", "split": "|", "part": 1},
        "amount": {"column": "v", "split": " ", "part": 0},
        "height": {"column": "h", "values": {"7": "70"}},
    }
    found = read_records(mapping(fields), pa.table({"n": [1], "at": ["x|2022-01-11"], "v": ["12 gold"], "h": [7]}))
    assert columns(found, "time", "amount_0", "height") == [(datetime(2022, 1, 11, tzinfo=UTC), 12, 70)]


def test_ignore_case_without_values_lowercases_names() -> None:
    of = mapping({"source": {"column": "s", "ignore_case": True}})
    assert columns(read_records(of, "n,s\n1,Polygon\n2,polygon\n3,\n"), "source") == [
        ("polygon",),
        ("polygon",),
        (None,),
    ]
    of = mapping({"source": {"column": "s", "ignore_case": True, "values": {"eth": "ethereum"}}})
    assert columns(read_records(of, "n,s\n1,ETH\n2,Polygon\n"), "source") == [("ethereum",), ("polygon",)]


@pytest.mark.parametrize(
    ("field", "options", "text"),
    [
        ("height", {"column": "h", "ignore_case": True}, "ignore_case: has no effect on numbers and times"),
        ("time", {"column": "h", "ignore_case": True}, "ignore_case: has no effect on numbers and times"),
        ("source", {"column": "h", "others": "refuse"}, "others: has no effect without values"),
        ("source", {"text": "a", "optional": True}, "optional: has no effect with text"),
        ("source", {"text": "a", "values": {"a": "b"}}, "values: has no effect with text"),
        ("height", {"column": "h", "split": "-"}, "give split and part together"),
    ],
)
def test_option_without_effect_is_named(field: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        mapping({field: options})


def observed(of: MappingDocument, *parts: str) -> list[dict[str, Any]]:
    """Infer windows of several files, in both orders, and on top of earlier ones."""
    found = []
    for files in (parts, parts[::-1]):
        seen, before = ObservedWindows(of), OBSERVED_SCHEMA.empty_table()
        for text in files:
            other = ObservedWindows(of)
            other.add(read_records(of, text).ledger)
            seen.merge_observed(other)
            resumed = ObservedWindows(of)
            resumed.resume(before)
            resumed.merge_observed(other)
            before = resumed.observed(before)
        table = seen.observed(OBSERVED_SCHEMA.empty_table())
        assert table.equals(before)
        found.append(table)
    assert found[0].equals(found[1])
    rows: list[dict[str, Any]] = found[0].to_pylist()
    return rows


@pytest.mark.parametrize("gap", [None, 5])
def test_height_windows_belong_to_one_revision(gap: int | None) -> None:
    of = mapping({"height": "h"}, windows={"by": "height"} | ({} if gap is None else {"gap": gap}))
    rows = observed(of, "n,h\n1,1-10\n2,1-12\n3,2-1\n", "n,h\n4,2-3\n5,1-11\n6,8\n7,9\n")
    assert [(row["revision"], row["first_height"], row["last_height"]) for row in rows] == [
        (None, 8, 9), (1, 10, 12), (2, 1, 3),
    ]  # fmt: skip


def test_height_windows_have_the_times_of_their_rows() -> None:
    fields = {"height": "h", "time": {"column": "at", "unit": "s"}}
    of = mapping(fields, windows={"by": "height", "gap": 5, "events": ["sent"]})
    # Rows inside a known window, or without a time.
    rows = observed(of, "n,h,at\n1,10,70\n2,12,\n3,30,\n4,11,60\n", "n,h,at\n5,14,90\n6,50,95\n7,13,40\n8,12,99\n")
    times = [[None if row[f"{end}_time"] is None else row[f"{end}_time"].timestamp() for end in ("first", "last")]
             for row in rows]  # fmt: skip
    assert [(row["first_height"], row["last_height"], *time) for row, time in zip(rows, times, strict=True)] == [
        (10, 14, 40, 99), (30, 30, None, None), (50, 50, 95, 95),
    ]  # fmt: skip


ARRIVING = {"by": "height", "gap": 5, "events": ["sent"], "arrivals": True}


def arriving(windows: dict[str, Any], head: str = "n,e,from,to,at,h,t") -> Callable[..., list[list[Any]]]:
    """Return a function that infers windows from rows of two chains, as [chain, events, heights, times]."""
    fields: dict[str, Any] = {
        "source": "from", "destination": "to", "chain": "at", "event": "e", "height": "h",
        "time": {"column": "t", "unit": "s", "optional": True},
    }  # fmt: skip
    of = mapping(fields, windows=windows, events=[{}])

    def found(*parts: str) -> list[list[Any]]:
        rows = observed(of, *(f"{head}\n" + "\n".join(part.split()) + "\n" for part in parts))
        times = [[None if row[f"{end}_time"] is None else row[f"{end}_time"].timestamp() for end in ("first", "last")]
                 for row in rows]  # fmt: skip
        return [
            [row["chain"], row["events"], row["first_height"], row["last_height"], *time]
            for row, time in zip(rows, times, strict=True)
        ]

    return found


def test_arrivals_have_a_window_while_their_source_was_recorded() -> None:
    found = arriving(ARRIVING)
    # The chains send each other messages; a pauses after height 12, and an acknowledgement arrives in the pause.
    first = "1,sent,a,b,a,10,100 2,sent,a,b,a,12,120 1,received,a,b,b,500,130 1,executed,a,b,b,500,130"
    early = "2,received,a,b,b,900,150 1,acknowledged,a,b,a,30,300 7,sent,b,a,b,501,140"
    late = "3,sent,a,b,a,90,900 3,received,a,b,b,2000,910 4,sent,a,b,a,91,905 4,received,a,b,b,2800,990"
    assert found(f"{first} {early}", late) == [
        ["a", ["acknowledged", "sent"], 10, 12, 100, 120],
        ["a", ["acknowledged", "sent"], 90, 91, 900, 905],
        ["b", ["sent"], 501, 501, 140, 140],
        ["b", ["executed", "received"], 500, 900, 130, 150],
        ["b", ["executed", "received"], 2000, 2800, 910, 990],
    ]
    # Another source continues while a pauses.
    other = "9,sent,c,b,c,1,100 9,received,c,b,b,910,160 8,sent,c,b,c,4,950"
    assert found(f"{first} {early}", f"{late} {other}")[3:] == [
        ["c", ["sent"], 1, 4, 100, 950], ["b", ["executed", "received"], 500, 2800, 130, 990],
    ]  # fmt: skip


def test_untimed_arrivals_have_windows_by_the_gap() -> None:
    found = arriving(ARRIVING, "n,e,from,to,at,h")("1,sent,a,b,a,10 1,received,a,b,b,50 2,received,a,b,b,55")
    assert [row[:4] for row in found] == [["a", ["sent"], 10, 10], ["b", ["received"], 50, 55]]
    found = arriving(ARRIVING, "n,e,from,to,at,h")("1,sent,a,b,a,10 1,received,a,b,b,50 2,received,a,b,b,56")
    assert [row[2:4] for row in found] == [[10, 10], [50, 50], [56, 56]]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"events": []}, "arrivals goes with events that have none of received"),
        ({"events": ["sent", "received"]}, "arrivals goes with events that have none of received"),
        ({"by": "time", "together": True}, "arrivals: has no effect with together"),
    ],
)
def test_arrivals_need_windows_of_other_events(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        mapping({"height": "h"}, windows={**ARRIVING, **changed})


def test_declared_window_may_have_a_revision() -> None:
    def window(**given: Any) -> dict[str, Any]:
        of = mapping({"height": "h"}, observed=[{"chain": "a", **given}])
        (row,) = ObservedWindows(of).observed(OBSERVED_SCHEMA.empty_table()).to_pylist()
        return {name: row[name] for name in ("revision", "first_height", "last_height")}

    expected = {"revision": 2, "first_height": 1, "last_height": 9}
    assert window(first_height="2-1", last_height="2-9") == expected
    assert window(revision=2, first_height=1, last_height=9) == expected
    assert window(revision=2, first_height="1-1", last_height="1-9") == expected
    for wrong, text in (
        ({"first_height": "1-5", "last_height": "2-9"}, "is of another revision than first_height"),
        ({"first_height": "1-5", "last_height": "1-4"}, r"last_height: 4: lies before first_height \(5\)"),
        ({"first_height": "5", "last_height": 6}, "must be a height such as 2241421, or 1-2241421"),
        ({"first_height": 1, "last_height": MAX_HEIGHT + 1, "revision": 1}, f"a height in it {MAX_HEIGHT} at most"),
        ({"first_time": "2022-01-01", "last_time": "2022-01-02", "revision": 1}, "revision: 1: has no effect without"),
    ):
        with pytest.raises(ValidationError, match=text):
            window(**wrong)
