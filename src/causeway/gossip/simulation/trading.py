"""Trading of bodies for tickets in a simulation: a slice of ``tickets.trading``, with real tickets and draws.

Every nonce, secret, commitment and draw is computed. Signatures are made and checked of a share of the tickets
(``tickets.checked``) here, and of every winning ticket when the relay chain settles it (``settled``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows
from causeway_proofs.tendermint.validators import PublicKey

from causeway.core.frame import Frame, concat
from causeway.gossip.listings import Mask, digest_positions
from causeway.gossip.simulation.mail import ArrivedMail, OutgoingMail, body_rows
from causeway.gossip.simulation.state import (
    CLAIMS,
    DELIVERY,
    PAYMENTS,
    PURSE_COUNTERS,
    TENDERS,
    TICKET,
    TRADED,
    Bytes,
    State,
)
from causeway.gossip.simulation.world import WITHHOLD, SimulationWorld
from causeway.gossip.state import GossipState
from causeway.gossip.step_io import QUEUE, StepOutput
from causeway.gossip.tickets.ticket import (
    DELIVERY_BYTES,
    OFFER_BYTES,
    PROMISE_BYTES,
    Tickets,
    TicketVerdict,
    commit,
    derive_nonces,
    derive_secrets,
)
from causeway.gossip.tickets.trading import OFFER, REQUEST, TradeInputs, Trades, find_due, trade
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.random_numbers import SimulationDraw, uniforms

_SAID = {
    name: tuple(column for column in schema.names if column not in ("order", "at"))
    for name, schema in (("tenders", TENDERS), ("payments", PAYMENTS))
}


def empty_purses(nodes: npt.NDArray[np.uint32]) -> Frame:
    """Return counters of nodes that have not traded."""
    zeros = np.zeros(len(nodes), dtype=np.uint64)
    return Frame({"node": nodes, **dict.fromkeys(PURSE_COUNTERS, zeros)}, len(nodes))


@dataclass(frozen=True)
class Trading:
    """A slice of nodes. ``before``: the state before it; ``gossip`` and ``hops``: after the gossip step."""

    world: SimulationWorld
    nodes: npt.NDArray[np.uint32]
    time: int
    before: State
    gossip: GossipState
    hops: Bytes

    @cached_property
    def _columns(self) -> Rows:
        """The column in the gossip state of each queue of the window, -1 for one that is not listed."""
        relay, window, listed = self.world.relay, self.before.window, self.gossip.listed
        queues = np.arange(window.first_queue, window.end_queue)
        root = digest_positions(listed.roots, relay.roots[relay.queue_root[queues]])
        return listed.queue_numbers(root, digest_positions(listed.topics, relay.queue_topic[queues]))

    def _at(self, node: npt.NDArray[np.uint32], queue: U64) -> tuple[Rows, Rows, Mask]:
        """Return row and column of nodes and queues, and which of the queues are listed."""
        window = self.before.window
        number = queue.astype(np.int64) - window.first_queue
        inside = (number >= 0) & (number < window.queues)
        column = np.full(len(queue), -1, dtype=np.int64)
        column[inside] = self._columns[number[inside]]
        return self.gossip.nodes["node"].searchsorted(node), column, column >= 0

    def has(self, node: npt.NDArray[np.uint32], queue: U64) -> Mask:
        """Return whether the node's pool has the body."""
        row, column, listed = self._at(node, queue)
        listed[listed] = self.gossip.pool[row[listed], column[listed]]
        return listed

    def expects(self, node: npt.NDArray[np.uint32], queue: U64) -> Mask:
        """Return whether the node expects the queue."""
        row, column, listed = self._at(node, queue)
        listed[listed] = self.gossip.expects(row[listed], column[listed])
        return listed

    def is_connected(self, node: npt.NDArray[np.uint32], peer: npt.NDArray[np.uint32]) -> Mask:
        """Return whether the node is connected with the peer."""
        return np.asarray(self.gossip.peer_rows(Frame({"node": node, "peer": peer}, len(node))) >= 0)

    def best_block(self, node: npt.NDArray[np.uint32]) -> U64:
        """Return the number of the best relay block of nodes, 0 for a node without any."""
        listed, relay = self.gossip.listed, self.world.relay
        leaf = self.gossip.leaf[self.gossip.nodes["node"].searchsorted(node), 0]
        heights = np.append(relay.heights[relay.block_numbers(listed.blocks)], np.uint64(0))
        return np.asarray(heights[leaf], dtype=np.uint64)


def trade_bodies(
    now: Trading, out: StepOutput, mail: ArrivedMail, said: OutgoingMail
) -> tuple[OutgoingMail, dict[str, Frame], dict[str, Frame]]:
    """Run a slice of trading.

    Args:
        now: The nodes and their states.
        out: What the gossip step returned.
        mail: What came to the nodes.
        said: What gossip would send; its bodies are offered.

    Returns:
        What nodes send instead, the tables of their trades, and rows of log tables.
    """
    world, (tenders, payments) = now.world, mail.trades
    trades = Trades(*(now.before.rows[item.name] for item in fields(Trades)))
    came = payments.filter(payments["kind"] == TICKET)
    verdicts, tickets = _judge_tickets(now, trades, came)
    good = verdicts == TicketVerdict.OK
    offered = said.bodies.filter(~world.mute[said.bodies["source"].astype(np.int64)])
    deliveries = payments.filter(payments["kind"] == DELIVERY)
    inputs = TradeInputs(
        tenders=_received(tenders).with_columns(kind=tenders["kind"], queue=tenders["queue"]),
        deliveries=_received(deliveries).with_columns(
            queue=deliveries["queue"], serial=deliveries["serial"], commitment=deliveries["word"]
        ),
        judged=_judged(out, mail),
        tickets=_received(came).with_columns(serial=came["serial"]).filter(good),
        offered=Frame(
            {"node": offered["source"], "peer": offered["destination"], "queue": offered["queue"]}, len(offered)
        ),
    )
    trades, sold = trade(trades, inputs, now, now.time, world.options.tickets)
    paid = sold.promises.filter(world.behaviour[sold.promises["node"].astype(np.int64)] != WITHHOLD)
    sent_tenders = _sent(sold.tenders).with_columns(kind=sold.tenders["kind"], queue=sold.tenders["queue"])
    sent_payments = concat([_delivered(now, sold.deliveries), _signed(now, paid)])
    root = now.world.relay.queue_root[sold.deliveries["queue"].astype(np.int64)] - now.before.window.first_root
    hops = now.hops[now.nodes.searchsorted(sold.deliveries["node"]), root]
    bodies = body_rows(sold.deliveries["node"], sold.deliveries["peer"], sold.deliveries["queue"], 0, hops)
    wins = np.zeros(len(came), dtype=bool)
    wins[good] = tickets.wins(_secrets(now, came))[good] if len(came) else False
    rows = came.filter(wins)
    root = world.relay.queue_root[rows["queue"].astype(np.int64)].astype(np.uint32)
    columns = {"chain": rows["destination"], "peer": rows["source"], "root": root}
    columns |= {"serial": rows["serial"], "block": rows["block"], "nonce": rows["word"]}
    claims = Frame(columns, len(rows)).select(CLAIMS.names)
    purses = _counted(now, sent_tenders, sent_payments, came, good, wins)
    sending = OutgoingMail(said.packets, bodies, said.sketches, (sent_tenders, sent_payments))
    tables = {name: getattr(trades, name) for name in TRADED}
    return sending, {**tables, "purses": purses}, {"claims": claims} if len(claims) else {}


def trade_bytes(rows: Frame) -> U64:
    """Return how many bytes each offer, request, delivery (without its body) or ticket has."""
    if "serial" not in rows:
        return np.full(len(rows), OFFER_BYTES, dtype=np.uint64)
    return np.where(rows["kind"] == TICKET, PROMISE_BYTES, DELIVERY_BYTES).astype(np.uint64)


# ---- what came


def _received(rows: Frame) -> Frame:
    return Frame({"node": rows["destination"], "peer": rows["source"]}, len(rows))


def _judged(out: StepOutput, mail: ArrivedMail) -> Frame:
    """Return which bodies came, and whether they were good: a body for which the pool has no room is."""
    verdicts = out.verdicts.filter(out.verdicts["kind"] == QUEUE)
    columns = {"node": verdicts["node"], "peer": verdicts["peer"], "queue": mail.bodies["queue"][verdicts["row"]]}
    good = np.isin(verdicts["code"], (PeerVerdict.OK, PeerVerdict.PoolFull))
    return Frame({**columns, "good": good}, len(verdicts))


def _secrets(now: Trading, came: Frame) -> Digests:
    """Return the secrets of the payees to which tickets came."""
    payee, payer = came["destination"].astype(np.int64), came["source"].astype(np.int64)
    return derive_secrets(now.world.secret_keys[payee], now.world.public_keys[payer], came["serial"])


def _roots(world: SimulationWorld, queue: U64) -> Digests:
    """Return the roots of the bodies of queues."""
    found: Digests = world.relay.roots[world.relay.queue_root[queue.astype(np.int64)]]
    return found


def _tickets(
    world: SimulationWorld, payer: Rows, payee: Rows, queue: U64, commitment: Digests, nonce: Digests, **numbers: U64
) -> Tickets:
    """Return tickets as columns; payer and payee build them of what each has."""
    options, relay = world.options.tickets, world.relay
    count = len(payer)
    return Tickets(
        relay.hashes[0].tobytes(),
        world.public_keys[payer],
        world.public_keys[payee],
        _roots(world, queue),
        commitment,
        nonce,
        price=np.full(count, options.price, dtype=np.uint64),
        odds=np.full(count, options.odds, dtype=np.uint64),
        **numbers,
    )


def _judge_tickets(now: Trading, trades: Trades, came: Frame) -> tuple[npt.NDArray[np.int64], Tickets]:
    """Return the payees' verdicts on tickets that came, and the tickets as the payees build them: root and commitment
    are of their own delivery."""
    world, options = now.world, now.world.options.tickets
    payee, payer = came["destination"].astype(np.int64), came["source"].astype(np.int64)
    due = find_due(trades, _received(came).with_columns(serial=came["serial"]))
    queue = np.append(trades.due["queue"], np.uint64(0))[due]
    commitment = commit(_secrets(now, came))
    tickets = _tickets(world, payer, payee, queue, commitment, came["word"], serial=came["serial"], block=came["block"])
    verdicts = np.full(len(came), TicketVerdict.OK, dtype=np.int64)
    checked = np.flatnonzero((due >= 0) & _is_checked(world, payer, payee, came["serial"]))
    payloads = tickets.payloads()
    for row in checked.tolist():
        key = PublicKey(world.public_keys[payer[row]].tobytes())
        if not key.accepts(came["signature"][row].tobytes(), payloads[row].tobytes()):
            verdicts[row] = TicketVerdict.BadSignature
    best, slack = now.best_block(came["destination"]).astype(np.int64), options.slack
    age = best - came["block"].astype(np.int64)
    verdicts[age > slack] = TicketVerdict.Expired
    verdicts[age < -slack] = TicketVerdict.FromTheFuture
    verdicts[due < 0] = TicketVerdict.UnknownDelivery
    return verdicts, tickets


def _is_checked(world: SimulationWorld, payer: Rows, payee: Rows, serial: U64) -> Mask:
    """Return which tickets are signed and checked in the simulation."""
    share = world.options.tickets.checked
    if share >= 1:
        return np.ones(len(payer), dtype=bool)
    return np.asarray(uniforms(world.seed, SimulationDraw.TICKET, payer, payee, serial) < share)


# ---- what goes out


def _sent(rows: Frame) -> Frame:
    return Frame({"source": rows["node"], "destination": rows["peer"]}, len(rows))


def _delivered(now: Trading, rows: Frame) -> Frame:
    """Return deliveries with the commitments of their payees."""
    payee, payer = rows["node"].astype(np.int64), rows["peer"].astype(np.int64)
    secrets = derive_secrets(now.world.secret_keys[payee], now.world.public_keys[payer], rows["serial"])
    return (
        _sent(rows)
        .with_columns(
            kind=np.full(len(rows), DELIVERY),
            queue=rows["queue"],
            serial=rows["serial"],
            block=np.zeros(len(rows), dtype=np.uint64),
            word=commit(secrets),
            signature=np.zeros((len(rows), 64), dtype=np.uint8),
        )
        .select(_SAID["payments"])
    )


def _signed(now: Trading, rows: Frame) -> Frame:
    """Return tickets, signed where a payee checks that."""
    world = now.world
    payer, payee = rows["node"].astype(np.int64), rows["peer"].astype(np.int64)
    roots = _roots(world, rows["queue"])
    nonce = derive_nonces(world.secret_keys[payer], world.public_keys[payee], rows["serial"], roots, rows["commitment"])
    block = now.best_block(rows["node"])
    tickets = _tickets(
        world, payer, payee, rows["queue"], rows["commitment"], nonce, serial=rows["serial"], block=block
    )
    signature = np.zeros((len(rows), 64), dtype=np.uint8)
    payloads = tickets.payloads()
    for row in np.flatnonzero(_is_checked(world, payer, payee, rows["serial"])).tolist():
        made = world.signing_keys[payer[row]].sign(payloads[row].tobytes())
        signature[row] = np.frombuffer(made, dtype=np.uint8)
    return (
        _sent(rows)
        .with_columns(
            kind=np.full(len(rows), TICKET),
            queue=rows["queue"],
            serial=rows["serial"],
            block=block,
            word=nonce,
            signature=signature,
        )
        .select(_SAID["payments"])
    )


def _counted(now: Trading, tenders: Frame, payments: Frame, came: Frame, good: Mask, wins: Mask) -> Frame:
    """Return the counters of the nodes after the slice."""
    before, count = now.before.rows["purses"], len(now.nodes)

    def counted(nodes: npt.NDArray[np.uint32], weights: U64 | None = None) -> U64:
        rows = now.nodes.searchsorted(nodes)
        return np.bincount(rows, weights=weights, minlength=count).astype(np.uint64)

    checked = _is_checked(
        now.world, came["source"].astype(np.int64), came["destination"].astype(np.int64), came["serial"]
    )
    new = {
        "offers": counted(tenders["source"][tenders["kind"] == OFFER]),
        "requests": counted(tenders["source"][tenders["kind"] == REQUEST]),
        "deliveries": counted(payments["source"][payments["kind"] == DELIVERY]),
        "tickets": counted(payments["source"][payments["kind"] == TICKET]),
        "refused": counted(came["destination"][~good]),
        "checked": counted(came["destination"][checked]),
        "won": counted(came["destination"][wins]),
        "bytes": sum(counted(rows["source"], trade_bytes(rows)) for rows in (tenders, payments)),
    }
    return Frame({"node": now.nodes, **{name: before[name] + new[name] for name in PURSE_COUNTERS}}, count)
