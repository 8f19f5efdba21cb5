"""Streams of one subnet that are served as they go on: each as its state certified it last (IC reference 2.8, 3.10).

Of each stream this holds the messages, and of the state only the path from the stream's root to the state's. A later
state is taken over by what it changed: messages are appended and trimmed, header, path and certification replaced;
nothing is hashed again but what that forces (``stream_tree``).
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
    """A slice was asked for that the state does not have."""


class NoStreamForSubnet(SliceRequestError):
    """The state has no stream to the subnet."""


class InvalidSliceBegin(SliceRequestError):
    """The slice, or its witness, was to begin outside of the stream.

    Attributes:
        slice_begin: where.
        stream_begin, stream_end: the bounds of the stream; its end is allowed.
    """

    def __init__(self, slice_begin: int, stream_begin: int, stream_end: int) -> None:
        self.slice_begin, self.stream_begin, self.stream_end = slice_begin, stream_begin, stream_end
        super().__init__(f"a slice from {slice_begin} on is asked for, the stream is [{stream_begin}, {stream_end})")


class InvalidSliceIndices(SliceRequestError):
    """The witness was to begin after the messages, or nobody said where these begin.

    Attributes:
        witness_begin, msg_begin: where they were to begin; None if that was not said.
    """

    def __init__(self, witness_begin: int, msg_begin: int | None) -> None:
        self.witness_begin, self.msg_begin = witness_begin, msg_begin
        messages = "messages from nowhere" if msg_begin is None else f"messages from {msg_begin} on"
        super().__init__(f"a witness from {witness_begin} on for {messages} is asked for")


@dataclass(slots=True)
class _Stream:
    """One stream: its tree, and its messages in pieces of which the first begins where the tree does, or before."""

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
            path: from the stream's root to the state's (``stream_paths``).
            certification: of the state.

        Raises:
            InvalidInput: the stream goes back, or other messages are given than it has.
            RootHashMismatch: header, messages and path do not have the certified root; the stream is dropped.
            MalformedProof: header or path are none.
        """
        read, steps = decode_stream_header(header, self._version), decode_path(path)
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
            root = path_root(steps, subnet, held.tree.root)
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
        """Return the header and a run of the messages of the stream to ``dst_subnet`` (``get_stream``).

        Args:
            dst_subnet: where the stream leads to.
            witness_begin: the first message that the witness knows, for a slice that is to be appended to another;
                ``msg_begin`` if not given.
            msg_begin: the first message; the stream's first if not given.
            msg_limit: the most messages.
            byte_limit: the most bytes of encoded messages. The first message is in the slice in any case, unless the
                slice is to be appended to another (X-9).

        Raises:
            NoStreamForSubnet: there is none.
            InvalidSliceBegin: messages or witness begin outside of the stream.
            InvalidSliceIndices: the witness begins after the messages.
            InvalidInput: a limit is negative.
        """
        require_order(witness_begin, msg_begin)
        with self._lock:
            held = self._streams.get(dst_subnet)
            if held is None:
                raise NoStreamForSubnet(f"there is no stream to subnet {dst_subnet.hex()}")
            header, tree = held.header, held.tree
            begin, known = run_begin(header, witness_begin, msg_begin)
            last = header.end if msg_limit is None else min(header.end, begin + max(msg_limit, 0))
            messages = held.messages(begin, last)
            end = run_end(messages, begin, msg_limit, byte_limit, first=known == begin)
            shown: Witness = WitnessNode(HEADER, KNOWN)
            if header.begin < header.end:
                run = tree.messages.known(known, end)
                below = (
                    WitnessPruned(labeled_digest(MESSAGES, run.digest))
                    if isinstance(run, WitnessPruned)
                    else WitnessNode(MESSAGES, run)
                )
                shown = WitnessFork(shown, below)
            payload = tuple(messages.slice(0, end - begin).to_pylist())
            return CertifiedStreamSlice(
                SlicePayload(dst_subnet, tree.header, header, begin if payload else None, payload),
                path_witness(held.path, dst_subnet, shown),
                held.certification,
            )


def require_order(witness_begin: int | None, msg_begin: int | None) -> None:
    """Raise ``InvalidSliceIndices`` unless a slice's witness begins with its messages, or before them."""
    if witness_begin is not None and (msg_begin is None or witness_begin > msg_begin):
        raise InvalidSliceIndices(witness_begin, msg_begin)


def run_begin(header: StreamHeader, witness_begin: int | None, msg_begin: int | None) -> tuple[int, int]:
    """Return where the messages of a slice begin, and those that its witness knows.

    Raises:
        InvalidSliceBegin: outside of the stream.
    """
    begin = header.begin if msg_begin is None else msg_begin
    known = begin if witness_begin is None else witness_begin
    for asked in (begin, known):
        if not header.begin <= asked <= header.end:
            raise InvalidSliceBegin(asked, header.begin, header.end)
    return begin, known


def run_end(messages: pa.BinaryArray, begin: int, msg_limit: int | None, byte_limit: int | None, *, first: bool) -> int:
    """Return where a run of the messages from index ``begin`` on ends within the limits (X-9).

    ``first``: its first message is never too long.

    Raises:
        InvalidInput: a limit is negative.
    """
    for limit, what in ((msg_limit, "msg_limit"), (byte_limit, "byte_limit")):
        if limit is not None and limit < 0:
            raise InvalidInput(f"{what} is {limit}, 0 or more is allowed")
    most = len(messages) if msg_limit is None else min(msg_limit, len(messages))
    if byte_limit is None or most == 0:
        return begin + most
    sizes = np.cumsum(pc.binary_length(messages.slice(0, most)).to_numpy(zero_copy_only=False).astype(np.int64))
    return begin + max(int(np.searchsorted(sizes, byte_limit, side="right")), int(first))
