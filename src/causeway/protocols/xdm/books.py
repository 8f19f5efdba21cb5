"""The books of the consensus chain: what every domain has, and transfers on their way (XDM reference X-3).

Amounts are whole numbers of at most 128 bits; a change that would pass them, or zero, is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from causeway.model.frame import Frame
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.errors import TransporterError
from causeway.protocols.xdm.tables import BOOKS_SCHEMA

MAX_BALANCE = 2**128 - 1
_WORD = 2**64


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


class Books:
    """The books as numbers by key; ``changed`` says whether any was changed."""

    def __init__(self, rows: Frame) -> None:
        columns = (rows[name].tolist() for name in BOOKS_SCHEMA.names[1:])
        self._sums: dict[Key, int] = {
            (what, source, foreign): high * _WORD + low
            for what, source, foreign, high, low in zip(*columns, strict=True)
        }
        self.changed = False

    def __getitem__(self, key: Key) -> int:
        return self._sums.get(key, 0)

    def _change(self, changes: Mapping[Key, int], low: TransporterError) -> None:
        after = {key: self[key] + amount for key, amount in changes.items()}
        if any(value < 0 for value in after.values()):
            raise BookError(low)
        if any(value > MAX_BALANCE for value in after.values()):
            raise BookError(TransporterError.BalanceOverflow)
        self._sums |= after
        self.changed = True

    def note(self, source: int, destination: int, amount: int) -> None:
        """A transfer has left ``source``. Raises ``BookError`` (LowBalanceOnDomain, BalanceOverflow)."""
        changes: dict[Key, int] = {(Book.UNCONFIRMED, source, destination): amount}
        if source != CONSENSUS_POSITION:
            changes[(Book.BALANCE, source, 0)] = -amount
        self._change(changes, TransporterError.LowBalanceOnDomain)

    def confirm(self, source: int, destination: int, amount: int) -> None:
        """A transfer has come to ``destination``. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        changes: dict[Key, int] = {(Book.UNCONFIRMED, source, destination): -amount}
        if destination != CONSENSUS_POSITION:
            changes[(Book.BALANCE, destination, 0)] = amount
        self._change(changes, TransporterError.BalanceUnderflow)

    def reject(self, source: int, destination: int, amount: int) -> None:
        """``destination`` has refused a transfer. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        ends = source, destination
        changes: dict[Key, int] = {(Book.UNCONFIRMED, *ends): -amount, (Book.CANCELLED, *ends): amount}
        self._change(changes, TransporterError.BalanceUnderflow)

    def claim(self, source: int, destination: int, amount: int) -> None:
        """``source`` has given a refused transfer back. Raises ``BookError`` (BalanceUnderflow, BalanceOverflow)."""
        changes: dict[Key, int] = {(Book.CANCELLED, source, destination): -amount}
        if source != CONSENSUS_POSITION:
            changes[(Book.BALANCE, source, 0)] = amount
        self._change(changes, TransporterError.BalanceUnderflow)

    def burn(self, domain: int, amount: int) -> None:
        """``domain`` has burnt an amount. Raises ``BookError`` (LowBalanceOnDomain)."""
        self._change({(Book.BALANCE, domain, 0): -amount}, TransporterError.LowBalanceOnDomain)

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
                "amount_high": np.array([amount // _WORD for amount in sums], dtype=np.uint64),
                "amount_low": np.array([amount % _WORD for amount in sums], dtype=np.uint64),
            },
            len(keys),
        )
