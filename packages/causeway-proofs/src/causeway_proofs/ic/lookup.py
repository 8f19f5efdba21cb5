"""Look up paths in a pruned hash tree, and prune a tree to some paths.

Rules of the interface specification, over the nodes of one map without its forks and empty nodes: a label is absent if
it lies between two adjacent shown labels, or outside the outermost. If a pruned node could hold it, the result is
unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from causeway_proofs.ic.errors import PathNotProven, path_text
from causeway_proofs.ic.hash_tree import Empty, Fork, HashTree, Labeled, Leaf, Pruned, digest
from causeway_proofs.steps import Step


class LookupStatus(Enum):
    """Result of a lookup."""

    FOUND = "found"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    ERROR = "error"
    """A subtree stands in place of the requested leaf."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result for a leaf.

    Attributes:
        status: the result.
        value: content of a found leaf, else empty.
    """

    status: LookupStatus
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class SubtreeLookup:
    """Result for a subtree.

    Attributes:
        status: the result.
        subtree: the found subtree, or None.
    """

    status: LookupStatus
    subtree: HashTree | None = None


def lookup_path(tree: HashTree, path: Sequence[bytes]) -> Lookup:
    """Look up the leaf at ``path``.

    Each lookup scans the maps on its path; ``hash_tree.leaves`` yields all leaves at once.

    Args:
        tree: a well-formed tree.
        path: labels from the root.

    Returns:
        The result.
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
    """Look up the subtree at ``path``; a leaf or a pruned node counts as one.

    Args:
        tree: a well-formed tree.
        path: labels from the root.

    Returns:
        The result.
    """
    node = tree
    for label in path:
        place = MapNodes(node).place(label)
        if place.found is None:
            return SubtreeLookup(LookupStatus.ABSENT if place.proves_absence else LookupStatus.UNKNOWN)
        node = place.found.subtree
    return SubtreeLookup(LookupStatus.FOUND, node)


def require_value(tree: HashTree, path: Sequence[bytes]) -> bytes:
    """Return the leaf at ``path``.

    Args:
        tree: a well-formed tree.
        path: labels from the root.

    Returns:
        The leaf's content.

    Raises:
        PathNotProven: ``tree`` does not show a leaf there; the message states what it shows.
    """
    found = lookup_path(tree, path)
    if found.status is not LookupStatus.FOUND:
        raise PathNotProven(f"the tree shows no leaf at {path_text(path)}: {_explain(found.status)}")
    return found.value


def require_absent(tree: HashTree, path: Sequence[bytes]) -> None:
    """Require that ``tree`` shows the absence of ``path``.

    Args:
        tree: a well-formed tree.
        path: labels from the root.

    Raises:
        PathNotProven: it does not; the message states what it shows.
    """
    status = lookup_path(tree, path).status
    if status is not LookupStatus.ABSENT:
        raise PathNotProven(f"the tree does not show {path_text(path)} to be absent: {_explain(status)}")


def path_steps(tree: HashTree, path: Sequence[bytes]) -> tuple[Step, ...]:
    """Return the steps from the content of ``path`` to the root of ``tree``.

    The first step of an absent path states the absence, with the digest of the map without the label.

    Args:
        tree: a well-formed tree.
        path: labels from the root.

    Returns:
        The steps, leaf first, root last.

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
                raise PathNotProven(f"the tree shows nothing of {path_text(path)}: {_explain(LookupStatus.UNKNOWN)}")
            first = Step("absent", f"{path_text(path[: at + 1])} is not in the map", digest(node))
            break
        way.append(_steps_up(node, place.found, place.positions[0]))
        node = place.found.subtree
    if first is None:
        kind = "leaf" if isinstance(node, Leaf) else "pruned" if isinstance(node, Pruned) else "subtree"
        first = Step(kind, path_text(path), digest(node))
    return (first, *(step for steps in reversed(way) for step in steps))


@dataclass(frozen=True, slots=True)
class LabelPosition:
    """Position of a label in a map.

    Attributes:
        found: the node with the label, if shown.
        proves_absence: True if the map shows that the label is absent.
        positions: the found node, or the neighbors that prove absence and everything between them.
    """

    found: Labeled | None
    proves_absence: bool
    positions: tuple[int, ...]


class MapNodes:
    """The nodes of one map below the forks at the top of ``tree``, indexed for lookups.

    Positions: 1 at the top; below a fork at p, 2p on the left and 2p + 1 on the right.
    """

    def __init__(self, tree: HashTree) -> None:
        self._nodes: list[tuple[int, HashTree]] = []
        self._labels: list[bytes] = []
        # Index of each label among the nodes.
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
        # Only pruned nodes between the two could hold the label, not empty nodes or leaves.
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
    steps.append(Step("labeled", path_text([found.label]), digest(found)))
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
class _Request:
    """The requested part of a node: all of it, or the content of some labels."""

    whole: bool = False
    below: dict[bytes, _Request] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RetainedMap:
    """The retained part of a node's map: positions, and requests below some of them."""

    retained: frozenset[int]
    below: dict[int, _Request]


def prune(tree: HashTree, paths: Iterable[Sequence[bytes]]) -> HashTree:
    """Prune ``tree`` to the minimum that shows the same of ``paths``, with the same digest.

    A path to a leaf or subtree retains all of it. An absent path retains the neighbors that prove it, with their
    subtrees pruned.

    Args:
        tree: a well-formed tree.
        paths: paths to retain.

    Returns:
        The pruned tree.

    Raises:
        PathNotProven: ``tree`` is itself pruned at a path.
    """
    finished: list[HashTree] = []
    # Tasks: a map with its request; a node at its position; a node to rebuild from the top of finished.
    stack: list[tuple[HashTree, _Request | tuple[_RetainedMap, int] | None]] = [(tree, _sort_out(paths))]
    while stack:
        node, task = stack.pop()
        if isinstance(task, _Request):
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
            if position not in own.retained:
                finished.append(_pruned(node))
            elif isinstance(node, Fork):
                stack += ((node, None), (node.right, (own, 2 * position + 1)), (node.left, (own, 2 * position)))
            elif isinstance(node, Labeled):
                stack += ((node, None), (node.subtree, own.below.get(position, _Request())))
            else:
                finished.append(node)
    return finished[0]


def _sort_out(paths: Iterable[Sequence[bytes]]) -> _Request:
    top = _Request()
    for path in paths:
        level = top
        for label in path:
            level = level.below.setdefault(label, _Request())
        level.whole = True
    return top


def _open_map(top: HashTree, below: dict[bytes, _Request]) -> _RetainedMap:
    nodes = MapNodes(top)
    retained: set[int] = set()
    requests: dict[int, _Request] = {}
    for label, part in below.items():
        place = nodes.place(label)
        if place.found is not None:
            requests[place.positions[0]] = part
        elif not place.proves_absence:
            raise PathNotProven(f"the tree is pruned where {path_text([label])} could be")
        for position in place.positions:
            # A retained node retains the forks above it.
            at = position
            while at and at not in retained:
                retained.add(at)
                at //= 2
    return _RetainedMap(frozenset(retained), requests)


def _pruned(node: HashTree) -> HashTree:
    # An empty node is shorter than its digest and shows more.
    return node if isinstance(node, Empty) else Pruned(digest(node))
