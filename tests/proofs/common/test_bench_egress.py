"""The benchmark of egress queues: every message passes, and bad input is reported."""

from __future__ import annotations

import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

from benchmarks.egress import STEPS, _Round, bench_egress
from benchmarks.show import render


def test_every_message_passes_every_step() -> None:
    assert set(_Round(300, 3, 8).run()) == set(STEPS)


def test_bad_input_is_reported() -> None:
    with pytest.raises(InvalidInput, match="2 parachains"):
        bench_egress(10, parachains=1)


def test_figures_are_printed() -> None:
    figures = {"1": {"messages_per_second": 1_000, "of_steps": dict.fromkeys(STEPS, 2_000)}}
    about = {"processor": "x", "cores": 2, "memory_bytes": 2**33, "system": "s", "python": "3", "packages": {}}
    console = Console(width=200, record=True)
    console.print(render({"benchmark": "egress", "machine": {**about, "load_before": 0.0}, "processes": figures}))
    assert "1,000" in console.export_text()
