"""Witnesses: a hash tree without its data, as it travels with a part of a labeled tree (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from causeway.proofs.errors import OverLimit
from causeway.proofs.hashing import DIGEST_BYTES
from causeway.proofs.ic.errors import DecodeError, EncodeError
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.wire import xnet_pb2

MAX_WIRE_LEVELS = 49
"""Nodes above a node, at most: protobuf decoders stop at 100 nested messages, and a level takes two."""

MAX_NODES = 1 << 19
"""Most nodes of a witness, Python objects each. Deployed slices hold at most 10,000 messages, whose witnesses have some
30,000 nodes; this allows for the slices of networks without limits: of the shortest messages (19 bytes, and 39 more for
labels and forks) ``MAX_PROOF_BYTES`` hold at most 144,631, with three nodes each."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Two neighbouring parts of a subtree's children, the left one with the smaller labels."""

    left: Witness
    right: Witness


@dataclass(frozen=True, slots=True)
class Node:
    """A child of a subtree, and what is below it."""

    label: bytes
    sub_witness: Witness


@dataclass(frozen=True, slots=True)
class Pruned:
    """What is left out, by its digest (32 bytes)."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """What the labeled tree has: a leaf, or a subtree without children."""


KNOWN = Known()

Witness: TypeAlias = Fork | Node | Pruned | Known


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
            case Fork():
                open_nodes.append((node.left, written.fork.left_tree, level + 1))
                open_nodes.append((node.right, written.fork.right_tree, level + 1))
            case Node():
                written.node.label = node.label
                open_nodes.append((node.sub_witness, written.node.sub_witness, level + 1))
            case Pruned():
                written.pruned.digest = node.digest
            case Known():
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
                made.append(Fork(made[taken + 1], made[taken]))
                taken += 2
            case "node":
                made.append(Node(node.node.label, made[taken]))
                taken += 1
            case "pruned":
                made.append(Pruned(node.pruned.digest))
            case _:
                made.append(KNOWN)
    return made[-1]


def sub_witness(witness: Witness, label: bytes) -> Witness | None:
    """Return what is below the child ``label`` of the subtree that ``witness`` is of, None if it is not there."""
    open_nodes = [witness]
    while open_nodes:
        match open_nodes.pop():
            case Fork(left, right):
                open_nodes += [right, left]
            case Node(found, below) if found == label:
                return below
    return None


def first_sub_witness(witness: Witness) -> Node | None:
    """Return the first child that is not pruned of the subtree that ``witness`` is of, None if all are."""
    open_nodes = [witness]
    while open_nodes:
        match open_nodes.pop():
            case Fork(left, right):
                open_nodes += [right, left]
            case Node() as node:
                return node
    return None
