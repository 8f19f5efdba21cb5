"""Digests by numbers: a set of digests in ascending order, in which each has its place as its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.order import Rows, positions_in
from causeway.proofs.hashing import DIGEST_BYTES, Digests

NO_DIGESTS: Digests = np.empty((0, DIGEST_BYTES), dtype=np.uint8)


def texts(column: Digests) -> npt.NDArray[Any]:
    """Return digests, shape (n, 32), as one column of byte strings, which order like them."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(f"S{DIGEST_BYTES}").reshape(-1)


def united(*columns: Digests) -> Digests:
    """Return the digests of all columns, each once, ascending."""
    found = np.unique(texts(np.concatenate(columns)))
    return found.view(np.uint8).reshape(-1, DIGEST_BYTES)


def places(known: Digests, asked: Digests) -> Rows:
    """Return the number of each digest in ``known`` (ascending, each once), -1 where it is absent."""
    return positions_in(texts(known), texts(asked))
