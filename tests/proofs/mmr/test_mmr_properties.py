"""Mountain ranges against their definition, node by node; altered proofs are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from causeway_proofs.errors import ProofError
from causeway_proofs.hashing import keccak256
from causeway_proofs.mmr.mountain_range import node_to_position
from causeway_proofs.mmr.proof import AncestryProof, LeafProof, verify_ancestry_proof, verify_leaf_proof
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.mmr import MountainRange, position_to_node, prove_ancestry, prove_leaves, size_to_leaf_count
from tests.tiers import sized

MOST = 70
EXAMPLES = settings(deadline=None, max_examples=sized(27, 300), derandomize=True)
LEAVES = [keccak256(bytes([number])) for number in range(MOST)]


class Slow:
    """The range as the deployed library keeps it: nodes in order of insertion, found by position."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.nodes: list[bytes] = []
        self.heights: list[int] = []
        self.leaf_positions: list[int] = []
        # Positions of the mountains' peaks.
        self.peaks: list[int] = []
        for leaf in leaves:
            self.leaf_positions.append(len(self.nodes))
            self._push(leaf, 0)
            while len(self.peaks) > 1 and self.heights[self.peaks[-1]] == self.heights[self.peaks[-2]]:
                right, left = self.peaks.pop(), self.peaks.pop()
                self._push(keccak256(self.nodes[left] + self.nodes[right]), self.heights[left] + 1)

    def _push(self, node: bytes, height: int) -> None:
        self.peaks.append(len(self.nodes))
        self.nodes.append(node)
        self.heights.append(height)

    def root(self) -> bytes:
        return bag([self.nodes[peak] for peak in self.peaks])

    def root_of_proof(self, known: dict[int, bytes], items: list[bytes]) -> bytes:
        """The deployed verifier: a queue of positions, level by level; siblings not in the queue are the next items."""
        tops: list[bytes] = []
        for place, peak in enumerate(self.peaks):
            before = self.peaks[place - 1] if place else -1
            queue = [(position, node) for position, node in sorted(known.items()) if before < position <= peak]
            if not queue:
                tops.append(items.pop(0))
                if not any(position > peak for position in known):
                    break
                continue
            while queue[0][0] != peak:
                position, node = queue.pop(0)
                height = self.heights[position]
                across = (2 << height) - 1
                if self.heights[position + 1] > height:
                    queue.append((position + 1, keccak256(items.pop(0) + node)))
                elif queue and queue[0][0] == position + across:
                    queue.append((position + across + 1, keccak256(node + queue.pop(0)[1])))
                else:
                    queue.append((position + across + 1, keccak256(node + items.pop(0))))
            tops.append(queue[0][1])
        assert not items
        return bag(tops)


def bag(peaks: list[bytes]) -> bytes:
    if len(peaks) == 1:
        return peaks[0]
    return keccak256(bag(peaks[1:]) + peaks[0])


def grown(leaves: list[bytes], cuts: list[int] | None = None) -> MountainRange:
    mountains = MountainRange()
    matrix = np.frombuffer(b"".join(leaves), dtype=np.uint8).reshape(-1, 32)
    ends = [0, *sorted(cuts or []), len(leaves)]
    for start, stop in pairwise(ends):
        if stop - start == 1:
            mountains.append(leaves[start])
        else:
            mountains.extend(matrix[start:stop])
    return mountains


def counts() -> st.SearchStrategy[int]:
    return st.integers(1, MOST)


@EXAMPLES
@given(counts(), st.data())
def test_every_node_is_independent_of_append_sizes(count: int, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, count), max_size=6))
    mountains, slow = grown(LEAVES[:count], cuts), Slow(LEAVES[:count])
    assert mountains.size == len(slow.nodes)
    assert [mountains.node_at(position) for position in range(mountains.size)] == slow.nodes
    assert mountains.root() == slow.root()
    earlier = data.draw(st.integers(1, count))
    assert mountains.root(earlier) == Slow(LEAVES[:earlier]).root()
    mountains.truncate(earlier)
    assert mountains.root() == Slow(LEAVES[:earlier]).root()


@EXAMPLES
@given(st.integers(0, 2**64 - 2))
def test_positions_and_nodes(position: int) -> None:
    assert node_to_position(position_to_node(position)) == position


@EXAMPLES
@given(st.integers(0, 2**63))
def test_sizes_and_counts(leaf_count: int) -> None:
    assert size_to_leaf_count(2 * leaf_count - leaf_count.bit_count()) == leaf_count


@st.composite
def leaf_proofs(draw: st.DrawFn) -> tuple[MountainRange, int, LeafProof, list[bytes]]:
    count = draw(counts())
    indices = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=8))
    mountains = grown(LEAVES[: count + draw(st.integers(0, 3))] if count + 3 <= MOST else LEAVES[:count])
    proof = prove_leaves(mountains, list(indices), count)
    return mountains, count, proof, [LEAVES[index] for index in proof.leaf_indices]


@EXAMPLES
@given(leaf_proofs())
def test_leaf_proofs_hold_here_and_by_the_definition(made: tuple[MountainRange, int, LeafProof, list[bytes]]) -> None:
    mountains, count, proof, leaves = made
    slow = Slow(LEAVES[:count])
    steps = verify_leaf_proof(proof, leaves, mountains.root(count), count)
    assert steps[-1].result == slow.root()
    known = {slow.leaf_positions[index]: LEAVES[index] for index in proof.leaf_indices}
    assert slow.root_of_proof(known, list(proof.items)) == slow.root()
    assert LeafProof.decode(proof.encode()) == proof


@EXAMPLES
@given(leaf_proofs(), st.data())
def test_altered_leaf_proofs_are_refused(
    made: tuple[MountainRange, int, LeafProof, list[bytes]], data: st.DataObject
) -> None:
    mountains, count, proof, leaves = made
    root = mountains.root(count)
    encoded = proof.encode()
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    longer = encoded + data.draw(st.binary(min_size=1, max_size=40))
    for touched in (bytes(flipped), cut, longer):
        with pytest.raises(ProofError):
            verify_leaf_proof(LeafProof.decode(touched), leaves, root, count)
    at = data.draw(st.integers(0, len(leaves) - 1))
    with pytest.raises(ProofError):
        verify_leaf_proof(proof, [*leaves[:at], keccak256(leaves[at]), *leaves[at + 1 :]], root, count)
    if len(proof.items) > 1:
        order = data.draw(st.permutations(proof.items))
        if tuple(order) != proof.items:
            with pytest.raises(ProofError):
                verify_leaf_proof(replace(proof, items=tuple(order)), leaves, root, count)


@EXAMPLES
@given(counts(), st.data())
def test_ancestry_proofs_hold_and_altered_ones_do_not(count: int, data: st.DataObject) -> None:
    mountains = grown(LEAVES)
    prev = data.draw(st.integers(1, count))
    proof = prove_ancestry(mountains, prev, count)
    root, prev_root = mountains.root(count), mountains.root(prev)
    steps = verify_ancestry_proof(proof, root, prev_root, count)
    assert steps[-1].result == root
    slow = Slow(LEAVES[:count])
    for position, digest in proof.items[:-1]:
        assert slow.nodes[position] == digest
    encoded = proof.encode()
    assert AncestryProof.decode(encoded) == proof
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    for touched in (bytes(flipped), cut, encoded + b"\x00"):
        with pytest.raises(ProofError):
            verify_ancestry_proof(AncestryProof.decode(touched), root, prev_root, count)
    other = data.draw(st.integers(1, MOST))
    if other != prev:
        with pytest.raises(ProofError):
            verify_ancestry_proof(proof, root, mountains.root(other), count)


@EXAMPLES
@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for kind in (LeafProof, AncestryProof):
        try:
            proof = kind.decode(data)
        except ProofError:
            continue
        assert proof.encode() == data
