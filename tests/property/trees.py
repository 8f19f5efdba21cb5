"""Trees of given leaves, built at once."""

from __future__ import annotations

import numpy as np

from causeway.model.order import Groups, Rows
from causeway.proofs.hashing import Digests
from causeway.proofs.kept_forest import KeptForest


def built(leaves: Digests, sizes: Rows) -> KeptForest:
    """Return the trees of these leaves, joined."""
    forest, groups = KeptForest(sizes), Groups(np.cumsum(sizes) - sizes, sizes, len(leaves))
    tree, position = groups.spread(np.arange(len(sizes))), groups.ranks()
    forest.leaves[forest.offsets[tree] + position] = leaves
    forest.rehash(tree, position)
    return forest
