"""The books of the consensus chain: what every domain has, and transfers on their way (XDM reference X-3).

Amounts are whole numbers of at most 128 bits; a change that would pass them, or zero, is refused as a whole.

Value that comes from domains of other lakes: no more of it is taken than their receipts say (XDM reference 3.4 step
14, 3.8, X-3; G7, G8).

Nobody here executes those domains, so a message of theirs may bring value that no receipt of theirs speaks of. The
consensus chain sums up what the receipts of each have said when it confirms them (``declared``); the chain that takes
value sums up what it took (``drawn``). The difference is what it may still take. A message is proved under a confirmed
receipt, and what that receipt and those before it say is summed up by then, so value of a domain that keeps the rules
is never missing.

A lake that follows the consensus chain is shown the entry of each of its domains (``declared_key``) by storage proof,
and takes no message that is proved under a later block than the entry: so what it knows covers what it takes.
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

from causeway.core.frame import Frame, empty_frame, repeat_value
from causeway.core.vocabulary import NO_INDEX, VALUE_SCHEMA, Asset, ValueHolder, ValueReason
from causeway.protocols.shared.digests import OWN_PALLET
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.errors import TransporterError
from causeway.protocols.xdm.tables import BOOKS_SCHEMA, DECLARED_SCHEMA, DRAWN_SCHEMA

MAX_BALANCE = 2**128 - 1
WORD = 2**64


class Book(IntEnum):
    """Which book a row is of."""

    BALANCE = 0
    UNCONFIRMED = 1
    CANCELLED = 2


class TransferRecord(IntEnum):
    """What a block did with transfers, as its receipt says it."""

    IN = 0
    OUT = 1
    CLAIMED = 2
    REJECTED = 3
    BURNT = 4


class BookError(Exception):
    """A change of the books that is refused; ``error`` names why."""

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
    """The books as numbers by key; ``changed`` says whether any was changed.

    ``_move`` is the one place where a book changes: every change is a row of the value log.
    """

    def __init__(self, rows: Frame) -> None:
        columns = (rows[name].tolist() for name in BOOKS_SCHEMA.names[1:])
        self._sums: dict[Key, int] = {
            (what, source, foreign): high * WORD + low
            for what, source, foreign, high, low in zip(*columns, strict=True)
        }
        self._rows: list[tuple[ValueReason, ValueHolder, int, ValueHolder, int, int, int, int]] = []
        self._steps: list[tuple[Key | None, Key | None, int]] = []

    @property
    def changed(self) -> bool:
        """Return whether any book was changed."""
        return bool(self._rows)

    def __getitem__(self, key: Key) -> int:
        return self._sums.get(key, 0)

    def _move(
        self,
        why: ValueReason,
        giver: Key | None,
        taker: Key | None,
        ends: tuple[int, int],
        amount: int,
        low: TransporterError,
    ) -> None:
        """Move an amount from a book to another, None: from or to outside the books. Raises ``BookError``: ``low``
        where there is less, BalanceOverflow where there would be too much."""
        if amount == 0:
            return
        if giver is not None and self[giver] < amount:
            raise BookError(low)
        if taker is not None and self[taker] + amount > MAX_BALANCE:
            raise BookError(TransporterError.BalanceOverflow)
        if giver is not None:
            self._sums[giver] = self[giver] - amount
        if taker is not None:
            self._sums[taker] = self[taker] + amount
        self._rows.append((why, *_holder(giver), *_holder(taker), *ends, amount))
        self._steps.append((giver, taker, amount))

    def note(self, source: int, destination: int, amount: int) -> None:
        """A transfer has left ``source``. Raises ``BookError`` (LowBalanceOnDomain, BalanceOverflow)."""
        taker = Book.UNCONFIRMED, source, destination
        low = TransporterError.LowBalanceOnDomain
        self._move(ValueReason.NOTED, _balance(source), taker, (source, destination), amount, low)

    def confirm(self, source: int, destination: int, amount: int) -> None:
        """A transfer has come to ``destination``. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        giver = Book.UNCONFIRMED, source, destination
        low = TransporterError.BalanceUnderflow
        self._move(ValueReason.CONFIRMED, giver, _balance(destination), (source, destination), amount, low)

    def reject(self, source: int, destination: int, amount: int) -> None:
        """``destination`` has refused a transfer. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        ends = source, destination
        giver, taker = (Book.UNCONFIRMED, *ends), (Book.CANCELLED, *ends)
        self._move(ValueReason.REFUSED, giver, taker, ends, amount, TransporterError.BalanceUnderflow)

    def claim(self, source: int, destination: int, amount: int) -> None:
        """``source`` has given a refused transfer back. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        ends = source, destination
        giver = (Book.CANCELLED, *ends)
        self._move(ValueReason.RECLAIMED, giver, _balance(source), ends, amount, TransporterError.BalanceUnderflow)

    def burn(self, domain: int, amount: int) -> None:
        """``domain`` has burnt an amount. Raises ``BookError`` (LowBalanceOnDomain)."""
        ends = domain, CONSENSUS_POSITION
        self._move(ValueReason.WRITTEN_OFF, _balance(domain), None, ends, amount, TransporterError.LowBalanceOnDomain)

    def room(self, what: TransferRecord, foreign: int) -> int:
        """Return how much the consensus chain itself can still book of a kind with ``foreign``."""
        own = CONSENSUS_POSITION
        if what == TransferRecord.OUT:
            return MAX_BALANCE - self[Book.UNCONFIRMED, own, foreign]
        if what == TransferRecord.CLAIMED:
            return self[Book.CANCELLED, own, foreign]
        return self[Book.UNCONFIRMED, foreign, own]

    def apply(self, chain: int, what: int, foreign: int, amount: int) -> None:
        """Apply what a block of ``chain`` did with transfers from or to ``foreign``. Raises ``BookError``."""
        if what == TransferRecord.IN:
            self.confirm(foreign, chain, amount)
        elif what == TransferRecord.OUT:
            self.note(chain, foreign, amount)
        elif what == TransferRecord.CLAIMED:
            self.claim(chain, foreign, amount)
        elif what == TransferRecord.BURNT:
            self.burn(chain, amount)
        else:
            self.reject(foreign, chain, amount)

    def apply_all(self, chain: int, moves: Iterable[tuple[TransferRecord, int, int]]) -> None:
        """Apply what a block of ``chain`` did, (what, foreign, amount) each in this order, all of it or nothing. Raises
        ``BookError`` of the first that is refused."""
        before = len(self._steps)
        for what, foreign, amount in moves:
            try:
                self.apply(chain, what, foreign, amount)
            except BookError:
                for giver, taker, moved in reversed(self._steps[before:]):
                    if giver is not None:
                        self._sums[giver] += moved
                    if taker is not None:
                        self._sums[taker] -= moved
                del self._steps[before:], self._rows[before:]
                raise

    def log(self) -> Frame:
        """Return all changes so far as rows of the value log (``VALUE_SCHEMA``)."""
        if not self._rows:
            return empty_frame(VALUE_SCHEMA)
        why, giver, giver_number, taker, taker_number, source, foreign, amounts = zip(*self._rows, strict=True)
        count = len(self._rows)
        return Frame(
            {
                "chain": repeat_value(np.uint32(CONSENSUS_POSITION), count),
                "asset": repeat_value(np.uint8(Asset.BOOKED), count),
                "why": np.array(why, dtype=np.uint8),
                "from_holder": np.array(giver, dtype=np.uint8),
                "from_number": np.array(giver_number, dtype=np.uint64),
                "to_holder": np.array(taker, dtype=np.uint8),
                "to_number": np.array(taker_number, dtype=np.uint64),
                "amount_high": np.array([amount // WORD for amount in amounts], dtype=np.uint64),
                "amount_low": np.array([amount % WORD for amount in amounts], dtype=np.uint64),
                "source": np.array(source, dtype=np.uint32),
                "destination": np.array(foreign, dtype=np.uint32),
                "substream": repeat_value(np.uint64(0), count),
                "index": repeat_value(np.uint64(NO_INDEX), count),
            },
            count,
        )

    def frame(self) -> Frame:
        """Return the rows (``BOOKS_SCHEMA``) of all that is not zero."""
        keys = sorted(key for key, amount in self._sums.items() if amount)
        sums = [self._sums[key] for key in keys]
        columns = np.array(keys, dtype=np.int64).reshape(-1, 3)
        return Frame(
            {
                "chain": np.full(len(keys), CONSENSUS_POSITION, dtype=np.uint32),
                "what": columns[:, 0].astype(np.uint8),
                "source": columns[:, 1].astype(np.uint32),
                "foreign": columns[:, 2].astype(np.uint32),
                "amount_high": np.array([amount // WORD for amount in sums], dtype=np.uint64),
                "amount_low": np.array([amount % WORD for amount in sums], dtype=np.uint64),
            },
            len(keys),
        )


def _balance(chain: int) -> Key | None:
    """Return the book of what a domain has; of the consensus chain there is none."""
    return None if chain == CONSENSUS_POSITION else (Book.BALANCE, chain, 0)


def _holder(key: Key | None) -> tuple[ValueHolder, int]:
    """Return who has what is in a book, as the value log names it."""
    if key is None:
        return ValueHolder.NOWHERE, 0
    what, source, foreign = key
    return _HOLDERS[Book(what)], source if what == Book.BALANCE else source << 32 | foreign


_DOMAIN_BYTES, _SUM_BYTES = 4, 16
_LAST = 2**32 - 1

MODULUS = MAX_BALANCE + 1
"""Sums are kept modulo this. What is declared and not drawn is on its way, and that never passes 128 bits."""


class DeclaredSums(NamedTuple):
    """What went from a domain to a chain, and what was refused by it, or claimed of what it refused."""

    out: int = 0
    back: int = 0

    def plus(self, out: int, back: int) -> DeclaredSums:
        """Return the sums with something more."""
        return DeclaredSums((self.out + out) % MODULUS, (self.back + back) % MODULUS)


Pair = tuple[int, int]


class CoveredValue:
    """What chains here may still take of what domains of other lakes (``beyond``, with the consensus chain or without)
    sent, or refused."""

    def __init__(self, declared: Frame, drawn: Frame, beyond: Container[int]) -> None:
        self._beyond = beyond
        self._declared = declared_sums(declared, ("destination", "source"), ("out", "refused"))
        self._drawn = declared_sums(drawn, ("chain", "foreign"), ("in", "claimed"))

    def is_limited(self, chain: int, foreign: int) -> bool:
        """Return whether ``chain`` takes value from ``foreign`` as far as receipts speak of it. The consensus chain has
        books for that, and itself books what it sends at once."""
        return foreign in self._beyond and CONSENSUS_POSITION not in (chain, foreign)

    def left(self, chain: int, foreign: int, what: TransferRecord) -> int:
        """Return how much ``chain`` may still take, or claim, from ``foreign``."""
        said, had = (
            self._declared.get((chain, foreign), DeclaredSums()),
            self._drawn.get((chain, foreign), DeclaredSums()),
        )
        return (said.back - had.back if what == TransferRecord.CLAIMED else said.out - had.out) % MODULUS

    def after(self, made: Mapping[tuple[int, int, int], int]) -> Frame | None:
        """Return what was drawn after a block (``DRAWN_SCHEMA``), None where nothing was. ``made``: amounts by the
        chain, what it did (``Moved``), and the other chain."""
        drawn = dict(self._drawn)
        for (chain, what, foreign), amount in made.items():
            if what in (TransferRecord.IN, TransferRecord.REJECTED, TransferRecord.CLAIMED) and self.is_limited(
                chain, foreign
            ):
                parts = (0, amount) if what == TransferRecord.CLAIMED else (amount, 0)
                drawn[chain, foreign] = drawn.get((chain, foreign), DeclaredSums()).plus(*parts)
        return None if drawn == self._drawn else _frame(drawn, DRAWN_SCHEMA, {})


class DeclaredValue:
    """What confirmed receipts have said, on the consensus chain, of value between its domains and those of other lakes
    (``beyond``)."""

    def __init__(self, declared: Frame, beyond: Container[int]) -> None:
        self._sums = declared_sums(declared, ("destination", "source"), ("out", "refused"))
        self._beyond = beyond
        self.changed = False

    def note(self, domain: int, moves: list[tuple[TransferRecord, int, int]]) -> None:
        """Note what the receipt of a block of ``domain`` says: what, with which other chain, and how much."""
        for what, foreign, amount in moves:
            apart = (domain in self._beyond or foreign in self._beyond) and foreign != CONSENSUS_POSITION
            if apart and what in (TransferRecord.OUT, TransferRecord.REJECTED):
                parts = (amount, 0) if what == TransferRecord.OUT else (0, amount)
                self._sums[foreign, domain] = self._sums.get((foreign, domain), DeclaredSums()).plus(*parts)
                self.changed = True

    def frame(self) -> Frame:
        """Return the rows (``DECLARED_SCHEMA``)."""
        return _frame(self._sums, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def declared_key(domain: int) -> bytes:
    """Return where the consensus chain's storage has what was declared for the domain at a position."""
    return storage_prefix(OWN_PALLET, "DeclaredTransfers") + (domain - 1).to_bytes(_DOMAIN_BYTES, "little")


def encode_declared(rows: Frame) -> bytes:
    """Return what was declared for one domain (``DECLARED_SCHEMA``) as its entry: of each source, ascending, the number
    of the domain and both sums, little-endian."""
    found = declared_sums(rows, ("destination", "source"), ("out", "refused"))
    return b"".join(
        (source - 1).to_bytes(_DOMAIN_BYTES, "little") + b"".join(part.to_bytes(_SUM_BYTES, "little") for part in sums)
        for (_, source), sums in sorted(found.items())
    )


def decode_declared(destination: int, entry: bytes | None) -> Frame:
    """Return the rows (``DECLARED_SCHEMA``) of the domain at a position that an entry of ``encode_declared`` has; None:
    there is none.

    Raises:
        InvalidInput: it is no such entry.
    """
    width = _DOMAIN_BYTES + 2 * _SUM_BYTES
    data = entry or b""
    parts = [data[at : at + width] for at in range(0, len(data), width)]
    sources = [int.from_bytes(part[:_DOMAIN_BYTES], "little") + 1 for part in parts]
    ascending = all(first < later for first, later in pairwise(sources))
    if len(data) % width or not ascending or max(sources, default=0) > _LAST:
        raise InvalidInput(f"declared: {len(data)} bytes: sums of {width} bytes each, by ascending domains, are due")
    found = {}
    for source, part in zip(sources, parts, strict=True):
        words = (part[_DOMAIN_BYTES : _DOMAIN_BYTES + _SUM_BYTES], part[_DOMAIN_BYTES + _SUM_BYTES :])
        found[destination, source] = DeclaredSums(*(int.from_bytes(word, "little") for word in words))
    return _frame(found, DECLARED_SCHEMA, {"chain": CONSENSUS_POSITION})


def declared_sums(frame: Frame, pair: tuple[str, str], names: tuple[str, str]) -> dict[Pair, DeclaredSums]:
    """Return the sums of each pair of chains."""
    ends = (frame[name].tolist() for name in pair)
    words = (frame[f"{name}_{half}"].tolist() for name in names for half in ("high", "low"))
    rows = zip(*ends, *words, strict=True)
    return {
        (first, second): DeclaredSums(out_high * WORD + out_low, back_high * WORD + back_low)
        for first, second, out_high, out_low, back_high, back_low in rows
    }


def _frame(sums: Mapping[Pair, DeclaredSums], schema: pa.Schema, fixed: Mapping[str, int]) -> Frame:
    keys = sorted(sums)
    rows = [(*key, *(word for amount in sums[key] for word in divmod(amount, WORD))) for key in keys]
    columns = {name: np.full(len(rows), value, dtype=np.uint32) for name, value in fixed.items()}
    names = [name for name in schema.names if name not in fixed]
    for at, name in enumerate(names):
        columns[name] = np.array([row[at] for row in rows], dtype=schema.field(name).type.to_pandas_dtype())
    return Frame(columns, len(rows))
