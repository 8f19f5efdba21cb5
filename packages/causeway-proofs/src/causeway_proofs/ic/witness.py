"""Witnesses: a hash tree without its data, as it travels with a part of a labeled tree (IC reference 2.9).

Labeled trees: state, or a part of it, as a rose tree whose leaves hold bytes (IC reference 2.9).

Witnesses against labeled trees: plug in what is known, prune it, recompute the root (IC reference 2.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from causeway_proofs.errors import OverLimit
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.errors import (
    DecodeError,
    EncodeError,
    InconsistentPartialTree,
    NonMinimalWitness,
    TooDeepRecursion,
    path_text,
)
from causeway_proofs.ic.hash_tree import EMPTY_DIGEST, fork_digest, labeled_digest, leaf_digest
from causeway_proofs.limits import MAX_DEPTH, MAX_PROOF_BYTES
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.wire import xnet_pb2

MAX_TREE_LEVELS = 33
"""Labels on a path, at most: protobuf decoders stop at 100 nested messages, and a level takes three."""

MAX_TREE_NODES = 1 << 18
"""Most nodes of a tree, Python objects each. Deployed slices hold at most 10,000 messages, a node each; this allows for
the slices of networks without limits: ``MAX_PROOF_BYTES`` hold at most 144,631 of the shortest with their witness."""


@dataclass(frozen=True, slots=True)
class TreeLeaf:
    """A leaf that holds ``value``."""

    value: bytes


@dataclass(frozen=True, slots=True)
class SubTree:
    """An inner node; ``children`` by label, kept in ascending order."""

    children: Mapping[bytes, LabeledTree]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", dict(sorted(self.children.items(), key=lambda child: child[0])))


LabeledTree: TypeAlias = TreeLeaf | SubTree


def encode_labeled_tree(tree: LabeledTree) -> bytes:
    """Return the protobuf form of ``tree``.

    Raises:
        EncodeError: it has more levels than decoders read.
    """
    message = xnet_pb2.LabeledTree()
    open_nodes: list[tuple[LabeledTree, xnet_pb2.LabeledTree, int]] = [(tree, message, 0)]
    while open_nodes:
        node, written, level = open_nodes.pop()
        if level > MAX_TREE_LEVELS:
            raise EncodeError(f"LabeledTree: more than {MAX_TREE_LEVELS} levels")
        if isinstance(node, TreeLeaf):
            written.leaf = node.value
            continue
        written.sub_tree.SetInParent()
        children = written.sub_tree.children
        for label, child in node.children.items():
            open_nodes.append((child, children.add(label=label).node, level + 1))
    return message.SerializeToString(deterministic=True)


def decode_labeled_tree(data: bytes) -> LabeledTree:
    """Return the tree that ``data`` is the canonical protobuf form of.

    Raises:
        OverLimit: ``data`` is too long, or the tree has more than ``MAX_NODES`` nodes.
        MalformedProof: it is no tree, its labels do not ascend, or it is not the form that encoders write.
    """
    message = parse_canonical(xnet_pb2.LabeledTree, data, "LabeledTree", MAX_PROOF_BYTES)
    # Parents before children; built from the back, so that a node's children are there when it is made.
    found: list[tuple[xnet_pb2.LabeledTree, int, bytes]] = [(message, -1, b"")]
    for position, (node, _, _) in enumerate(found):
        match node.WhichOneof("node_enum"):
            case "leaf":
                continue
            case "sub_tree":
                if len(found) + len(node.sub_tree.children) > MAX_TREE_NODES:
                    raise OverLimit(f"LabeledTree: more than {MAX_TREE_NODES} nodes")
                before: bytes | None = None
                for child in node.sub_tree.children:
                    if before is not None and child.label <= before:
                        pair = f"{path_text([child.label])} after {path_text([before])}"
                        raise DecodeError(f"LabeledTree: labels do not ascend: {pair}")
                    if not child.HasField("node"):
                        raise DecodeError("Missing required struct field: LabeledTree::Subtree::value")
                    before = child.label
                    found.append((child.node, position, child.label))
            case _:
                raise DecodeError("Missing required struct field: LabeledTree::node_enum")
    children: dict[int, dict[bytes, LabeledTree]] = {}
    tree: LabeledTree = SubTree({})
    for position in reversed(range(len(found))):
        node, parent, label = found[position]
        own = children.pop(position, {})
        tree = TreeLeaf(node.leaf) if node.WhichOneof("node_enum") == "leaf" else SubTree(own)
        children.setdefault(parent, {})[label] = tree
    return tree


MAX_WIRE_LEVELS = 49
"""Nodes above a node, at most: protobuf decoders stop at 100 nested messages, and a level takes two."""

MAX_NODES = 1 << 19
"""Most nodes of a witness, Python objects each. Deployed slices hold at most 10,000 messages, whose witnesses have some
30,000 nodes; this allows for the slices of networks without limits: of the shortest messages (19 bytes, and 39 more for
labels and forks) ``MAX_PROOF_BYTES`` hold at most 144,631, with three nodes each."""


@dataclass(frozen=True, slots=True)
class WitnessFork:
    """Two neighbouring parts of a subtree's children, the left one with the smaller labels."""

    left: Witness
    right: Witness


@dataclass(frozen=True, slots=True)
class WitnessNode:
    """A child of a subtree, and what is below it."""

    label: bytes
    sub_witness: Witness


@dataclass(frozen=True, slots=True)
class WitnessPruned:
    """What is left out, by its digest (32 bytes)."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class WitnessKnown:
    """What the labeled tree has: a leaf, or a subtree without children."""


KNOWN = WitnessKnown()

Witness: TypeAlias = WitnessFork | WitnessNode | WitnessPruned | WitnessKnown


def encode_witness(witness: Witness) -> bytes:
    """Return the protobuf form of ``witness``.

    Raises:
        EncodeError: it has more levels than decoders read.
    """
    message = xnet_pb2.Witness()
    open_nodes: list[tuple[Witness, xnet_pb2.Witness, int]] = [(witness, message, 0)]
    while open_nodes:
        node, written, level = open_nodes.pop()
        if level > MAX_WIRE_LEVELS:
            raise EncodeError(f"Witness: more than {MAX_WIRE_LEVELS} levels")
        match node:
            case WitnessFork():
                open_nodes.append((node.left, written.fork.left_tree, level + 1))
                open_nodes.append((node.right, written.fork.right_tree, level + 1))
            case WitnessNode():
                written.node.label = node.label
                open_nodes.append((node.sub_witness, written.node.sub_witness, level + 1))
            case WitnessPruned():
                written.pruned.digest = node.digest
            case WitnessKnown():
                written.known.SetInParent()
    return message.SerializeToString(deterministic=True)


def decode_witness(data: bytes) -> Witness:
    """Return the witness that ``data`` is the canonical protobuf form of.

    Raises:
        OverLimit: ``data`` is too long, or the witness has more than ``MAX_NODES`` nodes.
        MalformedProof: it is no witness, or not the form that encoders write.
    """
    message = parse_canonical(xnet_pb2.Witness, data, "Witness", MAX_PROOF_BYTES)
    # Parents before children, left before right; built from the back.
    found = [message]
    for node in found:
        if len(found) > MAX_NODES:
            raise OverLimit(f"Witness: more than {MAX_NODES} nodes")
        match node.WhichOneof("witness_enum"):
            case "fork":
                for side in ("left_tree", "right_tree"):
                    if not node.fork.HasField(side):
                        raise DecodeError(f"Missing required struct field: Witness::Fork::{side}")
                found += [node.fork.left_tree, node.fork.right_tree]
            case "node":
                if not node.node.HasField("sub_witness"):
                    raise DecodeError("Missing required struct field: Witness::Node::sub_witness")
                found.append(node.node.sub_witness)
            case "pruned":
                length = len(node.pruned.digest)
                if length != DIGEST_BYTES:
                    raise DecodeError(f"Digest: expected a blob of length {DIGEST_BYTES}, got {length}")
            case "known":
                continue
            case _:
                raise DecodeError("Missing required struct field: Witness::witness_enum")
    # Going back, nodes ask for their children in the order in which those were made: a queue.
    made: list[Witness] = []
    taken = 0
    for node in reversed(found):
        match node.WhichOneof("witness_enum"):
            case "fork":
                made.append(WitnessFork(made[taken + 1], made[taken]))
                taken += 2
            case "node":
                made.append(WitnessNode(node.node.label, made[taken]))
                taken += 1
            case "pruned":
                made.append(WitnessPruned(node.pruned.digest))
            case _:
                made.append(KNOWN)
    return made[-1]


def sub_witness(witness: Witness, label: bytes) -> Witness | None:
    """Return what is below the child ``label`` of the subtree that ``witness`` is of, None if it is not there."""
    open_nodes = [witness]
    while open_nodes:
        match open_nodes.pop():
            case WitnessFork(left, right):
                open_nodes += [right, left]
            case WitnessNode(found, below) if found == label:
                return below
    return None


def first_sub_witness(witness: Witness) -> WitnessNode | None:
    """Return the first child that is not pruned of the subtree that ``witness`` is of, None if all are."""
    open_nodes = [witness]
    while open_nodes:
        match open_nodes.pop():
            case WitnessFork(left, right):
                open_nodes += [right, left]
            case WitnessNode() as node:
                return node
    return None


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

    fork: WitnessFork


@dataclass(frozen=True, slots=True)
class _Label:
    """Task: put a label on the result on top."""

    node: WitnessNode


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
                    if isinstance(left, WitnessPruned) and isinstance(right, WitnessPruned):
                        self.results.append(WitnessPruned(fork_digest(left.digest, right.digest)))
                    else:
                        same = left is task.fork.left and right is task.fork.right
                        self.results.append(task.fork if same else WitnessFork(left, right))
                case _Label(node):
                    self.path.pop()
                    below = self.results.pop()
                    if isinstance(below, WitnessPruned):
                        self.results.append(WitnessPruned(labeled_digest(node.label, below.digest)))
                    else:
                        self.results.append(WitnessNode(node.label, below))
                case _Finish(children):
                    if children.left:
                        label = children.left[-1][0]
                        raise InconsistentPartialTree("the witness has no place for it", [*self.path, label])
        return self.results.pop()

    def _meet(self, task: _Meet) -> None:
        self._require_depth(task.depth)
        match task.tree, task.witness:
            case TreeLeaf(value), WitnessKnown():
                self.results.append(WitnessPruned(leaf_digest(value)))
            case SubTree(children), WitnessKnown() if not children:
                self.results.append(WitnessPruned(EMPTY_DIGEST))
            case SubTree(children), (WitnessFork() | WitnessNode()) if children:
                left = _Children(list(children.items())[::-1])
                self.tasks += [_Finish(left), _Descend(task.witness, left, task.depth)]
            case TreeLeaf(), _:
                raise InconsistentPartialTree("a leaf that the witness does not know", self.path)
            case SubTree(children), _ if not children:
                raise InconsistentPartialTree("an empty subtree that the witness does not know", self.path)
            case _:
                raise InconsistentPartialTree("a subtree whose children the witness does not have", self.path)

    def _descend(self, task: _Descend) -> None:
        self._require_depth(task.depth)
        match task.witness:
            case WitnessFork(left, right) as fork:
                if isinstance(left, WitnessPruned) and isinstance(right, WitnessPruned):
                    raise NonMinimalWitness("a fork of two pruned nodes", self.path)
                self.tasks += [
                    _Join(fork),
                    _Descend(right, task.children, task.depth + 1),
                    _Descend(left, task.children, task.depth + 1),
                ]
            case WitnessNode(label, below) as node:
                if not task.children.left or task.children.left[-1][0] != label:
                    # Not to be pruned.
                    self.results.append(node)
                    return
                _, child = task.children.left.pop()
                self.path.append(label)
                self.tasks += [_Label(node), _Meet(below, child, task.depth + 1)]
            case WitnessPruned() as pruned:
                self.results.append(pruned)
            case WitnessKnown():
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
    if not isinstance(pruned, WitnessPruned):
        raise InconsistentPartialTree("the witness has more than the tree", _path_to_first_known(pruned))
    return pruned.digest


def _path_to_first_known(witness: Witness) -> tuple[bytes, ...]:
    """Return the labels down to the first ``Known``; none if there is no ``Known``."""
    open_nodes: list[tuple[Witness, tuple[bytes, ...]]] = [(witness, ())]
    while open_nodes:
        node, path = open_nodes.pop()
        match node:
            case WitnessKnown():
                return path
            case WitnessFork(left, right):
                open_nodes += [(right, path), (left, path)]
            case WitnessNode(label, below):
                open_nodes.append((below, (*path, label)))
    return ()
