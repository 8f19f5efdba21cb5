"""Existence: a key with its value, the leaf operation and the steps from there to the root.

Source: IBC reference 2.6, the checks in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from causeway.proofs.errors import NotProven
from causeway.proofs.ics23.errors import KeyMismatch, RootMismatch, SpecMismatch, ValueMismatch
from causeway.proofs.ics23.operations import (
    apply_inner,
    apply_leaf,
    check_inner_against_spec,
    check_leaf_against_spec,
)
from causeway.proofs.ics23.proof_specs import SpecRules
from causeway.proofs.steps import Step
from causeway.proofs.wire.ics23_pb2 import ExistenceProof, InnerOp, LeafOp

HASHED_CHILD_SIZE = 32
"""Where children are at least this long, a step's result longer than a child can be no child of the next."""


class Existence(NamedTuple):
    """An existence proof, whether it came whole or out of a compressed batch (its steps are then shared objects).

    Attributes:
        key: the proven key.
        value: the proven value.
        leaf: the leaf operation; None where the message has none.
        path: the inner steps, from the leaf's parent to the root.
    """

    key: bytes
    value: bytes
    leaf: LeafOp | None
    path: Sequence[InnerOp]


def existence_of(proof: ExistenceProof) -> Existence:
    """Return what an existence proof message says."""
    return Existence(proof.key, proof.value, proof.leaf if proof.HasField("leaf") else None, proof.path)


def check_against_spec(proof: Existence, rules: SpecRules) -> None:
    """Check that leaf, depth and every step have the shape that the spec demands.

    Raises:
        SpecMismatch: one has not.
    """
    leaf, path = proof.leaf, proof.path
    if leaf is None:
        raise SpecMismatch("existence Proof needs defined LeafOp")
    try:
        check_leaf_against_spec(leaf, rules)
    except SpecMismatch as error:
        raise SpecMismatch(f"leaf, {error}") from None
    depth = len(path)
    if depth < rules.min_depth:
        raise SpecMismatch(f"innerOps depth too short: {depth}")
    if depth > rules.max_depth:
        raise SpecMismatch(f"innerOps depth too long: {depth}")
    try:
        for layer, inner in enumerate(path, start=1):
            check_inner_against_spec(inner, rules, layer)
    except SpecMismatch as error:
        raise SpecMismatch(f"inner, {error}") from None


def calculate(proof: Existence, rules: SpecRules | None = None) -> bytes:
    """Return the root that a proof leads to; with ``rules``, refuse results that are too long to be a child.

    Raises:
        SpecMismatch: there is no leaf operation, or a result is too long.
        EmptyOperand, UnsupportedOperation: a step cannot be made.
    """
    key, value, leaf, path = proof
    if leaf is None:
        raise SpecMismatch("existence Proof needs defined LeafOp")
    try:
        node = apply_leaf(leaf, key, value)
    except NotProven as error:
        raise type(error)(f"leaf, {error}") from None
    longest = rules.child_size if rules is not None and rules.child_size >= HASHED_CHILD_SIZE else None
    try:
        for inner in path:
            node = apply_inner(inner, node)
            if longest is not None and len(node) > longest:
                raise SpecMismatch(f"a hash of {len(node)} bytes is no child, which has {longest}")
    except NotProven as error:
        raise type(error)(f"inner, {error}") from None
    return node


def prove_existence(proof: Existence, rules: SpecRules, key: bytes, value: bytes) -> bytes:
    """Return the root under which a proof shows that ``value`` is stored under ``key``.

    Raises:
        SpecMismatch: its shape is not the spec's.
        KeyMismatch, ValueMismatch: it is about something else.
        EmptyOperand, UnsupportedOperation: a step cannot be made.
    """
    check_against_spec(proof, rules)
    if key != proof.key:
        raise KeyMismatch("provided key doesn't match proof")
    if value != proof.value:
        raise ValueMismatch("provided value doesn't match proof")
    try:
        return calculate(proof, rules)
    except NotProven as error:
        raise type(error)(f"error calculating root, {error}") from None


def verify_existence(proof: Existence, rules: SpecRules, root: bytes, key: bytes, value: bytes) -> None:
    """Check that a proof has the spec's shape, is about ``key`` and ``value``, and leads to ``root``.

    Raises:
        RootMismatch: it leads to another root.
        NotProven: as ``prove_existence``.
    """
    if prove_existence(proof, rules, key, value) != root:
        raise RootMismatch("calculated root doesn't match provided root")


def existence_steps(proof: Existence) -> tuple[Step, ...]:
    """Return the steps of a proof, the leaf first, the root last; it is not compared with any spec here.

    Raises:
        SpecMismatch: there is no leaf operation.
        EmptyOperand, UnsupportedOperation: a step cannot be made.
    """
    if proof.leaf is None:
        raise SpecMismatch("existence Proof needs defined LeafOp")
    node = apply_leaf(proof.leaf, proof.key, proof.value)
    steps = [Step("leaf", f"key {proof.key.hex()}, value of {len(proof.value)} bytes", node)]
    for layer, inner in enumerate(proof.path, start=1):
        node = apply_inner(inner, node)
        side = "right" if inner.suffix else "left"
        steps.append(Step("inner", f"layer {layer}, sibling on the {side}", node))
    return tuple(steps)
