"""Encode and decode trie nodes, layouts V0 and V1 (ICMP reference 2.3, XDM reference 2.4).

```
empty           00
leaf            01nnnnnn partial  value          V1, hashed value:  001nnnnn partial H(value)
branch          10nnnnnn partial  bitmap  children
branch + value  11nnnnnn partial  bitmap  value  children           0001nnnn partial bitmap H(value) children
```

``n`` counts the nibbles of the partial key. If it does not fit, the field is all ones and the rest follows in bytes: ff
while 255 or more remain, then the remainder. A value is ``Compact(length) bytes``, and so is each child: its encoding
if below 32 bytes, else H of it.

A partial key is packed with its odd nibble first: with an odd count, the first byte holds the first nibble alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.substrate.byte_columns import decode_compact, encode_compact
from causeway_proofs.substrate.errors import FailedToDecode, InvalidProof
from causeway_proofs.substrate.storage_keys import blake2_256

MAX_KEY_BYTES = 32_767
"""Longest key in bytes: a node header counts at most 65,535 nibbles."""


def to_nibbles(key: bytes) -> bytes:
    """Split ``key`` into nibbles, one a byte, high one first."""
    return key.hex().encode().translate(_DIGITS)


def from_nibbles(nibbles: bytes) -> bytes:
    """Join an even number of ``nibbles`` (one a byte) into bytes."""
    return bytes.fromhex(nibbles.translate(_LETTERS).decode())


def pack(nibbles: bytes) -> bytes:
    """Pack a partial key as in a node: odd nibble first, then pairs."""
    return from_nibbles(b"\x00" + nibbles if len(nibbles) % 2 else nibbles)


def unpack(packed: bytes, count: int) -> bytes | None:
    """Unpack ``count`` nibbles, or return None if the padding of an odd count is not zero."""
    nibbles = to_nibbles(packed)
    if count % 2 == 0:
        return nibbles
    return None if nibbles[0] else nibbles[1:]


def common_length(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix."""
    shorter = min(len(first), len(second))
    if first[:shorter] == second[:shorter]:
        return shorter
    low, high = 0, shorter
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


_DIGITS = bytes.maketrans(b"0123456789abcdef", bytes(range(16)))
_LETTERS = bytes.maketrans(bytes(range(16)), b"0123456789abcdef")


WIDTH = 16
"""Most children of a branch: one a nibble."""

HASHED_VALUE_BYTES = 33
"""Length from which values are nodes of their own in layout V1."""

EMPTY_NODE = b"\x00"
EMPTY_ROOT = blake2_256(EMPTY_NODE)
"""Root of a trie without entries."""

_NO_CHILDREN: tuple[None, ...] = (None,) * WIDTH
_MOST_NIBBLES = 0xFFFF


class StateVersion(IntEnum):
    """Storage of long values: inside their nodes (V0), or by hash from 33 bytes on (V1)."""

    V0 = 0
    V1 = 1


class NodeKind(IntEnum):
    """Kinds of nodes: the marker bits of their headers."""

    LEAF = 0b0100_0000
    BRANCH = 0b1000_0000
    BRANCH_WITH_VALUE = 0b1100_0000
    LEAF_HASHED = 0b0010_0000
    BRANCH_HASHED = 0b0001_0000

    @property
    def most(self) -> int:
        """Return the largest count in the header's first byte, which announces further bytes."""
        return _MOST_IN_HEADER[self]


_MOST_IN_HEADER = {
    NodeKind.LEAF: 63,
    NodeKind.BRANCH: 63,
    NodeKind.BRANCH_WITH_VALUE: 63,
    NodeKind.LEAF_HASHED: 31,
    NodeKind.BRANCH_HASHED: 15,
}


@dataclass(frozen=True, slots=True)
class TrieNode:
    """A decoded node.

    Attributes:
        partial: nibbles between the parent's nibble and this node, one a byte.
        value: the inline value, or None.
        value_digest: H of the value if stored by hash, or None.
        children: the 16 references, None for no child: a digest of 32 bytes, or a shorter encoding of the child.
    """

    partial: bytes
    value: bytes | None
    value_digest: bytes | None
    children: Sequence[bytes | None]

    @property
    def is_leaf(self) -> bool:
        """Return True if the node has no children."""
        return self.children is _NO_CHILDREN


def encode_header(kind: NodeKind, count: int) -> bytes:
    """Return the header of a node whose partial key has ``count`` nibbles."""
    most = kind.most
    if count < most:
        return bytes([kind | count])
    whole, rest = divmod(count - most, 0xFF)
    return bytes([kind | most]) + b"\xff" * whole + bytes([rest])


def encode_node(
    partial: bytes, value: bytes | None, children: Sequence[bytes | None] | None, version: StateVersion
) -> bytes:
    """Encode a node: nibbles one a byte, references as in ``TrieNode`` (None for a leaf)."""
    hashed = version >= StateVersion.V1 and value is not None and len(value) >= HASHED_VALUE_BYTES
    parts = [pack(partial)]
    if children is None:
        kind = NodeKind.LEAF_HASHED if hashed else NodeKind.LEAF
    else:
        plain = NodeKind.BRANCH if value is None else NodeKind.BRANCH_WITH_VALUE
        kind = NodeKind.BRANCH_HASHED if hashed else plain
        bitmap = sum(1 << nibble for nibble, child in enumerate(children) if child is not None)
        parts.append(bitmap.to_bytes(2, "little"))
    if value is not None:
        parts.append(blake2_256(value) if hashed else encode_compact(len(value)) + value)
    for child in children or ():
        if child is not None:
            parts.append(bytes([len(child) << 2]) + child)
    return encode_header(kind, len(partial)) + b"".join(parts)


def node_reference(encoding: bytes) -> bytes:
    """Return a parent's reference to a node: a short encoding itself, or its hash."""
    return encoding if len(encoding) < DIGEST_BYTES else blake2_256(encoding)


def plain_root(entries: Mapping[bytes, bytes], version: StateVersion) -> bytes:
    """Return the root of a few entries by recursion, as deep as the trie; 32 bytes."""
    if not entries:
        return EMPTY_ROOT
    return blake2_256(_plain_node(sorted((to_nibbles(key), value) for key, value in entries.items()), 0, version))


def _plain_node(entries: Sequence[tuple[bytes, bytes]], start: int, version: StateVersion) -> bytes:
    """Encode the node above ascending entries with equal keys up to nibble ``start``."""
    first, value = entries[0]
    stop = common_length(first, entries[-1][0])
    if len(entries) == 1:
        return encode_node(first[start:], value, None, version)
    children: list[bytes | None] = [None] * WIDTH
    ends_here = len(first) == stop
    for nibble, below in groupby(entries[ends_here:], lambda entry: entry[0][stop]):
        children[nibble] = node_reference(_plain_node(list(below), stop + 1, version))
    return encode_node(first[start:stop], value if ends_here else None, children, version)


def decode_node(data: bytes) -> TrieNode | None:
    """Decode a node; return None for the empty node.

    Raises:
        InvalidProof: the kind is unknown, the encoding is truncated, extended or not in its shortest form, or the
            branch is impossible in a trie.
    """
    if data == EMPTY_NODE:
        return None
    kind = _kind(data)
    count, offset = _count(data, kind)
    partial = unpack(_take(data, offset, (count + 1) // 2, "partial key"), count)
    if partial is None:
        raise InvalidProof("a trie node pads its partial key with a nibble other than zero")
    offset += (count + 1) // 2
    branch = kind not in (NodeKind.LEAF, NodeKind.LEAF_HASHED)
    bitmap = 0
    if branch:
        bitmap = int.from_bytes(_take(data, offset, 2, "bitmap"), "little")
        offset += 2
    value = value_digest = None
    if kind in (NodeKind.LEAF_HASHED, NodeKind.BRANCH_HASHED):
        value_digest = _take(data, offset, DIGEST_BYTES, "hash of the value")
        offset += DIGEST_BYTES
    elif kind != NodeKind.BRANCH:
        value, offset = _counted(data, offset, "value")
    if branch and bitmap.bit_count() < (2 if kind == NodeKind.BRANCH else 1):
        raise InvalidProof(f"a branch has {bitmap.bit_count()} children and no other reason to be a node")
    children: list[bytes | None] = [None] * WIDTH
    for nibble in range(WIDTH):
        if bitmap >> nibble & 1:
            child, offset = _counted(data, offset, "child")
            if not 0 < len(child) <= DIGEST_BYTES:
                raise InvalidProof(f"the reference to a child has {len(child)} bytes, 1 to 32 are allowed")
            children[nibble] = child
    if offset != len(data):
        raise InvalidProof(f"a trie node is followed by {len(data) - offset} bytes that are no part of it")
    return TrieNode(partial, value, value_digest, children if branch else _NO_CHILDREN)


def _kind(data: bytes) -> NodeKind:
    first = data[0] if data else 0
    if first >= NodeKind.LEAF:
        return NodeKind(first & 0b1100_0000)
    for kind in (NodeKind.LEAF_HASHED, NodeKind.BRANCH_HASHED):
        if first & kind:
            return kind
    raise InvalidProof(f"a trie node starts with {data[:1].hex() or 'nothing'}, which is the header of no kind of node")


def _count(data: bytes, kind: NodeKind) -> tuple[int, int]:
    """Return the nibble count of a header, and the offset behind the header."""
    count = data[0] & kind.most
    if count < kind.most:
        return count, 1
    offset = 1
    while offset < len(data) and count <= _MOST_NIBBLES:
        byte = data[offset]
        offset += 1
        count += byte
        if byte < 0xFF:
            return _bounded(count), offset
    raise InvalidProof("the header of a trie node ends inside its count of nibbles, or counts more than 65,535")


def _bounded(count: int) -> int:
    if count > _MOST_NIBBLES:
        raise InvalidProof(f"the header of a trie node counts {count} nibbles, at most 65,535 are allowed")
    return count


def _counted(data: bytes, offset: int, noun: str) -> tuple[bytes, int]:
    try:
        length, offset = decode_compact(data, offset, f"a trie node, at its {noun},")
    except FailedToDecode as error:
        raise InvalidProof(str(error)) from error
    return _take(data, offset, length, noun), offset + length


def _take(data: bytes, offset: int, length: int, noun: str) -> bytes:
    chunk = data[offset : offset + length]
    if len(chunk) < length:
        raise InvalidProof(f"a trie node ends inside its {noun}")
    return chunk
