"""Untrusted texts in CSV files are inert in spreadsheets and terminals."""

from __future__ import annotations

import csv
import io
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causeway.cli.output.rows import print_csv


def printed(texts: list[str | None], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the cells of one column as a CSV reader parses them."""
    capsys.readouterr()
    rows = pa.table({"name": pa.array(texts, pa.string()), "number": pa.array([-1] * len(texts), pa.int64())})
    print_csv([rows], rows.schema)
    found = [*csv.reader(io.StringIO(capsys.readouterr().out, newline=""))]
    assert found[0] == ["name", "number"] and all(row[1] == "-1" for row in found[1:])
    return [row[0] for row in found[1:]]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+a", "'+a"),
        ("-a", "'-a"),
        (" =1", "' =1"),
        ("\t=1", r"\t=1"),
        ("\r\n=1", r"\r\n=1"),
        ("\uff1d1", "'\uff1d1"),
        ("-12", "-12"),
        ("+1.5", "+1.5"),
        ("a=b", "a=b"),
        ("a\x1b[31m", r"a\x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ('say "x", y', 'say "x", y'),
        ("", ""),
        (None, ""),
    ],
)
def test_csv_cell_is_text(text: str | None, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed([text, "beside"], capsys) == [cell, "beside"]


def test_column_names_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"=1+1": [1], "a\x1bb": [2], "name": [3]})
    print_csv([rows], rows.schema)
    assert [*csv.reader(io.StringIO(capsys.readouterr().out))] == [["'=1+1", r"a\x1bb", "name"], ["1", "2", "3"]]


@given(st.lists(st.text(), min_size=1))
def test_no_text_becomes_a_formula_or_a_terminal_sequence(texts: list[str]) -> None:
    rows = pa.table({"name": pa.array([text.encode("utf-8", "replace").decode() for text in texts])})
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO(newline="")
        patch.setattr("sys.stdout", out)
        print_csv([rows], rows.schema)
    cells = [row[0] for row in csv.reader(io.StringIO(out.getvalue(), newline=""))][1:]
    assert len(cells) == len(texts)
    for cell in cells:
        assert not any(unicodedata.category(each) in ("Cc", "Cf") for each in cell)
        assert cell.lstrip()[:1] not in ("=", "@") and (
            cell[:1] not in ("+", "-") or cell[1:].replace(".", "").isdigit()
        )
