"""Untrusted Parquet files: unreadable or memory-exhausting ones are one error with the file name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, execute
from causeway.storage.lake import Lake
from causeway.storage.parquet_files import StoredParquet
from causeway.storage.seals import FileDamaged
from tests.resealed import replace
from tests.support.common.small_lakes import lake_of

SCENARIO = """
network = { protocol = "ic", ticks = 9, executor = "in_process" }
chains = [{ name = "left" }, { name = "right" }]
programs = [{ name = "asks", program = "caller", chain = "left" }, { name = "says", program = "echo", chain = "right" }]
traffic.source = "script"
traffic.send = [{ tick = 0, to = "asks", call = { receiver = "says", method = "echo" } }]
"""


def write_parquet(table: pa.Table, times: int = 1, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for _ in range(times):
            writer.write_table(table)
    return sink.getvalue()


def open_parquet(content: bytes) -> StoredParquet:
    return StoredParquet("log/events.parquet", pa.BufferReader(content), len(content))


STATE = ("state", "--master", "local[2]", "--table", "accounts")
ROWS = pa.table({"height": pa.array([1, 2, 3], pa.uint64()), "body": [b"a", b"", b"c"]})
GARBAGE = {
    "no Parquet": 500 * b"x",
    "nothing": b"",
    "no footer": b"PAR1" + 100 * b"\xff" + b"\x64\0\0\0PAR1",
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_non_parquet_file_is_named(content: bytes) -> None:
    with pytest.raises(FileDamaged, match=r"^log/events.parquet has another content than it can have: "):
        open_parquet(content)


def test_memory_exhausting_read_is_refused() -> None:
    many = pa.table({name: pa.repeat(pa.scalar(7, pa.uint64()), 1_000_000) for name in "abcd"})
    long = pa.table({"body": [bytes(40 << 20)]})
    lists = pa.table({"list": pa.array([[None] * 1_000_000])})
    for content in (write_parquet(many, 20), write_parquet(long, 9, compression="zstd"), write_parquet(lists, 200)):
        assert len(content) < 1_000_000
        file = open_parquet(content)
        with pytest.raises(FileDamaged, match=r"has [0-9,]+ bytes, which would become [0-9,]+$"):
            file.read()
        with pytest.raises(FileDamaged, match=r"has [0-9,]+ bytes, which would become [0-9,]+$"):
            file.read_row_groups([*range(file.num_row_groups)])
    one = pa.table({name: pa.repeat(pa.scalar(7, pa.uint64()), 12_000_000) for name in "abcd"})
    sink = io.BytesIO()
    pq.write_table(one, sink, row_group_size=len(one))
    file = open_parquet(sink.getvalue())
    for read in (lambda: file.read_row_group(0), lambda: next(file.iter_batches(9))):
        with pytest.raises(FileDamaged, match=r"which would become 384,000,000$"):
            read()
    assert next(file.iter_batches(9, columns=["a"])).num_rows == 9


def test_written_tables_round_trip() -> None:
    for file in (open_parquet(write_parquet(ROWS)), open_parquet(write_parquet(ROWS.slice(0, 0)))):
        assert file.read().num_rows == file.metadata.num_rows
        assert file.read_row_groups([0], ["height"]).column_names == ["height"]
        assert sum(batch.num_rows for batch in file.iter_batches(2, columns=["body"])) == file.metadata.num_rows


def test_missing_column_is_named() -> None:
    file = open_parquet(write_parquet(ROWS))
    for read in (lambda: file.read(["kind"]), lambda: [*file.iter_batches(9, columns=["kind"])]):
        with pytest.raises(FileDamaged, match=r"^log/events.parquet has no column kind$"):
            read()


def test_invalid_pages_are_named() -> None:
    content = bytearray(write_parquet(ROWS, compression="none", use_dictionary=False))
    content[4:40] = 36 * b"\xff"
    with pytest.raises(FileDamaged, match=r"^log/events.parquet has another content than it can have: "):
        open_parquet(bytes(content)).read()


def test_check_names_a_state_of_another_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Path(lake_of(tmp_path, SCENARIO))
    path = max(str(each.relative_to(lake)) for each in lake.glob("heights/*/accounts-*.parquet"))
    rows = pq.read_table(lake / path)
    small = rows["balance_low"].cast(pa.uint32())
    for wrong, said in (
        (rows.drop_columns("balance_low"), "has no column balance_low"),
        (rows.set_column(0, "program", pa.nulls(len(rows), pa.uint64())), "has rows without program"),
        (rows.set_column(4, "balance_low", small), "has uint32 in column balance_low, not uint64"),
    ):
        replace(lake, {path: wrong})
        assert execute(["check", str(lake)], build_app, "causeway") == FAILED
        assert f"{path} {said}" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("table", ["events", "accounts"])
def test_check_and_state_name_unreadable_files(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = Path(lake_of(tmp_path, SCENARIO))
    path = max(str(each.relative_to(lake)) for each in lake.glob(f"heights/*/{table}-*.parquet"))
    sound, rows = (lake / path).read_bytes(), pq.read_table(lake / path)
    last = rows.column_names[-1]
    for content, said in (
        (500 * b"x", "has another content than it can have: "),
        (rows.drop_columns(last), f"has no column {last}"),
        (sound[:4] + 40 * b"\xff" + sound[44:], "has another content than it can have: "),
    ):
        replace(lake, {path: content})
        assert execute(["check", str(lake)], build_app, "causeway") == FAILED
        assert f"{path} {said}" in capsys.readouterr().out.replace("\n", " ")
        if table == "accounts":
            assert execute([*STATE, str(lake)], build_app, "causeway") == BAD_INPUT
            error = capsys.readouterr().err
            assert len(error.splitlines()) == 1 and path in error and "Exception" not in error
    (lake / path).unlink()
    (lake / path).mkdir()
    assert execute(["check", str(lake)], build_app, "causeway") == FAILED
    assert f"{path} is no regular file" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    "content", [500 * b"x", write_parquet(ROWS.drop_columns("height"))], ids=["no Parquet", "no height"]
)
def test_command_names_the_file(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = lake_of(tmp_path, SCENARIO)
    (path,) = (each for each in Lake.at(str(lake)).log_files("events", range(1, 2)))
    replace(Path(lake), {path: content})
    assert execute(["audit", str(lake)], build_app, "causeway") == BAD_INPUT
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and f"is damaged: {path} has " in error
