"""Random networks with slow programs: each call is answered once.

Carriers misbehave, and chains halt and fork, until a final quiet period.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.protocols.xdm.properties.test_xdm_kernel import BLOCKS, play, scenario
from tests.spec.xdm.guarantees import violations
from tests.spec.xdm.reported import waiting_calls
from tests.support.xdm.properties.xdm_checks import Record, Sums
from tests.support.xdm.properties.xdm_driven import SPECIAL
from tests.support.xdm.properties.xdm_kernel_log import KernelLog
from tests.support.xdm.properties.xdm_value import Replay
from tests.support.xdm.xdm_network import Network
from tests.tiers import sized


def slow_scenario(seed: int) -> tuple[dict[str, Any], dict[int, list[tuple[int, int, bytes, int]]]]:
    """Return a scenario with open channels and mostly late answers."""
    keywords, calls = scenario(seed)
    rng, options = random.Random(seed), keywords["options"]
    for programs in keywords["chains"].values():
        programs |= {number: SPECIAL for number, name in programs.items() if name == "echo"}
    options["pool_tag"] = rng.choice(["with_src", "without_src"])
    kept = [call for call in options.pop("channel_calls", []) if call["do"] == "initiate"]
    options["channel_calls"] = kept
    back = 2 * (options["archiving_depth"] + options["challenge_period"] + 4)
    for kind in rng.choices(["drop", "delay", "reorder"], k=3):
        args = {"of": 2} if kind == "reorder" else {"every": rng.choice([2, 3])}
        if kind == "delay":
            args["blocks"] = rng.randrange(1, 9)
        first = back + rng.randrange(-4, BLOCKS)  # when responses come
        keywords["faults"].append((kind, None, None, first, first + rng.randrange(1, BLOCKS), args))
    if seed % 3 == 0:
        options["archiving_depth"] = 5
        for _ in range(rng.randrange(1, 4)):
            tick = rng.randrange(1, 4 * BLOCKS)
            keywords["faults"].append(("reorg", None, None, tick, tick, {"depth": rng.randrange(1, 5)}))

    def body(was: bytes) -> bytes:
        return b"~%d" % rng.choice([1, 1, 2, 3, 9]) if rng.random() < 0.8 else was

    return keywords, {at: [(a, b, body(was), amount) for a, b, was, amount in some] for at, some in calls.items()}


QUICK = (25,)
"""With forks and halts, both tags, and answers that overtake."""

SLOW_SEEDS = (33, 1, 2, 3, 6, 7, 10)[: sized(2, 7)]
"""Cut in 2, 3 and 4 parts, or forgetful; with forks and without."""


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(seed, marks=pytest.mark.slow) for seed in SLOW_SEEDS)])
def test_each_call_of_a_slow_program_is_answered_once(seed: int) -> None:
    keywords, calls = slow_scenario(seed)
    net = Network(**keywords)
    log = KernelLog(net)
    roots = play(net, calls, Sums(net), Record(net), log, Replay(net))
    assert violations(log.record()) == []
    assert waiting_calls(log.record()) == []
    assert len(net.state["open_calls"]) == 0
    other = Network(**keywords, forgetful=True) if seed % 2 else Network(**keywords, cuts=2 + seed // 2 % 3)
    assert play(other, calls) == roots


SLOW: dict[str, Any] = {"A": {1: "caller"}, "B": {2: ("faulty", {"late_every": 1, "late_by": 1})}}


def network_with_call(**keywords: Any) -> tuple[Network, tuple[Sums, Record, Replay]]:
    """Return a network whose call of a slow program attaches value, and its checks."""
    net = Network(SLOW, balance=1_000, **keywords)
    net.call(1, 2, b"slowly", amount=50)
    return net, (Sums(net), Record(net), Replay(net))


def run_until_answered(net: Network, checks: Any, limit: int = 120) -> None:
    """Run until the call has its one answer and its amount."""
    for _ in range(limit):
        net.block()
        for one in checks:
            one.check()
        if net.idle():
            break
    callers = net.state.programs["caller"]
    assert net.idle() and (callers["answered"].tolist(), callers["rejected"].tolist()) == ([1], [0])
    assert len(net.state["open_calls"]) == 0


@pytest.mark.parametrize("last", [19, 30])
def test_call_is_answered_once_if_its_chain_was_halted_as_both_arrived(last: int) -> None:
    """By the test defaults the response arrives in block 18 and the answer in block 19."""
    net, checks = network_with_call(faults=[("halt", "A", None, 17, last, {})])
    run_until_answered(net, checks)


@pytest.mark.parametrize("depth", [1, 4])
def test_fork_reverts_an_answer_that_overtook_its_response(depth: int) -> None:
    """Accepted before the response, it is reverted with its block and arrives again."""
    options = {"archiving_depth": 5, "challenge_period": 3, "resubmit_after": 9}
    net, checks = network_with_call(options=options, faults=[("drop", "B", "A", 24, 24, {"every": 1})])
    while not net.state["open_calls"]["answered"].any():
        net.block()
        for one in checks:
            one.check()
        assert net.tick < 40
    assert net.state.programs["caller"]["answered"].tolist() == [1]
    net.reorganise(depth)
    for one in checks:
        one.check()
    assert net.state.programs["caller"]["answered"].tolist() == [0]
    run_until_answered(net, checks)
