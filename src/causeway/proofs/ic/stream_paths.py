"""The path of a stream, from its root to its state's root, as bytes: written and read by columns, and one by one.

Two bytes, the numbers n1 and n2 of forks below and above the label ``streams``; then of each of these forks 33 bytes,
the side of the sibling (0 left, 1 right) and its digest. From the root of a stream one comes to that of its state by
the label of the stream (the subnet that it leads to), n1 forks, the label ``streams`` and n2 forks (IC reference 2.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.order import Rows
from causeway.proofs.arrays import byte_column
from causeway.proofs.errors import MalformedProof, OverLimit
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_pairs
from causeway.proofs.ic.digest_columns import (
    LEFT,
    RIGHT,
    STEP_BYTES,
    ForkSteps,
    identified_digests,
    labeled_digests,
)
from causeway.proofs.ic.digests import FORK_DOMAIN, fork_digest, labeled_digest
from causeway.proofs.ic.slice_payload import STREAMS
from causeway.proofs.ic.witness import Fork, Node, Pruned, Witness
from causeway.proofs.limits import MAX_DEPTH

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
class Paths:
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


def read_paths(paths: pa.BinaryArray) -> Paths:
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
    return Paths(counts[0], counts[1], faults, starts, data)


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


def root_along(path: Forks, subnet: bytes, stream: bytes) -> bytes:
    """Return the root of the state in which the stream to ``subnet`` has the root ``stream``, 32 bytes."""
    below, above = path
    return _hashed(labeled_digest(STREAMS, _hashed(labeled_digest(subnet, stream), below)), above)


def witness_along(path: Forks, subnet: bytes, stream: Witness) -> Witness:
    """Return the witness of the state around ``stream``, that of the stream to ``subnet``."""
    below, above = path
    return _forked(Node(STREAMS, _forked(Node(subnet, stream), below)), above)


def _hashed(digest: bytes, steps: Sequence[Step]) -> bytes:
    for side, sibling in steps:
        digest = fork_digest(sibling, digest) if side == LEFT else fork_digest(digest, sibling)
    return digest


def _forked(witness: Witness, steps: Sequence[Step]) -> Witness:
    for side, sibling in steps:
        witness = Fork(Pruned(sibling), witness) if side == LEFT else Fork(witness, Pruned(sibling))
    return witness
