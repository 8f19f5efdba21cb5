"""Labeled trees, witnesses, and witness operations (IC reference 2.9).

- A labeled tree is a state, or a part of it: a rose tree whose leaves hold bytes.
- A witness is a hash tree without its data, sent along with a part of a labeled tree.
- ``recompute_digest`` combines a partial tree and its witness into the root; ``prune_witness`` removes a partial tree
  from a witness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
    return _read_tree(message, iter(range(MAX_TREE_NODES)))


def _read_tree(node: xnet_pb2.LabeledTree, numbers: Iterator[int]) -> LabeledTree:
    """Read a node and what is below it; decoders of protobuf bound the levels."""
    if next(numbers, None) is None:
        raise OverLimit(f"LabeledTree: more than {MAX_TREE_NODES} nodes")
    match node.WhichOneof("node_enum"):
        case "leaf":
            return TreeLeaf(node.leaf)
        case "sub_tree":
            children: dict[bytes, LabeledTree] = {}
            before: bytes | None = None
            for child in node.sub_tree.children:
                if before is not None and child.label <= before:
                    pair = f"{path_text([child.label])} after {path_text([before])}"
                    raise DecodeError(f"LabeledTree: labels do not ascend: {pair}")
                if not child.HasField("node"):
                    raise DecodeError("Missing required struct field: LabeledTree::Subtree::value")
                before = child.label
                children[child.label] = _read_tree(child.node, numbers)
            return SubTree(children)
    raise DecodeError("Missing required struct field: LabeledTree::node_enum")


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
    return _read_witness(message, iter(range(MAX_NODES)))


def _read_witness(node: xnet_pb2.Witness, numbers: Iterator[int]) -> Witness:
    """Read a node and what is below it; decoders of protobuf bound the levels."""
    if next(numbers, None) is None:
        raise OverLimit(f"Witness: more than {MAX_NODES} nodes")
    match node.WhichOneof("witness_enum"):
        case "fork":
            for side in ("left_tree", "right_tree"):
                if not node.fork.HasField(side):
                    raise DecodeError(f"Missing required struct field: Witness::Fork::{side}")
            return WitnessFork(
                _read_witness(node.fork.left_tree, numbers), _read_witness(node.fork.right_tree, numbers)
            )
        case "node":
            if not node.node.HasField("sub_witness"):
                raise DecodeError("Missing required struct field: Witness::Node::sub_witness")
            return WitnessNode(node.node.label, _read_witness(node.node.sub_witness, numbers))
        case "pruned":
            length = len(node.pruned.digest)
            if length != DIGEST_BYTES:
                raise DecodeError(f"Digest: expected a blob of length {DIGEST_BYTES}, got {length}")
            return WitnessPruned(node.pruned.digest)
        case "known":
            return KNOWN
    raise DecodeError("Missing required struct field: Witness::witness_enum")


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


def _prune(witness: Witness, tree: LabeledTree, path: tuple[bytes, ...], depth: int) -> Witness:
    """Prune a tree from its witness."""
    _require_depth(path, depth)
    match tree, witness:
        case TreeLeaf(value), WitnessKnown():
            return WitnessPruned(leaf_digest(value))
        case SubTree(children), WitnessKnown() if not children:
            return WitnessPruned(EMPTY_DIGEST)
        case SubTree(children), (WitnessFork() | WitnessNode()) if children:
            unmatched = list(children.items())[::-1]
            pruned = _prune_children(witness, unmatched, path, depth)
            if unmatched:
                raise InconsistentPartialTree("the witness has no place for it", [*path, unmatched[-1][0]])
            return pruned
        case TreeLeaf(), _:
            raise InconsistentPartialTree("a leaf that the witness does not know", path)
        case SubTree(children), _ if not children:
            raise InconsistentPartialTree("an empty subtree that the witness does not know", path)
    raise InconsistentPartialTree("a subtree whose children the witness does not have", path)


def _prune_children(
    witness: Witness, unmatched: list[tuple[bytes, LabeledTree]], path: tuple[bytes, ...], depth: int
) -> Witness:
    """Prune the children of a subtree that a part of its witness covers, and drop them; the next one is last."""
    _require_depth(path, depth)
    match witness:
        case WitnessFork(left, right):
            if isinstance(left, WitnessPruned) and isinstance(right, WitnessPruned):
                raise NonMinimalWitness("a fork of two pruned nodes", path)
            one = _prune_children(left, unmatched, path, depth + 1)
            other = _prune_children(right, unmatched, path, depth + 1)
            if isinstance(one, WitnessPruned) and isinstance(other, WitnessPruned):
                return WitnessPruned(fork_digest(one.digest, other.digest))
            return witness if one is left and other is right else WitnessFork(one, other)
        case WitnessNode(label, below) if unmatched and unmatched[-1][0] == label:
            pruned = _prune(below, unmatched.pop()[1], (*path, label), depth + 1)
            if isinstance(pruned, WitnessPruned):
                return WitnessPruned(labeled_digest(label, pruned.digest))
            return WitnessNode(label, pruned)
        case WitnessKnown():
            raise InconsistentPartialTree("the witness knows it without a label", path)
    return witness  # not part of the pruned tree


def _require_depth(path: tuple[bytes, ...], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise TooDeepRecursion(f"the witness is nested more than {MAX_DEPTH} deep", path)


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
    return _prune(witness, partial_tree, (), 1)


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
