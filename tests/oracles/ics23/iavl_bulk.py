"""The IAVL+ tree that ascending insertion into an empty tree makes, built at once.

Ascending insertion leaves perfect subtrees on the left of the right spine. A rotation lifts the right child when its
height is two more than the left one's, which happens as it gets its (2 * size of the left + 1)th leaf. So the left part
of n > 1 leaves is the perfect tree of 2**j leaves with 3 * 2**(j - 1) < n <= 3 * 2**j, and the rest is such a tree
again.
"""

from __future__ import annotations

from array import array

import numpy as np
from causeway_proofs.ics23.entries import Entries

from tests.oracles.ics23.iavl_tree import IavlNodes


def left_height(leaves: int) -> int:
    """Return the height of the perfect tree left of the root of ``leaves`` > 1 leaves inserted ascending."""
    return (-(-leaves // 3) - 1).bit_length()


def ascending_tree(nodes: IavlNodes, entries: Entries) -> int:
    """Add the tree of ``entries`` (at least one) to ``nodes`` and return its root: as if inserted one by one."""
    first_entry = len(nodes.keys)
    nodes.keys.extend(entries.keys.to_pylist())
    nodes.values.extend(entries.values.to_pylist())
    count = len(entries)
    heights = []
    remaining = count
    while remaining > 1:
        heights.append(left_height(remaining))
        remaining -= 1 << heights[-1]
    heights.append(0)
    # The perfect trees of the spine are in descending order of size, so each begins at a multiple of its own size.
    level_starts = []
    for height in range(heights[0] + 1):
        covered = sum(1 << other for other in heights if other >= height) >> height
        level_starts.append(len(nodes))
        if height == 0:
            below = np.full(covered, -1)
            _extend(nodes, below, below, 0, first_entry + np.arange(covered))
        else:
            children = level_starts[height - 1] + 2 * np.arange(covered)
            middle = (1 << height) * np.arange(covered) + (1 << (height - 1))
            _extend(nodes, children, children + 1, height, first_entry + middle)
    stop = count
    node = -1
    for height in reversed(heights):
        start = stop - (1 << height)
        perfect = level_starts[height] + (start >> height)
        node = perfect if stop == count else nodes.add_inner(perfect, node, first_entry + stop)
        stop = start
    return node


def _extend(nodes: IavlNodes, left: np.ndarray, right: np.ndarray, height: int, entry: np.ndarray) -> None:
    count = len(entry)
    for column, values in ((nodes.left, left), (nodes.right, right), (nodes.entry, entry)):
        column.frombytes(values.astype(np.int64).tobytes())
    nodes.height.extend(array("b", [height]) * count)
    nodes.size.extend(array("q", [0 if height else 1]) * count)
    nodes.version.extend(array("q", [0]) * count)
