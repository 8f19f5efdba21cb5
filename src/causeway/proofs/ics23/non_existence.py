"""Non-existence: two neighbouring leaves with nothing between them, or one at the end with nothing beyond it.

Where a step stands among its siblings is read off the lengths of its prefix and suffix. Source: IBC reference 2.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from causeway.proofs.errors import NotProven
from causeway.proofs.ics23.errors import KeyOutOfRange, NotNeighbors, SpecMismatch
from causeway.proofs.ics23.existence import Existence, calculate, existence_of, verify_existence
from causeway.proofs.ics23.operations import do_hash_or_noop
from causeway.proofs.ics23.proof_specs import SpecRules
from causeway.proofs.wire.ics23_pb2 import InnerOp, NonExistenceProof


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


def absence_of(proof: NonExistenceProof) -> Absence:
    """Return what a non-existence proof message says."""
    return Absence(
        proof.key,
        existence_of(proof.left) if proof.HasField("left") else None,
        existence_of(proof.right) if proof.HasField("right") else None,
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
    return calculate(neighbor, rules)


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
