"""Mountain ranges and Keccak-256: facts, arithmetic, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit, RootMismatch
from causeway_proofs.hashing import Digests, keccak256
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.mmr.errors import CorruptedProof, GetRootOnEmpty, InvalidSize, LeafNotFound
from causeway_proofs.mmr.mountain_range import (
    MAX_LEAVES,
    MmrNode,
    leaf_count_to_size,
    leaf_hash,
    leaf_index_to_position,
    node_to_position,
    peak_nodes,
)
from causeway_proofs.mmr.proof import AncestryProof, LeafProof, verify_ancestry_proof, verify_leaf_proof

from tests.oracles.mmr import MountainRange, position_to_node, prove_ancestry, prove_leaves, size_to_leaf_count


def leaves(count: int) -> Digests:
    hashed = b"".join([leaf_hash(number.to_bytes(4, "little")) for number in range(count)])
    return np.frombuffer(hashed, dtype=np.uint8).reshape(count, 32)


def grown(count: int) -> MountainRange:
    mountains = MountainRange()
    mountains.extend(leaves(count))
    return mountains


def leaf(index: int) -> bytes:
    return leaf_hash(index.to_bytes(4, "little"))


# Keccak-256


def test_known_digests() -> None:
    assert keccak256(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert keccak256(b"abc").hex() == "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"


# Positions


def test_positions_of_nodes() -> None:
    nodes = [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (2, 0), (0, 4), (0, 5), (1, 2), (0, 6)]
    assert [position_to_node(position) for position in range(11)] == [MmrNode(*node) for node in nodes]
    assert [node_to_position(MmrNode(*node)) for node in nodes] == list(range(11))
    assert [leaf_index_to_position(index) for index in range(7)] == [0, 1, 3, 4, 7, 8, 10]
    assert peak_nodes(7) == [MmrNode(2, 0), MmrNode(1, 2), MmrNode(0, 6)]
    assert peak_nodes(0) == []


def test_the_largest_range() -> None:
    assert leaf_count_to_size(MAX_LEAVES) == 2**64 - 1
    assert size_to_leaf_count(2**64 - 1) == MAX_LEAVES
    assert position_to_node(2**64 - 2) == MmrNode(63, 0)
    assert node_to_position(MmrNode(0, MAX_LEAVES - 1)) == leaf_index_to_position(MAX_LEAVES - 1) == 2**64 - 2 - 63


@pytest.mark.parametrize("size", [-1, 2, 5, 6, 9, 12, 13, 14, 2**64 - 2, 2**64])
def test_invalid_sizes_are_refused(size: int) -> None:
    with pytest.raises(InvalidSize, match=f"size {size}"):
        size_to_leaf_count(size)


def test_counts_and_positions_out_of_range() -> None:
    for refused in (leaf_count_to_size, peak_nodes):
        for count in (-1, MAX_LEAVES + 1):
            with pytest.raises(InvalidSize):
                refused(count)
    for index in (-1, MAX_LEAVES):
        with pytest.raises(InvalidSize):
            leaf_index_to_position(index)
    for position in (-1, 2**64 - 1):
        with pytest.raises(InvalidSize):
            position_to_node(position)


# Ranges


def test_root_of_seven_leaves_as_published() -> None:
    mountains = MountainRange()
    for block in range(1, 8):
        header = keccak256((block - 1).to_bytes(8, "little") + bytes([block]) * 32)
        mountains.append(keccak256(b"\x01" + header + b"\x01" + keccak256(block.to_bytes(8, "little") + b"\x00")))
    assert mountains.root().hex() == "e45e25259f7930626431347fa4dd9aae7ac83b4966126d425ca70ab343709d2c"
    assert mountains.root(2).hex() == "672c04a9cd05a644789d769daa552d35d8de7c33129f8a7cbf49e595234c4854"
    assert mountains.size == 11 and len(mountains) == 7
    left = bytes.fromhex("1b14c1dc7d3e4def11acdf31be0584f4b85c3673f1ff72a3af467b69a3b0d9d0")
    assert prove_leaves(mountains, [2]).items[0] == left


def test_nodes_and_roots_beyond_the_range_are_refused() -> None:
    mountains = grown(5)
    with pytest.raises(GetRootOnEmpty):
        MountainRange().root()
    for wrong in (lambda: mountains.root(6), lambda: mountains.node(MmrNode(1, 2)), lambda: mountains.truncate(6)):
        with pytest.raises(LeafNotFound):
            wrong()
    with pytest.raises(LeafNotFound, match="no leaf index"):
        prove_leaves(mountains, [])
    for indices, count in (([5], None), ([-1], None), ([4], 4), ([0], 6), ([0], 0)):
        with pytest.raises(LeafNotFound):
            prove_leaves(mountains, indices, count)
    for prev, count in ((0, None), (6, None), (4, 3), (1, 6)):
        with pytest.raises(LeafNotFound):
            prove_ancestry(mountains, prev, count)


def test_leaf_must_be_a_digest() -> None:
    with pytest.raises(InvalidInput, match="31 bytes"):
        MountainRange().append(bytes(31))
    with pytest.raises(InvalidInput, match="shape"):
        MountainRange().extend(np.zeros((2, 31), dtype=np.uint8))
    with pytest.raises(InvalidInput, match="uint64"):
        MountainRange().extend(np.zeros((2, 32), dtype=np.uint64))


def test_retracted_leaves_can_be_replaced() -> None:
    mountains = grown(100)
    mountains.truncate(37)
    assert mountains.root() == grown(37).root()
    mountains.extend(leaves(80)[37:])
    assert mountains.root() == grown(80).root()
    mountains.truncate(0)
    mountains.append(leaf(0))
    assert mountains.root() == leaf(0)


def test_bulk_append_equals_single_appends() -> None:
    count = 2051
    mountains, one_by_one = grown(count), MountainRange()
    for index in range(count):
        assert one_by_one.append(leaf(index)) == leaf_index_to_position(index)
    assert mountains.root() == one_by_one.root()
    proof = prove_leaves(mountains, [count - 700])
    verify_leaf_proof(proof, [leaf(count - 700)], one_by_one.root(), count)


# Proofs


def test_proofs_of_many_leaves() -> None:
    """Levels with many computed nodes, as columns, down to few."""
    count = 1543
    mountains = grown(count)
    for indices in (range(count), range(0, count, 2), range(1, count - 9, 2)):
        proof = prove_leaves(mountains, indices)
        shown = [leaf(index) for index in proof.leaf_indices]
        steps = verify_leaf_proof(proof, shown, mountains.root(), count)
        inner = {step.detail: step.result for step in steps if step.operation == "inner"}
        for detail, result in inner.items():
            assert mountains.node_at(int(detail.split()[1].rstrip(","))) == result
        with pytest.raises(RootMismatch):
            verify_leaf_proof(proof, [*shown[:-1], leaf(count)], mountains.root(), count)
        with pytest.raises(CorruptedProof):
            verify_leaf_proof(replace(proof, items=(*proof.items, bytes(32))), shown, mountains.root(), count)


def test_steps_lead_from_the_leaf_to_the_root() -> None:
    mountains = grown(7)
    steps = verify_leaf_proof(prove_leaves(mountains, [2]), [leaf(2)], mountains.root())
    assert [step.operation for step in steps] == ["leaf", "inner", "inner", "bag", "root"]
    assert [step.detail for step in steps[1:3]] == ["position 5, height 1", "position 6, height 2"]
    assert steps[2].result == mountains.node_at(6)
    steps = verify_ancestry_proof(prove_ancestry(mountains, 3), mountains.root(), mountains.root(3))
    assert [step.operation for step in steps] == ["bag", "root", "inner", "inner", "bag", "root"]


def test_root_does_not_commit_to_the_leaf_count() -> None:
    """One list of items holds for 5, 6 and 7 leaves: only a trusted leaf count tells them apart."""
    mountains = grown(7)
    other = replace(prove_leaves(mountains, [0]), leaf_count=5)
    verify_leaf_proof(other, [leaf(0)], mountains.root())
    with pytest.raises(RootMismatch, match="5 leaves, the root is of one of 7"):
        verify_leaf_proof(other, [leaf(0)], mountains.root(), 7)


def test_malformed_proofs_are_refused() -> None:
    mountains = grown(11)
    root = mountains.root()
    proof = prove_leaves(mountains, [2, 5])
    two = [leaf(2), leaf(5)]
    verify_leaf_proof(proof, two, root, 11)
    refused: list[tuple[LeafProof, list[bytes]]] = [
        (replace(proof, leaf_indices=()), []),
        (replace(proof, leaf_indices=(5, 2)), two[::-1]),
        (replace(proof, leaf_indices=(2, 2)), [leaf(2), leaf(2)]),
        (replace(proof, leaf_indices=(2, 11)), two),
        (replace(proof, leaf_indices=(-1, 5)), two),
        (replace(proof, leaf_count=0), two),
        (replace(proof, leaf_count=MAX_LEAVES + 1), two),
        (replace(proof, items=proof.items[:-1]), two),
        (replace(proof, items=(*proof.items, root)), two),
        (replace(proof, items=()), two),
        (replace(proof, items=(proof.items[0][:31], *proof.items[1:])), two),
        (proof, two[:1]),
        (proof, [leaf(2), leaf(5)[:31]]),
    ]
    for wrong, given in refused:
        with pytest.raises(CorruptedProof):
            verify_leaf_proof(wrong, given, root)
    for given in (two[::-1], [leaf(3), leaf(5)]):
        with pytest.raises(RootMismatch):
            verify_leaf_proof(proof, given, root)
    swapped = replace(proof, items=(proof.items[1], proof.items[0], *proof.items[2:]))
    with pytest.raises(RootMismatch):
        verify_leaf_proof(swapped, two, root)


def test_range_of_2_to_63_leaves_is_handled_at_once() -> None:
    proof = LeafProof((MAX_LEAVES - 1,), MAX_LEAVES, (bytes(32),) * 63)
    with pytest.raises(RootMismatch):
        verify_leaf_proof(proof, [bytes(32)], bytes(32))
    with pytest.raises(CorruptedProof):
        verify_leaf_proof(replace(proof, leaf_count=MAX_LEAVES - 1), [bytes(32)], bytes(32))


def test_ancestry_of_every_earlier_range() -> None:
    mountains = grown(500)
    for prev in range(1, 501):
        proof = prove_ancestry(mountains, prev)
        verify_ancestry_proof(proof, mountains.root(), mountains.root(prev), 500)
        assert AncestryProof.decode(proof.encode()) == proof


def test_invalid_ancestry_proofs_are_refused() -> None:
    mountains = grown(13)
    proof = prove_ancestry(mountains, 6)
    root, prev_root = mountains.root(), mountains.root(6)
    verify_ancestry_proof(proof, root, prev_root)
    # Leaves 6 and 7; the mountain of 8 to 11 and leaf 12, bagged, at the position of the former.
    assert [position for position, _ in proof.items] == [12, 21]
    (first, digest), second = proof.items
    wrong_shapes = [
        replace(proof, prev_peaks=proof.prev_peaks[:-1]),
        replace(proof, prev_peaks=(*proof.prev_peaks, root)),
        replace(proof, prev_leaf_count=5),
        replace(proof, prev_leaf_count=0, prev_peaks=()),
        replace(proof, prev_leaf_count=14),
        replace(proof, leaf_count=MAX_LEAVES + 1),
        replace(proof, items=proof.items[:1]),
        replace(proof, items=(*proof.items, second)),
        replace(proof, items=(second, (first, digest))),
        replace(proof, items=((first + 1, digest), second)),
        replace(proof, items=((first, digest[:31]), second)),
    ]
    for wrong in wrong_shapes:
        with pytest.raises(MalformedProof):
            verify_ancestry_proof(wrong, root, prev_root)
    for arguments in ((root, mountains.root(5)), (mountains.root(12), prev_root), (root, prev_root, 12)):
        with pytest.raises(RootMismatch):
            verify_ancestry_proof(proof, *arguments)
    with pytest.raises(RootMismatch):
        verify_ancestry_proof(replace(proof, items=((first, root), second)), root, prev_root)


def test_range_is_a_prefix_of_itself() -> None:
    for count in (1, 2, 7):
        mountains = grown(count)
        proof = prove_ancestry(mountains, count)
        assert proof.items == ()
        verify_ancestry_proof(proof, mountains.root(), mountains.root(), count)


# SCALE


def test_encoding_of_a_leaf_proof() -> None:
    proof = LeafProof((1, 258), 300, (b"\x11" * 32,))
    indices = "08" + "0100000000000000" + "0201000000000000"
    assert proof.encode().hex() == indices + "2c01000000000000" + "04" + "11" * 32
    assert LeafProof.decode(proof.encode()) == proof
    many = LeafProof(tuple(range(20_000)), 20_000, (bytes(32),) * 64)
    assert LeafProof.decode(many.encode()) == many
    assert many.encode()[:4] == (20_000 << 2 | 2).to_bytes(4, "little")


def test_malformed_encodings_are_refused() -> None:
    whole = LeafProof((1,), 3, (b"\x11" * 32,)).encode()
    empty = bytes(8) + b"\x00"
    refused = {
        "ends at byte": whole[:9],
        "longer than what is left": whole[:-1],
        "1 bytes after its end": whole + b"\x00",
        "in more bytes than it takes": b"\x01\x00" + empty,
        "in more bytes than it takes, too": b"\x02\x00\x00\x00" + empty,
        "in more bytes than it takes, too long": b"\x03\x00\x00\x00\x00" + empty,
        "in more bytes than it takes, again": b"\x92\x01\x00\x00" + bytes(1000),
        "a list of 16383": b"\xfd\xff" + empty,
        "a list of 1073741824": b"\x03\x00\x00\x00\x40" + empty,
        "ends inside a compact integer": b"\x03\x00",
    }
    for message, data in refused.items():
        with pytest.raises(MalformedProof, match=message.partition(",")[0]):
            LeafProof.decode(data)
    for decode in (LeafProof.decode, AncestryProof.decode):
        with pytest.raises(OverLimit):
            decode(bytes(MAX_PROOF_BYTES + 1))
        with pytest.raises(MalformedProof):
            decode(b"")
