"""Re-execution of lakes in ranges: honest lakes reproduce, and alterations are located.

Results are independent of the number of ranges and processes.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from functools import partial
from operator import add, eq
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.errors import CausewayError

from causeway.audit.engine import audit_table
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.network import recheck, reexecution_workers
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.recheck import ExecutedRange, LakeRecheck, reexecute_lake
from causeway.network.reexecution import DifferenceReason, DifferingHeight, RangeResult, Reexecutor
from causeway.network.reexecution_workers import ProcessEnded
from causeway.network.replay import recorded_deployment
from causeway.storage.commit_log import decoded, encoded
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Lake, LakeDamaged
from tests.resealed import alter_first, log_file, replace
from tests.support.common.forked_lakes import SCENARIOS, forked_lake, recorded_lake


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lakes")


def execute_ranges(lake: Lake, first: int, last: int, many: int) -> ExecutedRange:
    """Execute heights in at most the given number of ranges, in this process."""
    deployment = recorded_deployment(lake, lake.about())
    again = Reexecutor(deployment, lake)

    def run(asked: Sequence[Any]) -> list[RangeResult | CausewayError]:
        found: list[RangeResult | CausewayError] = []
        for begin, end, wrong in asked:
            try:
                found.append(again.run(begin, end, wrong))
            except CausewayError as error:
                found.append(error)
        return found

    cut = recheck._cut(lake, first, last, many)
    assert len(cut) > 1 or many == 1 or lake.manifest(first).last >= last
    return recheck._settled(lake, cut, run, at_once=deployment.kernel.past_heights > 0)


def recheck_lake(lake: Path | str, first: int = 0) -> tuple[DifferingHeight, ...]:
    """Return the re-execution result of a lake, equal in one range and in many."""
    assert verify_lake(Lake.at(str(lake))).damaged == (), "the seals fit"
    opened = open_lake(str(lake))
    one = LakeRecheck(opened).ranges(first, opened.last_height(), processes=1)
    assert execute_ranges(opened.lake, first, opened.last_height(), 100) == one
    return one.different


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SCENARIOS)
def test_honest_lake_reexecutes_equally_in_any_ranges(protocol: str, folder: Path) -> None:
    opened = forked_lake(folder, protocol)
    last, told = opened.last_height(), list[tuple[int, int]]()
    expected = ExecutedRange(0, last)
    assert LakeRecheck(opened).ranges(0, last, progress=lambda done, of: told.append((done, of))) == expected
    assert told[-1] == (last + 1, last + 1)
    assert execute_ranges(opened.lake, 0, last, 100) == expected
    for first, end in ((3, 8), (last - 1, last)):
        assert execute_ranges(opened.lake, first, end, 3) == ExecutedRange(first, end)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", SCENARIOS)
def test_honest_lake_reexecutes_equally_in_two_processes(protocol: str, folder: Path) -> None:
    opened = forked_lake(folder, protocol)
    last, told = opened.last_height(), list[tuple[int, int]]()
    again = LakeRecheck(opened)
    assert again.ranges(0, last, processes=2, progress=lambda *way: told.append(way)) == ExecutedRange(0, last)
    assert told[-1] == (last + 1, last + 1)
    assert again.ranges(5, 9, processes=2) == ExecutedRange(5, 9)


def state_file(lake: Lake, table: str, height: int) -> tuple[str, pa.Table]:
    manifest = lake.manifest(height)
    (path,) = manifest.state[table]["0"].rows
    return path, lake.sealed_table(path, manifest.files[path])


def read_log(lake: Path, table: str, height: int, chain: int, owner: str = "chain") -> tuple[str, pa.Table]:
    opened = Lake.at(str(lake))
    path = log_file(lake, table, height, chain, owner)
    return path, opened.sealed_table(path, opened.log_files(table)[path])


def copy_lake(folder: Path, tmp_path: Path, protocol: str) -> Path:
    forked_lake(folder, protocol)
    return Path(shutil.copytree(folder / protocol, tmp_path / "lake"))


def test_altered_states_are_detected(folder: Path, tmp_path: Path) -> None:
    """Include a table that no root covers."""
    lake = copy_lake(folder, tmp_path, "ibc")
    files = {}
    for table, column, height in (("accounts", "balance_low", 5), ("relayers", "fees", 10)):
        path, rows = state_file(Lake.at(str(lake)), table, height)
        files[path] = alter_first(rows, column, lambda row: True, lambda value: value + 1)
    replace(lake, files)
    found = [(each.height, each.what, each.reason, len(each.chains)) for each in recheck_lake(lake)]
    assert found == [(5, "accounts", DifferenceReason.STATE, 1), (10, "relayers", DifferenceReason.STATE, 1)]
    assert [each.height for each in recheck_lake(lake, 6)] == [10], "it begins with the state before that"


NO_CHAIN = 2**31 - 1
STATES_WITHOUT_ROOTS = [
    ("ic", "runs", "count", 0),
    ("ic", "heads", "number", 2**63 - 1),
    ("ibc", "queues", "destination", NO_CHAIN),
    ("xdm", "channels", "chain", NO_CHAIN),
    ("icmp", "unrouted", "number", 2**63 - 1),
]
"""Protocols, state tables, and values that these never have."""


@pytest.mark.parametrize(("protocol", "table", "column", "value"), STATES_WITHOUT_ROOTS)
def test_state_without_roots_is_corruption(
    protocol: str, table: str, column: str, value: int, folder: Path, tmp_path: Path
) -> None:
    lake = copy_lake(folder, tmp_path, protocol)
    opened = Lake.at(str(lake))
    commit = next(each for each in map(opened.numbered, range(2, 9)) if table in each.state)
    path, rows = state_file(opened, table, commit.last)
    replace(lake, {path: alter_first(rows, column, lambda row: True, lambda before: value)})
    found = LakeRecheck(open_lake(str(lake)))
    with pytest.raises(LakeDamaged, match=rf"state of \S+ at height {commit.last} another root .*, or none"):
        found.roots(commit.number)
    different = found.ranges(0, commit.last, processes=1).different
    assert [(each.height, each.what, each.reason) for each in different] == [
        (commit.last, table, DifferenceReason.STATE)
    ]


def test_rows_of_unknown_chains_are_detected(folder: Path, tmp_path: Path) -> None:
    lake = copy_lake(folder, tmp_path, "xdm")
    (rows,) = Lake.at(str(lake)).commit_rows("events", Lake.at(str(lake)).numbered(1))
    one = rows.to_pylist()[-1]
    names = open_lake(str(lake)).names[one["chain"]], f"chain {NO_CHAIN}"
    path = read_log(lake, "events", one["height"], one["chain"])[0]
    replace(lake, {path: alter_first(rows, "chain", partial(eq, one), lambda chain: NO_CHAIN)})
    assert recheck_lake(lake)[0] == DifferingHeight(one["height"], names, "events", DifferenceReason.ROWS, "chain")


def test_headers_of_unknown_chains_are_detected(folder: Path, tmp_path: Path) -> None:
    lake = copy_lake(folder, tmp_path, "icmp")
    path, rows = read_log(lake, "headers", 10, 0)
    replace(
        lake,
        {
            path: alter_first(
                rows, "chain", lambda row: (row["height"], row["chain"]) == (10, 0), lambda chain: NO_CHAIN
            )
        },
    )
    found = recheck_lake(lake)[0]
    assert (found.height, found.what, found.chains[-1]) == (10, "root", f"chain {NO_CHAIN}")


def test_altered_rows_are_detected(folder: Path, tmp_path: Path) -> None:
    lake, expected = copy_lake(folder, tmp_path, "xdm"), []
    names = open_lake(str(lake)).names
    more: dict[str, Any] = {"payload": b"!", "code": 1}
    for table, column, owner, commit in (("outbound", "payload", "source", 1), ("events", "code", "chain", 2)):
        manifest = Lake.at(str(lake)).numbered(commit)
        (rows,) = Lake.at(str(lake)).commit_rows(table, manifest)
        one = rows.to_pylist()[rows.num_rows // 2]
        path = read_log(lake, table, one["height"], one[owner], owner)[0]
        replace(lake, {path: alter_first(rows, column, partial(eq, one), partial(add, more[column]))})
        expected.append(DifferingHeight(one["height"], (names[one[owner]],), table, DifferenceReason.ROWS, column))
    assert recheck_lake(lake) == tuple(expected)


def test_altered_root_in_a_header_is_detected(folder: Path, tmp_path: Path) -> None:
    lake = copy_lake(folder, tmp_path, "icmp")
    path, rows = read_log(lake, "headers", 10, 0)

    def flipped(root: bytes) -> bytes:
        return root[:-1] + bytes([root[-1] ^ 1])

    replace(lake, {path: alter_first(rows, "root", lambda row: (row["height"], row["chain"]) == (10, 0), flipped)})
    assert recheck_lake(lake) == (DifferingHeight(10, ("relay",)),)
    assert LakeRecheck(open_lake(str(lake))).execute(0, 9) is None


@pytest.mark.parametrize("protocol", SCENARIOS)
def test_altered_headers_are_detected(protocol: str, folder: Path, tmp_path: Path) -> None:
    """Alter every column but the root, in a commit each, including that of height 0."""
    lake, expected = copy_lake(folder, tmp_path, protocol), []
    opened = open_lake(str(lake))
    columns: dict[str, Any] = {"tick": 1, "number": 1, "hash": b"!", "parent": b"!", "certification": b"!", "height": 1}
    for column, number in zip(columns, range(opened.manifest().number + 1), strict=False):
        parts = opened.lake.commit_rows("headers", opened.lake.numbered(number))
        one = parts[0].to_pylist()[0]
        path = read_log(lake, "headers", one["height"], one["chain"])[0]
        replace(lake, {path: alter_first(parts[0], column, partial(eq, one), partial(add, columns[column]))})
        expected.append(
            DifferingHeight(one["height"], (opened.names[one["chain"]],), "headers", DifferenceReason.ROWS, column)
        )
    found = recheck_lake(lake)
    assert [each for each in found if each.column not in ("", "height")] == expected[:5]
    assert {each.height for each in expected} <= {each.height for each in found}, "another height may be a missing row"


def test_altered_ingress_is_detected(tmp_path: Path) -> None:
    opened = recorded_lake(tmp_path)
    manifest = opened.lake.manifest(4)
    path = manifest.outside["ingress"]
    rows = opened.lake.storage.read_table(path)
    replace(tmp_path / "served", {path: alter_first(rows, "receiver", lambda row: True, lambda program: program + 1)})
    found = recheck_lake(tmp_path / "served")
    assert found[0].height == 4 and found[0].reason == DifferenceReason.ROOT


@pytest.mark.slow
def test_invalid_state_ends_a_process_but_not_the_command(folder: Path, tmp_path: Path) -> None:
    """A range cannot start with the invalid state and starts with the one before."""
    lake = copy_lake(folder, tmp_path, "ic")
    path, rows = state_file(Lake.at(str(lake)), "lanes", 8)
    replace(lake, {path: alter_first(rows, "next_index", lambda row: True, lambda value: value + 1)})
    opened = open_lake(str(lake))
    found = LakeRecheck(opened).ranges(0, opened.last_height(), processes=2)
    has = [manifest.last for manifest in opened.lake.chain(0, opened.manifest().number) if path in manifest.files]
    assert [(each.height, each.what, each.reason) for each in found.different] == [
        (height, "lanes", DifferenceReason.STATE) for height in has
    ]
    first, last = has[-1] + 1, opened.last_height()
    assert LakeRecheck(opened).ranges(first, last, processes=2) == ExecutedRange(first, last)


@pytest.mark.slow
def test_killed_process_is_reported_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, started = forked_lake(folder, "xdm"), list[int]()

    class Killed(reexecution_workers._Process):
        """Process whose replacement is killed as well."""

        def run(self, *asked: Any) -> RangeResult:
            started.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)
            return super().run(*asked)

    monkeypatch.setattr(reexecution_workers, "_Process", Killed)
    with pytest.raises(ProcessEnded, match=r"^a process .* ended before it was done: signal 9$"):
        LakeRecheck(opened).ranges(0, opened.last_height(), processes=2)
    assert len(started) > 2
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_audit_reports_reexecution_differences() -> None:
    empty = (schema.empty_table() for schema in (LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA))
    before = audit_table(*empty)
    different = (
        DifferingHeight(5, ("a", "b")),
        DifferingHeight(9, ("b",), "outbound", DifferenceReason.ROWS, "payload"),
    )
    after = ExecutedRange(0, 20, different, ((6, 8),)).merge_into(before)
    found = after.checks["headers"]
    assert found.reasons == {
        ("violated", "rows_differ"): 1,
        ("violated", "root_differs"): 2,
        ("unknown", "not_executed"): 1,
    }
    assert (found.verdict, found.violated, found.unknown) == ("FAILED", 3, 1) and not after.holds
    named = [(row["reason"], row["chain"], row["height"], row["event"]) for row in after.violations.to_pylist()]
    assert named == [
        ("root_differs", "a", 5, "root"),
        ("root_differs", "b", 5, "root"),
        ("rows_differ", "b", 9, "outbound.payload"),
        ("not_executed", None, 6, None),
    ]
    assert ExecutedRange(0, 20).merge_into(before).checks == before.checks
    assert ExecutedRange(0, 20, other="table x is another").merge_into(before).checks["headers"].unknown == 1


def change_lake(lake: Path, change: Any) -> OpenedLake:
    about = decoded((lake / "lake.json").read_bytes())
    about.pop("digest")
    change(about)
    (lake / "lake.json").write_bytes(encoded(about, in_lines=True))
    return open_lake(str(lake))


def test_reason_against_reexecution_is_reported_in_one_line(folder: Path, tmp_path: Path) -> None:
    lake = copy_lake(folder, tmp_path, "ibc")
    change_lake(lake, lambda about: about["tables"]["state"][0]["columns"].append(["more", "uint8"]))
    found = reexecute_lake(str(lake))
    assert found.other == "table queues has other columns than when the lake was made" and found.different == ()
    change_lake(lake, lambda about: about["scenario"]["options"].update(validator_keys={}))
    assert reexecute_lake(str(lake)).other.startswith("--validator-key: missing;")  # type: ignore[union-attr]
