"""Hash trees of the Internet Computer: nodes, digests and CBOR form (IC reference 2.9).

A hash tree commits to a *labeled tree*: nested maps from labels to subtrees or leaves. The children of a map, sorted by
label, hang on a tree of forks whose left part holds the largest power of two below their number. Any part can be
*pruned*, replaced by its digest, without changing the root.

In CBOR, as in certificates (IC reference 7, hash_tree.json): ``[0]`` is Empty, ``[1, left, right]`` Fork, ``[2, label,
subtree]`` Labeled, ``[3, value]`` Leaf and ``[4, digest]`` Pruned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from causeway_proofs.errors import MalformedProof, OverLimit, hex_text
from causeway_proofs.hashing import sha256
from causeway_proofs.ic.cbor_reader import ARRAY, CborReader, cbor_bytes
from causeway_proofs.ic.errors import MalformedHashTree, NotWellFormed, TooDeepRecursion
from causeway_proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES, MAX_PROOF_NODES, require_length


def domain_separator(name: str) -> bytes:
    """Return the domain separator of ``name``: its length in one byte, then its letters."""
    return bytes([len(name)]) + name.encode("ascii")


EMPTY_DOMAIN = domain_separator("ic-hashtree-empty")
LEAF_DOMAIN = domain_separator("ic-hashtree-leaf")
LABELED_DOMAIN = domain_separator("ic-hashtree-labeled")
FORK_DOMAIN = domain_separator("ic-hashtree-fork")

EMPTY_DIGEST = hashlib.sha256(EMPTY_DOMAIN).digest()


def leaf_digest(value: bytes) -> bytes:
    """Return the digest of a leaf with ``value``."""
    return sha256(LEAF_DOMAIN + value)


def labeled_digest(label: bytes, subtree: bytes) -> bytes:
    """Return the digest of ``label`` on the subtree with the digest ``subtree``."""
    return sha256(LABELED_DOMAIN + label + subtree)


def fork_digest(left: bytes, right: bytes) -> bytes:
    """Return the digest of a fork from the digests of its subtrees."""
    return sha256(FORK_DOMAIN + left + right)


DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class Empty:
    """A map without children."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Pruned:
    """A pruned tree, by its digest (32 bytes)."""

    digest: bytes

    def __post_init__(self) -> None:
        if len(self.digest) != DIGEST_BYTES:
            raise MalformedProof(f"a pruned node holds {len(self.digest)} bytes, a digest has {DIGEST_BYTES}")


@dataclass(frozen=True, slots=True)
class Labeled:
    """One child of a map, under its label."""

    label: bytes
    subtree: HashTree
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Fork:
    """Two parts of one map: all labels of ``left`` are below all labels of ``right``."""

    left: HashTree
    right: HashTree
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)


HashTree: TypeAlias = Empty | Leaf | Pruned | Labeled | Fork

Path: TypeAlias = tuple[bytes, ...]

NestedTree: TypeAlias = Mapping[bytes, "bytes | NestedTree | HashTree"]
"""Nested maps from labels to leaves, subtrees or finished hash trees."""

EMPTY = Empty()


def digest(tree: HashTree) -> bytes:
    """Return the digest of ``tree``; each node caches its own.

    Args:
        tree: the tree.

    Returns:
        32 bytes.
    """
    stack: list[HashTree] = [tree]
    while stack:
        node = stack[-1]
        if not isinstance(node, (Labeled, Fork)) or node._digest:
            stack.pop()
            continue
        children: tuple[HashTree, ...] = (node.subtree,) if isinstance(node, Labeled) else (node.left, node.right)
        waiting = [child for child in children if isinstance(child, (Labeled, Fork)) and not child._digest]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        node._digest.append(_digest_of(node))
    return _digest_of(tree)


def build_tree(labeled_tree: NestedTree) -> HashTree:
    """Build the hash tree of ``labeled_tree`` (IC reference 2.9).

    An empty map is an ``Empty`` node.

    Args:
        labeled_tree: nested maps.

    Returns:
        The hash tree.
    """
    finished: dict[int, HashTree] = {}
    stack: list[tuple[int, NestedTree, bool]] = [(0, labeled_tree, False)]
    names = 0
    children: dict[int, list[tuple[bytes, int | HashTree]]] = {}
    while stack:
        name, subtree, entered = stack.pop()
        if entered:
            finished[name] = join_forks(
                [
                    Labeled(label, finished.pop(child) if isinstance(child, int) else child)
                    for label, child in children.pop(name)
                ]
            )
            continue
        stack.append((name, subtree, True))
        own: list[tuple[bytes, int | HashTree]] = []
        for label in sorted(subtree):
            value = subtree[label]
            if isinstance(value, Mapping):
                names += 1
                own.append((label, names))
                stack.append((names, value, False))
            else:
                own.append((label, Leaf(bytes(value)) if isinstance(value, (bytes, bytearray, memoryview)) else value))
        children[name] = own
    return finished[0]


def join_forks(nodes: list[HashTree]) -> HashTree:
    """Join ordered ``nodes`` by forks, the largest power of two below their number on the left."""
    level = nodes
    while len(level) > 1:
        # Bottom-up pairing with an odd last node moved up gives exactly this shape.
        paired: list[HashTree] = [Fork(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0] if level else EMPTY


def require_well_formed(tree: HashTree, max_depth: int = MAX_DEPTH) -> None:
    """Reject a tree that is not a map's: unordered labels, or a leaf below a fork.

    Args:
        tree: the tree.
        max_depth: most nodes on a path from the root, both ends included.

    Raises:
        TooDeepRecursion: the tree is deeper.
        NotWellFormed: the tree is not that of a map; the message names the label.
    """
    stack: list[tuple[HashTree, int]] = [(tree, 1)]
    while stack:
        top, depth = stack.pop()
        # Scan the forks of one map from left to right: labels must ascend.
        last: bytes | None = None
        level: list[tuple[HashTree, int]] = [(top, depth)]
        while level:
            node, at = level.pop()
            if at > max_depth:
                raise TooDeepRecursion(f"the hash tree is nested more than {max_depth} nodes deep")
            if isinstance(node, Fork):
                level += ((node.right, at + 1), (node.left, at + 1))
            elif isinstance(node, Labeled):
                if last is not None and node.label <= last:
                    pair = f"{hex_text(node.label)} comes after {hex_text(last)}"
                    raise NotWellFormed(f"label {pair}: labels ascend strictly")
                last = node.label
                stack.append((node.subtree, at + 1))
            elif isinstance(node, Leaf) and at != depth:
                raise NotWellFormed("a leaf hangs on a fork: forks hold labeled nodes")


def leaves(tree: HashTree) -> Iterator[tuple[Path, bytes]]:
    """Yield every shown leaf of ``tree`` with its path, ascending by path.

    Args:
        tree: the tree.

    Yields:
        Path and content.
    """
    stack: list[tuple[HashTree, Path]] = [(tree, ())]
    while stack:
        node, path = stack.pop()
        if isinstance(node, Fork):
            stack += ((node.right, path), (node.left, path))
        elif isinstance(node, Labeled):
            stack.append((node.subtree, (*path, node.label)))
        elif isinstance(node, Leaf):
            yield path, node.value


def _digest_of(node: HashTree) -> bytes:
    """Return the digest of a node from its children's cached digests."""
    if isinstance(node, Pruned):
        return node.digest
    if isinstance(node, Leaf):
        return leaf_digest(node.value)
    if isinstance(node, Empty):
        return EMPTY_DIGEST
    if node._digest:
        return node._digest[0]
    if isinstance(node, Labeled):
        return labeled_digest(node.label, _digest_of(node.subtree))
    return fork_digest(_digest_of(node.left), _digest_of(node.right))


EMPTY_KIND, FORK_KIND, LABELED_KIND, LEAF_KIND, PRUNED_KIND = range(5)
_ITEMS = {EMPTY_KIND: 1, FORK_KIND: 3, LABELED_KIND: 3, LEAF_KIND: 2, PRUNED_KIND: 2}

_FORK_HEAD, _LABELED_HEAD, _LEAF_HEAD, _PRUNED_HEAD = b"\x83\x01", b"\x83\x02", b"\x82\x03", b"\x82\x04"
_EMPTY_NODE = b"\x81\x00"


def encode_tree(tree: HashTree) -> bytes:
    """Encode ``tree`` in CBOR, without a self-describing tag.

    Args:
        tree: the tree.

    Returns:
        The encoding.
    """
    parts: list[bytes] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Fork):
            parts.append(_FORK_HEAD)
            stack += (node.right, node.left)
        elif isinstance(node, Labeled):
            parts += (_LABELED_HEAD, cbor_bytes(node.label))
            stack.append(node.subtree)
        elif isinstance(node, Leaf):
            parts += (_LEAF_HEAD, cbor_bytes(node.value))
        elif isinstance(node, Pruned):
            parts += (_PRUNED_HEAD, cbor_bytes(node.digest))
        else:
            parts.append(_EMPTY_NODE)
    return b"".join(parts)


def decode_tree(data: bytes, max_bytes: int = MAX_PROOF_BYTES, max_depth: int = MAX_DEPTH) -> HashTree:
    """Decode a well-formed hash tree, with or without the self-describing tag.

    Args:
        data: the encoding.
        max_bytes: most bytes.
        max_depth: most nodes on a path from the root.

    Returns:
        The tree.

    Raises:
        OverLimit: ``data`` exceeds ``max_bytes``, or the tree exceeds ``MAX_PROOF_NODES``.
        TooDeepRecursion: a path exceeds ``max_depth`` nodes.
        MalformedHashTree: ``data`` is not a tree, not in shortest CBOR, or has trailing bytes.
        NotWellFormed: the tree is not that of a map.
    """
    require_length(data, "the hash tree", max_bytes)
    reader = CborReader(bytes(data), "the hash tree", MalformedHashTree)
    reader.skip_self_description()
    tree = read_tree(reader, max_depth)
    reader.end()
    return tree


def read_tree(reader: CborReader, max_depth: int = MAX_DEPTH) -> HashTree:
    """Read a well-formed hash tree at the position of ``reader`` (errors as ``decode_tree``)."""
    # Open ancestors of the node: a label without its subtree, or a fork with its left part, if read.
    above: list[bytes | list[HashTree]] = []
    nodes = 0
    while True:
        nodes += 1
        if nodes > MAX_PROOF_NODES:
            raise OverLimit(f"the hash tree has more than {MAX_PROOF_NODES} nodes")
        if len(above) >= max_depth:
            path = [label for label in above if isinstance(label, bytes)]
            raise TooDeepRecursion(f"the hash tree is nested more than {max_depth} nodes deep", path)
        node = _read_node(reader, above)
        if node is None:
            continue
        while above:
            parent = above[-1]
            if isinstance(parent, bytes):
                node = Labeled(parent, node)
            elif not parent:
                parent.append(node)
                break
            else:
                node = Fork(parent[0], node)
            above.pop()
        else:
            require_well_formed(node, max_depth)
            return node


def _read_node(reader: CborReader, above: list[bytes | list[HashTree]]) -> HashTree | None:
    """Read a node without children, or push the start of one with children onto ``above``."""
    items = reader.head(ARRAY)
    kind = reader.unsigned() if items else -1
    if _ITEMS.get(kind) != items:
        raise reader.wrong(f"has a node of kind {kind} with {items} items")
    if kind == FORK_KIND:
        above.append([])
        return None
    if kind == LABELED_KIND:
        above.append(reader.byte_string())
        return None
    if kind == EMPTY_KIND:
        return EMPTY
    value = reader.byte_string()
    if kind == LEAF_KIND:
        return Leaf(value)
    if len(value) != DIGEST_BYTES:
        raise reader.wrong(f"has a pruned node of {len(value)} bytes, a digest has {DIGEST_BYTES}")
    return Pruned(value)
