"""The benchmark ``cycles``: workload, structure of its figures, comparison. No times."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, NotProven
from causeway_proofs.ics23.proof_specs import TENDERMINT_SPEC
from causeway_proofs.ics23.verify import verify_membership
from rich.console import Console

from benchmarks import bench_cycles, render
from benchmarks.cli import main
from benchmarks.cycles.phases import PHASES, REST, clocked_phases
from benchmarks.cycles.plain import PlainZone, plain_cycles
from benchmarks.cycles.runs import run_cycles
from benchmarks.cycles.workload import Cycles
from benchmarks.process import BenchmarkFailed
from causeway.core.ingress_call import decode_calls
from causeway.protocols.ibc import kernel
from causeway.tick.executors import InProcessExecutor

SMALL = Cycles(messages=300, ticks=3, zones=4, programs=40, payload_bytes=20)


@pytest.mark.parametrize("messages", [1, 7, 40, 333])
def test_every_call_goes_to_another_zone_and_all_differ(messages: int) -> None:
    work = Cycles(messages, ticks=2, zones=4, programs=40, payload_bytes=16)
    traffic = work.deployment(1).traffic
    own = np.uint64(work.programs_of_zone)
    bodies: list[bytes] = []
    for tick in (0, 1):
        table = traffic.rows(tick, np.arange(4, dtype=np.uint64))
        parts = [traffic.rows(tick, np.array([zone], dtype=np.uint64)) for zone in range(4)]
        assert pa.concat_tables(parts).equals(table.combine_chunks())
        calls = decode_calls(table["payload"].combine_chunks())
        assert calls.valid.all() and len(calls.receivers) == messages
        callers = table["receiver"].to_numpy()
        assert (callers // own == table["chain"].to_numpy()).all()
        assert (calls.receivers // own != callers // own).all() and (calls.receivers < 40).all()
        bodies += calls.bodies.to_pylist()
    assert len(set(bodies)) == 2 * messages
    assert traffic.rows(2, np.arange(4, dtype=np.uint64)).num_rows == 0
    assert [traffic.next_tick(tick) for tick in (0, 1, 2)] == [0, 1, None]


@pytest.mark.parametrize("keys", [{"messages": 0}, {"ticks": 0}, {"zones": 1}, {"programs": 41}])
def test_invalid_numbers_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="allowed"):
        replace(SMALL, **keys)


@pytest.mark.parametrize("proofs", ["range", "single"])
def test_run_ends_with_every_call_answered(proofs: str) -> None:
    work = Cycles(300, 3, 4, 40, 20, proofs)
    for partitions in (1, 2):
        assert len(run_cycles(work, partitions, InProcessExecutor, None)["blocks"]) == work.ticks + 2


def test_unanswered_call_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cycles, "cycles", 301)
    with pytest.raises(BenchmarkFailed, match="of 301 calls 300 were answered and 0 rejected"):
        run_cycles(Cycles(300, 1, 4, 40, 20), 1, InProcessExecutor, None)


def test_all_phases_are_timed_and_the_timers_removed() -> None:
    before = kernel.IbcKernel.plan
    with clocked_phases() as clocks:
        assert kernel.IbcKernel.plan is not before
        run_cycles(SMALL, 1, InProcessExecutor, None)
        seconds = clocks.stop()
    assert kernel.IbcKernel.plan is before
    assert set(seconds) == {*PHASES, REST}
    assert min(seconds.values()) >= 0 and sum(seconds.values()) > 0


def test_plain_python_runs_whole_cycles() -> None:
    bodies = [b"%04d" % number for number in range(37)]
    assert plain_cycles(bodies) == 37
    zone = PlainZone("zone-0")
    zone.entries = {b"key-%d" % number: body for number, body in enumerate(bodies)}
    zone.commit()
    for key, value in zone.entries.items():
        verify_membership(TENDERMINT_SPEC, zone.root, zone.prove(key), key, value)
        with pytest.raises(NotProven):
            verify_membership(TENDERMINT_SPEC, zone.root, zone.prove(key), key, value + b"!")


def require_row(row: dict[str, Any], repeats: int) -> None:
    assert len(row["seconds"]) == repeats
    assert row["cycles"] == SMALL.messages * (1 if row["shape"] == "batch" else SMALL.ticks)
    assert row["blocks"] == (3 if row["shape"] == "batch" else SMALL.ticks + 2)
    assert row["peak_bytes"] > 0 and row["cycles_per_second"] > 0
    assert (row["cycles_per_second_of_full_blocks"] is None) == (row["shape"] == "batch")
    assert (row["phases"] is None) == (row["executor"] == "spark")


def test_run_has_printable_figures() -> None:
    told: list[str] = []
    result = bench_cycles(
        SMALL.messages,
        ticks=SMALL.ticks,
        zones=SMALL.zones,
        programs=SMALL.programs,
        payload_bytes=SMALL.payload_bytes,
        proofs=("range",),
        executors=("in_process",),
        repeats=1,
        plain=20,
        progress=told.append,
    )
    assert told == ["in process, range proofs", "plain Python"]
    assert [(row["proofs"], row["shape"]) for row in result["rows"]] == [("range", "batch"), ("range", "steady")]
    for row in result["rows"]:
        require_row(row, 1)
    assert result["plain"]["cycles"] == 20 and result["plain"]["plain_microseconds"] > 0
    console = Console(width=200, record=True)
    console.print(render(json.loads(json.dumps(result))))
    text = console.export_text()
    for part in ("in one block", "in 3 blocks", "proofs verified", "plain Python, one by one"):
        assert part in text


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--proofs", "none", '"none" is unknown; allowed: range, single'),
        ("--executors", "thread", '"thread" is unknown; allowed: in_process, spark'),
        ("--programs", "41", "as many programs on each"),
    ],
)
def test_command_refuses_unknown_options(
    option: str, value: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cycles", option, value])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err
