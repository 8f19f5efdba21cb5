"""The stores of ICS-23 in the slow and obvious way: recursive, one node an object, nothing kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def uvarint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + uvarint(value // 128)


def varint(value: int) -> bytes:
    return uvarint(2 * value)


def simple_root(entries: dict[bytes, bytes]) -> bytes:
    def root(leaves: list[bytes]) -> bytes:
        if len(leaves) == 1:
            return leaves[0]
        left = 1
        while 2 * left < len(leaves):
            left *= 2
        return sha256(b"\x01" + root(leaves[:left]) + root(leaves[left:]))

    leaves = [sha256(b"\x00" + uvarint(len(k)) + k + uvarint(32) + sha256(v)) for k, v in sorted(entries.items())]
    return root(leaves) if leaves else sha256(b"")


def smt_root(entries: dict[bytes, bytes]) -> bytes:
    def root(hashed: dict[bytes, bytes], depth: int) -> bytes:
        if not hashed:
            return bytes(32)
        if len(hashed) == 1:
            [(way, value)] = hashed.items()
            return sha256(b"\x00" + way + sha256(value))
        sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        for way, value in hashed.items():
            sides[int.from_bytes(way, "big") >> (255 - depth) & 1][way] = value
        return sha256(b"\x01" + root(sides[0], depth + 1) + root(sides[1], depth + 1))

    return root({sha256(key): value for key, value in entries.items()}, 0)


@dataclass(frozen=True)
class Node:
    """A node of an IAVL tree: ``version`` None until the commit."""

    key: bytes
    height: int
    size: int
    value: bytes = b""
    left: Node | None = None
    right: Node | None = None
    version: int | None = None

    def hash(self) -> bytes:
        assert self.version is not None
        head = varint(self.height) + varint(self.size) + varint(self.version)
        if self.left is None or self.right is None:
            return sha256(head + uvarint(len(self.key)) + self.key + b"\x20" + sha256(self.value))
        return sha256(head + b"\x20" + self.left.hash() + b"\x20" + self.right.hash())


def inner(key: bytes, left: Node, right: Node) -> Node:
    return Node(key, 1 + max(left.height, right.height), left.size + right.size, left=left, right=right)


def children(node: Node) -> tuple[Node, Node]:
    assert node.left is not None and node.right is not None
    return node.left, node.right


def rotate_right(node: Node) -> Node:
    left, right = children(node)
    first, second = children(left)
    return inner(left.key, first, inner(node.key, second, right))


def rotate_left(node: Node) -> Node:
    left, right = children(node)
    first, second = children(right)
    return inner(right.key, inner(node.key, left, first), second)


def balance_of(node: Node) -> int:
    left, right = children(node)
    return left.height - right.height


def balanced(node: Node) -> Node:
    left, right = children(node)
    if balance_of(node) > 1:
        if balance_of(left) < 0:
            node = inner(node.key, rotate_left(left), right)
        return rotate_right(node)
    if balance_of(node) < -1:
        if balance_of(right) > 0:
            node = inner(node.key, left, rotate_right(right))
        return rotate_left(node)
    return node


def set_key(node: Node | None, key: bytes, value: bytes) -> Node:
    leaf = Node(key, 0, 1, value)
    if node is None:
        return leaf
    if node.height == 0:
        if key == node.key:
            return leaf
        return inner(node.key, leaf, node) if key < node.key else inner(key, node, leaf)
    left, right = children(node)
    if key < node.key:
        return balanced(inner(node.key, set_key(left, key, value), right))
    return balanced(inner(node.key, left, set_key(right, key, value)))


def delete_key(node: Node, key: bytes) -> tuple[Node | None, bytes | None]:
    """Return the tree without ``key`` and, where its left-most leaf has gone, the key of the one that now is."""
    if node.height == 0:
        assert node.key == key
        return None, None
    left, right = children(node)
    if key < node.key:
        rest, first = delete_key(left, key)
        return (right, node.key) if rest is None else (balanced(inner(node.key, rest, right)), first)
    rest, first = delete_key(right, key)
    return (left, None) if rest is None else (balanced(inner(first or node.key, left, rest)), None)


def saved(node: Node, version: int) -> Node:
    """Return the tree with every node that has no version in ``version``."""
    if node.version is not None:
        return node
    if node.height == 0:
        return replace(node, version=version)
    left, right = children(node)
    return replace(node, left=saved(left, version), right=saved(right, version), version=version)


def iavl_commit(
    root: Node | None, upserts: dict[bytes, bytes], deletions: set[bytes], version: int
) -> tuple[Node | None, bytes]:
    """Return the next version's tree and its root: changes in ascending order of keys."""
    for key in sorted(upserts.keys() | deletions):
        if key in deletions:
            assert root is not None
            root, _ = delete_key(root, key)
        else:
            root = set_key(root, key, upserts[key])
    if root is None:
        return None, sha256(b"")
    root = saved(root, version)
    return root, root.hash()
