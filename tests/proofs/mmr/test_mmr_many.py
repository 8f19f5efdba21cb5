"""Leaf proofs in columns against single proofs, and peaks-only ranges against full ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput, MalformedProof, ProofError
from causeway_proofs.hashing import Digests, HashFunction, digest_rows, keccak256
from causeway_proofs.mmr import columns
from causeway_proofs.mmr.columns import LeafProofs, LeafVerdict, verify_leaf_proofs
from causeway_proofs.mmr.errors import GetRootOnEmpty, InvalidSize, LeafNotFound
from causeway_proofs.mmr.peaks import RangeState
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof
from hypothesis import given, settings

from tests.oracles.mmr import MountainRange, prove_each_leaf, prove_leaves
from tests.oracles.mmr import range_state as state_of
from tests.tiers import sized

FEW = settings(max_examples=sized(36, 400), deadline=None, derandomize=True)
LEAVES = np.frombuffer(b"".join(keccak256(bytes([n % 256, n // 256])) for n in range(600)), dtype=np.uint8)
LEAVES = LEAVES.reshape(-1, 32)


def grown(count: int) -> MountainRange:
    mountains = MountainRange()
    mountains.extend(LEAVES[:count])
    return mountains


@dataclass(frozen=True)
class Case:
    """A proof of one leaf and its trusted root and count."""

    proof: LeafProof
    leaf: bytes
    root: bytes
    trusted: int


def single_verdict(case: Case, trusted: int | None) -> tuple[type[ProofError], str] | None:
    try:
        verify_leaf_proof(case.proof, [case.leaf], case.root, trusted)
    except ProofError as error:
        return type(error), str(error)
    return None


def digests(values: Sequence[bytes]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, 32)


def require_same(cases: Sequence[Case]) -> list[int]:
    """Verify all cases in columns and each alone, with and without trusted counts; count the verdicts."""
    proofs = LeafProofs.of([case.proof for case in cases])
    assert [proofs.proof(row) for row in range(len(cases))] == [case.proof for case in cases]
    leaves, roots = digests([case.leaf for case in cases]), digests([case.root for case in cases])
    seen = [0] * len(LeafVerdict)
    for counts in (None, np.array([case.trusted for case in cases], dtype=np.uint64)):
        found = verify_leaf_proofs(proofs, leaves, roots, counts)
        for row, case in enumerate(cases):
            expected = single_verdict(case, None if counts is None else case.trusted)
            error, verdict = found.error(row), LeafVerdict(found.codes[row])
            assert (None if error is None else (type(error), str(error))) == expected, case
            assert verdict.error is (None if expected is None else expected[0]), case
            seen[verdict] += 1
    return seen


def corrupted_cases(chance: Random, count: int) -> list[Case]:
    """Return proofs, most with one change, some with two, a few unchanged."""
    sizes = [1, 2, 3, 4, 7, 64, 100, 127, 129, 600]
    ranges = [grown(size) for size in sizes]
    cases: list[Case] = []
    for number in range(count):
        mountains = chance.choice(ranges)
        length = chance.choice((mountains.leaf_count, 1 + chance.randrange(mountains.leaf_count)))
        index = chance.randrange(length)
        made = prove_leaves(mountains, [index], length)
        case = Case(made, LEAVES[index].tobytes(), mountains.root(length), length)
        for _ in range(0 if number % 10 == 0 else chance.choice((1, 1, 2))):
            case = change_case(chance, case, cases or [case])
        cases.append(case)
    return cases


def change_case(chance: Random, case: Case, others: Sequence[Case]) -> Case:
    proof, kind = case.proof, chance.randrange(10)
    items, other = list(proof.items), chance.choice(others)
    place = chance.randrange(len(items) + 1)
    if kind == 0 and place < len(items):
        items[place] = bytes([items[place][0] ^ 1]) + items[place][1:]
    elif kind == 1:
        del items[place:]
    elif kind == 2:
        items.insert(place, chance.choice([*items, bytes(32)]))
    elif kind == 3:
        chance.shuffle(items)
    elif kind == 4:
        items = list(other.proof.items)
    elif kind == 5:
        index = chance.choice((proof.leaf_indices[0] ^ (1 << chance.randrange(64)), proof.leaf_count, (1 << 64) - 1))
        proof = replace(proof, leaf_indices=(index,))
    elif kind == 6:
        edges = (0, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, (1 << 63) - 1)
        length = chance.choice((proof.leaf_count ^ 1, proof.leaf_count ^ (1 << chance.randrange(64)), *edges))
        proof = replace(proof, leaf_count=length)
    elif kind == 7:
        return replace(case, leaf=chance.choice((other.leaf, bytes(32), *items)))
    elif kind == 8:
        return replace(case, root=chance.choice((other.root, case.leaf, bytes(32))))
    else:
        return replace(case, trusted=chance.choice((other.trusted, 0, (1 << 64) - 1)))
    return replace(case, proof=replace(proof, items=tuple(items)))


@pytest.mark.parametrize("seed", range(3))
def test_corrupted_proofs_have_the_verdicts_of_single_ones(seed: int) -> None:
    assert min(require_same(corrupted_cases(Random(seed), 400))) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sized(2, 20)))
def test_many_corrupted_proofs_have_the_verdicts_of_single_ones(seed: int) -> None:
    require_same(corrupted_cases(Random(100 + seed), 2_000))


@pytest.mark.parametrize("size", [1, 2, 3, 64, 100, 127, 600])
def test_proofs_of_many_leaves_equal_single_proofs(size: int) -> None:
    mountains = grown(600)
    chance = Random(size)
    indices = np.array([0, size - 1, *(chance.randrange(size) for _ in range(20))])
    proofs = prove_each_leaf(mountains, indices, size)
    assert [proofs.proof(row) for row in range(len(proofs))] == [
        prove_leaves(mountains, [index], size) for index in indices.tolist()
    ]
    found = verify_leaf_proofs(proofs, LEAVES[indices], mountains.root(size), size)
    assert not found.codes.any()
    # Hashes shared by a wrong proof and right ones are computed once, without effect on either verdict.
    items = proofs.items.copy()
    if len(items):
        items[-1] ^= 1
        row = int(np.flatnonzero(proofs.offsets < len(items))[-1])
        wrong = LeafProofs(proofs.leaf_indices, proofs.leaf_counts, items, proofs.offsets)
        assert verify_leaf_proofs(wrong, LEAVES[indices], mountains.root(size)).refused.tolist() == [row]


def test_shared_nodes_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []

    def counting(function: HashFunction, rows: Digests) -> Digests:
        hashed.append(len(rows))
        return digest_rows(function, rows)

    monkeypatch.setattr(columns, "digest_rows", counting)
    mountains = grown(600)
    every = np.arange(600)
    proofs = prove_each_leaf(mountains, every)
    assert not verify_leaf_proofs(proofs, LEAVES, mountains.root(), 600).codes.any()
    # The nodes above the leaves, the two between the three bagged peaks once for each of their positions.
    assert sum(hashed) <= mountains.size - 600 + 2 * len(mountains.peaks()) ** 2
    assert len(proofs.items) > 5_000


@FEW
@given(st.lists(st.integers(0, 90), max_size=5), st.booleans())
def test_peaks_only_range_grows_like_a_full_one(steps: list[int], leaf_by_leaf: bool) -> None:
    mountains, state, done = MountainRange(), RangeState(), 0
    for step in steps:
        fresh = LEAVES[done : done + step]
        mountains.extend(fresh)
        if leaf_by_leaf:
            for leaf in fresh:
                state = state.append(leaf.tobytes())
        else:
            state = state.extend(fresh)
        done += step
        assert state == state_of(mountains) == RangeState.decode(state.encode())
        assert state.size == mountains.size
        if done:
            assert state.root == mountains.root()
        earlier = state_of(mountains, done // 2)
        assert earlier.extend(LEAVES[done // 2 : done]) == state


@FEW
@given(st.binary(max_size=120) | st.integers(0, 40).map(lambda count: RangeState().extend(LEAVES[:count]).encode()))
def test_state_has_one_encoding(data: bytes) -> None:
    for changed in (data, data[:-1], data + b"\x00", data + bytes(32)):
        try:
            state = RangeState.decode(changed)
        except MalformedProof:
            continue
        assert state.encode() == changed


def test_invalid_states_are_refused() -> None:
    full = RangeState(1 << 63, (bytes(32),))
    assert RangeState.decode(full.encode()) == full
    for grow in (lambda: full.append(bytes(32)), lambda: full.extend(LEAVES[:2])):
        with pytest.raises(InvalidSize):
            grow()
    with pytest.raises(InvalidSize):
        RangeState.decode(((1 << 63) + 1).to_bytes(8, "little") + bytes(64))
    with pytest.raises(GetRootOnEmpty):
        _ = RangeState().root
    # With an odd count the leaf is hashed with a peak: its own length is no longer visible.
    odd = RangeState().append(bytes(32))
    for wrong in (
        lambda: RangeState(2),
        lambda: RangeState(1, (b"",)),
        lambda: RangeState().append(b"short"),
        lambda: odd.append(b"short"),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    with pytest.raises(InvalidInput):
        RangeState().extend(np.zeros((1, 31), dtype=np.uint8))
    with pytest.raises(LeafNotFound):
        state_of(grown(3), 4)
    assert RangeState().extend(LEAVES[:0]) == RangeState()


@pytest.mark.parametrize("kind", [pa.binary(32), pa.binary(), pa.large_binary()])
def test_items_may_be_a_column_of_lists(kind: pa.DataType) -> None:
    mountains = grown(100)
    proofs = prove_each_leaf(mountains, np.arange(100))
    lists = [proofs.proof(row).items for row in range(100)]
    for make in (pa.list_, pa.large_list):
        column = pa.array(lists, make(kind))
        again = LeafProofs.from_lists(proofs.leaf_indices[40:90], proofs.leaf_counts[40:90], column[40:90])
        assert [again.proof(row) for row in range(50)] == [proofs.proof(row) for row in range(40, 90)]
    none = pa.array([[]], pa.list_(kind))
    assert len(LeafProofs.from_lists(proofs.leaf_indices[:1], proofs.leaf_counts[:1], none).items) == 0
    for wrong in (
        pa.array([[b"x" * 31]], pa.list_(pa.binary())),
        pa.array([[b"x" * 31]], pa.list_(pa.binary(31))),
        pa.array([[None]], pa.list_(kind)),
        pa.array([None], pa.list_(kind)),
        pa.array([b"x" * 32], kind),
    ):
        with pytest.raises(InvalidInput):
            LeafProofs.from_lists(proofs.leaf_indices[:1], proofs.leaf_counts[:1], wrong)


def test_mismatched_columns_are_named() -> None:
    mountains = grown(5)
    proofs = prove_each_leaf(mountains, np.arange(2))
    for wrong in (np.array([5]), np.array([-1, 2])):
        with pytest.raises(LeafNotFound, match="not all in a range of 5"):
            prove_each_leaf(mountains, wrong)
    assert len(verify_leaf_proofs(prove_each_leaf(mountains, np.arange(0)), LEAVES[:0], bytes(32)).codes) == 0
    with pytest.raises(InvalidInput, match="3 leaves are given for 2 proofs"):
        verify_leaf_proofs(proofs, LEAVES[:3], bytes(32))
    with pytest.raises(InvalidInput, match="shape"):
        verify_leaf_proofs(proofs, LEAVES[:2], bytes(31))
    with pytest.raises(InvalidInput, match="one u64"):
        LeafProofs.of([prove_leaves(mountains, [1, 2])])
    with pytest.raises(InvalidInput, match="one u64"):
        LeafProofs.of([LeafProof((1,), 1 << 64, ())])
    with pytest.raises(InvalidInput, match="32 bytes"):
        LeafProofs.of([LeafProof((1,), 2, (b"short",))])
    for offsets in (np.array([0, 2, 1]), np.array([0, 1, 100]), np.array([-1, 1, 2]), np.array([0, 1])):
        with pytest.raises(InvalidInput, match="offset"):
            LeafProofs(proofs.leaf_indices, proofs.leaf_counts, proofs.items, offsets)
