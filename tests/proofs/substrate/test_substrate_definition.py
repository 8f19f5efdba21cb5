"""Tries against a recursive definition from the reference, without caching."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping

import hypothesis.strategies as st
import pytest
from causeway_proofs.substrate.node import StateVersion
from causeway_proofs.substrate.ordered_lists import ordered_root
from causeway_proofs.substrate.proof import verify_storage_proof
from causeway_proofs.substrate.trie import Trie, prove
from hypothesis import given, settings

from tests.oracles.ordered_trie import OrderedTrie
from tests.tiers import sized

Entries = list[tuple[list[int], bytes]]


def digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=32).digest()


def compact(number: int) -> bytes:
    if number < 1 << 6:
        return bytes([4 * number])
    if number < 1 << 14:
        return (4 * number + 1).to_bytes(2, "little")
    return (4 * number + 2).to_bytes(4, "little")


def header(mark: int, bits: int, partial: list[int]) -> bytes:
    most, count = 2**bits - 1, len(partial)
    if count < most:
        start = [mark + count]
    else:
        start, count = [mark + most], count - most
        while count >= 255:
            start.append(255)
            count -= 255
        start.append(count)
    padded = [0] * (len(partial) % 2) + partial
    pairs = zip(padded[::2], padded[1::2], strict=True)
    return bytes(start) + bytes(16 * high + low for high, low in pairs)


def node(entries: Entries, depth: int, version: int) -> bytes:
    """Return the encoding of the node over sorted entries whose keys are equal up to ``depth``."""
    first, last = entries[0][0], entries[-1][0]
    end = depth
    while end < min(len(first), len(last)) and first[end] == last[end]:
        end += 1
    partial = first[depth:end]
    value = entries[0][1] if len(first) == end else None
    below = entries if value is None else entries[1:]
    hashed = version == 1 and value is not None and len(value) >= 33
    stored = b"" if value is None else digest(value) if hashed else compact(len(value)) + value
    if not below:
        return header(0x20 if hashed else 0x40, 5 if hashed else 6, partial) + stored
    mark, bits = (0x80, 6) if value is None else (0x10, 4) if hashed else (0xC0, 6)
    bitmap, children = 0, b""
    for nibble in range(16):
        under = [entry for entry in below if entry[0][end] == nibble]
        if under:
            bitmap += 1 << nibble
            child = node(under, end + 1, version)
            reference = child if len(child) < 32 else digest(child)
            children += compact(len(reference)) + reference
    return header(mark, bits, partial) + bitmap.to_bytes(2, "little") + stored + children


def root(state: Mapping[bytes, bytes], version: int) -> bytes:
    if not state:
        return digest(b"\x00")
    nibbles = ([half for byte in key for half in divmod(byte, 16)] for key in state)
    return digest(node(sorted(zip(nibbles, state.values(), strict=True)), 0, version))


def proof(state: Mapping[bytes, bytes], keys: Iterable[bytes], version: int) -> list[bytes]:
    """Return the nodes that reads of ``keys`` need: encodings on the path that are no parts of others, and values by
    hash."""
    nodes = set() if state else {b"\x00"}
    ordered = sorted(([half for byte in key for half in divmod(byte, 16)], value) for key, value in state.items())
    for key in keys:
        nibbles, depth, entries = [half for byte in key for half in divmod(byte, 16)], 0, ordered
        while entries:
            encoding = node(entries, depth, version)
            if depth == 0 or len(encoding) >= 32:
                nodes.add(encoding)
            first, last = entries[0][0], entries[-1][0]
            while depth < min(len(first), len(last)) and first[depth] == last[depth]:
                depth += 1
            if first == nibbles and version == 1 and len(entries[0][1]) >= 33:
                nodes.add(entries[0][1])
            under = nibbles[: depth + 1] if len(nibbles) > depth else None
            entries = [entry for entry in entries if entry[0][: depth + 1] == under]
            depth += 1
    return sorted(nodes)


TEXT = st.text("abdgonrt", max_size=6).map(str.encode)
SHARED = st.tuples(st.sampled_from([14, 15, 16, 31, 32, 63, 64, 159, 160]), st.binary(max_size=1)).map(
    lambda made: b"\x22" * made[0] + made[1]
)
KEYS = TEXT | SHARED | st.binary(max_size=4)
VALUES = st.sampled_from([0, 1, 2, 20, 26, 28, 29, 30, 31, 32, 33, 34, 64, 70]).map(lambda length: b"\x5a" * length)
CHANGES = st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=40)


@settings(max_examples=sized(36, 400), deadline=None, derandomize=True)
@given(CHANGES, st.sampled_from(StateVersion), st.data())
def test_every_root_of_a_run_of_insertions_and_deletions(
    changes: list[tuple[bytes, bytes | None]], version: StateVersion, data: st.DataObject
) -> None:
    trie, state = Trie(version), dict[bytes, bytes]()
    for key, value in changes:
        if value is None:
            gone = data.draw(st.sampled_from([key, *sorted(state)]))
            assert trie.delete(gone) == (state.pop(gone, None) is not None)
        else:
            trie.insert(key, value)
            state[key] = value
        assert trie.root == root(state, version)
    assert Trie.build(state.keys(), state.values(), version).root == root(state, version)
    asked = {key: state.get(key) for key in [*[key for key, _ in changes[:5]], b"", b"absent"]}
    nodes = prove(trie, asked)
    assert nodes == proof(state, asked, version)
    verify_storage_proof(root(state, version), nodes, asked, version)


@pytest.mark.parametrize("version", StateVersion)
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 127, 128, 129, 257, 16_383, 16_384, 16_385])
def test_ordered_roots_at_the_bounds_of_compact_keys(count: int, version: StateVersion) -> None:
    """ICMP reference 6, hazard 22."""
    values = [index.to_bytes(4, "little") * (index % 12) for index in range(count)]
    expected = root({compact(index): value for index, value in enumerate(values)}, version)
    assert ordered_root(values, version) == expected
    queue = OrderedTrie(version)
    queue.append(values[: count // 3])
    for place in range(count // 3, count, max(1, count // 9)):
        queue.append(values[place : place + max(1, count // 9)])
    assert queue.root == expected


@pytest.mark.parametrize("version", StateVersion)
@pytest.mark.parametrize("length", [0, 1, 29, 30, 31, 32, 33, 63, 64, 16_384, 1 << 20])
def test_messages_of_every_length(length: int, version: StateVersion) -> None:
    """ICMP reference 6, hazard 23."""
    for values in ([bytes(length)], [b"a", bytes(length)], [bytes(length)] * 3):
        expected = root({compact(index): value for index, value in enumerate(values)}, version)
        assert ordered_root(values, version) == expected


def test_state_of_random_keys_in_text_and_in_bytes() -> None:
    """The same digits read as text and as hexadecimal are two states."""
    chance = random.Random(11)
    digits = sorted({chance.randbytes(chance.choice([1, 2, 16, 33])).hex() for _ in range(300)})
    roots = set()
    for keys in ([text.encode() for text in digits], [bytes.fromhex(text) for text in digits]):
        state = {key: b"\x07" * (place % 50) for place, key in enumerate(keys)}
        for version in StateVersion:
            roots.add(root(state, version))
            assert Trie.build(state.keys(), state.values(), version).root == root(state, version)
    assert len(roots) == 4
