"""Accounts of relayers on zones, and the log of their calls.

A zone makes no call that its relayer cannot pay; such a call is not refused either. Fees go to the zone's own account,
which pays the rewards. The balances of a zone sum up to its deposits (IBC reference 3.5).

A header costs ``header_fee`` and every proved message ``proof_fee``, with or without an effect, so waste is visible.

Reference:
    IBC reference 1.1, 3.5, 3.6, X-14, X-15.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from causeway_proofs.order import group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import Chains
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.events import FUNDED, OUT_OF_FUNDS, ZoneEvent
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.relayer_view import SubmissionKind
from causeway.protocols.ibc.state import FUNDS_SCHEMA, RELAYERS_SCHEMA, lanes_of
from causeway.protocols.shared.events import EventLog, event_rows, names_column

OUTSIDER = 2**31
"""Offset of the user numbers of relayers from outside in the accounts."""

OTHERS = 2**32 - 1
"""The common account of relayers from outside without an account of their own."""

MOST_ACCOUNTS = 1_000
"""Maximum own accounts of relayers from outside per zone: keys are free, rows persist."""

OUTSIDE = "outside/"
"""Prefix of the names of relayers from outside."""

COUNTS = ("headers", "submitted", "accepted", "redundant", "refused", "fees", "wasted")

REDUNDANT = (Refusal.NoOp, Refusal.OutOfOrder)
"""Refusals of a message that another relayer delivered before, and of one before its turn."""

ADDED = "HeaderAdded"
"""The reason of an event: the header is trusted from now on."""


def relayer_name(number: int, names: Sequence[str]) -> str:
    """Return the name of a relayer.

    Args:
        number: The number of the relayer.
        names: The names of the scenario's relayers.
    """
    if number < OUTSIDER:
        return names[number]
    return f"{OUTSIDE}others" if number == OTHERS else f"{OUTSIDE}{number - OUTSIDER}"


class CallTally(NamedTuple):
    """Calls of one relayer with the same outcome, ``why``.

    Attributes:
        chain: The called zone.
        relayer: The relayer.
        call: The kind of call.
        source: The counterparty whose queue the calls are about.
        substream: The queue.
        first: The first entry, or the height of a header.
        many: The number of paid calls.
        why: The outcome.
        user: The sender from outside; None for a relayer of the scenario.
    """

    chain: int
    relayer: int
    call: int
    source: int
    substream: int
    first: int
    many: int
    why: Refusal
    user: int | None = None

    @property
    def of_header(self) -> bool:
        """Return True for a header, False for a message."""
        return self.call >= SubmissionKind.UPDATE


class RelayerFees:
    """The calls of relayers in one block, and their fees."""

    def __init__(self, context: Context) -> None:
        self._options = context.options.relay
        self.made: list[CallTally] = []

    def pay(self, tally: CallTally) -> None:
        """Record calls."""
        self.made.append(tally)

    def log(self, log: EventLog) -> None:
        """Log the calls: ``RELAYED``, or ``REJECTED`` with the refusal.

        Calls with an effect, and known headers, are relayed.

        ``sender``: the relayer, or with ``via`` INGRESS the user; ``receiver``: the kind of call; ``queue_index``: the
        number of calls; ``callback``: the fees.
        """
        if not self.made:
            return
        columns = self._columns()
        lanes = lanes_of(columns["source"], columns["chain"], columns["substream"])
        why, of_header = columns["why"], columns["of_header"]
        outside = np.array([tally.user is not None for tally in self.made])
        senders = [tally.relayer if tally.user is None else tally.user for tally in self.made]
        added = of_header & (why == Refusal.ACCEPTED) & (columns["call"] == SubmissionKind.UPDATE)
        known = (why == Refusal.ACCEPTED) | (of_header & (why == Refusal.NoOp))
        rows = lanes.with_columns(
            kind=repeat_value(np.uint8(Kind.CONTROL), len(lanes)),
            index=columns["index"],
            sender=np.array(senders, dtype=np.uint64),
            receiver=columns["call"].astype(np.uint64),
            callback=columns["fee"],
        )
        texts = ["", *NAMES[1:], ADDED]
        reason = names_column(texts, np.where(added, len(texts) - 1, why))
        bits = np.where(known, np.uint16(Event.RELAYED), np.uint16(Event.REJECTED))
        via = np.where(outside, np.uint8(Via.INGRESS), np.uint8(Via.NONE))
        where = {"chain": columns["chain"], "queue_index": columns["count"], "via": via}
        log.add(event_rows(rows, bits, on_lane=True, reason=reason, **where))

    def after(self, accounts: Frame) -> Frame:
        """Return the accounts (``RELAYERS_SCHEMA``) with this block's counts added."""
        paid = [tally for tally in self.made if tally.many]
        if not paid:
            return accounts
        columns = self._columns(paid)
        names = ("chain", "relayer")
        keys = np.unique(np.stack([columns[name].astype(np.uint32) for name in names], axis=1), axis=0)
        counted = Frame({"chain": keys[:, 0], "relayer": keys[:, 1]})
        new = counted.filter(lookup_rows(accounts, counted, names) < 0)
        zeros = {name: np.zeros(len(new), dtype=np.uint64) for name in COUNTS}
        accounts = concat([accounts, new.with_columns(**zeros)])
        accounts = accounts.take(stable_order(*(accounts[name] for name in names)))
        keys_of_calls = Frame({name: columns[name].astype(np.uint32) for name in names})
        rows = lookup_rows(accounts, keys_of_calls, names)
        counts, of_header, why = columns["count"], columns["of_header"], columns["why"]
        is_accepted, redundant = why == Refusal.ACCEPTED, np.isin(why, REDUNDANT)
        none = np.zeros_like(counts)
        added = {
            "headers": np.where(of_header, counts, none),
            "submitted": np.where(of_header, none, counts),
            "accepted": np.where(~of_header & is_accepted, counts, none),
            "redundant": np.where(~of_header & redundant, counts, none),
            "refused": np.where(of_header | is_accepted | redundant, none, counts),
            "fees": columns["fee"],
            "wasted": np.where(is_accepted, none, columns["fee"]),
        }
        changed = {name: accounts[name].copy() for name in COUNTS}
        for name, column in changed.items():
            np.add.at(column, rows, added[name])
        return limit_accounts(accounts.with_columns(**changed).select(RELAYERS_SCHEMA.names))

    def _columns(self, tallies: list[CallTally] | None = None) -> dict[str, Any]:
        """Return calls as columns, with their fees."""
        tallies = self.made if tallies is None else tallies
        names = ("chain", "relayer", "call", "source", "substream", "index", "count", "why")
        values = zip(*((*one[:7], int(one.why)) for one in tallies), strict=True)
        columns: dict[str, Any] = {
            name: np.array(column, dtype=np.uint64) for name, column in zip(names, values, strict=True)
        }
        columns["why"] = columns["why"].astype(np.int32)
        columns["chain"], columns["source"] = columns["chain"].astype(np.uint32), columns["source"].astype(np.uint32)
        columns["of_header"] = columns["call"] >= np.uint64(SubmissionKind.UPDATE)
        price = np.where(columns["of_header"], self._options.header_fee, self._options.proof_fee).astype(np.uint64)
        columns["fee"] = columns["count"] * price
        return columns


def limit_accounts(accounts: Frame) -> Frame:
    """Limit the accounts (``RELAYERS_SCHEMA``) of relayers from outside.

    Each zone keeps at most ``MOST_ACCOUNTS``.

    Relayers with the most accepted messages keep theirs, among equals the lowest numbers. The counts of the others are
    added to the account ``OTHERS``.
    """
    own = np.flatnonzero((accounts["relayer"] >= OUTSIDER) & (accounts["relayer"] != OTHERS))
    if len(own) <= MOST_ACCOUNTS:
        return accounts
    useful = np.iinfo(np.uint64).max - accounts["accepted"][own]
    own = own[stable_order(accounts["chain"][own], useful, accounts["relayer"][own])]
    given_up = own[group_rows(accounts["chain"][own]).ranks() >= MOST_ACCOUNTS]
    relayer = accounts["relayer"].copy()
    relayer[given_up] = OTHERS
    order = stable_order(accounts["chain"], relayer)
    groups = group_rows(accounts["chain"][order], relayer[order])
    first = order[groups.starts]
    sums = {name: np.add.reduceat(accounts[name][order], groups.starts) for name in COUNTS}
    return accounts.take(first).with_columns(relayer=relayer[first], **sums)


class Deposit(NamedTuple):
    """A payment from outside into the account of a relayer on a zone."""

    chain: int
    relayer: int
    amount: int


def genesis_funds(chains: Chains, options: IbcOptions) -> Frame:
    """Return the accounts on zones at genesis (``FUNDS_SCHEMA``); none without relayer accounts."""
    accounts = options.relay.accounts
    if accounts is None:
        return empty_frame(FUNDS_SCHEMA)
    balances = [accounts.balances.get(name, accounts.balance) for name in options.relayers]
    balance = np.tile(np.array([*balances, 0], dtype=np.uint64), len(chains))
    zero = np.zeros(len(balance), dtype=np.uint64)
    keys = {"chain": chains.repeat(len(balances) + 1)}
    keys["relayer"] = np.tile(np.arange(len(balances) + 1, dtype=np.uint32), len(chains))
    return Frame({**dict.fromkeys(FUNDS_SCHEMA.names, zero), **keys, "balance": balance, "deposited": balance})


class RelayerAccounts:
    """The accounts on the zones of one block while its calls are processed.

    Args:
        funds: The accounts before the block (``FUNDS_SCHEMA``).
        deposits: The deposits of this block, which precede all calls.
        context: The metadata of the block.
    """

    def __init__(self, funds: Frame, deposits: Sequence[Deposit], context: Context) -> None:
        self._funds = funds
        self._options = context.options
        self._height = context.height
        self._per_zone = len(context.options.relayers) + 1
        self._positions = {chain: position for position, chain in enumerate(context.chains.tolist())}
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
        """Return True if a relayer can pay for a header and a message; record a shortfall."""
        relay, row = self._options.relay, self._row(chain, relayer)
        covered = int(self._balance[row]) >= relay.header_fee * headers + relay.proof_fee * messages
        if not covered:
            self._short.add(row)
        return covered

    def pay_header(self, chain: int, relayer: int) -> bool:
        """Charge a header or evidence; return False if the relayer cannot pay."""
        return self._pay(chain, relayer, self._options.relay.header_fee, 1) == 1

    def reserve(self, chain: int, relayer: int, counterparty: int, messages: int) -> None:
        """Charge as many messages about a counterparty as the relayer can pay."""
        paid = self._pay(chain, relayer, self._options.relay.proof_fee, messages)
        self._reserved[chain, relayer, counterparty] = paid

    def spend(self, chain: int, relayer: int, counterparty: int, messages: int) -> int:
        """Return the number of paid messages (``reserve``) among the next ones about a counterparty."""
        key = chain, relayer, counterparty
        paid = min(messages, self._reserved.get(key, 0))
        self._reserved[key] = self._reserved.get(key, 0) - paid
        return paid

    def after(self, tallies: Sequence[CallTally]) -> tuple[Frame, list[ZoneEvent]]:
        """Return the accounts after a block with the calls ``tallies``, and the changes of solvency."""
        accounts = self._options.relay.accounts
        assert accounts is not None
        if accounts.reward:
            # Record a reward for each accepted message.
            for one in tallies:
                if one.user is None and one.why == Refusal.ACCEPTED and one.call < SubmissionKind.UPDATE:
                    self._columns["owed"][self._row(one.chain, one.relayer)] += np.uint64(one.many * accounts.reward)
            if self._height % accounts.reward_every == 0:
                # Pay due rewards in relayer order while the zone's balance lasts.
                owed, earned = self._columns["owed"], self._columns["earned"]
                for row in np.flatnonzero(owed).tolist():
                    zone = row - row % self._per_zone + self._per_zone - 1
                    paid = min(owed[row], self._balance[zone])
                    owed[row] -= paid
                    earned[row] += paid
                    self._balance[zone] -= paid
                    self._balance[row] += paid
        # Record relayers that ran out of funds, or can pay again.
        stopped, notices = self._columns["stopped"], list[ZoneEvent]()
        chains, relayers = self._funds["chain"], self._funds["relayer"]
        for row in sorted(self._short | self._paying):
            stops, was = row in self._short, bool(stopped[row])
            if stops == was:
                continue
            stopped[row] = self._height if stops else 0
            self._columns["stops"][row] += np.uint64(stops)
            reason, event = (OUT_OF_FUNDS, Event.REJECTED) if stops else (FUNDED, Event.ACKNOWLEDGED)
            chain = int(chains[row])
            notices.append(ZoneEvent(chain, chain, self._height, reason, int(relayers[row]), event))
        changed = {name: new for name, new in self._columns.items() if not np.array_equal(new, self._funds[name])}
        return self._funds.with_columns(**changed) if changed else self._funds, notices

    def _row(self, chain: int, relayer: int) -> int:
        return self._positions[chain] * self._per_zone + relayer

    def _pay(self, chain: int, relayer: int, price: int, count: int) -> int:
        """Transfer the fees of up to ``count`` calls to the zone; return the number of paid calls."""
        row = self._row(chain, relayer)
        paid = min(count, int(self._balance[row]) // price) if price else count
        if paid:
            self._paying.add(row)
        if paid < count:
            self._short.add(row)
        self._balance[row] -= np.uint64(paid * price)
        self._balance[self._row(chain, self._per_zone - 1)] += np.uint64(paid * price)
        return paid
