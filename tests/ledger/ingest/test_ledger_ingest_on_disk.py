"""Files yield the same ledger for any task runner."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from pyspark.sql import SparkSession

from causeway.ledger.ingest import commit, tasks, windows
from causeway.ledger.ingest.ingest import FollowBatch, follow_source, ingest_files
from causeway.ledger.ingest.mapping import MappingDocument, load_mapping
from causeway.ledger.ingest.tasks import IngestJob
from causeway.ledger.store import open_ledger
from tests.ledger.ingest.test_ingest_links import JOURNEYS, two_chains
from tests.ledger.ingest.test_ledger_ingest import HEAD, lines, mapping
from tests.recordings import Recordings


def contents(lake: str) -> dict[str, Any]:
    """Return the content of a ledger."""
    ledger = open_ledger(lake)
    found: dict[str, Any] = {f"bucket {bucket}": ledger.rows(bucket).to_pylist() for bucket in range(ledger.buckets)}
    for table in ("quarantine", "observed", "promises", "state"):
        found[table] = sorted(ledger.table(table).to_pylist(), key=str)
    inputs = sorted(
        (each.file, each.bytes, each.sha256, each.records, each.ends_record) for each in ledger.ingested_inputs()
    )
    return {**found, "inputs": inputs, "counts": dict(ledger.counts)}


def packets(recordings: Recordings, folder: Path) -> MappingDocument:
    rows = pq.read_table(recordings.hub_packets)
    pq.write_table(rows.slice(0, 3_000), folder / "a.parquet", row_group_size=700)
    pq.write_table(rows.slice(2_500, 600), folder / "b.parquet")
    return load_mapping("ibc-packets")


def quoted(recordings: Recordings, folder: Path) -> MappingDocument:
    names = [f'two\nlines "{number}"' if number % 7 == 0 else f"w{number}" for number in range(3_000)]
    table = {"n": list(range(3_000)), "what": ["s"] * 3_000, "who": names, "at": list(range(3_000))}
    pa_csv.write_csv(pa.table(table), folder / "a.csv")
    with (folder / "a.csv").open("a") as file:
        file.write('5,"open\n' + lines(5000, 5100) + "x\n\n")
    for number in range(5):
        (folder / f"small-{number}.csv").write_text(HEAD + lines(9_000 + number, 9_002 + number))
    (folder / "some.csv").write_text(HEAD + lines(20_000, 20_010))
    return mapping(promises=[{"promise": "numbered"}])


def events(_: Recordings, folder: Path) -> MappingDocument:
    two_chains(folder, 90)
    return load_mapping("ibc-events")


def journeys(_: Recordings, folder: Path) -> MappingDocument:
    for number in range(3):
        text = "".join(json.dumps(each) + "\n" for each in JOURNEYS[number::3])
        (folder / f"{number}.jsonl").write_text(text)
    return load_mapping("xcm-journeys")


def upgraded(_: Recordings, folder: Path) -> MappingDocument:
    for name, text in (("a", "1,s,x,5,100\n2,s,x,6,2-7\n"), ("b", "3,s,y,7,100\n"), ("c", "4,s,y,9,3\n5,r,y,8,2-9\n")):
        (folder / f"{name}.csv").write_text("n,what,who,at,h\n" + text)
    fields = {"protocol": {"text": "p"}, "chain": "who", "index": "n", "height": "h",
              "time": {"column": "at", "unit": "s"}}  # fmt: skip
    return mapping(fields=fields, windows={"by": "height"}, clocks={"*": "2s"})


@pytest.mark.parametrize("made", [packets, quoted, events, journeys, upgraded])
def test_spark_and_threads_write_the_same_ledger(
    spark: SparkSession,
    recordings: Recordings,
    tmp_path: Path,
    made: Callable[[Recordings, Path], MappingDocument],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    of = made(recordings, folder)
    monkeypatch.setattr(tasks, "TASK_BYTES", 1 << 15)
    small = partial(replace, run_bytes=100_000, part_bytes=20_000)
    monkeypatch.setattr(commit, "IngestJob", lambda *given: small(IngestJob(*given)))
    done = ingest_files(str(folder), str(tmp_path / "threads"), of, buckets=8, executor="in_process")
    assert done == ingest_files(str(folder), str(tmp_path / "spark"), of, buckets=8, session=spark)
    assert contents(str(tmp_path / "threads")) == contents(str(tmp_path / "spark"))
    assert not list((tmp_path / "spark" / "staging").iterdir())
    assert ingest_files(str(folder), str(tmp_path / "spark"), of, session=spark).commit is None


def test_task_error_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("b", "c"):
        (tmp_path / f"{name}.csv").write_text(f"wrong {name}\n")
    (tmp_path / "a.csv").write_text(HEAD + lines(0, 3))
    with pytest.raises(InvalidInput, match=r"^b\.csv: column for index"):
        ingest_files(str(tmp_path), str(tmp_path / "ledger"), mapping(), session=spark)
    done = ingest_files(str(tmp_path), str(tmp_path / "ledger"), mapping(), session=spark, set_aside=True)
    assert (done.records, [*done.failed]) == (3, ["b.csv", "c.csv"])


class Enough(Exception):
    """All written records were ingested."""


def test_followed_folder_yields_the_ledger_of_one_call(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lake = tmp_path / "in", str(tmp_path / "followed")
    folder.mkdir()
    (folder / "a.csv").write_text(HEAD + lines(0, 3) + "3,s")
    (folder / "wrong.csv").write_text("wrong\n")
    once = follow_source(str(folder), lake, mapping(), buckets=4, session=spark, once=True)
    assert (once.commits, once.records, once.waiting) == (1, 3, ["a.csv", "wrong.csv"])
    records = 0

    def told(batch: FollowBatch) -> None:
        nonlocal records
        records += batch.done.records
        if records == 1:
            (folder / "b.csv").write_text(HEAD + lines(10, 20))
            with (folder / "a.csv").open("a") as file:
                file.write(lines(4, 6))
        elif records == 13:
            raise Enough

    with (folder / "a.csv").open("a") as file:
        file.write(",w3,1000003\n")
    with pytest.raises(Enough):
        follow_source(str(folder), lake, mapping(), session=spark, seconds=0.1, told=told)
    followed = follow_source(str(folder), lake, mapping(), session=spark, once=True, settled_seconds=0)
    assert (followed.records, followed.failed) == (0, 1)
    ingest_files(str(folder), str(tmp_path / "whole"), mapping(), buckets=4, executor="in_process", set_aside=True)
    expected, found = contents(str(tmp_path / "whole")), contents(lake)
    for name in ("inputs", "counts"):
        del expected[name], found[name]
    assert found == expected
    with pytest.raises(InvalidInput, match="a file; only a folder can be followed"):
        follow_source(str(folder / "a.csv"), lake, mapping(), session=spark)


def test_failed_batch_ends_the_stream_in_one_line(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text(HEAD + lines(0, 3))
    monkeypatch.setattr(windows, "MAX_WINDOWS", 1)
    narrow = mapping(windows={"by": "time", "gap": 0})
    with pytest.raises(InvalidInput, match=r"^windows\.gap: more than 1 windows"):
        follow_source(str(tmp_path), str(tmp_path / "ledger"), narrow, session=spark, once=True)
