"""Digests as columns, shape (n, 32), and bytes of one width as Arrow has them.

A digest of each chain's rows of a table: how what is no queue enters a chain's root.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, count_hashes
from causeway_proofs.order import Rows, group_rows

from causeway.core.frame import Frame
from causeway.core.joins import expand_ranges


def list_digests(column: Digests) -> list[bytes]:
    """Return the rows of a column of digests."""
    return [row.tobytes() for row in column]


def digests(rows: list[bytes]) -> Digests:
    """Return digests as a column, shape (n, 32)."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), DIGEST_BYTES)


def rows_equal(ours: Digests, theirs: Digests) -> npt.NDArray[np.bool_]:
    """Return which rows of two columns of digests are equal."""
    equal: npt.NDArray[np.bool_] = (ours == theirs).all(axis=1)
    return equal


def fixed_column(rows: npt.NDArray[np.uint8]) -> pa.FixedSizeBinaryArray:
    """Return rows of bytes, shape (n, width), as a column of values of that width."""
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, data])


OWN_PALLET = "Causeway"
"""The pallet of what the references of Substrate chains give no storage key."""

EMPTY_TABLE_DIGEST = hashlib.sha256(b"").digest()

MANY = 16
"""Chains from which on it pays to look for those whose rows did not change."""

COMPARED = 1 << 16
"""Rows up to which a table is kept to be compared with the next: where there are more, most chains have new ones."""


@dataclass(frozen=True)
class TableDigests:
    """The digests of one table, and what they are of, so that another table is hashed as far as it differs.

    ``digests``: one a chain; ``rows``: the table by owner, None if it is too long to be compared; ``starts``,
    ``stops``: each chain's rows of it; ``changed``: the chains (their positions in the list) whose digests are not
    taken over.
    """

    digests: list[bytes]
    rows: Frame | None
    starts: Rows
    stops: Rows
    changed: Rows


@dataclass(frozen=True)
class StateDigests:
    """What the roots of a state were made of. ``owners``: what says whose rows are whose, beside the tables; ``roots``:
    None where others than these sections enter them."""

    chains: npt.NDArray[np.uint32]
    owners: Any
    tables: Mapping[str, Frame]
    sections: Mapping[str, TableDigests]
    roots: npt.NDArray[np.uint8] | None

    def is_of(self, chains: npt.NDArray[np.uint32], owners: Any) -> bool:
        """Return whether the sections are of these chains, by the same owners."""
        return self.owners is owners and np.array_equal(self.chains, chains)


@dataclass
class DigestCache:
    """An index that a state carries along, derived from its tables: without it every root is the same."""

    last: StateDigests | None = None


def section_digests(frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return one digest for each of ``chains`` (ascending positions) over its rows; ``owner``: whose each row is.

    Hashed are the rows as they lie, numbers little-endian and for text and bytes the length; then, where there are such
    columns, the content of each, and the number of rows.
    """
    return digest_rows_by_chain(frame, owner, chains).digests


def digest_rows_by_chain(
    frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32], before: TableDigests | None = None
) -> TableDigests:
    """Return ``section_digests`` as a section. ``before``: that of the same table and chains at an earlier time."""
    if len(frame) and not bool((owner[1:] >= owner[:-1]).all()):
        order = np.argsort(owner, kind="stable")
        frame, owner = frame.take(order), owner[order]
    section, hashed = _begun(frame, owner, chains, before)
    if len(hashed) == 0:
        return section
    part, first, end = _part(frame, section.starts[hashed], section.stops[hashed])
    texts = [_content(part[name]) for name in part.names if not isinstance(part[name], np.ndarray)]
    packed = _packed(part)
    rows, width = packed.view(np.uint8).data, packed.dtype.itemsize
    count_hashes(HashFunction.SHA256, len(hashed))
    for chain, start, stop in zip(hashed.tolist(), first.tolist(), end.tolist(), strict=True):
        accumulated = hashlib.sha256(rows[start * width : stop * width])
        for data, offsets in texts:
            accumulated.update(data[offsets[start] : offsets[stop]])
        if texts:
            accumulated.update((stop - start).to_bytes(8, "big"))
        section.digests[chain] = accumulated.digest()
    return section


def digest_columns_by_chain(
    frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32], before: TableDigests | None = None
) -> TableDigests:
    """Return what ``hashed_rows`` does, for long tables of numbers, of which much fewer bytes are hashed.

    Hashed are the number of rows and then the columns, each as its width in bytes (of 0, 1, 2, 4, 8 the least that
    holds the largest number) and the numbers of that width, little-endian.
    """
    if len(frame) and not bool((owner[1:] >= owner[:-1]).all()):
        runs = group_rows(owner)
        order = np.argsort(owner[runs.starts], kind="stable")
        rows = expand_ranges(runs.starts[order], runs.starts[order] + runs.counts[order])[1]
        frame, owner = frame.take(rows), owner[rows]
    section, hashed = _begun(frame, owner, chains, before)
    if len(hashed) == 0:
        return section
    part, first, end = _part(frame, section.starts[hashed], section.stops[hashed])
    columns = [(part[name], _widths(part[name], first, end)) for name in part.names]
    count_hashes(HashFunction.SHA256, len(hashed))
    for row, (chain, start, stop) in enumerate(zip(hashed.tolist(), first.tolist(), end.tolist(), strict=True)):
        accumulated = hashlib.sha256((stop - start).to_bytes(8, "big"))
        for column, widths in columns:
            width = widths[row]
            accumulated.update(_WIDTH_BYTES[width])
            if width:
                accumulated.update(np.ascontiguousarray(column[start:stop], dtype=_OF_WIDTH[width]).data)
        section.digests[chain] = accumulated.digest()
    return section


_OF_WIDTH = {width: np.dtype(f"<u{width}") for width in (1, 2, 4, 8)}
_WIDTH_BYTES = {width: bytes([width]) for width in (0, 1, 2, 4, 8)}
_BOUNDS = np.array([1 << 0, 1 << 8, 1 << 16, 1 << 32], dtype=np.uint64)


def _widths(numbers: npt.NDArray[Any], starts: Rows, stops: Rows) -> list[int]:
    """Return the bytes that the largest of the numbers of each run (none is empty) takes: 0, 1, 2, 4 or 8."""
    if numbers.strides[0] == 0:
        largest = numbers[:1].repeat(len(starts))
    else:
        ends = np.empty(2 * len(starts), dtype=np.int64)
        ends[::2], ends[1::2] = starts, stops
        largest = np.maximum.reduceat(numbers, ends[:-1] if stops[-1] == len(numbers) else ends)[::2]
    widths: list[int] = np.array([0, 1, 2, 4, 8])[np.searchsorted(_BOUNDS, largest, side="right")].tolist()
    return widths


def _begun(
    frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32], before: TableDigests | None
) -> tuple[TableDigests, Rows]:
    """Return the section of a table by owner, its digests as far as they are known, and the chains to be hashed."""
    starts = owner.searchsorted(chains, side="left")
    stops = owner.searchsorted(chains, side="right")
    kept = frame if len(frame) <= COMPARED else None
    if before is None or before.rows is None or kept is None or len(chains) < MANY:
        changed, digests = np.ones(len(chains), dtype=bool), [EMPTY_TABLE_DIGEST] * len(chains)
    else:
        changed, digests = _differing(kept, starts, stops, before.rows, before), before.digests.copy()
    filled = stops > starts
    for chain in (changed & ~filled).nonzero()[0].tolist():
        digests[chain] = EMPTY_TABLE_DIGEST
    section = TableDigests(digests, kept, starts, stops, changed.nonzero()[0])
    return section, (changed & filled).nonzero()[0]


def _differing(now: Frame, starts: Rows, stops: Rows, then: Frame, before: TableDigests) -> npt.NDArray[np.bool_]:
    """Return the chains that have other rows ``now`` than ``then``."""
    counts = stops - starts
    changed: npt.NDArray[np.bool_] = counts != before.stops - before.starts
    same = (~changed).nonzero()[0]
    total = int(counts[same].sum())
    if not total == len(now) == len(then):
        now = now.take(expand_ranges(starts[same], stops[same])[1])
        then = then.take(expand_ranges(before.starts[same], before.stops[same])[1])
    if total == 0:
        return changed
    other = np.zeros(total, dtype=bool)
    for name in now.names:
        ours, theirs = now[name], then[name]
        if ours is theirs:
            continue
        if isinstance(ours, np.ndarray):
            unequal = ours != theirs
            other |= unequal if unequal.ndim == 1 else unequal.any(axis=1)
        elif not ours.equals(theirs):
            changed[:] = True
            return changed
    changed[same[np.searchsorted(np.cumsum(counts[same]), other.nonzero()[0], side="right")]] = True
    return changed


def _part(frame: Frame, starts: Rows, stops: Rows) -> tuple[Frame, Rows, Rows]:
    """Return some runs of a table, which ascend, as a table of its own if that is much less; and where they are in
    it."""
    counts = stops - starts
    total = int(counts.sum())
    if 2 * total > len(frame):
        return frame, starts, stops
    ends = np.cumsum(counts)
    return frame.take(expand_ranges(starts, stops)[1]), ends - counts, ends


def _packed(frame: Frame) -> npt.NDArray[np.void]:
    """Return the frame's rows as they lie: each number little-endian, of text and bytes the length."""
    columns = []
    for name in frame.names:
        column = frame[name]
        if not isinstance(column, np.ndarray):
            column = np.diff(_content(column)[1]).astype(np.uint32)
        columns.append(column)
    packed = np.empty(len(frame), dtype=_row_type(tuple((column.dtype, column.shape[1:]) for column in columns)))
    for name, column in zip(packed.dtype.names or (), columns, strict=True):
        packed[name] = column
    return packed


@lru_cache(maxsize=256)
def _row_type(types: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]) -> np.dtype[np.void]:
    return np.dtype([(f"c{number}", kind, shape) for number, (kind, shape) in enumerate(types)])


def _content(column: Any) -> tuple[memoryview, npt.NDArray[np.int32]]:
    """Return the joined values of a column of text or bytes, and where each begins (one more than there are)."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return memoryview(column.buffers()[2] or b""), offsets[column.offset : column.offset + len(column) + 1]
