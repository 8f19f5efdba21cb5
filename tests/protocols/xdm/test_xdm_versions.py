"""Retained storage after earlier blocks: equal to the log of changes, and bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.core.frame import Frame
from causeway.protocols.xdm import storage
from causeway.protocols.xdm.storage import ChainTries
from tests.support.xdm.xdm_network import Network

BLOCKS = 40


class CountingLog(Network):
    """Log reader that counts its reads of storage changes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.read = 0
        super().__init__(*arguments, **named)

    def _rows(self, name: str, spans: Frame) -> Frame:
        self.read += name == "storage"
        return super()._rows(name, spans)


@pytest.mark.slow
def test_roots_and_proofs_are_independent_of_cached_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare caches that persist, that are evicted at times, and none: only the last reads the log."""
    made, read = [], []
    for most in (storage.MOST_VERSIONS, 9, 0):
        monkeypatch.setattr(storage, "MOST_VERSIONS", most)
        net = CountingLog({"A": {1: "caller"}, "B": {2: "caller"}}, balance=10_000)
        shown = []
        for block in range(BLOCKS):
            net.call(*((1, 2) if block % 3 else (2, 1)))
            net.block()
            tables = net.kernel.tables()
            shown.append([net.state[name].to_table(tables[name].schema) for name in ("envelopes", "nodes", "anchored")])
        assert sum(len(tables[0]) for tables in shown) > BLOCKS
        made.append((net.roots(), shown))
        read.append(net.read)
    assert made[0] == made[1] == made[2]
    assert read[0] == 0 < read[1] < read[2]


def test_unconfirmed_chain_does_not_retain_its_storage_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "LEAST_ENTRIES", 100)
    chains = np.arange(2, dtype=np.uint32)
    tries = ChainTries.of(chains)
    most = given_up = 0
    for number in range(300):
        changed = [f"{key}".encode() for key in range(number % 7, 100, 7)]
        tries.change(_changes(chains, changed, number))
        tries.keep(chains, number)
        if number >= 3:
            tries.show(0, number - 3)
            assert tries.number[0] == number - 3
        most = max(most, tries.tries.live_nodes)
        given_up += not tries.versions.get(1)
    assert given_up > 0 and most <= storage.NODES_AN_ENTRY * 200
    assert len(tries.versions[0]) == 3


def _changes(chains: np.ndarray, keys: list[bytes], value: int) -> Frame:
    count = len(chains) * len(keys)
    return Frame(
        {
            "chain": chains.repeat(len(keys)),
            "key": pa.array(keys * len(chains), pa.binary()),
            "value": pa.array([value.to_bytes(40, "little")] * count, pa.binary()),
            "present": np.ones(count, dtype=np.uint8),
        },
        count,
    )
