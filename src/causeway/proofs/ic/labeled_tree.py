"""Labeled trees: state, or a part of it, as a rose tree whose leaves hold bytes (IC reference 2.9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from causeway.proofs.errors import OverLimit
from causeway.proofs.ic.errors import DecodeError, EncodeError, path_text
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.wire import xnet_pb2

MAX_WIRE_LEVELS = 33
"""Labels on a path, at most: protobuf decoders stop at 100 nested messages, and a level takes three."""

MAX_NODES = 1 << 18
"""Most nodes of a tree, Python objects each. Deployed slices hold at most 10,000 messages, a node each; this allows for
the slices of networks without limits: ``MAX_PROOF_BYTES`` hold at most 144,631 of the shortest with their witness."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf that holds ``value``."""

    value: bytes


@dataclass(frozen=True, slots=True)
class SubTree:
    """An inner node; ``children`` by label, kept in ascending order."""

    children: Mapping[bytes, LabeledTree]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", dict(sorted(self.children.items(), key=lambda child: child[0])))


LabeledTree: TypeAlias = Leaf | SubTree


def encode_labeled_tree(tree: LabeledTree) -> bytes:
    """Return the protobuf form of ``tree``.

    Raises:
        EncodeError: it has more levels than decoders read.
    """
    message = xnet_pb2.LabeledTree()
    open_nodes: list[tuple[LabeledTree, xnet_pb2.LabeledTree, int]] = [(tree, message, 0)]
    while open_nodes:
        node, written, level = open_nodes.pop()
        if level > MAX_WIRE_LEVELS:
            raise EncodeError(f"LabeledTree: more than {MAX_WIRE_LEVELS} levels")
        if isinstance(node, Leaf):
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
                if len(found) + len(node.sub_tree.children) > MAX_NODES:
                    raise OverLimit(f"LabeledTree: more than {MAX_NODES} nodes")
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
        tree = Leaf(node.leaf) if node.WhichOneof("node_enum") == "leaf" else SubTree(own)
        children.setdefault(parent, {})[label] = tree
    return tree
