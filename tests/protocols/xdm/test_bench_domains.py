"""Benchmark ``domains``: its workload, structure of figures, and phases, without times."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from benchmarks import bench_domains, render
from benchmarks.cycles.phases import REST, clocked_phases
from benchmarks.cycles.runs import maker, run_cycles
from benchmarks.domains import bench
from benchmarks.domains.bench import PHASES
from benchmarks.domains.workload import Domains
from causeway.protocols.xdm.storage import ChainTries

SMALL = Domains(messages=40, ticks=3, domains=3, programs=30, payload_bytes=20)


@pytest.mark.parametrize("keys", [{"messages": 0}, {"ticks": 0}, {"domains": 1}, {"programs": 31}, {"others": -1}])
def test_out_of_range_numbers_are_rejected(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="allowed"):
        replace(SMALL, **keys)


def test_run_answers_every_message_in_one_bucket_and_in_two() -> None:
    blocks = [len(run_cycles(SMALL, partitions, maker(None), None)["blocks"]) for partitions in (1, 2)]
    assert blocks[0] == blocks[1] > SMALL.ticks


def test_domains_store_other_entries_and_the_network_comes_to_rest() -> None:
    full = replace(SMALL, others=50)
    deployments = [work.deployment(1).kernel for work in (SMALL, full)]
    chains = np.arange(4, dtype=np.uint32)
    without, with_others = (made.genesis(chains) for made in deployments)
    added = len(with_others.logs["storage"]) - len(without.logs["storage"])
    assert added >= 3 * 50
    assert np.bincount(with_others.state["responses"]["source"], minlength=4).tolist() == [0, 50, 50, 50]
    assert len(run_cycles(full, 1, maker(None), None)["blocks"]) < 60


def test_all_phases_are_timed_and_timers_removed() -> None:
    before = ChainTries.move
    with clocked_phases(PHASES) as clocks:
        assert ChainTries.move is not before
        run_cycles(SMALL, 1, maker(None), None)
        seconds = clocks.stop()
    assert ChainTries.move is before
    assert set(seconds) == {*PHASES, REST}
    assert min(seconds.values()) >= 0 and sum(seconds.values()) > 0


@pytest.mark.slow
def test_figures_are_json_serializable_and_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "call", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(bench, "CHANNELS_OF_DOMAINS", {1: 2, 3: 3})
    found = bench_domains(
        40, ticks=3, domains=3, programs=30, executors=["in_process"], others=[20], repeats=1, payload_bytes=20
    )
    assert json.loads(json.dumps(found)) == found
    assert [len(found[name]) for name in bench.SECTIONS] == [1, 2, 1]
    assert [row["channels"] for row in found["channels"]] == [1, 3]
    assert all(row["messages"] == 120 and row["messages_per_second"] > 0 for row in found["load"])
    assert found["keys"][0]["others"] == 20
    render(found)


@pytest.mark.parametrize("keys", [{"sections": ["loads"]}, {"executors": ["dask"]}, {"repeats": 0}, {"others": [0]}])
def test_unmeasurable_runs_are_rejected(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="allowed"):
        bench_domains(40, ticks=3, domains=3, programs=30, **keys)
