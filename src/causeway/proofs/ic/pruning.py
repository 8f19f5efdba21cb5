"""The least of a hash tree that still shows some paths: what a witness is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from causeway.proofs.ic.errors import PathNotProven
from causeway.proofs.ic.hash_tree import Empty, Fork, HashTree, Labeled, Pruned, digest
from causeway.proofs.ic.lookup import MapNodes, name_of


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
            raise PathNotProven(f"the tree is pruned where {name_of([label])} could be")
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
