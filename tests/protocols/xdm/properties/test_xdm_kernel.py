"""Random networks on the kernel of cross-domain messaging: guarantees per block, equal roots in any partitioning."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.spec.xdm.guarantees import violations
from tests.support.xdm.properties.xdm_checks import Record, Sums
from tests.support.xdm.properties.xdm_kernel_log import KernelLog
from tests.support.xdm.properties.xdm_mixed import channel_call, fault
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized

BLOCKS = 14
"""In which users call and carriers misbehave."""
CALM = 400
"""So many blocks more at most everything is answered in."""


def scenario(seed: int) -> tuple[dict[str, Any], dict[int, list[tuple[int, int, bytes, int]]]]:
    """Return a network (keywords of ``Network``) and its user calls, by block."""
    rng = random.Random(seed)
    names = ["consensus", "a", "b", "c", "d"][: rng.randrange(2, 6)]
    if rng.random() < 0.3:
        names = names[1:] + names[:1]
    programs = {name: [10 * place + 1, 10 * place + 2] for place, name in enumerate(names)}
    chains = {name: {one: "caller", other: "echo"} for name, (one, other) in programs.items()}
    options: dict[str, Any] = {
        "archiving_depth": rng.choice([1, 2, 5]),
        "challenge_period": rng.choice([1, 3, 8]),
        "inbox": rng.choice(["stored", "pool"]),
        "fee_model": rng.choice(["v0", "v1"]),
        "max_outgoing_messages": rng.choice([1, 3, 100]),
        "max_future_nonces": rng.choice([0, 2, 256]),
        "channels_per_block": rng.choice([1, 15, 2**62]),
        "resubmit_after": rng.choice([2, 5, 15]),
    }
    faults = [fault(rng, names, options["challenge_period"], BLOCKS) for _ in range(rng.randrange(5))]
    if rng.random() < 0.5:
        options["channel_calls"] = [channel_call(rng, names, BLOCKS) for _ in range(rng.randrange(1, 5))]
    numbers = [number for both in programs.values() for number in both]
    calls: dict[int, list[tuple[int, int, bytes, int]]] = {}
    for block in range(BLOCKS):
        for _ in range(rng.randrange(6)):
            receiver = rng.choice([*numbers, 999])
            amount = rng.choice([0, 0, 7, 10**6, 10**30])
            caller = rng.choice([number for number in numbers if number % 10 == 1])
            calls.setdefault(block, []).append((caller, receiver, bytes([block]) * rng.choice([0, 3, 60]), amount))
    keywords = {"chains": chains, "options": options, "balance": rng.choice([0, 10**7]), "faults": faults, "seed": seed}
    return keywords, calls


def play(net: Network, calls: dict[int, list[tuple[int, int, bytes, int]]], *checks: Any) -> list[dict[str, bytes]]:
    """Play a scenario until all is answered; return the roots of every block."""
    roots = []
    for block in range(BLOCKS + CALM):
        for caller, receiver, body, amount in calls.get(block, ()):
            net.call(caller, receiver, body, amount=amount)
        if block < BLOCKS:
            net.block()
        else:
            wakes = [result.wake for result in net.results if result.wake is not None]
            net._block(max(net.tick + 1, min(wakes, default=0)))
        for one in checks:
            one.check()
        roots.append(net.roots())
        if block >= BLOCKS and net.idle():
            return roots
    raise AssertionError(f"calls still wait after {CALM} blocks")


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, sized(5, 8)))]
)
def test_random_networks_hold_guarantees_under_any_partitioning(seed: int) -> None:
    keywords, calls = scenario(seed)
    net = Network(**keywords)
    record = Record(net)
    log = KernelLog(net)
    roots = play(net, calls, Sums(net), record, log, Replay(net))
    assert record.requests, "something was sent"
    assert violations(log.record()) == []
    # Every second network loses its tries in every block, the others are split into buckets.
    other = Network(**keywords, forgetful=True) if seed % 2 else Network(**keywords, cuts=2 + seed // 2 % 3)
    assert play(other, calls) == roots
