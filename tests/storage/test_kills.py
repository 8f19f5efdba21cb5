"""Killed and resumed runs have the same roots, ledger and summary.

The slow tests kill as often as ``CAUSEWAY_KILLS`` says (once if it says nothing):

    CAUSEWAY_KILLS=25 pytest -m slow tests/storage/test_kills.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.test_xdm_networks import BUSY_DOMAINS
from tests.storage.test_run import BUSY, BUSY_ZONES, FORK
from tests.support.common.kills import KILLS, Runs, environment, executors, python_workers
from tests.support.common.local_cluster import LocalCluster

BUSY_PARACHAINS = """
[network]
protocol = "icmp"
seed = 5

[options]
bodies = "drawn"
body_ticks = 2.0
body_loss = 0.1
fallback_request = "on"

[transport]
skip = 0.2

[[chains]]
count = 5
prefix = "s"

[[faults]]
kind = "halt"
chain = "s2"
from = 3
until = 6

[[faults]]
kind = "fork"
tick = 5
until = 9
leaves = 3

[[faults]]
kind = "fork"
tick = 7
until = 11
of = 0
elder = [1]

[traffic]
source = "generated"
messages_per_tick = 120
ticks = 12
"""

TICKS, TICKS_ON_SPARK, FORKING_TICKS = 70, 45, 60
"""Lengths of the networks of the slow tests."""

LONG = {"ic": BUSY, "ibc": BUSY_ZONES + FORK, "icmp": BUSY_PARACHAINS}

CUTS = {
    "a height a commit": ("--partitions", "2"),
    "many heights a commit": ("--partitions", "1", "--set", "network.commit_every=7"),
}


def scenario(protocol: str, ticks: int) -> str:
    """Return a scenario of so many heights, with in-flight messages until the end."""
    few = LONG[protocol].replace("messages_per_tick = 120", "messages_per_tick = 30")
    return few.replace("ticks = 12", f"ticks = {ticks}").replace("seed = 5", f"seed = 5\nticks = {ticks}")


@pytest.mark.parametrize(("protocol", "kills"), list(zip(LONG, (1, 2, 1), strict=True)))
def test_killed_run_resumes_to_the_same_roots(tmp_path: Path, protocol: str, kills: int) -> None:
    runs = Runs(tmp_path, scenario(protocol, 12), "--set", 'network.executor="in_process"')
    assert runs.kill(runs.whole(), kills=kills, seed=1, check=False) == {"command": kills}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "cut"), [*zip(("ic", "ibc"), CUTS, strict=True), ("icmp", "many heights a commit")]
)
def test_kills_at_random_instants_in_process(tmp_path: Path, protocol: str, cut: str) -> None:
    runs = Runs(tmp_path, scenario(protocol, TICKS), "--set", 'network.executor="in_process"', *CUTS[cut])
    assert runs.kill(runs.whole(), kills=KILLS, seed=2) == {"command": KILLS}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "cut"), list(zip(("ic", "ibc"), CUTS, strict=True)))
def test_kills_of_commands_and_workers_on_spark(tmp_path: Path, protocol: str, cut: str) -> None:
    options = ("--master", "local[2]", *CUTS[cut])
    runs = Runs(tmp_path, scenario(protocol, TICKS_ON_SPARK), *options, others=python_workers)
    killed = runs.kill(runs.whole(), kills=KILLS, seed=3)
    assert set(killed) == {"command", "others"}


def forking(ticks: int) -> str:
    """Return a scenario of so many ticks, in every fourth of which the network is reverted."""
    return (
        BUSY_DOMAINS.replace("messages_per_tick = 60\nticks = 8", f"messages_per_tick = 4\nticks = {ticks}")
        .replace("seed = 5", f"seed = 5\nticks = {ticks}")
        .replace("archiving_depth = 2", "archiving_depth = 5")
        + REORGS
    )


REORGS = """
[[faults]]
kind = "reorg"
chance = 0.25
most = 4

[[faults]]
kind = "halt"
chain = "d2"
from = 20
until = 24
"""


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_kills_of_networks_with_many_forks(tmp_path: Path, cut: str) -> None:
    """The target of a fork may be in commits before the resumed one, or within one."""
    runs = Runs(tmp_path, forking(FORKING_TICKS), "--set", 'network.executor="in_process"', *CUTS[cut])
    assert runs.kill(runs.whole(), kills=KILLS, seed=5) == {"command": KILLS}


@pytest.mark.slow
def test_kills_of_networks_with_many_forks_on_spark(tmp_path: Path) -> None:
    options = ("--master", "local[2]", *CUTS["many heights a commit"])
    runs = Runs(tmp_path, forking(FORKING_TICKS), *options, others=python_workers)
    assert set(runs.kill(runs.whole(), kills=KILLS, seed=6)) == {"command", "others"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Return a cluster shared by all kills; users leave its master and workers alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])  # executors have their own folder
        with LocalCluster(workers=2, cores=1) as running:
            yield running


@pytest.mark.cluster
@pytest.mark.slow
def test_kills_of_commands_and_two_executors(tmp_path: Path, cluster: LocalCluster) -> None:
    options = ("--master", cluster.master_url, "--partitions", "3")
    runs = Runs(tmp_path, scenario("ic", TICKS_ON_SPARK), *options, others=executors)
    killed = runs.kill(runs.whole(), kills=KILLS, seed=4)
    assert set(killed) == {"command", "others"}
