"""When a run counts as broken, and how that is said."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from causeway.cli.outcome import Outcome, causes, show, verdict
from causeway.network.stopped import Stopped
from causeway.pipeline.calls import COUNTS


def outcome(*, finished: bool = True, because: dict[str, int] | None = None, **counts: int) -> Outcome:
    figures: dict[str, Any] = {"scenario": "s", "protocol": "ic", "chains": 2, "ticks": 3, "heights": 3, "root": "00"}
    seconds = {"run": 1.0, "setup": 1.0, "summary": 1.0}
    return Outcome(
        **figures,
        counts={**dict.fromkeys(COUNTS, 0), **counts},
        seconds=seconds,
        routed=0,
        peak_memory_bytes=0,
        processor_seconds=0.0,
        lake=None,
        finished=finished,
        lost_because=because or {},
    )


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (outcome(sent=3, answered=3), True),
        (outcome(sent=3, rejected=3), True),
        (outcome(sent=3, duplicates=1), False),
        (outcome(sent=3, out_of_order=1), False),
        (outcome(sent=3, lost=3), False),
        (outcome(sent=3, lost=3, lost_with_program=3), True),
        (outcome(sent=3, lost=3, lost_with_program=2), False),
        (outcome(sent=3, pending=3), True),
        (outcome(sent=3, pending=3, on_the_way=1), False),
        (outcome(sent=3, pending=3, on_the_way=3, finished=False), True),
        (outcome(ingress_refused=4), True),
    ],
)
def test_holds(found: Outcome, holds: bool) -> None:
    assert found.holds is holds
    assert found.as_json()["holds"] is holds
    assert ("Guarantees hold" in verdict(found)) is holds


def test_what_is_broken_is_named_with_how_often() -> None:
    found = outcome(sent=9, lost=5, lost_with_program=2, pending=4, on_the_way=4, because={"b": 1, "a": 1, "c": 3})
    assert found.broken == {"lost": 3, "never": 4}
    said = "3 calls lost, 4 calls with a message stuck in transit; 2 calls ended because the scenario removed"
    assert said in verdict(found)
    assert causes(found) == "3 c, 1 a, 1 b"
    assert found.as_json()["lost_because"] == {"b": 1, "a": 1, "c": 3}


def test_a_stopped_chain_breaks_a_guarantee() -> None:
    found = replace(outcome(sent=3, answered=3), stopped=(Stopped("left", 7, "IndexOverflow"),))
    assert not found.holds and "1 chains stopped" in verdict(found)
    assert found.as_json()["stopped_chains"] == [{"chain": "left", "height": 7, "cause": "IndexOverflow"}]
    said = io.StringIO()
    show(found, Console(file=said, width=200))
    assert "left stopped at height 7: it violated an invariant (IndexOverflow)." in said.getvalue()


def test_open_calls_are_under_way_or_wait_for_a_program() -> None:
    assert "3 calls are still in progress" in verdict(outcome(pending=3, on_the_way=3, finished=False))
    assert "3 calls are waiting for a program to answer" in verdict(outcome(pending=3))
    assert "all calls have completed" in verdict(outcome())


def test_the_summary_says_what_one_waited_for_besides_the_ticks() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    waited = {"run": 30.0, "setup": 12.34, "summary": 5.0}
    show(replace(outcome(messages=60), routed=60, seconds=waited), console)
    said = "60 messages between chains in 30.0 s, 2 per second. Start 12.3 s, summary 5.0 s. Peak memory 0 bytes."
    assert said in console.export_text()
