"""Existence: a key with its value, the leaf operation and the steps from there to the root.

Source: IBC reference 2.6, the checks in their order.

Existence proofs of the deployed stores, verified off their encoding, one at a time.

Stores write few forms of steps. Where a proof is made of those, all of it in canonical encoding, there is no need to
make messages of it: what must stand before the steps is written down and compared, and the steps are cut out at once.
Whatever is of another form is left to the message, which has every check and says what is wrong.

Non-existence: two neighbouring leaves with nothing between them, or one at the end with nothing beyond it.

Where a step stands among its siblings is read off the lengths of its prefix and suffix. Source: IBC reference 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from causeway_proofs.errors import NotProven
from causeway_proofs.ics23.errors import (
    KeyMismatch,
    KeyOutOfRange,
    NotNeighbors,
    RootMismatch,
    SpecMismatch,
    ValueMismatch,
)
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


def read_existence(proof: ExistenceProof) -> Existence:
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


def calculate_existence(proof: Existence, rules: SpecRules | None = None) -> bytes:
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
        return calculate_existence(proof, rules)
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


EXIST = KEY = b"\x0a"
VALUE = b"\x12"
LEAF = b"\x1a"
SIZED_HASH = b"\x20"
"""Length of a hash."""

_SIMPLE_STEPS = re.compile(
    rb"\x22(?:\x27\x08\x01\x12\x01(\x01)\x1a\x20(.{32})|\x25\x08\x01\x12\x21(\x01.{32}))|(.+)", re.DOTALL
).findall
"""Steps with prefix 01: prefix and suffix, or prefix with the left sibling; last, all that is no such step."""

_IAVL_LEAF = re.compile(rb"(.)\x08\x01\x18\x01\x20\x01\x2a(.)(\x00\x02" + NUMBER + rb")", re.DOTALL).match
_IAVL_STEPS = re.compile(
    rb"\x22(.\x08\x01\x12.)(" + LOW_EVEN + NUMBER + rb"{2}\x20)(?:\x1a\x21(\x20.{32})|(.{32}\x20))|(.+)", re.DOTALL
).findall
"""Steps whose height has one byte: lengths, numbers, and suffix, or rest of the prefix; last, all that is none."""

_LONGEST_NUMBERS = 12
"""Bytes of an IAVL step's numbers, and of the length of a hash after them."""

_RIGHT_SIBLING = {bytes([4 + size + 35, 8, 1, 0x12, size]): size for size in range(4, _LONGEST_NUMBERS + 1)}
_LEFT_SIBLING = {bytes([4 + size + 33, 8, 1, 0x12, size + 33]): size for size in range(4, _LONGEST_NUMBERS + 1)}
"""The bytes of a step's numbers by what stands before its prefix, with the sibling on that side."""


def encoded_root(rules: SpecRules, proof: bytes, key: bytes, value: bytes) -> bytes | None:
    """Return the root that an encoded CommitmentProof leads to, if it is one of existence in a store's usual form.

    Where there is a root, every check of ``prove_existence`` passes for the message that ``proof`` encodes, and that
    is its result. None says nothing about the proof but that the message must be asked.
    """
    form = rules.form
    if form is StoreForm.OTHER or not key or not value or len(proof) > MAX_MESSAGE_BYTES:
        return None
    sized = uvarint(len(key)) + key
    claim = KEY + sized + VALUE + uvarint(len(value)) + value + LEAF
    if len(proof) < len(claim):
        return None
    # How many bytes the length of the whole has depends on it: one to 127, two to 16383.
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
    """Return the root that the message ``proof`` leads to, for ``key`` and ``value`` (its own by default).

    As ``encoded_root``: encoding a message again takes less time than reading its fields.
    """
    encoded = proof.SerializeToString(deterministic=True)
    key, value = proof.key if key is None else key, proof.value if value is None else value
    return encoded_root(rules, EXIST + uvarint(len(encoded)) + encoded, key, value)


def _iavl_root(rules: SpecRules, proof: bytes, at: int, sized: bytes, value: bytes) -> bytes | None:
    """Return the root; ``at`` is where the leaf operation begins, with its length."""
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
        # Zigzag: a height is written as its double.
        least_height += 2
        size = (_RIGHT_SIBLING if suffix else _LEFT_SIBLING).get(lengths)
        if size != len(numbers) or numbers[0] < least_height:
            return None
        node = sha256(numbers + rest + node + suffix).digest()
    return node


class Absence(NamedTuple):
    """A non-existence proof, whether it came whole or out of a compressed batch.

    Attributes:
        key: the key that the message names; empty where it names none.
        left: the greatest leaf below the key; None where there is none.
        right: the least leaf above the key; None where there is none.
    """

    key: bytes
    left: Existence | None
    right: Existence | None


class Padding(NamedTuple):
    """The lengths, in bytes, that a step's prefix and suffix have when its child is one certain branch."""

    min_prefix: int
    max_prefix: int
    suffix: int


def read_absence(proof: NonExistenceProof) -> Absence:
    """Return what a non-existence proof message says."""
    return Absence(
        proof.key,
        read_existence(proof.left) if proof.HasField("left") else None,
        read_existence(proof.right) if proof.HasField("right") else None,
    )


def key_for_comparison(rules: SpecRules, key: bytes) -> bytes:
    """Return what orders ``key`` among the leaves: the key, or its prehash where the spec says so.

    Raises:
        UnsupportedOperation: the spec's prehash is not defined.
    """
    return do_hash_or_noop(rules.prehash_key, key) if rules.prehash_key_before_comparison else key


def calculate_absence(proof: Absence, rules: SpecRules | None = None) -> bytes:
    """Return the root that the first neighbour leads to.

    Raises:
        SpecMismatch: there is no neighbour; else as ``calculate``.
    """
    neighbor = proof.left if proof.left is not None else proof.right
    if neighbor is None:
        raise SpecMismatch("nonexistence proof has empty Left and Right proof")
    return calculate_existence(neighbor, rules)


def verify_non_existence(proof: Absence, rules: SpecRules, root: bytes, key: bytes) -> None:
    """Check that both neighbours are proven, enclose ``key`` and have nothing between them.

    Raises:
        KeyOutOfRange: the key does not lie strictly between them.
        NotNeighbors: there may be more leaves between them, or beyond the single one.
        NotProven: a neighbour's own proof fails (see ``verify_existence``), or there is none.
    """
    verify_neighbor_proofs(proof, rules, root)
    require_gap(proof, rules, key)


def require_gap(proof: Absence, rules: SpecRules, key: bytes) -> None:
    """Check that the neighbours, which are stored, enclose ``key`` and have nothing between them.

    Raises:
        KeyOutOfRange, NotNeighbors, SpecMismatch: as ``require_between`` and ``require_neighbors``.
    """
    require_between(proof, rules, key_for_comparison(rules, key))
    require_neighbors(proof, rules)


def verify_neighbor_proofs(proof: Absence, rules: SpecRules, root: bytes) -> None:
    """Check that there is a neighbour, and that each is stored.

    Raises:
        NotProven: one's own proof fails (see ``verify_existence``), or there is none.
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
    """Check that ``place``, a key as it is compared, lies strictly between the neighbours.

    Raises:
        KeyOutOfRange: it does not.
    """
    if proof.right is not None and place >= key_for_comparison(rules, proof.right.key):
        raise KeyOutOfRange("key is not left of right proof")
    if proof.left is not None and place <= key_for_comparison(rules, proof.left.key):
        raise KeyOutOfRange("key is not right of left proof")


def require_neighbors(proof: Absence, rules: SpecRules) -> None:
    """Check that no leaf lies between the two, or beyond the single one.

    Raises:
        NotNeighbors: one may.
        SpecMismatch: the spec's order of children is not a valid one.
    """
    left, right = proof.left, proof.right
    if left is None:
        if right is not None and not is_left_most(rules, right.path):
            raise NotNeighbors("left proof missing, right proof must be left-most")
    elif right is None:
        if not is_right_most(rules, left.path):
            raise NotNeighbors("right proof missing, left proof must be right-most")
    elif not is_left_neighbor(rules, left.path, right.path):
        # The reference has this text for this case, too.
        raise NotNeighbors("right proof missing, left proof must be right-most")


def is_left_most(rules: SpecRules, path: Sequence[InnerOp]) -> bool:
    """Return whether a path leads to the first leaf: no step has anything but empty siblings on its left.

    Raises:
        SpecMismatch: the spec's order of children is not a valid one.
    """
    padding = get_padding(rules, 0)
    return all(has_padding(step, padding) or left_branches_are_empty(rules, step) for step in path)


def is_right_most(rules: SpecRules, path: Sequence[InnerOp]) -> bool:
    """Return whether a path leads to the last leaf: no step has anything but empty siblings on its right.

    Raises:
        SpecMismatch: the spec's order of children is not a valid one.
    """
    padding = get_padding(rules, len(rules.child_order) - 1)
    return all(has_padding(step, padding) or right_branches_are_empty(rules, step) for step in path)


def is_left_neighbor(rules: SpecRules, left: Sequence[InnerOp], right: Sequence[InnerOp]) -> bool:
    """Return whether ``right`` leads to the leaf that follows the one that ``left`` leads to.

    From the root down the two share steps; at the first that differ, the left one must be one branch before the right
    one, and below them nothing may lie to the right of the left path nor to the left of the right path.

    Raises:
        SpecMismatch: the spec's order of children is not a valid one.
    """
    left, right = list(left), list(right)
    shared = 0
    for one, other in zip(reversed(left), reversed(right), strict=False):
        if one.prefix != other.prefix or one.suffix != other.suffix:
            break
        shared += 1
    lefts, rights = len(left) - 1 - shared, len(right) - 1 - shared
    if lefts < 0 or rights < 0:
        # One path ends where the other goes on, or both are the same: no two leaves of one tree.
        return False
    return (
        is_left_step(rules, left[lefts], right[rights])
        and is_right_most(rules, left[:lefts])
        and is_left_most(rules, right[:rights])
    )


def is_left_step(rules: SpecRules, left: InnerOp, right: InnerOp) -> bool:
    """Return whether ``left``, a step of the same parent, is exactly one branch to the left of ``right``."""
    left_branch, right_branch = order_from_padding(rules, left), order_from_padding(rules, right)
    return left_branch is not None and right_branch is not None and right_branch == left_branch + 1


def has_padding(step: InnerOp, padding: Padding) -> bool:
    """Return whether a step's prefix and suffix have the lengths of a branch."""
    return padding.min_prefix <= len(step.prefix) <= padding.max_prefix and len(step.suffix) == padding.suffix


def get_padding(rules: SpecRules, branch: int) -> Padding:
    """Return the lengths around the child when it is ``branch``.

    Raises:
        SpecMismatch: the spec's order of children does not have that branch.
    """
    position = get_position(rules, branch)
    before = position * rules.child_size
    return Padding(
        before + rules.min_prefix_length,
        before + rules.max_prefix_length,
        (len(rules.child_order) - 1 - position) * rules.child_size,
    )


def get_position(rules: SpecRules, branch: int) -> int:
    """Return where ``branch`` stands among the children in a hashed node.

    Raises:
        SpecMismatch: the spec's order of children does not have it.
    """
    order = rules.child_order
    if not 0 <= branch < len(order):
        raise SpecMismatch(f"invalid branch: {branch}")
    if branch not in order:
        raise SpecMismatch(f"branch {branch} not found in order [{' '.join(map(str, order))}]")
    return order.index(branch)


def order_from_padding(rules: SpecRules, step: InnerOp) -> int | None:
    """Return which branch the child of a step is, by the lengths around it; None where they fit no branch."""
    for branch in range(len(rules.child_order)):
        if has_padding(step, get_padding(rules, branch)):
            return branch
    return None


def left_branches_are_empty(rules: SpecRules, step: InnerOp) -> bool:
    """Return whether all siblings to the left of the child, at least one, are the spec's empty child."""
    branches = order_from_padding(rules, step)
    if not branches:
        return False
    start = len(step.prefix) - branches * rules.child_size
    return start >= 0 and _are_empty(rules, step.prefix, start, branches)


def right_branches_are_empty(rules: SpecRules, step: InnerOp) -> bool:
    """Return whether all siblings to the right of the child, at least one, are the spec's empty child."""
    branch = order_from_padding(rules, step)
    if branch is None:
        return False
    branches = len(rules.child_order) - 1 - branch
    if branches == 0 or len(step.suffix) != branches * rules.child_size:
        return False
    return _are_empty(rules, step.suffix, 0, branches)


def _are_empty(rules: SpecRules, siblings: bytes, start: int, branches: int) -> bool:
    """Return whether the children of ``siblings``, in the order of the first ``branches``, are empty ones."""
    for branch in range(branches):
        place = start + get_position(rules, branch) * rules.child_size
        sibling = siblings[place : place + rules.child_size]
        # An order of children that is not ascending may point past the end.
        if len(sibling) != rules.child_size or sibling != rules.empty_child:
            return False
    return True
