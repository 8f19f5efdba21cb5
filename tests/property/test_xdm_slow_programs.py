"""Random networks whose programs take their time: each call is answered once, however carriers misbehave and chains
halt and fork, when they have ceased to."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.property.test_xdm_kernel import BLOCKS, play, scenario
from tests.property.xdm_checks import Record, Sums
from tests.property.xdm_driven import SPECIAL
from tests.property.xdm_kernel_log import KernelLog
from tests.property.xdm_value import Replay
from tests.spec.xdm.guarantees import violations, waiting_calls
from tests.unit.xdm_network import Network


def slow(seed: int) -> tuple[dict[str, Any], dict[int, list[tuple[int, int, bytes, int]]]]:
    """Return a scenario in which channels stay open, and most calls are answered some blocks later."""
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


QUICK = (25, 33)
"""With forks and halts, both tags, and answers that overtake."""


@pytest.mark.parametrize(
    "seed", [seed if seed in QUICK else pytest.param(seed, marks=pytest.mark.slow) for seed in range(60)]
)
def test_each_call_of_a_slow_program_is_answered_once(seed: int) -> None:
    keywords, calls = slow(seed)
    net = Network(**keywords)
    log = KernelLog(net)
    roots = play(net, calls, Sums(net), Record(net), log, Replay(net))
    assert violations(log.record()) == []
    assert waiting_calls(log.record()) == []
    assert len(net.state["open_calls"]) == 0
    other = Network(**keywords, forgetful=True) if seed % 2 else Network(**keywords, cuts=2 + seed // 2 % 3)
    assert play(other, calls) == roots
