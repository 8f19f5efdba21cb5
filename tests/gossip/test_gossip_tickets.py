"""Simulated gossip with tickets: selfish nodes forward for pay, and withholding nodes get few bodies."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, OK, execute
from causeway.core.frame import concat
from causeway.gossip.simulation.kernel import GossipKernel
from causeway.gossip.simulation.report import build_results, settle_claims
from causeway.gossip.simulation.state import TICKET
from causeway.gossip.simulation.world import HONEST, LIE, SELFISH, WITHHOLD
from causeway.network.network import LakeNetwork
from causeway.network.simulation import SUMMED_COLUMNS, load_simulation, summarize_simulation
from causeway.tick.bucket import forget_states
from tests.gossip.test_gossip_simulation import kernel_of
from tests.support.gossip.gossip_networks import in_memory, ticks

TICKETS = """
slice = 100
tail = 1
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
blocks = 1
queues = 10
interval = 3_000
propagation = 400
[links]
most = 100
[tickets]
mode = "on"
credit = 1
odds = 4
fee = 4
[[attackers]]
kind = "selfish"
count = 8
[[attackers]]
kind = "withhold"
count = 2
[[attackers]]
kind = "lie"
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(TICKETS)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the kernel and the results of ``play_simulation``."""
    path = tmp_path_factory.mktemp("tickets") / "scenario.toml"
    path.write_text(TICKETS)
    kernel = kernel_of(path)
    return kernel, *play_simulation(kernel)


def play_simulation(kernel: GossipKernel) -> tuple[dict[str, Any], dict[str, pa.Table], Any]:
    """Return the summary, its logs, and the last state."""
    found: dict[str, list[pa.Table]] = {name: [] for name in SUMMED_COLUMNS}
    states: Any = None
    for tick, last, logs in ticks(kernel):
        states = last
        for name, tables in found.items():
            rows = logs[name].to_table(kernel.logs[name]) if name in logs else kernel.logs[name].empty_table()
            tables.append(rows.append_column("tick", pa.array([tick] * len(rows), pa.int64())))
    joined = {name: pa.concat_tables(tables) for name, tables in found.items()}
    return dict(build_results(kernel, joined).summary), joined, states


def test_lake_with_tickets_verifies_and_resumes(scenario: Path, tmp_path: Path) -> None:
    def run(lake: Path, resume: bool = False, ticks: int | None = None) -> tuple[str, Any]:
        with LakeNetwork(load_simulation("gossip", scenario), str(lake), resume=resume) as network:
            network.run(ticks=ticks) if ticks is not None else network.run()
            return network.root(), None if ticks is not None else summarize_simulation(network).summary

    whole = run(tmp_path / "whole")
    run(tmp_path / "stopped", ticks=17)
    forget_states()
    assert run(tmp_path / "stopped", resume=True) == whole
    for lake in ("whole", "stopped"):
        assert execute(["check", str(tmp_path / lake)], build_app, "causeway") == OK


def test_results_are_independent_of_buckets_and_rebuilt_states(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario.write_text(TICKETS.replace("interval = 3_000", "interval = 2_000").replace("queues = 10", "queues = 5"))
    kernel = kernel_of(scenario)
    whole = in_memory(kernel)
    assert {"claims", "purse_samples"} <= whole[1].keys()
    made = GossipKernel.round

    def rebuilt(kernel: GossipKernel, state: Any, *rest: Any) -> Any:
        return made(kernel, kernel.state(dict(state.frames())), *rest)

    monkeypatch.setattr(GossipKernel, "round", rebuilt)
    assert in_memory(kernel_of(scenario), (3, 17, 24)) == whole


def test_selfish_nodes_forward_for_tickets_and_withholders_lose_credit(whole: Any) -> None:
    kernel, summary, logs, states = whole
    costs, world = summary["tickets"], kernel.world
    assert summary["in_time"] == 1.0 and costs["by_behaviour"]["selfish"]["earned_a_node"] > 0
    of = world.behaviour
    assert costs["by_behaviour"]["selfish"]["bodies_a_node"] == 10.0
    # Each forwarding neighbour delivers one body to a non-paying node, and then nothing more.
    links = np.flatnonzero(of[world.graph.node] == WITHHOLD)
    got = of[logs["got"]["chain"].to_numpy()] == WITHHOLD
    assert 0 < got.sum() <= len(links) < 10 * np.count_nonzero(of == WITHHOLD)
    due = concat([state.rows["due"] for state in states.values()])
    node, peer = (of[due[name].astype(np.int64)] for name in ("node", "peer"))
    assert set(peer[node != LIE].tolist()) == {WITHHOLD} and np.count_nonzero(peer == WITHHOLD) <= len(links)
    # Every second valid body was paid with a ticket with a checked signature.
    assert costs["deliveries"] - costs["tickets"] == len(due)
    assert (costs["refused"], costs["checked"]) == (0, costs["tickets"])
    assert costs["claims"] == costs["claims_paid"] == costs["won"] > 0


def test_selfish_nodes_forward_nothing_without_gain(scenario: Path) -> None:
    scenario.write_text(TICKETS.replace("fee = 4", "cost = 7"))
    kernel = kernel_of(scenario)
    _, logs, _ = play_simulation(kernel)
    peers = logs["got"]["peer"].to_numpy().astype(np.int64)
    givers = set(kernel.world.behaviour[peers[peers < 24]].tolist())
    assert HONEST in givers and SELFISH not in givers


def test_settlement_conserves_value_and_pays_logged_tickets(whole: Any) -> None:
    kernel, summary, logs, _ = whole
    options = kernel.options.tickets
    settlement, verdicts = settle_claims(kernel.world, logs["claims"])
    assert verdicts == {"OK": len(logs["claims"])} and summary["tickets"]["exhausted"] == 0
    held = sum(account.deposit + account.bond for account in settlement.accounts.values())
    assert held + sum(settlement.earned.values()) + settlement.burned == 24 * (options.deposit + options.bond)
    # With a deposit of one prize every payer of a claim is exhausted, and a second claim on it burns the bond.
    poor = replace(
        kernel.world,
        options=kernel.options.model_copy(update={"tickets": options.model_copy(update={"deposit": options.prize})}),
    )
    payers = Counter(logs["claims"]["peer"].to_pylist())
    settlement, verdicts = settle_claims(poor, logs["claims"])
    twice = sum(count > 1 for count in payers.values())
    assert (verdicts["OK"], verdicts["Overdrawn"]) == (len(payers), twice) and twice > 0
    assert verdicts["NoAccount"] == sum(count - 2 for count in payers.values() if count > 2)
    assert sum(not settlement.accepts(key.tobytes()) for key in poor.public_keys) == len(payers)
    # Repeated claims are not paid, nor are claims with other serial numbers.
    twice = pa.concat_tables([logs["claims"], logs["claims"]])
    assert settle_claims(kernel.world, twice)[1] == {"OK": len(logs["claims"]), "AlreadyClaimed": len(logs["claims"])}
    serial = pa.array(logs["claims"]["serial"].to_numpy() + np.uint64(100))
    changed = logs["claims"].set_column(logs["claims"].schema.get_field_index("serial"), "serial", serial)
    assert settle_claims(kernel.world, changed)[1]["OK"] < len(changed)


def test_forged_signatures_are_rejected_and_forgers_are_cut_off(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_of(scenario)
    forger = int(np.flatnonzero(kernel.world.behaviour == SELFISH)[0])
    from causeway.gossip.simulation import trading

    signed = trading._signed

    def forged(now: Any, rows: Any) -> Any:
        made = signed(now, rows)
        mine = (made["source"] == forger) & (made["kind"] == TICKET)
        signature = made["signature"].copy()
        signature[mine, 0] ^= 1
        return made.with_columns(signature=signature)

    monkeypatch.setattr(trading, "_signed", forged)
    summary, logs, _ = play_simulation(kernel)
    mine = (logs["got"]["chain"].to_numpy() == forger) & (logs["got"]["peer"].to_numpy() < 24)
    degree = np.diff(kernel.world.graph.begins)[forger]
    assert mine.sum() <= degree < 10 and mine.sum() <= summary["tickets"]["refused"] <= degree
    assert forger not in set(logs["claims"]["peer"].to_pylist())


def test_options_incompatible_with_tickets_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    for text, said in (
        ("links.loss = 0.1", 'links: loss = 0.1: with tickets.mode = "on" only 0.0'),
        ("churn.share = 0.1", "churn: share = 0.1: with tickets.mode"),
        ('gossip.topology = "from_to"', "gossip: topology = 'from_to': with tickets.mode"),
        ('gossip.reconciliation = "minisketch"', "gossip: reconciliation = 'minisketch': with"),
        ("tickets.deposit = 511", "tickets: deposit = 511 must be at least price * odds = 512"),
        ("tickets.odds = 100", "tickets.odds: 100: must be a power of two"),
        ("tickets.credit = 64", "tickets.credit: 64: must be at most credit_limit = 32"),
    ):
        path.write_text(f'tickets.mode = "on"\n{text}')
        with pytest.raises(InvalidInput, match=str(path)) as error:
            load_simulation("gossip", path)
        assert said in str(error.value)


def test_command_compares_runs_with_and_without_tickets(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot, fast = tmp_path / "selfish.svg", ["--set", "relay.interval=2_000", "--set", "relay.queues=4"]
    command = ["gossip", "incentives", str(scenario), "--nodes", "24", "--selfish", "60", *fast]
    assert execute([*command, "--plot", str(plot), "--json"], build_app, "causeway") == OK
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["selfish"], run["tickets"]) for run in runs] == [(0.6, False), (0.6, True)]
    without, with_ = runs
    assert without["in_time_of_needed"] < with_["in_time_of_needed"] == 1.0 and with_["costs"]["tickets"] > 0
    assert plot.read_text().count("<polyline") == 2 and "24 nodes, with tickets" in plot.read_text()
    for given, said in (("x", "--selfish: 'x'; allowed: whole numbers from 0 to 99"), ("100", "--selfish: '100'")):
        assert execute([*command[:3], "--selfish", given], build_app, "causeway") == BAD_INPUT
        assert said in capsys.readouterr().err
    assert execute([*command[:3], "--set", "nodes.count=3"], build_app, "causeway") == BAD_INPUT
    assert "--set nodes.count: follows from --nodes" in capsys.readouterr().err


def test_impossible_runs_are_rejected_before_start(
    scenario: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr("causeway.cli.commands.gossip.incentives.simulate", lambda *given: ran.append("x"))
    command = ["gossip", "incentives", str(scenario), "--nodes", "24", "--selfish", "0,99"]
    assert execute(command, build_app, "causeway") == BAD_INPUT
    assert "nodes: count = 24, of them 23 attackers; parachains have" in capsys.readouterr().err
    assert ran == []
