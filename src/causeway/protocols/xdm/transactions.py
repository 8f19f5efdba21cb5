"""The hash of a block (XDM reference 2.4): that of its header.

What relay processes carry between lakes (XDM reference 3.10): transactions, in SCALE.

A transaction is bytes from a stranger: its length and the number of its items are looked at before anything is made of
it, and what it says is believed only after it was verified by the chain that it is for.

The nodes of a proof as one value: a list of byte strings in ascending order, in SCALE.
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
    """Return the hash of a block: Blake2b-256 of its header in SCALE, with an empty digest."""
    return blake2_256(parent + encode_compact(number) + state_root + extrinsics_root + encode_compact(0))


MAX_BLOCKS = 1_000
"""Headers in a transaction."""

MAX_RECEIPT_BYTES = 64 << 10
"""Longest execution receipt that is carried: the consensus chain keeps it."""

LENGTH_BYTES = 4
"""Of one node of a proof, at most."""

BLOCKS_A_CALL = 50
"""So many headers are as much work as a message with its proofs, or a receipt."""

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
"""Transactions as they are carried and recorded."""


@dataclass(frozen=True)
class BlockHeader:
    """A header of the consensus chain; its hash follows from it."""

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
    """Headers of the consensus chain that follow each other, with its author's signature on the last."""

    headers: tuple[BlockHeader, ...]
    signature: bytes

    @property
    def calls(self) -> int:
        """Return how much work it is, in calls."""
        return 1 + len(self.headers) // BLOCKS_A_CALL


@dataclass(frozen=True)
class ConfirmedDomain:
    """What the state of a consensus block has of a domain, as the nodes of storage proofs: its confirmed ``receipt``,
    and what was ``declared`` for it, or that nothing was. Without nodes nothing is said."""

    domain: int
    receipt: tuple[bytes, ...]
    declared: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Return how many bytes its nodes have, each with its length."""
        return sum(len(node) + LENGTH_BYTES for node in (*self.receipt, *self.declared))


@dataclass(frozen=True)
class Confirmed:
    """What the state of the consensus block of a number has of domains."""

    block: int
    domains: tuple[ConfirmedDomain, ...]

    @property
    def calls(self) -> int:
        """Return how much work it is, in calls."""
        return len(self.domains)


@dataclass(frozen=True)
class SignedReceipt:
    """A receipt of a domain's block with its operator's signature."""

    domain: int
    receipt: bytes
    signature: bytes


@dataclass(frozen=True)
class Receipts:
    """Receipts of domains, in the order of their blocks."""

    receipts: tuple[SignedReceipt, ...]

    @property
    def calls(self) -> int:
        """Return how much work it is, in calls."""
        return len(self.receipts)


@dataclass(frozen=True)
class Messages:
    """Envelopes (``CrossDomainMessage``), and which of them bring responses."""

    envelopes: tuple[bytes, ...]
    responses: tuple[bool, ...]

    @property
    def calls(self) -> int:
        """Return how much work it is, in calls."""
        return len(self.envelopes)


Transaction = Blocks | Confirmed | Receipts | Messages


def encode_transaction(transaction: Transaction) -> bytes:
    """Return the encoding of a transaction."""
    return WIRE.encode("Transaction", _plain(transaction))


def _plain(transaction: Transaction) -> Any:
    match transaction:
        case Blocks():
            headers = [asdict(header) for header in transaction.headers]
            return {"Blocks": {"headers": headers, "signature": transaction.signature}}
        case Confirmed():
            domains = [asdict(one) for one in transaction.domains]
            return {"Confirmed": {"block": transaction.block, "domains": domains}}
        case Receipts():
            return {"Receipts": [asdict(one) for one in transaction.receipts]}
        case Messages():
            pairs = zip(transaction.responses, transaction.envelopes, strict=True)
            return {"Messages": [{"response": response, "envelope": data} for response, data in pairs]}


def decode_transaction(data: bytes) -> Transaction:
    """Return the transaction that ``data`` is the canonical encoding of.

    Raises:
        InvalidInput: it is longer than transactions are, has too many items or none, or is none.
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
            ConfirmedDomain(one["domain"], tuple(one["receipt"]), tuple(one["declared"])) for one in content["domains"]
        )
        return Confirmed(content["block"], tuple(domains))
    _require_count(content, MAX_CALLS)
    if kind == "Receipts":
        return Receipts(tuple(SignedReceipt(**one) for one in content))
    return Messages(tuple(one["envelope"] for one in content), tuple(one["response"] for one in content))


def _require_count(items: Sequence[Any], most: int) -> None:
    if not 0 < len(items) <= most:
        raise InvalidInput(f"transaction: {len(items)} items; allowed: 1 to {most}")


_LISTS = ScaleColumns(XDM_TYPES, "BTreeSet<Vec<u8>>", "the nodes of a proof")
_NODES = _LISTS.schema.field(0)


def encode_lists(lists: Sequence[Sequence[bytes]]) -> pa.LargeBinaryArray:
    """Return each list of nodes as one value."""
    return _LISTS.encode({_NODES.name: pa.array([list(nodes) for nodes in lists], _NODES.type)})


def decode_lists(values: pa.LargeBinaryArray) -> tuple[pa.LargeListArray, npt.NDArray[np.bool_]]:
    """Return the nodes of each value, and which values are such lists to their last byte; the others are empty."""
    decoded = _LISTS.decode(values)
    good = decoded.verdicts.codes == 0
    lists = decoded.columns[0]
    return lists if bool(good.all()) else lists.fill_null([]), good
