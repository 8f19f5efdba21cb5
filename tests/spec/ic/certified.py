"""Certified states and slices (2.7 to 2.9): what a subnet signs, what it serves, and what a taker makes of the bytes.

Signatures are stand-ins: `signed(subnet, root)` is what that subnet alone can make over that root. Everything below
them is real: encodings, trees, witnesses, digests.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.spec.ic.encoding import (
    CURRENT,
    METADATA_SUBTREE,
    Header,
    decoded_header,
    decoded_message,
    encoded_header,
    leb128,
)
from tests.spec.ic.errors import (
    InvalidDestination,
    InvalidSignature,
    InvalidSliceBegin,
    InvalidSliceIndices,
    NoStreamForSubnet,
    SerializationError,
)
from tests.spec.ic.hash_tree import LabeledTree, Path, Witness, at_path, pruned, recomputed, root_of, witness_of
from tests.spec.ic.ids import SubnetId, subnet_bytes
from tests.spec.ic.messages import CanisterMessage
from tests.spec.ic.state import SubstreamId
from tests.spec.ic.tree import index_label, stream_label

SIGNATURE = 48


def signed(subnet: SubnetId, root: bytes) -> bytes:
    """Stands for the signature of `subnet` over a root."""
    return hashlib.sha384(b"signed" + subnet_bytes(subnet) + root).digest()


@dataclass(frozen=True)
class Certification:
    """A signature over a root, with the height of the state. `height_witness` shows the height under the root, where
    the state tree has it (from V24 on)."""

    height: int
    root: bytes
    signature: bytes
    height_witness: Witness | None = None


@dataclass(frozen=True)
class CertifiedState:
    """A state tree with its certification; `heights` has the round that put each message into its stream, by the label
    of the stream."""

    own: SubnetId
    tree: Mapping[bytes, Any]
    certification: Certification
    heights: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)

    @property
    def root(self) -> bytes:
        return self.certification.root


def certify(
    own: SubnetId,
    tree: Mapping[bytes, Any],
    height: int,
    heights: Mapping[bytes, Mapping[int, int]] | None = None,
    version: int = CURRENT,
) -> CertifiedState:
    """What the subnet signs of a state."""
    root = root_of(tree)
    shown = witness_of(tree, height_part(height)) if version >= METADATA_SUBTREE else None
    return CertifiedState(own, tree, Certification(height, root, signed(own, root), shown), heights or {})


def height_part(height: int) -> dict[bytes, Any]:
    return {b"metadata": {b"height": leb128(height)}}


@dataclass(frozen=True)
class CertifiedStreamSlice:
    """`payload` is a part of the state tree (`streams` alone), `witness` the way from it to the root. `heights` is no
    part of what is certified: a lake knows it of its own messages, and nothing but the rule on stale requests asks."""

    payload: LabeledTree
    witness: Witness
    certification: Certification
    heights: Mapping[int, int] = field(default_factory=dict)


# ---- served (2.8, X-9)


def encode_certified_stream_slice(
    state: CertifiedState,
    destination: SubnetId,
    witness_begin: int | None = None,
    msg_begin: int | None = None,
    msg_limit: int | None = None,
    byte_limit: int | None = None,
    substream: SubstreamId = (),
) -> CertifiedStreamSlice:
    """Header and messages [msg_begin, ...) of one substream to `destination`, cut by limits. With an earlier
    `witness_begin` the witness takes the messages from there on for known: the suffix of a slice that the asker has.
    `byte_limit` counts the messages' bytes and always admits the first one, but for such a suffix."""
    if witness_begin is not None and msg_begin is not None and witness_begin > msg_begin:
        raise InvalidSliceIndices(f"witness_begin {witness_begin}, msg_begin {msg_begin}")
    label = stream_label(destination, substream)
    stream = at_path(state.tree, (b"streams", label))
    if stream is None or isinstance(stream, bytes):
        raise NoStreamForSubnet(destination)
    header = decoded_header(stream[b"header"])
    first = header.begin if msg_begin is None else msg_begin
    known = first if witness_begin is None else witness_begin
    for begin in (known, first):
        if not header.begin <= begin <= header.end:
            raise InvalidSliceBegin(f"slice_begin {begin}, stream_begin {header.begin}, stream_end {header.end}")
    messages = stream.get(b"messages", {})
    taken: list[int] = []
    for index in range(first, header.end):
        size = sum(len(messages[index_label(i)]) for i in [*taken, index])
        admitted = not taken and known == first
        if len(taken) == msg_limit or (byte_limit is not None and not admitted and size > byte_limit):
            break
        taken.append(index)
    end = taken[-1] + 1 if taken else first
    heights = {i: at for i, at in state.heights.get(label, {}).items() if i in taken}
    shown = _payload(label, stream, range(known, end))
    payload = _payload(label, stream, taken)
    return CertifiedStreamSlice(payload, witness_of(state.tree, shown), state.certification, heights)


def _payload(label: bytes, stream: Mapping[bytes, Any], indices: Any) -> dict[bytes, Any]:
    messages = {index_label(i): stream[b"messages"][index_label(i)] for i in indices}
    part = {b"header": stream[b"header"], **({b"messages": messages} if messages else {})}
    return {b"streams": {label: part}}


# ---- taken (2.8, 2.9)


@dataclass(frozen=True)
class Content:
    """What stands in the tree of a slice: the messages as they were encoded."""

    label: bytes
    header: Header
    header_bytes: bytes
    blobs: Mapping[int, bytes]


@dataclass(frozen=True)
class Decoded:
    """What a slice says."""

    header: Header
    messages: Mapping[int, CanisterMessage]
    substream: SubstreamId = ()


def read_payload(payload: LabeledTree, version: int = CURRENT) -> Content:
    """Exactly `streams`, one stream, `header` and optional `messages` without a gap; anything else is refused."""

    def children(tree: Any) -> Mapping[bytes, Any]:
        if isinstance(tree, bytes):
            raise SerializationError("NotASubTree")
        found: Mapping[bytes, Any] = tree
        return found

    def leaf(tree: Any) -> bytes:
        if not isinstance(tree, bytes):
            raise SerializationError("NotALeaf")
        return tree

    top = children(payload)
    if b"streams" not in top:
        raise SerializationError("MissingStreams")
    if len(top) > 1:
        raise SerializationError("ExtraContents")
    streams = children(top[b"streams"])
    if len(streams) != 1:
        raise SerializationError("MoreThanOneStream" if streams else "MissingStream")
    ((label, stream),) = streams.items()
    parts = children(stream)
    if b"header" not in parts:
        raise SerializationError("MissingHeader")
    if set(parts) - {b"header", b"messages"}:
        raise SerializationError("ExtraContents")
    header_bytes = leaf(parts[b"header"])
    header = decoded_header(header_bytes, version)
    listed = children(parts.get(b"messages", {}))
    if b"messages" in parts and not listed:
        raise SerializationError("EmptyMessages")
    if any(len(label) != 8 for label in listed):
        raise SerializationError("NotAStreamIndex")
    blobs = {int.from_bytes(label, "big"): leaf(listed[label]) for label in sorted(listed)}
    if blobs and list(blobs) != list(range(min(blobs), max(blobs) + 1)):
        raise SerializationError("InvalidBounds: messages have a gap")
    return Content(label, header, header_bytes, blobs)


def decode_valid_certified_stream(own: SubnetId, css: CertifiedStreamSlice, version: int = CURRENT) -> Decoded:
    """What a slice says, and that it is for us. Nothing is recomputed: it was validated before."""
    found = read_payload(css.payload, version)
    substream = substream_of(found.label, own)
    messages = {index: decoded_message(blob, version) for index, blob in found.blobs.items()}
    return Decoded(found.header, messages, substream)


def substream_of(label: bytes, own: SubnetId) -> SubstreamId:
    """Which substream of a stream to us a label of `streams` is."""
    if label == subnet_bytes(own):
        return ()
    canister = int.from_bytes(label[10:18], "big")
    if label != stream_label(own, canister):
        raise InvalidDestination(f"for {label.hex()}, not for {own}")
    return canister


def decode_certified_stream(
    own: SubnetId, remote: SubnetId, css: CertifiedStreamSlice, version: int = CURRENT
) -> Decoded:
    """A slice that `remote` has certified, for us."""
    found = decode_valid_certified_stream(own, css, version)
    verify_root(css, version)
    if css.certification.signature != signed(remote, css.certification.root):
        raise InvalidSignature(remote)
    return found


def verify_root(css: CertifiedStreamSlice, version: int = CURRENT) -> None:
    """The payload and, from V24 on, the height have the certified root."""
    certification = css.certification
    if recomputed(css.payload, css.witness) != certification.root:
        raise SerializationError("RootHashMismatch")
    if version >= METADATA_SUBTREE and certification.height_witness is None:
        raise SerializationError("a height without its witness")
    if certification.height_witness is not None:
        shown = recomputed(height_part(certification.height), certification.height_witness)
        if shown != certification.root:
            raise SerializationError("RootHashMismatch: height")


# ---- cut


def without_messages(css: CertifiedStreamSlice, goes: Callable[[int], bool]) -> CertifiedStreamSlice:
    """The slice without some of its messages, pruned in its witness, too."""
    found = read_payload(css.payload)
    label = found.label

    def at(path: Path) -> bool:
        return len(path) == 4 and goes(int.from_bytes(path[3], "big"))

    kept = {index_label(i): blob for i, blob in found.blobs.items() if not goes(i)}
    part = {b"header": found.header_bytes, **({b"messages": kept} if kept else {})}
    heights = {i: height for i, height in css.heights.items() if not goes(i)}
    witness = pruned(css.witness, at, (), css.payload)
    return replace(css, payload={b"streams": {label: part}}, witness=witness, heights=heights)


def take_prefix(css: CertifiedStreamSlice, count: int) -> CertifiedStreamSlice:
    """The slice with its first `count` messages."""
    kept = sorted(read_payload(css.payload).blobs)[:count]
    return without_messages(css, lambda index: index not in kept)


def garbage_collect(css: CertifiedStreamSlice, begin: int) -> CertifiedStreamSlice:
    """The slice without the messages below `begin`."""
    return without_messages(css, lambda index: index < begin)


# ---- altered by carriers

PARTS = ("payload", "sibling", "signature", "destination", "height", "header")


def altered(css: CertifiedStreamSlice, part: str, other: SubnetId) -> CertifiedStreamSlice:
    """What a carrier makes of a slice. Payload: a bit of the first message. Sibling: a digest of what is not shown.
    Signature: a bit of it. Destination: the subnet that it is for becomes `other`. Height: one higher. Header: it
    signals one message more. A slice without messages has no payload to alter."""
    certification = css.certification
    if part == "signature":
        return replace(css, certification=replace(certification, signature=flipped(certification.signature)))
    if part == "height":
        return replace(css, certification=replace(certification, height=certification.height + 1))
    if part == "sibling":
        return replace(css, witness=_other_sibling(css.witness))
    found = read_payload(css.payload)
    stream = {b"header": found.header_bytes, **({b"messages": _labeled(found.blobs)} if found.blobs else {})}
    if part == "destination":
        label = subnet_bytes(other) + found.label[10:]
        witness = _relabeled(css.witness, {found.label: label})
        return replace(css, payload={b"streams": {label: stream}}, witness=witness)
    if part == "payload" and found.blobs:
        first = min(found.blobs)
        stream[b"messages"] = _labeled({**found.blobs, first: flipped(found.blobs[first])})
    elif part == "header":
        header = found.header
        stream[b"header"] = encoded_header(header.begin, header.end, header.signals_end + 1, header.rejects)
    return replace(css, payload={b"streams": {found.label: stream}})


def exchanged(css: CertifiedStreamSlice) -> CertifiedStreamSlice:
    """The slice with its first two messages under each other's indices."""
    found = read_payload(css.payload)
    if len(found.blobs) < 2:
        return css
    first, second = sorted(found.blobs)[:2]
    blobs = {**found.blobs, first: found.blobs[second], second: found.blobs[first]}
    stream = {b"header": found.header_bytes, b"messages": _labeled(blobs)}
    return replace(css, payload={b"streams": {found.label: stream}})


def _labeled(blobs: Mapping[int, bytes]) -> dict[bytes, bytes]:
    return {index_label(index): blob for index, blob in blobs.items()}


def flipped(data: bytes) -> bytes:
    """The lowest bit of the last byte, turned."""
    return data[:-1] + bytes([data[-1] ^ 1])


def _other_sibling(witness: Witness) -> Witness:
    """The first digest from the left, altered."""
    if witness[0] == "pruned":
        return ("pruned", flipped(witness[1]))
    if witness[0] == "node":
        return ("node", witness[1], _other_sibling(witness[2]))
    if witness[0] == "fork":
        left = _other_sibling(witness[1])
        return ("fork", left, witness[2] if left != witness[1] else _other_sibling(witness[2]))
    return witness


def _relabeled(witness: Witness, labels: Mapping[bytes, bytes]) -> Witness:
    if witness[0] == "node":
        return ("node", labels.get(witness[1], witness[1]), _relabeled(witness[2], labels))
    if witness[0] == "fork":
        return ("fork", _relabeled(witness[1], labels), _relabeled(witness[2], labels))
    return witness
