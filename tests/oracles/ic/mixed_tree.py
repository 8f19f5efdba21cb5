"""From hash trees that hold their data to slices: data and witness apart (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway_proofs.ic import hash_tree
from causeway_proofs.ic.errors import DecodeError, path_text
from causeway_proofs.ic.hash_tree import fork_digest, labeled_digest
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
class _Split:
    """A node taken apart.

    Attributes:
        witness: of what the node knows.
        whole: the tree that the node is; None where it is a part of a map, or pruned.
        children: of the map that the node is a part of; in no order.
        first, last: the least and the greatest of their labels.
    """

    witness: Witness
    whole: LabeledTree | None = None
    children: dict[bytes, LabeledTree] = field(default_factory=dict)
    first: bytes = b""
    last: bytes = b""

    def tree(self) -> LabeledTree:
        return SubTree(self.children) if self.whole is None else self.whole


def split_hash_tree(tree: hash_tree.HashTree) -> tuple[LabeledTree, Witness]:
    """Return the data in ``tree`` as a labeled tree, and the minimal witness of it.

    ``recompute_digest`` of both is the digest of ``tree``. Forks and labels with nothing but pruned nodes below them
    become pruned nodes.

    Raises:
        DecodeError: there is no data in it at all, or it is not the hash tree of nested maps.
    """
    order: list[hash_tree.HashTree] = [tree]
    for node in order:
        if isinstance(node, hash_tree.Fork):
            order += [node.left, node.right]
        elif isinstance(node, hash_tree.Labeled):
            order.append(node.subtree)
    # On the way back, nodes find their children in the order of their creation: a queue.
    made: list[_Split] = []
    taken = 0
    for node in reversed(order):
        match node:
            case hash_tree.Fork():
                made.append(_fork(made[taken + 1], made[taken]))
                taken += 2
            case hash_tree.Labeled(label):
                made.append(_labeled(label, made[taken]))
                taken += 1
            case hash_tree.Leaf(value):
                made.append(_Split(KNOWN, TreeLeaf(value)))
            case hash_tree.Empty():
                made.append(_Split(KNOWN, SubTree({})))
            case hash_tree.Pruned(digest):
                made.append(_Split(WitnessPruned(digest)))
    if isinstance(made[-1].witness, WitnessPruned):
        raise DecodeError("the hash tree holds no data")
    return made[-1].tree(), made[-1].witness


def _fork(left: _Split, right: _Split) -> _Split:
    if left.whole is not None or right.whole is not None:
        raise DecodeError("the hash tree has a leaf or an empty map under a fork, without a label")
    if isinstance(left.witness, WitnessPruned) and isinstance(right.witness, WitnessPruned):
        return _Split(WitnessPruned(fork_digest(left.witness.digest, right.witness.digest)))
    witness = WitnessFork(left.witness, right.witness)
    if not left.children or not right.children:
        some = left if left.children else right
        return _Split(witness, None, some.children, some.first, some.last)
    if left.last >= right.first:
        raise DecodeError(f"the hash tree has labels that do not ascend: {path_text([right.first])}")
    # The smaller side is merged into the larger: a million labels are not copied at every fork.
    small, large = sorted((left.children, right.children), key=len)
    large.update(small)
    return _Split(witness, None, large, left.first, right.last)


def _labeled(label: bytes, below: _Split) -> _Split:
    if isinstance(below.witness, WitnessPruned):
        return _Split(WitnessPruned(labeled_digest(label, below.witness.digest)))
    return _Split(WitnessNode(label, below.witness), None, {label: below.tree()}, label, label)
