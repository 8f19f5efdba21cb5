"""Many tries in one set of columns against dictionaries: batches, copies, proofs, memory."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate import trie_node_loops
from causeway_proofs.substrate import tries as module
from causeway_proofs.substrate import tries as trie_heap
from causeway_proofs.substrate.byte_columns import byte_column
from causeway_proofs.substrate.node import EMPTY_ROOT, StateVersion
from causeway_proofs.substrate.proof_columns import verify_storage_proofs
from causeway_proofs.substrate.trie import Trie, prove, prove_storage
from causeway_proofs.substrate.trie_arena import ENTRIES, HEAP_END, LIVE_BYTES, USED_BLOCKS, USED_NODES
from causeway_proofs.substrate.tries import Tries, ascending_order

from tests.proofs.substrate.test_substrate_definition import proof, root

REPACK = trie_node_loops.repack

State = dict[bytes, bytes]
LENGTHS = [0, 1, 2, 20, 26, 28, 29, 30, 31, 32, 33, 34, 64, 70]


def random_key(chance: random.Random) -> bytes:
    """Keys of few different nibbles, many of them prefixes of others, or with long common prefixes."""
    kind = chance.randrange(3)
    if kind == 0:
        return bytes(byte & 0x11 for byte in chance.randbytes(chance.randrange(5)))
    if kind == 1:
        beginning = chance.choice([bytes(32), b"\xff" * 40, b"\x22" * chance.choice([14, 15, 31, 32, 63, 159, 160])])
        return beginning + chance.randbytes(chance.randrange(2))
    return chance.randbytes(chance.randrange(4))


@dataclass
class Kept:
    """Tries and their expected content."""

    chance: random.Random
    tries: Tries = field(default_factory=Tries)
    states: dict[int, tuple[StateVersion, State]] = field(default_factory=dict)

    def open(self) -> None:
        for version in StateVersion:
            for number in self.tries.open(2, version).tolist():
                self.states[number] = version, {}

    def copy(self) -> None:
        numbers = self.chance.choices(sorted(self.states), k=2)
        for number, made in zip(numbers, self.tries.copy(np.array(numbers)).tolist(), strict=True):
            version, state = self.states[number]
            self.states[made] = version, dict(state)

    def close(self, numbers: list[int]) -> None:
        self.tries.close(np.array(numbers, dtype=np.int64))
        for number in numbers:
            del self.states[number]

    def change(self, count: int) -> None:
        chance, rows = self.chance, []
        for _ in range(count):
            number = chance.choice(sorted(self.states))
            state = self.states[number][1]
            key = chance.choice(sorted(state)) if state and chance.random() < 0.5 else random_key(chance)
            value = None if chance.random() < 0.45 else chance.randbytes(1) * chance.choice(LENGTHS)
            rows.append((number, key, value))
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        numbers, keys, values = zip(*rows, strict=True)
        self.tries.update(np.array(numbers), keys, values)

    def compare(self) -> None:
        numbers = np.array(sorted(self.states))
        for number, found in zip(numbers.tolist(), self.tries.roots(numbers), strict=True):
            version, state = self.states[number]
            assert bytes(found) == root(state, version)
            assert self.tries.count(number) == len(state)

    def read(self) -> None:
        for number, (_, state) in self.states.items():
            for prefix in (b"", random_key(self.chance)[:3]):
                items = list(zip(*(column.to_pylist() for column in self.tries.items(number, prefix)), strict=True))
                assert items == sorted(item for item in state.items() if item[0].startswith(prefix))
        asked = [(number, key) for number in self.states for key in (b"", b"absent", *sorted(self.states[number][1]))]
        self.chance.shuffle(asked)
        found = self.tries.get(np.array([number for number, _ in asked]), [key for _, key in asked])
        assert found.to_pylist() == [self.states[number][1].get(key) for number, key in asked]

    def prove(self) -> None:
        under = np.array(self.chance.choices(sorted(self.states), k=5))
        asked = []
        for _ in range(30):
            index = self.chance.randrange(len(under) - 1)
            state = self.states[int(under[index])][1]
            key = self.chance.choice(sorted(state)) if state and self.chance.random() < 0.8 else random_key(self.chance)
            asked.append((index, key))
        proofs = prove_storage(self.tries, under, [key for _, key in asked], np.array([index for index, _ in asked]))
        for index, number in enumerate(under.tolist()):
            version, state = self.states[number]
            shown = [key for at, key in asked if at == index]
            assert proofs.nodes_of(index) == (proof(state, shown, version) if shown else [])
            assert proofs.roots[index].as_py() == root(state, version)
        assert proofs.nodes.to_pylist() == sorted(set(proofs.nodes.to_pylist()))
        entries = [self.states[int(under[index])][1].get(key) for index, key in asked]
        verdicts = verify_storage_proofs(
            proofs, [key for _, key in asked], byte_column(entries, nulls=True), np.array([index for index, _ in asked])
        )
        assert not verdicts.codes.any()

    def is_as_small_as_when_built(self) -> None:
        """One trie, after the others are closed, takes as much memory as its entries alone."""
        last = self.chance.choice(sorted(self.states))
        self.close([number for number in self.states if number != last])
        version, state = self.states[last]
        fresh = Tries()
        fresh.update(int(fresh.open(1, version)[0]), state.keys(), state.values())
        assert self.tries.live_nodes == fresh.live_nodes
        assert self.tries.live_entries == fresh.live_entries == len(state)
        counters, expected = self.tries._arena.counters, fresh._arena.counters
        for counter in (USED_NODES, USED_BLOCKS, LIVE_BYTES):
            assert counters[counter] == expected[counter]


@pytest.mark.parametrize("seed", range(60))
def test_tries_and_their_copies_survive_any_batches(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:  # windows of even the smallest heaps
        monkeypatch.setattr(trie_heap, "SMALL_HEAP", 0)
        monkeypatch.setattr(trie_heap, "STRETCHES", 16 + seed)
    kept = Kept(random.Random(seed))
    kept.open()
    for _ in range(12):
        step = kept.chance.random()
        if step < 0.2 and len(kept.states) < 8:
            kept.copy()
        elif step < 0.3:
            kept.close(kept.chance.sample(sorted(kept.states), 1))
            kept.open()
        kept.change(kept.chance.choice([1, 2, 5, 40]))
        kept.compare()
    kept.read()
    kept.prove()
    kept.is_as_small_as_when_built()


def test_state_of_constant_size_takes_no_more_memory() -> None:
    """Messages come and go: their keys and values, nodes and blocks are freed with them."""
    tries = Tries()
    number = int(tries.open(1)[0])
    sizes = []
    for tick in range(60):
        keys = [nonce.to_bytes(8, "little") for nonce in range(100 * tick, 100 * tick + 100)]
        gone = [nonce.to_bytes(8, "little") for nonce in range(100 * tick - 500, 100 * tick - 400)] if tick >= 5 else []
        tries.update(number, [*keys, *gone], [*[b"v" * 50] * len(keys), *[None] * len(gone)])
        arena = tries._arena
        sizes.append([arena.heap.nbytes, arena.nodes.nbytes, arena.entries.nbytes, int(arena.counters[ENTRIES])])
        assert arena.counters[HEAP_END] <= arena.heap.nbytes
    assert tries.count(number) == 500
    assert sizes[-1] == sizes[10]


def test_sparse_heap_is_compacted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries come and go in order, except for one in fifty; those are moved aside unchanged."""
    packed = []
    monkeypatch.setattr(trie_heap, "SMALL_HEAP", 0)

    def repack(arena: Any, heap: Any) -> None:
        packed.append(len(heap))
        REPACK(arena, heap)

    monkeypatch.setattr(trie_node_loops, "repack", repack)
    tries, chance, held = Tries(), random.Random(8), dict[bytes, bytes]()
    number = int(tries.open(1)[0])
    for tick in range(120):
        came = {nonce.to_bytes(8, "little"): chance.randbytes(chance.randrange(120)) for nonce in _nonces(tick)}
        gone = {nonce.to_bytes(8, "little") for nonce in _nonces(tick - 5) if tick >= 5 and nonce % 50}
        held = {key: value for key, value in {**held, **came}.items() if key not in gone}
        tries.update(number, [*came, *gone], [*came.values(), *[None] * len(gone)])
        keys, values = tries.items(number)
        assert dict(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == held
    assert len(packed) < 20, "the heap was packed whole again and again"


def _nonces(tick: int) -> range:
    return range(100 * tick, 100 * tick + 100)


def test_copies_share_unchanged_nodes() -> None:
    tries = Tries()
    number = int(tries.open(1)[0])
    keys = [index.to_bytes(4, "big") for index in range(4_096)]
    tries.update(number, keys, [b"v" * 40] * len(keys))
    alone = tries.live_nodes
    present = int(tries.copy(np.array([number]))[0])
    assert tries.live_nodes == alone
    tries.update(present, keys[100:101], [b"other"])
    assert tries.live_entries == len(keys) + 1
    assert tries.live_nodes <= alone + 8
    assert tries.get(np.array([number, present]), [keys[100]] * 2).to_pylist() == [b"v" * 40, b"other"]
    tries.close(np.array([number]))
    assert tries.live_nodes == alone
    assert tries.live_entries == len(keys)


@pytest.mark.parametrize("removed", [b"\x11\x11", b"\x11\x11\x0a", b"\x11\x11\x4a", b"\x11\x11\x9a"])
def test_node_retains_no_key_of_a_closed_copy(removed: bytes) -> None:
    """A partial key is read from an entry below the node, never from one of another version alone."""
    tries = Tries()
    present, other = tries.open(2).tolist()
    state = {b"\x11\x11" + end: b"v" * 40 for end in (b"", b"\x0a", b"\x4a", b"\x9a")}
    tries.update(present, state.keys(), state.values())
    copy = tries.copy(np.array([present]))
    tries.update(present, [removed], [None])
    tries.close(copy)
    # The next entry is stored in place of the removed one, or moves all the others.
    tries.update(other, [b"\xee" * len(removed), b"\xff" * 5_000], [b"w" * 40, b""])
    tries.update(present, [b"\x11\x21"], [b"new"])
    del state[removed]
    assert bytes(tries.roots(np.array([present]))[0]) == root({**state, b"\x11\x21": b"new"}, StateVersion.V1)


def test_discarded_snapshot_is_closed() -> None:
    trie = Trie.build([b"a", b"b"], [b"1", b"2"])
    before = trie.snapshot()
    trie.insert(b"c", b"3")
    assert before.root != trie.root
    assert trie.tries.live_entries == 3
    trie.delete(b"a")
    assert [len(before), len(trie)] == [2, 2]
    del before
    assert trie.tries.get(trie.row, [b"a"]).to_pylist() == [None]
    trie.update([b"d"], [b"4"])
    assert trie.tries.live_entries == 3


def test_ineffective_changes_touch_no_node() -> None:
    trie = Trie.build([b"aa", b"ab", b"b"], [b"1" * 40, b"2" * 40, b"3" * 40])
    same = trie.snapshot()
    before = trie.tries.live_nodes
    trie.update([b"aa", b"b"], [b"1" * 40, b"3" * 40])
    assert trie.remove([b"ac", b"", b"bb"]) == 0
    assert trie.tries.live_nodes == before
    assert trie.root == same.root


def test_last_of_several_changes_of_a_key_counts() -> None:
    tries = Tries()
    number = int(tries.open(1)[0])
    tries.update(number, [b"a", b"b", b"a", b"c", b"c", b"a"], [b"1", b"2", None, b"3", None, b"4"])
    keys, values = tries.items(number)
    assert keys.to_pylist() == [b"a", b"b"]
    assert values.to_pylist() == [b"4", b"2"]


@pytest.mark.parametrize("count", [2, 300, 3_000])
def test_keys_are_sorted(count: int) -> None:
    """Also those that differ only after more words than are compared at once."""
    chance = random.Random(count)
    beginnings = [b"", b"\x00", b"\x01" * 40, b"\x01" * 40 + b"\x02" * 40, bytes(50)]
    keys = [chance.choice(beginnings) + chance.randbytes(chance.randrange(3)) for _ in range(count)]
    keys += [b"\x07" * chance.randrange(60) for _ in range(count)]
    groups = np.array([chance.choice([0, 3, 1 << 40]) for _ in keys])
    expected = sorted(range(len(keys)), key=lambda row: (groups[row], keys[row]))
    order = ascending_order(groups, byte_column(keys))
    assert order is not None
    assert order.tolist() == expected
    assert ascending_order(groups[order], byte_column(keys).take(pa.array(order))) is None


def test_longest_keys() -> None:
    """Keys of 32,767 bytes, each a prefix of others, or equal up to the last nibble."""
    chain = [bytes(length) for length in (0, 1, 255, 256, 16_384, 32_766, 32_767)]
    state = {key: b"v" * (len(key) % 70) for key in [*chain, bytes(32_766) + b"\x01", bytes(32_766) + b"\x10"]}
    for version in StateVersion:
        trie = Trie.build(state.keys(), state.values(), version)
        assert trie.root == root(state, version)
        assert prove(trie, [chain[-1]]) == proof(state, [chain[-1]], version)
        assert trie.remove(chain[1:]) == len(chain) - 1
        assert trie.root == root({key: value for key, value in state.items() if key not in chain[1:]}, version)


@pytest.mark.parametrize("broken", ["with_nodes", "digest_slices"])
def test_interrupted_change_leaves_consistent_roots(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may run out when more is needed during changes, or when their nodes are hashed."""
    state = {sha256(bytes([n])).digest(): bytes(n % 60) for n in range(200)}
    tries = Tries()
    number = tries.open(1)
    tries.update(0, state.keys(), state.values())
    copies = tries.copy(np.repeat(number, 40))
    intact, calls = getattr(module, broken), 0

    def break_off(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        # The first call is before any change.
        if calls == 2:
            raise MemoryError
        return intact(*given)

    monkeypatch.setattr(module, broken, break_off)
    gone = list(state)[::2] * len(copies)
    with pytest.raises(MemoryError):
        tries.update(np.repeat(copies, 100), gone, [None] * len(gone))
    assert {bytes(found) for found in tries.roots(number)} == {root(state, StateVersion.V1)}
    for copy in copies[[0, 20, 39]].tolist():
        keys, values = tries.items(copy)
        entries = dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
        assert bytes(tries.roots(np.array([copy]))[0]) == root(entries, StateVersion.V1)
    tries.update(np.repeat(copies, 100), gone, [None] * len(gone))
    rest = {key: value for key, value in state.items() if key not in gone}
    assert {bytes(found) for found in tries.roots(copies)} == {root(rest, StateVersion.V1)}
    tries.close(np.concatenate([number, copies]))
    assert tries.live_nodes == tries.live_entries == tries.live_bytes == 0


def test_live_bytes_count_present_entries_and_shared_ones_once() -> None:
    tries = Tries()
    trie = tries.open(1)
    tries.update(int(trie[0]), [bytes([n]) * 32 for n in range(100)], [bytes(10_000)] * 100)
    alone = tries.live_bytes
    assert 1_000_000 < alone < 1_050_000
    copy = tries.copy(trie)
    assert tries.live_bytes == alone
    tries.update(int(copy[0]), [bytes(32)], [bytes(50_000)])
    assert 50_000 < tries.live_bytes - alone < 52_000
    tries.close(copy)
    assert tries.live_bytes == alone


def test_invalid_arguments_are_refused() -> None:
    tries = Tries()
    numbers = tries.open(2)
    assert [bytes(found) for found in tries.roots(numbers)] == [EMPTY_ROOT] * 2
    for wrong in (-1, 2):
        with pytest.raises(InvalidInput, match="from 0 to 1"):
            tries.update(wrong, [b"a"], [b"1"])
        with pytest.raises(InvalidInput, match="from 0 to 1"):
            tries.roots(np.array([wrong]))
    with pytest.raises(InvalidInput, match="the same number"):
        tries.update(numbers, [b"a"], [b"1"])
    with pytest.raises(InvalidInput, match="the same number"):
        tries.update(0, [b"a"], [b"1", b"2"])
    with pytest.raises(InvalidInput, match="null"):
        tries.update(0, [None], [b"1"])
    with pytest.raises(InvalidInput, match="32767"):
        tries.get(0, [bytes(32_768)])
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        prove_storage(tries, numbers, [b"a"], np.array([2]))
    with pytest.raises(InvalidInput, match="2 numbers of proofs"):
        prove_storage(tries, numbers, [b"a"])
    tries.close(numbers[:1])
    with pytest.raises(InvalidInput, match="was closed"):
        tries.update(0, [b"a"], [b"1"])
