"""Chain ids, and the keys under which queues lie in a zone's store (IBC reference 2.1, 2.3; ``key_codec = plain``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from causeway.protocols.ibc.errors import IbcError, Refusal

PREFIX = b"ibc:"
"""What every key of a queue begins with; nothing else in a store does."""

HEAD_KEY = b"\x00"
TAIL_KEY = b"\x7f"
INDEX_BYTES = 8

MAX_INDEX = 0x7F << 56
"""Indices stay below this, so that in a store the key of a queue's tail comes after those of its messages."""

_IDENTIFIER = re.compile(rb"[A-Za-z0-9._+#\[\]<>-]{1,64}")


class QueuePurpose(IntEnum):
    """What a queue of a connection holds: packets for the remote chain, or results of packets that came from it."""

    SEND = 0
    RECEIPT = 1


_WORDS = {QueuePurpose.SEND: b"send", QueuePurpose.RECEIPT: b"receipt"}
_PURPOSES = {word: purpose for purpose, word in _WORDS.items()}


class KeyPart(IntEnum):
    """What lies under a key of a queue: where it begins, where it ends, or the entry of an index. Of proofs also that
    there is no entry."""

    HEAD = 0
    TAIL = 1
    INDEX = 2
    ABSENT = 3


@dataclass(frozen=True, slots=True)
class QueueKey:
    """A parsed key: whose queue, which queue, which entry (``index`` is 0 for head and tail)."""

    remote: str
    purpose: QueuePurpose
    part: KeyPart
    index: int = 0

    def encode(self) -> bytes:
        """Return the key's bytes."""
        name = queue_name(self.remote, self.purpose)
        if self.part == KeyPart.HEAD:
            return name + HEAD_KEY
        return name + (TAIL_KEY if self.part == KeyPart.TAIL else self.index.to_bytes(INDEX_BYTES, "big"))


def valid_identifier(identifier: str) -> bool:
    """Return whether a text is a chain id or a packet type: 1 to 64 of the allowed bytes, no colon."""
    return identifier.isascii() and _IDENTIFIER.fullmatch(identifier.encode()) is not None


def queue_name(remote: str, purpose: QueuePurpose) -> bytes:
    """Return the name of the queue that a chain keeps for ``remote``."""
    return PREFIX + remote.encode() + b":" + _WORDS[purpose]


def index_key(remote: str, purpose: QueuePurpose, index: int) -> bytes:
    """Return the key of an entry."""
    return QueueKey(remote, purpose, KeyPart.INDEX, index).encode()


def parse_key(data: bytes) -> QueueKey:
    """Return what a key says.

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
