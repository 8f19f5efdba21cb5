"""Re-execution for forks: heights executed by an open and by a reopened network.

An open network executes each height once, a reopened one repeats few, and results equal those of one-height commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.recheck import LakeRecheck
from causeway.scenarios.scenario import load_scenario
from causeway.storage.lake import Lake
from causeway.tick import rounds
from causeway.tick.bucket import forget_states

TICKS = 31
NUMBERS = {"depth": 5, "ticks": TICKS, "traffic": 12}

SCENARIO = """
[network]
protocol = "xdm"
seed = 5
executor = "in_process"
partitions = 1
commit_every = {every}
ticks = {ticks}
[options]
archiving_depth = {depth}
challenge_period = 8
[[chains]]
name = "left"
[[chains]]
name = "right"
[traffic]
source = "generated"
messages_per_tick = 1
ticks = {traffic}
"""

FORK = """
[[faults]]
kind = "reorg"
tick = {tick}
depth = {depth}
"""

RARE = "".join(FORK.format(tick=tick, depth=4) for tick in (9, 16, 23))
"""Commits of seven heights begin in the middle of what these take back."""
DENSE = "".join(FORK.format(tick=tick, depth=2 + tick // 3 % 3) for tick in range(6, TICKS, 3))
"""Each goes back to what is between the one before it and the one before that."""


def network(folder: Path, name: str, forks: str, every: object, *, resume: bool = False) -> LakeNetwork:
    path = folder / f"{name}.toml"
    path.write_text(SCENARIO.format(every=every, **NUMBERS) + forks)
    return LakeNetwork(load_scenario(path), str(folder / name), resume=resume)


@contextmanager
def record_executed() -> Iterator[list[int]]:
    """Record the height of every executed round, first or repeated."""
    heights: list[int] = []
    real = rounds.execute_round

    def noted(reader: Any, state: Any, tick: Any, outside: Any) -> Any:
        heights.append(tick.height)
        return real(reader, state, tick, outside)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "execute_round", noted)
        yield heights


def read_heights(lake: Lake) -> list[Any]:
    """Return a lake's data at each height, with the rows of all its logs."""
    found = []
    for manifest in map(lake.manifest, lake.heights()):
        rows = {name: lake.log_rows(name, manifest) for name in sorted(manifest.rows) if name != "of_carriers"}
        found.append((manifest.line, {name: sorted(str(part.to_pylist()) for part in rows[name]) for name in rows}))
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lake]:
    """Return lakes of uninterrupted networks that commit every height separately."""
    found, folder = {}, tmp_path_factory.mktemp("whole")
    for name, forks in (("rare", RARE), ("dense", DENSE)):
        with network(folder, name, forks, 1) as net:
            net.run()
            found[name] = net.lake
    return found


@pytest.mark.parametrize(
    ("name", "forks", "every"), [pytest.param("rare", RARE, 7, marks=pytest.mark.slow), ("dense", DENSE, '"auto"')]
)
def test_cached_states_execute_each_height_once(
    tmp_path: Path, whole: dict[str, Lake], name: str, forks: str, every: object
) -> None:
    with record_executed() as heights, network(tmp_path, name, forks, every) as net:
        net.run()
        assert heights == list(range(1, net.height + 1))
        assert read_heights(net.lake) == read_heights(whole[name])
        heights.clear()
        assert LakeRecheck(open_lake(net.lake.storage.uri)).execute(0, net.height) is None
        assert heights == list(range(1, net.height + 1))


def count_reexecuted(folder: Path, name: str, forks: str, every: int) -> tuple[list[int], Lake]:
    """Run a repeatedly reopened network; return the number of re-executed rounds per run."""
    again = []
    for tick in (9, 12, 17, 25, None):
        forget_states()
        with record_executed() as heights, network(folder, name, forks, every, resume=tick != 9) as net:
            before = net.height
            net.run(ticks=tick)
        assert max(Counter(heights).values()) <= 2, "no height is executed over and over"
        again.append(len(heights) - (net.height - before))
    return again, net.lake


@pytest.mark.parametrize(
    ("name", "forks", "every", "counts"),
    [("rare", RARE, 7, [0, 4, 4, 4, 0]), ("dense", DENSE, 4, [0, 2, 2, 2, 4])],
)
def test_reopened_network_reexecutes_few_heights(
    tmp_path: Path, whole: dict[str, Lake], name: str, forks: str, every: int, counts: list[int]
) -> None:
    """Only commits that forks reach are repeated, and those that these reach in turn."""
    again, lake = count_reexecuted(tmp_path, name, forks, every)
    assert again == counts
    assert read_heights(lake) == read_heights(whole[name])
    with network(tmp_path, name, forks, every, resume=True) as net:
        deployment = net.deployment
    for height in (9, 13, 22) if name == "dense" else ():
        with record_executed() as heights:
            states = rounds.replay_to_height(deployment, lake, lake.manifest(height))
        assert sorted(set(heights)) == sorted(heights) and heights[-1] == height
        wanted = rounds.read_states(deployment, whole[name], whole[name].manifest(height))
        for table, schema in ((table, made.schema) for table, made in deployment.kernel.tables().items()):
            assert states[0].frames()[table].to_table(schema) == wanted[0].frames()[table].to_table(schema), table


def test_nothing_is_reexecuted_without_forks(tmp_path: Path) -> None:
    """Operators prove under an older state, which is read in any commit layout."""
    assert count_reexecuted(tmp_path, "none", "", 3)[0] == [0, 0, 0, 0, 0]
