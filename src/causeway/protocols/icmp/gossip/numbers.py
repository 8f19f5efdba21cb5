"""Digests by numbers: a set of digests in ascending order, in which each has its place as its number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.order import Rows, positions_in
from causeway.proofs.hashing import DIGEST_BYTES, Digests

FEW = 64
"""Digests up to which it does not matter how they are searched."""

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
    leading = _words(known)[:, 0].astype(np.uint64)
    if len(known) == 0 or len(asked) < FEW or (leading[1:] == leading[:-1]).any():
        return positions_in(texts(known), texts(asked))
    # Words are searched several times as fast as texts. Two that begin alike can be made, so that is looked at above.
    words = _words(asked)
    found = positions_in(leading, words[:, 0].astype(np.uint64))
    others = _words(known)
    there = found >= 0
    for place in range(1, words.shape[1]):
        there &= others[found, place] == words[:, place]
    return np.where(there, found, -1)


def _words(column: Digests) -> npt.NDArray[Any]:
    """Return digests as words, shape (n, 4), which order like them."""
    return np.ascontiguousarray(column).reshape(-1, DIGEST_BYTES).view(">u8")
