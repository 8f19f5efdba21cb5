"""The sums of chains (XDM reference 3.8, G7, G8): what is issued, held, burned, paid, and moved between chains."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from causeway.model.frame import Frame
from causeway.protocols.xdm.books import BookError, Books, Moved
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.tables import MADE_SCHEMA, MONEY_SCHEMA, OPERATORS_SCHEMA

WORD = 2**64
SUMS = tuple(name.removesuffix("_high") for name in MONEY_SCHEMA.names if name.endswith("_high"))


def split(amounts: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper and the lower words of amounts."""
    listed = list(amounts)
    high = np.array([amount // WORD for amount in listed], dtype=np.uint64)
    return high, np.array([amount % WORD for amount in listed], dtype=np.uint64)


def joined(frame: Frame, name: str) -> list[int]:
    """Return the amounts in ``name_high`` and ``name_low``."""
    high, low = frame[f"{name}_high"].tolist(), frame[f"{name}_low"].tolist()
    return [upper * WORD + lower for upper, lower in zip(high, low, strict=True)]


class Money:
    """The sums of the chains of a state while a block changes them.

    Transfers of the consensus chain itself go into its books at once; those of a domain are what its receipt will say.
    """

    def __init__(self, state: State) -> None:
        money, operators = state["money"], state["operators"]
        self._chains = money["chain"].tolist()
        self._sums: dict[str, dict[int, int]] = {
            name: dict(zip(self._chains, joined(money, name), strict=True)) for name in SUMS
        }
        pairs = zip(operators["chain"].tolist(), operators["operator"].tolist(), strict=True)
        self._operators = dict(zip(pairs, joined(operators, "balance"), strict=True))
        self._made: dict[tuple[int, int, int], int] = {}
        self.books = Books(state["books"])
        self._paid = False

    def of(self, chain: int, name: str) -> int:
        """Return a sum of a chain."""
        return self._sums[name][chain]

    def add(self, chain: int, name: str, amount: int) -> None:
        """Change a sum of a chain (``SUMS``)."""
        self._sums[name][chain] += amount

    def pay(self, chain: int, amount: int) -> None:
        """Pay an amount to the operators of a chain equally; what cannot be divided goes to the first."""
        if amount == 0:
            return
        own = sorted(key for key in self._operators if key[0] == chain)
        share, rest = divmod(amount, len(own))
        for position, key in enumerate(own):
            self._operators[key] += share + (rest if position == 0 else 0)
        self._paid = True

    def burn(self, chain: int, amount: int) -> None:
        """Burn an amount of a chain for good; the receipt of a domain says it."""
        self.add(chain, "issuance", -amount)
        self.add(chain, "burned", amount)
        if chain != CONSENSUS_POSITION:
            self.move(chain, Moved.BURNT, CONSENSUS_POSITION, amount)

    def move(self, chain: int, what: Moved, foreign: int, amount: int) -> BookError | None:
        """Note what a chain does with value that leaves or comes; returns why the books refuse it, None if not."""
        if amount == 0:
            return None
        if chain == CONSENSUS_POSITION:
            try:
                self.books.apply(chain, what, foreign, amount)
            except BookError as error:
                return error
            return None
        key = chain, int(what), foreign
        self._made[key] = self._made.get(key, 0) + amount
        return None

    def into(self, state: State) -> State:
        """Return the state with the sums after the block."""
        columns = {}
        for name in SUMS:
            columns[f"{name}_high"], columns[f"{name}_low"] = split(self._sums[name][chain] for chain in self._chains)
        before = state["money"]
        if any(not np.array_equal(before[name], column) for name, column in columns.items()):
            state = state.with_tables(money=before.with_columns(**columns).select(MONEY_SCHEMA.names))
        if self._paid:
            high, low = split(self._operators[key] for key in sorted(self._operators))
            after = state["operators"].with_columns(balance_high=high, balance_low=low)
            state = state.with_tables(operators=after.select(OPERATORS_SCHEMA.names))
        if self.books.changed:
            state = state.with_tables(books=self.books.frame())
        keys = np.array(sorted(self._made), dtype=np.int64).reshape(-1, 3)
        high, low = split(self._made[key] for key in sorted(self._made))
        made = Frame(
            {
                "chain": keys[:, 0].astype(np.uint32),
                "destination": np.zeros(len(keys), dtype=np.uint32),
                "what": keys[:, 1].astype(np.uint8),
                "foreign": keys[:, 2].astype(np.uint32),
                "amount_high": high,
                "amount_low": low,
            },
            len(keys),
        )
        if len(made) or len(state["made"]):
            state = state.with_tables(made=made.select(MADE_SCHEMA.names))
        return state
