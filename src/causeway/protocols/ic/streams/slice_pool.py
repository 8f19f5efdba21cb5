"""Slices that were pulled from remote subnets and wait for a payload (IC reference X-15).

Sans I/O: who pulls asks the pool what to ask for (``ask``), and hands over what came (``put``, ``append``); who makes a
block takes (``take``), and tells what the subnet expects by then (``garbage_collect``). Nothing is pooled that was not
verified, and what cannot be used is dropped, so that a slice never stands in the way of a better one. Threads may share
a pool: while one verifies, others take.
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
"""Bytes of all pooled slices from which on no more are asked for, but of a subnet of which less than its equal share is
pooled."""

SLICE_BYTES = 4 << 20
"""Bytes of one pooled slice at most, unless its first message is longer."""

HEADER_BYTES, MARGIN = 350, 98
"""Of the room that is left, so many bytes are kept for what is no message, and of the rest so many percent asked for
(X-15)."""

HELD_SECONDS, LONGEST_HELD = 0.1, 60.0
"""For so long a remote subnet is not asked after a block refused what it certified; twice as long each time in a row,
up to the longest: whatever a subnet signs, it must not fill blocks with what is refused."""

Verify = Callable[[bytes, CertifiedStreamSlice], object]
"""Verifies a slice from a remote subnet (id) to us; raises ``ProofError`` (``SliceReader.verify``)."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """What a subnet expects of a stream to it: the next message, and the first signal that it has not seen."""

    message_index: int
    signal_index: int


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """What to ask a remote subnet for: ``witness_begin`` is where the slice ``pooled`` begins, which the messages from
    ``msg_begin`` on are to be appended to; both are the same where none is."""

    witness_begin: int
    msg_begin: int
    msg_limit: int
    byte_limit: int
    pooled: CertifiedStreamSlice | None = field(default=None, compare=False, repr=False)

    @property
    def is_suffix(self) -> bool:
        """Return whether what comes is to be appended."""
        return self.witness_begin != self.msg_begin


@dataclass(frozen=True, slots=True)
class PooledSlice:
    """A pooled slice and its size (2.10)."""

    slice: CertifiedStreamSlice
    size: int


class SlicePool:
    """The pool of one subnet.

    Args:
        verify: verifies what is to be pooled.
        base: the first index of a stream of which nothing is known.
        pool_bytes: of all slices; soft, reached by whole slices.
        slice_bytes, slice_messages: of one slice.
        clock: the time in seconds.
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
        """Return what is pooled of a remote subnet."""
        found = self._slices.get(remote)
        return None if found is None else found.slice

    def position(self, remote: bytes) -> StreamPosition:
        """Return what is expected of a remote subnet."""
        return self._positions.get(remote, StreamPosition(self._base, self._base))

    def has_started(self, remote: bytes) -> bool:
        """Return whether anything of the streams to and from a remote subnet was exchanged."""
        return self.position(remote) != StreamPosition(self._base, self._base)

    def refused(self, remote: bytes) -> tuple[int, bool]:
        """Return how often a block refused what a remote subnet certified, and whether one refused what was taken
        last."""
        return self._refusals[remote], remote in self._refused

    def ask(self, remote: bytes) -> SliceRequest | None:
        """Return what to ask a remote subnet for, None when there is no room for more, or what it certified was
        refused just now."""
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
            # What others serve and no block can take must not keep this one out: each has a share for itself.
            share = self._pool_bytes // max(len(self._positions), 1)
            room = min(self._slice_bytes, max(used + self._pool_bytes - self.size, share)) - used
            left = self._slice_messages - messages
            if room < LEAST_BYTES or left <= 0:
                return None
            limit = max(room - HEADER_BYTES, 0) * MARGIN // 100
            return SliceRequest(begin, end, left, limit, pooled.slice if pooled is not None and messages else None)

    def put(self, remote: bytes, certified: CertifiedStreamSlice) -> None:
        """Pool a slice of a remote subnet in the place of what was pooled of it, trimmed to what is expected.

        Raises:
            ProofError: it does not hold; what was pooled stays.
            TakeBeforeSliceBegin: it begins behind what is expected; what was pooled stays.
            SignalsEndRegresses: it has fewer signals than were seen: any node can serve what its subnet certified long
                ago, and a block would refuse it; what was pooled stays.
        """
        self._verify(remote, certified)
        self._keep(remote, certified)

    def append(self, remote: bytes, suffix: CertifiedStreamSlice, onto: CertifiedStreamSlice | None = None) -> None:
        """Pool what follows on a slice of a remote subnet, under its later header; like ``put`` where there is none.

        ``onto``: what was pooled when the suffix was asked for (``Ask.pooled``), if not what is pooled now: what was
        taken since is trimmed.

        Raises:
            DifferentSubnet, SignalsEndRegresses, IndexMismatch: it does not follow; what was pooled stays.
            ProofError: both together do not hold; what was pooled stays.
            TakeBeforeSliceBegin: as of ``put``.
        """
        pooled = onto or self.pooled(remote)
        self.put(remote, suffix if pooled is None else pooled.append(suffix))

    def drop(self, remote: bytes) -> None:
        """Let go of what is pooled of a remote subnet: nothing that it serves follows on it."""
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
        """Return the longest beginning of the pooled slice within the limits, and its size; the rest stays, and what
        follows is expected from now on.

        ``position``: what is expected, if not what was told last. None where nothing is pooled, or nothing of it that
        is new fits.

        Raises:
            TakeBeforeSliceBegin: the slice begins behind what is expected: it is of no use and is dropped.
            WitnessPruningFailed: payload and witness do not fit together: it is dropped.
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
        """Drop what is not needed by a subnet that expects ``positions`` of all remote subnets; slices of others, and
        such as begin behind what is expected, are dropped. So is what is pooled of a subnet of which something was
        taken and nothing is new now: a block refused it, and the subnet is not asked for a while."""
        with self._lock:
            self._positions = dict(positions)
            for remote, before in self._taken.items():
                self._told(remote, refused=positions.get(remote) == before)
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

    def _told(self, remote: bytes, refused: bool) -> None:
        """Take notice of whether a block refused what was taken of a remote subnet."""
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
        """Return how many messages fit. Sizes may fall by some bytes from one count to the next: trees get fuller."""
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
