"""Corruption of lakes: every altered or missing file is detected and reported."""

from __future__ import annotations

import errno
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli import main
from causeway.config.traffic import INGRESS_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import DifferingHeight, LakeRecheck
from causeway.programs.user_modules import BESIDE, ModuleSources
from causeway.scenarios.scenario import load_scenario
from causeway.storage.commit_log import decoded, encoded
from causeway.storage.external_input import InputRecord
from causeway.storage.files import Storage
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Freed, Lake, LakeDamaged, LakeError
from causeway.storage.manifests import Manifest
from causeway.storage.seals import PIECE, FileDamaged, seal_content
from causeway.storage.vacuum import vacuum_lake
from causeway.tick.bucket import forget_states

SCENARIO = """
[network]
protocol = "ic"
executor = "in_process"
partitions = 2
[traffic]
source = "recorded"
path = "packets.csv"
blocks_per_tick = 1
columns = { source_chain = "from", destination = "to", source_end = "lane", sequence = "number", time = "at" }
"""
TICKS = 14
ALTERATIONS = 80


@pytest.fixture(scope="module", autouse=True)
def frequent_compaction() -> Iterator[None]:
    """Compact four heights at a time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("lake.RUN", "compaction.RUN", "compaction.RETAINED_COMMITS"):
            patch.setattr(f"causeway.storage.{name}", 4)
        yield


@pytest.fixture(scope="module")
def pristine_lake(tmp_path_factory: pytest.TempPathFactory, frequent_compaction: None) -> Path:
    """Return a lake with every kind of file: recorded traffic, a record of user input, compacted logs."""
    folder = tmp_path_factory.mktemp("made")
    rows = [f"{'ab'[i % 2]},{'ba'[i % 2]},l,{i},{i // 3}" for i in range(3 * TICKS)]
    (folder / "packets.csv").write_text("\n".join(["from,to,lane,number,at", *rows]) + "\n")
    (folder / "scenario.toml").write_text(SCENARIO)
    with LakeNetwork(load_scenario(folder / "scenario.toml"), str(folder / "lake"), recorded=True) as net:
        topology = net.topology.programs
        chain, program = topology["chain"][0].as_py(), topology["number"][0].as_py()
        row = {"chain": chain, "receiver": program, "sender": 1, "method": "x", "payload": b"?"}
        for tick in range(TICKS):
            sent = pa.Table.from_pylist([row], schema=INGRESS_SCHEMA) if tick in (3, TICKS - 1) else None
            net.step(tick, ingress=sent)
    return folder / "lake"


def copied(made: Path, folder: Path) -> Path:
    return Path(shutil.copytree(made, folder / "lake"))


def resumed(lake: Path) -> None:
    forget_states()
    scenario = load_scenario(lake.parent / "scenario.toml")
    with LakeNetwork(scenario, str(lake), resume=True, recorded=True) as net:
        net.step(net.tick + 1)


def flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])


def delete(path: Path, draw: random.Random) -> None:
    path.unlink()


def test_lake_has_every_kind_of_file_and_is_verified(pristine_lake: Path) -> None:
    files = {path.relative_to(pristine_lake).parts[0] for path in pristine_lake.rglob("*") if path.is_file()}
    assert files == {
        "lake.json", "head", "writer", "chains.parquet", "programs.parquet", "registry.parquet", "manifests", "heights",
        "compacted", "record", "traffic",
    }  # fmt: skip
    checked = verify_lake(Lake.at(str(pristine_lake)))
    assert (checked.damaged, checked.strays, checked.heights) == ((), (), TICKS + 1)
    assert Lake.at(str(pristine_lake)).head().tidied > 0, "some small files are gone, and nobody misses them"


def test_every_alteration_of_any_file_is_found(pristine_lake: Path, tmp_path: Path) -> None:
    draw = random.Random(9)
    lake = copied(pristine_lake, tmp_path)
    # The claim's file names the writer, and each writer rewrites it.
    files = sorted(path for path in lake.rglob("*") if path.is_file() and path.name != "writer")
    folders = sorted({path.parent for path in files} | {path for path in files if path.parent == lake})
    for number in range(ALTERATIONS):
        place = folders[number % len(folders)]
        path = place if place.is_file() else draw.choice([file for file in files if file.parent == place])
        before = path.read_bytes()
        alter: Callable[[Path, random.Random], None] = draw.choice([flip, flip, truncate, delete])
        alter(path, draw)
        name = str(path.relative_to(lake))
        try:
            found = [(error.path, error.what, error.whole) for error in verify_lake(Lake.at(str(lake))).damaged]
        except LakeDamaged as error:
            found = [(error.path, error.what, error.whole)]
        assert name in [damaged for damaged, _, _ in found], f"{alter.__name__} of {name}"
        assert all(-1 <= whole <= TICKS for _, _, whole in found)
        path.write_bytes(before)
    assert verify_lake(Lake.at(str(lake))).damaged == ()


def test_corrupted_input_is_not_executed(pristine_lake: Path, tmp_path: Path) -> None:
    """Everything the next tick reads: the last height's state and logs, its manifest, and the head."""
    draw = random.Random(3)
    manifest = Lake.at(str(pristine_lake)).last_manifest()
    read = sorted({*manifest.state_files(), *manifest.outside.values(), *manifest.exchanged()})
    for number, name in enumerate([*read, "manifests/0000000014.json", "head", "lake.json", "chains.parquet"]):
        (tmp_path / str(number)).mkdir()
        for name_beside in ("scenario.toml", "packets.csv"):
            shutil.copy(pristine_lake.parent / name_beside, tmp_path / str(number))
        lake = copied(pristine_lake, tmp_path / str(number))
        [flip, truncate, delete][number % 3](lake / name, draw)
        if name == "chains.parquet":
            with pytest.raises(LakeDamaged, match=r"chains.parquet .*; no verified height"):
                open_lake(str(lake))
            continue
        with pytest.raises(LakeError) as found:
            resumed(lake)
        assert name in str(found.value) and "damaged" in str(found.value), name
    assert number > 6


def test_readers_of_a_corrupted_record_report_the_error_of_check(pristine_lake: Path, tmp_path: Path) -> None:
    """The heights before its ingestion are verified by any reader."""
    draw = random.Random(5)
    for name in ("scenario.toml", "packets.csv"):
        shutil.copy(pristine_lake.parent / name, tmp_path)
    lake = copied(pristine_lake, tmp_path)
    opened = Lake.at(str(lake))
    for height in (4, TICKS):
        manifest = opened.manifest(height)
        (path,) = manifest.outside.values()
        before = (lake / path).read_bytes()
        for alter in (flip, truncate, delete):
            alter(lake / path, draw)
            (told,) = verify_lake(opened).damaged
            assert told.whole == height - 1
            record, chains = InputRecord(opened), np.arange(2, dtype=np.uint64)
            with pytest.raises(LakeDamaged) as read:
                record.read("ingress", path)
            with pytest.raises(LakeDamaged) as taken:
                record.rows({"ingress": (path, manifest.files[path])}, "ingress", chains)
            found = [read.value, taken.value]
            if height == TICKS:
                with pytest.raises(LakeDamaged) as started:
                    resumed(lake)
                found.append(started.value)
            assert [(one.path, one.whole) for one in found] == [(path, height - 1)] * len(found), alter.__name__
            (lake / path).write_bytes(before)


def test_sealed_state_with_another_root_than_its_header_is_refused(pristine_lake: Path, tmp_path: Path) -> None:
    """An attacker replaces a state file, and seals everything anew: the root reveals it."""
    for name in ("scenario.toml", "packets.csv"):
        shutil.copy(pristine_lake.parent / name, tmp_path)
    lake = copied(pristine_lake, tmp_path)
    storage, last = Storage(str(lake)), Lake.at(str(lake)).last_manifest()
    (path,) = last.state["accounts"]["0"].files
    table = storage.read_table(path)
    altered = table.set_column(
        table.schema.get_field_index("balance_low"),
        table.schema.field("balance_low"),
        pa.array([value + 1 for value in table["balance_low"].to_pylist()], pa.uint64()),
    )
    sealed = decoded(last.content)
    sealed["state"]["accounts"]["0"] = [path, *storage.write_table(path, altered)]
    sealed.pop("digest")
    (lake / "manifests" / "0000000014.json").write_bytes(encoded(sealed))
    head = decoded((lake / "head").read_bytes().rstrip(b" "))
    head["manifest"] = Manifest.of(encoded(sealed)).digest
    head.pop("digest")
    (lake / "head").write_bytes(encoded(head).ljust(512))
    assert verify_lake(Lake.at(str(lake))).damaged == (), "the seals fit"
    with pytest.raises(LakeDamaged, match=r"the state of . at height 14 another root than its header has, or none"):
        resumed(lake)
    with pytest.raises(LakeDamaged, match="another root"):
        LakeRecheck(open_lake(str(lake))).roots(14)


def test_lake_is_replayed_from_its_own_content(pristine_lake: Path, tmp_path: Path) -> None:
    again = LakeRecheck(open_lake(str(pristine_lake)))
    assert again.execute(0, TICKS) is None
    assert again.execute(5, 9) is None
    for height in range(TICKS + 1):
        again.roots(height)


def test_differing_replay_is_detected(pristine_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = LakeRecheck(open_lake(str(pristine_lake)))
    real = Lake.outside
    monkeypatch.setattr(Lake, "outside", lambda lake, of: {} if of.height == 4 else real(lake, of))
    found = again.execute(0, TICKS)
    assert isinstance(found, DifferingHeight) and found.height == 4


def test_programs_beside_a_scenario_are_found_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "quiet_ones.py").write_text(
        "import causeway as cw\nclass Quiet(cw.Program):\n    def on_ingress(self, ctx, sender, method, payload): ...\n"
    )
    scenario = tmp_path / "shelf" / "scenario.toml"
    scenario.write_text(
        "[network]\nexecutor = 'in_process'\n[[chains]]\nname = 'a'\n"
        "[[programs]]\nname = 'q'\nchain = 'a'\nprogram = 'quiet_ones:Quiet'\n"
    )
    with LakeNetwork(load_scenario(scenario), str(tmp_path / "lake")) as net:
        net.step(0)
    opened = open_lake(str(tmp_path / "lake"))
    BESIDE.folders.clear()
    loaded = sys.modules.pop("quiet_ones")
    with pytest.raises(InvalidInput, match=r'"quiet_ones:Quiet": the module .* is not imported .*--scenario FILE'):
        LakeRecheck(opened)
    assert LakeRecheck(opened, ModuleSources.of(scenario)).execute(0, 1) is None
    assert sys.modules.pop("quiet_ones") is not loaded


@pytest.mark.parametrize("stray", ["heights/notes", "manifests/.DS_Store", "manifests/abc.json", "record/x.parquet"])
def test_stray_files_are_harmless_and_listed(pristine_lake: Path, tmp_path: Path, stray: str) -> None:
    for name in ("scenario.toml", "packets.csv"):
        shutil.copy(pristine_lake.parent / name, tmp_path)
    lake = copied(pristine_lake, tmp_path)
    (lake / stray).write_text("?")
    checked = verify_lake(Lake.at(str(lake)))
    assert (checked.strays, checked.damaged) == ((stray,), ())
    assert Lake.at(str(lake)).heights() == list(range(TICKS + 1))
    resumed(lake)


def test_missing_file_is_listed_once(pristine_lake: Path, tmp_path: Path) -> None:
    lake = copied(pristine_lake, tmp_path)
    last = max((lake / "manifests").iterdir())
    last.unlink()
    assert [error.path for error in verify_lake(Lake.at(str(lake))).damaged] == [f"manifests/{last.name}"]
    (lake / "head").unlink()
    assert [error.path for error in verify_lake(Lake.at(str(lake))).damaged].count("head") == 1


def test_command_reports_the_corruption_and_the_last_verified_height(
    pristine_lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lake = copied(pristine_lake, tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capfd.readouterr()

    code, out, err = run("check", str(lake), "--execute", "--json")
    found = json.loads(out)
    assert (code, err, found["damaged"], found["executed"], found["different"]) == (0, "", [], [0, TICKS], None)
    (lake / "manifests" / "0000000006.json").unlink()
    code, out, err = run("check", str(lake))
    assert (code, err) == (1, "")
    assert "damaged  manifests/0000000006.json is missing" in out and "FAILED: last verified height 5" in out
    assert "stray" not in out, "what the manifest named is not called so"
    code, out, err = run("state", str(lake), "--height", "6")
    assert (code, out) == (2, "")
    assert err.strip().endswith("is damaged: manifests/0000000006.json is missing; last verified height 5")
    for damaged in ((lake / "lake.json").read_bytes()[:-9], b"[" * 100_000):
        (lake / "lake.json").write_bytes(damaged)
        code, out, _ = run("check", str(lake))
        assert code == 1 and "damaged  lake.json has invalid content" in out
    (lake / "lake.json").unlink()
    code, out, _ = run("check", str(lake))
    assert code == 1 and "damaged  lake.json is missing" in out


def test_parts_of_large_files_are_verified_on_reading(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    size = 3 * PIECE
    table = pa.table({"a": pa.array(range(size), pa.uint64()), "b": pa.array(range(size, 2 * size), pa.uint64())})
    with storage.parquet_writer("t.parquet", table.schema) as writer:
        writer.write_table(table, row_group_size=size // 3)
    seal = writer.seal
    assert seal == seal_content((tmp_path / "t.parquet").read_bytes()) and seal[0] > 4 * PIECE
    with storage.open_parquet("t.parquet", seal) as file:
        assert file.read_row_group(2).equals(table.slice(2 * size // 3))
    content = bytearray((tmp_path / "t.parquet").read_bytes())
    content[100] ^= 1
    (tmp_path / "t.parquet").write_bytes(content)
    with storage.open_parquet("t.parquet", seal) as file:
        assert file.read_row_group(2).equals(table.slice(2 * size // 3)), "the other pieces are whole"
        with pytest.raises(FileDamaged, match=f"among bytes 0 to {PIECE - 1}"):
            file.read_row_group(0)
    with pytest.raises(FileDamaged, match="CRC"):
        storage.read_table("t.parquet")


# ---- freeing state -------------------------------------------------------------------------------


def test_vacuum_removes_state_only(pristine_lake: Path, tmp_path: Path) -> None:
    for name in ("scenario.toml", "packets.csv"):
        shutil.copy(pristine_lake.parent / name, tmp_path)
    lake = Lake.at(str(copied(pristine_lake, tmp_path)))
    rows = lake.log_files("headers")
    first = vacuum_lake(lake, keep_every=5, keep_last=3)
    assert (first.last, first.files > 10, first.bytes > 1000) == (TICKS - 3, True, True)
    kept = {0, 5, 10, 12, 13, 14}
    opened = open_lake(str(tmp_path / "lake"))
    for height in range(TICKS + 1):
        manifest = lake.manifest(height)
        paths = manifest.state_files()
        if height in kept:
            assert all(lake.storage.exists(path) for path in paths), height
            LakeRecheck(opened).roots(height)
        else:
            assert lake.freed(height) is not None
            with pytest.raises(Freed, match="was freed by a vacuum; it kept every 5th height up to 11 and all from 12"):
                opened.state_rows(manifest, "accounts", 0, lambda programs: programs.astype("int64"))
    checked = verify_lake(lake)
    assert (checked.damaged, checked.strays, checked.freed) == ((), (), 9)
    assert lake.log_files("headers") == rows
    assert LakeRecheck(opened).execute(0, TICKS) is None, "all that came in is still there"
    assert vacuum_lake(lake, keep_every=5, keep_last=3).files == 0
    resumed(tmp_path / "lake")
    assert vacuum_lake(lake, keep_every=0, keep_last=2).files > 0
    assert verify_lake(lake).damaged == ()


def test_killed_vacuum_is_finished_by_the_next(
    pristine_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(str(copied(pristine_lake, tmp_path)))
    whole = Lake.at(str(copied(pristine_lake, tmp_path / "whole")))
    wanted = vacuum_lake(whole, keep_every=4, keep_last=2).files
    left = iter(range(wanted // 2))
    real = Storage.remove

    def remove(storage: Storage, path: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(storage, path)

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "remove", remove)
        with pytest.raises(KeyboardInterrupt):
            vacuum_lake(lake, keep_every=4, keep_last=2)
    assert verify_lake(lake).damaged == (), "half done, and nothing is wrong"
    assert vacuum_lake(lake, keep_every=4, keep_last=2).files == wanted - wanted // 2
    assert sorted(lake.storage.list("heights")) == sorted(whole.storage.list("heights"))


@pytest.mark.parametrize(("every", "last", "text"), [(-1, 5, "--keep-every: -1"), (5, 0, "--keep-last: 0")])
def test_vacuum_refuses_meaningless_numbers(pristine_lake: Path, every: int, last: int, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        vacuum_lake(Lake.at(str(pristine_lake)), every, last)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk_is_an_error_that_names_the_file() -> None:
    storage = Storage("/dev")
    writes: list[Callable[[], object]] = [
        lambda: storage.put("full", b"head"),
        lambda: storage.write_table("full", pa.table({"column": [1]})),
    ]
    for write in writes:
        with pytest.raises(OSError, match="No space left") as caught:
            write()
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")
