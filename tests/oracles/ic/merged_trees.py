"""One hash tree of two with the same root."""

from __future__ import annotations

from causeway_proofs.ic.errors import InconsistentHashTrees
from causeway_proofs.ic.hash_tree import Fork, HashTree, Labeled, Pruned, digest


def merge(one: HashTree, other: HashTree) -> HashTree:
    """Return the tree that shows what ``one`` or ``other`` shows; both are prunings of the same tree.

    Raises:
        InconsistentHashTrees: they are not: their digests or their shapes differ.
    """
    if digest(one) != digest(other):
        raise InconsistentHashTrees(f"the trees have the roots {digest(one).hex()} and {digest(other).hex()}")
    merged: list[HashTree] = []
    # Either a pair of nodes to merge, or a node whose merged children are on top of ``merged``.
    stack: list[tuple[HashTree, HashTree | None]] = [(one, other)]
    while stack:
        first, second = stack.pop()
        if second is None:
            if isinstance(first, Labeled):
                merged.append(Labeled(first.label, merged.pop()))
            else:
                right = merged.pop()
                merged.append(Fork(merged.pop(), right))
        elif isinstance(second, Pruned) or first is second:
            merged.append(_same(first, second, first))
        elif isinstance(first, Pruned):
            merged.append(_same(first, second, second))
        elif isinstance(first, Labeled) and isinstance(second, Labeled) and first.label == second.label:
            stack += ((first, None), (first.subtree, second.subtree))
        elif isinstance(first, Fork) and isinstance(second, Fork):
            stack += ((first, None), (first.right, second.right), (first.left, second.left))
        else:
            merged.append(_same(first, second, first) if first == second else _different(first, second))
    return merged[0]


def _same(first: HashTree, second: HashTree, shown: HashTree) -> HashTree:
    return shown if digest(first) == digest(second) else _different(first, second)


def _different(first: HashTree, second: HashTree) -> HashTree:
    one, other = (f"a {type(node).__name__} node with digest {digest(node).hex()}" for node in (first, second))
    raise InconsistentHashTrees(f"{one} meets {other}")
