"""What relayers did in a block, call by call: the log of it, and their accounts (IBC reference 1.1, 3.5, 3.6, X-14,
X-15).

A header costs ``header_fee``, every message proved ``proof_fee``, whether it had an effect or not: so waste shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from causeway.model.frame import Frame, concat, repeated
from causeway.model.joins import lookup
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import groups_of, stable_order
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.seen import CallKind
from causeway.protocols.ibc.state import RELAYERS_SCHEMA, lanes_of

OUTSIDER = 2**31
"""Relayers from outside have this added to their user's number in the accounts, so that they are no scenario's."""

OTHERS = 2**32 - 1
"""The one account of those relayers from outside who have none of their own (any more)."""

MOST_ACCOUNTS = 1_000
"""Relayers from outside who have accounts of their own with a zone: keys cost nothing, and rows stay in the state."""

OUTSIDE = "outside/"
"""What the name of a relayer from outside begins with."""

COUNTS = ("headers", "submitted", "accepted", "redundant", "refused", "fees", "wasted")

REDUNDANT = (Refusal.NoOp, Refusal.OutOfOrder)
"""What a message is refused for that another relayer brought before; and what comes before its turn."""

ADDED = "HeaderAdded"
"""The reason of an event: a header is trusted from now on."""


def relayer_name(number: int, names: Sequence[str]) -> str:
    """Return what a relayer is called. ``names``: those of the scenario."""
    if number < OUTSIDER:
        return names[number]
    return f"{OUTSIDE}others" if number == OTHERS else f"{OUTSIDE}{number - OUTSIDER}"


class Made(NamedTuple):
    """Like calls of one relayer that had one fate, ``why``.

    ``chain``: the zone called; ``source``, ``substream``: the queue of the counterparty that they were about;
    ``first``: the first entry, or the height of a header; ``many``: how many were paid for. ``user``: who brought them
    from outside, None for a relayer of the scenario.
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
        """Whether a header was brought, and no message."""
        return self.call >= CallKind.UPDATE


class Fees:
    """What relayers did in one block."""

    def __init__(self, context: Context) -> None:
        self._options = context.options.relay
        self.made: list[Made] = []

    def pay(self, made: Made) -> None:
        """Note calls."""
        self.made.append(made)

    def log(self, log: EventLog) -> None:
        """Add an event row each: ``REJECTED`` with the refusal, ``RELAYED`` what had an effect, or was known before.

        ``sender``: the relayer's number, with ``via`` INGRESS a user's; ``receiver``: the kind of call;
        ``queue_index``: how many; ``callback``: the fees.
        """
        if not self.made:
            return
        columns = self._columns()
        lanes = lanes_of(columns["source"], columns["chain"], columns["substream"])
        why, of_header = columns["why"], columns["of_header"]
        outside = np.array([made.user is not None for made in self.made])
        senders = [made.relayer if made.user is None else made.user for made in self.made]
        added = of_header & (why == Refusal.ACCEPTED) & (columns["call"] == CallKind.UPDATE)
        known = (why == Refusal.ACCEPTED) | (of_header & (why == Refusal.NoOp))
        rows = lanes.with_columns(
            kind=repeated(np.uint8(Kind.CONTROL), len(lanes)),
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
        paid = [made for made in self.made if made.many]
        if not paid:
            return accounts
        columns = self._columns(paid)
        names = ("chain", "relayer")
        keys = np.unique(np.stack([columns[name].astype(np.uint32) for name in names], axis=1), axis=0)
        counted = Frame({"chain": keys[:, 0], "relayer": keys[:, 1]})
        new = counted.filter(lookup(accounts, counted, names) < 0)
        zeros = {name: np.zeros(len(new), dtype=np.uint64) for name in COUNTS}
        accounts = concat([accounts, new.with_columns(**zeros)])
        accounts = accounts.take(stable_order(*(accounts[name] for name in names)))
        asked = Frame({name: columns[name].astype(np.uint32) for name in names})
        rows = lookup(accounts, asked, names)
        counts, of_header, why = columns["count"], columns["of_header"], columns["why"]
        taken, redundant = why == Refusal.ACCEPTED, np.isin(why, REDUNDANT)
        none = np.zeros_like(counts)
        added = {
            "headers": np.where(of_header, counts, none),
            "submitted": np.where(of_header, none, counts),
            "accepted": np.where(~of_header & taken, counts, none),
            "redundant": np.where(~of_header & redundant, counts, none),
            "refused": np.where(of_header | taken | redundant, none, counts),
            "fees": columns["fee"],
            "wasted": np.where(taken, none, columns["fee"]),
        }
        changed = {name: accounts[name].copy() for name in COUNTS}
        for name, column in changed.items():
            np.add.at(column, rows, added[name])
        return bounded(accounts.with_columns(**changed).select(RELAYERS_SCHEMA.names))

    def _columns(self, made: list[Made] | None = None) -> dict[str, Any]:
        """Return calls as columns, and what each cost."""
        made = self.made if made is None else made
        names = ("chain", "relayer", "call", "source", "substream", "index", "count", "why")
        values = zip(*((*one[:7], int(one.why)) for one in made), strict=True)
        columns: dict[str, Any] = {
            name: np.array(column, dtype=np.uint64) for name, column in zip(names, values, strict=True)
        }
        columns["why"] = columns["why"].astype(np.int32)
        columns["chain"], columns["source"] = columns["chain"].astype(np.uint32), columns["source"].astype(np.uint32)
        columns["of_header"] = columns["call"] >= np.uint64(CallKind.UPDATE)
        price = np.where(columns["of_header"], self._options.header_fee, self._options.proof_fee).astype(np.uint64)
        columns["fee"] = columns["count"] * price
        return columns


def bounded(accounts: Frame) -> Frame:
    """Return accounts (``RELAYERS_SCHEMA``) of which each zone has at most ``MOST_ACCOUNTS`` of relayers from outside.

    Kept are those of which most messages had an effect, and of several with as many those with the lowest numbers; the
    counts of all others are added to the account ``OTHERS``.
    """
    own = np.flatnonzero((accounts["relayer"] >= OUTSIDER) & (accounts["relayer"] != OTHERS))
    if len(own) <= MOST_ACCOUNTS:
        return accounts
    useful = np.iinfo(np.uint64).max - accounts["accepted"][own]
    own = own[stable_order(accounts["chain"][own], useful, accounts["relayer"][own])]
    given_up = own[groups_of(accounts["chain"][own]).ranks() >= MOST_ACCOUNTS]
    relayer = accounts["relayer"].copy()
    relayer[given_up] = OTHERS
    order = stable_order(accounts["chain"], relayer)
    together = groups_of(accounts["chain"][order], relayer[order])
    first = order[together.starts]
    sums = {name: np.add.reduceat(accounts[name][order], together.starts) for name in COUNTS}
    return accounts.take(first).with_columns(relayer=relayer[first], **sums)
