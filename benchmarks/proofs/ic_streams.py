"""The Internet Computer: the streams of all subnets kept as one forest, and slices of all of them verified at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import fork_steps, identified_digests, labeled_digests
from causeway_proofs.ic.slice_columns import encode_paths, slice_roots
from causeway_proofs.ic.slice_payload import STREAMS
from causeway_proofs.ic.stream_header import StreamHeader, encode_stream_header
from causeway_proofs.ic.stream_tree import StreamForest, roots_of_streams
from causeway_proofs.order import U64, Rows

from benchmarks.process import BenchmarkFailed
from benchmarks.proofs.timing import OURS, Clocked, Row, clock, compared, require_same, timed

MESSAGES = 640
"""Messages that come to a stream, and go from it, in a round; a power of two divides how many."""

MOST_SUBNETS = 40


def measure(size: int, repeats: int) -> list[Row]:
    """Measure rounds of about ``size`` messages over the streams between up to 40 subnets."""
    subnets = min(MOST_SUBNETS, max(2, int((size / MESSAGES) ** 0.5)))
    ids = np.zeros((subnets, 10), dtype=np.uint8)
    ids[:, 0] = np.arange(subnets)
    source, destination = np.nonzero(~np.eye(subnets, dtype=bool))
    keys = source.astype(np.uint64) << np.uint64(32) | destination.astype(np.uint64)
    each = min(MESSAGES, max(1, size // len(keys)))
    forest = StreamForest()
    digests = np.random.default_rng(1).integers(0, 256, (len(keys) * each, 32), dtype=np.uint8)
    begins, ends = np.zeros_like(keys), np.full_like(keys, each)
    forest.update(keys, begins, ends, digests)
    rounds = _rounds(forest, keys, begins, ends, digests)
    change: Clocked = lambda: next(rounds)  # noqa: E731
    what = f"{len(keys):,} streams: {each} messages of each appended, and as many trimmed"
    return [
        compared("commit", what, "messages", {OURS: (change, len(digests))}, repeats),
        _verified(forest, ids, (source, destination), keys, digests, repeats),
    ]


def _rounds(forest: StreamForest, keys: U64, begins: U64, ends: U64, digests: Digests) -> Iterator[tuple[float, float]]:
    """Change the streams a round at a time, and tell how long it took; they have two rounds' messages."""
    count = np.uint64(len(digests) // len(keys))
    forest.update(keys, begins, ends + count, digests)
    for number in range(1, 1 << 20):
        shift = np.uint64(number) * count
        yield clock(forest.update, keys, begins + shift, ends + count + shift, digests)[1]


def _verified(
    forest: StreamForest, ids: npt.NDArray[np.uint8], ways: tuple[Rows, Rows], keys: U64, digests: Digests, repeats: int
) -> Row:
    """Measure a slice of each stream, the newest half of it, from digests of messages to the root of the state."""
    (source, destination), total = ways, len(keys)
    each = len(digests) // total
    bounds = zip(forest.begins.tolist(), forest.ends.tolist(), strict=True)
    headers = pa.array([encode_stream_header(StreamHeader(begin, end, 0)) for begin, end in bounds], pa.binary())
    streams = roots_of_streams(headers, forest.roots(keys), forest.counts(keys) > 0)
    below, steps = fork_steps(identified_digests(ids[destination], streams), np.bincount(source))
    others = np.zeros_like(below)
    tops = np.stack([labeled_digests(STREAMS, below), others], axis=1).reshape(-1, 32)
    roots, top = fork_steps(tops, np.full(len(below), 2))
    paths = encode_paths(steps, top.take(2 * source))
    first = forest.ends - np.uint64(each)
    joined, counts = forest.left_siblings(keys, first)
    parts = np.split(joined, np.cumsum(counts)[:-1])
    siblings = pa.array([part.tobytes() for part in parts], pa.binary())
    lengths = np.full(total, each)
    position, size = first - forest.begins, forest.ends - forest.begins

    def verified() -> Digests:
        found, faults = slice_roots(headers, ids[destination], digests, lengths, position, size, siblings, paths)
        if faults.any():
            raise BenchmarkFailed("slices by columns: an honest one is refused")
        return found

    require_same(verified().tobytes(), roots[source].tobytes(), "roots of slices")
    what = f"{total:,} slices of {each} messages, from digests of messages to the roots of states"
    return compared("verify", what, "messages", {OURS: (timed(verified), len(digests))}, repeats)
