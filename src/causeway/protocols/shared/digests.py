"""Digest columns, fixed-width Arrow columns, and digests of each chain's table rows.

Tables other than queues enter a chain's root by these digests.
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
    """Return the rows of a column of digests as bytes."""
    return [row.tobytes() for row in column]


def digests(rows: list[bytes]) -> Digests:
    """Return digests as a column, shape (n, 32)."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), DIGEST_BYTES)


def rows_equal(ours: Digests, theirs: Digests) -> npt.NDArray[np.bool_]:
    """Return a mask of the equal rows of two columns of digests.

    Args:
        ours: Digests, shape (n, 32).
        theirs: Digests, shape (n, 32).
    """
    equal: npt.NDArray[np.bool_] = (ours == theirs).all(axis=1)
    return equal


def fixed_column(rows: npt.NDArray[np.uint8]) -> pa.FixedSizeBinaryArray:
    """Return rows of bytes, shape (n, width), as a fixed-width Arrow column."""
    data = pa.py_buffer(np.ascontiguousarray(rows).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, data])


OWN_PALLET = "Causeway"
"""The pallet of values without a storage key in the references of Substrate chains."""

EMPTY_TABLE_DIGEST = hashlib.sha256(b"").digest()

MANY = 16
"""Minimum number of chains for which unchanged rows are searched."""

COMPARED = 1 << 16
"""Maximum rows of a table that is kept for comparison; in longer tables most chains change."""


@dataclass(frozen=True)
class TableDigests:
    """The digests of one table by chain, with the data to update them incrementally.

    Attributes:
        digests: One digest a chain.
        rows: The table by owner; None if it is too long to compare.
        starts: The first row of each chain.
        stops: The end of each chain's rows.
        changed: The chains (positions in the list) with a recomputed digest.
    """

    digests: list[bytes]
    rows: Frame | None
    starts: Rows
    stops: Rows
    changed: Rows


@dataclass(frozen=True)
class StateDigests:
    """The inputs of the roots of a state.

    Attributes:
        chains: Positions of the chains.
        owners: The object that determines the owners of rows, besides the tables.
        tables: The tables by name.
        sections: Their digests by name.
        roots: The roots; None where other data enter them.
    """

    chains: npt.NDArray[np.uint32]
    owners: Any
    tables: Mapping[str, Frame]
    sections: Mapping[str, TableDigests]
    roots: npt.NDArray[np.uint8] | None

    def is_of(self, chains: npt.NDArray[np.uint32], owners: Any) -> bool:
        """Return True if the sections are of these chains and owners."""
        return self.owners is owners and np.array_equal(self.chains, chains)


@dataclass
class DigestCache:
    """A cache that a state carries; it does not affect roots."""

    last: StateDigests | None = None


def section_digests(frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32]) -> list[bytes]:
    """Return one digest for each of ``chains`` (ascending positions) over its rows.

    The hash covers the packed rows, with numbers little-endian and lengths for text and bytes; then, if there are such
    columns, the content of each and the number of rows.

    Args:
        frame: The table.
        owner: The chain of each row.
        chains: Positions of chains, ascending.
    """
    return digest_rows_by_chain(frame, owner, chains).digests


def digest_rows_by_chain(
    frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32], before: TableDigests | None = None
) -> TableDigests:
    """Return ``section_digests`` as a section that can be updated.

    Args:
        frame: The table.
        owner: The chain of each row.
        chains: Positions of chains, ascending.
        before: The section of the same table and chains at an earlier time, to avoid hashing unchanged rows.
    """
    if len(frame) and not bool((owner[1:] >= owner[:-1]).all()):
        order = np.argsort(owner, kind="stable")
        frame, owner = frame.take(order), owner[order]
    section, hashed = _start_section(frame, owner, chains, before)
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
    """Return digests by chain of a long table of small numbers.

    Far fewer bytes are hashed than in ``digest_rows_by_chain``.

    The hash covers the number of rows and then the columns: the width in bytes (the least of 0, 1, 2, 4, 8 that holds
    the greatest number) and the numbers of that width, little-endian.

    Args:
        frame: The table.
        owner: The chain of each row.
        chains: Positions of chains, ascending.
        before: The section of the same table and chains at an earlier time.
    """
    if len(frame) and not bool((owner[1:] >= owner[:-1]).all()):
        runs = group_rows(owner)
        order = np.argsort(owner[runs.starts], kind="stable")
        rows = expand_ranges(runs.starts[order], runs.starts[order] + runs.counts[order])[1]
        frame, owner = frame.take(rows), owner[rows]
    section, hashed = _start_section(frame, owner, chains, before)
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
    """Return the bytes that the greatest number of each run (not empty) needs: 0, 1, 2, 4 or 8."""
    if numbers.strides[0] == 0:
        largest = numbers[:1].repeat(len(starts))
    else:
        ends = np.empty(2 * len(starts), dtype=np.int64)
        ends[::2], ends[1::2] = starts, stops
        largest = np.maximum.reduceat(numbers, ends[:-1] if stops[-1] == len(numbers) else ends)[::2]
    widths: list[int] = np.array([0, 1, 2, 4, 8])[np.searchsorted(_BOUNDS, largest, side="right")].tolist()
    return widths


def _start_section(
    frame: Frame, owner: npt.NDArray[np.uint32], chains: npt.NDArray[np.uint32], before: TableDigests | None
) -> tuple[TableDigests, Rows]:
    """Return the section of a table by owner with its known digests, and the chains to hash."""
    starts = owner.searchsorted(chains, side="left")
    stops = owner.searchsorted(chains, side="right")
    compared = frame if len(frame) <= COMPARED else None
    if before is None or before.rows is None or compared is None or len(chains) < MANY:
        changed, digests = np.ones(len(chains), dtype=bool), [EMPTY_TABLE_DIGEST] * len(chains)
    else:
        changed, digests = _changed_chains(compared, starts, stops, before.rows, before), before.digests.copy()
    filled = stops > starts
    for chain in (changed & ~filled).nonzero()[0].tolist():
        digests[chain] = EMPTY_TABLE_DIGEST
    section = TableDigests(digests, compared, starts, stops, changed.nonzero()[0])
    return section, (changed & filled).nonzero()[0]


def _changed_chains(now: Frame, starts: Rows, stops: Rows, then: Frame, before: TableDigests) -> npt.NDArray[np.bool_]:
    """Return a mask of the chains with different rows."""
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
    """Return ascending runs of a table and their positions, copied if that is much smaller."""
    counts = stops - starts
    total = int(counts.sum())
    if 2 * total > len(frame):
        return frame, starts, stops
    ends = np.cumsum(counts)
    return frame.take(expand_ranges(starts, stops)[1]), ends - counts, ends


def _packed(frame: Frame) -> npt.NDArray[np.void]:
    """Return the packed rows: numbers little-endian, lengths for text and bytes."""
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
    """Return the joined values of a column of text or bytes, and their offsets."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    column = column.cast(pa.binary())
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return memoryview(column.buffers()[2] or b""), offsets[column.offset : column.offset + len(column) + 1]
