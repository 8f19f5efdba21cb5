"""Serve the streams of one subnet, each as last certified (IC reference 2.8, 3.10).

For each stream this stores the messages and the path from its root to the state's root. An update with a later state
appends and trims messages and replaces header, path and certification; only the necessary nodes are rehashed
(``stream_tree``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.errors import CausewayError, InvalidInput
from causeway_proofs.ic.errors import RootHashMismatch
from causeway_proofs.ic.hash_tree import labeled_digest
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.slice import Certification, CertifiedStreamSlice
from causeway_proofs.ic.slice_columns import Forks, decode_path, path_root, path_witness
from causeway_proofs.ic.slice_payload import HEADER, MESSAGES, SlicePayload
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree
from causeway_proofs.ic.witness import KNOWN, Witness, WitnessFork, WitnessNode, WitnessPruned


class SliceRequestError(CausewayError):
    """A slice was requested that the state does not have."""


class NoStreamForSubnet(SliceRequestError):
    """The state has no stream to the subnet."""


class InvalidSliceBegin(SliceRequestError):
    """The requested begin of the slice or its witness is outside of the stream.

    Attributes:
        slice_begin: the requested begin.
        stream_begin, stream_end: bounds of the stream; its end is allowed.
    """

    def __init__(self, slice_begin: int, stream_begin: int, stream_end: int) -> None:
        self.slice_begin, self.stream_begin, self.stream_end = slice_begin, stream_begin, stream_end
        super().__init__(f"a slice from {slice_begin} on is asked for, the stream is [{stream_begin}, {stream_end})")


class InvalidSliceIndices(SliceRequestError):
    """The requested witness begins after the messages, or the messages' begin is missing.

    Attributes:
        witness_begin: the requested begin of the witness.
        msg_begin: the requested begin of the messages, or None.
    """

    def __init__(self, witness_begin: int, msg_begin: int | None) -> None:
        self.witness_begin, self.msg_begin = witness_begin, msg_begin
        messages = "messages from nowhere" if msg_begin is None else f"messages from {msg_begin} on"
        super().__init__(f"a witness from {witness_begin} on for {messages} is asked for")


@dataclass(slots=True)
class _Stream:
    """One stream: its tree, and its messages in chunks from the tree's begin or before."""

    tree: StreamTree
    header: StreamHeader
    path: Forks
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
    """The certified streams of one subnet. Thread-safe: each slice is of a single state.

    Args:
        version: certification version of the headers.
    """

    def __init__(self, version: CertificationVersion = CURRENT) -> None:
        self._version = version
        self._streams: dict[bytes, _Stream] = {}
        self._lock = threading.Lock()

    def end(self, subnet: bytes) -> int | None:
        """Return the index after the last stored message of the stream to ``subnet``.

        Args:
            subnet: id of the destination subnet.

        Returns:
            The index, or None without a stream.
        """
        stream = self._streams.get(subnet)
        return None if stream is None else stream.header.end

    def update(
        self, subnet: bytes, header: bytes, appended: pa.BinaryArray, path: bytes, certification: Certification
    ) -> None:
        """Update the stream to ``subnet`` to a later state.

        Args:
            subnet: id of the destination subnet.
            header: encoded header; messages before its begin are dropped.
            appended: encoded messages from ``end`` on, or from the stream's begin if later, up to the header's end.
            path: path from the stream's root to the state's (``slice_columns.encode_paths``).
            certification: certification of the state.

        Raises:
            InvalidInput: the stream moves back, or messages differ from its own.
            RootHashMismatch: header, messages and path do not have the certified root; the stream is dropped.
            MalformedProof: header or path are malformed.
        """
        read, steps = decode_stream_header(header, self._version), decode_path(path)
        with self._lock:
            stream = self._streams.pop(subnet, None)
            if stream is None or read.begin > stream.header.end:
                stream = _Stream(StreamTree(header, read.begin), read, steps, certification, [])
            tree = stream.tree.messages
            if read.begin < tree.begin or tree.end + len(appended) != read.end:
                more = f"{len(appended)} messages more do not make it [{read.begin}, {read.end})"
                raise InvalidInput(f"the stream to {subnet.hex()} holds [{tree.begin}, {tree.end}); {more}")
            if len(appended):
                stream.pieces.append((tree.end, appended))
                tree.append(appended)
            tree.trim(read.begin)
            stream.pieces = [(first, piece) for first, piece in stream.pieces if first + len(piece) > read.begin]
            stream.tree.header, stream.header, stream.path, stream.certification = header, read, steps, certification
            root = path_root(steps, subnet, stream.tree.root)
            if root != certification.root_hash:
                text = f"the stream to {subnet.hex()} has the root {root.hex()}"
                raise RootHashMismatch(f"{text}, certified is {certification.root_hash.hex()}")
            self._streams[subnet] = stream

    def drop(self, subnet: bytes) -> None:
        """Stop serving the stream to ``subnet``.

        Args:
            subnet: id of the destination subnet.
        """
        with self._lock:
            self._streams.pop(subnet, None)

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the destination subnets, ascending."""
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
        """Return a slice of the stream to ``dst_subnet`` (``get_stream``).

        Args:
            dst_subnet: id of the destination subnet.
            witness_begin: index of the first message that the witness knows, for a slice to be appended to another;
                default ``msg_begin``.
            msg_begin: index of the first message; default the stream's begin.
            msg_limit: most messages.
            byte_limit: most bytes of encoded messages. The first message is always included, unless the slice is to be
                appended to another (X-9).

        Returns:
            The slice.

        Raises:
            NoStreamForSubnet: no such stream exists.
            InvalidSliceBegin: messages or witness begin outside of the stream.
            InvalidSliceIndices: the witness begins after the messages.
            InvalidInput: a limit is negative.
        """
        require_order(witness_begin, msg_begin)
        with self._lock:
            stream = self._streams.get(dst_subnet)
            if stream is None:
                raise NoStreamForSubnet(f"there is no stream to subnet {dst_subnet.hex()}")
            header, tree = stream.header, stream.tree
            begin, known = run_begin(header, witness_begin, msg_begin)
            last = header.end if msg_limit is None else min(header.end, begin + max(msg_limit, 0))
            messages = stream.messages(begin, last)
            end = run_end(messages, begin, msg_limit, byte_limit, first=known == begin)
            witness: Witness = WitnessNode(HEADER, KNOWN)
            if header.begin < header.end:
                run = tree.messages.known(known, end)
                below = (
                    WitnessPruned(labeled_digest(MESSAGES, run.digest))
                    if isinstance(run, WitnessPruned)
                    else WitnessNode(MESSAGES, run)
                )
                witness = WitnessFork(witness, below)
            payload = tuple(messages.slice(0, end - begin).to_pylist())
            return CertifiedStreamSlice(
                SlicePayload(dst_subnet, tree.header, header, begin if payload else None, payload),
                path_witness(stream.path, dst_subnet, witness),
                stream.certification,
            )


def require_order(witness_begin: int | None, msg_begin: int | None) -> None:
    """Require a witness to begin with its messages or before. Raises ``InvalidSliceIndices``."""
    if witness_begin is not None and (msg_begin is None or witness_begin > msg_begin):
        raise InvalidSliceIndices(witness_begin, msg_begin)


def run_begin(header: StreamHeader, witness_begin: int | None, msg_begin: int | None) -> tuple[int, int]:
    """Return the begin of a slice's messages, and of those that its witness knows.

    Raises:
        InvalidSliceBegin: a begin is outside of the stream.
    """
    begin = header.begin if msg_begin is None else msg_begin
    known = begin if witness_begin is None else witness_begin
    for index in (begin, known):
        if not header.begin <= index <= header.end:
            raise InvalidSliceBegin(index, header.begin, header.end)
    return begin, known


def run_end(messages: pa.BinaryArray, begin: int, msg_limit: int | None, byte_limit: int | None, *, first: bool) -> int:
    """Return the end of the run of messages from ``begin`` on within the limits (X-9).

    ``first``: always include the first message, whatever its length.

    Raises:
        InvalidInput: a limit is negative.
    """
    for limit, name in ((msg_limit, "msg_limit"), (byte_limit, "byte_limit")):
        if limit is not None and limit < 0:
            raise InvalidInput(f"{name} is {limit}, 0 or more is allowed")
    most = len(messages) if msg_limit is None else min(msg_limit, len(messages))
    if byte_limit is None or most == 0:
        return begin + most
    sizes = np.cumsum(pc.binary_length(messages.slice(0, most)).to_numpy(zero_copy_only=False).astype(np.int64))
    return begin + max(int(np.searchsorted(sizes, byte_limit, side="right")), int(first))
