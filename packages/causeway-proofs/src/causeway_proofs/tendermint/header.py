"""Block headers of Tendermint chains: encoding, hash and errors (IBC reference 2.5).

- Canonical protobuf fields are written directly, since every vote writes them.
- Times are nanoseconds since 1970-01-01T00:00:00Z, negative before.
- ``simple_root`` hashes a few leaves one by one; ``causeway_proofs.merkle`` builds the same tree (RFC 6962) in columns.
- Errors are named as in the IBC reference 3.6 and section 5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from google.protobuf.message import Message

from causeway_proofs.errors import MalformedProof
from causeway_proofs.hashing import sha256
from causeway_proofs.merkle import EMPTY_ROOT, INNER_PREFIX, LEAF_PREFIX
from causeway_proofs.varints import uvarint
from causeway_proofs.wire import tendermint_types_pb2 as wire

SECOND = 10**9

MIN_TIME = -62_135_596_800 * SECOND
"""First instant of year 1, which deployed encoders write for a missing time."""

MAX_TIME = 253_402_300_800 * SECOND - 1
"""Last nanosecond of year 9999, the end of protobuf's Timestamp."""

NO_TIME = MIN_TIME

MAX_HEIGHT = 2**63 - 1


class SecondsAndNanos(Protocol):
    """Common fields of protobuf's Timestamp and Duration."""

    seconds: int
    nanos: int


def number_field(number: int, value: int) -> bytes:
    """Encode a varint field; empty for 0. A negative ``value`` is a signed 64-bit integer."""
    return uvarint(number << 3) + uvarint(value % 2**64) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a bytes or text field; empty for an empty value."""
    return message_field(number, value) if value else b""


def message_field(number: int, encoded: bytes) -> bytes:
    """Encode a message field, also if the message is empty."""
    return uvarint(number << 3 | 2) + uvarint(len(encoded)) + encoded


def sfixed64_field(number: int, value: int) -> bytes:
    """Encode an sfixed64 field; empty for 0."""
    return uvarint(number << 3 | 1) + value.to_bytes(8, "little", signed=True) if value else b""


def timestamp(time: int) -> bytes:
    """Encode a time in nanoseconds as a protobuf Timestamp."""
    seconds, nanos = divmod(time, SECOND)
    return number_field(1, seconds) + number_field(2, nanos)


def time_from_proto(message: SecondsAndNanos, noun: str) -> int:
    """Convert a Timestamp to nanoseconds.

    Raises:
        MalformedProof: the nanoseconds are not below a second, or the year is outside of 1 to 9999.
    """
    if not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{noun} has {message.nanos} nanoseconds beside its seconds, 0..999999999 are allowed")
    time = message.seconds * SECOND + message.nanos
    if not MIN_TIME <= time <= MAX_TIME:
        raise MalformedProof(f"{noun} is {message.seconds} seconds from 1970, outside of the years 1 to 9999")
    return time


def duration_from_proto(message: SecondsAndNanos, noun: str) -> int:
    """Convert a Duration to nanoseconds.

    Raises:
        MalformedProof: it is negative, or the nanoseconds are not below a second.
    """
    if message.seconds < 0 or not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{noun} of {message.seconds} s and {message.nanos} ns is no duration of 0 or more")
    return message.seconds * SECOND + message.nanos


def simple_root(leaves: Sequence[bytes]) -> bytes:
    """Return the Merkle root over ``leaves`` (IBC reference 2.6, ``simple``).

    Without leaves, ``EMPTY_ROOT``.
    """
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
"""Longest chain id (IBC reference 2.1); deployed chains allow 50."""

MAX_APP_HASH_BYTES = 1024
"""Longest root; the application chooses its form, deployed ones have 32 bytes."""

BLOCK_PROTOCOL = 11
"""Block format version of deployed chains."""

REVISION = re.compile(r"[^\n]*[^\n-]-([1-9][0-9]{0,19})")


DIGESTS = (
    *("last_commit_hash", "data_hash", "validators_hash", "next_validators_hash", "consensus_hash", "app_hash"),
    *("last_results_hash", "evidence_hash", "proposer_address"),
)
"""The fields 6 to 14 of a header, which hold bytes."""


@dataclass(frozen=True)
class BlockId:
    """A block's identity, signed by a commit.

    Attributes:
        hash: hash of the header; empty without a previous block.
        part_count: number of parts in which the block is gossiped.
        parts_hash: Merkle root of the parts.
    """

    hash: bytes = b""
    part_count: int = 0
    parts_hash: bytes = b""

    def encode(self) -> bytes:
        """Return the protobuf form, which votes sign, too."""
        parts = number_field(1, self.part_count) + bytes_field(2, self.parts_hash)
        return bytes_field(1, self.hash) + message_field(2, parts)

    @property
    def is_complete(self) -> bool:
        """Return True if this names a block: both hashes and at least one part."""
        return len(self.hash) == HASH_BYTES and self.part_count > 0 and len(self.parts_hash) == HASH_BYTES


@dataclass(frozen=True)
class Header:
    """A block's header; hashes are 32 bytes or empty.

    Attributes:
        chain_id: the chain.
        height: from 1.
        time: nanoseconds since 1970.
        validators_hash: hash of this height's validators.
        next_validators_hash: hash of the next height's validators.
        app_hash: the state root.
        proposer_address: 20 bytes.
        last_block_id: the previous block.
        last_commit_hash, data_hash, consensus_hash, last_results_hash, evidence_hash: further hashes.
        version_block, version_app: versions of the block format and the application.
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
        """Return the encodings of the 14 fields in order, the leaves of the header's hash."""
        return (
            number_field(1, self.version_block) + number_field(2, self.version_app),
            bytes_field(1, self.chain_id.encode()),
            number_field(1, self.height),
            timestamp(self.time),
            self.last_block_id.encode(),
            *[bytes_field(1, getattr(self, name)) for name in DIGESTS],
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
            *[bytes_field(number, getattr(self, name)) for number, name in enumerate(DIGESTS, start=6)],
        )


def header_from_proto(message: wire.Header) -> Header:
    """Convert a protobuf message to a header.

    Raises:
        MalformedProof: a part is missing, or a field has an invalid size or value.
    """
    require_parts(message, "a header", "version", "time", "last_block_id")
    return Header(
        chain_id=message.chain_id,
        height=message.height,
        time=time_from_proto(message.time, "time of a header"),
        last_block_id=block_id_from_proto(message.last_block_id, "last_block_id of a header"),
        version_block=message.version.block,
        version_app=message.version.app,
        **{name: getattr(message, name) for name in DIGESTS},
    )


def block_id_from_proto(message: wire.BlockID, noun: str) -> BlockId:
    """Convert a protobuf message to a block id; ``noun`` names it in errors.

    Raises:
        MalformedProof: the part set header is missing.
    """
    require_parts(message, noun, "part_set_header")
    parts = message.part_set_header
    return BlockId(message.hash, parts.total, parts.hash)


def parse_revision(chain_id: str) -> int:
    """Return the revision after the last hyphen of ``chain_id``, 0 without one, as deployed."""
    match = REVISION.fullmatch(chain_id)
    revision = int(match[1]) if match else 0
    return revision if revision < 2**64 else 0


def require_parts(message: Message, noun: str, *fields: str) -> None:
    """Require the parts of a message that deployed encoders always write, empty or not.

    Raises:
        MalformedProof: a part is missing.
    """
    for name in fields:
        if not message.HasField(name):
            raise MalformedProof(f"{noun} has no {name}")


def require_size(value: bytes, noun: str, *sizes: int) -> None:
    """Require that a value has one of the ``sizes`` in bytes.

    Raises:
        MalformedProof: it has another size.
    """
    if len(value) not in sizes:
        raise MalformedProof(f"{noun} has {len(value)} bytes, allowed: {' or '.join(map(str, sizes))}")
