"""The value log alone gives every balance of every chain after every block (DESIGN: no movement without a row)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from causeway.core.vocabulary import ValueReason
from causeway.protocols.xdm.value.transporter import METHOD
from tests.support.xdm.properties.xdm_checks import Sums
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized

BLOCKS = 16
KEEPER = "tests.support.xdm.properties.xdm_keeper:Keeper"
CHAINS: dict[str, Any] = {
    "consensus": {1: "caller", 2: KEEPER},
    "a": {11: "caller", 12: KEEPER, 13: "caller"},
    "b": {21: "caller", 22: KEEPER},
}
CALLERS, KEEPERS = (1, 11, 13, 21), (2, 12, 22)


def scenario(seed: int) -> Network:
    """Create a network with programs that open and close channels with deposits, and faulty carriers."""
    rng = random.Random(seed)
    owners = {"consensus": (1, 2), "a": (11, 12, 13), "b": (21, 22)}
    channels = rng.choice(["open", "initiate"])
    calls: list[dict[str, Any]] = []
    for chain, foreign in (("consensus", "a"), ("a", "b"), ("b", "consensus")):
        call = {"chain": chain, "foreign": foreign, "by": owners[chain][0]}
        calls.append({**call, "tick": 0})
        if rng.random() < 0.5:  # before or after it is open
            calls.append({**call, "tick": rng.choice([1, 40]), "do": "close", "channel": int(channels == "open")})
    for _ in range(rng.randrange(2, 9)):
        chain, foreign = rng.sample(list(owners), 2)
        call = {"tick": rng.randrange(4 * BLOCKS), "chain": chain, "foreign": foreign}
        by = rng.choice([*owners[chain], "root"])
        if rng.random() < 0.5:
            calls.append({**call, "by": by})
        else:
            calls.append({**call, "by": by, "do": "close", "channel": rng.randrange(3)})
    options = {
        "initiate_by": "signed",
        "close_by": "owner_or_root",
        "channels": channels,
        "channel_calls": calls,
        "fee_model": rng.choice(["v0", "v1"]),
        "inbox": rng.choice(["stored", "pool"]),
        "max_outgoing_messages": rng.choice([1, 100]),
        "resubmit_after": 5,
        "operators": rng.choice([1, 3]),
        "endowment": 0,
        "minimum_transfer": 5,
    }
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("drop", {"every": 3}),
        ("delay", {"blocks": 3}),
        ("tamper", {"what": "node", "every": 2}),
    ]
    faults = [(kind, None, None, 0, 3 * BLOCKS, args) for kind, args in rng.sample(kinds, rng.randrange(3))]
    return Network(CHAINS, options=options, balance=rng.choice([150, 10**6, 2**100]), faults=faults, seed=seed)


def play(net: Network, seed: int, *checks: Any) -> None:
    rng = random.Random(seed)
    for _block in range(BLOCKS):
        for _ in range(rng.randrange(5)):
            amount = rng.choice([0, 4, 40, 400, 2**90])
            receiver = rng.choice([*CALLERS, *KEEPERS, *KEEPERS])
            method = METHOD if rng.random() < 0.4 else "call"
            net.call(rng.choice(CALLERS), receiver, b"", amount=amount, method=method)
        net.block()
        for one in checks:
            one.check()
    for _ in range(120):
        wakes = [result.wake for result in net.results if result.wake is not None]
        net.sleep(max(net.tick + 1, min(wakes, default=0)))
        for one in checks:
            one.check()
        if net.idle():
            return


@pytest.mark.parametrize(
    "seed", [3, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, sized(10, 13)))]
)
def test_value_log_gives_every_balance_after_every_block(seed: int) -> None:
    net = scenario(seed)
    play(net, seed, Sums(net), Replay(net))


def test_value_log_gives_every_balance_under_every_movement_reason() -> None:
    """A missing row of a reason without movements would go unnoticed."""
    net = scenario(7)
    play(net, 7, Sums(net), Replay(net))
    found = {ValueReason(why) for _, _, rows in net.logs["value"] for why in rows["why"].tolist()}
    assert found == set(ValueReason)
