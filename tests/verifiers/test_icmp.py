"""The deployed trie, built for the browser, against egress queues and a lake of parachains."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from causeway_proofs.substrate import egress_root, unrouted_key, watermark_key
from causeway_proofs.substrate.ordered_lists import ordered_key

from causeway.network.opened_lake import open_lake
from causeway.protocols.relay_chain.commitment import relay_changes
from causeway.proving.icmp.messages import prove_message, relay_leaves
from tests.support.icmp.icmp_lake import make_lake
from tests.verifiers.conftest import to_hex

SCRIPT = "substrate.mjs"
V0, V1 = 0, 1


def test_roots_of_random_egress_queues_match(node: Callable[[str, Any], Any]) -> None:
    draws = np.random.default_rng(14)
    asked, roots = [], []
    for count in (1, 2, 16, 17, 63, 64, 65, 255, 300, *draws.integers(1, 80, 20)):
        messages = [draws.bytes(int(size)) for size in draws.choice([0, 1, 31, 32, 33, 64, 200], int(count))]
        entries = [[to_hex(ordered_key(place)), to_hex(message)] for place, message in enumerate(messages)]
        asked.append({"entries": entries, "version": V0})
        roots.append(egress_root(messages))
    assert node(SCRIPT, {"roots": asked})["roots"] == [{"ok": to_hex(root)} for root in roots]


def test_roots_and_proofs_of_a_lake_match(node: Callable[[str, Any], Any], tmp_path: Path) -> None:
    opened = open_lake(make_lake(tmp_path))
    asked, roots, proofs, expected = [], [], [], []
    for height in (0, 2, 6, 9, opened.last_height()):
        relay = relay_leaves(opened, height)[0]
        entries = [[to_hex(key), to_hex(value)] for key, value in relay_changes(None, relay.leaf).items() if value]
        asked.append({"entries": entries, "version": V1})
        roots.append(relay.root)
        keys = [watermark_key(3), unrouted_key(relay.number, 3), unrouted_key(2, 2)]
        proofs.append({"root": to_hex(relay.root), "nodes": [to_hex(part) for part in relay.prove(keys)]})
        expected.append({key: value for key, value in entries if key in map(to_hex, keys)})
    assert any(len(found) == 2 for found in expected), "a watermark, and queues that wait"
    shown = prove_message(opened, "left", "right", index=4)
    proofs.append({"root": to_hex(shown.queue_root), "nodes": [to_hex(part) for part in shown.queue_proof]})
    expected.append({to_hex(ordered_key(shown.place)): to_hex(shown.message)})
    answers = node(SCRIPT, {"roots": asked, "proofs": proofs})
    assert answers["roots"] == [{"ok": to_hex(root)} for root in roots]
    for answer, values in zip(answers["proofs"], expected, strict=True):
        found = dict(map(tuple, answer["ok"]))
        assert {key: found.get(key) for key in values} == values
