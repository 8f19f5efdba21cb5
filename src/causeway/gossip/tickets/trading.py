"""Trading of bodies for tickets: a state machine without I/O; columns carry the node.

Instead of sending a body, a node *offers* it. A node that expects the body and lacks it *requests* it
from the first offering peer, and after ``patience`` from the next one. The peer *delivers* it with a
serial number and a commitment. A good requested body is paid with a ticket; others are not.

Tit for tat: a node has at most ``credit`` unpaid deliveries to a peer, one more for each ticket of that
peer, and never more than ``credit_limit``. Further requests wait for tickets. A peer that withholds
tickets thus gets ``credit`` bodies from each neighbour, and a peer that always paid can default on
``credit_limit`` bodies once. Conversely, a peer that delivers late or delivers an altered body is
*distrusted* until a good body of it arrives: it is asked last, and a request to it does not block a
request to a trusted peer.

The caller numbers the queues; ``GossipFacts`` gives access to the gossip state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, group_rows, stable_order
from pydantic import Field, model_validator

from causeway.config.section import ScenarioSection
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.gossip.listings import Mask
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
    def _validate_consistency(self) -> Self:
        if self.odds & (self.odds - 1):
            raise option_error("odds", f"{self.odds}: must be a power of two")
        if self.credit > self.credit_limit:
            raise option_error("credit", f"{self.credit}: must be at most credit_limit = {self.credit_limit}")
        return self

    @property
    def prize(self) -> int:
        """Payment of a winning ticket."""
        return self.price * self.odds

    @property
    def slack(self) -> int:
        """Maximum distance of a ticket's relay block from the payee's newest one."""
        return self.lifetime // 2

    @property
    def pays(self) -> bool:
        """True if delivering a body earns more than it costs, including the fees of claims."""
        return self.mode == "on" and self.prize - self.fee > self.cost * self.odds


U32 = npt.NDArray[np.uint32]

OFFER, REQUEST = np.uint8(0), np.uint8(1)

_U8, _U32, _U64, _DIGEST = pa.uint8(), pa.uint32(), pa.uint64(), pa.binary(32)


def _schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


OFFERS = _schema(node=_U32, queue=_U64, since=_U64, peer=_U32)
"""Unused offers, the first of each queue first."""

ASKED = _schema(node=_U32, queue=_U64, peer=_U32, since=_U64, open=_U8, serial=_U64, commitment=_DIGEST)
"""Requests without a body.

``open``: 0 once the patience ended and the next peer was asked; a late body is still paid. ``serial``:
0 before the delivery.
"""

ORDERS = _schema(node=_U32, peer=_U32, since=_U64, queue=_U64)
"""Requests of peers that wait for credit."""

DUE = _schema(node=_U32, peer=_U32, serial=_U64, queue=_U64)
"""Unpaid deliveries to peers."""

ACCOUNTS = _schema(node=_U32, peer=_U32, serial=_U64, paid=_U64, failed=_U8)
"""Serial number of the last delivery to each peer, and the number of its tickets.

``failed``: 1 if the node distrusts the peer.
"""

TENDERS = _schema(node=_U32, peer=_U32, kind=_U8, queue=_U64)
"""Offers and requests: from ``peer`` to ``node`` as input, from ``node`` to ``peer`` as output."""

DELIVERIES = _schema(node=_U32, peer=_U32, queue=_U64, serial=_U64)
PROMISES = _schema(node=_U32, peer=_U32, queue=_U64, serial=_U64, commitment=_DIGEST)
"""Tickets that ``node`` issues to ``peer``."""


@dataclass(frozen=True)
class Trades:
    """State of any set of nodes: tables in ascending order of their first columns."""

    offers: Frame = field(default_factory=partial(empty_frame, OFFERS))
    asked: Frame = field(default_factory=partial(empty_frame, ASKED))
    orders: Frame = field(default_factory=partial(empty_frame, ORDERS))
    due: Frame = field(default_factory=partial(empty_frame, DUE))
    accounts: Frame = field(default_factory=partial(empty_frame, ACCOUNTS))


@dataclass(frozen=True)
class TradeInputs:
    """Input of a step.

    Attributes:
        tenders: Offers and requests of peers.
        deliveries: Serial number and commitment of each arrived body (``PROMISES``).
        judged: Bodies judged by gossip (``node``, ``peer``, ``queue``, ``good``).
        tickets: Good tickets (``node``, ``peer``, ``serial``), each with a row of ``Trades.due``.
        offered: Bodies that gossip would send (``node``, ``peer``, ``queue``).
    """

    tenders: Frame
    deliveries: Frame
    judged: Frame
    tickets: Frame
    offered: Frame


@dataclass(frozen=True)
class TradeOutput:
    """Output of a step: ``tenders``, ``deliveries`` with bodies, ``promises`` to be signed."""

    tenders: Frame
    deliveries: Frame
    promises: Frame


class GossipFacts(Protocol):
    """Queries of the gossip state, row by row."""

    def has(self, node: U32, queue: U64) -> Mask:
        """Return a mask of bodies in the node's pool."""

    def expects(self, node: U32, queue: U64) -> Mask:
        """Return a mask of queues that the node expects."""

    def is_connected(self, node: U32, peer: U32) -> Mask:
        """Return a mask of connected pairs."""


def trade(
    trades: Trades, inputs: TradeInputs, facts: GossipFacts, time: int, options: TicketOptions
) -> tuple[Trades, TradeOutput]:
    """Run a step of trading, after the gossip step.

    Args:
        trades: State of the nodes.
        inputs: Input since the last step.
        facts: The gossip state after its step.
        time: Time in ms.
        options: Credit and patience.

    Returns:
        The state after the step, and the output.
    """
    # Remove paid deliveries and count the tickets of peers.
    if len(inputs.tickets) == 0:
        due, accounts = trades.due, trades.accounts
    else:
        open_ = np.ones(len(trades.due), dtype=bool)
        open_[find_due(trades, inputs.tickets)] = False
        paid = trades.accounts["paid"].copy()
        np.add.at(paid, lookup_rows(trades.accounts, inputs.tickets, ("node", "peer")), np.uint64(1))
        due, accounts = trades.due.filter(open_), trades.accounts.with_columns(paid=paid)
    # Split requests: still open, answered by a good body (paid), answered by a bad body.
    open_requests = _record_deliveries(trades.asked, inputs.deliveries)
    judged = inputs.judged
    if len(open_requests) == 0 or len(judged) == 0:
        open_requests, promises, refused = open_requests, empty_frame(PROMISES), empty_frame(ASKED)
    else:
        # The first copy of a body in a step counts.
        judged = _first_rows(judged, ("node", "queue", "peer"))
        row = lookup_rows(judged, open_requests, ("node", "queue", "peer"))
        good = row >= 0
        good[good] = judged["good"][row[good]]
        promises = open_requests.filter(good & (open_requests["serial"] > 0)).select(PROMISES.names)
        open_requests, promises, refused = (
            open_requests.filter(row < 0),
            promises,
            open_requests.filter((row >= 0) & ~good),
        )
    # Close requests whose patience ended; drop those of unexpected queues.
    if len(open_requests) == 0:
        lapsed = open_requests
    else:
        late = open_requests["since"] + np.uint64(options.patience) <= np.uint64(time)
        lapsed = late & (open_requests["open"] > 0)
        closed = open_requests.with_columns(open=np.where(late, np.uint8(0), open_requests["open"]))
        stays = ~late | facts.expects(open_requests["node"], open_requests["queue"])
        stays &= facts.is_connected(open_requests["node"], open_requests["peer"])
        open_requests, lapsed = closed.filter(stays), open_requests.filter(lapsed & stays)
    # Trust peers that delivered good bodies; distrust those that delivered bad ones or none.
    bad = concat([rows.select(("node", "peer")) for rows in (refused, lapsed)])
    for rows, failed in ((promises, 0), (bad, 1)):
        if len(rows):
            accounts = _open_accounts(accounts, rows)
            column = accounts["failed"].copy()
            column[lookup_rows(accounts, rows, ("node", "peer"))] = failed
            accounts = accounts.with_columns(failed=column)
    # Useful offers; slow peers come last.
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
        known = _first_rows(known, ("node", "queue", "peer"))
        offers = known.take(stable_order(known["node"], known["queue"], known["since"], known["peer"]))
    offers, open_requests, requests = _request(offers, open_requests, accounts, time)
    # Servable requests; after half the patience a delivery could come too late.
    came = inputs.tenders.filter(inputs.tenders["kind"] == REQUEST)
    if len(trades.orders) + len(came) == 0:
        orders = trades.orders
    else:
        came = came.with_columns(since=np.full(len(came), time, dtype=np.uint64)).select(ORDERS.names)
        known = _first_rows(concat([trades.orders, came]), ("node", "peer", "queue"))
        node, peer, queue = (known[name] for name in ("node", "peer", "queue"))
        serves = facts.has(node, queue) & facts.is_connected(node, peer)
        serves &= known["since"] + np.uint64(options.patience // 2) > np.uint64(time)
        unpaid = _first_rows(due, ("node", "peer", "queue"))
        serves &= lookup_rows(unpaid, known, ("node", "peer", "queue")) < 0
        known = known.filter(serves)
        orders = known.take(stable_order(known["node"], known["peer"], known["since"], known["queue"]))
    orders, due, accounts, deliveries = _deliver(orders, due, accounts, options)
    offered = inputs.offered.with_columns(kind=np.full(len(inputs.offered), OFFER))
    tenders = concat([offered.select(TENDERS.names), requests])
    return Trades(offers, open_requests, orders, due, accounts), TradeOutput(tenders, deliveries, promises)


def find_due(trades: Trades, tickets: Frame) -> Rows:
    """Return the row in ``due`` of each ticket (``node``, ``peer``, ``serial``), or -1."""
    return lookup_rows(trades.due, tickets, ("node", "peer", "serial"))


# ---- payers


def _record_deliveries(open_requests: Frame, deliveries: Frame) -> Frame:
    """Record serial numbers and commitments of requested deliveries; ignore others."""
    if len(open_requests) == 0 or len(deliveries) == 0:
        return open_requests
    row = lookup_rows(open_requests, deliveries, ("node", "queue", "peer"))
    some = row >= 0
    serial, commitment = open_requests["serial"].copy(), open_requests["commitment"].copy()
    serial[row[some]], commitment[row[some]] = deliveries["serial"][some], deliveries["commitment"][some]
    return open_requests.with_columns(serial=serial, commitment=commitment)


def _open_accounts(accounts: Frame, rows: Frame) -> Frame:
    """Add accounts of further peers (``node``, ``peer``)."""
    new = _first_rows(rows.select(("node", "peer")), ("node", "peer"))
    new = new.filter(lookup_rows(accounts, new, ("node", "peer")) < 0)
    if len(new) == 0:
        return accounts
    zeros = np.zeros(len(new), dtype=np.uint64)
    accounts = concat([accounts, new.with_columns(serial=zeros, paid=zeros, failed=zeros.astype(np.uint8))])
    return accounts.take(stable_order(accounts["node"], accounts["peer"]))


def _is_distrusted(accounts: Frame, rows: Frame) -> Mask:
    """Return a mask of the rows whose peer the node distrusts."""
    failed = np.append(accounts["failed"], np.uint8(0))
    return np.asarray(failed[lookup_rows(accounts, rows, ("node", "peer"))] > 0)


def _request(offers: Frame, open_requests: Frame, accounts: Frame, time: int) -> tuple[Frame, Frame, Frame]:
    """Request each offered queue without an open request, from trusted peers first."""
    if len(offers) == 0:
        return offers, open_requests, empty_frame(TENDERS)
    doubtful = _is_distrusted(accounts, offers)
    pending = open_requests.filter(open_requests["open"] > 0)
    trusted = _first_rows(pending.filter(~_is_distrusted(accounts, pending)), ("node", "queue"))
    free = lookup_rows(trusted, offers, ("node", "queue")) < 0
    free &= ~doubtful | (lookup_rows(_first_rows(pending, ("node", "queue")), offers, ("node", "queue")) < 0)
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
    # A repeated request to the same peer replaces the earlier one.
    before = (
        open_requests.filter(lookup_rows(new, open_requests, ("node", "queue", "peer")) < 0) if count else open_requests
    )
    open_requests = concat([before, new])
    open_requests = open_requests.take(
        stable_order(open_requests["node"], open_requests["queue"], open_requests["peer"])
    )
    requests = some.with_columns(kind=np.full(count, REQUEST)).select(TENDERS.names)
    return offers.filter(~(free & first)), open_requests, requests


# ---- payees


def _deliver(orders: Frame, due: Frame, accounts: Frame, options: TicketOptions) -> tuple[Frame, Frame, Frame, Frame]:
    """Serve requests within the credit of each peer.

    Returns:
        The waiting requests, the unpaid deliveries, the accounts, and the new deliveries.
    """
    if len(orders) == 0:
        return orders, due, accounts, empty_frame(DELIVERIES)
    pairs = group_rows(orders["node"], orders["peer"])
    peers = orders.take(pairs.starts).select(("node", "peer"))
    accounts = _open_accounts(accounts, peers)
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


def _first_rows(rows: Frame, keys: tuple[str, ...]) -> Frame:
    """Return the first row of each key, in ascending order of keys."""
    if len(rows) == 0:
        return rows
    columns = [rows[key] for key in keys]
    order = stable_order(*columns)
    return rows.take(order[group_rows(*(column[order] for column in columns)).starts])
