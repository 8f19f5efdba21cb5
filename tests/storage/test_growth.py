"""What a long history costs: a step, a start and the questions of a run's end touch no more files after ten times the
heights."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.network.network import LakeNetwork
from causeway.network.run_records import read_failures
from causeway.scenarios.scenario import load_scenario
from causeway.storage import external_input
from causeway.storage.external_input import INPUT_SCHEMA, InputRecord
from causeway.storage.integrity import verify_lake
from causeway.storage.lake import Lake
from causeway.storage.layout import volume_path
from causeway.storage.object_store import LocalPlace

RUN, VOLUME = 2, 4
SHORT, LONG = RUN * VOLUME + 5, 10 * RUN * VOLUME + 5
"""Heights, equally far after the last compaction and the last volume."""

SCENARIO = """
[network]
protocol = "ic"
executor = "in_process"
[options]
certification = "off"
[[chains]]
count = 2
prefix = "s"
[[programs]]
name = "broken"
chain = "s0"
program = "failing_ones:Failing"
"""

FAILING = """
import causeway as cw
class Failing(cw.Program):
    def on_ingress(self, ctx, sender, method, payload):
        raise ValueError("always")
"""


@contextmanager
def count_requests() -> Iterator[Counter[str]]:
    """Count file system requests: files read and looked up, and names in listings."""
    found: Counter[str] = Counter()

    def counting(method: str) -> Any:
        real = getattr(LocalPlace, method)

        def call(self: LocalPlace, *arguments: Any) -> Any:
            result = real(self, *arguments)
            found[method] += len(result) + 1 if method == "list" else 1
            return result

        return patch.object(LocalPlace, method, call)

    with counting("read"), counting("read_ranges"), counting("size"), counting("list"):
        yield found


@pytest.fixture(scope="module", autouse=True)
def frequent_compaction() -> Iterator[None]:
    """Compact two heights at a time, and merge four compactions; sixteen ticks of a record share a folder."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("lake.RUN", "compaction.RUN", "compaction.RETAINED_COMMITS", "integrity.RUN"):
            monkeypatch.setattr(f"causeway.storage.{name}", RUN)
        for name in ("lake.VOLUME", "compaction.VOLUME", "integrity.VOLUME"):
            monkeypatch.setattr(f"causeway.storage.{name}", VOLUME)
        monkeypatch.setattr(external_input, "TICKS_PER_FOLDER", 16)
        yield


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory, frequent_compaction: None) -> dict[int, Path]:
    """Return two lakes of one scenario by their numbers of heights. In every block a handler fails."""
    folder = tmp_path_factory.mktemp("growth")
    (folder / "scenario.toml").write_text(SCENARIO)
    (folder / "failing_ones.py").write_text(FAILING)
    scenario, made = load_scenario(folder / "scenario.toml"), {}
    for heights in (SHORT, LONG):
        made[heights] = folder / f"lake-{heights}"
        with LakeNetwork(scenario, str(made[heights]), recorded=True) as net:
            row = {"chain": 0, "receiver": 0, "sender": 1, "method": "x", "payload": b"?"}
            sent = pa.Table.from_pylist([row], schema=INGRESS_SCHEMA)
            for tick in range(heights):
                note = {"hash": bytes(32), "sender": b"k", "nonce": tick, "height": tick + 1}
                net.step(tick, ingress=sent, noted={"taken": pa.Table.from_pylist([note], schema=INPUT_SCHEMA)})
    return made


def costs(lake: Path) -> dict[str, Counter[str]]:
    """Costs of each query and operation."""
    found = {}
    scenario = load_scenario(lake.parent / "scenario.toml")
    place = Lake.at(str(lake))
    with count_requests() as found["list of a log"]:
        assert place.log_files("events")
    with count_requests() as found["newest of a record"]:
        tick, _ = next(InputRecord(place).newest("taken"))
        assert tick == place.last_manifest().tick
    with count_requests() as found["resume"]:
        net = LakeNetwork(scenario, str(lake), resume=True, recorded=True)
    with net:
        with count_requests() as found["first failures"]:
            known = read_failures(net.lake, net.topology)
            assert (known.count, [one.tick for one in known.first]) == (net.height, [0, 1, 2])
        with count_requests() as found["steps"]:
            for _ in range(2 * RUN):
                net.step(net.tick + 1)
        with count_requests() as found["close"]:
            net.close()
    return found


def test_cost_per_height_is_independent_of_history_length(lakes: dict[int, Path]) -> None:
    short, long = costs(lakes[SHORT]), costs(lakes[LONG])
    assert short.keys() == long.keys()
    for what, counts in long.items():
        # A listing of a record has an additional name every TICKS ticks.
        more = {name: count - short[what][name] for name, count in counts.items() if name != "list"}
        assert max(more.values()) <= 0, (what, more)
        assert counts["list"] <= short[what]["list"] + LONG // external_input.TICKS_PER_FOLDER, what


def test_merged_volumes_equal_their_parts_and_are_verified(lakes: dict[int, Path], tmp_path: Path) -> None:
    lake = Lake.at(str(shutil.copytree(lakes[LONG], tmp_path / "lake")))
    runs = lake.compactions()
    names = [name for name in lake.storage.list("compacted") if name.startswith("all-")]
    until = (runs[-1].last + 1) // (RUN * VOLUME) * RUN * VOLUME
    assert [f"compacted/{name}" for name in names] == [volume_path(until - 1)], "those of before are gone"
    volume = lake.volume(until - 1)
    assert volume is not None and len(runs) >= 10 * VOLUME
    for table in ("events", "headers", "failures"):
        alone = [path for run in runs for path in run.log.get(table, [])]
        listed = lake.log_files(table)
        assert list(listed)[: len(alone)] == alone
        assert listed.items() >= {path: run.files[path] for run in runs for path in run.log.get(table, [])}.items()
    assert (verify_lake(lake).damaged, verify_lake(lake).strays) == ((), ())
    path = tmp_path / "lake" / "compacted" / names[0]
    whole = path.read_bytes()
    other = replace(volume, log={**volume.log, "events": []})
    for content in (whole[:-1] + b"!", other.content()):
        path.write_bytes(content)
        assert [error.path for error in verify_lake(lake).damaged] == [f"compacted/{names[0]}"]
    path.unlink()
    missing = [error.path for error in verify_lake(lake).damaged]
    assert missing == ([f"compacted/{names[0]}"] if runs[-1].last >= until else [])
    assert list(lake.log_files("events")) == list(Lake.at(str(lakes[LONG])).log_files("events"))
