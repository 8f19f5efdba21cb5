"""Headers and watermarks of lakes: the final state of chains is recorded and consistent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from causeway.audit.engine import AuditResult
from causeway.audit.passes.results import ChainAssertions, check_chain_assertions, merge_assertions
from causeway.audit.stored import audit_ledger
from causeway.ledger.lake.chains import ChainDerivation
from causeway.ledger.lake.derivation import read_run_names
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.schema import HEADERS_SCHEMA, OBSERVED_SCHEMA, WATERMARKS_SCHEMA
from causeway.ledger.windows import ObservedWindowTable
from causeway.network.opened_lake import OpenedLake
from causeway.storage.lake import Lake
from causeway.storage.log_reader import LogReader
from tests.chance_lakes import chance_lake
from tests.resealed import alter_first, log_file, replace
from tests.support.common.forked_lakes import SCENARIOS, forked_lake
from tests.support.common.small_lakes import OUT_OF_ORDER, lake_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(params=SCENARIOS)
def opened(request: pytest.FixtureRequest, folder: Path) -> OpenedLake:
    return forked_lake(folder, request.param)


class Taken:
    """Headers and watermarks of a lake ingested up to successive heights."""

    def __init__(self, lake: Lake, *ends: int) -> None:
        headers, watermarks = [HEADERS_SCHEMA.empty_table()], [WATERMARKS_SCHEMA.empty_table()]
        self.windows, first = OBSERVED_SCHEMA.empty_table(), 0
        for end in (*ends, lake.last_height() + 1):
            chains = ChainDerivation(LogReader(lake.with_identity()), read_run_names(lake))
            headers += chains.headers(first, end)
            watermarks += chains.watermarks(first, end)
            texts = [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in OBSERVED_SCHEMA]
            rows = pa.Table.from_pylist(chains.windows(self.windows), pa.schema(texts))
            self.windows, first = rows.cast(OBSERVED_SCHEMA), end
        self.headers = pa.concat_tables(headers).unify_dictionaries()
        self.watermarks = pa.concat_tables(watermarks).unify_dictionaries()

    @property
    def judged(self) -> ChainAssertions:
        windows = ObservedWindowTable(self.windows)
        return merge_assertions([check_chain_assertions(self.headers, self.watermarks, windows)], windows)

    def blocks(self) -> set[tuple[str, int, str]]:
        """The valid blocks: the last row of each block."""
        last: dict[tuple[str, int, str], tuple[int, bool]] = {}
        for row in self.headers.to_pylist():
            key = row["chain"], row["height"], row["hash"] or row["root"]
            last[key] = max(last.get(key, (-1, False)), (row["tick"], row["status"] is None))
        return {key for key, (_, counts) in last.items() if counts}

    def marks(self) -> set[tuple[Any, ...]]:
        names = ("source", "destination", "lane", "chain", "name", "height", "position", "value")
        rows = [(tuple(row[name] for name in names), row["status"]) for row in self.watermarks.to_pylist()]
        return {key for key, _ in rows} - {key for key, status in rows if status}


def rows_of(lake: Lake, table: str) -> list[dict[str, Any]]:
    files = lake.log_files(table)
    return [row for path, seal in files.items() for row in lake.sealed_table(path, seal).to_pylist()]


def ancestor_headers(opened: OpenedLake) -> Iterator[tuple[str, int, str]]:
    """The headers that the last one of each chain descends from, found one by one."""
    rows = rows_of(opened.lake, "headers")
    for position, name in enumerate(opened.names):
        own = [row for row in rows if row["chain"] == position]
        if not own[-1]["hash"]:
            yield from ((name, row["number"], row["root"].hex()) for row in own)
            continue
        by_hash, row = {each["hash"]: each for each in own}, own[-1]
        while row:
            yield name, row["number"], row["hash"].hex()
            row = by_hash.get(row["parent"], {})


def test_final_headers_and_watermarks_are_recorded_and_pass(opened: OpenedLake) -> None:
    taken = Taken(opened.lake)
    assert (
        taken.blocks() == set(ancestor_headers(opened)) and taken.headers["status"].null_count == taken.headers.num_rows
    )
    if opened.protocol in ("xdm", "icmp"):
        assert len(taken.blocks()) < len(rows_of(opened.lake, "headers")), "forks lost some"
    judged = taken.judged
    assert judged.findings.num_rows == 0
    assert len({row["name"] for row in taken.watermarks.to_pylist()} - {"sent", "collected", "forgotten"}) >= 3
    assert sum(judged.examined["count"].to_pylist()) == taken.headers.num_rows + taken.watermarks.num_rows


def test_unordered_collection_is_no_watermark(tmp_path: Path) -> None:
    lake = Lake.at(chance_lake(tmp_path, "ibc", 10))  # its queues are unordered
    runs = [row for row in rows_of(lake, "collected") if (row["source"], row["substream"]) == (0, 1)]
    assert [row["begin"] for row in runs] != sorted(row["begin"] for row in runs)
    taken = Taken(lake)
    assert "collected" not in {row["name"] for row in taken.watermarks.to_pylist() if row["lane"] == "1"}
    assert taken.judged.findings.num_rows == 0


def test_unordered_receipts_are_no_watermark(tmp_path: Path) -> None:
    """The program called first asks another zone before it answers, so its receipt comes last."""
    lake = lake_of(tmp_path, OUT_OF_ORDER)
    with open_or_derive_ledger(lake) as ledger:
        marks = ledger.table("watermarks").to_pylist()
        assert audit_ledger(ledger).sentence() == "PASSED"
    sent = {(row["source"], row["lane"]) for row in marks if row["name"] == "sent"}
    assert ("chain-0", "1") in sent and ("chain-1", "0") not in sent


def test_lake_ingested_in_parts_has_equal_headers_and_watermarks(opened: OpenedLake) -> None:
    """Also if a part ends within a fork, whose blocks are recorded and reverted, or not recorded yet."""
    whole, last = Taken(opened.lake), opened.last_height()
    back = 0
    for ends in (range(1, last + 1), *([end] for end in range(1, last + 1, 5))):
        parts = Taken(opened.lake, *ends)
        assert parts.blocks() == whole.blocks(), ends
        assert parts.marks() == whole.marks(), ends
        assert parts.windows.equals(whole.windows), ends
        assert parts.judged.findings.num_rows == 0, ends
        back += parts.headers.num_rows - parts.headers["status"].null_count
    assert (back > 0) == (opened.protocol in ("xdm", "icmp"))


def audited(lake: Path) -> AuditResult:
    with open_or_derive_ledger(str(lake)) as ledger:
        return audit_ledger(ledger)


def found(audit: AuditResult, check: str) -> list[tuple[Any, ...]]:
    rows = [row for row in audit.violations.to_pylist() if row["check"] == check]
    return [(row["reason"], row["chain"], row["height"], row["magnitude"]) for row in rows]


def other(digest: bytes) -> bytes:
    return bytes([digest[0] ^ 1]) + digest[1:]


@pytest.mark.parametrize(
    ("protocol", "column", "change", "expected"),
    [
        ("xdm", "parent", other, [("parent_differs", "consensus", 34, None)]),
        ("icmp", "hash", other, [("parent_differs", "relay", 16, None)]),
        ("ibc", "number", lambda n: n + 1, [("two_headers", "c0", 6, None), ("missing_inside_window", "c0", 5, 1)]),
        ("ic", "tick", lambda tick: tick + 4, [("time_fell", "c0", 11, 3e6)]),
    ],
)
def test_altered_header_is_named(
    protocol: str, column: str, change: Any, expected: list[Any], folder: Path, tmp_path: Path
) -> None:
    opened = forked_lake(folder, protocol)
    lake = Path(shutil.copytree(folder / protocol, tmp_path / "lake"))
    height = {"xdm": 20, "icmp": 15, "ibc": 5, "ic": 10}[protocol]
    path = log_file(lake, "headers", height, 0)
    rows = opened.lake.sealed_table(path, opened.lake.log_files("headers")[path])
    replace(lake, {path: alter_first(rows, column, lambda row: (row["height"], row["chain"]) == (height, 0), change)})
    assert found(audited(lake), "headers") == expected


def test_decreasing_watermark_is_named(folder: Path, tmp_path: Path) -> None:
    """A chain collects again; and a state has a lower consumed watermark than before."""
    opened = forked_lake(folder, "icmp")
    lake = Path(shutil.copytree(folder / "icmp", tmp_path / "lake"))
    collected = [row for row in rows_of(opened.lake, "collected") if row["begin"] > 0]
    row = collected[-1]
    path = log_file(lake, "collected", row["height"], row["chain"])
    rows = opened.lake.sealed_table(path, opened.lake.log_files("collected")[path])
    files = {path: alter_first(rows, "begin", lambda each: each == row, lambda begin: begin - 1)}
    last = opened.lake.last_manifest()
    last = last.at(last.last)
    (path,) = last.state["cursors"]["0"].rows
    cursors = opened.lake.sealed_table(path, last.files[path])
    files[path] = alter_first(cursors, "index", lambda each: each["index"] > 0, lambda index: 0)
    replace(lake, files)
    named = [row for row in audited(lake).violations.to_pylist() if row["check"] == "watermarks"]
    to = next(each["destination"] for each in cursors.to_pylist() if each["index"] > 0)
    expected = {
        ("collected", opened.names[row["chain"]], row["height"]),
        ("consumed", opened.names[to], last.height),
    }
    assert {(each["event"], each["chain"], each["height"]) for each in named} == expected
    assert {each["reason"] for each in named} == {"fell"}
