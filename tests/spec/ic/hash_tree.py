"""Hash trees and witnesses (2.9), over labeled trees that are dicts.

A labeled tree is a leaf (bytes) or a dict from labels to labeled trees. A witness is a nested tuple: ("fork", left,
right), ("node", label, below), ("pruned", digest) or ("known",).
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.spec.ic.errors import SerializationError

LabeledTree = bytes | Mapping[bytes, Any]
Witness = tuple[Any, ...]
Path = tuple[bytes, ...]

KNOWN: Witness = ("known",)
MAX_DEPTH = 128


def domain(separator: str) -> bytes:
    """ds(s): the length of s in one byte, and s."""
    return bytes([len(separator)]) + separator.encode()


def digest(separator: str, *parts: bytes) -> bytes:
    return hashlib.sha256(domain(separator) + b"".join(parts)).digest()


def empty() -> bytes:
    return digest("ic-hashtree-empty")


def leaf(value: bytes) -> bytes:
    return digest("ic-hashtree-leaf", value)


def labeled(label: bytes, below: bytes) -> bytes:
    return digest("ic-hashtree-labeled", label, below)


def fork(left: bytes, right: bytes) -> bytes:
    return digest("ic-hashtree-fork", left, right)


def left_part(count: int) -> int:
    """The largest power of two below the number of children."""
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def root_of(tree: LabeledTree) -> bytes:
    """The root hash of a labeled tree."""
    if isinstance(tree, bytes):
        return leaf(tree)
    return _forked([labeled(label, root_of(tree[label])) for label in sorted(tree)])


def _forked(digests: list[bytes]) -> bytes:
    if not digests:
        return empty()
    if len(digests) == 1:
        return digests[0]
    half = left_part(len(digests))
    return fork(_forked(digests[:half]), _forked(digests[half:]))


def at_path(tree: LabeledTree, path: Path) -> LabeledTree | None:
    """What stands at a path, or nothing."""
    for label in path:
        if isinstance(tree, bytes) or label not in tree:
            return None
        tree = tree[label]
    return tree


# ---- witnesses


def witness_of(tree: LabeledTree, part: LabeledTree) -> Witness:
    """The witness of a part of a tree: everything that holds nothing of the part is pruned, as a whole."""
    if isinstance(tree, bytes):
        return KNOWN
    assert not isinstance(part, bytes)

    def of(labels: list[bytes]) -> Witness:
        if not any(label in part for label in labels):
            return ("pruned", _forked([labeled(label, root_of(tree[label])) for label in labels]))
        if len(labels) == 1:
            return ("node", labels[0], witness_of(tree[labels[0]], part[labels[0]]))
        half = left_part(len(labels))
        return ("fork", of(labels[:half]), of(labels[half:]))

    return of(sorted(tree))


def recomputed(part: LabeledTree, witness: Witness) -> bytes:
    """The root that a part of a tree has with its witness. Every leaf of the part meets one Known, and every Known a
    leaf (`InconsistentPartialTree`); there is no node that nothing of the part is below (`NonMinimalWitness`)."""
    return _recomputed(part, witness, MAX_DEPTH)


def _recomputed(part: LabeledTree, witness: Witness, depth: int) -> bytes:
    if depth == 0:
        raise SerializationError("TooDeepRecursion")
    kind = witness[0]
    if kind == "pruned":
        raise SerializationError("InconsistentPartialTree: a part is pruned")
    if isinstance(part, bytes) or kind == "known":
        if not isinstance(part, bytes) or kind != "known":
            raise SerializationError("InconsistentPartialTree")
        return leaf(part)
    met: list[bytes] = []

    def below(node: Witness, levels: int) -> tuple[bytes, bool]:
        """The digest of one node, and whether something of the part is there."""
        if levels == 0:
            raise SerializationError("TooDeepRecursion")
        if node[0] == "pruned":
            return node[1], False
        if node[0] == "fork":
            (left, in_left), (right, in_right) = below(node[1], levels - 1), below(node[2], levels - 1)
            if not in_left and not in_right:
                raise SerializationError("NonMinimalWitness")
            return fork(left, right), True
        if node[0] != "node" or node[1] not in part:
            raise SerializationError("InconsistentPartialTree")
        met.append(node[1])
        return labeled(node[1], _recomputed(part[node[1]], node[2], levels - 1)), True

    root, _ = below(witness, depth)
    if met != sorted(part):
        raise SerializationError("InconsistentPartialTree: not every part has a node")
    return root


def pruned(witness: Witness, goes: Callable[[Path], bool], path: Path = (), value: LabeledTree = b"") -> Witness:
    """The witness without the leaves at the paths that go: they and what holds nothing else become digests.
    `value`: the part of the tree that the witness is about."""
    if witness[0] == "known":
        assert isinstance(value, bytes)
        return ("pruned", leaf(value)) if goes(path) else KNOWN
    if witness[0] == "node":
        assert not isinstance(value, bytes)
        below = pruned(witness[2], goes, (*path, witness[1]), value[witness[1]])
        return ("pruned", labeled(witness[1], below[1])) if below[0] == "pruned" else ("node", witness[1], below)
    if witness[0] == "fork":
        left, right = pruned(witness[1], goes, path, value), pruned(witness[2], goes, path, value)
        both = left[0] == right[0] == "pruned"
        return ("pruned", fork(left[1], right[1])) if both else ("fork", left, right)
    return witness
