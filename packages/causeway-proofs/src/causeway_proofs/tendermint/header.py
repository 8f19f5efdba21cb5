"""Block headers of Tendermint chains and their hash (IBC reference 2.5, as deployed).

Pieces of canonical protobuf that are hashed and signed; written directly, since they are written for every vote.

Times are nanoseconds since 1970-01-01T00:00:00Z, negative before it.

The root of a few leaves, one by one; ``proofs/merkle.py`` is the same tree (RFC 6962) for columns.

Why a light client does not take a header; names as in the IBC reference 3.6 and section 5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from google.protobuf.message import Message

from causeway_proofs.errors import MalformedProof, NotProven
from causeway_proofs.hashing import sha256
from causeway_proofs.merkle import EMPTY_ROOT, INNER_PREFIX, LEAF_PREFIX
from causeway_proofs.varints import uvarint
from causeway_proofs.wire import tendermint_types_pb2 as wire

SECOND = 10**9

MIN_TIME = -62_135_596_800 * SECOND
"""The first instant of year 1, which deployed encoders write where there is no time."""

MAX_TIME = 253_402_300_800 * SECOND - 1
"""The last nanosecond of year 9999, where the range of protobuf's Timestamp ends."""

NO_TIME = MIN_TIME

MAX_HEIGHT = 2**63 - 1


class SecondsAndNanos(Protocol):
    """What protobuf's Timestamp and Duration have in common."""

    seconds: int
    nanos: int


def number_field(number: int, value: int) -> bytes:
    """Return a varint field; nothing for 0. A negative ``value`` is a signed 64-bit integer."""
    return uvarint(number << 3) + uvarint(value % 2**64) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a bytes or text field; nothing for an empty one."""
    return message_field(number, value) if value else b""


def message_field(number: int, encoded: bytes) -> bytes:
    """Return the field of a message that is always written, also when it is empty."""
    return uvarint(number << 3 | 2) + uvarint(len(encoded)) + encoded


def sfixed64_field(number: int, value: int) -> bytes:
    """Return an sfixed64 field; nothing for 0."""
    return uvarint(number << 3 | 1) + value.to_bytes(8, "little", signed=True) if value else b""


def timestamp(time: int) -> bytes:
    """Return the protobuf Timestamp of a time in nanoseconds."""
    seconds, nanos = divmod(time, SECOND)
    return number_field(1, seconds) + number_field(2, nanos)


def time_from_proto(message: SecondsAndNanos, what: str) -> int:
    """Return the time in nanoseconds that a Timestamp holds.

    Raises:
        MalformedProof: the nanoseconds are no fraction of a second, or the year is not one of 1 to 9999.
    """
    if not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{what} has {message.nanos} nanoseconds beside its seconds, 0..999999999 are allowed")
    time = message.seconds * SECOND + message.nanos
    if not MIN_TIME <= time <= MAX_TIME:
        raise MalformedProof(f"{what} is {message.seconds} seconds from 1970, outside of the years 1 to 9999")
    return time


def duration_from_proto(message: SecondsAndNanos, what: str) -> int:
    """Return the nanoseconds of a Duration.

    Raises:
        MalformedProof: it is negative, or the nanoseconds are no fraction of a second.
    """
    if message.seconds < 0 or not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{what} of {message.seconds} s and {message.nanos} ns is no duration of 0 or more")
    return message.seconds * SECOND + message.nanos


def simple_root(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle root over ``leaves`` (IBC reference 2.6, ``simple``); ``EMPTY_ROOT`` over none."""
    if not leaves:
        return EMPTY_ROOT
    nodes = [sha256(LEAF_PREFIX + leaf) for leaf in leaves]
    while len(nodes) > 1:
        paired = len(nodes) & ~1
        above = [sha256(INNER_PREFIX + nodes[i] + nodes[i + 1]) for i in range(0, paired, 2)]
        # An odd last node moves up unchanged.
        nodes = above + nodes[paired:]
    return nodes[0]


HASH_BYTES = 32
ADDRESS_BYTES = 20
MAX_CHAIN_ID_BYTES = 64
"""IBC reference 2.1; deployed chains allow themselves 50."""

MAX_APP_HASH_BYTES = 1024
"""The application chooses its root; deployed ones have 32 bytes."""

BLOCK_PROTOCOL = 11
"""The version of the block format that deployed chains write."""

REVISION = re.compile(r"[^\n]*[^\n-]-([1-9][0-9]{0,19})")


@dataclass(frozen=True)
class BlockId:
    """What a commit signs: a header's hash and the hash of the parts in which the block travels.

    Attributes:
        hash: the header's hash; empty where there is no block before.
        part_count, parts_hash: how many parts the block has, and their Merkle root.
    """

    hash: bytes = b""
    part_count: int = 0
    parts_hash: bytes = b""

    def encode(self) -> bytes:
        """Return the protobuf form, which is also the one that votes sign."""
        parts = number_field(1, self.part_count) + bytes_field(2, self.parts_hash)
        return bytes_field(1, self.hash) + message_field(2, parts)

    @property
    def is_complete(self) -> bool:
        """Return whether this names a block: both hashes are there, and a part at least."""
        return len(self.hash) == HASH_BYTES and self.part_count > 0 and len(self.parts_hash) == HASH_BYTES


@dataclass(frozen=True)
class Header:
    """A block's header; hashes are 32 bytes or empty, ``time`` is in nanoseconds since 1970, ``app_hash`` the root.

    ``validators_hash`` is of the validators that sign this height, ``next_validators_hash`` of those of the next.
    """

    chain_id: str
    height: int
    time: int
    validators_hash: bytes
    next_validators_hash: bytes
    app_hash: bytes
    proposer_address: bytes
    last_block_id: BlockId = BlockId()
    last_commit_hash: bytes = b""
    data_hash: bytes = b""
    consensus_hash: bytes = b""
    last_results_hash: bytes = b""
    evidence_hash: bytes = b""
    version_block: int = BLOCK_PROTOCOL
    version_app: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.chain_id.encode()) <= MAX_CHAIN_ID_BYTES:
            raise MalformedProof(
                f"chain_id of a header has {len(self.chain_id.encode())} bytes, 1..{MAX_CHAIN_ID_BYTES} are allowed"
            )
        if not 1 <= self.height <= MAX_HEIGHT:
            raise MalformedProof(f"height of a header is {self.height}, 1..2**63 - 1 is allowed")
        for name in ("validators_hash", "next_validators_hash"):
            require_size(getattr(self, name), f"{name} of a header", HASH_BYTES)
        for name in ("last_commit_hash", "data_hash", "consensus_hash", "last_results_hash", "evidence_hash"):
            require_size(getattr(self, name), f"{name} of a header", 0, HASH_BYTES)
        for name in ("hash", "parts_hash"):
            require_size(getattr(self.last_block_id, name), f"{name} of a header's last_block_id", 0, HASH_BYTES)
        require_size(self.proposer_address, "proposer_address of a header", ADDRESS_BYTES)
        if len(self.app_hash) > MAX_APP_HASH_BYTES:
            raise MalformedProof(
                f"app_hash of a header has {len(self.app_hash)} bytes, at most {MAX_APP_HASH_BYTES} are allowed"
            )

    @cached_property
    def fields(self) -> tuple[bytes, ...]:
        """Return the encodings of the 14 fields in order: the leaves of the header's hash."""
        return (
            number_field(1, self.version_block) + number_field(2, self.version_app),
            bytes_field(1, self.chain_id.encode()),
            number_field(1, self.height),
            timestamp(self.time),
            self.last_block_id.encode(),
            bytes_field(1, self.last_commit_hash),
            bytes_field(1, self.data_hash),
            bytes_field(1, self.validators_hash),
            bytes_field(1, self.next_validators_hash),
            bytes_field(1, self.consensus_hash),
            bytes_field(1, self.app_hash),
            bytes_field(1, self.last_results_hash),
            bytes_field(1, self.evidence_hash),
            bytes_field(1, self.proposer_address),
        )

    @cached_property
    def hash(self) -> bytes:
        """Return the header's hash: the Merkle root over its fields."""
        return simple_root(self.fields)

    def encode(self) -> bytes:
        """Return the protobuf form (``tendermint.types.Header``)."""
        return b"".join(self.encoded_fields())

    def encoded_fields(self) -> tuple[bytes, ...]:
        """Return the 14 fields of the protobuf form, in order."""
        version, _, _, time, last_block_id, *_ = self.fields
        return (
            message_field(1, version),
            bytes_field(2, self.chain_id.encode()),
            number_field(3, self.height),
            message_field(4, time),
            message_field(5, last_block_id),
            bytes_field(6, self.last_commit_hash),
            bytes_field(7, self.data_hash),
            bytes_field(8, self.validators_hash),
            bytes_field(9, self.next_validators_hash),
            bytes_field(10, self.consensus_hash),
            bytes_field(11, self.app_hash),
            bytes_field(12, self.last_results_hash),
            bytes_field(13, self.evidence_hash),
            bytes_field(14, self.proposer_address),
        )


def header_from_proto(message: wire.Header) -> Header:
    """Return the header that a protobuf message holds.

    Raises:
        MalformedProof: a part is missing, or a field is not of the size or in the range it must be.
    """
    require_parts(message, "a header", "version", "time", "last_block_id")
    return Header(
        chain_id=message.chain_id,
        height=message.height,
        time=time_from_proto(message.time, "time of a header"),
        validators_hash=message.validators_hash,
        next_validators_hash=message.next_validators_hash,
        app_hash=message.app_hash,
        proposer_address=message.proposer_address,
        last_block_id=block_id_from_proto(message.last_block_id, "last_block_id of a header"),
        last_commit_hash=message.last_commit_hash,
        data_hash=message.data_hash,
        consensus_hash=message.consensus_hash,
        last_results_hash=message.last_results_hash,
        evidence_hash=message.evidence_hash,
        version_block=message.version.block,
        version_app=message.version.app,
    )


def block_id_from_proto(message: wire.BlockID, what: str) -> BlockId:
    """Return the block id that a protobuf message holds; ``what`` names it.

    Raises:
        MalformedProof: its part set header is missing.
    """
    require_parts(message, what, "part_set_header")
    parts = message.part_set_header
    return BlockId(message.hash, parts.total, parts.hash)


def parse_revision(chain_id: str) -> int:
    """Return the revision that ends ``chain_id`` after a hyphen (``name-1``), 0 where there is none (as deployed)."""
    match = REVISION.fullmatch(chain_id)
    revision = int(match[1]) if match else 0
    return revision if revision < 2**64 else 0


def require_parts(message: Message, what: str, *fields: str) -> None:
    """Refuse a message that lacks one of the parts that deployed encoders always write, empty or not.

    Raises:
        MalformedProof: one is missing.
    """
    for name in fields:
        if not message.HasField(name):
            raise MalformedProof(f"{what} has no {name}")


def require_size(value: bytes, what: str, *sizes: int) -> None:
    """Refuse a value that has none of the allowed ``sizes`` in bytes.

    Raises:
        MalformedProof: it has another.
    """
    if len(value) not in sizes:
        raise MalformedProof(f"{what} has {len(value)} bytes, allowed: {' or '.join(map(str, sizes))}")


class InvalidHeader(NotProven):
    """The header is not the chain's: it is not what was signed, or not enough power signed it (X-4: false)."""


class NeedIntermediateHeader(NotProven):
    """The validators changed too much since the trusted header: one in between has to come first (X-4: unknown).

    Attributes:
        trusted_height: the height of the trusted header.
        height: the height of the header to try next, halfway between the trusted one and the one refused.
    """

    decides = False

    def __init__(self, message: str, trusted_height: int, height: int) -> None:
        super().__init__(message)
        self.trusted_height = trusted_height
        self.height = height


class ClientExpired(NotProven):
    """The trusted header is older than the period in which its validators can be held to account (X-4)."""

    decides = False


class MissingHeader(NotProven):
    """No header of that height is trusted."""


class ConnectionFrozen(NotProven):
    """The remote chain was seen to contradict itself; nothing of it is accepted any more (X-3)."""


class DelayNotElapsed(NotProven):
    """The header was added too recently for proofs under it to be used (X-11)."""


class InvalidMisbehaviour(NotProven):
    """Two headers were submitted as a contradiction, and they do not contradict each other."""
