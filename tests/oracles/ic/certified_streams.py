"""A certified state that serves slices of its streams: the state manager's encode routine (IC reference 2.8, 3.10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ic.certificate import certification_message
from causeway_proofs.ic.certified_streams import NoStreamForSubnet, require_order, run_begin, run_end
from causeway_proofs.ic.hash_tree import HashTree, NestedTree, Path, build_tree, digest
from causeway_proofs.ic.lookup import prune
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion, encode_leb128
from causeway_proofs.ic.slice import HEIGHT, METADATA, Certification, CertifiedStreamSlice
from causeway_proofs.ic.slice_payload import STREAMS, SlicePayload
from causeway_proofs.ic.stream_header import decode_stream_header
from causeway_proofs.ic.stream_tree import StreamTree
from causeway_proofs.ic.witness import encode_witness

from tests.oracles.ic.mixed_tree import split_hash_tree
from tests.oracles.ic.streams import streams_tree, streams_witness


@dataclass(frozen=True, slots=True)
class StoredStream:
    """A stream to one subnet: its digests, and all its encoded messages, those of ``tree``."""

    tree: StreamTree
    messages: pa.BinaryArray


class CertifiedStreams:
    """The streams of one state, certified once; every slice is cut from what was certified.

    Args:
        streams: each stream by the id of the subnet that it leads to. A change of one makes its slices be refused.
        contents: all else that is in the state, without ``streams``.
        height: of the state. Where ``contents`` have it (``metadata / height``), slices come with a witness of it.
        sign: signs for the subnet.
        version: of the headers.

    Raises:
        InvalidInput: ``contents`` have streams, or a stream's header has other bounds than its messages.
        DecodeError: a header is not encoded in that version.
    """

    def __init__(
        self,
        streams: Mapping[bytes, StoredStream],
        contents: NestedTree,
        height: int,
        sign: Callable[[bytes], bytes],
        version: CertificationVersion = CURRENT,
    ) -> None:
        state = state_of(streams, contents)
        root = digest(state)
        self.certification = Certification(
            height, root, sign(certification_message(root)), height_witness=height_witness(state, contents, height)
        )
        self._streams = dict(streams)
        self._headers = {subnet: decode_stream_header(held.tree.header, version) for subnet, held in streams.items()}
        for subnet, held in streams.items():
            header, messages = self._headers[subnet], held.tree.messages
            if (header.begin, header.end) != (messages.begin, messages.end):
                raise InvalidInput(
                    f"the stream to {subnet.hex()} has messages [{messages.begin}, {messages.end}) under a header of"
                    f" [{header.begin}, {header.end})"
                )
        self._contents = dict(contents)
        self._roots = {subnet: held.tree.root for subnet, held in streams.items()}

    def subnets_with_certified_streams(self) -> Sequence[bytes]:
        """Return the ids of the subnets that a stream leads to, ascending."""
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
            InvalidInput: the stream was changed since it was certified, or a limit is negative.
        """
        require_order(witness_begin, msg_begin)
        held = self._streams.get(dst_subnet)
        if held is None:
            raise NoStreamForSubnet(f"there is no stream to subnet {dst_subnet.hex()}")
        header = self._headers[dst_subnet]
        begin, known = run_begin(header, witness_begin, msg_begin)
        end = run_end(held.messages.slice(begin - header.begin), begin, msg_limit, byte_limit, first=known == begin)
        messages = held.messages.slice(known - header.begin, end - known)
        shown = streams_witness(self._roots, dst_subnet, held.tree.witness(known, end, messages))
        state = prune(build_tree({**self._contents, STREAMS: shown}), [(STREAMS,)])
        _, witness = split_hash_tree(state)
        run = tuple(messages.slice(begin - known).to_pylist())
        payload = SlicePayload(dst_subnet, held.tree.header, header, begin if run else None, run)
        return CertifiedStreamSlice(payload, witness, self.certification)


def state_of(streams: Mapping[bytes, StoredStream], contents: NestedTree) -> HashTree:
    """Return the tree of a state of ``contents`` and streams, these pruned; without streams there is no such label.

    Raises:
        InvalidInput: the contents have streams.
    """
    if STREAMS in contents:
        raise InvalidInput("the contents of a state have a label 'streams' beside the streams given")
    roots = {subnet: held.tree.root for subnet, held in streams.items()}
    return build_tree({**contents, STREAMS: streams_tree(roots)} if roots else contents)


def height_witness(state: HashTree, contents: NestedTree, height: int) -> bytes | None:
    """Return the encoded witness of ``metadata / height`` in ``state``; None if ``contents`` do not have that height
    there."""
    metadata = contents.get(METADATA)
    if not isinstance(metadata, Mapping) or metadata.get(HEIGHT) != encode_leb128(height):
        return None
    path: Path = (METADATA, HEIGHT)
    _, witness = split_hash_tree(prune(state, [path]))
    return encode_witness(witness)
