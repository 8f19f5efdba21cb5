"""The state trie (ICMP reference 2.3, layout V1) and storage proofs that are verified by walking their nodes (2.4)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.scale import Reader, blob, little
from tests.spec.xdm.values import StorageProof

Nibbles = tuple[int, ...]
EMPTY_ROOT = blake2b(b"\0")
HASHED_FROM = 33
"""V1: a value of so many bytes is a node of its own."""
# Of a leaf and a branch with (no value, inline value, hashed value): the high bits of the first byte, and how many bits
# are left for the length of the partial key.
LEAF, LEAF_HASHED = (0x40, 6), (0x20, 5)
BRANCH, BRANCH_INLINE, BRANCH_HASHED = (0x80, 6), (0xC0, 6), (0x10, 4)


@lru_cache(maxsize=4096)
def nibbles(key: bytes) -> Nibbles:
    return tuple(n for byte in key for n in (byte >> 4, byte & 15))


def header(form: tuple[int, int], partial: Nibbles) -> bytes:
    prefix, bits = form
    most, n = (1 << bits) - 1, len(partial)
    if n < most:
        head = bytes([prefix | n])
    else:
        n -= most
        head = bytes([prefix | most]) + b"\xff" * (n // 255) + bytes([n % 255])
    padded = (0, *partial) if len(partial) % 2 else partial
    return head + bytes(padded[i] << 4 | padded[i + 1] for i in range(0, len(padded), 2))


class Trie:
    """The trie of a state: its root, and every node that is reached by its hash."""

    def __init__(self, entries: Mapping[bytes, bytes], hashed_from: int | None = HASHED_FROM) -> None:
        self.nodes: dict[bytes, bytes] = {}
        self.hashed_from = hashed_from
        pairs = sorted((nibbles(key), value) for key, value in entries.items())
        self.root = self._store(self._node(pairs, 0)) if pairs else EMPTY_ROOT

    def _store(self, data: bytes) -> bytes:
        self.nodes[blake2b(data)] = data
        return blake2b(data)

    def _value(self, value: bytes) -> tuple[bool, bytes]:
        if self.hashed_from is not None and len(value) >= self.hashed_from:
            return True, self._store(value)
        return False, blob(value)

    def _node(self, pairs: list[tuple[Nibbles, bytes]], depth: int) -> bytes:
        first, last = pairs[0][0], pairs[-1][0]
        if len(pairs) == 1:
            hashed, stored = self._value(pairs[0][1])
            return header(LEAF_HASHED if hashed else LEAF, first[depth:]) + stored
        split = depth
        while split < len(first) and first[split] == last[split]:
            split += 1
        form, stored = BRANCH, b""
        if len(first) == split:
            hashed, stored = self._value(pairs[0][1])
            form, pairs = BRANCH_HASHED if hashed else BRANCH_INLINE, pairs[1:]
        bitmap, children = 0, b""
        for k in range(16):
            below = [pair for pair in pairs if pair[0][split] == k]
            if below:
                bitmap |= 1 << k
                child = self._node(below, split + 1)
                children += blob(child if len(child) < 32 else self._store(child))
        return header(form, first[depth:split]) + little(bitmap, 2) + stored + children

    def prove(self, key: bytes) -> StorageProof:
        """The nodes on the way to a key, in byte order."""
        _, visited = walk(self.root, self.nodes, key)
        return tuple(sorted(self.nodes[h] for h in visited))


@dataclass(frozen=True)
class Node:
    partial: Nibbles
    value: bytes | None
    hashed: bool
    children: Mapping[int, bytes]


def decode_node(data: bytes) -> Node:
    r = Reader(data)
    first = r.integer(1)
    for form in (LEAF, BRANCH, BRANCH_INLINE, LEAF_HASHED, BRANCH_HASHED):
        prefix, bits = form
        if first >> bits == prefix >> bits:
            break
    else:
        if first == 0 and len(data) == 1:
            return Node((), None, False, {})
        raise XdmError("InvalidProof")
    n = first & (1 << bits) - 1
    if n == (1 << bits) - 1:
        more = 255
        while more == 255:
            more = r.integer(1)
            n += more
    partial = nibbles(r.take((n + 1) // 2))
    if n % 2 and partial[0]:
        raise XdmError("InvalidProof")
    leaf, hashed = form in (LEAF, LEAF_HASHED), form in (LEAF_HASHED, BRANCH_HASHED)
    bitmap = 0 if leaf else r.integer(2)
    value = None if form == BRANCH else r.take(32) if hashed else r.blob()
    children = {k: r.blob() for k in range(16) if bitmap >> k & 1}
    r.end()
    return Node(partial[n % 2 :], value, hashed, children)


def walk(root: bytes, nodes: Mapping[bytes, bytes], key: bytes) -> tuple[bytes | None, set[bytes]]:
    """The value of a key and the hashes of the nodes that the way there needs. A node that is missing or malformed is
    InvalidProof."""
    visited: set[bytes] = set()

    def fetch(h: bytes) -> bytes:
        if h not in nodes:
            raise XdmError("InvalidProof")
        visited.add(h)
        return nodes[h]

    data, rest = fetch(root), nibbles(key)
    while True:
        try:
            node = decode_node(data)
        except XdmError as error:
            raise XdmError("InvalidProof") from error
        if rest[: len(node.partial)] != node.partial:
            return None, visited
        rest = rest[len(node.partial) :]
        if not rest:
            found = fetch(node.value) if node.hashed and node.value is not None else node.value
            return found, visited
        child = node.children.get(rest[0])
        if child is None:
            return None, visited
        if len(child) > 32:
            raise XdmError("InvalidProof")
        data, rest = (child if len(child) < 32 else fetch(child)), rest[1:]


def read_storage(root: bytes, proof: StorageProof, key: bytes) -> bytes:
    """The value that a proof shows (2.4). A node that is given twice is not used the second time."""
    nodes = {blake2b(node): node for node in proof}
    value, visited = walk(root, nodes, key)
    if len(visited) != len(proof):
        raise XdmError("UnusedNodesInTheProof")
    if value is None:
        raise XdmError("MissingValue")
    return value
