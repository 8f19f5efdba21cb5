"""Witnesses against labeled trees: plug in what is known, prune it, recompute the root (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway.proofs.ic.digests import EMPTY_DIGEST, fork_digest, labeled_digest, leaf_digest
from causeway.proofs.ic.errors import InconsistentPartialTree, NonMinimalWitness, TooDeepRecursion
from causeway.proofs.ic.labeled_tree import LabeledTree, Leaf, SubTree
from causeway.proofs.ic.witness import Fork, Known, Node, Pruned, Witness
from causeway.proofs.limits import MAX_DEPTH


@dataclass(slots=True)
class _Children:
    """The children of a subtree that are still to be met, the next one last."""

    left: list[tuple[bytes, LabeledTree]]


@dataclass(frozen=True, slots=True)
class _Meet:
    """Task: match a witness with the tree that it replaces."""

    witness: Witness
    tree: LabeledTree
    depth: int


@dataclass(frozen=True, slots=True)
class _Descend:
    """Task: match a part of a subtree's witness with those of the subtree's children that it covers."""

    witness: Witness
    children: _Children
    depth: int


@dataclass(frozen=True, slots=True)
class _Join:
    """Task: put a fork together again, of the two results on top."""

    fork: Fork


@dataclass(frozen=True, slots=True)
class _Label:
    """Task: put a label on the result on top."""

    node: Node


@dataclass(frozen=True, slots=True)
class _Finish:
    """Task: see that a subtree has no children left."""

    children: _Children


_Task = _Meet | _Descend | _Join | _Label | _Finish


@dataclass(slots=True)
class _Pruning:
    tasks: list[_Task]
    results: list[Witness] = field(default_factory=list)
    path: list[bytes] = field(default_factory=list)

    def run(self) -> Witness:
        while self.tasks:
            task = self.tasks.pop()
            match task:
                case _Meet():
                    self._meet(task)
                case _Descend():
                    self._descend(task)
                case _Join():
                    right, left = self.results.pop(), self.results.pop()
                    if isinstance(left, Pruned) and isinstance(right, Pruned):
                        self.results.append(Pruned(fork_digest(left.digest, right.digest)))
                    else:
                        same = left is task.fork.left and right is task.fork.right
                        self.results.append(task.fork if same else Fork(left, right))
                case _Label(node):
                    self.path.pop()
                    below = self.results.pop()
                    if isinstance(below, Pruned):
                        self.results.append(Pruned(labeled_digest(node.label, below.digest)))
                    else:
                        self.results.append(Node(node.label, below))
                case _Finish(children):
                    if children.left:
                        label = children.left[-1][0]
                        raise InconsistentPartialTree("the witness has no place for it", [*self.path, label])
        return self.results.pop()

    def _meet(self, task: _Meet) -> None:
        self._require_depth(task.depth)
        match task.tree, task.witness:
            case Leaf(value), Known():
                self.results.append(Pruned(leaf_digest(value)))
            case SubTree(children), Known() if not children:
                self.results.append(Pruned(EMPTY_DIGEST))
            case SubTree(children), (Fork() | Node()) if children:
                left = _Children(list(children.items())[::-1])
                self.tasks += [_Finish(left), _Descend(task.witness, left, task.depth)]
            case Leaf(), _:
                raise InconsistentPartialTree("a leaf that the witness does not know", self.path)
            case SubTree(children), _ if not children:
                raise InconsistentPartialTree("an empty subtree that the witness does not know", self.path)
            case _:
                raise InconsistentPartialTree("a subtree whose children the witness does not have", self.path)

    def _descend(self, task: _Descend) -> None:
        self._require_depth(task.depth)
        match task.witness:
            case Fork(left, right) as fork:
                if isinstance(left, Pruned) and isinstance(right, Pruned):
                    raise NonMinimalWitness("a fork of two pruned nodes", self.path)
                self.tasks += [
                    _Join(fork),
                    _Descend(right, task.children, task.depth + 1),
                    _Descend(left, task.children, task.depth + 1),
                ]
            case Node(label, below) as node:
                if not task.children.left or task.children.left[-1][0] != label:
                    # Not to be pruned.
                    self.results.append(node)
                    return
                _, child = task.children.left.pop()
                self.path.append(label)
                self.tasks += [_Label(node), _Meet(below, child, task.depth + 1)]
            case Pruned() as pruned:
                self.results.append(pruned)
            case Known():
                raise InconsistentPartialTree("the witness knows it without a label", self.path)

    def _require_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise TooDeepRecursion(f"the witness is nested more than {MAX_DEPTH} deep", self.path)


def prune_witness(witness: Witness, partial_tree: LabeledTree) -> Witness:
    """Return ``witness`` with everything in ``partial_tree`` pruned: its leaves are known no more.

    Used for a slice of which a part is taken. Work is linear in the tree and the part of the witness that covers it.

    Raises:
        InconsistentPartialTree: the tree has something that the witness does not know.
        NonMinimalWitness: on the way there is a fork of two pruned nodes.
        TooDeepRecursion: the witness is nested too deeply.
    """
    return _Pruning([_Meet(witness, partial_tree, 1)]).run()


def recompute_digest(partial_tree: LabeledTree, witness: Witness) -> bytes:
    """Return the root digest of the tree that ``partial_tree`` is a part of, the rest from ``witness``.

    Every leaf meets exactly one ``Known``, and every ``Known`` a leaf.

    Raises:
        InconsistentPartialTree: they do not.
        NonMinimalWitness: there is a fork of two pruned nodes.
        TooDeepRecursion: the witness is nested too deeply.
    """
    pruned = prune_witness(witness, partial_tree)
    if not isinstance(pruned, Pruned):
        raise InconsistentPartialTree("the witness has more than the tree", _path_to_first_known(pruned))
    return pruned.digest


def _path_to_first_known(witness: Witness) -> tuple[bytes, ...]:
    """Return the labels down to the first ``Known``; none if there is no ``Known``."""
    open_nodes: list[tuple[Witness, tuple[bytes, ...]]] = [(witness, ())]
    while open_nodes:
        node, path = open_nodes.pop()
        match node:
            case Known():
                return path
            case Fork(left, right):
                open_nodes += [(right, path), (left, path)]
            case Node(label, below):
                open_nodes.append((below, (*path, label)))
    return ()
