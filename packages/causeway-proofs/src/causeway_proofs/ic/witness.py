"""Labeled trees, witnesses, and witness operations (IC reference 2.9).

- A labeled tree is a state, or a part of it: a rose tree whose leaves hold bytes.
- A witness is a hash tree without its data, sent along with a part of a labeled tree.
- ``recompute_digest`` combines a partial tree and its witness into the root; ``prune_witness`` removes a partial tree
  from a witness.
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
"""Most labels on a path: decoders stop at 100 nested messages, and a level takes three."""

MAX_TREE_NODES = 1 << 18
"""Most nodes of a tree, each a Python object.

Deployed slices hold at most 10,000 messages, a node each. Networks without limits reach at most 144,631 of the shortest
messages with their witness in ``MAX_PROOF_BYTES``.
"""


@dataclass(frozen=True, slots=True)
class TreeLeaf:
    """A leaf with its content."""

    value: bytes


@dataclass(frozen=True, slots=True)
class SubTree:
    """An inner node; ``children`` by label, in ascending order."""

    children: Mapping[bytes, LabeledTree]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", dict(sorted(self.children.items(), key=lambda child: child[0])))


LabeledTree: TypeAlias = TreeLeaf | SubTree


def encode_labeled_tree(tree: LabeledTree) -> bytes:
    """Encode ``tree`` in protobuf.

    Raises:
        EncodeError: the tree exceeds the levels that decoders read.
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
    """Decode the canonical protobuf form of a tree.

    Raises:
        OverLimit: ``data`` is too long, or the tree exceeds ``MAX_TREE_NODES``.
        MalformedProof: ``data`` is not a tree or not canonical, or its labels do not ascend.
    """
    message = parse_canonical(xnet_pb2.LabeledTree, data, "LabeledTree", MAX_PROOF_BYTES)
    # Parents before children; built in reverse, so that children exist before their parents.
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
"""Most nodes above a node: decoders stop at 100 nested messages, and a level takes two."""

MAX_NODES = 1 << 19
"""Most nodes of a witness, each a Python object.

Deployed slices hold at most 10,000 messages, whose witnesses have some 30,000 nodes. Networks without limits reach at
most 144,631 of the shortest messages (19 bytes, and 39 more for labels and forks) in ``MAX_PROOF_BYTES``, with three
nodes each.
"""


@dataclass(frozen=True, slots=True)
class WitnessFork:
    """Two adjacent parts of a subtree's children, smaller labels on the left."""

    left: Witness
    right: Witness


@dataclass(frozen=True, slots=True)
class WitnessNode:
    """A labeled child of a subtree."""

    label: bytes
    sub_witness: Witness


@dataclass(frozen=True, slots=True)
class WitnessPruned:
    """A pruned part, by its digest (32 bytes)."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class WitnessKnown:
    """A part in the labeled tree: a leaf, or a subtree without children."""


KNOWN = WitnessKnown()

Witness: TypeAlias = WitnessFork | WitnessNode | WitnessPruned | WitnessKnown


def encode_witness(witness: Witness) -> bytes:
    """Encode ``witness`` in protobuf.

    Args:
        witness: the witness.

    Returns:
        The encoding.

    Raises:
        EncodeError: the witness exceeds the levels that decoders read.
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
    """Decode the canonical protobuf form of a witness.

    Args:
        data: the encoding.

    Returns:
        The witness.

    Raises:
        OverLimit: ``data`` is too long, or the witness exceeds ``MAX_NODES``.
        MalformedProof: ``data`` is not a witness, or not canonical.
    """
    message = parse_canonical(xnet_pb2.Witness, data, "Witness", MAX_PROOF_BYTES)
    # Parents before children, left before right; built in reverse.
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
    # In reverse, nodes consume their children in the order of creation: a queue.
    results: list[Witness] = []
    position = 0
    for node in reversed(found):
        match node.WhichOneof("witness_enum"):
            case "fork":
                results.append(WitnessFork(results[position + 1], results[position]))
                position += 2
            case "node":
                results.append(WitnessNode(node.node.label, results[position]))
                position += 1
            case "pruned":
                results.append(WitnessPruned(node.pruned.digest))
            case _:
                results.append(KNOWN)
    return results[-1]


def sub_witness(witness: Witness, label: bytes) -> Witness | None:
    """Return the part below the child ``label`` of a subtree's witness, or None if absent."""
    open_nodes = [witness]
    while open_nodes:
        match open_nodes.pop():
            case WitnessFork(left, right):
                open_nodes += [right, left]
            case WitnessNode(found, below) if found == label:
                return below
    return None


def first_sub_witness(witness: Witness) -> WitnessNode | None:
    """Return the first child of a subtree's witness that is not pruned, or None."""
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
    """Unmatched children of a subtree, the next one last."""

    left: list[tuple[bytes, LabeledTree]]


@dataclass(frozen=True, slots=True)
class _Meet:
    """Task: match a witness with its tree."""

    witness: Witness
    tree: LabeledTree
    depth: int


@dataclass(frozen=True, slots=True)
class _Descend:
    """Task: match a part of a subtree's witness with the children that it covers."""

    witness: Witness
    children: _Children
    depth: int


@dataclass(frozen=True, slots=True)
class _Join:
    """Task: rebuild a fork from the two results on top."""

    fork: WitnessFork


@dataclass(frozen=True, slots=True)
class _Label:
    """Task: label the result on top."""

    node: WitnessNode


@dataclass(frozen=True, slots=True)
class _Finish:
    """Task: check that a subtree has no unmatched children."""

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
                    # Not part of the pruned tree.
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
    """Prune ``partial_tree`` from ``witness``: its leaves become digests.

    Used to split a slice. The work is linear in the tree and the witness part that covers it.

    Args:
        witness: the witness.
        partial_tree: the part to prune.

    Returns:
        The pruned witness.

    Raises:
        InconsistentPartialTree: the witness lacks a part of the tree.
        NonMinimalWitness: a fork on the path has two pruned nodes.
        TooDeepRecursion: the witness is nested too deeply.
    """
    return _Pruning([_Meet(witness, partial_tree, 1)]).run()


def recompute_digest(partial_tree: LabeledTree, witness: Witness) -> bytes:
    """Return the root digest of a tree from a part of it and a witness of the rest.

    Every leaf must match exactly one ``Known``, and every ``Known`` a leaf.

    Args:
        partial_tree: the known part.
        witness: the witness.

    Returns:
        The digest, 32 bytes.

    Raises:
        InconsistentPartialTree: leaves and ``Known`` nodes do not match.
        NonMinimalWitness: a fork has two pruned nodes.
        TooDeepRecursion: the witness is nested too deeply.
    """
    pruned = prune_witness(witness, partial_tree)
    if not isinstance(pruned, WitnessPruned):
        raise InconsistentPartialTree("the witness has more than the tree", _path_to_first_known(pruned))
    return pruned.digest


def _path_to_first_known(witness: Witness) -> tuple[bytes, ...]:
    """Return the labels down to the first ``Known``, or none."""
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
