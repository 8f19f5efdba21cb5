"""Reads at heights within a commit: every reader equals one of a lake with a commit per height."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.proof_specs import PROOF_SPECS
from causeway_proofs.ics23.verify import verify_membership

from causeway.cli import main
from causeway.dataframes.data_source import LakeSource
from causeway.dataframes.lake_tables import LakeTables
from causeway.network import replay
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import OpenedLake, open_lake
from causeway.network.recheck import DifferingHeight, LakeRecheck
from causeway.network.replay import ReplayBusy, ReplayDiffers, ReplayShare, StateReplay, recorded_deployment
from causeway.programs.user_modules import BESIDE, ModuleSources
from causeway.protocols.contract import Tick
from causeway.proving.ibc.store import PushedEntries, open_store, read_zones
from causeway.scenarios.scenario import load_scenario
from causeway.service.ibc.routes import ZoneViews
from causeway.spark.source import NetworkSource
from causeway.storage.external_input import ExternalInput
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Freed, Lake, LakeError
from causeway.storage.vacuum import vacuum_lake
from causeway.tick import bucket, rounds
from causeway.tick.rounds import replay_to_height as own_past
from tests.support.ibc.ibc_lake import scenario

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GROUP = 5
"""Heights of a commit; the last one has fewer."""

GENERATED = {
    "network.executor": "in_process",
    "network.partitions": "1",
    "traffic.messages": "60",
    "traffic.ticks": "9",
}


def make_lake(folder: Path, every: int, path: Path, overrides: dict[str, str] | None = None) -> OpenedLake:
    overrides = {"network.commit_every": str(every), "network.partitions": "1", **(overrides or {})}
    with LakeNetwork.from_scenario(path, overrides, lake=str(folder / f"lake-{every}")) as network:
        network.run()
    return open_lake(str(folder / f"lake-{every}"))


@pytest.fixture(scope="module")
def zones(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenedLake, OpenedLake]:
    """Return one ibc network twice: with commits of one height, and of several."""
    folder = tmp_path_factory.mktemp("zones")
    (folder / "scenario.toml").write_text(scenario())
    each, grouped = (make_lake(folder, every, folder / "scenario.toml") for every in (1, GROUP))
    assert grouped.manifest(3).last == GROUP and grouped.last_height() == each.last_height() > 2 * GROUP
    return each, grouped


@pytest.fixture(scope="module")
def subnets(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenedLake, OpenedLake]:
    """Return the same for an ic network."""
    folder = tmp_path_factory.mktemp("subnets")
    path = EXAMPLES / "generated.toml"
    return make_lake(folder, 1, path, GENERATED), make_lake(folder, GROUP, path, GENERATED)


def read_height(opened: OpenedLake, height: int, host_of: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Return the rows of every state table at a height by table and chain, and its log rows."""

    def anywhere(batch: pa.RecordBatch) -> Any:
        return np.ones(len(batch), dtype=bool)

    manifest, found = opened.manifest(height), {}
    for table in opened.tables.state:
        rows = opened.chosen_rows(manifest, table, 0, None, anywhere)
        found[table] = rows.to_pylist() if rows is not None else []
        for position in range(len(opened.names)) if host_of is not None else ():
            assert host_of is not None
            frame = opened.state_rows(manifest, table, position, host_of)
            found[f"{table} of {position}"] = frame.to_table(opened.tables.state[table].schema).to_pylist()
    for table, schema in opened.tables.logs.items():
        rows = opened.log_rows(table, height, 0, schema.names, anywhere)
        found[table] = rows.to_pylist() if rows is not None else []
    return found


@pytest.mark.parametrize("network", ["zones", "subnets"])
def test_every_table_at_every_height_is_equal(network: str, request: pytest.FixtureRequest) -> None:
    each, grouped = request.getfixturevalue(network)
    host_of = read_zones(each).host_of if network == "zones" else None
    heights = each.lake.heights()
    assert grouped.lake.heights() == heights and grouped.lake.last_manifest().number < len(heights) // 2
    seen = set()
    for height in [*heights[1::2], *reversed(heights[::2])]:  # in an order without dependencies
        expected = read_height(each, height, host_of)
        assert read_height(grouped, height, host_of) == expected, height
        seen |= {table for table, rows in expected.items() if rows}
    assert {"outbound", "events", "headers", "accounts"} < seen


def test_proofs_at_every_height_are_equal_and_verify(zones: tuple[OpenedLake, OpenedLake]) -> None:
    each, grouped = zones
    for height in each.lake.heights():
        for chain in "ABC":
            expected, store = open_store(each, chain, height), open_store(grouped, chain, height)
            places = np.arange(len(store))
            entries, proofs = store.entries_at(places), store.existence_proofs(places)
            assert (store.root, store.certification) == (expected.root, expected.certification)
            assert entries == expected.entries_at(places) and proofs == expected.existence_proofs(places)
            for place in (0, len(store) - 1):
                key, value = entries.keys[place].as_py(), entries.values[place].as_py()
                verify_membership(PROOF_SPECS["tendermint"], store.root, proofs[place].as_py(), key, value)


def test_height_search_reexecutes_few_heights(
    zones: tuple[OpenedLake, OpenedLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for old receipts over all heights re-executes each commit at most once."""
    each, grouped = zones
    executed: list[int] = []
    run = rounds.RoundChain.run

    def noted(self: rounds.RoundChain, tick: Tick, outside: ExternalInput) -> Any:
        executed.append(tick.height)
        return run(self, tick, outside)

    monkeypatch.setattr(rounds.RoundChain, "run", noted)
    monkeypatch.setattr(PushedEntries, "_known_pushes", lambda *_: [])  # their push times are unknown
    opened = open_lake(grouped.lake.storage.uri)
    height = 2 * GROUP + 3
    assert opened.manifest(height).first < height < opened.manifest(height).last
    for chain in "AB":
        store, expected = open_store(opened, chain, height), open_store(each, chain, height)
        places = np.arange(len(store))
        assert store.entries_at(places) == expected.entries_at(places)
    assert executed and len(executed) <= 2 * height
    assert max(map(executed.count, executed)) <= 2
    executed.clear()
    read_height(opened, height)
    assert executed == []


def test_retained_states_are_bounded(zones: tuple[OpenedLake, OpenedLake], monkeypatch: pytest.MonkeyPatch) -> None:
    each, grouped = zones
    monkeypatch.setattr(replay, "MAX_CACHED", 3)
    kept = grouped.replayed
    kept = pickle.loads(pickle.dumps(kept))
    assert isinstance(kept, StateReplay)
    for height in each.lake.heights():
        kept.frames(height)
        assert len(kept._kept) <= 3
    held = {id(frame[name]) for one in kept._kept.values() for frame in one.frames[0].values() for name in frame.names}
    assert set(kept._holders) == held
    monkeypatch.setattr(replay, "CACHE_BYTES", 0)
    kept.frames(2)
    assert len(kept._kept) == 1 and kept._bytes > 0


@pytest.mark.parametrize("network", ["zones", "subnets"])
def test_heights_larger_than_the_cache_are_reexecuted(
    network: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    each, grouped = request.getfixturevalue(network)
    monkeypatch.setattr(rounds, "CACHED_HEIGHTS", 1)  # so that no height's rows stay in memory, as with large messages
    opened = open_lake(grouped.lake.storage.uri)
    height = 2 * GROUP - 1
    assert read_height(opened, height) == read_height(each, height)
    assert LakeRecheck(opened).execute(0, opened.last_height()) is None


def test_one_height_of_a_commit_is_read_alone(
    zones: tuple[OpenedLake, OpenedLake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "ROW_GROUP", 3)
    (tmp_path / "scenario.toml").write_text(scenario())
    opened = make_lake(tmp_path, GROUP, tmp_path / "scenario.toml")
    expected = zones[0].header("B", 3)
    read: list[int] = []
    real = pq.ParquetFile.iter_batches

    def noted(file: pq.ParquetFile, *arguments: Any, row_groups: list[int], **named: Any) -> Any:
        read.append(len(row_groups))
        assert file.num_row_groups > 2
        return real(file, *arguments, row_groups=row_groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert opened.header("B", 3) == expected
    assert len(read) == 1 and read[0] <= 2, "a height has three headers"


class Clock:
    """Clock in seconds that each executed height advances by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.executed = 0.0, list[int]()
        run = rounds.RoundChain.run

        def noted(again: rounds.RoundChain, tick: Tick, outside: ExternalInput) -> Any:
            self.executed.append(tick.height)
            self.now += 1
            return run(again, tick, outside)

        monkeypatch.setattr(rounds.RoundChain, "run", noted)
        monkeypatch.setattr(replay, "time", SimpleNamespace(monotonic=lambda: self.now))


def test_server_reexecutes_heights_for_a_bounded_share_of_time(
    zones: tuple[OpenedLake, OpenedLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers requesting old heights one by one delay neither its blocks nor other requests."""
    clock = Clock(monkeypatch)
    opened = open_lake(zones[1].lake.storage.uri, share=ReplayShare(seconds=2, part=0.25, least=1))
    refused = 0
    for attempt in range(400):
        clock.now += 0.25
        height = (2, 8, 13, 4, 9, 3)[attempt % 6]
        opened.replayed._kept.clear()  # more requests than cached states
        opened.replayed._bytes, opened.replayed._holders = 0, type(opened.replayed._holders)()
        try:
            opened.replayed.frames(height)
        except ReplayBusy:
            refused += 1
    assert refused > 300 and 10 < len(clock.executed) <= 0.25 * clock.now + 4


def test_returning_client_gets_the_reexecuted_state(
    zones: tuple[OpenedLake, OpenedLake], monkeypatch: pytest.MonkeyPatch
) -> None:
    each, grouped = zones
    clock = Clock(monkeypatch)
    share = ReplayShare(seconds=2, part=0.25, least=1)
    opened = pickle.loads(pickle.dumps(open_lake(grouped.lake.storage.uri, share=share)))
    for _ in range(2):
        with pytest.raises(ReplayBusy, match=f"the state at {GROUP + 4} is in no file"):
            opened.replayed.frames(GROUP + 4)
    clock.now += 8
    assert read_height(opened, GROUP + 4) == read_height(each, GROUP + 4)
    assert clock.executed == [GROUP + 1, GROUP + 2, GROUP + 3, GROUP + 4], "each once"
    with opened.replayed._lock:  # another thread executes others
        assert opened.replayed.frames(GROUP + 4)
        clock.now += 100
        with pytest.raises(ReplayBusy):
            opened.replayed.frames(3)
    assert read_height(opened, GROUP) == read_height(each, GROUP)  # stored in a file


# ---- changes since then --------------------------------------------------------------------------

PROGRAM = """
import causeway as cw
class Counter(cw.Program):
    def initial_state(self):
        return {"count": 0}
    def on_ingress(self, message, context):
        self.state["count"] += %d
"""
COUNTING = """
[network]
executor = "in_process"
[[chains]]
name = "a"
[[programs]]
name = "c"
chain = "a"
program = "counting:Counter"
[traffic]
source = "script"
"""
SENDS = "".join(f'[[traffic.send]]\ntick = {tick}\nto = "c"\nmethod = "go"\n' for tick in range(7))


@pytest.fixture
def counting(tmp_path: Path, own_modules: None) -> Path:
    """Return a folder with a scenario, a program beside it, and their lake; unload the program."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / "counting.py").write_text(PROGRAM % 1)
    (folder / "scenario.toml").write_text(COUNTING + SENDS)
    overrides = {"network.commit_every": str(GROUP)}
    with LakeNetwork(load_scenario(folder / "scenario.toml", overrides), str(tmp_path / "lake")) as network:
        network.run()
    forget(folder)
    return folder


def forget(folder: Path) -> None:
    sys.modules.pop("counting", None)
    BESIDE.folders.clear()


def test_changed_program_is_detected(counting: Path) -> None:
    lake, beside = str(counting.parent / "lake"), ModuleSources.of(counting / "scenario.toml")
    assert cbor2.loads(read_height(open_lake(lake, beside), 3)["program_counting:Counter"][0]["state"])[0] == {
        "count": 3
    }
    forget(counting)
    (counting / "counting.py").write_text(PROGRAM % 2 + "# another length, so that Python compiles it again\n")
    opened = open_lake(lake, beside)
    read_height(opened, GROUP)  # stored in a file
    with pytest.raises(
        ReplayDiffers, match=r"height 1, executed again, gives a another root .* program .* may have"
    ) as e:
        read_height(opened, 3)
    assert (e.value.height, e.value.chains) == (1, ("a",)) and pickle.loads(pickle.dumps(e.value)).height == 1
    assert LakeRecheck(open_lake(lake), beside).execute(4, 6) == DifferingHeight(1, ("a",))


def test_kernels_own_history_is_compared_with_commits(counting: Path) -> None:
    """A bucket that resumes within a commit rebuilds the preceding states."""
    lake = Lake.at(str(counting.parent / "lake")).with_identity()

    def past(height: int) -> dict[int, Any]:
        return own_past(
            recorded_deployment(lake, lake.about(), ModuleSources.of(counting)), lake, lake.manifest(height)
        )

    assert past(3)
    forget(counting)
    (counting / "counting.py").write_text(PROGRAM % 2 + "# another length, so that Python compiles it again\n")
    assert past(GROUP), "that is in a file"
    with pytest.raises(ReplayDiffers, match=r"height 1, executed again, gives a another root"):
        past(3)


def test_program_with_other_columns_is_rejected(counting: Path) -> None:
    (counting / "counting.py").write_text(
        "import causeway as cw\nimport pyarrow as pa\n"
        "class Counter(cw.VectorProgram):\n    schema = pa.schema([('program', pa.uint64()), ('count', pa.int64())])\n"
    )
    opened = open_lake(str(counting.parent / "lake"), ModuleSources.of(counting))
    with pytest.raises(LakeError, match="table program_counting:Counter has other columns than when the lake was made"):
        read_height(opened, 3)


def test_files_are_verified_where_roots_cannot_be(counting: Path, capfd: pytest.CaptureFixture[str]) -> None:
    forget(counting)
    (counting / "counting.py").write_text(
        "import causeway as cw\nimport pyarrow as pa\n"
        "class Counter(cw.VectorProgram):\n    schema = pa.schema([('program', pa.uint64()), ('count', pa.int64())])\n"
    )
    lake = counting.parent / "lake"
    told = ["check", str(lake), "--scenario", str(counting / "scenario.toml")]

    def ends(*more: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main([*told, *more])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    assert ends() == 0
    assert "roots not recomputed: table program_counting:Counter has other columns" in capfd.readouterr().out
    assert ends("--execute") == 2
    assert "neither continued nor executed again" in capfd.readouterr().err
    max((lake / "heights").rglob("*.*"), key=lambda file: file.stat().st_size).write_bytes(b"no longer what it was")
    assert ends("--json") == 1
    assert json.loads(capfd.readouterr().out)["damaged"]


def test_missing_program_is_named(counting: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake = str(counting.parent / "lake")
    read_height(open_lake(lake), GROUP)
    with pytest.raises(InvalidInput, match=r'"counting:Counter": the module .* is not imported .*--scenario FILE'):
        read_height(open_lake(lake), 3)
    with pytest.raises(SystemExit) as ended:
        main(["state", lake, "--height", "3"])
    assert ended.value.code == 2
    assert '"counting:Counter": the module counting is not imported' in capfd.readouterr().err
    with pytest.raises(InvalidInput, match=r"no/where\.toml: no such file or folder, and no name of a module"):
        ModuleSources.of("no/where.toml")


# ---- other clients -------------------------------------------------------------------------------


def test_freed_heights_are_reported(zones: tuple[OpenedLake, OpenedLake], tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(scenario())
    opened = make_lake(tmp_path, GROUP, tmp_path / "scenario.toml")
    vacuum_lake(opened.lake, keep_every=4, keep_last=2)
    for height in (3, GROUP):
        with pytest.raises(Freed, match=f"the state of {height} was freed by a vacuum"):
            read_height(opened, height)
        with pytest.raises(Freed):
            opened.replayed.frames(height)
    assert read_height(opened, 4) == read_height(zones[0], 4)
    assert read_height(opened, 8) == read_height(zones[0], 8), "what executing again begins with is there"


def test_corruption_within_a_commit_is_reported_missing(tmp_path: Path) -> None:
    """Retained heights of a commit need its initial state."""
    (tmp_path / "scenario.toml").write_text(scenario())
    lake = make_lake(tmp_path, GROUP, tmp_path / "scenario.toml").lake
    vacuum_lake(lake, keep_every=4, keep_last=2)
    path = min(states(lake, lake.manifest(8).number - 1))
    assert verify_lake(lake).damaged == ()
    lake.storage.remove(path)
    assert [error.path for error in verify_lake(lake).damaged] == [path]


def test_successive_vacuums_free_as_much_as_one(tmp_path: Path) -> None:
    """Include vacuums that end within a commit, at any height."""
    (tmp_path / "scenario.toml").write_text(scenario())
    lake = make_lake(tmp_path, GROUP, tmp_path / "scenario.toml").lake
    last = lake.last_height()
    for kept in range(last, 1, -1):
        vacuum_lake(lake, keep_every=0, keep_last=kept)
    there = {path for number in range(lake.last_manifest().number + 1) for path in states(lake, number)}
    begun = lake.manifest(last - 1).number - (lake.manifest(last - 1).first == last - 1)
    assert {path for path in there if lake.storage.exists(path)} == {
        path for number in range(begun, lake.last_manifest().number + 1) for path in states(lake, number)
    }


def states(lake: Lake, number: int) -> set[str]:
    """Return the state files of a commit."""
    return set(lake.numbered(number).state_files())


def test_non_executing_readers_report_it(zones: tuple[OpenedLake, OpenedLake]) -> None:
    uri = zones[1].lake.storage.uri
    plain = LakeSource({"path": uri, "table": "accounts", "height": "3"})
    reader = plain.reader(plain.schema())
    with pytest.raises(LakeError, match=r"height: 3 of .* lies within a commit"):
        list(reader.read(*reader.partitions()))


def test_data_source_reads_every_height(zones: tuple[OpenedLake, OpenedLake]) -> None:
    found = []
    for opened in zones:
        source = NetworkSource({"path": opened.lake.storage.uri, "table": "queues", "height": "3"})
        reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
        found.append([row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()])
    assert found[0] == found[1] != []


def test_check_reports_verified_states(zones: tuple[OpenedLake, OpenedLake], capfd: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["check", zones[1].lake.storage.uri, *arguments])
        assert ended.value.code == 0
        return " ".join(capfd.readouterr().out.split())

    states = zones[1].manifest().number + 1
    found = run()
    assert f"roots match the headers for the {states} heights with state in files" in found
    assert "The other heights have no state in files; --execute re-executes them." in found
    assert "heights 0 to" in run("--execute")
    assert json.loads(run("--json"))["states"] == states


def test_proof_at_a_height_within_a_commit(
    zones: tuple[OpenedLake, OpenedLake], capfd: pytest.CaptureFixture[str]
) -> None:
    found = []
    for opened in zones:
        where = (opened.lake.storage.uri, "--chain", "A", "--counterparty", "B", "--queue", "send")
        with pytest.raises(SystemExit) as ended:
            main(["prove", *where, "--tail", "--height", "3", "--json"])
        assert ended.value.code == 0
        found.append(json.loads(capfd.readouterr().out))
    assert found[0] == found[1]


def test_served_lake_answers_for_every_height(zones: tuple[OpenedLake, OpenedLake]) -> None:
    """The lake may start with a plain run, in commits of many heights."""
    each, grouped = map(ZoneViews, zones)
    waiting = set()
    for height in zones[0].lake.heights():
        for one, other in ("AB", "BA", "AC", "BC"):
            lane = each.lane(one, other, height)
            assert grouped.lane(one, other, height) == lane
            waiting |= {height for queue in ("send", "receipt") if lane[queue]["head"] < lane[queue]["tail"]}
        for chain in "ABC":
            assert grouped.header(chain, height) == each.header(chain, height)
            assert grouped.relayers(chain, height) == each.relayers(chain, height)
            assert grouped.refusals(chain, height) == each.refusals(chain, height)
        entries = each.entries("A", "B", "send", 0, 9, height)
        assert grouped.entries("A", "B", "send", 0, 9, height) == entries
        assert grouped.outcome(height, 1) == each.outcome(height, 1)
    assert len(waiting) > GROUP


def test_spark_tables_require_reexecution(zones: tuple[OpenedLake, OpenedLake]) -> None:
    with pytest.raises(LakeError, match="lies within a commit"):
        LakeTables.state(_without_spark(zones[1]), "accounts", 3)


def _without_spark(opened: OpenedLake) -> LakeTables:
    tables = LakeTables.__new__(LakeTables)
    tables._lake, tables._schemas, tables._state_at, tables.about = opened.lake, opened.tables, None, dict(opened.about)
    return tables
