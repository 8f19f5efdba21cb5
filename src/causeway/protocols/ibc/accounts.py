"""Accounts of the scenario's relayers on the zones of a block: what comes in, what calls cost, who stops (IBC reference
3.5).

A zone takes no call from a relayer that cannot pay its fee: the call is not made, and nothing is refused. Fees go to
the zone's own account, rewards are paid out of it. The balances of a zone are together its deposits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.model.ledger import Event
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.fees import Made
from causeway.protocols.ibc.notices import FUNDED, OUT_OF_FUNDS, Notice
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.seen import CallKind
from causeway.protocols.ibc.state import FUNDS_SCHEMA


class Deposit(NamedTuple):
    """A payment from outside into the account of a relayer on a zone."""

    chain: int
    relayer: int
    amount: int


def genesis_funds(chains: Chains, options: IbcOptions) -> Frame:
    """Return the accounts on zones at genesis (``FUNDS_SCHEMA``); none where relayers have no accounts."""
    accounts = options.relay.accounts
    if accounts is None:
        return empty_frame(FUNDS_SCHEMA)
    given = [accounts.balances.get(name, accounts.balance) for name in options.relayers]
    balance = np.tile(np.array([*given, 0], dtype=np.uint64), len(chains))
    zero = np.zeros(len(balance), dtype=np.uint64)
    keys = {"chain": chains.repeat(len(given) + 1)}
    keys["relayer"] = np.tile(np.arange(len(given) + 1, dtype=np.uint32), len(chains))
    return Frame({**dict.fromkeys(FUNDS_SCHEMA.names, zero), **keys, "balance": balance, "deposited": balance})


class Accounts:
    """The accounts on the zones of one block while its calls are made.

    Args:
        funds: the accounts before the block (``FUNDS_SCHEMA``).
        deposits: what comes from outside in this block, before any call.
        context: of the block.
    """

    def __init__(self, funds: Frame, deposits: Sequence[Deposit], context: Context) -> None:
        self._funds = funds
        self._options = context.options
        self._height = context.height
        self._per_zone = len(context.options.relayers) + 1
        self._places = {chain: place for place, chain in enumerate(context.chains.tolist())}
        self._names = context.options.relayers
        self._columns = {name: funds[name].copy() for name in FUNDS_SCHEMA.names[2:]}
        self._balance = self._columns["balance"]
        self._short: set[int] = set()
        self._paying: set[int] = set()
        self._reserved: dict[tuple[int, int, int], int] = {}
        for deposit in [*self._budgets(context), *deposits]:
            row = self._row(deposit.chain, deposit.relayer)
            self._balance[row] += np.uint64(deposit.amount)
            self._columns["deposited"][row] += np.uint64(deposit.amount)

    def _budgets(self, context: Context) -> list[Deposit]:
        """Return the deposits of sponsors in this block, on every zone."""
        sponsored = self._options.relay.sponsored
        return [
            Deposit(chain, relayer, sponsored[name].budget)
            for relayer, name in enumerate(self._names)
            if name in sponsored and sponsored[name].budget and self._height % sponsored[name].every == 0
            for chain in context.chains.tolist()
        ]

    def covers(self, chain: int, relayer: int, *, headers: bool, messages: bool) -> bool:
        """Return whether a relayer can pay for the header and the message that it needs; record a shortfall."""
        relay, row = self._options.relay, self._row(chain, relayer)
        covered = int(self._balance[row]) >= relay.header_fee * headers + relay.proof_fee * messages
        if not covered:
            self._short.add(row)
        return covered

    def pay_header(self, chain: int, relayer: int) -> bool:
        """Take the fee of a header, or of evidence, and return whether the relayer could pay it."""
        return self._pay(chain, relayer, self._options.relay.header_fee, 1) == 1

    def reserve(self, chain: int, relayer: int, counterparty: int, messages: int) -> None:
        """Take the fees of the messages about a counterparty, of as many as the relayer can pay."""
        paid = self._pay(chain, relayer, self._options.relay.proof_fee, messages)
        self._reserved[chain, relayer, counterparty] = paid

    def spend(self, chain: int, relayer: int, counterparty: int, messages: int) -> int:
        """Return how many of the next messages about a counterparty are paid for (``reserve``)."""
        key = chain, relayer, counterparty
        paid = min(messages, self._reserved.get(key, 0))
        self._reserved[key] = self._reserved.get(key, 0) - paid
        return paid

    def after(self, made: Sequence[Made]) -> tuple[Frame, list[Notice]]:
        """Return the accounts after a block in which calls were ``made``, and who stops or continues."""
        accounts = self._options.relay.accounts
        assert accounts is not None
        if accounts.reward:
            # Note a reward for each message that took effect.
            for one in made:
                if one.user is None and one.why == Refusal.ACCEPTED and one.call < CallKind.UPDATE:
                    self._columns["owed"][self._row(one.chain, one.relayer)] += np.uint64(one.many * accounts.reward)
            if self._height % accounts.reward_every == 0:
                # Pay the rewards that are owed, in the order of relayers, as far as the zone's account holds out.
                owed, earned = self._columns["owed"], self._columns["earned"]
                for row in np.flatnonzero(owed).tolist():
                    zone = row - row % self._per_zone + self._per_zone - 1
                    paid = min(owed[row], self._balance[zone])
                    owed[row] -= paid
                    earned[row] += paid
                    self._balance[zone] -= paid
                    self._balance[row] += paid
        # Note who could not pay for all its calls in this block, and who pays again; return the changes.
        stopped, notices = self._columns["stopped"], list[Notice]()
        chains, relayers = self._funds["chain"], self._funds["relayer"]
        for row in sorted(self._short | self._paying):
            stops, was = row in self._short, bool(stopped[row])
            if stops == was:
                continue
            stopped[row] = self._height if stops else 0
            self._columns["stops"][row] += np.uint64(stops)
            reason, event = (OUT_OF_FUNDS, Event.REJECTED) if stops else (FUNDED, Event.ACKNOWLEDGED)
            chain = int(chains[row])
            notices.append(Notice(chain, chain, self._height, reason, int(relayers[row]), event))
        changed = {name: new for name, new in self._columns.items() if not np.array_equal(new, self._funds[name])}
        return self._funds.with_columns(**changed) if changed else self._funds, notices

    def _row(self, chain: int, relayer: int) -> int:
        return self._places[chain] * self._per_zone + relayer

    def _pay(self, chain: int, relayer: int, price: int, count: int) -> int:
        """Move the fees of up to ``count`` calls to the zone's account, and return how many could be paid."""
        row = self._row(chain, relayer)
        paid = min(count, int(self._balance[row]) // price) if price else count
        if paid:
            self._paying.add(row)
        if paid < count:
            self._short.add(row)
        self._balance[row] -= np.uint64(paid * price)
        self._balance[self._row(chain, self._per_zone - 1)] += np.uint64(paid * price)
        return paid
