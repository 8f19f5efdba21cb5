"""Open-call counts of commits equal the query over all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.network.network import LakeNetwork
from causeway.tick.deployment import BEGUN, ENDED, count_open_calls

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize(("name", "buckets"), [("two_subnets", 1), ("tokens", 2)])
def test_open_calls_equal_the_query(name: str, buckets: int, tmp_path: Path) -> None:
    settings = {"network.executor": "in_process", "network.partitions": str(buckets), "network.commit_every": "3"}
    path, lake = EXAMPLES / f"{name}.toml", str(tmp_path / "lake")
    with LakeNetwork.from_scenario(path, settings, lake=lake) as network:
        network.run(6)
        assert count_open(network) == network.summary()["pending"]
    with LakeNetwork.from_scenario(path, settings, lake=lake, resume=True) as network:
        network.run()
        counts = network.summary()
        assert count_open(network) == counts["pending"]
        assert network.before.work[BEGUN] == counts["sent"] > 0


def count_open(network: LakeNetwork) -> int | None:
    return count_open_calls(network.before.work, network.before.totals)


def test_unknown_open_calls_are_omitted() -> None:
    assert count_open_calls({}, {"outbound": 3}) is None
    assert count_open_calls({BEGUN: 5, ENDED: 2}, {"outbound": 3, "reverted": 1}) is None
    assert count_open_calls({BEGUN: 5, ENDED: 2}, {"outbound": 3}) == 3
    assert count_open_calls({}, {}) == 0
