"""Ambiguous amounts: a mapping selects a reading, or the record is quarantined with both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from causeway.ledger.ingest.row_sections import parse_go_literal
from tests.ledger.ingest.test_ingest import rows_of, why
from tests.ledger.ingest.test_ingest_fields import mapping, read_records
from tests.support.common.command_line import Run, command_line

TEXTS = ["13", "010", "0x10", "10", "08", "1_000", "0", "00", "0o17", "7f", "13.0", " 5 ", "+5", "", "nan", "-1"]

READ: dict[Any, list[int | str | None]] = {
    None: [
        13, "ambiguous_number", 16, 10, "ambiguous_number", "not_a_number", 0, "ambiguous_number", "not_a_number",
        "not_a_number", 13, 5, 5, None, None, "negative",
    ],
    10: [13, 10, 16, 10, 8, "not_a_number", 0, 0, "not_a_number", "not_a_number", 13, 5, 5, None, None, "negative"],
    "go": [
        13, 8, 16, 10, "not_a_number", 1000, 0, 0, 15, "not_a_number", "not_a_number", 5, 5, None, None, "negative",
    ],
    "0x": [
        0x13, 0x10, 0x10, 0x10, 8, "not_a_number", 0, 0, "not_a_number", 0x7F, "not_a_number", 5, 5, None, None,
        "negative",
    ],
}  # fmt: skip


@pytest.mark.parametrize("base", READ)
def test_mapping_selects_the_base_of_amounts(base: Any) -> None:
    amount: dict[str, Any] = {"column": "v"} if base is None else {"column": "v", "base": base}
    found = read_records(
        mapping({"amount": amount}), "\n".join(["n,v", *(f"{n},{text}" for n, text in enumerate(TEXTS))])
    )
    values: dict[int, Any] = {row["index"]: row["amount_0"] for row in rows_of(found)}
    values |= {number - 1: reason for number, reason, _ in why(found)}
    assert {text: values[n] for n, text in enumerate(TEXTS)} == dict(zip(TEXTS, READ[base], strict=True))


def test_base_has_three_values_and_applies_to_amounts_only() -> None:
    for wrong in (8, "10", "hex"):
        with pytest.raises(ValidationError, match="amount"):
            mapping({"amount": {"column": "v", "base": wrong}})
    with pytest.raises(ValidationError, match="base"):
        mapping({"height": {"column": "v", "base": 10}})


def test_parquet_numbers_have_one_reading() -> None:
    for base in (10, "go", "0x"):
        table = pa.table({"n": [1], "v": pa.array([10], pa.uint64())})
        assert rows_of(read_records(mapping({"amount": {"column": "v", "base": base}}), table))[0]["amount_0"] == 10


def test_go_integer_literals() -> None:
    read = {
        "0X1f": "31", "0B11": "3", "0O17": "15", "017": "15", "0_17": "15", "0x_1_f": "31", "1_0": "10", "-0x1": "-1",
        "0" * 300 + "7": "7", "1" + "0" * 5_000: str(2**256), "0x" + "f" * 64: str(2**256 - 1),
    }  # fmt: skip
    assert {text: parse_go_literal(text) for text in read} == read
    refused = ["", "0x", "08", "019", "_1", "1_", "1__0", "0_", "0b2", "1e3", "1.0", "+-1", "٣", "0x1g", "1 0"]
    assert {parse_go_literal(text) for text in refused} == {"?"}


def test_leading_zeros_of_an_amount_count_in_its_content_if_they_change_it() -> None:
    lines = "n,v\n1,10\n2,010\n3,8\n"
    for base, different in ((10, 2), ("go", 3)):
        events = [{"event": {"text": "sent"}, "content": ["v"]}]
        found = rows_of(read_records(mapping({"amount": {"column": "v", "base": base}}, events=events), lines))
        assert len({row["payload_hash"] for row in found}) == different


def test_height_0_of_a_revision_is_quarantined_unless_the_mapping_defines_it() -> None:
    text = "n,t\n1,1-0\n2,01-02\n3,0-0\n4,0-5\n5,10-00\n"
    found = read_records(mapping({"timeout_height": "t"}), text)
    assert why(found) == [(1, "ambiguous_height", "timeout_height"), (5, "ambiguous_height", "timeout_height")]
    columns = [(row["index"], row["timeout_revision"], row["timeout_height"]) for row in rows_of(found)]
    assert columns == [(2, 1, 2), (3, None, None), (4, 0, 5)]
    found = read_records(mapping({"timeout_height": {"column": "t", "values": {"1-0": "0"}}}), text)
    assert next((row["index"], row["timeout_height"]) for row in rows_of(found)) == (1, None)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch, "ingest", "ibc-packets")


def test_command_names_both_readings(cli: Run, tmp_path: Path) -> None:
    head = "chain_id,channel_id,sequence,send_height,amount,timeout_height\n"
    (tmp_path / "a.csv").write_text(f"{head}a,channel-0,1,5,010,\n")
    code, _, err = cli(tmp_path / "a.csv", "--lake", tmp_path / "none")
    assert (code, err.splitlines()[-2:]) == (2, [
        'causeway: a.csv: record 1: amount: ambiguous_number "010"; 0 of 1 records taken (ambiguous_number 1)',
        "hint: 010 is 10 to ibc-rs and cosmjs, 8 to ibc-go; base in a mapping (--mapping) says which",
    ])  # fmt: skip
    (tmp_path / "a.csv").write_text(f"{head}a,channel-0,1,5,010,\na,channel-0,2,6,1,1-0\na,channel-0,3,7,1,\n")
    code, out, _ = cli(tmp_path / "a.csv", "--lake", tmp_path / "some")
    text = " ".join(out.split())
    assert code == 0
    assert "1 in quarantine: ambiguous_number (010 is 10 to ibc-rs and cosmjs, 8 to ibc-go; base" in text
    assert "1 in quarantine: ambiguous_height (1-0 is height 0 of revision 1 to ibc-go, no time-out to" in text
