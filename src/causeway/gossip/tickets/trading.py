"""How nodes trade bodies for tickets: a state machine without I/O, columns of which carry the node.

Where gossip would send a body, a node *offers* it. A node that expects the body and does not have it *requests* it from
the first peer that offered it, and after ``patience`` from the next one. The peer *delivers* it with a serial number
and a commitment. A good body is paid with a ticket; a body that was not requested, or is altered, is not.

Tit for tat: a node has at most ``credit`` unpaid deliveries to a peer, one more for each ticket of that peer, and never
more than ``credit_limit``. Requests beyond that wait for tickets. So a peer that withholds tickets gets ``credit``
bodies of each neighbour and then none, and a peer that always paid can keep ``credit_limit`` bodies once.

The other way round, a peer that did not deliver what it offered, or delivered an altered body, is *distrusted* until a
good body of it comes: it is asked last, and a request to it does not keep a node from asking a peer that it trusts.

Queues have numbers that the caller gives them; ``Facts`` says what the gossip state knows about them.

The options of tickets: prices, odds, credit, and the rules of accounts on the relay chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import Rows, group_rows, stable_order
from pydantic import Field, model_validator

from causeway.config.section import ScenarioSection
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.option_values import option_error

Units = Annotated[int, Field(ge=0, le=2**40)]


class TicketOptions(ScenarioSection):
    """``[tickets]``: payment for delivered bodies. Amounts are in units of payment, times in ms."""

    mode: Literal["off", "on"] = Field("off", description="`on`: who receives a body pays who delivered it.")
    price: int = Field(8, ge=1, le=2**32, description="Expected payment for a body.")
    odds: int = Field(
        64, ge=1, le=2**24, description="One ticket in so many wins, a power of two; the prize is `price` times `odds`."
    )
    cost: Units = Field(5, description="What it costs a selfish node to forward a body.")
    fee: Units = Field(32, description="What a claim costs on the relay chain.")
    credit: int = Field(
        4, ge=1, le=2**16, description="Deliveries to a peer that may be unpaid; each ticket of the peer adds one."
    )
    credit_limit: int = Field(32, ge=1, le=2**16, description="Deliveries to a peer that may ever be unpaid.")
    patience: int = Field(
        3_000,
        ge=1,
        le=3_600_000,
        description="After so long a request goes to the next peer; at least six times the latency of a link.",
    )
    lifetime: int = Field(8, ge=2, le=2**20, description="Relay blocks in which a ticket can be claimed.")
    deposit: Units = Field(100_000, description="What a node deposits; prizes are paid from it.")
    bond: Units = Field(10_000, description="What a node loses when its deposit does not pay a prize.")
    checked: float = Field(
        1.0, ge=0, le=1, description="The share of tickets of which the simulation signs and verifies the signature."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.odds & (self.odds - 1):
            raise option_error("odds", f"{self.odds}: must be a power of two")
        if self.credit > self.credit_limit:
            raise option_error("credit", f"{self.credit}: must be at most credit_limit = {self.credit_limit}")
        return self

    @property
    def prize(self) -> int:
        """What a winning ticket pays."""
        return self.price * self.odds

    @property
    def slack(self) -> int:
        """By how many relay blocks the block of a ticket may differ from the payee's newest one."""
        return self.lifetime // 2

    @property
    def pays(self) -> bool:
        """Whether delivering a body earns more than it costs, fees of claims included."""
        return self.mode == "on" and self.prize - self.fee > self.cost * self.odds


Mask = npt.NDArray[np.bool_]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

OFFER, REQUEST = np.uint8(0), np.uint8(1)

_U8, _U32, _U64, _DIGEST = pa.uint8(), pa.uint32(), pa.uint64(), pa.binary(32)


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


OFFERS = _schema(node=_U32, queue=_U64, since=_U64, peer=_U32)
"""Offers that a node did not use yet, the first of each queue first."""

ASKED = _schema(node=_U32, queue=_U64, peer=_U32, since=_U64, open=_U8, serial=_U64, commitment=_DIGEST)
"""Requests of a node that have no body yet. ``open``: 0 when the patience ended, and the next peer was asked; a late
body is paid nevertheless. ``serial``: 0 before the delivery."""

ORDERS = _schema(node=_U32, peer=_U32, since=_U64, queue=_U64)
"""Requests of peers that wait for credit."""

DUE = _schema(node=_U32, peer=_U32, serial=_U64, queue=_U64)
"""Deliveries to peers that are not paid yet."""

ACCOUNTS = _schema(node=_U32, peer=_U32, serial=_U64, paid=_U64, failed=_U8)
"""By peer the serial number of the last delivery to it, and the number of its tickets. ``failed``: 1 where the node
distrusts it."""

TENDERS = _schema(node=_U32, peer=_U32, kind=_U8, queue=_U64)
"""Offers and requests on their way: of ``peer`` to ``node`` as input, of ``node`` to ``peer`` as output."""

DELIVERIES = _schema(node=_U32, peer=_U32, queue=_U64, serial=_U64)
PROMISES = _schema(node=_U32, peer=_U32, queue=_U64, serial=_U64, commitment=_DIGEST)
"""Tickets that ``node`` issues to ``peer``."""


@dataclass(frozen=True)
class Trades:
    """The state of any set of nodes: tables in ascending order of their first columns."""

    offers: Frame = field(default_factory=partial(empty_frame, OFFERS))
    asked: Frame = field(default_factory=partial(empty_frame, ASKED))
    orders: Frame = field(default_factory=partial(empty_frame, ORDERS))
    due: Frame = field(default_factory=partial(empty_frame, DUE))
    accounts: Frame = field(default_factory=partial(empty_frame, ACCOUNTS))


@dataclass(frozen=True)
class TradeInputs:
    """What came to nodes in a step.

    ``tenders``: offers and requests of peers. ``deliveries``: serial number and commitment of each body that came
    (``PROMISES``). ``judged``: bodies that gossip judged (``node``, ``peer``, ``queue``, ``good``). ``tickets``: good
    tickets (``node``, ``peer``, ``serial``), each of a row of ``Trades.due``. ``offered``: bodies that gossip would
    send (``node``, ``peer``, ``queue``).
    """

    tenders: Frame
    deliveries: Frame
    judged: Frame
    tickets: Frame
    offered: Frame


@dataclass(frozen=True)
class TradeOutput:
    """What nodes send: ``tenders``, ``deliveries`` together with the bodies, and ``promises``, to be signed."""

    tenders: Frame
    deliveries: Frame
    promises: Frame


class GossipFacts(Protocol):
    """What gossip knows, row by row."""

    def has(self, node: U32, queue: U64) -> Mask:
        """Return whether the node's pool has the body."""

    def expects(self, node: U32, queue: U64) -> Mask:
        """Return whether the node expects the queue."""

    def is_connected(self, node: U32, peer: U32) -> Mask:
        """Return whether the node is connected with the peer."""


def trade(
    trades: Trades, inputs: TradeInputs, facts: GossipFacts, time: int, options: TicketOptions
) -> tuple[Trades, TradeOutput]:
    """Run a step of trading at ``time`` (ms), after the gossip step.

    Args:
        trades: State of the nodes.
        inputs: What came since the last step.
        facts: The gossip state after its step.
        time: Milliseconds since the beginning.
        options: Credit and patience.

    Returns:
        The state after the step, and what the nodes send.
    """
    # Strike out paid deliveries, and count the tickets of peers.
    if len(inputs.tickets) == 0:
        due, accounts = trades.due, trades.accounts
    else:
        open_ = np.ones(len(trades.due), dtype=bool)
        open_[find_due(trades, inputs.tickets)] = False
        paid = trades.accounts["paid"].copy()
        np.add.at(paid, lookup_rows(trades.accounts, inputs.tickets, ("node", "peer")), np.uint64(1))
        due, accounts = trades.due.filter(open_), trades.accounts.with_columns(paid=paid)
    # The requests that have no body yet, tickets for good bodies, and requests that got other bodies.
    asked = _note(trades.asked, inputs.deliveries)
    judged = inputs.judged
    if len(asked) == 0 or len(judged) == 0:
        asked, promises, refused = asked, empty_frame(PROMISES), empty_frame(ASKED)
    else:
        # Of a body that came twice in a step, the first copy counts.
        judged = _first(judged, ("node", "queue", "peer"))
        row = lookup_rows(judged, asked, ("node", "queue", "peer"))
        good = row >= 0
        good[good] = judged["good"][row[good]]
        promises = asked.filter(good & (asked["serial"] > 0)).select(PROMISES.names)
        asked, promises, refused = asked.filter(row < 0), promises, asked.filter((row >= 0) & ~good)
    # Close requests whose patience ended, and return them besides; forget those of queues that nobody expects.
    if len(asked) == 0:
        lapsed = asked
    else:
        late = asked["since"] + np.uint64(options.patience) <= np.uint64(time)
        lapsed = late & (asked["open"] > 0)
        closed = asked.with_columns(open=np.where(late, np.uint8(0), asked["open"]))
        stays = ~late | facts.expects(asked["node"], asked["queue"])
        stays &= facts.is_connected(asked["node"], asked["peer"])
        asked, lapsed = closed.filter(stays), asked.filter(lapsed & stays)
    # Trust peers of whom good bodies came, and distrust those of whom others or none came.
    bad = concat([rows.select(("node", "peer")) for rows in (refused, lapsed)])
    for rows, failed in ((promises, 0), (bad, 1)):
        if len(rows):
            accounts = _opened(accounts, rows)
            column = accounts["failed"].copy()
            column[lookup_rows(accounts, rows, ("node", "peer"))] = failed
            accounts = accounts.with_columns(failed=column)
    # The offers that nodes can use; peers that were too slow are last.
    came = inputs.tenders.filter(inputs.tenders["kind"] == OFFER)
    added = concat([rows.select(("node", "queue", "peer")) for rows in (came, lapsed)])
    if len(trades.offers) + len(added) == 0:
        offers = trades.offers
    else:
        added = added.with_columns(since=np.full(len(added), time, dtype=np.uint64)).select(OFFERS.names)
        known = concat([trades.offers, added])
        node, queue, peer = (known[name] for name in ("node", "queue", "peer"))
        useful = facts.expects(node, queue) & ~facts.has(node, queue) & facts.is_connected(node, peer)
        known = known.filter(useful)
        known = _first(known, ("node", "queue", "peer"))
        offers = known.take(stable_order(known["node"], known["queue"], known["since"], known["peer"]))
    offers, asked, requests = _request(offers, asked, accounts, time)
    # The requests that a node can serve; who asked gives up after its patience, so that nobody serves then.
    came = inputs.tenders.filter(inputs.tenders["kind"] == REQUEST)
    if len(trades.orders) + len(came) == 0:
        orders = trades.orders
    else:
        came = came.with_columns(since=np.full(len(came), time, dtype=np.uint64)).select(ORDERS.names)
        known = _first(concat([trades.orders, came]), ("node", "peer", "queue"))
        node, peer, queue = (known[name] for name in ("node", "peer", "queue"))
        serves = facts.has(node, queue) & facts.is_connected(node, peer)
        serves &= known["since"] + np.uint64(options.patience // 2) > np.uint64(time)
        unpaid = _first(due, ("node", "peer", "queue"))
        serves &= lookup_rows(unpaid, known, ("node", "peer", "queue")) < 0
        known = known.filter(serves)
        orders = known.take(stable_order(known["node"], known["peer"], known["since"], known["queue"]))
    orders, due, accounts, deliveries = _deliver(orders, due, accounts, options)
    offered = inputs.offered.with_columns(kind=np.full(len(inputs.offered), OFFER))
    tenders = concat([offered.select(TENDERS.names), requests])
    return Trades(offers, asked, orders, due, accounts), TradeOutput(tenders, deliveries, promises)


def find_due(trades: Trades, tickets: Frame) -> Rows:
    """Return of each ticket (``node``, ``peer``, ``serial``) the unpaid delivery, a row of ``due``, -1 for none."""
    return lookup_rows(trades.due, tickets, ("node", "peer", "serial"))


# ---- payees: tickets


# ---- payers: requests and tickets


def _note(asked: Frame, deliveries: Frame) -> Frame:
    """Note serial numbers and commitments of deliveries; those that were not requested are ignored."""
    if len(asked) == 0 or len(deliveries) == 0:
        return asked
    row = lookup_rows(asked, deliveries, ("node", "queue", "peer"))
    some = row >= 0
    serial, commitment = asked["serial"].copy(), asked["commitment"].copy()
    serial[row[some]], commitment[row[some]] = deliveries["serial"][some], deliveries["commitment"][some]
    return asked.with_columns(serial=serial, commitment=commitment)


def _opened(accounts: Frame, rows: Frame) -> Frame:
    """Return the accounts with those of further peers (``node``, ``peer``)."""
    new = _first(rows.select(("node", "peer")), ("node", "peer"))
    new = new.filter(lookup_rows(accounts, new, ("node", "peer")) < 0)
    if len(new) == 0:
        return accounts
    zeros = np.zeros(len(new), dtype=np.uint64)
    accounts = concat([accounts, new.with_columns(serial=zeros, paid=zeros, failed=zeros.astype(np.uint8))])
    return accounts.take(stable_order(accounts["node"], accounts["peer"]))


def _distrusted(accounts: Frame, rows: Frame) -> Mask:
    """Return of which rows the node distrusts the peer."""
    failed = np.append(accounts["failed"], np.uint8(0))
    return np.asarray(failed[lookup_rows(accounts, rows, ("node", "peer"))] > 0)


def _request(offers: Frame, asked: Frame, accounts: Frame, time: int) -> tuple[Frame, Frame, Frame]:
    """Request each queue that has offers and no open request from the first peer, of those that the node trusts
    first."""
    if len(offers) == 0:
        return offers, asked, empty_frame(TENDERS)
    doubtful = _distrusted(accounts, offers)
    pending = asked.filter(asked["open"] > 0)
    trusted = _first(pending.filter(~_distrusted(accounts, pending)), ("node", "queue"))
    free = lookup_rows(trusted, offers, ("node", "queue")) < 0
    free &= ~doubtful | (lookup_rows(_first(pending, ("node", "queue")), offers, ("node", "queue")) < 0)
    order = stable_order(offers["node"], offers["queue"], doubtful.astype(np.uint8), offers["since"], offers["peer"])
    first = np.zeros(len(offers), dtype=bool)
    first[order[group_rows(offers["node"][order], offers["queue"][order]).starts]] = True
    some = offers.filter(free & first)
    count = len(some)
    new = some.with_columns(
        since=np.full(count, time, dtype=np.uint64),
        open=np.ones(count, dtype=np.uint8),
        serial=np.zeros(count, dtype=np.uint64),
        commitment=np.zeros((count, 32), dtype=np.uint8),
    ).select(ASKED.names)
    # Who is asked again is asked once: its earlier request is this one.
    before = asked.filter(lookup_rows(new, asked, ("node", "queue", "peer")) < 0) if count else asked
    asked = concat([before, new])
    asked = asked.take(stable_order(asked["node"], asked["queue"], asked["peer"]))
    requests = some.with_columns(kind=np.full(count, REQUEST)).select(TENDERS.names)
    return offers.filter(~(free & first)), asked, requests


# ---- payees: deliveries


def _deliver(orders: Frame, due: Frame, accounts: Frame, options: TicketOptions) -> tuple[Frame, Frame, Frame, Frame]:
    """Serve requests as far as the credit of each peer goes; return those that wait, and what is delivered."""
    if len(orders) == 0:
        return orders, due, accounts, empty_frame(DELIVERIES)
    pairs = group_rows(orders["node"], orders["peer"])
    peers = orders.take(pairs.starts).select(("node", "peer"))
    accounts = _opened(accounts, peers)
    at = lookup_rows(accounts, peers, ("node", "peer"))
    unpaid = np.zeros(len(accounts), dtype=np.int64)
    np.add.at(unpaid, lookup_rows(accounts, due, ("node", "peer")), 1)
    limit = np.minimum(accounts["paid"][at].astype(np.int64) + options.credit, options.credit_limit)
    rank = pairs.ranks()
    served = rank < pairs.spread(np.maximum(limit - unpaid[at], 0))
    serial = accounts["serial"].copy()
    number = pairs.spread(serial[at]) + rank.astype(np.uint64) + np.uint64(1)
    deliveries = orders.with_columns(serial=number).filter(served)
    np.maximum.at(serial, np.repeat(at, pairs.counts)[served], number[served])
    due = concat([due, deliveries.select(DUE.names)])
    due = due.take(stable_order(due["node"], due["peer"], due["serial"]))
    return orders.filter(~served), due, accounts.with_columns(serial=serial), deliveries.select(DELIVERIES.names)


def _first(rows: Frame, keys: tuple[str, ...]) -> Frame:
    """Return the first row of each key, in ascending order of keys."""
    if len(rows) == 0:
        return rows
    columns = [rows[key] for key in keys]
    order = stable_order(*columns)
    return rows.take(order[group_rows(*(column[order] for column in columns)).starts])
