"""Many slices of streams verified at once: from the bytes that are used to the roots that are certified.

A slice of a stream is here its header (bytes), a run of its messages (by the digests of the labeled messages), what is
beside that run in the tree of all messages (``siblings``: ``StreamForest.sides``), and the way from the stream to the
root of its state (``stream_paths``). ``CertifiedStreamSlice`` is the same for one slice, as it travels between subnets.

Everything comes from strangers. What does not fit together is a fault of that slice alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.arrays import byte_column
from causeway.proofs.forest import roots_at, side_positions
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.ic.digest_columns import labeled_digests
from causeway.proofs.ic.digests import FORK_DOMAIN
from causeway.proofs.ic.slice_payload import MESSAGES
from causeway.proofs.ic.stream_paths import PATH_LENGTH, PATH_SIDES, PATH_STEPS, binary_parts, read_paths
from causeway.proofs.ic.stream_tree import fork_headers

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

MOST_MESSAGES = 1 << 62
"""Most messages of a stream that a header may tell of; no stream ever has as many."""


class SliceFault(IntEnum):
    """Why header, messages, siblings and path of a slice do not fit together."""

    NONE = 0
    PATH_LENGTH = PATH_LENGTH
    PATH_STEPS = PATH_STEPS
    PATH_SIDES = PATH_SIDES
    OUTSIDE = 4
    SIBLING_BYTES = 5
    SIBLING_COUNT = 6
    NO_HEADER = 7


def slice_roots(
    headers: pa.BinaryArray,
    destination_ids: Sequence[bytes] | Bytes,
    leaves: Digests,
    counts: Rows,
    first: Integers,
    size: Integers,
    siblings: pa.BinaryArray,
    paths: pa.BinaryArray,
) -> tuple[Digests, npt.NDArray[np.uint8]]:
    """Return the roots to which slices amount, shape (n, 32), and the fault of each (``SliceFault``, 0 if none).

    A slice holds where its root is the certified one. Where there is a fault, the root is all zeros.

    Args:
        headers: the encoded header of each stream.
        destination_ids: the ids of the subnets that the streams lead to, all of one length; or shape (n, length).
        leaves: the digests of the labeled messages, the slices one after the other, shape (m, 32).
        counts: how many of them each slice has, 0 or more.
        first: the position of a slice's first message in its stream: its index less the header's begin; of no meaning
            without messages.
        size: how many messages the stream has by its header.
        siblings: digests, joined: those of ``forest.side_positions``, in its order. A slice without messages of a
            stream with messages has one, that of all messages with their label, ``labeled("messages", root)``; one of
            a stream without messages has none.
        paths: the way of each stream to the root of its state, in the form of ``stream_paths``.

    Raises:
        InvalidInput: columns have other lengths or types.
    """
    ids, headers = _ids(destination_ids), byte_column(headers, nulls=True)
    total = len(headers)
    lengths = (len(ids), len(counts), len(first), len(size), len(siblings), len(paths))
    if set(lengths) != {total} or int(counts.sum()) != len(leaves) or bool((counts < 0).any()):
        raise InvalidInput(f"{total} headers are given with columns of {lengths} and {len(leaves)} leaves")
    offsets, sibling_bytes = binary_parts(siblings)
    ways = read_paths(paths)
    faults = ways.faults.copy()
    # What overflowed where it was computed is too large as a number without a sign.
    start, size = first.astype(np.uint64), size.astype(np.uint64)
    limit = np.uint64(MOST_MESSAGES)
    beyond = (start > limit) | (start + counts.astype(np.uint64) > size)
    faults[(size > limit) | ((counts > 0) & beyond)] = SliceFault.OUTSIDE
    faults[np.diff(offsets) % DIGEST_BYTES != 0] = SliceFault.SIBLING_BYTES
    if headers.null_count:
        faults[headers.is_null().to_numpy(zero_copy_only=False)] = SliceFault.NO_HEADER
    given = np.diff(offsets) // DIGEST_BYTES
    runs = np.flatnonzero((counts > 0) & (faults == 0))
    place, sizes = start[runs].astype(np.int64), size[runs].astype(np.int64)
    needed = np.where(size > 0, 1, 0)
    positions = side_positions(place, counts[runs], sizes)
    needed[runs] = positions.counts(len(runs))
    faults[(faults == 0) & (needed != given)] = SliceFault.SIBLING_COUNT
    fits = faults == 0
    kept = fits[runs]
    if not kept.all():
        runs = runs[kept]
        positions = side_positions(place[kept], counts[runs], sizes[kept])
    messages = np.empty((total, DIGEST_BYTES), dtype=np.uint8)
    if len(runs):
        own = leaves if fits[counts > 0].all() else leaves[np.repeat(fits, counts)]
        sides = _digests(sibling_bytes, offsets[runs], given[runs])
        messages[runs] = labeled_digests(MESSAGES, roots_at(positions, own, counts[runs], sides, FORK_DOMAIN))
    whole = np.flatnonzero(fits & (counts == 0) & (size > 0))
    messages[whole] = _digests(sibling_bytes, offsets[whole], given[whole])
    rows = np.flatnonzero(fits)
    filled = size[rows] > 0
    headers = headers if len(rows) == total else headers.take(pa.array(rows))
    streams = fork_headers(headers, messages[rows[filled]], filled)
    roots = np.zeros((total, DIGEST_BYTES), dtype=np.uint8)
    roots[rows] = ways.roots(rows, ids[rows], streams)
    return roots, faults


def _ids(given: Sequence[bytes] | Bytes) -> Bytes:
    if isinstance(given, np.ndarray):
        return given
    lengths = {len(one) for one in given}
    if len(lengths) > 1:
        raise InvalidInput(f"ids of subnets have {sorted(lengths)} bytes, one length is wanted")
    return np.frombuffer(b"".join(given), dtype=np.uint8).reshape(len(given), lengths.pop() if lengths else 0)


def _digests(data: Bytes, starts: Rows, counts: Rows) -> Digests:
    """Return the digests that stand one behind the other from each of ``starts`` on."""
    ranks = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(starts, counts) + DIGEST_BYTES * ranks
    digests: Digests = data[rows[:, None] + np.arange(DIGEST_BYTES)]
    return digests
