"""Networks of parachains run end to end."""

from __future__ import annotations

from pathlib import Path

from causeway.network.network import Network
from causeway.network.scenario import load_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "generated.toml"


def _run(folder: Path, **given: str) -> tuple[str, dict[str, object]]:
    keys = {"network.protocol": "icmp", "network.executor": "in_process", **given}
    with Network(load_scenario(EXAMPLE, keys), str(folder)) as net:
        net.run()
        return net.root(), net.summary()


def test_all_calls_are_answered_and_the_root_does_not_depend_on_buckets(tmp_path: Path) -> None:
    whole, counts = _run(tmp_path / "one")
    cut, _ = _run(tmp_path / "four", **{"network.partitions": "4"})
    assert counts["sent"] == counts["answered"] == 20_000
    assert counts["duplicates"] == counts["out_of_order"] == 0
    assert cut == whole
