"""Hash trees of the Internet Computer: the five kinds of node, their digest, how they are made (IC reference 2.9).

A hash tree commits to a *labeled tree*: nested maps from labels to subtrees or leaves. The children of one map, sorted
by label, hang on a tree of forks whose left part holds the largest power of two below their number. Any part can be
replaced by its digest (*pruned*) without changing the root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from causeway.proofs.errors import MalformedProof, hex_text
from causeway.proofs.ic.digests import EMPTY_DIGEST, fork_digest, labeled_digest, leaf_digest
from causeway.proofs.ic.errors import NotWellFormed, TooDeepRecursion
from causeway.proofs.limits import MAX_DEPTH

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

LabeledTree: TypeAlias = Mapping[bytes, "bytes | LabeledTree | HashTree"]
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


def build_tree(labeled_tree: LabeledTree) -> HashTree:
    """Return the hash tree of ``labeled_tree``; an empty map is an ``Empty`` node (IC reference 2.9)."""
    finished: dict[int, HashTree] = {}
    stack: list[tuple[int, LabeledTree, bool]] = [(0, labeled_tree, False)]
    names = 0
    children: dict[int, list[tuple[bytes, int | HashTree]]] = {}
    while stack:
        name, subtree, entered = stack.pop()
        if entered:
            finished[name] = fork_together(
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


def fork_together(nodes: list[HashTree]) -> HashTree:
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
