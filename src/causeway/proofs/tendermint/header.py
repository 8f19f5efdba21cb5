"""Block headers of Tendermint chains and their hash (IBC reference 2.5, as deployed)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from google.protobuf.message import Message

from causeway.proofs.errors import MalformedProof
from causeway.proofs.tendermint import encoding
from causeway.proofs.tendermint.encoding import bytes_field, message_field, number_field
from causeway.proofs.tendermint.simple_merkle import simple_root
from causeway.proofs.wire import tendermint_types_pb2 as wire

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
        if not 1 <= self.height <= encoding.MAX_HEIGHT:
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
            encoding.timestamp(self.time),
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


def header_of(message: wire.Header) -> Header:
    """Return the header that a protobuf message holds.

    Raises:
        MalformedProof: a part is missing, or a field is not of the size or in the range it must be.
    """
    require_parts(message, "a header", "version", "time", "last_block_id")
    return Header(
        chain_id=message.chain_id,
        height=message.height,
        time=encoding.time_of(message.time, "time of a header"),
        validators_hash=message.validators_hash,
        next_validators_hash=message.next_validators_hash,
        app_hash=message.app_hash,
        proposer_address=message.proposer_address,
        last_block_id=block_id_of(message.last_block_id, "last_block_id of a header"),
        last_commit_hash=message.last_commit_hash,
        data_hash=message.data_hash,
        consensus_hash=message.consensus_hash,
        last_results_hash=message.last_results_hash,
        evidence_hash=message.evidence_hash,
        version_block=message.version.block,
        version_app=message.version.app,
    )


def block_id_of(message: wire.BlockID, what: str) -> BlockId:
    """Return the block id that a protobuf message holds; ``what`` names it.

    Raises:
        MalformedProof: its part set header is missing.
    """
    require_parts(message, what, "part_set_header")
    parts = message.part_set_header
    return BlockId(message.hash, parts.total, parts.hash)


def revision_of(chain_id: str) -> int:
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
