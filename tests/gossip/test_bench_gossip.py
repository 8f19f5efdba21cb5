"""Benchmark ``gossip``: verified results and the structure of its figures, without times."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

from benchmarks import render
from benchmarks.gossip import bench, plain
from benchmarks.gossip.bench import bench_gossip
from benchmarks.gossip.workload import Flood, flood, listed
from causeway.gossip.options import GossipOptions


def test_every_queue_reaches_every_node_with_both_engines() -> None:
    """Raise an error if a queue is missing."""
    work = Flood(nodes=12, degree=4, queues=5)
    assert flood(work, GossipOptions()) > 0 and plain.flood(work) > 0


@pytest.mark.parametrize("keys", [{"nodes": 2}, {"degree": 1}, {"queues": 0}])
def test_out_of_range_numbers_are_rejected(keys: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="allowed"):
        Flood(**{"nodes": 5, "degree": 2, "queues": 1, **keys})


def test_benchmark_reports_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "call", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(bench, "LEAVES", ((2, 200),))
    result = json.loads(json.dumps(bench_gossip([9], queues=4, degree=2, small=5, repeats=1)))
    assert [(row["engine"], row["nodes"]) for row in result["floods"]] == [
        ("plain Python", 5),
        ("columns", 5),
        ("columns", 9),
    ]
    assert result["leaves"][0].keys() == listed(1, 100, 1).keys()
    assert result["parts"] and 0 < sum(row["share"] for row in result["parts"]) <= 1
    out = StringIO()
    Console(file=out, width=120).print(render(result))
    assert "node-queues a second" in out.getvalue()
