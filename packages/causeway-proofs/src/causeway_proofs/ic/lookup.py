"""What a pruned hash tree says about a path.

Rules of the interface specification, over the nodes of one map without its forks and empty nodes: a label is absent
when it lies between two neighbours that are both shown, or outside the outermost; where a pruned node could hold it,
nothing is known.

The least of a hash tree that still shows some paths: what a witness is made of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from causeway_proofs.errors import MOST_SHOWN_BYTES, hex_text
from causeway_proofs.ic.errors import PathNotProven
from causeway_proofs.ic.hash_tree import Empty, Fork, HashTree, Labeled, Leaf, Pruned, digest
from causeway_proofs.steps import Step


class LookupStatus(Enum):
    """How a lookup ends."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    ERROR = "error"
    """There is a subtree where a leaf was asked for."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result for a leaf; ``value`` is its content when it was found, else empty."""

    status: LookupStatus
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class SubtreeLookup:
    """The result for a subtree; ``subtree`` is set when it was found."""

    status: LookupStatus
    subtree: HashTree | None = None


def lookup_path(tree: HashTree, path: Sequence[bytes]) -> Lookup:
    """Return what ``tree``, well formed, shows of the leaf at ``path``.

    Each lookup reads the maps on its way from end to end; for all leaves at once there is ``hash_tree.leaves``.
    """
    found = lookup_subtree(tree, path)
    node = found.subtree
    if node is None:
        return Lookup(found.status)
    if isinstance(node, Leaf):
        return Lookup(LookupStatus.FOUND, node.value)
    if isinstance(node, Empty):
        return Lookup(LookupStatus.ABSENT)
    return Lookup(LookupStatus.UNKNOWN if isinstance(node, Pruned) else LookupStatus.ERROR)


def lookup_subtree(tree: HashTree, path: Sequence[bytes]) -> SubtreeLookup:
    """Return what ``tree``, well formed, shows of the subtree at ``path``; a leaf or a pruned node is one, too."""
    node = tree
    for label in path:
        place = MapNodes(node).place(label)
        if place.found is None:
            return SubtreeLookup(LookupStatus.ABSENT if place.proves_absence else LookupStatus.UNKNOWN)
        node = place.found.subtree
    return SubtreeLookup(LookupStatus.FOUND, node)


def require_value(tree: HashTree, path: Sequence[bytes]) -> bytes:
    """Return the leaf at ``path``.

    Raises:
        PathNotProven: ``tree`` does not show a leaf there; the message says what it shows.
    """
    found = lookup_path(tree, path)
    if found.status is not LookupStatus.FOUND:
        raise PathNotProven(f"the tree shows no leaf at {format_path(path)}: {_explain(found.status)}")
    return found.value


def require_absent(tree: HashTree, path: Sequence[bytes]) -> None:
    """Return when ``tree`` shows that there is nothing at ``path``.

    Raises:
        PathNotProven: it does not; the message says what it shows.
    """
    status = lookup_path(tree, path).status
    if status is not LookupStatus.ABSENT:
        raise PathNotProven(f"the tree does not show {format_path(path)} to be absent: {_explain(status)}")


def path_steps(tree: HashTree, path: Sequence[bytes]) -> tuple[Step, ...]:
    """Return how the root of ``tree`` is reached from what it shows at ``path``: the leaf first, the root last.

    Of an absent path the first step says so, with the digest of the map that does not hold the label.

    Raises:
        PathNotProven: ``tree`` shows neither a leaf or subtree there nor its absence.
    """
    node = tree
    way: list[list[Step]] = []
    first: Step | None = None
    for at, label in enumerate(path):
        place = MapNodes(node).place(label)
        if place.found is None:
            if not place.proves_absence:
                raise PathNotProven(f"the tree shows nothing of {format_path(path)}: {_explain(LookupStatus.UNKNOWN)}")
            first = Step("absent", f"{format_path(path[: at + 1])} is not in the map", digest(node))
            break
        way.append(_steps_up(node, place.found, place.positions[0]))
        node = place.found.subtree
    if first is None:
        kind = "leaf" if isinstance(node, Leaf) else "pruned" if isinstance(node, Pruned) else "subtree"
        first = Step(kind, format_path(path), digest(node))
    return (first, *(step for steps in reversed(way) for step in steps))


def format_path(path: Sequence[bytes]) -> str:
    """Return ``path`` for a reader: labels of printable letters as they are, others in hexadecimal."""
    return "/" + "/".join(
        label.decode("ascii")
        if 0 < len(label) <= MOST_SHOWN_BYTES and label.isascii() and label.decode("ascii").isprintable()
        else "0x" + hex_text(label)
        for label in path
    )


@dataclass(frozen=True, slots=True)
class LabelPosition:
    """Where a label is in a map, or would be.

    Attributes:
        found: the node with the label, when the map shows one.
        proves_absence: whether the map shows that there is none.
        positions: of the nodes that show either: the node itself; or the neighbours and what lies between them.
    """

    found: Labeled | None
    proves_absence: bool
    positions: tuple[int, ...]


class MapNodes:
    """What the forks at the top of ``tree`` hold: the nodes of one map, to find any number of labels in.

    A node's position is 1 at the top, and below a fork at p it is 2p on the left and 2p + 1 on the right.
    """

    def __init__(self, tree: HashTree) -> None:
        self._nodes: list[tuple[int, HashTree]] = []
        self._labels: list[bytes] = []
        # Where among the nodes each label is.
        self._shown: list[int] = []
        stack = [(1, tree)]
        while stack:
            position, node = stack.pop()
            if isinstance(node, Fork):
                stack += ((2 * position + 1, node.right), (2 * position, node.left))
                continue
            if isinstance(node, Labeled):
                self._labels.append(node.label)
                self._shown.append(len(self._nodes))
            self._nodes.append((position, node))

    def place(self, label: bytes) -> LabelPosition:
        """Find ``label``."""
        rank = bisect_left(self._labels, label)
        after = self._shown[rank] if rank < len(self._shown) else len(self._nodes) - 1
        position, node = self._nodes[after]
        if isinstance(node, Labeled) and node.label == label:
            return LabelPosition(node, False, (position,))
        around = self._nodes[self._shown[rank - 1] if rank else 0 : after + 1]
        # Between the two stands nothing, or pruned nodes that could hold it; empty nodes and leaves hold none.
        hidden = any(isinstance(node, Pruned) for _, node in around)
        return LabelPosition(None, not hidden, tuple(position for position, _ in around))


def _steps_up(top: HashTree, found: Labeled, position: int) -> list[Step]:
    """Return the steps from the node at ``position`` up to the top of its map."""
    steps: list[Step] = []
    node = top
    for bit in bin(position)[3:]:
        assert isinstance(node, Fork)
        steps.append(Step("fork", f"{'left' if bit == '1' else 'right'} sibling", digest(node)))
        node = node.right if bit == "1" else node.left
    steps.append(Step("labeled", format_path([found.label]), digest(found)))
    steps.reverse()
    return steps


def _explain(status: LookupStatus) -> str:
    return {
        LookupStatus.FOUND: "it is there",
        LookupStatus.ABSENT: "it is absent",
        LookupStatus.UNKNOWN: "it is pruned away",
        LookupStatus.ERROR: "it is a subtree",
    }[status]


@dataclass(slots=True)
class _Wanted:
    """What is wanted at a node: all of it, or what lies under some labels."""

    whole: bool = False
    below: dict[bytes, _Wanted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Map:
    """What stays of the map that a node belongs to: positions, and what is wanted below some of them."""

    kept: frozenset[int]
    below: dict[int, _Wanted]


def prune(tree: HashTree, paths: Iterable[Sequence[bytes]]) -> HashTree:
    """Return the least of ``tree``, well formed, that shows what it shows of ``paths``, with the same digest.

    Of a path that leads to a leaf or subtree, all of that stays. Of one that is absent, the neighbours that prove it
    stay, with their subtrees pruned.

    Raises:
        PathNotProven: ``tree`` is itself pruned at one of the paths.
    """
    finished: list[HashTree] = []
    # A map with what is wanted in it; a node of a map at its position; or a node whose parts are on top of finished.
    stack: list[tuple[HashTree, _Wanted | tuple[_Map, int] | None]] = [(tree, _sort_out(paths))]
    while stack:
        node, task = stack.pop()
        if isinstance(task, _Wanted):
            if task.whole and isinstance(node, Pruned):
                raise PathNotProven("the tree is pruned where it is to be shown")
            if task.whole:
                finished.append(node)
            elif not task.below:
                finished.append(_pruned(node))
            else:
                stack.append((node, (_open_map(node, task.below), 1)))
        elif task is None:
            if isinstance(node, Labeled):
                finished.append(Labeled(node.label, finished.pop()))
            else:
                right = finished.pop()
                finished.append(Fork(finished.pop(), right))
        else:
            own, position = task
            if position not in own.kept:
                finished.append(_pruned(node))
            elif isinstance(node, Fork):
                stack += ((node, None), (node.right, (own, 2 * position + 1)), (node.left, (own, 2 * position)))
            elif isinstance(node, Labeled):
                stack += ((node, None), (node.subtree, own.below.get(position, _Wanted())))
            else:
                finished.append(node)
    return finished[0]


def _sort_out(paths: Iterable[Sequence[bytes]]) -> _Wanted:
    top = _Wanted()
    for path in paths:
        level = top
        for label in path:
            level = level.below.setdefault(label, _Wanted())
        level.whole = True
    return top


def _open_map(top: HashTree, below: dict[bytes, _Wanted]) -> _Map:
    nodes = MapNodes(top)
    kept: set[int] = set()
    wanted: dict[int, _Wanted] = {}
    for label, part in below.items():
        place = nodes.place(label)
        if place.found is not None:
            wanted[place.positions[0]] = part
        elif not place.proves_absence:
            raise PathNotProven(f"the tree is pruned where {format_path([label])} could be")
        for position in place.positions:
            # With a node stay the forks above it.
            at = position
            while at and at not in kept:
                kept.add(at)
                at //= 2
    return _Map(frozenset(kept), wanted)


def _pruned(node: HashTree) -> HashTree:
    # An empty node says more in fewer bytes than its digest.
    return node if isinstance(node, Empty) else Pruned(digest(node))
