"""Streams of one subnet that are served as they go on: each as its state certified it last (IC reference 2.8, 3.10).

Where ``CertifiedStreams`` holds a whole state, this holds of each stream its messages, and of the state only the way
from the stream's root to the state's. A later state is taken over by what it changed: messages are appended and
trimmed, header, way and certification replaced; nothing is hashed again but what that forces (``stream_tree``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof
from causeway.proofs.ic.certified_streams import (
    InvalidSliceBegin,
    InvalidSliceIndices,
    NoStreamForSubnet,
    run_end,
)
from causeway.proofs.ic.digests import fork_digest, labeled_digest
from causeway.proofs.ic.errors import RootHashMismatch
from causeway.proofs.ic.slice import CertifiedStreamSlice
from causeway.proofs.ic.slice_certification import Certification
from causeway.proofs.ic.slice_payload import HEADER, MESSAGES, STREAMS, SlicePayload
from causeway.proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway.proofs.ic.stream_tree import StreamTree
from causeway.proofs.ic.versions import CURRENT, CertificationVersion
from causeway.proofs.ic.witness import KNOWN, Fork, Node, Pruned, Witness

_STEP_BYTES = 33
_LEFT = 0

Step = tuple[bool, bytes]
"""A fork on the way up: whether the sibling is on the left, and its digest."""


@dataclass(frozen=True, slots=True)
class StreamPath:
    """The way from a stream's root to that of the state: ``labeled(subnet)``, forks among the streams, ``labeled``
    with ``streams``, forks among the top labels of the state."""

    streams: tuple[Step, ...]
    top: tuple[Step, ...]

    @classmethod
    def decoded(cls, data: bytes) -> StreamPath:
        """Return the way that is encoded as two bytes, the numbers of forks before and after the label ``streams``, and
        of each fork 33 bytes: the side of the sibling (0 left, 1 right) and its digest.

        Raises:
            MalformedProof: it is none.
        """
        if len(data) < 2 or len(data) != 2 + _STEP_BYTES * (data[0] + data[1]):
            raise MalformedProof(f"a way of {len(data)} bytes has not the length that its first bytes say")
        steps = [data[start : start + _STEP_BYTES] for start in range(2, len(data), _STEP_BYTES)]
        if any(step[0] > 1 for step in steps):
            raise MalformedProof("the side of a sibling is neither 0 nor 1")
        found = tuple((step[0] == _LEFT, step[1:]) for step in steps)
        return cls(found[: data[0]], found[data[0] :])

    def root(self, subnet: bytes, stream: bytes) -> bytes:
        """Return the root of the state in which the stream to ``subnet`` has the root ``stream``."""
        digest = labeled_digest(subnet, stream)
        for is_left, sibling in self.streams:
            digest = fork_digest(sibling, digest) if is_left else fork_digest(digest, sibling)
        digest = labeled_digest(STREAMS, digest)
        for is_left, sibling in self.top:
            digest = fork_digest(sibling, digest) if is_left else fork_digest(digest, sibling)
        return digest

    def witness(self, subnet: bytes, stream: Witness) -> Witness:
        """Return the witness of the state around ``stream``, that of the stream to ``subnet``."""
        witness: Witness = Node(subnet, stream)
        for is_left, sibling in self.streams:
            witness = Fork(Pruned(sibling), witness) if is_left else Fork(witness, Pruned(sibling))
        witness = Node(STREAMS, witness)
        for is_left, sibling in self.top:
            witness = Fork(Pruned(sibling), witness) if is_left else Fork(witness, Pruned(sibling))
        return witness


@dataclass(slots=True)
class _Stream:
    """One stream: its tree, and its messages in pieces of which the first begins where the tree does, or before."""

    tree: StreamTree
    header: StreamHeader
    path: StreamPath
    certification: Certification
    pieces: list[tuple[int, pa.BinaryArray]]

    def messages(self, begin: int, end: int) -> pa.BinaryArray:
        """Return the messages [begin, end)."""
        found = [
            piece.slice(max(begin - first, 0), min(end, first + len(piece)) - max(begin, first))
            for first, piece in self.pieces
            if first < end and begin < first + len(piece)
        ]
        return pa.concat_arrays(found) if found else pa.array([], pa.binary())


class OfferedStreams:
    """The certified streams of one subnet. Threads may share it: a slice is of one state or of another.

    Args:
        version: of the headers.
    """

    def __init__(self, version: CertificationVersion = CURRENT) -> None:
        self._version = version
        self._streams: dict[bytes, _Stream] = {}
        self._lock = threading.Lock()

    def end(self, subnet: bytes) -> int | None:
        """Return the index after the last message of the stream to ``subnet`` that is held, None without a stream."""
        held = self._streams.get(subnet)
        return None if held is None else held.header.end

    def update(
        self, subnet: bytes, header: bytes, appended: pa.BinaryArray, path: bytes, certification: Certification
    ) -> None:
        """Take over the stream to ``subnet`` as a later state has it.

        Args:
            header: encoded; it says from where on messages are dropped.
            appended: the encoded messages from ``end`` on, or from where the stream begins if it begins later, up to
                the header's end.
            path: ``StreamPath``, encoded.
            certification: of the state.

        Raises:
            InvalidInput: the stream goes back, or other messages are given than it has.
            RootHashMismatch: header, messages and path do not have the certified root; the stream is dropped.
            MalformedProof: header or path are none.
        """
        read, steps = decode_stream_header(header, self._version), StreamPath.decoded(path)
        with self._lock:
            held = self._streams.pop(subnet, None)
            if held is None or read.begin > held.header.end:
                held = _Stream(StreamTree(header, read.begin), read, steps, certification, [])
            tree = held.tree.messages
            if read.begin < tree.begin or tree.end + len(appended) != read.end:
                more = f"{len(appended)} messages more do not make it [{read.begin}, {read.end})"
                raise InvalidInput(f"the stream to {subnet.hex()} holds [{tree.begin}, {tree.end}); {more}")
            if len(appended):
                held.pieces.append((tree.end, appended))
                tree.append(appended)
            tree.trim(read.begin)
            held.pieces = [(first, piece) for first, piece in held.pieces if first + len(piece) > read.begin]
            held.tree.header, held.header, held.path, held.certification = header, read, steps, certification
            root = steps.root(subnet, held.tree.root)
            if root != certification.root_hash:
                text = f"the stream to {subnet.hex()} has the root {root.hex()}"
                raise RootHashMismatch(f"{text}, certified is {certification.root_hash.hex()}")
            self._streams[subnet] = held

    def drop(self, subnet: bytes) -> None:
        """Serve the stream to ``subnet`` no more."""
        with self._lock:
            self._streams.pop(subnet, None)

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the subnets that a stream leads to, ascending."""
        with self._lock:
            return sorted(self._streams)

    def encode_certified_stream_slice(
        self,
        dst_subnet: bytes,
        witness_begin: int | None = None,
        msg_begin: int | None = None,
        msg_limit: int | None = None,
        byte_limit: int | None = None,
    ) -> CertifiedStreamSlice:
        """Return the header and a run of the messages of the stream to ``dst_subnet``: as of ``CertifiedStreams``, byte
        for byte.

        Raises:
            NoStreamForSubnet: there is none.
            InvalidSliceBegin: messages or witness begin outside of the stream.
            InvalidSliceIndices: the witness begins after the messages.
            InvalidInput: a limit is negative.
        """
        if witness_begin is not None and (msg_begin is None or witness_begin > msg_begin):
            raise InvalidSliceIndices(witness_begin, msg_begin)
        with self._lock:
            held = self._streams.get(dst_subnet)
            if held is None:
                raise NoStreamForSubnet(f"there is no stream to subnet {dst_subnet.hex()}")
            header, tree = held.header, held.tree
            begin = header.begin if msg_begin is None else msg_begin
            known = begin if witness_begin is None else witness_begin
            for asked in (begin, known):
                if not header.begin <= asked <= header.end:
                    raise InvalidSliceBegin(asked, header.begin, header.end)
            last = header.end if msg_limit is None else min(header.end, begin + max(msg_limit, 0))
            messages = held.messages(begin, last)
            end = run_end(messages, begin, msg_limit, byte_limit, first=known == begin)
            shown: Witness = Node(HEADER, KNOWN)
            if header.begin < header.end:
                run = tree.messages.known(known, end)
                below = Pruned(labeled_digest(MESSAGES, run.digest)) if isinstance(run, Pruned) else Node(MESSAGES, run)
                shown = Fork(shown, below)
            payload = tuple(messages.slice(0, end - begin).to_pylist())
            return CertifiedStreamSlice(
                SlicePayload(dst_subnet, tree.header, header, begin if payload else None, payload),
                held.path.witness(dst_subnet, shown),
                held.certification,
            )
