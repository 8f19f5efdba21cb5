"""Transactions between lakes, in SCALE; block hashes and proof nodes.

Relay processes carry transactions between lakes. They are untrusted bytes: length and item count are checked before
decoding, and the receiving chain verifies the content. A block hash is the hash of its header. The nodes of a proof
form one value, a list of byte strings in ascending order.

Reference: XDM, sections 2.4 and 3.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.substrate import ScaleColumns
from causeway_proofs.substrate.byte_columns import encode_compact
from causeway_proofs.substrate.scale import ScaleTypes, enum, struct
from causeway_proofs.substrate.storage_keys import blake2_256
from causeway_proofs.xdm.messages import XDM_TYPES

from causeway.protocols.shared.limits import MAX_CALLS, MAX_TRANSACTION_BYTES


def block_hash(parent: bytes, number: int, state_root: bytes, extrinsics_root: bytes) -> bytes:
    """Return the hash of a block: Blake2b-256 of its header in SCALE, with an empty digest.

    Args:
        parent: Hash of the parent, 32 bytes.
        number: Number of the block.
        state_root: Storage root, 32 bytes.
        extrinsics_root: Root of the extrinsics, 32 bytes.
    """
    return blake2_256(parent + encode_compact(number) + state_root + extrinsics_root + encode_compact(0))


MAX_BLOCKS = 1_000
"""Maximum number of headers in a transaction."""

MAX_RECEIPT_BYTES = 64 << 10
"""Maximum length of an execution receipt; the consensus chain stores it."""

LENGTH_BYTES = 4
"""Maximum length of a node's length prefix."""

BLOCKS_A_CALL = 50
"""Number of headers with the cost of one message or receipt."""

WIRE = ScaleTypes(
    {
        "Header": struct(("parent", "H256"), ("number", "u32"), ("state_root", "H256"), ("extrinsics_root", "H256")),
        "Blocks": struct(("headers", "Vec<Header>"), ("signature", "[u8; 64]")),
        "ConfirmedDomain": struct(
            ("domain", "u32"), ("receipt", "BTreeSet<Vec<u8>>"), ("declared", "BTreeSet<Vec<u8>>")
        ),
        "Confirmed": struct(("block", "u32"), ("domains", "Vec<ConfirmedDomain>")),
        "SignedReceipt": struct(("domain", "u32"), ("receipt", "Vec<u8>"), ("signature", "[u8; 64]")),
        "Relayed": struct(("response", "bool"), ("envelope", "Vec<u8>")),
        "Transaction": enum(
            ("Blocks", "Blocks"),
            ("Confirmed", "Confirmed"),
            ("Receipts", "Vec<SignedReceipt>"),
            ("Messages", "Vec<Relayed>"),
        ),
    },
)
"""Wire types of transactions."""


@dataclass(frozen=True)
class BlockHeader:
    """A header of the consensus chain."""

    parent: bytes
    number: int
    state_root: bytes
    extrinsics_root: bytes

    @property
    def hash(self) -> bytes:
        """Return the hash of the block."""
        return block_hash(self.parent, self.number, self.state_root, self.extrinsics_root)


@dataclass(frozen=True)
class Blocks:
    """Consecutive headers of the consensus chain, with its author's signature on the last."""

    headers: tuple[BlockHeader, ...]
    signature: bytes

    @property
    def calls(self) -> int:
        """Return the cost, in calls."""
        return 1 + len(self.headers) // BLOCKS_A_CALL


@dataclass(frozen=True)
class ConfirmedDomain:
    """Storage proofs of a domain under a consensus block.

    They prove its confirmed ``receipt`` and its ``declared`` value. An empty tuple of nodes proves nothing.
    """

    domain: int
    receipt: tuple[bytes, ...]
    declared: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return the length of all nodes in bytes, with their length prefixes."""
        return sum(len(node) + LENGTH_BYTES for node in (*self.receipt, *self.declared))


@dataclass(frozen=True)
class Confirmed:
    """Storage proofs of domains under consensus block ``block``."""

    block: int
    domains: tuple[ConfirmedDomain, ...]

    @property
    def calls(self) -> int:
        """Return the cost, in calls."""
        return len(self.domains)


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt of a domain's block with its operator's signature."""

    domain: int
    receipt: bytes
    signature: bytes


@dataclass(frozen=True)
class Receipts:
    """Receipts of domains in block order."""

    receipts: tuple[SignedReceipt, ...]

    @property
    def calls(self) -> int:
        """Return the cost, in calls."""
        return len(self.receipts)


@dataclass(frozen=True)
class RelayedMessages:
    """Envelopes (``CrossDomainMessage``), and a flag for responses."""

    envelopes: tuple[bytes, ...]
    responses: tuple[bool, ...]

    @property
    def calls(self) -> int:
        """Return the cost, in calls."""
        return len(self.envelopes)


Transaction = Blocks | Confirmed | Receipts | RelayedMessages


def encode_transaction(transaction: Transaction) -> bytes:
    """Encode a transaction.

    Args:
        transaction: Transaction to encode.
    """
    return WIRE.encode("Transaction", _plain(transaction))


def _plain(transaction: Transaction) -> Any:
    match transaction:
        case Blocks():
            headers = [asdict(header) for header in transaction.headers]
            return {"Blocks": {"headers": headers, "signature": transaction.signature}}
        case Confirmed():
            domains = [asdict(item) for item in transaction.domains]
            return {"Confirmed": {"block": transaction.block, "domains": domains}}
        case Receipts():
            return {"Receipts": [asdict(item) for item in transaction.receipts]}
        case RelayedMessages():
            pairs = zip(transaction.responses, transaction.envelopes, strict=True)
            return {"Messages": [{"response": response, "envelope": data} for response, data in pairs]}


def decode_transaction(data: bytes) -> Transaction:
    """Decode a transaction in canonical encoding.

    Args:
        data: Untrusted bytes.

    Raises:
        InvalidInput: It is too long, malformed, empty, or has too many items.
    """
    if len(data) > MAX_TRANSACTION_BYTES:
        raise InvalidInput(f"transaction: {len(data)} bytes; at most {MAX_TRANSACTION_BYTES} are allowed")
    if not data:
        raise InvalidInput("transaction: it is empty; allowed: one of protocols/xdm/transactions.py, in SCALE")
    try:
        plain = WIRE.decode("Transaction", data, "it", MAX_TRANSACTION_BYTES)
    except ProofError as error:
        raise InvalidInput(f"transaction: {error}") from None
    ((kind, content),) = plain.items()
    if kind == "Blocks":
        _require_count(content["headers"], MAX_BLOCKS)
        return Blocks(tuple(BlockHeader(**header) for header in content["headers"]), content["signature"])
    if kind == "Confirmed":
        _require_count(content["domains"], MAX_CALLS)
        domains = (
            ConfirmedDomain(item["domain"], tuple(item["receipt"]), tuple(item["declared"]))
            for item in content["domains"]
        )
        return Confirmed(content["block"], tuple(domains))
    _require_count(content, MAX_CALLS)
    if kind == "Receipts":
        return Receipts(tuple(SignedReceipt(**item) for item in content))
    return RelayedMessages(tuple(item["envelope"] for item in content), tuple(item["response"] for item in content))


def _require_count(items: Sequence[Any], most: int) -> None:
    if not 0 < len(items) <= most:
        raise InvalidInput(f"transaction: {len(items)} items; allowed: 1 to {most}")


_LISTS = ScaleColumns(XDM_TYPES, "BTreeSet<Vec<u8>>", "the nodes of a proof")
_NODES = _LISTS.schema.field(0)


def encode_lists(lists: Sequence[Sequence[bytes]]) -> pa.LargeBinaryArray:
    """Encode each list of nodes as one value."""
    return _LISTS.encode({_NODES.name: pa.array([list(nodes) for nodes in lists], _NODES.type)})


def decode_lists(values: pa.LargeBinaryArray) -> tuple[pa.LargeListArray, npt.NDArray[np.bool_]]:
    """Decode lists of nodes.

    Args:
        values: Output of ``encode_lists``, untrusted.

    Returns:
        The lists, empty for malformed values, and a mask of well-formed values.
    """
    decoded = _LISTS.decode(values)
    good = decoded.verdicts.codes == 0
    lists = decoded.columns[0]
    return lists if bool(good.all()) else lists.fill_null([]), good
