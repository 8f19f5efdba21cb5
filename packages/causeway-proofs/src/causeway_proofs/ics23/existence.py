"""Verify existence and non-existence proofs of ICS-23.

- Existence: a key and value, the leaf operation, and the inner steps from there to the root. The checks run in the
  order of the reference.
- Encoded existence: the deployed stores write few forms of steps. A proof in one of these forms, canonically encoded,
  is verified directly on its bytes by pattern matching. Any other form falls back to the parsed message, with every
  check and error text.
- Non-existence: two adjacent leaves around the key, or one leaf at the end of the tree. The position of a step among
  its siblings follows from the lengths of its prefix and suffix.

Reference:
    IBC reference 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from causeway_proofs.errors import NotProven, RootMismatch
from causeway_proofs.ics23.errors import KeyMismatch, KeyOutOfRange, NotNeighbors, SpecMismatch, ValueMismatch
from causeway_proofs.ics23.proof_specs import (
    LOW_EVEN,
    NUMBER,
    SpecRules,
    StoreForm,
    apply_inner,
    apply_leaf,
    check_inner_against_spec,
    check_leaf_against_spec,
    do_hash_or_noop,
)
from causeway_proofs.limits import MAX_MESSAGE_BYTES
from causeway_proofs.steps import Step
from causeway_proofs.varints import uvarint
from causeway_proofs.wire.ics23_pb2 import ExistenceProof, InnerOp, LeafOp, NonExistenceProof

HASHED_CHILD_SIZE = 32
"""Child size from which a result longer than a child cannot be a child."""


class Existence(NamedTuple):
    """An existence proof, from a plain message or a compressed batch (with shared steps).

    Attributes:
        key: the proven key.
        value: the proven value.
        leaf: the leaf operation; None if the message has none.
        path: the inner steps, from the leaf's parent to the root.
    """

    key: bytes
    value: bytes
    leaf: LeafOp | None
    path: Sequence[InnerOp]


def read_existence(proof: ExistenceProof) -> Existence:
    """Convert an existence proof message."""
    return Existence(proof.key, proof.value, proof.leaf if proof.HasField("leaf") else None, proof.path)


def check_against_spec(proof: Existence, rules: SpecRules) -> None:
    """Check the shapes of leaf, depth and steps against the spec.

    Raises:
        SpecMismatch: a shape differs.
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


def calculate_existence(proof: Existence, rules: SpecRules | None = None) -> bytes:
    """Return the root of a proof; with ``rules``, reject results too long to be a child.

    Raises:
        SpecMismatch: the leaf operation is missing, or a result is too long.
        EmptyOperand, UnsupportedOperation: a step cannot be computed.
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
        SpecMismatch: the proof's shape is not the spec's.
        KeyMismatch, ValueMismatch: the proof is about another entry.
        EmptyOperand, UnsupportedOperation: a step cannot be computed.
    """
    check_against_spec(proof, rules)
    if key != proof.key:
        raise KeyMismatch("provided key doesn't match proof")
    if value != proof.value:
        raise ValueMismatch("provided value doesn't match proof")
    try:
        return calculate_existence(proof, rules)
    except NotProven as error:
        raise type(error)(f"error calculating root, {error}") from None


def verify_existence(proof: Existence, rules: SpecRules, root: bytes, key: bytes, value: bytes) -> None:
    """Verify a proof's shape, key and value, and its root.

    Raises:
        RootMismatch: the proof leads to another root.
        NotProven: as ``prove_existence``.
    """
    if prove_existence(proof, rules, key, value) != root:
        raise RootMismatch("calculated root doesn't match provided root")


def existence_steps(proof: Existence) -> tuple[Step, ...]:
    """Return the steps of a proof, leaf first and root last, without comparing them with a spec.

    Raises:
        SpecMismatch: the leaf operation is missing.
        EmptyOperand, UnsupportedOperation: a step cannot be computed.
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


EXIST = KEY = b"\x0a"
VALUE = b"\x12"
LEAF = b"\x1a"
SIZED_HASH = b"\x20"
"""Length of a hash."""

_SIMPLE_STEPS = re.compile(
    rb"\x22(?:\x27\x08\x01\x12\x01(\x01)\x1a\x20(.{32})|\x25\x08\x01\x12\x21(\x01.{32}))|(.+)", re.DOTALL
).findall
"""Steps with prefix 01: (prefix, suffix), or prefix with left sibling, or anything else."""

_IAVL_LEAF = re.compile(rb"(.)\x08\x01\x18\x01\x20\x01\x2a(.)(\x00\x02" + NUMBER + rb")", re.DOTALL).match
_IAVL_STEPS = re.compile(
    rb"\x22(.\x08\x01\x12.)(" + LOW_EVEN + NUMBER + rb"{2}\x20)(?:\x1a\x21(\x20.{32})|(.{32}\x20))|(.+)", re.DOTALL
).findall
"""Steps with a one-byte height: lengths, numbers, suffix or prefix rest, or anything else."""

_LONGEST_NUMBERS = 12
"""Bytes of an IAVL step's numbers and of the hash length after them."""

_RIGHT_SIBLING = {bytes([4 + size + 35, 8, 1, 0x12, size]): size for size in range(4, _LONGEST_NUMBERS + 1)}
_LEFT_SIBLING = {bytes([4 + size + 33, 8, 1, 0x12, size + 33]): size for size in range(4, _LONGEST_NUMBERS + 1)}
"""Bytes of a step's numbers, by the bytes before its prefix, for steps with a left sibling."""


def encoded_root(rules: SpecRules, proof: bytes, key: bytes, value: bytes) -> bytes | None:
    """Return the root of an encoded existence proof in a store's usual form, else None.

    If a root is returned, the message encoded by ``proof`` passes every check of ``prove_existence`` with the same
    result. None is no verdict: the message has to be verified instead.
    """
    form = rules.form
    if form is StoreForm.OTHER or not key or not value or len(proof) > MAX_MESSAGE_BYTES:
        return None
    sized = uvarint(len(key)) + key
    claim = KEY + sized + VALUE + uvarint(len(value)) + value + LEAF
    if len(proof) < len(claim):
        return None
    # A length up to 127 takes one byte, up to 16383 two.
    whole = len(proof) - (2 if len(proof) < 130 else 3 if len(proof) < 16387 else 4)
    head = EXIST + uvarint(whole)
    if len(head) + whole != len(proof) or not proof.startswith(head + claim):
        return None
    at = len(head) + len(claim)
    if form is StoreForm.IAVL:
        return _iavl_root(rules, proof, at, sized, value)
    leaf = rules.encoded_leaf
    if not proof.startswith(leaf, at):
        return None
    steps = _SIMPLE_STEPS(proof, at + len(leaf))
    if not rules.min_depth <= len(steps) <= rules.max_depth:
        return None
    if form is StoreForm.SPARSE:
        node = sha256(b"\x00" + sha256(key).digest() + sha256(value).digest()).digest()
    else:
        node = sha256(b"\x00" + sized + SIZED_HASH + sha256(value).digest()).digest()
    for prefix, suffix, sibling, other in steps:
        if other:
            return None
        node = sha256(prefix + sibling + node + suffix).digest()
    return node


def existence_root(
    rules: SpecRules, proof: ExistenceProof, key: bytes | None = None, value: bytes | None = None
) -> bytes | None:
    """Return the root of ``proof`` for ``key`` and ``value`` (default: its own).

    None has the meaning of ``encoded_root``.

    Encoding the message again is faster than reading its fields.
    """
    encoded = proof.SerializeToString(deterministic=True)
    key, value = proof.key if key is None else key, proof.value if value is None else value
    return encoded_root(rules, EXIST + uvarint(len(encoded)) + encoded, key, value)


def _iavl_root(rules: SpecRules, proof: bytes, at: int, sized: bytes, value: bytes) -> bytes | None:
    """Return the root; ``at`` is the offset of the leaf operation with its length."""
    leaf = _IAVL_LEAF(proof, at)
    if leaf is None:
        return None
    lengths, numbers = leaf.group(1, 2), leaf.group(3)
    if lengths != (bytes([8 + len(numbers)]), bytes([len(numbers)])):
        return None
    steps = _IAVL_STEPS(proof, leaf.end())
    if not rules.min_depth <= len(steps) <= rules.max_depth:
        return None
    node = sha256(numbers + sized + SIZED_HASH + sha256(value).digest()).digest()
    least_height = 0
    for lengths, numbers, suffix, rest, _ in steps:
        # Zigzag encoding doubles a non-negative height.
        least_height += 2
        size = (_RIGHT_SIBLING if suffix else _LEFT_SIBLING).get(lengths)
        if size != len(numbers) or numbers[0] < least_height:
            return None
        node = sha256(numbers + rest + node + suffix).digest()
    return node


class Absence(NamedTuple):
    """A non-existence proof, from a plain message or a compressed batch.

    Attributes:
        key: the key in the message; may be empty.
        left: the greatest leaf below the key, or None.
        right: the least leaf above the key, or None.
    """

    key: bytes
    left: Existence | None
    right: Existence | None


class Padding(NamedTuple):
    """Lengths, in bytes, of a step's prefix and suffix if its child is a given branch."""

    min_prefix: int
    max_prefix: int
    suffix: int


def read_absence(proof: NonExistenceProof) -> Absence:
    """Convert a non-existence proof message."""
    return Absence(
        proof.key,
        read_existence(proof.left) if proof.HasField("left") else None,
        read_existence(proof.right) if proof.HasField("right") else None,
    )


def key_for_comparison(rules: SpecRules, key: bytes) -> bytes:
    """Return the sort key of ``key`` among the leaves: itself, or its prehash by the spec.

    Raises:
        UnsupportedOperation: the spec's prehash is not defined.
    """
    return do_hash_or_noop(rules.prehash_key, key) if rules.prehash_key_before_comparison else key


def calculate_absence(proof: Absence, rules: SpecRules | None = None) -> bytes:
    """Return the root of the first neighbor.

    Raises:
        SpecMismatch: both neighbors are missing; else as ``calculate_existence``.
    """
    neighbor = proof.left if proof.left is not None else proof.right
    if neighbor is None:
        raise SpecMismatch("nonexistence proof has empty Left and Right proof")
    return calculate_existence(neighbor, rules)


def verify_non_existence(proof: Absence, rules: SpecRules, root: bytes, key: bytes) -> None:
    """Verify that both neighbors are proven, enclose ``key`` and are adjacent.

    Raises:
        KeyOutOfRange: the key does not lie strictly between them.
        NotNeighbors: leaves may exist between them, or beyond the single one.
        NotProven: a neighbor's own proof fails (see ``verify_existence``), or both are missing.
    """
    verify_neighbor_proofs(proof, rules, root)
    require_gap(proof, rules, key)


def require_gap(proof: Absence, rules: SpecRules, key: bytes) -> None:
    """Check that the stored neighbors enclose ``key`` and are adjacent.

    Raises:
        KeyOutOfRange, NotNeighbors, SpecMismatch: as ``require_between`` and ``require_neighbors``.
    """
    require_between(proof, rules, key_for_comparison(rules, key))
    require_neighbors(proof, rules)


def verify_neighbor_proofs(proof: Absence, rules: SpecRules, root: bytes) -> None:
    """Verify that a neighbor is given, and that each given one is stored.

    Raises:
        NotProven: a neighbor's own proof fails (see ``verify_existence``), or both are missing.
    """
    for side, neighbor in (("left", proof.left), ("right", proof.right)):
        if neighbor is None:
            continue
        try:
            verify_existence(neighbor, rules, root, neighbor.key, neighbor.value)
        except NotProven as error:
            raise type(error)(f"{side} proof, {error}") from None
    if proof.left is None and proof.right is None:
        raise SpecMismatch("both left and right proofs missing")


def require_between(proof: Absence, rules: SpecRules, place: bytes) -> None:
    """Check that ``place``, a sort key, lies strictly between the neighbors.

    Raises:
        KeyOutOfRange: it does not.
    """
    if proof.right is not None and place >= key_for_comparison(rules, proof.right.key):
        raise KeyOutOfRange("key is not left of right proof")
    if proof.left is not None and place <= key_for_comparison(rules, proof.left.key):
        raise KeyOutOfRange("key is not right of left proof")


def require_neighbors(proof: Absence, rules: SpecRules) -> None:
    """Check that no leaf lies between the two neighbors, or beyond the single one.

    Raises:
        NotNeighbors: a leaf may lie there.
        SpecMismatch: the spec's child order is invalid.
    """
    left, right = proof.left, proof.right
    if left is None:
        if right is not None and not is_left_most(rules, right.path):
            raise NotNeighbors("left proof missing, right proof must be left-most")
    elif right is None:
        if not is_right_most(rules, left.path):
            raise NotNeighbors("right proof missing, left proof must be right-most")
    elif not is_left_neighbor(rules, left.path, right.path):
        # The reference uses the same text here.
        raise NotNeighbors("right proof missing, left proof must be right-most")


def is_left_most(rules: SpecRules, path: Sequence[InnerOp]) -> bool:
    """Return True if a path leads to the first leaf: all left siblings are empty.

    Raises:
        SpecMismatch: the spec's child order is invalid.
    """
    padding = get_padding(rules, 0)
    return all(has_padding(step, padding) or left_branches_are_empty(rules, step) for step in path)


def is_right_most(rules: SpecRules, path: Sequence[InnerOp]) -> bool:
    """Return True if a path leads to the last leaf: all right siblings are empty.

    Raises:
        SpecMismatch: the spec's child order is invalid.
    """
    padding = get_padding(rules, len(rules.child_order) - 1)
    return all(has_padding(step, padding) or right_branches_are_empty(rules, step) for step in path)


def is_left_neighbor(rules: SpecRules, left: Sequence[InnerOp], right: Sequence[InnerOp]) -> bool:
    """Return True if the leaf of ``right`` directly follows the leaf of ``left``.

    The paths share their steps from the root down. At the first difference, the left branch directly precedes the right
    one; below it, the left path is rightmost and the right path is leftmost.

    Raises:
        SpecMismatch: the spec's child order is invalid.
    """
    left, right = list(left), list(right)
    shared = 0
    for one, other in zip(reversed(left), reversed(right), strict=False):
        if one.prefix != other.prefix or one.suffix != other.suffix:
            break
        shared += 1
    lefts, rights = len(left) - 1 - shared, len(right) - 1 - shared
    if lefts < 0 or rights < 0:
        # One path is a prefix of the other, so they are not two leaves of one tree.
        return False
    return (
        is_left_step(rules, left[lefts], right[rights])
        and is_right_most(rules, left[:lefts])
        and is_left_most(rules, right[:rights])
    )


def is_left_step(rules: SpecRules, left: InnerOp, right: InnerOp) -> bool:
    """Return True if ``left`` is exactly one branch to the left of ``right`` in the same parent."""
    left_branch, right_branch = order_from_padding(rules, left), order_from_padding(rules, right)
    return left_branch is not None and right_branch is not None and right_branch == left_branch + 1


def has_padding(step: InnerOp, padding: Padding) -> bool:
    """Return True if a step's prefix and suffix have the lengths of a branch."""
    return padding.min_prefix <= len(step.prefix) <= padding.max_prefix and len(step.suffix) == padding.suffix


def get_padding(rules: SpecRules, branch: int) -> Padding:
    """Return the lengths around the child for ``branch``.

    Raises:
        SpecMismatch: the spec's child order lacks that branch.
    """
    position = get_position(rules, branch)
    before = position * rules.child_size
    return Padding(
        before + rules.min_prefix_length,
        before + rules.max_prefix_length,
        (len(rules.child_order) - 1 - position) * rules.child_size,
    )


def get_position(rules: SpecRules, branch: int) -> int:
    """Return the position of ``branch`` among the children in a hashed node.

    Raises:
        SpecMismatch: the spec's child order lacks that branch.
    """
    order = rules.child_order
    if not 0 <= branch < len(order):
        raise SpecMismatch(f"invalid branch: {branch}")
    if branch not in order:
        raise SpecMismatch(f"branch {branch} not found in order [{' '.join(map(str, order))}]")
    return order.index(branch)


def order_from_padding(rules: SpecRules, step: InnerOp) -> int | None:
    """Return the branch of a step's child by the lengths around it, or None."""
    for branch in range(len(rules.child_order)):
        if has_padding(step, get_padding(rules, branch)):
            return branch
    return None


def left_branches_are_empty(rules: SpecRules, step: InnerOp) -> bool:
    """Return True if the child has left siblings and all are the spec's empty child."""
    branches = order_from_padding(rules, step)
    if not branches:
        return False
    start = len(step.prefix) - branches * rules.child_size
    return start >= 0 and _are_empty(rules, step.prefix, start, branches)


def right_branches_are_empty(rules: SpecRules, step: InnerOp) -> bool:
    """Return True if the child has right siblings and all are the spec's empty child."""
    branch = order_from_padding(rules, step)
    if branch is None:
        return False
    branches = len(rules.child_order) - 1 - branch
    if branches == 0 or len(step.suffix) != branches * rules.child_size:
        return False
    return _are_empty(rules, step.suffix, 0, branches)


def _are_empty(rules: SpecRules, siblings: bytes, start: int, branches: int) -> bool:
    """Return True if the first ``branches`` children in ``siblings`` are empty."""
    for branch in range(branches):
        place = start + get_position(rules, branch) * rules.child_size
        sibling = siblings[place : place + rules.child_size]
        # A child order that does not ascend may point past the end.
        if len(sibling) != rules.child_size or sibling != rules.empty_child:
            return False
    return True
