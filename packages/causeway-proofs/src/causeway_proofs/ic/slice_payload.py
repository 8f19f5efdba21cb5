"""The payload of a slice: one stream's header and a run of messages, as a labeled tree.

streams / <id of the destination subnet> / header
                                         / messages / <index>, 8 bytes big-endian

Reference:
    IC reference 2.7, 2.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from causeway_proofs.ic.errors import (
    DecodeError,
    DecodeFailed,
    EmptyMessages,
    ExtraContents,
    InvalidBounds,
    MissingHeader,
    MissingStream,
    MissingStreams,
    MoreThanOneStream,
    NotALeaf,
    NotAStreamIndex,
    NotASubTree,
    path_text,
)
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.stream_header import StreamHeader, decode_stream_header
from causeway_proofs.ic.witness import LabeledTree, SubTree, TreeLeaf

STREAMS, HEADER, MESSAGES = b"streams", b"header", b"messages"

INDEX_BYTES = 8


def index_label(index: int) -> bytes:
    """Return the label of a stream index: 8 bytes, big-endian."""
    return index.to_bytes(INDEX_BYTES, "big")


def stream_index(label: bytes) -> int:
    """Parse the label of a stream index.

    Raises:
        NotAStreamIndex: ``label`` is not 8 bytes long.
    """
    if len(label) != INDEX_BYTES:
        raise NotAStreamIndex(f"label {path_text([label])} has {len(label)} bytes, an index has {INDEX_BYTES}")
    return int.from_bytes(label, "big")


@dataclass(frozen=True, slots=True)
class SlicePayload:
    """The header and messages in a slice.

    Attributes:
        subnet_id: destination subnet of the stream.
        header_bytes: the encoded header.
        header: the decoded header.
        messages_begin: index of the first message, or None without messages.
        messages: the encoded messages from there on.
    """

    subnet_id: bytes
    header_bytes: bytes
    header: StreamHeader
    messages_begin: int | None
    messages: tuple[bytes, ...]

    @property
    def messages_end(self) -> int | None:
        """Index after the last message, or None without messages."""
        return None if self.messages_begin is None else self.messages_begin + len(self.messages)

    def tree(self) -> LabeledTree:
        """Return the labeled tree of header and messages."""
        return payload_tree(self.subnet_id, self.header_bytes, self.indexed_messages())

    def messages_tree(self) -> LabeledTree:
        """Return the labeled tree of the messages alone."""
        return payload_tree(self.subnet_id, None, self.indexed_messages())

    def indexed_messages(self) -> dict[int, bytes]:
        """Return the encoded messages by their index."""
        return {} if self.messages_begin is None else dict(enumerate(self.messages, self.messages_begin))


def payload_tree(subnet_id: bytes, header: bytes | None, messages: Mapping[int, bytes]) -> LabeledTree:
    """Build the labeled tree of a slice; missing messages or a missing header have no subtree.

    Args:
        subnet_id: destination subnet of the stream.
        header: the encoded header, or None.
        messages: encoded messages by index.

    Returns:
        The labeled tree.
    """
    stream: dict[bytes, LabeledTree] = {} if header is None else {HEADER: TreeLeaf(header)}
    if messages:
        stream[MESSAGES] = SubTree({index_label(index): TreeLeaf(message) for index, message in messages.items()})
    return SubTree({STREAMS: SubTree({subnet_id: SubTree(stream)})})


def read_payload(tree: LabeledTree, version: CertificationVersion = CURRENT) -> SlicePayload:
    """Parse a labeled tree as a payload.

    Raises:
        InvalidSlice: the tree has another shape, or extra or missing parts; the subclass names the fault.
        DecodeFailed: the header is not a header of that version.
    """
    top = _children(tree, ())
    if STREAMS not in top:
        raise MissingStreams(f"there is no {path_text([STREAMS])}")
    _require_only((STREAMS,), top, ())
    streams = _children(top[STREAMS], (STREAMS,))
    if not streams:
        raise MissingStream(f"there is nothing in {path_text([STREAMS])}")
    if len(streams) > 1:
        raise MoreThanOneStream(f"there are {len(streams)} streams in {path_text([STREAMS])}")
    subnet_id, below = next(iter(streams.items()))
    path = (STREAMS, subnet_id)
    stream = _children(below, path)
    if HEADER not in stream:
        raise MissingHeader(f"there is no {path_text([*path, HEADER])}")
    _require_only((HEADER, MESSAGES), stream, path)
    header_bytes = _value(stream[HEADER], (*path, HEADER))
    try:
        header = decode_stream_header(header_bytes, version)
    except DecodeError as error:
        raise DecodeFailed(str(error)) from error
    if header.begin > header.end:
        raise InvalidBounds(f"the stream begins at {header.begin} and ends at {header.end}")
    begin: int | None = None
    messages: tuple[bytes, ...] = ()
    if MESSAGES in stream:
        begin, messages = _messages(_children(stream[MESSAGES], (*path, MESSAGES)), path)
        if begin < header.begin or begin + len(messages) > header.end:
            raise InvalidBounds(
                f"messages [{begin}, {begin + len(messages)}) are not within the stream [{header.begin}, {header.end})"
            )
    return SlicePayload(subnet_id, header_bytes, header, begin, messages)


def _messages(children: Mapping[bytes, LabeledTree], path: tuple[bytes, ...]) -> tuple[int, tuple[bytes, ...]]:
    """Return the index of the first message, and the messages."""
    if not children:
        raise EmptyMessages(f"there is nothing in {path_text([*path, MESSAGES])}")
    begin = stream_index(next(iter(children)))
    found = []
    for expected, (label, child) in enumerate(children.items(), begin):
        if stream_index(label) != expected:
            raise InvalidBounds(f"non-consecutive message indices: {stream_index(label)} follows {expected - 1}")
        found.append(_value(child, (*path, MESSAGES, label)))
    return begin, tuple(found)


def _children(tree: LabeledTree, path: tuple[bytes, ...]) -> Mapping[bytes, LabeledTree]:
    if not isinstance(tree, SubTree):
        raise NotASubTree(f"{path_text(path)} is a leaf")
    return tree.children


def _value(tree: LabeledTree, path: tuple[bytes, ...]) -> bytes:
    if not isinstance(tree, TreeLeaf):
        raise NotALeaf(f"{path_text(path)} is a subtree")
    return tree.value


def _require_only(allowed: Iterable[bytes], children: Mapping[bytes, LabeledTree], path: tuple[bytes, ...]) -> None:
    extra = [label for label in children if label not in allowed]
    if extra:
        raise ExtraContents(f"{path_text([*path, extra[0]])} does not belong to a slice")
