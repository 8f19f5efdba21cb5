"""Verify many stream slices at once: from the received bytes to the certified roots.

Here a slice is its header (bytes), a run of its messages (labeled digests), the digests beside that run in the tree of
all messages (``siblings``: ``StreamForest.sides``), and the path from the stream to the root of its state.
``CertifiedStreamSlice`` is the form of one slice in transit. All input is untrusted; a fault affects only its own
slice.

An encoded path has two bytes, the numbers n1 and n2 of forks below and above the label ``streams``, then 33 bytes a
fork: the side of the sibling (0 left, 1 right) and its digest. From a stream's root to its state's root lead the
stream's label (the destination subnet), n1 forks, the label ``streams`` and n2 forks (IC reference 2.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.arrays import byte_column
from causeway_proofs.errors import InvalidInput, MalformedProof, OverLimit
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs
from causeway_proofs.ic.digest_columns import LEFT, RIGHT, STEP_BYTES, ForkSteps, identified_digests, labeled_digests
from causeway_proofs.ic.hash_tree import FORK_DOMAIN, fork_digest, labeled_digest
from causeway_proofs.ic.slice_payload import MESSAGES, STREAMS
from causeway_proofs.ic.stream_tree import fork_headers
from causeway_proofs.ic.witness import Witness, WitnessFork, WitnessNode, WitnessPruned
from causeway_proofs.limits import MAX_DEPTH
from causeway_proofs.merkle_forest import roots_at, side_positions
from causeway_proofs.order import Rows

Bytes = npt.NDArray[np.uint8]

MAX_STEPS = MAX_DEPTH
"""Most forks of a path; a deployed subnet has about two dozen."""

_COUNT_BYTES = 2
_MOST_BYTES = (1 << 31) - 1
_OFFSETS = np.arange(DIGEST_BYTES)

PATH_LENGTH, PATH_STEPS, PATH_SIDES = range(1, 4)
"""Faults of a path."""

_TEXTS = {
    PATH_LENGTH: "the path of a stream has another length than its first two bytes, the counts of forks, say",
    PATH_STEPS: f"the path of a stream has more than {MAX_STEPS} forks",
    PATH_SIDES: f"the path of a stream has a fork with another side than {LEFT}, left, and {RIGHT}, right",
}


@dataclass(frozen=True)
class StreamPaths:
    """Decoded paths.

    Attributes:
        below, above: number of forks below and above the label ``streams``; 0 for a malformed path.
        faults: 0, or the fault.
        starts: position of the first fork of each path in ``data``.
    """

    below: Rows
    above: Rows
    faults: Bytes
    starts: Rows
    data: Bytes

    def roots(self, rows: Rows, destinations: Bytes, stream_roots: Digests) -> Digests:
        """Return the state roots computed along the paths of ``rows``, shape (len(rows), 32).

        ``destinations``: ids of the streams' destination subnets, shape (len(rows), width).
        """
        below, above, starts = self.below[rows], self.above[rows], self.starts[rows]
        nodes = self._wrap_forks(identified_digests(destinations, stream_roots), starts, below)
        return self._wrap_forks(labeled_digests(STREAMS, nodes), starts + STEP_BYTES * below, above)

    def _wrap_forks(self, nodes: Digests, starts: Rows, counts: Rows) -> Digests:
        for level in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(counts > level)
            at = starts[rows] + STEP_BYTES * level
            siblings, own = self.data[(at + 1)[:, None] + _OFFSETS], nodes[rows]
            left = (self.data[at] == LEFT)[:, None]
            nodes[rows] = digest_pairs(
                HashFunction.SHA256, FORK_DOMAIN, np.where(left, siblings, own), np.where(left, own, siblings)
            )
        return nodes


def read_paths(paths: pa.BinaryArray) -> StreamPaths:
    """Decode untrusted paths; a null is malformed like an empty value."""
    offsets, data = binary_parts(paths)
    lengths = np.diff(offsets)
    faults = np.zeros(len(paths), dtype=np.uint8)
    counts = np.zeros((2, len(paths)), dtype=np.int64)
    counted = np.flatnonzero(lengths >= _COUNT_BYTES)
    starts = offsets[:-1] + _COUNT_BYTES
    for number in range(2):
        counts[number, counted] = data[offsets[counted] + number]
    steps = counts.sum(axis=0)
    faults[steps > MAX_STEPS] = PATH_STEPS
    faults[lengths != _COUNT_BYTES + STEP_BYTES * steps] = PATH_LENGTH
    counts[:, faults > 0] = 0
    steps = counts.sum(axis=0)
    ranks = np.arange(int(steps.sum())) - np.repeat(np.cumsum(steps) - steps, steps)
    foreign = data[np.repeat(starts, steps) + STEP_BYTES * ranks] > RIGHT
    faults[np.repeat(np.arange(len(paths)), steps)[foreign]] = PATH_SIDES
    counts[:, faults > 0] = 0
    return StreamPaths(counts[0], counts[1], faults, starts, data)


def binary_parts(column: pa.BinaryArray) -> tuple[Rows, Bytes]:
    """Return a column's offsets and data; nulls count as empty.

    Raises:
        InvalidInput: the column is not a byte column, or is corrupted.
    """
    column = byte_column(column, nulls=True)
    if column.null_count:
        column = column.fill_null(b"")
    _, ends, content = column.buffers()
    if ends is None or len(column) == 0:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(ends, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    return offsets, np.frombuffer(content if content is not None else b"", dtype=np.uint8)


def encode_paths(below: ForkSteps, above: ForkSteps) -> pa.BinaryArray:
    """Encode paths from their forks below and above the label ``streams``.

    Raises:
        OverLimit: the paths take 2 GiB or more.
    """
    steps = np.concatenate([below.steps, above.steps], axis=1)
    used = np.concatenate([below.used, above.used], axis=1)
    offsets = np.zeros(len(steps) + 1, dtype=np.int64)
    np.cumsum(_COUNT_BYTES + STEP_BYTES * used.sum(axis=1), out=offsets[1:])
    if offsets[-1] > _MOST_BYTES:
        raise OverLimit(f"the paths of {len(steps)} streams to their roots take {offsets[-1]} bytes")
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    is_step = np.ones(len(data), dtype=bool)
    for at, count in enumerate((below.used.sum(axis=1), above.used.sum(axis=1))):
        data[offsets[:-1] + at] = count
        is_step[offsets[:-1] + at] = False
    data[is_step] = steps[used].reshape(-1)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(steps), buffers)


Step = tuple[int, bytes]
"""A fork on a path: side of the sibling (``LEFT``, ``RIGHT``) and its digest."""

Forks = tuple[list[Step], list[Step]]
"""The forks of one path below and above the label ``streams``."""


def decode_path(path: bytes) -> Forks:
    """Decode one path to its forks below and above the label ``streams``.

    Raises:
        MalformedProof: ``path`` is malformed.
    """
    forks = sum(path[:_COUNT_BYTES])
    if len(path) < _COUNT_BYTES or len(path) != _COUNT_BYTES + STEP_BYTES * forks:
        raise MalformedProof(_TEXTS[PATH_LENGTH])
    if forks > MAX_STEPS:
        raise MalformedProof(_TEXTS[PATH_STEPS])
    steps = [path[start : start + STEP_BYTES] for start in range(_COUNT_BYTES, len(path), STEP_BYTES)]
    if any(step[0] > RIGHT for step in steps):
        raise MalformedProof(_TEXTS[PATH_SIDES])
    found = [(step[0], step[1:]) for step in steps]
    return found[: path[0]], found[path[0] :]


def path_root(path: Forks, subnet: bytes, stream: bytes) -> bytes:
    """Return the root of a state with root ``stream`` for the stream to ``subnet``."""
    below, above = path
    return _apply_steps(labeled_digest(STREAMS, _apply_steps(labeled_digest(subnet, stream), below)), above)


def path_witness(path: Forks, subnet: bytes, stream: Witness) -> Witness:
    """Extend ``stream``, the witness of the stream to ``subnet``, to a witness of the state."""
    below, above = path
    return _wrap_forks(WitnessNode(STREAMS, _wrap_forks(WitnessNode(subnet, stream), below)), above)


def _apply_steps(digest: bytes, steps: Sequence[Step]) -> bytes:
    for side, sibling in steps:
        digest = fork_digest(sibling, digest) if side == LEFT else fork_digest(digest, sibling)
    return digest


def _wrap_forks(witness: Witness, steps: Sequence[Step]) -> Witness:
    for side, sibling in steps:
        witness = (
            WitnessFork(WitnessPruned(sibling), witness)
            if side == LEFT
            else WitnessFork(witness, WitnessPruned(sibling))
        )
    return witness


ByteArray = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64] | npt.NDArray[np.uint64]

MOST_MESSAGES = 1 << 62
"""Most messages of a stream that a header may state, far above any real stream."""


class SliceFault(IntEnum):
    """Mismatch between header, messages, siblings and path of a slice."""

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
    destination_ids: Sequence[bytes] | ByteArray,
    leaves: Digests,
    counts: Rows,
    first: Integers,
    size: Integers,
    siblings: pa.BinaryArray,
    paths: pa.BinaryArray,
) -> tuple[Digests, npt.NDArray[np.uint8]]:
    """Return the state root computed from each slice, and its fault.

    A slice is valid if its root is the certified one. A faulty slice has an all-zero root.

    Args:
        headers: encoded header of each stream.
        destination_ids: ids of the destination subnets, all of one length; or shape (n, length).
        leaves: labeled digests of the messages, slice after slice, shape (m, 32).
        counts: messages of each slice, 0 or more.
        first: position of a slice's first message in its stream: its index less the header's begin; ignored without
            messages.
        size: messages of the stream according to its header.
        siblings: concatenated digests, in the order of ``merkle_forest.side_positions``. A slice without messages of a
            stream with messages has one, that of the labeled messages, ``labeled("messages", root)``; a stream without
            messages has none.
        paths: path of each stream to the root of its state.

    Returns:
        Roots, shape (n, 32), and faults (``SliceFault``, 0 for none), shape (n,).

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
    # An overflowed value is too large as an unsigned number.
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
    valid = fits[runs]
    if not valid.all():
        runs = runs[valid]
        positions = side_positions(place[valid], counts[runs], sizes[valid])
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


def _ids(given: Sequence[bytes] | ByteArray) -> ByteArray:
    if isinstance(given, np.ndarray):
        return given
    lengths = {len(one) for one in given}
    if len(lengths) > 1:
        raise InvalidInput(f"ids of subnets have {sorted(lengths)} bytes, one length is wanted")
    return np.frombuffer(b"".join(given), dtype=np.uint8).reshape(len(given), lengths.pop() if lengths else 0)


def _digests(data: ByteArray, starts: Rows, counts: Rows) -> Digests:
    """Return the consecutive digests from each of ``starts`` on."""
    ranks = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(starts, counts) + DIGEST_BYTES * ranks
    digests: Digests = data[rows[:, None] + np.arange(DIGEST_BYTES)]
    return digests
