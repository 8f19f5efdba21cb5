"""The pool of slices pulled from remote subnets and pending for a payload.

Sans I/O: the puller asks the pool for the next request (``ask``) and delivers the answer (``put``, ``append``). The
block maker removes slices (``take``) and reports the subnet's expected positions (``garbage_collect``). The pool holds
verified slices only, and drops useless ones, so a slice never blocks a better one. Threads may share a pool: one
verifies while others take.

Reference:
    IC reference X-15.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from causeway_proofs.ic.errors import SignalsEndRegresses, TakeBeforeSliceBegin
from causeway_proofs.ic.slice import CertifiedStreamSlice
from causeway_proofs.order import U64

from causeway.core.frame import Frame
from causeway.protocols.ic.streams.payload_builder import LEAST_BYTES, count_bytes
from causeway.protocols.ic.streams.remote_slices import MAX_SLICE_MESSAGES

POOL_BYTES = 10 << 20
"""Soft limit of all pooled slices in bytes.

Above it, only subnets with less than an equal share are asked for more.
"""

SLICE_BYTES = 4 << 20
"""Maximum size of one pooled slice, unless its first message is longer."""

HEADER_BYTES, MARGIN = 350, 98
"""Bytes reserved for the header, and the percentage of the remaining room to ask for (X-15)."""

HELD_SECONDS, LONGEST_HELD = 0.1, 60.0
"""The pause after a block refused a subnet's certified slice, and its maximum.

The pause doubles with each refusal in a row, so that a subnet cannot fill blocks with invalid slices.
"""

Verify = Callable[[bytes, CertifiedStreamSlice], object]
"""A verifier of slices from a remote subnet (id).

It raises ``ProofError`` (``SliceReader.verify``).
"""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Expected position in a stream: the next message and the first unseen signal."""

    message_index: int
    signal_index: int


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """A request to a remote subnet.

    ``witness_begin`` is the begin of the slice ``pooled``, which the messages from ``msg_begin`` on extend. Both are
    equal if nothing is pooled.
    """

    witness_begin: int
    msg_begin: int
    msg_limit: int
    byte_limit: int
    pooled: CertifiedStreamSlice | None = field(default=None, compare=False, repr=False)

    @property
    def is_suffix(self) -> bool:
        """Return True if the answer extends the pooled slice."""
        return self.witness_begin != self.msg_begin


@dataclass(frozen=True, slots=True)
class PooledSlice:
    """A pooled slice and its size (2.10)."""

    slice: CertifiedStreamSlice
    size: int


class SlicePool:
    """The pool of one subnet.

    Args:
        verify: The verifier of slices.
        base: The first index of an unknown stream.
        pool_bytes: Soft limit of all slices in bytes; whole slices may exceed it.
        slice_bytes: Limit of one slice in bytes.
        slice_messages: Limit of one slice in messages.
        clock: The time in seconds.
    """

    def __init__(
        self,
        verify: Verify,
        base: int = 1,
        *,
        pool_bytes: int = POOL_BYTES,
        slice_bytes: int = SLICE_BYTES,
        slice_messages: int = MAX_SLICE_MESSAGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verify, self._base = verify, base
        self._pool_bytes, self._slice_bytes, self._slice_messages = pool_bytes, slice_bytes, slice_messages
        self._slices: dict[bytes, PooledSlice] = {}
        self._positions: dict[bytes, StreamPosition] = {}
        self._clock = clock
        self._taken: dict[bytes, StreamPosition] = {}
        self._refused: dict[bytes, int] = {}
        self._refusals: Counter[bytes] = Counter()
        self._held_until: dict[bytes, float] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._slices)

    @property
    def size(self) -> int:
        """Return the bytes of all pooled slices."""
        with self._lock:
            return sum(pooled.size for pooled in self._slices.values())

    def pooled(self, remote: bytes) -> CertifiedStreamSlice | None:
        """Return the pooled slice of a remote subnet, or None."""
        found = self._slices.get(remote)
        return None if found is None else found.slice

    def position(self, remote: bytes) -> StreamPosition:
        """Return the expected position in the stream of a remote subnet."""
        return self._positions.get(remote, StreamPosition(self._base, self._base))

    def has_started(self, remote: bytes) -> bool:
        """Return True if any message or signal was exchanged with a remote subnet."""
        return self.position(remote) != StreamPosition(self._base, self._base)

    def refused(self, remote: bytes) -> tuple[int, bool]:
        """Return a remote subnet's number of refusals, and True if its last slice was refused."""
        return self._refusals[remote], remote in self._refused

    def ask(self, remote: bytes) -> SliceRequest | None:
        """Return the next request to a remote subnet; None if the pool is full or the subnet paused."""
        with self._lock:
            if self._clock() < self._held_until.get(remote, 0.0):
                return None
            position, pooled = self.position(remote), self._slices.get(remote)
            begin = end = position.message_index
            used, messages = 0, 0
            if pooled is not None:
                used, messages = pooled.size, len(pooled.slice.payload.messages)
                begin = _begin(pooled.slice, position)
                end = begin + messages
            # Each subnet has a share of its own, so that unusable slices of others cannot block it.
            share = self._pool_bytes // max(len(self._positions), 1)
            room = min(self._slice_bytes, max(used + self._pool_bytes - self.size, share)) - used
            left = self._slice_messages - messages
            if room < LEAST_BYTES or left <= 0:
                return None
            limit = max(room - HEADER_BYTES, 0) * MARGIN // 100
            return SliceRequest(begin, end, left, limit, pooled.slice if pooled is not None and messages else None)

    def put(self, remote: bytes, certified: CertifiedStreamSlice) -> None:
        """Replace the pooled slice of a remote subnet, trimmed to the expected position.

        Raises:
            ProofError: The slice is invalid; the pooled one stays.
            TakeBeforeSliceBegin: The slice begins after the expected position; the pooled one stays.
            SignalsEndRegresses: The slice has fewer signals than were seen, as an old certified one; the pooled one
                stays.
        """
        self._verify(remote, certified)
        self._keep(remote, certified)

    def append(self, remote: bytes, suffix: CertifiedStreamSlice, onto: CertifiedStreamSlice | None = None) -> None:
        """Extend the pooled slice of a remote subnet under a later header.

        Without a pooled slice it acts like ``put``.

        Args:
            remote: The id of the remote subnet.
            suffix: The extension.
            onto: The slice pooled at the time of the request (``SliceRequest.pooled``), if another is pooled now.
                Messages removed since are trimmed.

        Raises:
            DifferentSubnet, SignalsEndRegresses, IndexMismatch: The suffix does not extend the slice; the pooled one
                stays.
            ProofError: The extended slice is invalid; the pooled one stays.
            TakeBeforeSliceBegin: As of ``put``.
        """
        pooled = onto or self.pooled(remote)
        self.put(remote, suffix if pooled is None else pooled.append(suffix))

    def drop(self, remote: bytes) -> None:
        """Drop the pooled slice of a remote subnet, which nothing extends."""
        self._slices.pop(remote, None)

    def _keep(self, remote: bytes, certified: CertifiedStreamSlice) -> None:
        with self._lock:
            position = self.position(remote)
            trimmed = certified.garbage_collect(position.message_index, position.signal_index)
            if trimmed is None:
                self._slices.pop(remote, None)
                return
            _require_begin(trimmed, position)
            seen = trimmed.payload.header.signals_end
            if seen < position.signal_index:
                raise SignalsEndRegresses(f"signals end at {seen}, {position.signal_index} were seen")
            sizes = prefix_sizes(trimmed)
            fitting = self._fitting(sizes, self._slice_messages, self._slice_bytes)
            count = max(fitting, min(1, len(trimmed.payload.messages)))
            if count < len(trimmed.payload.messages):
                trimmed, _ = trimmed.take_prefix(count)
            self._slices[remote] = PooledSlice(trimmed, int(sizes[count]))

    def take(
        self,
        remote: bytes,
        position: StreamPosition | None = None,
        msg_limit: int | None = None,
        byte_limit: int | None = None,
    ) -> tuple[CertifiedStreamSlice, int] | None:
        """Remove and return the longest prefix of the pooled slice within the limits, and its size.

        The rest stays pooled, and the expected position advances.

        Args:
            remote: The id of the remote subnet.
            position: The expected position; None for the last reported one.
            msg_limit: Limit in messages.
            byte_limit: Limit in bytes.

        Returns:
            The prefix and its size, or None if nothing new fits.

        Raises:
            TakeBeforeSliceBegin: The slice begins after the expected position; it is dropped.
            WitnessPruningFailed: Payload and witness do not match; the slice is dropped.
        """
        with self._lock:
            pooled = self._slices.pop(remote, None)
            if pooled is None:
                return None
            position = position or self.position(remote)
            left = pooled.slice.garbage_collect(position.message_index, position.signal_index)
            if left is None:
                return None
            _require_begin(left, position)
            sizes = prefix_sizes(left)
            count = self._fitting(sizes, msg_limit, byte_limit)
            news = count > 0 or left.payload.header.signals_end > position.signal_index
            if (byte_limit is not None and int(sizes[0]) > byte_limit) or not news:
                self._slices[remote] = PooledSlice(left, int(sizes[-1]))
                return None
            prefix, rest = left.take_prefix(count)
            self._taken.setdefault(remote, position)
            if rest is not None:
                self._slices[remote] = PooledSlice(rest, int(prefix_sizes(rest)[-1]))
            signals = max(left.payload.header.signals_end, position.signal_index)
            self._positions[remote] = StreamPosition(position.message_index + count, signals)
            return prefix, int(sizes[count])

    def garbage_collect(self, positions: Mapping[bytes, StreamPosition]) -> None:
        """Drop the slices that a subnet with the expected ``positions`` does not need.

        A slice that was taken, and after which nothing was accepted, was refused by a block: its subnet is paused.
        """
        with self._lock:
            self._positions = dict(positions)
            for remote, before in self._taken.items():
                self._record_refusal(remote, refused=positions.get(remote) == before)
            self._taken = {}
            for remote, pooled in list(self._slices.items()):
                del self._slices[remote]
                position = positions.get(remote)
                if position is None:
                    continue
                left = pooled.slice.garbage_collect(position.message_index, position.signal_index)
                if left is None or _begin(left, position) > position.message_index:
                    continue
                size = pooled.size if left is pooled.slice else int(prefix_sizes(left)[-1])
                self._slices[remote] = PooledSlice(left, size)

    def _record_refusal(self, remote: bytes, refused: bool) -> None:
        """Record if a block refused the slice taken last from a remote subnet."""
        if not refused:
            self._refused.pop(remote, None)
            return
        self._slices.pop(remote, None)
        self._refusals[remote] += 1
        times = self._refused.get(remote, 0)
        self._held_until[remote] = self._clock() + min(HELD_SECONDS * 2**times, LONGEST_HELD)
        self._refused[remote] = min(times + 1, 16)

    @staticmethod
    def _fitting(sizes: U64, msg_limit: int | None, byte_limit: int | None) -> int:
        """Return the number of fitting messages.

        Sizes are not quite monotonic, as fuller trees shrink.
        """
        count = len(sizes) - 1 if msg_limit is None else min(msg_limit, len(sizes) - 1)
        if byte_limit is None:
            return count
        fitting = np.flatnonzero(sizes[: count + 1] <= np.uint64(byte_limit))
        return int(fitting[-1]) if len(fitting) else 0


def prefix_sizes(certified: CertifiedStreamSlice) -> U64:
    """Return the size (2.10) of a slice with its first 0, 1, 2, ... messages, up to all."""
    payload = certified.payload
    lengths = np.array([len(message) for message in payload.messages], dtype=np.uint64)
    counts = np.arange(len(lengths) + 1, dtype=np.uint64)
    begin = payload.header.begin if payload.messages_begin is None else payload.messages_begin
    numbers = {"begin": payload.header.begin, "end": payload.header.end, "message_begin": begin}
    rows = Frame({name: np.full(len(counts), value, dtype=np.uint64) for name, value in numbers.items()})
    header = np.full(len(counts), len(payload.header_bytes), dtype=np.uint64)
    return count_bytes(rows, header, counts, np.append(np.uint64(0), np.cumsum(lengths, dtype=np.uint64)))


def _begin(certified: CertifiedStreamSlice, position: StreamPosition) -> int:
    begin = certified.payload.messages_begin
    return position.message_index if begin is None else begin


def _require_begin(certified: CertifiedStreamSlice, position: StreamPosition) -> None:
    begin = _begin(certified, position)
    if begin > position.message_index:
        raise TakeBeforeSliceBegin(f"the slice begins at {begin}, expected is {position.message_index}")
