"""One verdict on storage proofs and mountain ranges: ours, Rust crates' and a browser trie's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.hashing import keccak256
from causeway_proofs.mmr.mountain_range import leaf_count_to_size, leaf_index_to_position
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.proof import verify_storage_proof
from causeway_proofs.substrate.trie import Trie, prove

from benchmarks.proofs.native import CARGO_FAST, Native, Toolchain, answers, record
from tests.oracles.mmr import MountainRange, prove_leaves
from tests.tiers import sized
from tests.verifiers.conftest import Build, Node, to_hex
from tests.verifiers.test_substrate import SCRIPT

TOOLCHAIN = Toolchain(
    Path(__file__).parent / "native" / "substrate-rust",
    "sp-trie",
    ("Cargo.toml", 'sp-trie = { version = "='),
    *CARGO_FAST,
)
Claims = Mapping[bytes, bytes | None]


class Stored(NamedTuple):
    """A claim about a state, and its proof nodes."""

    version: StateVersion
    root: bytes
    claims: Claims
    nodes: Sequence[bytes]


class Ranged(NamedTuple):
    """Claimed leaves of a range, with their proof."""

    root: bytes
    leaves: Sequence[bytes]
    proof: LeafProof


@pytest.fixture(scope="module")
def rust(native_build: Build) -> Native:
    """Return the crates in Rust."""
    (built,) = native_build([TOOLCHAIN])
    return built


def joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(record(part) for part in parts)


def verdicts(native: Native, claims: Iterable[Stored | Ranged], crate: bytes = b"mmr") -> list[str]:
    """Return the crates' verdict on each: true, false, or a crash; ``crate``: the one for ranges."""

    def records() -> Iterable[bytes]:
        for claim in claims:
            if isinstance(claim, Stored):
                entries = [
                    part
                    for key, value in claim.claims.items()
                    for part in (key, b"" if value is None else b"\x01" + value)
                ]
                yield from (f"V{int(claim.version)}".encode(), claim.root, joined(entries), joined(claim.nodes))
                continue
            size, places = leaf_count_to_size(claim.proof.leaf_count), claim.proof.leaf_indices
            about = [size.to_bytes(8, "little")]
            for index, leaf in zip(places, claim.leaves, strict=True):
                about += [leaf_index_to_position(index).to_bytes(8, "little"), leaf]
            yield from (crate, claim.root, joined(about), joined(claim.proof.items))

    return answers(native, records())


def own_verdict(claim: Stored | Ranged) -> str:
    try:
        if isinstance(claim, Stored):
            verify_storage_proof(claim.root, list(claim.nodes), claim.claims, claim.version)
        else:
            verify_leaf_proof(claim.proof, claim.leaves, claim.root)
    except ProofError:
        return "false"
    return "true"


# ---- storage -------------------------------------------------------------------------------------

KEYS = [b"\x10\x00", b"\x10\x01", b"\x10\x01\x23\x45\x67", b"\x10\x01\x23\x45\x88", b"\x70", b"\xee" * 20]
VALUES = [b"", b"a" * 31, b"b" * 32, b"c" * 33, b"d", b"e" * 300]
ABSENT = {
    "before the first key": b"\x00",
    "after the last key": b"\xff",
    "inside of a compressed node": b"\x10\x01\x23\x40",
    "at a node without a value": b"\x10",
    "below a leaf": b"\x70\x01",
    "the empty key": b"",
}


def stored_claim(version: StateVersion, claims: Claims, entries: Mapping[bytes, bytes] | None = None) -> Stored:
    content = dict(zip(KEYS, VALUES, strict=True)) if entries is None else entries
    trie = Trie.build(list(content), list(content.values()), version)
    return Stored(version, trie.root, claims, prove(trie, list(claims)))


def storage_cases() -> dict[str, tuple[Stored, str]]:
    """Return claims by name, each with the verdict of the deployed trie."""
    cases: dict[str, tuple[Stored, str]] = {}
    content = dict(zip(KEYS, VALUES, strict=True))
    for version in StateVersion:
        form = f"V{int(version)}"
        for key, value in content.items():
            right = stored_claim(version, {key: value})
            cases[f"{form}, a value of {len(value)} bytes"] = right, "true"
            cases[f"{form}, another value for {len(value)} bytes"] = right._replace(claims={key: value + b"."}), "false"
            cases[f"{form}, nothing for {len(value)} bytes"] = right._replace(claims={key: None}), "false"
            for at in range(len(right.nodes)):
                fewer = [*right.nodes[:at], *right.nodes[at + 1 :]]
                cases[f"{form}, {len(value)} bytes without node {at}"] = right._replace(nodes=fewer), "false"
        for name, key in ABSENT.items():
            cases[f"{form}, absent {name}"] = stored_claim(version, {key: None}), "true"
            cases[f"{form}, a value {name}"] = stored_claim(version, {key: None})._replace(claims={key: b"x"}), "false"
        cases[f"{form}, everything"] = stored_claim(version, content), "true"
        cases[f"{form}, one leaf"] = stored_claim(version, {b"k": b"v"}, {b"k": b"v"}), "true"
        cases[f"{form}, beside one leaf"] = stored_claim(version, {b"j": None}, {b"k": b"v"}), "true"
        cases[f"{form}, nothing in an empty state"] = stored_claim(version, {b"k": None}, {}), "true"
        whole = stored_claim(version, {KEYS[1]: VALUES[1]})
        cases[f"{form}, a node twice"] = whole._replace(nodes=[*whole.nodes, whole.nodes[0]]), "true"
        cases[f"{form}, under another root"] = whole._replace(root=bytes(32)), "false"
    return cases


def test_one_verdict_on_storage_proofs(rust: Native, node: Node) -> None:
    cases = storage_cases()
    expected = {name: verdict for name, (_, verdict) in cases.items()}
    claims = [claim for claim, _ in cases.values()]
    assert dict(zip(cases, map(own_verdict, claims), strict=True)) == expected
    assert dict(zip(cases, verdicts(rust, claims), strict=True)) == expected
    # The third one lists the entries of a proof, and does not distinguish absent from omitted ones.
    there = {name: claim for name, (claim, _) in cases.items() if None not in claim.claims.values()}
    asked = [{"root": to_hex(claim.root), "nodes": [to_hex(part) for part in claim.nodes]} for claim in there.values()]
    for (name, claim), answer in zip(there.items(), node(SCRIPT, {"proofs": asked})["proofs"], strict=True):
        found = dict(map(tuple, answer.get("ok", [])))
        shown = all(found.get(to_hex(key)) == to_hex(value or b"") for key, value in claim.claims.items())
        # It refuses a repeated node.
        assert (name, shown) == (name, expected[name] == "true" and not name.endswith("a node twice"))


def test_unneeded_node_is_accepted_by_the_others_only(rust: Native) -> None:
    right = stored_claim(StateVersion.V1, {KEYS[0]: VALUES[0]})
    more = right._replace(nodes=[*right.nodes, b"superfluous"])
    assert (own_verdict(more), verdicts(rust, [more])) == ("false", ["true"])


@pytest.mark.parametrize("seed", range(2))
def test_one_verdict_on_changed_proofs(rust: Native, seed: int) -> None:
    random = Random(seed)
    claims = []
    for _ in range(sized(400, 20_000)):
        entries = {
            random.randbytes(random.choice((1, 2, 2, 6))): random.randbytes(random.choice((0, 1, 31, 32, 33, 60)))
            for _ in range(random.choice((1, 3, 12)))
        }
        keys = [*entries, *(random.randbytes(2) for _ in range(3))]
        right = stored_claim(
            random.choice(list(StateVersion)), {key: entries.get(key) for key in random.sample(keys, 2)}, entries
        )
        nodes = [bytearray(part) for part in right.nodes]
        if random.random() < 0.7:
            part = random.choice(nodes)
            part[random.randrange(len(part))] ^= 1 << random.randrange(8)
        claims.append(right._replace(nodes=[bytes(part) for part in nodes]))
    own = [own_verdict(claim) for claim in claims]
    assert set(own) == {"true", "false"}
    # A node of another hash is one that no key needs, for which ours refuses the proof: see above.
    odd = [(one, other) for one, other in zip(own, verdicts(rust, claims), strict=True) if one != other]
    assert odd == []


# ---- mountain ranges -----------------------------------------------------------------------------


def test_one_verdict_on_leaves_of_mountain_ranges(rust: Native) -> None:
    random = Random(1)
    claims: list[Ranged] = []
    expected = []
    for count in (1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 100):
        mountains, leaves = MountainRange(), [keccak256(b"%d" % number) for number in range(count)]
        for leaf in leaves:
            mountains.append(leaf)
        some = {0, count - 1, *random.sample(range(count), min(count, 3))}
        for indices in ([0], [count - 1], sorted(some), range(count)):
            proof, shown = prove_leaves(mountains, indices), [leaves[index] for index in indices]
            claims.append(Ranged(mountains.root(), shown, proof))
            claims.append(Ranged(bytes(32), shown, proof))
            claims.append(Ranged(mountains.root(), [keccak256(b"."), *shown[1:]], proof))
            expected += ["true", "false", "false"]
            for at in range(len(proof.items)):
                other = (*proof.items[:at], bytes(32), *proof.items[at + 1 :])
                claims.append(Ranged(mountains.root(), shown, LeafProof(proof.leaf_indices, count, other)))
                expected.append("false")
    assert [own_verdict(claim) for claim in claims] == expected
    assert verdicts(rust, claims) == expected
    assert verdicts(rust, claims, b"ckb") == expected
