"""Memory of untrusted submissions and queries: bounded by budgets in bytes."""

from __future__ import annotations

import gc
import random
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from causeway_proofs.tendermint.building import make_header, sign_header
from causeway_proofs.tendermint.trust import HeaderUpdate
from causeway_proofs.tendermint.validators import PublicKey, Validator, ValidatorSet
from causeway_proofs.wire import ibc_queue_pb2 as wire

from causeway.core.caches import cache_results
from causeway.protocols.ibc import client
from tests.support.common.lakes import both

JUNK = 5
"""Junk headers, each of about 100 kB."""

BUDGET = 1 << 20
"""Bytes that they may leave behind together; decoded, one takes more."""


def junk_header(draws: random.Random, height: int) -> bytes:
    """Return a transaction with a well-formed foreign header of thousands of validators."""
    own = ValidatorSet.of(Validator(PublicKey(draws.randbytes(32)), 10) for _ in range(800))
    signed = sign_header(make_header("right", height, 10**9, bytes(32), own), own, {})
    update = HeaderUpdate.on(0, own, signed, own).encode()
    calls = [wire.Call(update=wire.UpdateHeader(remote="right", header=update))]
    return wire.Transaction(calls=calls).SerializeToString()


def test_junk_headers_leave_no_memory(tmp_path: Path) -> None:
    draws = random.Random(1)
    with both(tmp_path, calls=0) as lakes:
        transactions = [junk_header(draws, 100 + number) for number in range(JUNK + 1)]
        assert all(len(one) > 100_000 for one in transactions)
        lakes.submit("left", 9, transactions.pop())  # build one-time state now
        lakes.settle()
        kept = client._updates.currsize
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for number, transaction in enumerate(transactions):
                lakes.submit("left", 10 + number, transaction)
                lakes.settle()
            del transaction
            transactions.clear()
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert lakes.refused("left") == {"InvalidHeader": JUNK + 1}
        assert grown < BUDGET
        assert client._updates.currsize == kept


def test_verified_headers_are_cached_within_their_budget(tmp_path: Path) -> None:
    with both(tmp_path, calls=4) as lakes:
        before = len(client._updates)
        lakes.until_idle()
        assert len(client._updates) > before or client._updates.currsize > 0
        assert client._updates.currsize <= client.KEPT_BYTES


def test_queries_over_many_heights_are_evicted() -> None:
    asked: list[int] = []

    def read(height: int) -> bytes:
        asked.append(height)
        return bytes(1_000)

    view = cache_results(read, 10_000, len)
    for height in range(100):
        view(height)
        view(height)
    assert asked == list(range(100))
    view(0)
    assert asked[-1] == 0


def test_concurrent_requests_are_computed_once() -> None:
    made: list[int] = []
    asked = threading.Barrier(4)

    def read(number: int) -> bytes:
        made.append(number)
        time.sleep(0.05)
        return bytes(100)

    view = cache_results(read, 10_000, len)

    def ask(number: int) -> bytes:
        asked.wait()
        return view(number)

    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(ask, [1, 1, 2, 2]))) == 4
    assert sorted(made) == [1, 2]
