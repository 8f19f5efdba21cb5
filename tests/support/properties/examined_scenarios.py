"""What is true of every scenario, held against one.

It ends without an unexpected exception; the verdict of the run is that of an audit of its lake; the messages of users
that it was given were received, refused or wait; each call has one outcome. Where nothing in it breaks a guarantee, the
verdict is not ``FAILED``, value is conserved, and no call is left open.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.errors import InvalidInput
from hypothesis import HealthCheck, Phase, assume, event, settings

from causeway.analysis.run_summary import summarize_run
from causeway.cli.app import build_app
from causeway.cli.shell import FAILED, OK, execute
from causeway.compare.comparison import digest_ingress
from causeway.ledger.outcomes import OUTCOMES
from causeway.network.network import LakeNetwork
from tests.support.properties.random_scenarios import is_sound

SUPPRESSED = [each for each in HealthCheck if each.name not in ("return_value", "not_a_test_method")]


def examples(count: int) -> settings:
    """Return the settings of a test of so many scenarios; ``print_blob`` names one that fails."""
    phases = (Phase.explicit, Phase.generate, Phase.shrink)
    return settings(max_examples=count, phases=phases, suppress_health_check=SUPPRESSED, print_blob=True)


@dataclass(frozen=True)
class Played:
    """What a scenario came to: the ``root`` at its end, the ``summary`` of the run, and whether it came to rest."""

    root: str
    summary: Mapping[str, Any]
    at_rest: bool


def play(text: str, folder: Path, **network: str) -> Played:
    """Run a scenario in ``folder``. Raises ``InvalidInput`` where it is none."""
    (folder / "scenario.toml").write_text(text)
    overrides = {f"network.{name}": value for name, value in network.items()}
    with LakeNetwork.from_scenario(folder / "scenario.toml", overrides, lake=str(folder / "lake")) as net:
        net.run()
        with summarize_run(net.lake) as (_, summary):
            return Played(net.root(), json.loads(json.dumps(summary.plain())), net.is_finished)


def audited(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Mapping[str, Any]]:
    """Return the exit code and the JSON of an audit of the lake in ``folder``."""
    capsys.readouterr()
    code = execute(["audit", str(folder / "lake"), "--json"], build_app, "causeway")
    found: Mapping[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def examine(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a scenario and hold it against what is true of every one."""
    document = tomllib.loads(text)
    protocol = document["network"]["protocol"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            played = play(text, folder)
        except InvalidInput:
            event("refused")
            assume(False)
        found = played.summary
        event(f"{protocol}: {found['verdict']}")
        code, audit = audited(folder, capsys)
        assert (audit["verdict"], code) == (found["verdict"], FAILED if found["verdict"] == "FAILED" else OK)
        applicable = [one for one in audit["checks"] if one["verdict"] != "NOT APPLICABLE"]
        assert {one["check"]: (one["verdict"], one["violated"]) for one in applicable} == {
            name: (one["verdict"], one["violated"]) for name, one in found["checks"].items()
        }
        assert sum(found[outcome.value] for outcome in OUTCOMES) == found["sent"]
        # Raises where the chains logged others than they were given.
        users = digest_ingress(protocol, str(folder / "lake"), str(folder / "scenario.toml"))
        sends = [send.get("count", 1) for send in document["traffic"]["send"]]
        assert users.count == users.received + users.refused + users.waiting == sum(sends)
        if is_sound(document):
            event(f"{protocol}: sound")
            assert found["verdict"] != "FAILED", found["sentence"]
            assert found["checks"]["conservation"]["violated"] == 0
            if played.at_rest:
                assert (users.waiting, found["pending"]) == (0, 0)
