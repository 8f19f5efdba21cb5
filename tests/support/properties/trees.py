"""Trees of given leaves, built at once."""

from __future__ import annotations

import numpy as np
from causeway_proofs.hashing import Digests
from causeway_proofs.merkle_forest import MerkleForest
from causeway_proofs.order import Groups, Rows


def built(leaves: Digests, sizes: Rows) -> MerkleForest:
    """Return the trees of these leaves, joined."""
    forest, groups = MerkleForest(sizes), Groups(np.cumsum(sizes) - sizes, sizes, len(leaves))
    tree, position = groups.spread(np.arange(len(sizes))), groups.ranks()
    forest.leaves[forest.offsets[tree] + position] = leaves
    forest.rehash(tree, position)
    return forest
