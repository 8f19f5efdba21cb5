"""Cost of an Internet Computer round in rows and hashes: independent of history and resting chains.

Cached digests change no root.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import functions

from causeway.core.ingress_call import encode_calls
from causeway.protocols.contract import Tick
from causeway.protocols.shared import digests
from causeway.protocols.shared.digests import DigestCache
from tests.counting import counted
from tests.support.ic.ic_harness import Call, KernelRun, Scenario

CHAINS = 20
HISTORY = 12
"""Ticks of the shorter history; a call takes fewer to be answered and forgotten."""


def call_message(number: int) -> bytes:
    """Build a user message that tells a caller to call a canister."""
    body = pa.array([b"body"], pa.binary())
    payload: bytes = encode_calls(np.array([number], dtype=np.uint64), 0, 0, "m", body)[0].as_py()
    return payload


def network(rounds: int, chains: int = CHAINS, busy: int = 2) -> KernelRun:
    """Create subnets with a caller and an echo each; the first ``busy`` callers call the next at every tick."""
    canisters: dict[int, tuple[int | None, str | None, int]] = {}
    for chain in range(chains):
        canisters[2 * chain] = (chain, "caller", 0)
        canisters[2 * chain + 1] = (chain, "echo", 0)
    calls = [Call(chain, 2 * chain, 9, "call", call_message(2 * ((chain + 1) % chains) + 1)) for chain in range(busy)]
    ingress = dict.fromkeys(range(1, rounds + 1), calls)
    return KernelRun(Scenario(tuple(range(chains)), canisters, rounds=rounds, ingress=ingress), apart=False)


def last_round(run: KernelRun, rounds: int) -> Counter[str]:
    """Return the cost of the last of several rounds."""
    for tick in range(run.tick + 1, rounds):
        run.round(Tick(tick, tick))
    with counted((digests, functions)) as found:
        run.round(Tick(rounds, rounds))
    return found


def test_tenfold_history_costs_no_more_per_round() -> None:
    run = network(10 * HISTORY)
    short, long = last_round(run, HISTORY), last_round(run, 10 * HISTORY)
    assert min(short.values()) > 0
    assert long == short


def test_resting_chains_cost_no_hashes() -> None:
    few, many = last_round(network(HISTORY), HISTORY), last_round(network(HISTORY, 4 * CHAINS), HISTORY)
    assert [many[what] for what in ("hashes", "bytes")] == [few[what] for what in ("hashes", "bytes")]


def test_roots_are_independent_of_cached_digests() -> None:
    kept, dropped = network(HISTORY), network(HISTORY)
    for tick in range(1, HISTORY + 1):
        dropped.states = [replace(state, hashed=DigestCache()) for state in dropped.states]
        for run in (kept, dropped):
            run.round(Tick(tick, tick))
        assert kept.roots() == dropped.roots()
    assert kept.states[0].hashed.last is not None
