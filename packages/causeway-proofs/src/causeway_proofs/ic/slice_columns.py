"""Many slices of streams verified at once: from the bytes that are used to the roots that are certified.

A slice of a stream is here its header (bytes), a run of its messages (by the digests of the labeled messages), what is
beside that run in the tree of all messages (``siblings``: ``StreamForest.sides``), and the way from the stream to the
root of its state (``stream_paths``). ``CertifiedStreamSlice`` is the same for one slice, as it travels between subnets.

Everything comes from strangers. What does not fit together is a fault of that slice alone.

The path of a stream, from its root to its state's root, as bytes: written and read by columns, and one by one.

Two bytes, the numbers n1 and n2 of forks below and above the label ``streams``; then of each of these forks 33 bytes,
the side of the sibling (0 left, 1 right) and its digest. From the root of a stream one comes to that of its state by
the label of the stream (the subnet that it leads to), n1 forks, the label ``streams`` and n2 forks (IC reference 2.9).
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
"""Most forks of a path; a subnet of the deployed network has some two dozen."""

_COUNT_BYTES = 2
_MOST_BYTES = (1 << 31) - 1
_OFFSETS = np.arange(DIGEST_BYTES)

PATH_LENGTH, PATH_STEPS, PATH_SIDES = range(1, 4)
"""What can be wrong with a path."""

_TEXTS = {
    PATH_LENGTH: "the path of a stream has another length than its first two bytes, the counts of forks, say",
    PATH_STEPS: f"the path of a stream has more than {MAX_STEPS} forks",
    PATH_SIDES: f"the path of a stream has a fork with another side than {LEFT}, left, and {RIGHT}, right",
}


@dataclass(frozen=True)
class StreamPaths:
    """Paths that are read.

    Attributes:
        below, above: how many forks each has below and above the label ``streams``; none where it is malformed.
        faults: 0, or what is wrong with it.
        starts: where the first fork of each stands in ``data``.
    """

    below: Rows
    above: Rows
    faults: Bytes
    starts: Rows
    data: Bytes

    def roots(self, rows: Rows, destinations: Bytes, stream_roots: Digests) -> Digests:
        """Return the roots of states to which ``stream_roots`` lead on the paths of ``rows``, shape (len(rows), 32).

        ``destinations``: the ids of the subnets that the streams lead to, shape (len(rows), width).
        """
        below, above, starts = self.below[rows], self.above[rows], self.starts[rows]
        nodes = self._forked(identified_digests(destinations, stream_roots), starts, below)
        return self._forked(labeled_digests(STREAMS, nodes), starts + STEP_BYTES * below, above)

    def _forked(self, nodes: Digests, starts: Rows, counts: Rows) -> Digests:
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
    """Return the paths that bytes from strangers are; a null is malformed as an empty one is."""
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
    """Return the offsets of a column's values in its data, and the data; nulls are as if they were empty.

    Raises:
        InvalidInput: it is no column of bytes, or a damaged one.
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
    """Return paths from their forks below and above the label ``streams``.

    Raises:
        OverLimit: they take 2 GiB or more.
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
"""A fork on a path: the side of the sibling (``LEFT``, ``RIGHT``), and its digest."""

Forks = tuple[list[Step], list[Step]]
"""The forks of one path below and above the label ``streams``."""


def decode_path(path: bytes) -> Forks:
    """Return the forks of one path below and above the label ``streams``.

    Raises:
        MalformedProof: it is no path.
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
    """Return the root of the state in which the stream to ``subnet`` has the root ``stream``, 32 bytes."""
    below, above = path
    return _hashed(labeled_digest(STREAMS, _hashed(labeled_digest(subnet, stream), below)), above)


def path_witness(path: Forks, subnet: bytes, stream: Witness) -> Witness:
    """Return the witness of the state around ``stream``, that of the stream to ``subnet``."""
    below, above = path
    return _forked(WitnessNode(STREAMS, _forked(WitnessNode(subnet, stream), below)), above)


def _hashed(digest: bytes, steps: Sequence[Step]) -> bytes:
    for side, sibling in steps:
        digest = fork_digest(sibling, digest) if side == LEFT else fork_digest(digest, sibling)
    return digest


def _forked(witness: Witness, steps: Sequence[Step]) -> Witness:
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
    destination_ids: Sequence[bytes] | ByteArray,
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


def _ids(given: Sequence[bytes] | ByteArray) -> ByteArray:
    if isinstance(given, np.ndarray):
        return given
    lengths = {len(one) for one in given}
    if len(lengths) > 1:
        raise InvalidInput(f"ids of subnets have {sorted(lengths)} bytes, one length is wanted")
    return np.frombuffer(b"".join(given), dtype=np.uint8).reshape(len(given), lengths.pop() if lengths else 0)


def _digests(data: ByteArray, starts: Rows, counts: Rows) -> Digests:
    """Return the digests that stand one behind the other from each of ``starts`` on."""
    ranks = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = np.repeat(starts, counts) + DIGEST_BYTES * ranks
    digests: Digests = data[rows[:, None] + np.arange(DIGEST_BYTES)]
    return digests
