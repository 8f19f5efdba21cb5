"""Hash nodes of hash trees in columns: leaves, labels or forks (IC reference 2.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_rows, digest_slices, digest_values
from causeway_proofs.ic.hash_tree import EMPTY_DIGEST, FORK_DOMAIN, LABELED_DOMAIN, LEAF_DOMAIN
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.stream_columns import LOOP_ROWS, Columns, MessageEncoder
from causeway_proofs.merkle import level_up, merkle_roots
from causeway_proofs.order import U64, Groups, Rows

INDEX_BYTES = 8

PIECE = 1 << 13
"""Labels prepended to subtrees at a time; they stay in the cache until hashed."""

ENCODED_BYTES = 1 << 20
"""Encoded bytes hashed at a time, unless one message has more."""

_EMPTY_ROW = np.frombuffer(EMPTY_DIGEST, dtype=np.uint8)


def leaf_digests(values: pa.BinaryArray) -> Digests:
    """Return the digest of a leaf with each value, shape (n, 32)."""
    return digest_values(HashFunction.SHA256, values, prefix=LEAF_DOMAIN)


def indexed_digests(indexes: U64, subtrees: Digests) -> Digests:
    """Return the digest of each subtree labeled by its big-endian index, shape (n, 32)."""
    digests = np.empty((len(indexes), DIGEST_BYTES), dtype=np.uint8)
    for start in range(0, len(indexes), PIECE):
        labels = indexes[start : start + PIECE].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
        rows = np.concatenate([labels, subtrees[start : start + PIECE]], axis=1)
        digest_rows(HashFunction.SHA256, rows, prefix=LABELED_DOMAIN, out=digests[start : start + PIECE])
    return digests


def labeled_digests(label: bytes, subtrees: Digests) -> Digests:
    """Return the digest of each subtree under one ``label``, shape (n, 32)."""
    return digest_rows(HashFunction.SHA256, np.ascontiguousarray(subtrees), prefix=LABELED_DOMAIN + label)


def identified_digests(ids: npt.NDArray[np.uint8], subtrees: Digests) -> Digests:
    """Return the digest of each subtree labeled by its row of ``ids``, shape (n, 32).

    Shapes: ``ids`` (n, width), ``subtrees`` (n, 32).
    """
    return digest_rows(HashFunction.SHA256, np.concatenate([ids, subtrees], axis=1), prefix=LABELED_DOMAIN)


def stream_digests(
    columns: Columns, indexes: U64, version: CertificationVersion = CURRENT, ranges: Sequence[tuple[int, int]] = ()
) -> Digests:
    """Return the digest of each message's leaf under its index, from the messages' columns.

    Equals ``indexed_digests(indexes, leaf_digests(encode_stream_messages(columns, version)))`` in the memory of one
    piece: encodings are hashed while in the cache.

    Args:
        columns: the messages.
        indexes: stream index of each message.
        version: certification version.
        ranges: row ranges (start, stop) of the requested messages; all if empty.

    Returns:
        Digests, shape (n, 32).

    Raises:
        EncodeError, InvalidInput: as ``encode_stream_messages``.
        ValueError: indices and messages differ in number.
    """
    from causeway_proofs.ic.message_loops import put_labels

    encoder = MessageEncoder(columns, version)
    count, numbers = encoder.count, np.ascontiguousarray(indexes, dtype=np.uint64)
    if len(indexes) != count:
        raise ValueError(f"{len(indexes)} indexes and {count} messages: there must be as many of both")
    ranges = ranges or [(0, count)]
    digests = np.empty((sum(stop - start for start, stop in ranges), DIGEST_BYTES), dtype=np.uint8)
    rows = min(len(digests), LOOP_ROWS)
    out, ends = np.empty(ENCODED_BYTES, dtype=np.uint8), np.zeros(rows + 1, dtype=np.int64)
    leaves = np.empty((rows, DIGEST_BYTES), dtype=np.uint8)
    labeled = np.empty((rows, INDEX_BYTES + DIGEST_BYTES), dtype=np.uint8)
    done = 0
    for start, stop in ranges:
        while start < stop:
            written = encoder.write(start, stop, out, ends)
            if not written:
                out = np.empty(2 * len(out), dtype=np.uint8)
                continue
            leaf, label = leaves[:written], labeled[:written]
            digest_slices(HashFunction.SHA256, out, ends[:written], ends[1 : written + 1], prefix=LEAF_DOMAIN, out=leaf)
            put_labels(numbers[start : start + written], leaf, label)
            digest_rows(HashFunction.SHA256, label, prefix=LABELED_DOMAIN, out=digests[done : done + written])
            start, done = start + written, done + written
    return digests


def fork_roots(nodes: Digests, groups: Groups) -> Digests:
    """Return the root of each group of adjacent ``nodes``, shape (len(groups), 32).

    The shape is that of one map: the largest power of two on the left. An empty group has the root of an empty map.
    """
    filled = groups.counts > 0
    roots = np.empty((len(groups), DIGEST_BYTES), dtype=np.uint8)
    roots[~filled] = _EMPTY_ROW
    roots[filled] = merkle_roots(nodes, Groups(groups.starts[filled], groups.counts[filled], groups.total), FORK_DOMAIN)
    return roots


STEP_BYTES = 1 + DIGEST_BYTES
LEFT, RIGHT = 0, 1
"""First byte of a step: side of the sibling."""


@dataclass(frozen=True)
class ForkSteps:
    """The forks from nodes of maps up to their roots.

    Attributes:
        steps: shape (n, levels, 33): side of the sibling (``LEFT``, ``RIGHT``) and its digest, bottom-up.
        used: shape (n, levels): True for an existing fork; other steps are meaningless.
    """

    steps: npt.NDArray[np.uint8]
    used: npt.NDArray[np.bool_]

    def take(self, rows: Rows) -> ForkSteps:
        """Return the steps of the nodes in ``rows``, in that order."""
        return ForkSteps(self.steps[rows], self.used[rows])


def fork_steps(nodes: Digests, counts: Rows) -> tuple[Digests, ForkSteps]:
    """Return the root of each map, shape (len(counts), 32), and the forks from each node to it.

    ``nodes``: concatenated nodes of all maps; ``counts``: nodes of each map, at least 1.
    """
    position = np.arange(len(nodes)) - np.repeat(np.cumsum(counts) - counts, counts)
    owner = np.repeat(np.arange(len(counts)), counts)
    levels: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]] = []
    while len(counts) and int(counts.max()) > 1:
        sibling = position ^ 1
        used = sibling < counts[owner]
        steps = np.zeros((len(position), STEP_BYTES), dtype=np.uint8)
        steps[:, 0] = np.where(position & 1, LEFT, RIGHT)
        steps[used, 1:] = nodes[((np.cumsum(counts) - counts)[owner] + sibling)[used]]
        levels.append((steps, used))
        nodes, counts = level_up(np.ascontiguousarray(nodes), counts, FORK_DOMAIN)
        position = position >> 1
    if not levels:
        empty = np.empty((len(position), 0, STEP_BYTES), dtype=np.uint8)
        return nodes, ForkSteps(empty, np.empty((len(position), 0), dtype=bool))
    return nodes, ForkSteps(
        np.stack([steps for steps, _ in levels], axis=1), np.stack([used for _, used in levels], axis=1)
    )
