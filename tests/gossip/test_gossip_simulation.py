"""Simulated gossip: independence of buckets and restarts, results, and attackers."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, INTERRUPTED, OK, execute
from causeway.config.section import ScenarioSection
from causeway.gossip.options import GossipOptions
from causeway.gossip.simulation.kernel import ITSELF, GossipKernel
from causeway.gossip.simulation.options import AttackersSection, SimulationOptions
from causeway.gossip.simulation.world import HONEST
from causeway.network import deploy
from causeway.network.network import LakeNetwork
from causeway.network.simulation import SimulationResult, load_simulation, summarize_simulation
from causeway.protocols.shared.random_numbers import rounds
from causeway.tick.bucket import forget_states
from tests.support.gossip.gossip_networks import in_memory, ticks

SMALL = """
slice = 200
tail = 0
sample = 1_000
[network]
seed = 3
executor = "in_process"
[nodes]
count = 24
parachains = 4
[topology]
degree = 4
[relay]
blocks = 2
queues = 6
interval = 2_000
propagation = 800
[gossip]
purge_interval = 500
[links]
least = 200
most = 300
mean = 250
"""

ROUGH = """
distribution = "exponential"
loss = 0.05
[churn]
share = 0.2
period = 1_000
[[attackers]]
kind = "spam"
count = 2
[[attackers]]
kind = "lie"
[[attackers]]
kind = "silent"
[[attackers]]
kind = "eclipse"
count = 2
"""

FAST = {"slice": "100", "links.most": "150", "tail": "1"}
"""Neighbours so near that all arrives in time."""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(SMALL.replace("[relay]", "[relay]\nforks = 0.4") + ROUGH)
    return path


def kernel_of(path: Path) -> GossipKernel:
    scenario = load_simulation("gossip", path)
    topology = scenario.topology(scenario.traffic())
    made = deploy.build_kernel(scenario, topology)
    assert isinstance(made, GossipKernel)
    return made


def run(path: Path, lake: Path, given: Mapping[str, str] | None = None) -> tuple[str, SimulationResult]:
    with LakeNetwork(load_simulation("gossip", path, given), str(lake)) as network:
        network.run()
        return network.root(), summarize_simulation(network)


def test_samples_are_philox_values() -> None:
    zero, ones = (np.full(1, word, dtype=np.uint64) for word in (0, 2**32 - 1))
    first = [int(word[0]) for word in rounds([zero] * 4, [np.uint64(0)] * 2)]
    assert first == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    other = [int(word[0]) for word in rounds([ones] * 4, [np.uint64(2**32 - 1)] * 2)]
    assert other == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_results_are_independent_of_buckets_restarts_and_indices(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, found = run(scenario, tmp_path / "one")
    with LakeNetwork(load_simulation("gossip", scenario), str(tmp_path / "stopped")) as network:
        network.run(ticks=17)
    forget_states()
    with LakeNetwork(load_simulation("gossip", scenario), str(tmp_path / "stopped"), resume=True) as network:
        network.run()
        assert (network.root(), summarize_simulation(network).summary) == (root, found.summary)
    kernel = kernel_of(scenario)
    whole, logs = in_memory(kernel)
    for cut in ((9, 24), (2, 3, 10, 20, 24)):
        assert in_memory(kernel, cut) == (whole, logs)
    made = GossipKernel.round

    def rebuilt(kernel: GossipKernel, state: Any, *rest: Any) -> Any:
        return made(kernel, kernel.state(dict(state.frames())), *rest)

    monkeypatch.setattr(GossipKernel, "round", rebuilt)
    assert in_memory(kernel) == (whole, logs)
    options = '[gossip]\nreconciliation = "minisketch"\nancestors = 1\ntopology = "from_to"\nfallback_request = "on"\n'
    text = (
        scenario.read_text().replace("[gossip]", options + "fallback_after = 500").replace("blocks = 2", "blocks = 1")
    )
    scenario.write_text(text)
    again = in_memory(kernel_of(scenario), (9, 24))
    monkeypatch.undo()
    assert in_memory(kernel_of(scenario)) == again != (whole, logs)


def test_needed_queues_arrive_and_attackers_are_disconnected(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SMALL + ROUGH[ROUGH.index("[[attackers]]") :].replace('[[attackers]]\nkind = "silent"', ""))
    given = {
        **FAST,
        "nodes.count": "40",
        "relay.blocks": "4",
        "gossip.max_pool_bytes": "20000",
        "gossip.least_reputation": "-4000",
    }
    root, found = run(path, tmp_path / "lake", given)
    summary = found.summary
    assert found.holds and summary["never"] == 0 and summary["needed"] == 48
    assert 0 < summary["pool_bytes_most"] <= 20_000
    for kind in ("lying", "spamming"):
        assert summary["attackers"][kind]["ended"] == summary["attackers"][kind]["links"] > 0
    assert summary["attackers"]["honest_links_ended"] == 0
    assert summary["wasted_queues"] > 0
    hashed = {"relay.bodies": '"hashed"', **given}
    _, again = run(path, tmp_path / "hashed", hashed)
    # An altered body is also detected by its bytes. Other roots imply another order of lies.
    for key in ("attackers", "in_time", "p100_ms", "wasted_queues", "pool_bytes_most", "holds"):
        assert again.summary[key] == summary[key]
    found.tables["bodies"].validate(full=True)
    assert found.tables["bodies"]["delay"].null_count == 0
    assert root


def test_honest_nodes_get_no_body_from_altering_or_withholding_nodes(scenario: Path) -> None:
    kernel = kernel_of(scenario)
    behaviour, givers = kernel.world.behaviour, set()
    for _, _, logs in ticks(kernel):
        if "got" in logs:
            got = logs["got"].filter(behaviour[logs["got"]["chain"].astype(np.int64)] == HONEST)
            givers |= {*got["peer"].tolist()}
    assert {int(behaviour[peer]) for peer in givers - {ITSELF}} == {HONEST} and ITSELF in givers


def test_recipient_topics_deliver_bodies_only_to_recipients_and_carriers(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text("tail = 1\n" + SMALL.replace("tail = 0", "").replace("[gossip]", '[gossip]\ntopology = "from_to"'))
    kernel = kernel_of(path)
    relay, nodes = kernel.world.relay, kernel.options.nodes
    got = {pair for _, _, logs in ticks(kernel) if "got" in logs for pair in zip(*_two(logs["got"]), strict=True)}
    to, of = (
        dict(zip(relay.root.tolist(), side.tolist(), strict=True)) for side in (relay.destinations, relay.sources)
    )
    collators = nodes.parachains * nodes.collators
    # The n-th node without a parachain carries queues to the n-th, cyclically.
    wanted = {(node, root) for root in to for node in range(nodes.count) if node % 4 == to[root]}
    wanted |= {(node, root) for root in to for node in range(collators) if node % 4 == of[root]}
    assert got == wanted and len(wanted) == 12 * (6 + 2)


def test_holders_answer_recipients_and_no_other_node_requests(tmp_path: Path) -> None:
    path, found = tmp_path / "scenario.toml", []
    lossy = "tail = 4\n" + SMALL.replace("tail = 0", "").replace("[links]", "[links]\nloss = 0.9")
    for request in ("off", "on"):
        option = f'[gossip]\nfallback_request = "{request}"\nfallback_after = 600'
        path.write_text(lossy.replace("[gossip]", option))
        kernel = kernel_of(path)
        relay, world = kernel.world.relay, kernel.world
        came = [
            (tick * 200, *row)
            for tick, _, logs in ticks(kernel)
            if "got" in logs
            for row in zip(*(logs["got"][name].tolist() for name in ("chain", "root", "peer")), strict=True)
        ]
        linked = {*zip(world.graph.node.tolist(), world.graph.peer.tolist(), strict=True)}
        apart = [row for row in came if row[3] != ITSELF and (row[1], row[3]) not in linked]
        found.append(len(apart))
        for time, node, root, keeper in apart:
            assert world.keeps[keeper] == relay.sources[root] and world.needs[node] == relay.destinations[root]
            # Each direction takes at least one slice.
            assert time >= world.arrivals[relay.first_listing_block[root], node] + 600 + 2 * 200
    assert found[0] == 0 < found[1]


def _two(got: Any) -> tuple[list[int], list[int]]:
    return got["chain"].tolist(), got["root"].tolist()


def test_invalid_scenarios_are_rejected_by_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    for text, said in (
        ("slice = 600", "slice: 600: must be at most the least latency, 500 ms"),
        ("[relay]\nfork = 0.1", "relay.fork: unknown key; did you mean forks?"),
        # Of two bounds, the one of the type applies.
        ("[nodes]\ncollators = 0", "nodes.collators: 0: must be greater than or equal to 1"),
        ("[links]\nleast = 0", "links.least: 0: must be greater than or equal to 1"),
        ("[topology]\ndegree = 3", "topology.degree: 3: must be even"),
        ("[nodes]\ncount = 12", "nodes: count = 12, of them 0 attackers; parachains have 20 collators"),
        (
            'topology.kind = "ring"\ngossip.topology = "from_to"',
            'topology: kind = "ring": with gossip.topology = "from',
        ),
        (
            'topology.entries = 5\ngossip.topology = "from_to"',
            "(nodes.parachains - 1) = 53 must be at most gossip.max_pe",
        ),
        (
            'nodes.carried = 17\ngossip.topology = "from_to"',
            "nodes: carried = 17 must be at most gossip.max_subscripti",
        ),
        ("[network]\nticks = 4", "network.ticks: unknown key; Keys here: seed"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInput, match=str(path)) as error:
            load_simulation("gossip", path)
        assert said in str(error.value)
    assert execute(["gossip", "simulate", str(path)], build_app, "causeway") == BAD_INPUT
    assert "network.ticks" in capsys.readouterr().err


def test_command_prints_and_draws_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SMALL)
    fast = [text for key, value in FAST.items() for text in ("--set", f"{key}={value}")]
    lake, plot = tmp_path / "lake", tmp_path / "plot.svg"
    outputs = ["--out", str(lake), "--plot", str(plot), "--json"]
    assert execute(["gossip", "simulate", str(path), *outputs, *fast], build_app, "causeway") == OK
    found = json.loads(capsys.readouterr().out)
    assert found["in_time"] == 1.0 and found["holds"]
    assert (lake / "results" / "bodies.parquet").exists()
    assert plot.read_text().startswith("<svg")


def test_interrupted_command_reports_how_to_resume_and_leaves_no_stray_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lake = tmp_path / "scenario.toml", tmp_path / "lake"
    path.write_text(SMALL)
    made = GossipKernel.round

    def stopped(kernel: GossipKernel, state: Any, chains: Any, plan: Any, inputs: Any, tick: Any) -> Any:
        if tick.tick == 5:
            signal.raise_signal(signal.SIGTERM)
        return made(kernel, state, chains, plan, inputs, tick)

    monkeypatch.setattr(GossipKernel, "round", stopped)
    command = ["gossip", "simulate", str(path), "--out", str(lake), "--set", "nodes.parachains=3"]
    before = signal.getsignal(signal.SIGTERM)
    assert execute(command, build_app, "causeway") == INTERRUPTED and signal.getsignal(signal.SIGTERM) == before
    told = capsys.readouterr().err
    assert "continue with --resume" in told and "stopped at height" in told and "Traceback" not in told
    monkeypatch.undo()
    away = ["--set", "churn.share=0.999", "--set", "churn.period=100"]
    assert execute([*command[:4], str(tmp_path / "away"), *away, "--json"], build_app, "causeway") == FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["needed"], found["holds"], found["in_time"]) == (0, None, None)
    assert execute([*command, "--resume"], build_app, "causeway") in (OK, FAILED)
    assert execute(["check", str(lake), "--json"], build_app, "causeway") == OK
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["strays"] == []


def documented_keys() -> list[str]:
    """Return the documented lines about the keys of a simulation's own sections."""
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for name, field in SimulationOptions.model_fields.items():
        section = AttackersSection if name == "attackers" else field.annotation
        if not (isinstance(section, type) and issubclass(section, ScenarioSection)):
            lines.append(f"| `{name}` | {json.dumps(field.default)} | {field.description} |")
            continue
        if section is GossipOptions:
            continue
        shown = "attackers[].{}" if name == "attackers" else f"{name}.{{}}"
        for key, inner in section.model_fields.items():
            default = "required" if inner.is_required() else json.dumps(inner.default)
            lines.append(f"| `{shown.format(key)}` | {default} | {inner.description} |")
    return lines


def test_page_documents_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "gossip.md").read_text()
    assert "\n".join(documented_keys()) in page
