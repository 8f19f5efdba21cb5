"""Chain ids, and the keys of queues in a zone's store.

Reference:
    IBC reference 2.1, 2.3; ``key_codec = plain``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from causeway.protocols.ibc.errors import IbcError, Refusal

PREFIX = b"ibc:"
"""The prefix of every key of a queue, and of no other key."""

HEAD_KEY = b"\x00"
TAIL_KEY = b"\x7f"
INDEX_BYTES = 8

MAX_INDEX = 0x7F << 56
"""Upper bound of indices, so that the key of a queue's tail follows those of its messages."""

_IDENTIFIER = re.compile(rb"[A-Za-z0-9._+#\[\]<>-]{1,64}")


class QueuePurpose(IntEnum):
    """The content of a queue: packets for the remote chain, or results of its packets."""

    SEND = 0
    RECEIPT = 1


_WORDS = {QueuePurpose.SEND: b"send", QueuePurpose.RECEIPT: b"receipt"}
_PURPOSES = {word: purpose for purpose, word in _WORDS.items()}


class KeyPart(IntEnum):
    """The part of a queue that a key names: head, tail or entry.

    In proofs it may also be the absence of an entry.
    """

    HEAD = 0
    TAIL = 1
    INDEX = 2
    ABSENT = 3


@dataclass(frozen=True, slots=True)
class QueueKey:
    """A parsed key: remote chain, queue, part, and index (0 for head and tail)."""

    remote: str
    purpose: QueuePurpose
    part: KeyPart
    index: int = 0

    def encode(self) -> bytes:
        """Return the bytes of the key."""
        name = queue_name(self.remote, self.purpose)
        if self.part == KeyPart.HEAD:
            return name + HEAD_KEY
        return name + (TAIL_KEY if self.part == KeyPart.TAIL else self.index.to_bytes(INDEX_BYTES, "big"))


def valid_identifier(identifier: str) -> bool:
    """Return True if a text is a chain id or packet type: 1 to 64 allowed bytes, no colon."""
    return identifier.isascii() and _IDENTIFIER.fullmatch(identifier.encode()) is not None


def queue_name(remote: str, purpose: QueuePurpose) -> bytes:
    """Return the name of the queue that a chain keeps for another.

    Args:
        remote: The id of the other chain.
        purpose: The content of the queue.
    """
    return PREFIX + remote.encode() + b":" + _WORDS[purpose]


def index_key(remote: str, purpose: QueuePurpose, index: int) -> bytes:
    """Return the key of an entry.

    Args:
        remote: The id of the other chain.
        purpose: The content of the queue.
        index: The index of the entry.
    """
    return QueueKey(remote, purpose, KeyPart.INDEX, index).encode()


def parse_key(data: bytes) -> QueueKey:
    """Parse a key of a queue.

    Raises:
        IbcError: MalformedKey, for bytes that are no key of a queue.
    """
    pieces = data[len(PREFIX) :].split(b":", 1) if data.startswith(PREFIX) else []
    if len(pieces) != 2 or not _IDENTIFIER.fullmatch(pieces[0]):
        raise IbcError(Refusal.MalformedKey, f"{data[:96].hex()} does not begin with ibc:<chain id>:")
    for word, purpose in _PURPOSES.items():
        if pieces[1].startswith(word):
            rest = pieces[1][len(word) :]
            remote = pieces[0].decode()
            if rest == HEAD_KEY:
                return QueueKey(remote, purpose, KeyPart.HEAD)
            if rest == TAIL_KEY:
                return QueueKey(remote, purpose, KeyPart.TAIL)
            if len(rest) == INDEX_BYTES:
                return QueueKey(remote, purpose, KeyPart.INDEX, int.from_bytes(rest, "big"))
    raise IbcError(Refusal.MalformedKey, f"{data[:96].hex()} does not end in send or receipt and head, tail or index")
