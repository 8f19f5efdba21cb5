"""The deployed trie, built for the browser, against a lake of domains: storage roots and proofs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from causeway_proofs.xdm.envelope import INBOX_RESPONSES, OUTBOX, MmrLeaf, message_storage_key, receipt_storage_key

from causeway.network.opened_lake import open_lake
from causeway.protocols.contract import Tick
from causeway.protocols.xdm.storage import storage_changes
from causeway.proving.xdm.messages import build_kernel, prove_message, read_state, read_storage
from tests.support.xdm.xdm_lake import make_lake
from tests.verifiers.conftest import to_hex

SCRIPT = "substrate.mjs"
HEIGHTS = (5, 13, 20)
V1 = 1


def test_roots_and_proofs_of_a_lake_match(node: Callable[[str, Any], Any], tmp_path: Path) -> None:
    opened = open_lake(make_lake(tmp_path))
    kernel = build_kernel(opened)
    asked, roots = [], []
    for height in HEIGHTS:
        for position in range(len(opened.names)):
            context = kernel.context(np.array([position], dtype=np.uint32), Tick(height, opened.manifest(height).tick))
            rows = storage_changes(None, read_state(opened, opened.manifest(height), position), context)
            entries = zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
            asked.append({"entries": [[to_hex(key), to_hex(value)] for key, value in entries], "version": V1})
            roots.append(read_storage(opened, position, height).root)
    assert node(SCRIPT, {"roots": asked})["roots"] == [{"ok": to_hex(root)} for root in roots]

    proofs, expected = [], []
    for source, destination, nonce, height, response in (
        ("left", "right", 3, 13, False),
        ("farmers", "right", 0, 5, False),
        ("right", "left", 1, 24, True),
    ):
        shown = prove_message(opened, source, destination, nonce=nonce, height=height, response=response)
        envelope, proof = shown.envelope, shown.envelope.proof
        state_root = MmrLeaf.decode(proof.consensus_chain_mmr_proof.opaque_mmr_leaf).state_root
        own, root = envelope.src_chain_id.domain, state_root
        if own is not None:
            assert proof.domain_proof is not None
            position = opened.position(source)
            root = read_storage(opened, position, shown.block).root
            proofs.append({"root": to_hex(state_root), "nodes": [to_hex(part) for part in proof.domain_proof]})
            expected.append((receipt_storage_key(own), root))
        item = INBOX_RESPONSES if response else OUTBOX
        proofs.append({"root": to_hex(root), "nodes": [to_hex(part) for part in proof.message_proof]})
        expected.append((message_storage_key(item, envelope.dst_chain_id, 0, nonce), shown.message.encode()))
    for answer, (key, value) in zip(node(SCRIPT, {"proofs": proofs})["proofs"], expected, strict=True):
        found = dict(map(tuple, answer["ok"]))
        assert value.hex() in found[to_hex(key)], "the message itself, or the receipt with the final state root"
