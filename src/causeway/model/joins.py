"""Joins of frames by key columns: what a row of one frame is in another; ranges spread out into rows, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.order import U64, WORD_BITS, Rows, bits_of, groups_of, positions_in

FEW = 60
"""Rows of both frames of a ``lookup`` up to which they are faster found one by one than by codes."""


def codes(keys: Sequence[str], *frames: Frame) -> list[U64]:
    """Return one 64-bit code a row for each frame: codes are equal where all ``keys`` are, and order like them.

    The first key is the most significant. Keys are columns of unsigned numbers; codes may be compared over the frames
    of one call only.
    """
    joined = _column(keys[0], frames)
    width = bits_of(joined)
    for key in keys[1:]:
        following = _column(key, frames)
        more = bits_of(following)
        if more == 0:
            continue
        if width + more > WORD_BITS:
            joined, width = _ranked(joined)
        if width + more > WORD_BITS:
            following, more = _ranked(following)
        joined <<= np.uint64(more)
        joined |= following
        width += more
    found: list[U64] = []
    stop = 0
    for frame in frames:
        start, stop = stop, stop + len(frame)
        found.append(joined[start:stop])
    return found


def _column(key: str, frames: Sequence[Frame]) -> U64:
    """Return a column of all frames, joined."""
    return np.concatenate([frame[key] for frame in frames], dtype=np.uint64, casting="unsafe")


def _ranked(column: U64) -> tuple[U64, int]:
    """Return the column with each value replaced by its rank among all of them, and the bits that ranks take."""
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.uint64), max(len(values) - 1, 0).bit_length()


def lookup(table: Frame, asked: Frame, keys: Sequence[str], *, ordered: bool = True) -> Rows:
    """Return, for each row of ``asked``, the row of ``table`` with the same ``keys``, -1 where there is none.

    No two rows of ``table`` agree in all keys. ``ordered``: they ascend by them.
    """
    if len(table) == 0 or len(asked) == 0:
        return np.full(len(asked), -1, dtype=np.int64)
    if len(table) + len(asked) <= FEW:
        rows = {named: row for row, named in enumerate(_tuples(table, keys))}
        return np.array([rows.get(named, -1) for named in _tuples(asked, keys)], dtype=np.int64)
    own, wanted = codes(keys, table, asked)
    if ordered:
        return positions_in(own, wanted)
    order = np.argsort(own, kind="stable")
    found = positions_in(own[order], wanted)
    return np.where(found >= 0, order[found], -1)


def _tuples(frame: Frame, keys: Sequence[str]) -> Iterator[tuple[int, ...]]:
    return zip(*(frame[key].tolist() for key in keys), strict=True)


def over(begin: npt.NDArray[Any], end: npt.NDArray[Any]) -> tuple[Rows, npt.NDArray[Any]]:
    """Return every number of every range ``begin`` to ``end`` - 1, in order: the row of its range, and the number."""
    counts = np.where(end > begin, end - begin, 0).astype(np.int64)
    rows = np.repeat(np.arange(len(begin), dtype=np.int64), counts)
    offset = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, begin[rows] + offset.astype(begin.dtype)


def stretches(numbers: U64, *keys: npt.NDArray[Any]) -> tuple[Rows, U64, U64]:
    """Return the ranges that rows of ``numbers`` make up, the inverse of ``over``: the first row of each, and its ends.

    A range goes on as long as each row has the next number and equal ``keys``; the rows are in such an order that
    neighbours are next to each other. Of a range, ``begin`` to ``end`` - 1 are in it.
    """
    groups = groups_of(numbers - np.arange(len(numbers), dtype=np.uint64), *keys)
    begin = numbers[groups.starts]
    return groups.starts, begin, begin + groups.counts.astype(np.uint64)
