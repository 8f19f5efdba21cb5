"""Encode, verify, split and join certified stream slices (IC reference 2.7, 2.9, X-15).

A slice carries the subnet's certification of its state (IC reference 2.9).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.certificate import certification_message, verify_state_root
from causeway_proofs.ic.errors import (
    DecodeError,
    DecodeFailed,
    DifferentSubnet,
    IndexMismatch,
    InvalidDestination,
    MissingStream,
    MissingStreams,
    RootHashMismatch,
    SignalsEndRegresses,
    TakeBeforeSliceBegin,
    TreeHashError,
    WitnessPruningFailed,
)
from causeway_proofs.ic.messages import StreamMessage, decode_stream_message
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion, encode_leb128
from causeway_proofs.ic.slice_payload import MESSAGES, STREAMS, SlicePayload, read_payload, stream_index
from causeway_proofs.ic.stream_header import StreamHeader
from causeway_proofs.ic.witness import (
    LabeledTree,
    SubTree,
    TreeLeaf,
    Witness,
    decode_labeled_tree,
    decode_witness,
    encode_labeled_tree,
    encode_witness,
    first_sub_witness,
    prune_witness,
    recompute_digest,
    sub_witness,
)
from causeway_proofs.limits import MAX_PROOF_BYTES, require_length
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.steps import Step
from causeway_proofs.wire import xnet_pb2

METADATA, HEIGHT = b"metadata", b"height"

MAX_SIGNER_BYTES = 256
"""Longest id of a key: a height, two numbers and an id of 29 bytes.

It is unsigned, so it must not carry a payload.
"""

MAX_HEIGHT_WITNESS_BYTES = 1024
"""Longest height witness: one leaf two labels deep, a pruned node a fork.

A pruned node has 36 bytes; a state has a dozen labels.
"""

MAX_CERTIFICATION_BYTES = 2048
"""Longest certification, above the sum of its largest parts."""


@dataclass(frozen=True, slots=True)
class Certification:
    """A subnet's signature on the root of its state.

    Attributes:
        height: height of the state.
        root_hash: digest of the state's tree, 32 bytes.
        signature: threshold signature on ``signed_bytes()``; 48 bytes if valid.
        signer: encoded id of the signing key, or None.
        height_witness: encoded witness of ``metadata / height`` in the state (certification version 24 on), or None.
            Without it, the height is unproven.
    """

    height: int
    root_hash: bytes
    signature: bytes
    signer: bytes | None = None
    height_witness: bytes | None = None

    def signed_bytes(self) -> bytes:
        """Return the signed message: the domain separator of state roots, and the root."""
        return certification_message(self.root_hash)

    def verify_height(self) -> bool:
        """Verify ``height`` against ``height_witness``.

        Returns:
            True if the certification has a height witness.

        Raises:
            OverLimit, MalformedProof: ``height_witness`` is not a witness.
            WitnessPruningFailed: it is not a witness of the height.
            RootHashMismatch: it is of another height or another state.
        """
        if self.height_witness is None:
            return False
        require_length(self.height_witness, "height witness", MAX_HEIGHT_WITNESS_BYTES)
        try:
            root = recompute_digest(height_tree(self.height), decode_witness(self.height_witness))
        except TreeHashError as error:
            raise WitnessPruningFailed(f"height witness: {error}") from error
        if root != self.root_hash:
            raise RootHashMismatch(
                f"height {self.height} and its witness have the root {root.hex()}, certified is {self.root_hash.hex()}"
            )
        return True


def height_tree(height: int) -> LabeledTree:
    """Build a state's part with its height: ``metadata / height``, LEB128 (IC reference 2.9)."""
    return SubTree({METADATA: SubTree({HEIGHT: TreeLeaf(encode_leb128(height))})})


def encode_certification(certification: Certification) -> bytes:
    """Encode a certification in protobuf."""
    return write_certification(certification).SerializeToString(deterministic=True)


def decode_certification(data: bytes) -> Certification:
    """Decode the canonical protobuf form of a certification without verifying it.

    Raises:
        OverLimit: the message, the signer's id or the height witness is too long.
        MalformedProof: the message is not canonical, a part is missing, or the root hash is not a digest.
    """
    return read_certification(parse_canonical(xnet_pb2.Certification, data, "Certification", MAX_CERTIFICATION_BYTES))


def write_certification(certification: Certification) -> xnet_pb2.Certification:
    """Convert a certification to a protobuf message."""
    return xnet_pb2.Certification(
        height=certification.height,
        content=xnet_pb2.CertificationContent(hash=certification.root_hash),
        signature=xnet_pb2.ThresholdSignature(signature=certification.signature, signer=certification.signer),
        height_witness=certification.height_witness,
    )


def read_certification(message: xnet_pb2.Certification) -> Certification:
    """Convert a protobuf message to a certification.

    Raises:
        OverLimit: the signer's id or the height witness is too long.
        DecodeFailed: a part is missing, or the root hash is not a digest.
    """
    if not message.HasField("content"):
        raise DecodeFailed("Missing required struct field: Certification::content")
    if not message.HasField("signature"):
        raise DecodeFailed("Missing required struct field: Certification::signature")
    root_hash = message.content.hash
    if len(root_hash) != DIGEST_BYTES:
        raise DecodeFailed(f"root hash: expected a blob of length {DIGEST_BYTES}, got {len(root_hash)}")
    signed = message.signature
    require_length(signed.signer, "signer of a certification", MAX_SIGNER_BYTES)
    require_length(message.height_witness, "height witness", MAX_HEIGHT_WITNESS_BYTES)
    return Certification(
        height=message.height,
        root_hash=root_hash,
        signature=signed.signature,
        signer=signed.signer if signed.HasField("signer") else None,
        height_witness=message.height_witness if message.HasField("height_witness") else None,
    )


@dataclass(frozen=True, slots=True)
class StreamSlice:
    """Decoded content of a slice.

    Attributes:
        subnet_id: destination subnet of the stream.
        header: header of the whole stream: its bounds and signals.
        messages: messages by index, gap-free and ascending.
    """

    subnet_id: bytes
    header: StreamHeader
    messages: tuple[tuple[int, StreamMessage], ...]


@dataclass(frozen=True, slots=True)
class CertifiedStreamSlice:
    """A part of a stream, its witness in the state, and a signature on the state's root.

    Attributes:
        payload: header and encoded messages.
        witness: of exactly these in the whole state. A slice to be appended to another also knows the other's messages.
        certification: of the state.
    """

    payload: SlicePayload
    witness: Witness
    certification: Certification

    def root_digest(self) -> bytes:
        """Return the state root computed from payload and witness.

        Returns:
            The root, 32 bytes.

        Raises:
            WitnessPruningFailed: payload and witness do not match.
        """
        try:
            return recompute_digest(self.payload.tree(), self.witness)
        except TreeHashError as error:
            raise WitnessPruningFailed(str(error)) from error

    def verify_root(self) -> tuple[Step, ...]:
        """Verify that payload and witness, and the height witness if any, have the certified root.

        The signature is not verified.

        Returns:
            The steps to the root.

        Raises:
            WitnessPruningFailed: payload and witness do not match.
            RootHashMismatch: their root differs.
            MalformedProof: the height witness is malformed.
        """
        root = self.root_digest()
        certified = self.certification.root_hash
        if root != certified:
            raise RootHashMismatch(f"the slice has the root {root.hex()}, certified is {certified.hex()}")
        height = self.certification.height
        proven = self.certification.verify_height()
        summary = f"header and {len(self.payload.messages)} messages of the stream to {self.payload.subnet_id.hex()}"
        return (
            Step("payload", summary, self.payload.header_bytes),
            Step("witness", "payload plugged in, pruned to the root", root),
            *([Step("height", f"height {height} plugged in, pruned to the root", root)] if proven else ()),
            Step("certified", f"root of the state at height {height}", certified),
        )

    def decode_messages(self, version: CertificationVersion = CURRENT) -> StreamSlice:
        """Decode the messages of the slice.

        Args:
            version: certification version.

        Returns:
            The decoded slice.

        Raises:
            DecodeFailed: a message is not valid at that version.
        """
        messages = []
        for index, encoded in self.payload.indexed_messages().items():
            try:
                messages.append((index, decode_stream_message(encoded, version)))
            except DecodeError as error:
                raise DecodeFailed(f"message {index}: {error}") from error
        return StreamSlice(self.payload.subnet_id, self.payload.header, tuple(messages))

    def take_prefix(self, count: int) -> tuple[CertifiedStreamSlice, CertifiedStreamSlice | None]:
        """Split the slice after its first ``count`` messages.

        Both parts have the header; the witness of each prunes the messages of the other.

        Args:
            count: number of messages of the first part.

        Returns:
            The first part, and the second or None if it is empty.

        Raises:
            WitnessPruningFailed: payload and witness do not match.
        """
        first, rest = self._with_messages(0, count), self._with_messages(count, None)
        if not rest.messages:
            return self, None
        if not first.messages:
            return self._pruned(first, self.payload), self
        return self._pruned(first, rest), self._pruned(rest, first)

    def garbage_collect(self, message_index: int, signal_index: int = 0) -> CertifiedStreamSlice | None:
        """Drop the messages below ``message_index``.

        Args:
            message_index: first index to retain.
            signal_index: index below which the receiver has all signals.

        Returns:
            The slice, or None if it holds nothing new for the receiver.

        Raises:
            WitnessPruningFailed: payload and witness do not match.
        """
        begin = self.payload.messages_begin
        dropped = 0 if begin is None else min(max(message_index - begin, 0), len(self.payload.messages))
        left = self._with_messages(dropped, None)
        if not left.messages and signal_index >= left.header.signals_end:
            return None
        return self._pruned(left, self._with_messages(0, dropped)) if dropped else self

    def take(self, message_index: int, count: int) -> tuple[CertifiedStreamSlice, CertifiedStreamSlice | None]:
        """Split off ``count`` messages from ``message_index`` on.

        Args:
            message_index: index of the first message.
            count: number of messages.

        Returns:
            The slice of these messages, and the slice of the later ones or None.

        Raises:
            TakeBeforeSliceBegin: the slice's messages begin behind ``message_index``.
            WitnessPruningFailed: payload and witness do not match.
        """
        begin = self.payload.messages_begin
        if begin is not None and message_index < begin:
            raise TakeBeforeSliceBegin(f"messages are asked for from {message_index} on, the slice begins at {begin}")
        left = self.garbage_collect(message_index)
        return (left or self).take_prefix(count)

    def append(self, later: CertifiedStreamSlice) -> CertifiedStreamSlice:
        """Join ``later`` to this slice, under the header and certification of ``later``.

        Verify the root of the result before use.

        Args:
            later: a slice with a witness of the messages of both (of its own only if this slice has none).

        Returns:
            The joined slice.

        Raises:
            DifferentSubnet, SignalsEndRegresses, IndexMismatch: the slices do not belong together.
            InvalidSlice: the witness of ``later`` is not of a stream.
        """
        ours, theirs = self.payload, later.payload
        begin = theirs.messages_begin if ours.messages_begin is None else ours.messages_begin
        if later.witness_begin() != begin:
            raise IndexMismatch(f"the witness begins at {later.witness_begin()}, the messages at {begin}")
        if theirs.subnet_id != ours.subnet_id:
            raise DifferentSubnet(f"a slice to {theirs.subnet_id.hex()} after one to {ours.subnet_id.hex()}")
        if theirs.header.signals_end < ours.header.signals_end:
            raise SignalsEndRegresses(f"signals end at {theirs.header.signals_end} after {ours.header.signals_end}")
        if ours.messages and theirs.messages and theirs.messages_begin != ours.messages_end:
            raise IndexMismatch(f"messages from {theirs.messages_begin} on after those up to {ours.messages_end}")
        messages = ours.messages + theirs.messages
        if begin is not None and not theirs.header.begin <= begin <= begin + len(messages) <= theirs.header.end:
            run, stream = f"[{begin}, {begin + len(messages)})", f"[{theirs.header.begin}, {theirs.header.end})"
            raise IndexMismatch(f"messages {run} in the stream {stream}")
        return replace(later, payload=replace(theirs, messages_begin=begin, messages=messages))

    def witness_begin(self) -> int | None:
        """Return the index of the first message that the witness knows, or None.

        Returns:
            The index, or None.

        Raises:
            MissingStreams, MissingStream, NotAStreamIndex: the witness is not of a stream.
        """
        streams = sub_witness(self.witness, STREAMS)
        if streams is None:
            raise MissingStreams("the witness has no /streams")
        stream = first_sub_witness(streams)
        if stream is None:
            raise MissingStream("the witness has no stream")
        messages = sub_witness(stream.sub_witness, MESSAGES)
        first = None if messages is None else first_sub_witness(messages)
        return None if first is None else stream_index(first.label)

    def _with_messages(self, start: int, stop: int | None) -> SlicePayload:
        payload = self.payload
        messages = payload.messages[start:stop]
        begin = payload.messages_begin + start if messages and payload.messages_begin is not None else None
        return replace(payload, messages_begin=begin, messages=messages)

    def _pruned(self, retained: SlicePayload, dropped: SlicePayload) -> CertifiedStreamSlice:
        """Return the slice with payload ``retained``, its witness pruned of messages in ``dropped``."""
        if not dropped.messages:
            return replace(self, payload=retained)
        try:
            witness = prune_witness(self.witness, dropped.messages_tree())
        except TreeHashError as error:
            raise WitnessPruningFailed(str(error)) from error
        return CertifiedStreamSlice(retained, witness, self.certification)


def encode_certified_stream_slice(certified: CertifiedStreamSlice) -> bytes:
    """Encode a slice in protobuf.

    Args:
        certified: the slice.

    Returns:
        The encoding.

    Raises:
        EncodeError: payload or witness exceed the levels that decoders read.
    """
    message = xnet_pb2.CertifiedStreamSlice(
        payload=encode_labeled_tree(certified.payload.tree()),
        merkle_proof=encode_witness(certified.witness),
        certification=write_certification(certified.certification),
    )
    return message.SerializeToString(deterministic=True)


def decode_certified_stream_slice(
    data: bytes, version: CertificationVersion = CURRENT, limit: int = MAX_PROOF_BYTES
) -> CertifiedStreamSlice:
    """Decode the canonical protobuf form of a slice without verifying root or signature.

    Args:
        data: the encoding.
        version: certification version.
        limit: most bytes.

    Returns:
        The slice.

    Raises:
        OverLimit: ``data`` exceeds ``limit`` bytes.
        MalformedProof: ``data`` is not canonical, or has extra or missing parts (``InvalidSlice``).
    """
    message = parse_canonical(xnet_pb2.CertifiedStreamSlice, data, "CertifiedStreamSlice", limit)
    if not message.HasField("certification"):
        raise DecodeFailed("Missing required struct field: CertifiedStreamSlice::certification")
    payload = read_payload(decode_labeled_tree(message.payload), version)
    witness = decode_witness(message.merkle_proof)
    return CertifiedStreamSlice(payload, witness, read_certification(message.certification))


def decode_valid_certified_stream(
    own_subnet: bytes, data: bytes, version: CertificationVersion = CURRENT
) -> StreamSlice:
    """Decode a previously validated slice, skipping root and signature (IC reference 2.8).

    Args:
        own_subnet: id of the receiving subnet.
        data: the encoding.
        version: certification version.

    Returns:
        The content.

    Raises:
        MalformedProof: ``data`` is not a slice.
        InvalidDestination: the stream leads to another subnet.
    """
    return _for_subnet(own_subnet, b"", decode_certified_stream_slice(data, version)).decode_messages(version)


def decode_certified_stream(
    own_subnet: bytes,
    remote_subnet: bytes,
    data: bytes,
    public_key: bytes,
    version: CertificationVersion = CURRENT,
) -> StreamSlice:
    """Decode and verify a slice from a remote subnet (IC reference 2.8).

    Args:
        own_subnet: id of the receiving subnet.
        remote_subnet: id of the sending subnet.
        data: the encoding.
        public_key: key of the sending subnet, 96 bytes.
        version: certification version.

    Returns:
        The content.

    Raises:
        MalformedProof: ``data`` is not a slice.
        InvalidDestination: the stream leads to another subnet.
        WitnessPruningFailed: payload and witness do not match.
        RootHashMismatch: their root is not the certified one.
        MalformedSignature, MalformedKey, InvalidSignature: the root is not signed with the key.
    """
    certified = _for_subnet(own_subnet, remote_subnet, decode_certified_stream_slice(data, version))
    certified.verify_root()
    verify_state_root(certified.certification.root_hash, certified.certification.signature, public_key)
    return certified.decode_messages(version)


def _for_subnet(own_subnet: bytes, remote_subnet: bytes, certified: CertifiedStreamSlice) -> CertifiedStreamSlice:
    receiver = certified.payload.subnet_id
    if receiver != own_subnet:
        why = f"the stream leads to subnet {receiver.hex()}, not to {own_subnet.hex()}"
        raise InvalidDestination(why, remote_subnet, receiver)
    return certified
