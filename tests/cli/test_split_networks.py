"""In a network under load of which every subnet is split once, each call ends once, order is kept, and value is
conserved."""

from __future__ import annotations

from pathlib import Path

import pytest

from causeway.cli.app import build_app
from causeway.cli.shell import OK, execute
from tests.support.properties.examined_scenarios import audited, play
from tests.support.properties.split_networks import split_network
from tests.tiers import current_tier, sized


@pytest.mark.parametrize("seed", range(sized(1, 10)))
@pytest.mark.parametrize("certification", ["off", "bls"] if current_tier() == "soak" else ["bls"])
def test_every_subnet_is_split_under_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], certification: str, seed: int
) -> None:
    subnets = sized(3, 40)
    calls = 60 * subnets
    played = play(split_network(subnets, calls, seed, certification=certification), tmp_path)
    found = played.summary
    assert (played.at_rest, found["verdict"], found["pending"]) == (True, "PASSED", 0)
    assert found["sent"] == found["answered"] + found["rejected"]
    assert found["rejected"], "no request met a split"
    assert found["sent"] + found["ingress_refused"] == calls
    code, audit = audited(tmp_path, capsys)
    assert (code, audit["verdict"]) == (OK, "PASSED")
    checks = {check["check"]: check for check in audit["checks"]}
    for name in ("exactly_once", "order", "answers", "conservation", "headers"):
        assert (checks[name]["verdict"], checks[name]["violated"]) == ("PASSED", 0)
        assert checks[name]["examined"]
    assert execute(["check", "--execute", str(tmp_path / "lake")], build_app, "causeway") == OK
