"""The books of the consensus chain: what every domain has, and transfers on their way (XDM reference X-3).

Amounts are whole numbers of at most 128 bits; a change that would pass them, or zero, is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import numpy as np

from causeway.model.frame import Frame, empty_frame, repeated
from causeway.model.value import NO_INDEX, VALUE_SCHEMA, Asset, Holder, Why
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.errors import TransporterError
from causeway.protocols.xdm.tables import BOOKS_SCHEMA

MAX_BALANCE = 2**128 - 1
WORD = 2**64


class Book(IntEnum):
    """Which book a row is of."""

    BALANCE = 0
    UNCONFIRMED = 1
    CANCELLED = 2


class Moved(IntEnum):
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

_HOLDERS = {Book.BALANCE: Holder.BALANCE, Book.UNCONFIRMED: Holder.UNCONFIRMED, Book.CANCELLED: Holder.CANCELLED}


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
        self._rows: list[tuple[Why, Holder, int, Holder, int, int, int, int]] = []
        self._steps: list[tuple[Key | None, Key | None, int]] = []

    @property
    def changed(self) -> bool:
        """Return whether any book was changed."""
        return bool(self._rows)

    def __getitem__(self, key: Key) -> int:
        return self._sums.get(key, 0)

    def _move(
        self, why: Why, giver: Key | None, taker: Key | None, ends: tuple[int, int], amount: int, low: TransporterError
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
        self._move(Why.NOTED, _balance(source), taker, (source, destination), amount, low)

    def confirm(self, source: int, destination: int, amount: int) -> None:
        """A transfer has come to ``destination``. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        giver = Book.UNCONFIRMED, source, destination
        low = TransporterError.BalanceUnderflow
        self._move(Why.CONFIRMED, giver, _balance(destination), (source, destination), amount, low)

    def reject(self, source: int, destination: int, amount: int) -> None:
        """``destination`` has refused a transfer. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        ends = source, destination
        giver, taker = (Book.UNCONFIRMED, *ends), (Book.CANCELLED, *ends)
        self._move(Why.REFUSED, giver, taker, ends, amount, TransporterError.BalanceUnderflow)

    def claim(self, source: int, destination: int, amount: int) -> None:
        """``source`` has given a refused transfer back. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        ends = source, destination
        giver = (Book.CANCELLED, *ends)
        self._move(Why.RECLAIMED, giver, _balance(source), ends, amount, TransporterError.BalanceUnderflow)

    def burn(self, domain: int, amount: int) -> None:
        """``domain`` has burnt an amount. Raises ``BookError`` (LowBalanceOnDomain)."""
        ends = domain, CONSENSUS_POSITION
        self._move(Why.WRITTEN_OFF, _balance(domain), None, ends, amount, TransporterError.LowBalanceOnDomain)

    def room(self, what: Moved, foreign: int) -> int:
        """Return how much the consensus chain itself can still book of a kind with ``foreign``."""
        own = CONSENSUS_POSITION
        if what == Moved.OUT:
            return MAX_BALANCE - self[Book.UNCONFIRMED, own, foreign]
        if what == Moved.CLAIMED:
            return self[Book.CANCELLED, own, foreign]
        return self[Book.UNCONFIRMED, foreign, own]

    def apply(self, chain: int, what: int, foreign: int, amount: int) -> None:
        """Apply what a block of ``chain`` did with transfers from or to ``foreign``. Raises ``BookError``."""
        if what == Moved.IN:
            self.confirm(foreign, chain, amount)
        elif what == Moved.OUT:
            self.note(chain, foreign, amount)
        elif what == Moved.CLAIMED:
            self.claim(chain, foreign, amount)
        elif what == Moved.BURNT:
            self.burn(chain, amount)
        else:
            self.reject(foreign, chain, amount)

    def apply_all(self, chain: int, moves: Iterable[tuple[Moved, int, int]]) -> None:
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
                "chain": repeated(np.uint32(CONSENSUS_POSITION), count),
                "asset": repeated(np.uint8(Asset.BOOKED), count),
                "why": np.array(why, dtype=np.uint8),
                "from_holder": np.array(giver, dtype=np.uint8),
                "from_number": np.array(giver_number, dtype=np.uint64),
                "to_holder": np.array(taker, dtype=np.uint8),
                "to_number": np.array(taker_number, dtype=np.uint64),
                "amount_high": np.array([amount // WORD for amount in amounts], dtype=np.uint64),
                "amount_low": np.array([amount % WORD for amount in amounts], dtype=np.uint64),
                "source": np.array(source, dtype=np.uint32),
                "destination": np.array(foreign, dtype=np.uint32),
                "substream": repeated(np.uint64(0), count),
                "index": repeated(np.uint64(NO_INDEX), count),
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


def _holder(key: Key | None) -> tuple[Holder, int]:
    """Return who has what is in a book, as the value log names it."""
    if key is None:
        return Holder.NOWHERE, 0
    what, source, foreign = key
    return _HOLDERS[Book(what)], source if what == Book.BALANCE else source << 32 | foreign
