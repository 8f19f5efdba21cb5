"""Replays the log of value: every sum of every chain after each block, from its rows alone."""

from __future__ import annotations

from collections import defaultdict

from causeway.core.vocabulary import ISSUED, PAIR_HOLDERS, Asset, ValueHolder
from causeway.protocols.xdm.state import State
from causeway.protocols.xdm.value.balances import SUMS, join_words
from causeway.protocols.xdm.value.books import Book
from tests.support.xdm.xdm_network import Network

_BOOKS = {
    Book.BALANCE: ValueHolder.BALANCE,
    Book.UNCONFIRMED: ValueHolder.UNCONFIRMED,
    Book.CANCELLED: ValueHolder.CANCELLED,
}
_SUMS = {
    "inbox_held": ValueHolder.INBOX_FEES,
    "outbox_held": ValueHolder.OUTBOX_FEES,
    "reserved": ValueHolder.DEPOSITS,
    "burned": ValueHolder.BURNED,
    "root": ValueHolder.ROOT,
}
_UNLOGGED = (ValueHolder.NOWHERE, ValueHolder.ABROAD)
"""What has no sum of its own in the state."""


class Replay:
    """The sums that the log of value gives; ``check`` is called after every block."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.sums: dict[tuple[int, ValueHolder, int], int] = defaultdict(int)
        """Chain, holder, number -> what it has."""
        self._read, self._forks = 0, 0
        self.check()

    def check(self) -> None:
        """Compare every account, sum, operator and book of the state with what the log says, without what forks have
        taken back."""
        forks = self.net.logs["reverted"]
        if len(forks) > self._forks:
            self._forks, self._read = len(forks), 0
            self.sums.clear()
        gone = {
            (chain, height)
            for _, _, rows in forks
            for chain, first, last in zip(*(rows[name].tolist() for name in ("chain", "first", "last")), strict=True)
            for height in range(first, last + 1)
        }
        for height, _, rows in self.net.logs["value"][self._read :]:
            names = ("chain", "asset", "from_holder", "from_number", "to_holder", "to_number")
            columns = (rows[name].tolist() for name in names)
            for chain, asset, giver, giver_number, taker, taker_number, amount in zip(
                *columns, join_words(rows, "amount"), strict=True
            ):
                if (chain, height) in gone:
                    continue
                assert amount > 0, "a row moves something"
                assert asset == Asset.UNITS or chain == 0, "the consensus chain has the books"
                self.sums[chain, ValueHolder(giver), giver_number] -= amount
                self.sums[chain, ValueHolder(taker), taker_number] += amount
        self._read = len(self.net.logs["value"])
        found = {key: amount for key, amount in self.sums.items() if amount and key[1] not in _UNLOGGED}
        due, hands = self._state(self.net.state), (ValueHolder.REQUESTS, ValueHolder.MESSAGES)
        assert {key: amount for key, amount in found.items() if key[1] not in hands} == due
        assert min(found.values(), default=0) >= 0, "nobody has less than nothing"

    def _state(self, state: State) -> dict[tuple[int, ValueHolder, int], int]:
        """Return what the state says, by the keys of ``sums``; and check what it says in sum."""
        due: dict[tuple[int, ValueHolder, int], int] = {}
        accounts, operators, books, money = (state[name] for name in ("accounts", "operators", "books", "money"))
        hosts = self.net.kernel.network.host_of(accounts["program"]).tolist()
        over = accounts["balance_over"].tolist()
        for host, program, most, balance in zip(
            hosts, accounts["program"].tolist(), over, join_words(accounts, "balance"), strict=True
        ):
            due[host, ValueHolder.ACCOUNT, program] = (most << 128) + balance
        for chain, operator, balance in zip(
            operators["chain"].tolist(), operators["operator"].tolist(), join_words(operators, "balance"), strict=True
        ):
            due[chain, ValueHolder.OPERATOR, operator] = balance
        columns = (books[name].tolist() for name in ("what", "source", "foreign"))
        for what, source, foreign, amount in zip(*columns, join_words(books, "amount"), strict=True):
            holder = _BOOKS[Book(what)]
            due[0, holder, source << 32 | foreign if holder in PAIR_HOLDERS else source] = amount
        sums = {name: join_words(money, name) for name in SUMS}
        for row, chain in enumerate(money["chain"].tolist()):
            for name, holder in _SUMS.items():
                numbers = {number for one, other, number in self.sums if one == chain and other == holder}
                held = sum(self.sums[chain, holder, number] for number in numbers)
                assert held == sums[name][row], f"{name} of {self.net.names[chain]} is not what the log says"
                due |= {(chain, holder, number): self.sums[chain, holder, number] for number in numbers}
            issued = sum(amount for (one, holder, _), amount in self.sums.items() if one == chain and holder in ISSUED)
            assert issued == sums["issuance"][row], f"what {self.net.names[chain]} has issued is not what the log says"
        return {key: amount for key, amount in due.items() if amount}
