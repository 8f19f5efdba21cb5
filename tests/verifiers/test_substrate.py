"""The deployed trie, built for the browser, against ours: roots and proofs."""

from __future__ import annotations

import random
from typing import Any

from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_key, ordered_root
from causeway_proofs.substrate.proof import read_storage_proof
from causeway_proofs.substrate.trie import Trie, prove

from tests.vectors import load_states
from tests.verifiers.conftest import Node, to_hex

SCRIPT = "substrate.mjs"
Entries = list[tuple[bytes, bytes]]


def random_entries(seed: int) -> Entries:
    """Keys with long and short common prefixes, values around the bounds of inlining and hashing."""
    chance = random.Random(seed)
    prefixes = [b"", chance.randbytes(1), chance.randbytes(32), chance.randbytes(40)]
    keys = {chance.choice(prefixes) + chance.randbytes(chance.choice([0, 1, 2, 3, 64])) for _ in range(60)}
    lengths = [0, 1, 3, 20, 31, 32, 33, 34, 63, 64, 200, 20_000]
    return [(key, chance.randbytes(chance.choice(lengths))) for key in sorted(keys)]


def build(entries: Entries, version: StateVersion) -> Trie:
    """Return the trie of the entries after others were removed: beside, above and below them."""
    state = dict(entries)
    others = {key[: len(key) // 2] + b"\x01" for key in state} | {key + b"\x11" for key in state} - state.keys()
    trie = Trie.build([*others, *state], [b"o" * 40] * (len(others) + len(state)), version)
    before = trie.snapshot()
    trie.update(state.keys(), state.values())
    assert trie.remove(sorted(others - state.keys())) == len(others - state.keys())
    assert len(before) == len(others | state.keys())
    return trie


def test_roots_match_ours(node: Node) -> None:
    cases: list[tuple[Entries, StateVersion, bytes]] = []
    for seed in range(12):
        entries = random_entries(seed)
        for version in StateVersion:
            cases.append((entries, version, build(entries, version).root))
    for state in load_states():
        cases += [(state.pairs, version, state.roots[version]) for version in StateVersion]
    messages = [random.Random(index).randbytes(index % 50) for index in range(300)]
    queue = [(ordered_key(index), message) for index, message in enumerate(messages)]
    cases += [(queue, version, ordered_root(messages, version)) for version in StateVersion]

    asked = [
        {"entries": [[to_hex(key), to_hex(value)] for key, value in entries], "version": int(version)}
        for entries, version, _ in cases
    ]
    answers = node(SCRIPT, {"roots": asked})["roots"]
    assert answers == [{"ok": to_hex(root)} for _, _, root in cases]


def test_other_trie_reads_our_proofs_and_refuses_altered_ones(node: Node) -> None:
    chance = random.Random(7)
    asked: list[dict[str, Any]] = []
    expected = []
    for seed in range(8):
        for version in StateVersion:
            entries = random_entries(seed)
            trie = build(entries, version)
            proven = chance.sample(entries, 3)
            parts = prove(trie, [key for key, _ in proven])
            asked.append({"root": to_hex(trie.root), "nodes": [to_hex(part) for part in parts]})
            expected.append(proven)
    good = node(SCRIPT, {"proofs": asked})["proofs"]
    for answer, proven in zip(good, expected, strict=True):
        found = dict(map(tuple, answer["ok"]))
        assert all(found[to_hex(key)] == to_hex(value) for key, value in proven)

    tampered = []
    for case in asked:
        for place, part in enumerate(case["nodes"]):
            changed = bytearray.fromhex(part[2:])
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            nodes = [*case["nodes"][:place], to_hex(bytes(changed)), *case["nodes"][place + 1 :]]
            tampered.append({"root": case["root"], "nodes": nodes})
    owners = [index for index, case in enumerate(asked) for _ in case["nodes"]]
    for owner, answer in zip(owners, node(SCRIPT, {"proofs": tampered})["proofs"], strict=True):
        found = dict(map(tuple, answer.get("ok", [])))
        assert any(found.get(to_hex(key)) != to_hex(value) for key, value in expected[owner])


def test_our_reader_reads_proofs_of_the_other_trie(node: Node) -> None:
    asked, expected = [], []
    for seed in range(8):
        # It builds a trie from the entries of a proof, in the older layout, and proves updates.
        entries = random_entries(seed)
        trie = build(entries, StateVersion.V0)
        (key, _), fresh = random.Random(seed).choice(entries), b"another value"
        nodes = prove(trie, [key for key, _ in entries])
        asked.append({"nodes": [to_hex(part) for part in nodes], "updates": [[to_hex(key), to_hex(fresh)]]})
        trie.insert(key, fresh)
        expected.append((trie.root, key, fresh))
    for answer, (root, key, fresh) in zip(node(SCRIPT, {"created": asked})["created"], expected, strict=True):
        their_root, their_nodes = answer["ok"]
        assert their_root == to_hex(root)
        (read,) = read_storage_proof(root, [bytes.fromhex(part[2:]) for part in their_nodes], [key])
        assert read.value == fresh
