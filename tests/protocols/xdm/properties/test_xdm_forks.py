"""Forks of the consensus chain: nothing is lost or repeated, no value is created (G4, X-4, hazard 30)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.vocabulary import Event, Via
from causeway.protocols.xdm.state import ChannelState
from causeway.protocols.xdm.tables import STATE_TABLES
from tests.protocols.xdm.properties.test_xdm_kernel import BLOCKS, play, scenario
from tests.support.xdm.properties.xdm_checks import Record, Sums
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized

CHAINS = {"consensus": {1: "caller", 2: "echo"}, "a": {11: "caller", 12: "echo"}, "b": {21: "caller", 22: "echo"}}
DEEP = {"archiving_depth": 5, "challenge_period": 3}


def fork(tick: int, depth: int) -> tuple[Any, ...]:
    return ("reorg", None, None, tick, tick, {"depth": depth})


class CheckedNetwork(Network):
    """Network whose guarantees are checked after every block."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(CHAINS, balance=10**6, **keywords)
        self.checks = Sums(self), Record(self)

    def _block(self, at: int) -> None:
        super()._block(at)
        for one in self.checks:
            one.check()


def count_user_messages(net: Network) -> int:
    """Count user messages that were executed or rejected, without those reverted by forks."""
    events = net.surviving_events()
    return int((events["via"] == Via.INGRESS).sum())


def executed_callbacks(net: Network, receiver: int) -> list[int]:
    """Return the callbacks of requests executed by a program, in order."""
    events = net.surviving_events()
    mine = (events["events"] & np.uint16(Event.EXECUTED) > 0) & (events["receiver"] == receiver)
    return [int(number) for number in events["callback"][mine & (events["via"] == Via.LANE)].tolist()]


def forked_network(seed: int) -> tuple[dict[str, Any], dict[int, list[tuple[int, int, bytes, int]]]]:
    """Return a random network with consensus chain forks."""
    rng = random.Random(seed)
    keywords, calls = scenario(seed)
    depth = rng.choice([2, 3, 5, 9])
    keywords["options"]["archiving_depth"] = depth
    for _ in range(rng.randrange(1, 6)):
        tick = rng.randrange(1, BLOCKS + 8)
        for again in range(rng.choice([1, 1, 3])):
            keywords["faults"].append(fork(tick + again, rng.randrange(1, depth)))
    if rng.random() < 0.3:
        args = {"chance": 0.2, "most": depth - 1}
        keywords["faults"].append(("reorg", None, None, 3, BLOCKS + 30, args))
    return keywords, calls


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, sized(4, 7)))]
)
def test_random_forked_networks_hold_guarantees_under_any_partitioning(seed: int) -> None:
    keywords, calls = forked_network(seed)
    net = Network(**keywords)
    roots = play(net, calls, Sums(net), Record(net), Replay(net))
    assert len(net.logs["reverted"]), "blocks were taken back"
    assert count_user_messages(net) == sum(map(len, calls.values())), "what users sent was executed, or refused, once"
    other = Network(**keywords, forgetful=True) if seed % 2 else Network(**keywords, cuts=2 + seed // 2 % 3)
    assert play(other, calls) == roots


@pytest.mark.parametrize(
    ("blocks", "depth"),
    [
        *[(1, 1), (4, 4), (9, 3), (11, 4)],
        *(
            pytest.param(blocks, depth, marks=pytest.mark.slow)
            for blocks in (2, 7, 12)[: sized(1, 3)]
            for depth in (1, 4)
        ),
    ],
)
def test_30_fork_below_the_depth_after_relaying_has_no_remote_effect(blocks: int, depth: int) -> None:
    """Test calls between domains, to and from the consensus chain, and within a chain, at any fork time."""
    net = CheckedNetwork(options=DEEP)
    net.block(2)
    calls = [(11, 22), (21, 2), (1, 12), (11, 12), (11, 22)]
    for caller, receiver in calls:
        net.call(caller, receiver, amount=5)
    net.block(blocks)
    net.reorganise(depth)
    net.block(45)
    assert net.idle()
    assert net.state.programs["caller"]["answered"].tolist() == [1, 3, 1]
    assert (
        executed_callbacks(net, 22) == [0, 2]
        and executed_callbacks(net, 2) == [0]
        and executed_callbacks(net, 12) == [0]
    )
    assert count_user_messages(net) == len(calls)


def test_fork_reverts_tables_but_not_carriers_operators_or_users() -> None:
    net = Network(CHAINS, balance=10**6, options=DEEP)
    for block in range(20):
        net.call(11, 22, bytes([block]))
        net.block()
    then, height = net.past[17], net.height
    net.call(21, 12, b"now")
    net.reorganise(3)
    assert net.gone_back_to() == 17 and net.roots() == {}
    kept = {"pool", "relaying", "envelopes", "nodes", "bases", "late", "late_nodes", "late_bases"}
    for name in STATE_TABLES.keys() - kept:
        assert net.state[name].to_table(STATE_TABLES[name].schema) == then[name].to_table(STATE_TABLES[name].schema)
    assert len(net.state["pool"]) == height - 17 + 1
    assert len(net.state["late"]) and len(net.past[height]["envelopes"]) and not len(net.state["relaying"])
    tips = net.state["tips"]
    block, parents = int(tips["number"][0]), [bytes(one) for one in tips["hash"]]
    net.block()
    assert net.headers["parent"].to_pylist() == parents
    assert set(net.headers["number"].tolist()) == {net.tick + 1} and net.tick + 1 > block + 1
    assert net.state["blocks"]["number"].tolist()[-2:] == [block, net.tick + 1]


def test_proof_under_an_abandoned_block_is_rejected_and_rebuilt() -> None:
    """Operators prove to the consensus chain under its latest block, whose number a fork reuses."""
    late = ("delay", None, "consensus", 0, 40, {"blocks": 3})
    net = CheckedNetwork(options=DEEP, faults=[late])
    net.call(11, 2)
    while not len(net.state["late"]):
        net.block()
    net.block()
    net.reorganise(4)
    net.block(60)
    assert ("consensus", "BadProof") in net.refusals()
    assert net.idle() and executed_callbacks(net, 2) == [0]


def test_planned_calls_reverted_by_a_fork_are_repeated() -> None:
    planned = [
        {"tick": 4, "chain": "a", "foreign": "b", "do": "initiate"},
        {"tick": 6, "chain": "b", "foreign": "consensus", "do": "initiate"},
    ]
    options = {**DEEP, "channels": "initiate", "channel_calls": planned}
    halted: tuple[Any, ...] = ("halt", "b", None, 7, 9, {})
    net = CheckedNetwork(options=options, faults=[fork(6, 4), halted])
    net.block(60)
    channels = net.state["channels"]
    rows = zip(*(channels[name].tolist() for name in ("chain", "foreign", "channel", "state")), strict=True)
    opened = {row[:3]: row[3] for row in rows}
    assert opened[1, 2, 0] == opened[2, 1, 0] == ChannelState.OPEN, "a's, made again in the next block"
    assert opened[2, 0, 0] == opened[0, 2, 0] == ChannelState.OPEN, "b's, of the tick of the fork, when it goes on"
    assert len(opened) == 4 and not len(net.state["recalled"])


def test_successive_forks_and_idle_periods() -> None:
    net = CheckedNetwork(options={"archiving_depth": 9, "challenge_period": 40})
    net.call(11, 22)
    net.block(3)
    net.sleep(30)
    for depth in (1, 8, 8, 2, 8):
        net.call(21, 12)
        net.block()
        net.reorganise(depth)
    # Block 31 and later ones were reverted; block 3 is older than 8 blocks, and nothing is between.
    assert net.gone_back_to() == 3
    assert net.settle() < 100
    assert (
        executed_callbacks(net, 22) == [0]
        and executed_callbacks(net, 12) == list(range(5))
        and count_user_messages(net) == 6
    )


def test_random_fork_wakes_no_network() -> None:
    chance = ("reorg", None, None, 0, 2**64 - 1, {"chance": 0.5, "most": 4})
    net = Network(CHAINS, options=DEEP, faults=[chance], balance=10**6)
    net.call(11, 22)
    net.settle()
    while (wake := net.results[0].wake) is not None:
        net.sleep(wake)
        assert net.tick < 1_000, "it comes to rest, however often it goes back"
    assert len(net.logs["reverted"])


def test_no_fork_occurs_while_the_consensus_chain_is_halted() -> None:
    net = Network(CHAINS, options=DEEP, faults=[fork(4, 2), ("halt", "consensus", None, 3, 6, {})])
    net.block(5)
    assert net.gone_back_to() is None and not len(net.logs["reverted"])


@pytest.mark.parametrize("args", [{"depth": 5}, {"chance": 0.1, "most": 5}])
def test_forks_stay_above_finalized_blocks(args: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r'kind = "reorg": (depth|most) = 5; allowed: less than'):
        Network(CHAINS, options=DEEP, faults=[("reorg", None, None, 1, 1, args)])
