"""Compaction: continues with stalled lanes, keeps rows readable, and has constant cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.network.network import LakeNetwork
from causeway.scenarios.scenario import load_scenario
from causeway.storage.files import Storage
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Lake
from causeway.storage.reorgs import network_root
from causeway.tick.bucket import forget_states
from tests.counting import counted_reads

STUCK = 40
SCENARIO = f"""
[network]
protocol = "ic"
executor = "in_process"
partitions = 3
[options]
certification = "off"
[[chains]]
count = 3
prefix = "s"
[[faults]]
kind = "drop"
source = "s0"
destination = "s1"
from = 1
until = {STUCK}
[traffic]
source = "generated"
messages_per_tick = 6
ticks = {STUCK + 3}
"""


@pytest.fixture(autouse=True)
def frequent_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact four heights at a time."""
    for name in ("lake.RUN", "compaction.RUN", "compaction.RETAINED_COMMITS"):
        monkeypatch.setattr(f"causeway.storage.{name}", 4)


def network(folder: Path, name: str, *, resume: bool = False) -> LakeNetwork:
    (folder / "scenario.toml").write_text(SCENARIO)
    return LakeNetwork(load_scenario(folder / "scenario.toml"), str(folder / name), resume=resume)


def test_stalled_lane_does_not_stop_compaction_and_is_served_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("causeway.network.network.compact_logs", lambda lake, last: last.compacted)
        with network(tmp_path, "plain") as net:
            net.run()
            wanted = [network_root(net.lake, net.lake.manifest(height)) for height in net.lake.heights()]
    with network(tmp_path, "stuck") as net:
        net.run(ticks=STUCK - 2)
        manifest = net.manifest
        needs = manifest.line.needs
        assert needs is not None and needs < 4, "entries of the first heights still wait"
        assert net.lake.compactions()[-1].last >= manifest.height - 8, "and all runs are compacted"
    lake = Lake.at(str(tmp_path / "stuck"))
    waiting = lake.manifest(needs + 1).log["outbound"]
    assert not any(lake.storage.exists(path) for path in waiting.values()), "the small files are gone"
    forget_states()
    with network(tmp_path, "stuck", resume=True) as net:
        net.run()
        assert [network_root(net.lake, net.lake.manifest(height)) for height in net.lake.heights()] == wanted
    checked = verify_lake(lake)
    assert (checked.damaged, checked.strays) == ((), ())


def test_large_compactions_keep_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causeway.storage.compaction.BYTES", 1)
    with network(tmp_path, "lake") as net:
        net.run(ticks=20)
        runs = net.lake.compactions()
        assert all(len(paths) > 1 for run in runs for paths in run.log.values())
        rows = sum(net.lake.sealed_table(path, seal).num_rows for path, seal in net.lake.log_files("events").items())
        assert rows == net.manifest.totals["events"]
    assert (verify_lake(net.lake).damaged, verify_lake(net.lake).strays) == ((), ())


def test_compacting_and_resuming_read_no_more_after_a_long_history(tmp_path: Path) -> None:
    counts = []
    for stop in (12, 36):
        with network(tmp_path, "lake", resume=stop > 12) as net:
            net.run(ticks=stop)
        with counted_reads() as reads, network(tmp_path, "lake", resume=True) as net:
            net.run(ticks=stop + 1)
        counts.append((reads["manifests"], reads["compacted"]))
    assert counts[1] <= counts[0]


def test_killed_compaction_is_finished_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with network(tmp_path, "lake") as net:
        net.run(ticks=20)
        left = iter(range(5))
        real = Storage.remove

        def remove(storage: Storage, path: str) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            real(storage, path)

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "remove", remove)
            with pytest.raises(KeyboardInterrupt):
                net.close()
    lake = Lake.at(str(tmp_path / "lake"))
    assert lake.head().tidied < lake.head().tidying
    assert verify_lake(lake).damaged == ()
    with network(tmp_path, "lake", resume=True) as net:
        assert net.lake.head().tidied == net.lake.head().tidying
        small = net.lake.manifest(1).log["events"]
        assert not any(net.lake.storage.exists(path) for path in small.values())
        net.run()
    assert verify_lake(lake).damaged == ()
