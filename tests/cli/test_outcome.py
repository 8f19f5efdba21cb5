"""The outcome of a run: counts of its ledger and verdict of its audit."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from causeway.analysis.run_summary import RunSummary, summarize_run
from causeway.cli.app import build_app
from causeway.cli.output.run_outcome import RunFigures, drop_causes, show_outcome
from causeway.cli.shell import FAILED, OK, execute
from causeway.compare.comparison import digest_ingress
from causeway.network.network import LakeNetwork
from causeway.network.run_records import CarrierSummary, StoppedChain
from causeway.storage.lake import Lake
from tests.support.common.small_lakes import lake_of

CHAINS = '[network]\nprotocol = "ic"\nexecutor = "in_process"\n[options]\ncertification = "off"\n' + "".join(
    f'[[chains]]\nname = "{name}"\n' for name in "ABC"
)
PROGRAMS = "".join(
    f'[[programs]]\nname = "{name}"\nchain = "{chain}"\nprogram = "{of}"\nbalance = 9\n'
    for name, chain, of in (("caller", "A", "caller"), ("echo", "B", "echo"))
)
SCRIPT = '[traffic]\nsource = "script"\nsend = [{ tick = 0, to = "caller", count = 3, call = { receiver = "echo" } }]\n'
MOVES = '[[moves]]\ntick = 2\nprogram = "caller"\nchain = "C"\n'
HALT = '[[faults]]\nkind = "halt"\nchain = "B"\nfrom = 1\n'


def run_network(folder: Path, more: str = "", ticks: int | None = None, script: str = SCRIPT) -> tuple[RunFigures, str]:
    """Run a network; return its outcome, and the printed text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s.toml").write_text(CHAINS + PROGRAMS + more + script)
    with LakeNetwork.from_scenario(folder / "s.toml", lake=str(folder / "lake")) as net:
        net.run(ticks)
        with summarize_run(net.lake) as (_, summary):
            found = outcome(summary, finished=net.is_finished)
    return found, render_outcome(found)


def outcome(summary: RunSummary, **changed: Any) -> RunFigures:
    figures: dict[str, Any] = {"scenario": "s", "protocol": "ic", "chains": 3, "ticks": 3, "heights": 3, "root": "00"}
    figures |= {"seconds": {"run": 1.0, "setup": 1.0, "summary": 1.0}, "routed": 0, "peak_memory_bytes": 0}
    return RunFigures(**figures, summary=summary, processor_seconds=0.0, lake=None, **changed)


def render_outcome(found: RunFigures) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_outcome(found, console)
    file: Any = console.file
    text: str = file.getvalue()
    return text


def test_run_that_delivers_all_messages_passes(tmp_path: Path) -> None:
    found, text = run_network(tmp_path)
    assert found.exit_code == OK and found.finished and not found.stalled
    assert "PASSED. All calls have completed.\n" in text
    counts = found.as_json()
    assert (counts["sent"], counts["answered"], counts["pending"], counts["messages"]) == (3, 3, 0, 6)
    assert (counts["verdict"], counts["holds"]) == ("PASSED", True)
    waited = replace(found, routed=6, seconds={"run": 30.0, "setup": 12.34, "summary": 5.0})
    line = "6 messages between chains in 30.0 s, 0 per second. Start 12.3 s, summary 5.0 s. Peak memory 0 bytes."
    assert line in render_outcome(waited)
    assert "6 messages between chains, 2 in this run in" in render_outcome(replace(waited, routed=2, whole=False))


def test_run_that_loses_messages_fails_and_names_the_first(tmp_path: Path) -> None:
    found, text = run_network(tmp_path, MOVES)
    assert found.exit_code == FAILED
    assert "FAILED: 3 violations of delivery" in text and "  delivery: first " in text
    assert f"will never be answered: {drop_causes(found)}" in text
    assert found.as_json()["dropped_because"].keys() <= {"sender_mismatch", "receiver_mismatch"}
    assert ". 3 calls will never be answered.\n" in text and "completed" not in text


def test_run_and_calls_report_equal_causes_that_sum_to_the_dropped_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = SCRIPT.replace("}]", '}, { tick = 1, to = "caller", call = { receiver = "echo" } }]')
    found, _ = run_network(tmp_path, '[[changes]]\ntick = 2\nremove = ["caller"]\n' + script, script="")
    counts = found.as_json()
    assert counts["dropped"] == sum(counts["dropped_because"].values()) > 0
    assert "receiver_mismatch" in counts["dropped_because"], "the cause of a dropped answer"
    execute(["calls", str(tmp_path / "lake")], build_app, "causeway")
    listed = re.findall(r"(\d+)  dropped: (\S.*)", capsys.readouterr().out)
    assert {cause: int(count) for count, cause in listed} == counts["dropped_because"]


@pytest.mark.parametrize(("ticks", "code", "end"), [(3, OK, "3 calls in progress."), (None, FAILED, "stalled")])
def test_messages_to_a_halted_chain_are_pending_until_the_network_is_idle(
    tmp_path: Path, ticks: int | None, code: int, end: str
) -> None:
    found, text = run_network(tmp_path, HALT, ticks)
    assert (found.exit_code, found.stalled) == (code, code == FAILED)
    assert end in text
    assert ("FAILED: 3 violations of delivery" in text) is (code == FAILED)


def test_run_verdict_equals_the_audit_of_the_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, more in (("well", ""), ("moved", MOVES)):
        found, _ = run_network(tmp_path / name, more)
        code = execute(["audit", str(tmp_path / name / "lake"), "--json"], build_app, "causeway")
        audit = json.loads(capsys.readouterr().out)
        plain = found.as_json()
        assert (plain["verdict"], plain["sentence"], found.exit_code) == (audit["verdict"], audit["sentence"], code)
        counts = ("verdict", "violated", "unknown", "noted")
        assert plain["checks"] == {
            each["check"]: {name: each[name] for name in counts}
            for each in audit["checks"]
            if each["examined"] or each["reasons"]
        }


def test_run_without_messages_completes(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(CHAINS + PROGRAMS)
    with LakeNetwork.from_scenario(tmp_path / "s.toml", lake=str(tmp_path / "lake")) as net:
        net.run()
        with summarize_run(net.lake) as (_, summary):
            assert outcome(summary).exit_code == OK and summary.counts["sent"] == 0
            nothing = replace(
                summary.audit, checks={name: replace(each, examined=0) for name, each in summary.audit.checks.items()}
            )
            found = outcome(replace(summary, audit=nothing))
    assert found.exit_code == OK and "NOT APPLICABLE: nothing was examined" in render_outcome(found)


def test_stopped_chain_is_named(tmp_path: Path) -> None:
    found, _ = run_network(tmp_path)
    found = replace(found, stopped=(StoppedChain("left", 7, "IndexOverflow"),))
    assert found.as_json()["stopped_chains"] == [{"chain": "left", "height": 7, "cause": "IndexOverflow"}]
    assert "left stopped at height 7: it violated an invariant (IndexOverflow)." in render_outcome(found)


HALTED_AND_TAKEN_BACK = """
[network]
protocol = "xdm"
executor = "in_process"
[options]
archiving_depth = 5
challenge_period = 3
[[chains]]
name = "A"
[[chains]]
name = "B"
[[faults]]
kind = "halt"
chain = "A"
from = 7
until = 20
[[faults]]
kind = "reorg"
tick = 11
depth = 4
"""
"""User messages to the halted domain are refused in a block that a fork reverts, and ingested later."""


def test_user_message_returned_by_a_fork_is_not_refused(tmp_path: Path) -> None:
    place = lake_of(tmp_path, HALTED_AND_TAKEN_BACK + PROGRAMS + SCRIPT.replace("tick = 0", "tick = 9"))
    with summarize_run(Lake.at(place)) as (_, found):
        counts = found.counts
    assert (counts["sent"], counts["answered"], counts["ingress_refused"]) == (3, 3, 0)
    taken = digest_ingress("xdm", place)
    assert (taken.received, taken.refused, taken.waiting) == (3, 0, 0)


HALTED_AT_BIRTH = """
[network]
protocol = "ic"
executor = "in_process"
[options]
certification = "bls"
[[chains]]
name = "A"
[[chains]]
name = "B"
from = 3
[[faults]]
kind = "halt"
chain = "B"
from = 3
until = 5
"""


def test_subnet_halted_at_creation_has_one_root_per_height(tmp_path: Path) -> None:
    """Its canisters migrate to it in the round of its registration, which it does not run."""
    place = lake_of(tmp_path, HALTED_AT_BIRTH + PROGRAMS + SCRIPT.replace("tick = 0", "tick = 6"))
    with summarize_run(Lake.at(place)) as (_, found):
        assert (found.verdict.value, found.counts["answered"]) == ("PASSED", 3)


def test_relayer_name_cannot_control_the_terminal(tmp_path: Path) -> None:
    found, _ = run_network(tmp_path)
    lines = ["Relayer [x]\nPASSED\x1b[8m: 1 of 1 messages took effect."]
    text = render_outcome(replace(found, carriers=CarrierSummary({}, lines)))
    assert "Relayer [x]\\nPASSED\\x1b[8m: 1 of 1 messages took effect.\n" in text
