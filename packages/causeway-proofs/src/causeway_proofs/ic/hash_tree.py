"""Hash trees of the Internet Computer: the five kinds of node, their digest, how they are made (IC reference 2.9).

A hash tree commits to a *labeled tree*: nested maps from labels to subtrees or leaves. The children of one map, sorted
by label, hang on a tree of forks whose left part holds the largest power of two below their number. Any part can be
replaced by its digest (*pruned*) without changing the root.

The four node hashes of an Internet Computer hash tree (IC reference 2.9).

Hash trees in CBOR, as certificates carry them (IC reference 7, hash_tree.json).

``[0]`` is Empty, ``[1, left, right]`` Fork, ``[2, label, subtree]`` Labeled, ``[3, value]`` Leaf and
``[4, digest]`` Pruned.
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
    """Return the hash of a leaf that holds ``value``."""
    return sha256(LEAF_DOMAIN + value)


def labeled_digest(label: bytes, subtree: bytes) -> bytes:
    """Return the hash of a node that puts ``label`` on the subtree with the digest ``subtree``."""
    return sha256(LABELED_DOMAIN + label + subtree)


def fork_digest(left: bytes, right: bytes) -> bytes:
    """Return the hash of a fork of two subtrees, from their digests."""
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
    """Any tree of which only the digest (32 bytes) is shown."""

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
    """Two parts of one map: every label of ``left`` is below every label of ``right``."""

    left: HashTree
    right: HashTree
    _digest: list[bytes] = field(default_factory=list, init=False, repr=False, compare=False)


HashTree: TypeAlias = Empty | Leaf | Pruned | Labeled | Fork

Path: TypeAlias = tuple[bytes, ...]

NestedTree: TypeAlias = Mapping[bytes, "bytes | NestedTree | HashTree"]
"""Nested maps from labels to leaves or subtrees; a subtree may also be given as the hash tree that it already is."""

EMPTY = Empty()


def digest(tree: HashTree) -> bytes:
    """Return the digest of ``tree``, 32 bytes; each node's is computed once and kept."""
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
    """Return the hash tree of ``labeled_tree``; an empty map is an ``Empty`` node (IC reference 2.9)."""
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
    """Return ``nodes``, in their order, on forks whose left part holds the largest power of two below their number."""
    level = nodes
    while len(level) > 1:
        # Pairing neighbours from below and moving an odd last node up unchanged gives exactly that shape.
        paired: list[HashTree] = [Fork(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    return level[0] if level else EMPTY


def require_well_formed(tree: HashTree, max_depth: int = MAX_DEPTH) -> None:
    """Refuse a tree that no map has: labels that do not ascend strictly, or a leaf that hangs on a fork.

    ``max_depth`` is the largest number of nodes between the root and any node, both counted.

    Raises:
        TooDeepRecursion: it is deeper than that.
        NotWellFormed: it is not the tree of a map; the message names the label.
    """
    stack: list[tuple[HashTree, int]] = [(tree, 1)]
    while stack:
        top, depth = stack.pop()
        # The forks of one map, from left to right: what was seen last must be below what comes next.
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
    """Return every leaf that ``tree`` shows, with its path, in ascending order of paths."""
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
    """Return the digest of a node whose children's digests are known."""
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
    """Return ``tree`` in CBOR, without a self-describing tag."""
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
    """Return the hash tree that ``data`` is, with or without the self-describing tag; it is well formed.

    Raises:
        OverLimit: ``data`` is longer than ``max_bytes``, or the tree has more than ``MAX_PROOF_NODES`` nodes.
        TooDeepRecursion: more than ``max_depth`` nodes lie on a way from the root to a node.
        MalformedHashTree: it is no tree, not in shortest CBOR, or goes on after its end.
        NotWellFormed: it is a tree that no map has.
    """
    require_length(data, "the hash tree", max_bytes)
    reader = CborReader(bytes(data), "the hash tree", MalformedHashTree)
    reader.skip_self_description()
    tree = read_tree(reader, max_depth)
    reader.end()
    return tree


def read_tree(reader: CborReader, max_depth: int = MAX_DEPTH) -> HashTree:
    """Read a hash tree where ``reader`` stands; it is well formed (errors as of ``decode_tree``)."""
    # What is open above the node being read: a label waiting for its subtree, or a fork with the left part, if read.
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
    """Read a node without children and return it, or the beginning of one with children and put it on ``above``."""
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
