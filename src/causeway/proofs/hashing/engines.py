"""Which engine hashes many messages: one by one, or side by side in vectors.

A process that hashes little does it one by one: compiled code takes a third of a second to load. It is loaded when
about that much was spent, or at once by ``prepare``. The engines of this machine are then timed, which takes some
milliseconds. Which engine is used changes no digest: one that gives others than single messages have is not used.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from causeway.model.compiled_files import is_prepared
from causeway.proofs.hashing.functions import DIGEST_BYTES, HashFunction, one_by_one

if TYPE_CHECKING:
    from causeway.proofs.hashing.lanes import Lanes

FEW = 8
"""Below this many messages a loop over single ones is faster than a call of compiled code."""

ENOUGH = 500_000
"""Messages hashed one by one in about the time that loading compiled code takes."""

ENOUGH_TO_COMPILE = 20 * ENOUGH
"""The same for compiling it, on a machine where that was never done: a cluster's, or one that can keep nothing."""

_TIMES = {HashFunction.SHA256: 1, HashFunction.BLAKE2B_256: 1, HashFunction.KECCAK_256: 10}
"""How long one message takes by itself, beside the others."""

TRIAL = 256
"""Messages that engines are timed with."""

TRIAL_BYTES = 64

TRIALS = 3

_LOADED = "causeway.proofs.hashing.lanes"

_chosen: dict[HashFunction, Lanes | None] = {}
_spent = 0


def engine_for(function: HashFunction, count: int) -> Lanes | None:
    """Return what hashes so many messages side by side, None where they are better hashed one by one."""
    global _spent
    if count < FEW and function is not HashFunction.KECCAK_256:
        return None
    if function not in _chosen:
        if _LOADED not in sys.modules:
            _spent += count * _TIMES[function]
            if _spent < ENOUGH or (_spent < ENOUGH_TO_COMPILE and not is_prepared()):
                return None
        _chosen[function] = _fastest(function)
    return _chosen[function]


def prepare(*functions: HashFunction) -> None:
    """Load the engines and choose among them now, those of some functions or all, so that no later call waits for that.

    Where it was never compiled, nothing is done: every process would compile it.
    """
    if not is_prepared():
        return
    from causeway.proofs.hashing import lanes  # noqa: F401

    for function in functions or HashFunction:
        engine_for(function, FEW)


def _fastest(function: HashFunction) -> Lanes | None:
    from causeway.proofs.hashing import lanes

    one = one_by_one(function)
    rows = np.arange(TRIAL * TRIAL_BYTES // 4, dtype=np.uint32).view(np.uint8).reshape(TRIAL, TRIAL_BYTES)
    values = [row.tobytes() for row in rows]
    found, expected, fastest = None, b"", float("inf")
    for _ in range(TRIALS):
        begin = perf_counter()
        expected = b"".join([one(value) for value in values])
        fastest = min(fastest, perf_counter() - begin)
    for engine in lanes.engines(function):
        digests = np.empty((TRIAL, DIGEST_BYTES), dtype=np.uint8)
        for _ in range(TRIALS):
            begin = perf_counter()
            engine.rows(rows, b"", digests)
            taken = perf_counter() - begin
            if taken < fastest and digests.tobytes() == expected:
                found, fastest = engine, taken
    return found
