"""Building witnesses: the digests of a labeled tree, kept, and the witness of any part of it (IC reference 2.9)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from causeway_proofs.ic.errors import InconsistentPartialTree
from causeway_proofs.ic.hash_tree import EMPTY_DIGEST, fork_digest, labeled_digest, leaf_digest
from causeway_proofs.ic.witness import (
    KNOWN,
    LabeledTree,
    SubTree,
    TreeLeaf,
    Witness,
    WitnessFork,
    WitnessNode,
    WitnessPruned,
)


@dataclass(frozen=True, slots=True)
class DigestedTree:
    """A labeled tree by its digests; the leaves' values are not kept.

    Attributes:
        digest: of the whole tree.
        children: by label, ascending; None for a leaf.
        labels: those of ``children``.
        levels: digests of the fork tree over the children, from the labeled ones up to the one root; of n nodes the
            next level has the forks of neighbouring pairs, and an odd last one as it is.
    """

    digest: bytes
    children: Mapping[bytes, DigestedTree] | None
    labels: tuple[bytes, ...]
    levels: tuple[tuple[bytes, ...], ...]


def digest_tree(tree: LabeledTree) -> DigestedTree:
    """Return the digests of ``tree``; work is linear in it."""
    found: list[tuple[LabeledTree, int, bytes]] = [(tree, -1, b"")]
    for place, (node, _, _) in enumerate(found):
        if isinstance(node, SubTree):
            found += [(child, place, label) for label, child in node.children.items()]
    below: dict[int, dict[bytes, DigestedTree]] = {}
    digested = _subtree({})
    for place in reversed(range(len(found))):
        node, parent, label = found[place]
        own = below.pop(place, {})
        if isinstance(node, TreeLeaf):
            digested = DigestedTree(leaf_digest(node.value), None, (), ())
        else:
            digested = _subtree(dict(reversed(own.items())))
        below.setdefault(parent, {})[label] = digested
    return digested


def _subtree(children: dict[bytes, DigestedTree]) -> DigestedTree:
    """Return the digests of a subtree with ``children`` in ascending order."""
    if not children:
        return DigestedTree(EMPTY_DIGEST, {}, (), ())
    levels = [tuple(labeled_digest(label, child.digest) for label, child in children.items())]
    while len(levels[-1]) > 1:
        nodes = levels[-1]
        pairs = [fork_digest(nodes[place], nodes[place + 1]) for place in range(0, len(nodes) - 1, 2)]
        levels.append(tuple(pairs + list(nodes[len(pairs) * 2 :])))
    return DigestedTree(levels[-1][0], children, tuple(children), tuple(levels))


def build_witness(full_tree: DigestedTree, partial_tree: LabeledTree) -> Witness:
    """Return the minimal witness of ``partial_tree``, a part of the tree that ``full_tree`` has the digests of.

    Of the part only the labels count, what its leaves hold is not looked at. Work: for each of the part's leaves, the
    logarithm of its siblings.

    Raises:
        InconsistentPartialTree: the full tree has not all of the part, or more below it where the part ends.
    """
    found: list[tuple[DigestedTree, LabeledTree, int, tuple[bytes, ...]]] = [(full_tree, partial_tree, -1, ())]
    for place, (full, part, _, path) in enumerate(found):
        if isinstance(part, TreeLeaf) != (full.children is None) or (full.labels and not _children(part)):
            raise InconsistentPartialTree("the full tree has something else there", path)
        for label, child in _children(part).items():
            if full.children is None or label not in full.children:
                raise InconsistentPartialTree("the full tree does not have it", [*path, label])
            found.append((full.children[label], child, place, (*path, label)))
    below: dict[int, dict[int, Witness]] = {}
    witness: Witness = KNOWN
    for place in reversed(range(len(found))):
        full, _, parent, path = found[place]
        known = below.pop(place, {})
        witness = _fork_tree(full, known) if known else KNOWN
        if parent >= 0:
            position = bisect_left(found[parent][0].labels, path[-1])
            below.setdefault(parent, {})[position] = WitnessNode(path[-1], witness)
    return witness


def _children(tree: LabeledTree) -> Mapping[bytes, LabeledTree]:
    return {} if isinstance(tree, TreeLeaf) else tree.children


def _fork_tree(full: DigestedTree, known: dict[int, Witness]) -> Witness:
    """Return the witness of a subtree, from those of some of its children by their position."""
    for level in full.levels[:-1]:
        above: dict[int, Witness] = {}
        for position, witness in known.items():
            if position // 2 in above:
                continue
            sibling = position ^ 1
            if sibling >= len(level):
                above[position // 2] = witness
                continue
            other = known.get(sibling) or WitnessPruned(level[sibling])
            above[position // 2] = WitnessFork(witness, other) if position < sibling else WitnessFork(other, witness)
        known = above
    return known[0]
