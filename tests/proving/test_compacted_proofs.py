"""Proofs from a lake with a long history: old heights, compacted logs, running networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from causeway_proofs.ics23.proof_specs import PROOF_SPECS
from causeway_proofs.ics23.simple_store import verify_range_proof
from causeway_proofs.ics23.verify import verify_membership

from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.protocols.ibc.keys import QueuePurpose, index_key
from causeway.proving.ibc.store import ZoneStore, open_store
from causeway.storage.compaction import compact_logs, remove_compacted
from tests.support.ibc.ibc_lake import make_lake, scenario

TICKS = 20
RUN = 4


@pytest.fixture
def frequent_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact four heights at a time."""
    for module in ("compaction", "lake"):
        monkeypatch.setattr(f"causeway.storage.{module}.RUN", RUN)
    monkeypatch.setattr("causeway.storage.compaction.RETAINED_COMMITS", RUN)


def everything(store: ZoneStore) -> list[tuple[bytes, bytes]]:
    """Return all entries of a store with their proofs, after a check of one proof of every queue."""
    for queue in store.queues():
        if len(queue.indices):
            key = index_key(queue.counterparty, queue.purpose, int(queue.indices[-1]))
            value, proof = store.proved(key)
            verify_membership(PROOF_SPECS["tendermint"], store.root, proof, key, value)
    places = np.arange(len(store))
    return list(zip(store.entries_at(places).keys.to_pylist(), store.existence_proofs(places).to_pylist(), strict=True))


@pytest.mark.slow
def test_compaction_changes_no_proof_of_any_height(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frequent_compaction: None
) -> None:
    monkeypatch.setattr("causeway.network.network.compact_logs", lambda lake, last: last.compacted)
    place = make_lake(tmp_path, ticks=TICKS)
    opened = open_lake(place)
    heights = opened.lake.heights()[::3]
    before = {(chain, at): everything(open_store(opened, chain, at)) for chain in "ABC" for at in heights}
    monkeypatch.undo()
    for module in ("compaction", "lake"):
        monkeypatch.setattr(f"causeway.storage.{module}.RUN", RUN)
    monkeypatch.setattr("causeway.storage.compaction.RETAINED_COMMITS", RUN)
    old = open_store(opened, "B", 6)
    last = opened.last_height()
    compact_logs(opened.lake, opened.manifest(last - last % RUN))
    remove_compacted(opened.lake, opened.manifest())
    kept = [height for height in opened.lake.heights() if opened.lake.manifest(height).log.get("outbound")]
    gone = [
        path
        for height in kept
        for path in opened.lake.manifest(height).log["outbound"].values()
        if not opened.lake.storage.exists(path)
    ]
    assert len(gone) > 20
    after = {(chain, at): everything(open_store(open_lake(place), chain, at)) for chain in "ABC" for at in heights}
    assert after == before
    assert everything(old) == before["B", 6], "a store that was open before goes on"


def test_lake_yields_proofs_during_a_run(tmp_path: Path, frequent_compaction: None) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(scenario(TICKS))
    network = LakeNetwork.from_scenario(path, lake=str(tmp_path / "lake"))
    try:
        network.run(6)
        opened = open_lake(str(tmp_path / "lake"))
        early = open_store(opened, "B")
        assert early.height == network.height
        packets = early.queue("A", QueuePurpose.RECEIPT).indices
        network.run(TICKS)
        assert open_store(opened, "B").height == network.height
        assert open_store(opened, "B", early.height).root == early.root
        first, count = int(packets[-1]) - 2, 3
        entries, proof = early.run("A", QueuePurpose.RECEIPT, first, first + count)
        assert len(entries) == count
        assert verify_range_proof(early.root, proof).entries.keys == entries.keys
    finally:
        network.close()


def test_proofs_are_independent_of_partitions(tmp_path: Path) -> None:
    found = []
    for partitions in (1, 3):
        path = tmp_path / "scenario.toml"
        path.write_text(scenario(6).replace("partitions = 2", f"partitions = {partitions}"))
        place = str(tmp_path / f"lake-{partitions}")
        network = LakeNetwork.from_scenario(path, lake=place)
        network.run()
        network.close()
        found.append({chain: everything(open_store(open_lake(place), chain, 7)) for chain in "ABC"})
    assert found[0] == found[1]
