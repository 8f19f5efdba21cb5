"""Random networks on the kernel of cross-domain messaging: guarantees after every block, equal roots however cut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.property.xdm_checks import Record, Sums
from tests.property.xdm_kernel_log import KernelLog
from tests.property.xdm_value import Replay
from tests.spec.xdm.guarantees import violations
from tests.unit.xdm_network import Network

BLOCKS = 14
"""In which users call and carriers misbehave."""
CALM = 400
"""So many blocks more at most everything is answered in."""


def scenario(seed: int) -> tuple[dict[str, Any], dict[int, list[tuple[int, int, bytes, int]]]]:
    """Return a network (keywords of ``Network``) and what users call, by block."""
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
        "channels_per_block": rng.choice([1, 15]),
        "resubmit_after": rng.choice([2, 5, 15]),
    }
    faults = []
    for _ in range(rng.randrange(5)):
        kind = rng.choice(["drop", "delay", "reorder", "replay", "tamper", "tamper", "halt", "bundle", "fraud"])
        source, destination = rng.sample(names, 2) if rng.random() < 0.5 else (None, None)
        first = rng.randrange(BLOCKS)
        last = first + rng.randrange(20)
        args: dict[str, Any] = {"every": rng.choice([1, 2, 3])}
        if kind in ("delay", "replay"):
            args["blocks"] = rng.randrange(1 if kind == "delay" else 0, 9)
        if kind == "reorder":
            args = {"of": rng.choice([2, 3, 5])}
        if kind == "tamper":
            args["what"] = rng.choice(["node", "tag", "nonce", "source", "base"])
        if kind == "halt":
            source, destination, args = rng.choice(names), None, {}
        if kind == "bundle":
            source = rng.choice([name for name in names if name != "consensus"])
            destination, args = None, {"what": rng.choice(["base", "node", "nonce"])}
        if kind == "fraud":
            source = rng.choice([name for name in names if name != "consensus"])
            destination = rng.choice([name for name in names if name != source])
            args = {
                "what": rng.choice(["message", "root", "transfers", "bundle"]),
                "amount": 5,
                "chance": rng.choice([0.3, 1.0]),
            }
            args["found_after"] = rng.randrange(options["challenge_period"]) + 1
        faults.append((kind, source, destination, first, last, args))
    if rng.random() < 0.5:
        options["channel_calls"] = [_channel_call(rng, names) for _ in range(rng.randrange(1, 5))]
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


def _channel_call(rng: random.Random, names: list[str]) -> dict[str, Any]:
    chain, foreign = rng.sample(names, 2)
    call: dict[str, Any] = {"tick": rng.randrange(BLOCKS), "chain": chain, "foreign": foreign, "do": "initiate"}
    if rng.random() < 0.4:
        return {**call, "do": "close", "channel": rng.randrange(2)}
    return {**call, "max_outgoing": rng.choice([1, 4])}


def play(net: Network, calls: dict[int, list[tuple[int, int, bytes, int]]], *checks: Any) -> list[dict[str, bytes]]:
    """Play a scenario until everything is answered; return the roots of every block."""
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


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 30))])
def test_random_networks_keep_the_guarantees_however_they_are_cut(seed: int) -> None:
    keywords, calls = scenario(seed)
    net = Network(**keywords)
    record = Record(net)
    log = KernelLog(net)
    roots = play(net, calls, Sums(net), record, log, Replay(net))
    assert record.requests, "something was sent"
    assert violations(log.record()) == []
    # Every other network loses its tries in every block, the others are cut into buckets.
    other = Network(**keywords, forgetful=True) if seed % 2 else Network(**keywords, cuts=2 + seed // 2 % 3)
    assert play(other, calls) == roots
