"""The books of the consensus chain: balances of domains and pending transfers.

Amounts are integers of at most 128 bits. A change beyond that, or below zero, is refused as a whole.

Value from domains of other lakes is limited by their receipts. This lake does not execute those domains, so a message
may bring value without a receipt. The consensus chain sums the value in confirmed receipts (``declared``), and each
receiver sums the value that it accepted (``drawn``). The difference is still available. Every message is proved under a
confirmed receipt, and ``declared`` includes that receipt and all earlier ones. A correct domain therefore never exceeds
the limit.

A following lake gets the entry of each of its domains (``declared_key``) by storage proof. It accepts no message proved
under a later block than the entry.

Reference: XDM, section 3.4 step 14, section 3.8, X-3; G7, G8.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.substrate import storage_prefix

from causeway.core.frame import Frame
from causeway.core.vocabulary import NO_INDEX, VALUE_SCHEMA, Asset, ValueHolder, ValueReason
from causeway.protocols.shared.digests import OWN_PALLET
from causeway.protocols.shared.state_tables import blank_rows
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.errors import TransporterError
from causeway.protocols.xdm.tables import BOOKS_SCHEMA, DECLARED_SCHEMA, DRAWN_SCHEMA

MAX_BALANCE = 2**128 - 1
WORD = 2**64


class Book(IntEnum):
    """The book of a row."""

    BALANCE = 0
    UNCONFIRMED = 1
    CANCELLED = 2


class TransferRecord(IntEnum):
    """Kind of a transfer in a block's receipt."""

    IN = 0
    OUT = 1
    CLAIMED = 2
    REJECTED = 3
    BURNT = 4


class BookError(Exception):
    """A refused change of the books; ``error`` is the reason."""

    def __init__(self, error: TransporterError) -> None:
        super().__init__(error.name)
        self.error = error


Key = tuple[int, int, int]
"""A book, the chain ``source``, and the chain ``foreign`` (0 for balances)."""

_HOLDERS = {
    Book.BALANCE: ValueHolder.BALANCE,
    Book.UNCONFIRMED: ValueHolder.UNCONFIRMED,
    Book.CANCELLED: ValueHolder.CANCELLED,
}


class Books:
    """The books as amounts by key.

    ``apply`` is the only place where a book changes, and it adds a row to the value log (``rows``).
    """

    def __init__(self, rows: Frame) -> None:
        columns = (rows[name].tolist() for name in BOOKS_SCHEMA.names[1:])
        self._sums: dict[Key, int] = {
            (book, source, foreign): high * WORD + low
            for book, source, foreign, high, low in zip(*columns, strict=True)
        }
        self.rows: list[tuple[ValueReason, ValueHolder, int, ValueHolder, int, int, int, int]] = []
        self._steps: list[tuple[Key | None, Key | None, int]] = []

    def __getitem__(self, key: Key) -> int:
        return self._sums.get(key, 0)

    def room(self, record: TransferRecord, foreign: int) -> int:
        """Return the amount that the consensus chain can still record with ``foreign``."""
        own = CONSENSUS_POSITION
        if record == TransferRecord.OUT:
            return MAX_BALANCE - self[Book.UNCONFIRMED, own, foreign]
        if record == TransferRecord.CLAIMED:
            return self[Book.CANCELLED, own, foreign]
        return self[Book.UNCONFIRMED, foreign, own]

    def apply(self, chain: int, record: int, foreign: int, amount: int) -> None:
        """Record a transfer of ``chain`` with ``foreign`` (``TransferRecord``).

        Raises:
            BookError: The giving balance is too small (LowBalanceOnDomain for a transfer or a burn of its source, else
                BalanceUnderflow), or the receiving sum is too large (BalanceOverflow).
        """
        if amount == 0:
            return
        from_chain = record in (TransferRecord.OUT, TransferRecord.CLAIMED, TransferRecord.BURNT)
        ends = (chain, foreign) if from_chain else (foreign, chain)
        source, destination = (None if end == CONSENSUS_POSITION else (Book.BALANCE, end, 0) for end in ends)
        unconfirmed, cancelled = (Book.UNCONFIRMED, *ends), (Book.CANCELLED, *ends)
        underflow, low = TransporterError.BalanceUnderflow, TransporterError.LowBalanceOnDomain
        movements: dict[int, tuple[ValueReason, Key | None, Key | None, TransporterError]] = {
            TransferRecord.IN: (ValueReason.CONFIRMED, unconfirmed, destination, underflow),
            TransferRecord.OUT: (ValueReason.NOTED, source, unconfirmed, low),
            TransferRecord.CLAIMED: (ValueReason.RECLAIMED, cancelled, source, underflow),
            TransferRecord.REJECTED: (ValueReason.REFUSED, unconfirmed, cancelled, underflow),
            TransferRecord.BURNT: (ValueReason.WRITTEN_OFF, source, None, low),
        }
        why, giver, taker, error = movements[record]
        if giver is not None and self[giver] < amount:
            raise BookError(error)
        if taker is not None and self[taker] + amount > MAX_BALANCE:
            raise BookError(TransporterError.BalanceOverflow)
        if giver is not None:
            self._sums[giver] = self[giver] - amount
        if taker is not None:
            self._sums[taker] = self[taker] + amount
        self.rows.append((why, *_holder(giver), *_holder(taker), *ends, amount))
        self._steps.append((giver, taker, amount))

    def apply_all(self, chain: int, moves: Iterable[tuple[TransferRecord, int, int]]) -> None:
        """Apply all transfer records of a block of ``chain``, or none.

        Args:
            chain: Position of the chain.
            moves: (kind, foreign, amount) in order.

        Raises:
            BookError: The books refuse a record; the first error.
        """
        before = len(self._steps)
        for record, foreign, amount in moves:
            try:
                self.apply(chain, record, foreign, amount)
            except BookError:
                for giver, taker, moved in reversed(self._steps[before:]):
                    if giver is not None:
                        self._sums[giver] += moved
                    if taker is not None:
                        self._sums[taker] -= moved
                del self._steps[before:], self.rows[before:]
                raise

    def log(self) -> Frame:
        """Return all changes as rows of the value log (``VALUE_SCHEMA``)."""
        why, giver, giver_number, taker, taker_number, source, foreign, amounts = zip(*self.rows, strict=True)
        return blank_rows(
            VALUE_SCHEMA,
            len(self.rows),
            chain=CONSENSUS_POSITION,
            asset=Asset.BOOKED,
            why=np.array(why, dtype=np.uint8),
            from_holder=np.array(giver, dtype=np.uint8),
            from_number=np.array(giver_number, dtype=np.uint64),
            to_holder=np.array(taker, dtype=np.uint8),
            to_number=np.array(taker_number, dtype=np.uint64),
            amount_high=np.array([amount // WORD for amount in amounts], dtype=np.uint64),
            amount_low=np.array([amount % WORD for amount in amounts], dtype=np.uint64),
            source=np.array(source, dtype=np.uint32),
            destination=np.array(foreign, dtype=np.uint32),
            index=NO_INDEX,
        )

    def frame(self) -> Frame:
        """Return the books (``BOOKS_SCHEMA``)."""
        return books_frame(self._sums)


def books_frame(sums: Mapping[Key, int]) -> Frame:
    """Return books (``BOOKS_SCHEMA``) with the amounts by key, without zero amounts."""
    keys = sorted(key for key, amount in sums.items() if amount)
    columns = np.array(keys, dtype=np.int64).reshape(-1, 3)
    return blank_rows(
        BOOKS_SCHEMA,
        len(keys),
        chain=CONSENSUS_POSITION,
        what=columns[:, 0].astype(np.uint8),
        source=columns[:, 1].astype(np.uint32),
        foreign=columns[:, 2].astype(np.uint32),
        amount_high=np.array([sums[key] // WORD for key in keys], dtype=np.uint64),
        amount_low=np.array([sums[key] % WORD for key in keys], dtype=np.uint64),
    )


def _holder(key: Key | None) -> tuple[ValueHolder, int]:
    """Return the holder of a book and its number in the value log."""
    if key is None:
        return ValueHolder.NOWHERE, 0
    book, source, foreign = key
    return _HOLDERS[Book(book)], source if book == Book.BALANCE else source << 32 | foreign


_DOMAIN_BYTES, _SUM_BYTES = 4, 16
_LAST = 2**32 - 1

MODULUS = MAX_BALANCE + 1
"""Modulus of declared and drawn sums; their difference is in flight and fits into 128 bits."""


class DeclaredSums(NamedTuple):
    """Value sent from a domain to a chain (``out``), and refused or claimed back (``back``)."""

    out: int = 0
    back: int = 0

    def plus(self, out: int, back: int) -> DeclaredSums:
        """Return the sums increased by amounts."""
        return DeclaredSums((self.out + out) % MODULUS, (self.back + back) % MODULUS)


Pair = tuple[int, int]


class CoveredValue:
    """Available value from domains of other lakes.

    Args:
        declared: ``DECLARED_SCHEMA``.
        drawn: ``DRAWN_SCHEMA``.
        beyond: Positions of other lakes' chains.
    """

    def __init__(self, declared: Frame, drawn: Frame, beyond: Container[int]) -> None:
        self._beyond = beyond
        self._declared = declared_sums(declared, ("destination", "source"), ("out", "refused"))
        self._drawn = declared_sums(drawn, ("chain", "foreign"), ("in", "claimed"))

    def is_limited(self, chain: int, foreign: int) -> bool:
        """Return True if receipts limit the value from ``foreign`` to ``chain``.

        The consensus chain has books for its own transfers.
        """
        return foreign in self._beyond and CONSENSUS_POSITION not in (chain, foreign)

    def left(self, chain: int, foreign: int, record: TransferRecord) -> int:
        """Return the amount that ``chain`` may still accept or claim from ``foreign``."""
        declared, drawn = (
            self._declared.get((chain, foreign), DeclaredSums()),
            self._drawn.get((chain, foreign), DeclaredSums()),
        )
        return (declared.back - drawn.back if record == TransferRecord.CLAIMED else declared.out - drawn.out) % MODULUS

    def after(self, records: Mapping[tuple[int, int, int], int]) -> Frame | None:
        """Return the drawn sums after a block (``DRAWN_SCHEMA``), or None without a change.

        ``records`` has amounts by chain, ``TransferRecord`` and other chain.
        """
        drawn = dict(self._drawn)
        for (chain, record, foreign), amount in records.items():
            if record in (TransferRecord.IN, TransferRecord.REJECTED, TransferRecord.CLAIMED) and self.is_limited(
                chain, foreign
            ):
                parts = (0, amount) if record == TransferRecord.CLAIMED else (amount, 0)
                drawn[chain, foreign] = drawn.get((chain, foreign), DeclaredSums()).plus(*parts)
        return None if drawn == self._drawn else _frame(drawn, DRAWN_SCHEMA, {})


class DeclaredValue:
    """Value between domains of different lakes according to confirmed receipts.

    Args:
        declared: ``DECLARED_SCHEMA``.
        beyond: Positions of other lakes' chains.
    """

    def __init__(self, declared: Frame, beyond: Container[int]) -> None:
        self._sums = declared_sums(declared, ("destination", "source"), ("out", "refused"))
        self._beyond = beyond
        self.changed = False

    def note(self, domain: int, moves: list[tuple[TransferRecord, int, int]]) -> None:
        """Add the transfer records of a receipt of ``domain``."""
        for record, foreign, amount in moves:
            crosses_lakes = (domain in self._beyond or foreign in self._beyond) and foreign != CONSENSUS_POSITION
            if crosses_lakes and record in (TransferRecord.OUT, TransferRecord.REJECTED):
                parts = (amount, 0) if record == TransferRecord.OUT else (0, amount)
                self._sums[foreign, domain] = self._sums.get((foreign, domain), DeclaredSums()).plus(*parts)
                self.changed = True

    def frame(self) -> Frame:
        """Return the rows (``DECLARED_SCHEMA``)."""
        return _frame(self._sums, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def declared_key(domain: int) -> bytes:
    """Return the storage key of the declared value of a domain.

    Args:
        domain: Position of the domain.
    """
    return storage_prefix(OWN_PALLET, "DeclaredTransfers") + (domain - 1).to_bytes(_DOMAIN_BYTES, "little")


def encode_declared(rows: Frame) -> bytes:
    """Encode the storage entry of the declared value of one domain.

    Per source, ascending: the domain number and both sums, little-endian.
    """
    found = declared_sums(rows, ("destination", "source"), ("out", "refused"))
    return b"".join(
        (source - 1).to_bytes(_DOMAIN_BYTES, "little") + b"".join(part.to_bytes(_SUM_BYTES, "little") for part in sums)
        for (_, source), sums in sorted(found.items())
    )


def decode_declared(destination: int, entry: bytes | None) -> Frame:
    """Decode the storage entry of the declared value of a domain.

    Args:
        destination: Position of the domain.
        entry: Output of ``encode_declared``, or None without an entry.

    Returns:
        ``DECLARED_SCHEMA``.

    Raises:
        InvalidInput: The entry is malformed.
    """
    width = _DOMAIN_BYTES + 2 * _SUM_BYTES
    data = entry or b""
    parts = [data[at : at + width] for at in range(0, len(data), width)]
    sources = [int.from_bytes(part[:_DOMAIN_BYTES], "little") + 1 for part in parts]
    ascending = all(first < later for first, later in pairwise(sources))
    if len(data) % width or not ascending or max(sources, default=0) > _LAST:
        raise InvalidInput(f"declared: {len(data)} bytes: sums of {width} bytes each, by ascending domains, are due")
    sums = {}
    for source, part in zip(sources, parts, strict=True):
        words = (part[_DOMAIN_BYTES : _DOMAIN_BYTES + _SUM_BYTES], part[_DOMAIN_BYTES + _SUM_BYTES :])
        sums[destination, source] = DeclaredSums(*(int.from_bytes(word, "little") for word in words))
    return _frame(sums, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def declared_sums(frame: Frame, pair: tuple[str, str], names: tuple[str, str]) -> dict[Pair, DeclaredSums]:
    """Return the sums of each pair of chains."""
    ends = (frame[name].tolist() for name in pair)
    words = (frame[f"{name}_{half}"].tolist() for name in names for half in ("high", "low"))
    rows = zip(*ends, *words, strict=True)
    return {
        (chain, other): DeclaredSums(out_high * WORD + out_low, back_high * WORD + back_low)
        for chain, other, out_high, out_low, back_high, back_low in rows
    }


def _frame(sums: Mapping[Pair, DeclaredSums], schema: pa.Schema, fixed: Mapping[str, int]) -> Frame:
    keys = sorted(sums)
    rows = [(*key, *(word for amount in sums[key] for word in divmod(amount, WORD))) for key in keys]
    columns = {name: np.full(len(rows), value, dtype=np.uint32) for name, value in fixed.items()}
    names = [name for name in schema.names if name not in fixed]
    for at, name in enumerate(names):
        columns[name] = np.array([row[at] for row in rows], dtype=schema.field(name).type.to_pandas_dtype())
    return Frame(columns, len(rows))
