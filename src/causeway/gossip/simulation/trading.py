"""Trading in a simulation: one slice of ``tickets.trading`` with real tickets.

Every nonce, secret, commitment and draw is computed. Only a share of the tickets is signed and
checked here (``tickets.checked``); settlement signs and checks every winning ticket (``settle_claims``).
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
from causeway.gossip.simulation import state
from causeway.gossip.simulation.mail import ArrivedMail, OutgoingMail, body_rows
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
    for name, schema in (("tenders", state.TENDERS), ("payments", state.PAYMENTS))
}


def empty_purses(nodes: npt.NDArray[np.uint32]) -> Frame:
    """Create zero counters for nodes."""
    zeros = np.zeros(len(nodes), dtype=np.uint64)
    return Frame({"node": nodes, **dict.fromkeys(state.PURSE_COUNTERS, zeros)}, len(nodes))


@dataclass(frozen=True)
class Trading:
    """Trading view of nodes in one slice.

    Attributes:
        world: The simulation.
        nodes: Numbers of the nodes.
        time: Time in ms.
        before: State before the slice.
        gossip: State after the gossip step.
        hops: Hop counts after the gossip step.
    """

    world: SimulationWorld
    nodes: npt.NDArray[np.uint32]
    time: int
    before: state.State
    gossip: GossipState
    hops: state.Bytes

    @cached_property
    def _columns(self) -> Rows:
        """Column of each queue of the window in the gossip state, -1 if it is not listed."""
        relay, window, listed = self.world.relay, self.before.window, self.gossip.listed
        queues = np.arange(window.first_queue, window.end_queue)
        root = digest_positions(listed.roots, relay.roots[relay.queue_root[queues]])
        return listed.queue_numbers(root, digest_positions(listed.topics, relay.queue_topic[queues]))

    def _positions(self, node: npt.NDArray[np.uint32], queue: U64) -> tuple[Rows, Rows, Mask]:
        """Return row and column of nodes and queues, and a mask of the listed ones."""
        window = self.before.window
        number = queue.astype(np.int64) - window.first_queue
        inside = (number >= 0) & (number < window.queues)
        column = np.full(len(queue), -1, dtype=np.int64)
        column[inside] = self._columns[number[inside]]
        return self.gossip.nodes["node"].searchsorted(node), column, column >= 0

    def has(self, node: npt.NDArray[np.uint32], queue: U64) -> Mask:
        """Return a mask of pairs whose body is in the node's pool."""
        row, column, listed = self._positions(node, queue)
        listed[listed] = self.gossip.pool[row[listed], column[listed]]
        return listed

    def expects(self, node: npt.NDArray[np.uint32], queue: U64) -> Mask:
        """Return a mask of pairs whose queue the node expects."""
        row, column, listed = self._positions(node, queue)
        listed[listed] = self.gossip.expects(row[listed], column[listed])
        return listed

    def is_connected(self, node: npt.NDArray[np.uint32], peer: npt.NDArray[np.uint32]) -> Mask:
        """Return a mask of connected pairs."""
        return np.asarray(self.gossip.peer_rows(Frame({"node": node, "peer": peer}, len(node))) >= 0)

    def best_block(self, node: npt.NDArray[np.uint32]) -> U64:
        """Return the number of each node's best relay block, or 0 without one."""
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
        out: Output of the gossip step.
        mail: Mail that arrived.
        said: Outgoing mail of gossip; its bodies are offered instead of sent.

    Returns:
        The outgoing mail with trades, the tables of trades, and rows of log tables.
    """
    world, (tenders, payments) = now.world, mail.trades
    trades = Trades(*(now.before.rows[item.name] for item in fields(Trades)))
    arrived_tickets = payments.filter(payments["kind"] == state.TICKET)
    verdicts, tickets = _judge_tickets(now, trades, arrived_tickets)
    good = verdicts == TicketVerdict.OK
    offered = said.bodies.filter(~world.mute[said.bodies["source"].astype(np.int64)])
    deliveries = payments.filter(payments["kind"] == state.DELIVERY)
    inputs = TradeInputs(
        tenders=_received_ends(tenders).with_columns(kind=tenders["kind"], queue=tenders["queue"]),
        deliveries=_received_ends(deliveries).with_columns(
            queue=deliveries["queue"], serial=deliveries["serial"], commitment=deliveries["word"]
        ),
        judged=_body_verdicts(out, mail),
        tickets=_received_ends(arrived_tickets).with_columns(serial=arrived_tickets["serial"]).filter(good),
        offered=Frame(
            {"node": offered["source"], "peer": offered["destination"], "queue": offered["queue"]}, len(offered)
        ),
    )
    trades, outcome = trade(trades, inputs, now, now.time, world.options.tickets)
    paying = outcome.promises.filter(world.behaviour[outcome.promises["node"].astype(np.int64)] != WITHHOLD)
    sent_tenders = _sent_ends(outcome.tenders).with_columns(
        kind=outcome.tenders["kind"], queue=outcome.tenders["queue"]
    )
    sent_payments = concat([_build_deliveries(now, outcome.deliveries), _signed(now, paying)])
    root = now.world.relay.queue_root[outcome.deliveries["queue"].astype(np.int64)] - now.before.window.first_root
    hops = now.hops[now.nodes.searchsorted(outcome.deliveries["node"]), root]
    bodies = body_rows(outcome.deliveries["node"], outcome.deliveries["peer"], outcome.deliveries["queue"], 0, hops)
    wins = np.zeros(len(arrived_tickets), dtype=bool)
    wins[good] = tickets.wins(_secrets(now, arrived_tickets))[good] if len(arrived_tickets) else False
    rows = arrived_tickets.filter(wins)
    root = world.relay.queue_root[rows["queue"].astype(np.int64)].astype(np.uint32)
    columns = {"chain": rows["destination"], "peer": rows["source"], "root": root}
    columns |= {"serial": rows["serial"], "block": rows["block"], "nonce": rows["word"]}
    claims = Frame(columns, len(rows)).select(state.CLAIMS.names)
    purses = _update_purses(now, sent_tenders, sent_payments, arrived_tickets, good, wins)
    sending = OutgoingMail(said.packets, bodies, said.sketches, (sent_tenders, sent_payments))
    tables = {name: getattr(trades, name) for name in state.TRADED}
    return sending, {**tables, "purses": purses}, {"claims": claims} if len(claims) else {}


def trade_bytes(rows: Frame) -> U64:
    """Return the size in bytes of each offer, request, delivery (without its body) or ticket."""
    if "serial" not in rows:
        return np.full(len(rows), OFFER_BYTES, dtype=np.uint64)
    return np.where(rows["kind"] == state.TICKET, PROMISE_BYTES, DELIVERY_BYTES).astype(np.uint64)


# ---- arrivals


def _received_ends(rows: Frame) -> Frame:
    return Frame({"node": rows["destination"], "peer": rows["source"]}, len(rows))


def _body_verdicts(out: StepOutput, mail: ArrivedMail) -> Frame:
    """Return the arrived bodies with their verdict; a full pool's rejection counts as good."""
    verdicts = out.verdicts.filter(out.verdicts["kind"] == QUEUE)
    columns = {"node": verdicts["node"], "peer": verdicts["peer"], "queue": mail.bodies["queue"][verdicts["row"]]}
    good = np.isin(verdicts["code"], (PeerVerdict.OK, PeerVerdict.PoolFull))
    return Frame({**columns, "good": good}, len(verdicts))


def _secrets(now: Trading, tickets: Frame) -> Digests:
    """Derive the payees' secrets for arrived tickets."""
    payee, payer = tickets["destination"].astype(np.int64), tickets["source"].astype(np.int64)
    return derive_secrets(now.world.secret_keys[payee], now.world.public_keys[payer], tickets["serial"])


def _roots(world: SimulationWorld, queue: U64) -> Digests:
    """Return the roots of queues' bodies."""
    found: Digests = world.relay.roots[world.relay.queue_root[queue.astype(np.int64)]]
    return found


def _tickets(
    world: SimulationWorld, payer: Rows, payee: Rows, queue: U64, commitment: Digests, nonce: Digests, **numbers: U64
) -> Tickets:
    """Build tickets as columns from values that both payer and payee have."""
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


def _judge_tickets(now: Trading, trades: Trades, rows: Frame) -> tuple[npt.NDArray[np.int64], Tickets]:
    """Validate arrived tickets as their payees.

    Root and commitment come from the payee's own delivery.

    Returns:
        The verdicts and the tickets.
    """
    world, options = now.world, now.world.options.tickets
    payee, payer = rows["destination"].astype(np.int64), rows["source"].astype(np.int64)
    due = find_due(trades, _received_ends(rows).with_columns(serial=rows["serial"]))
    queue = np.append(trades.due["queue"], np.uint64(0))[due]
    commitment = commit(_secrets(now, rows))
    tickets = _tickets(world, payer, payee, queue, commitment, rows["word"], serial=rows["serial"], block=rows["block"])
    verdicts = np.full(len(rows), TicketVerdict.OK, dtype=np.int64)
    checked = np.flatnonzero((due >= 0) & _is_checked(world, payer, payee, rows["serial"]))
    payloads = tickets.payloads()
    for row in checked.tolist():
        key = PublicKey(world.public_keys[payer[row]].tobytes())
        if not key.accepts(rows["signature"][row].tobytes(), payloads[row].tobytes()):
            verdicts[row] = TicketVerdict.BadSignature
    best, slack = now.best_block(rows["destination"]).astype(np.int64), options.slack
    age = best - rows["block"].astype(np.int64)
    verdicts[age > slack] = TicketVerdict.Expired
    verdicts[age < -slack] = TicketVerdict.FromTheFuture
    verdicts[due < 0] = TicketVerdict.UnknownDelivery
    return verdicts, tickets


def _is_checked(world: SimulationWorld, payer: Rows, payee: Rows, serial: U64) -> Mask:
    """Return a mask of tickets that are signed and checked in the simulation."""
    share = world.options.tickets.checked
    if share >= 1:
        return np.ones(len(payer), dtype=bool)
    return np.asarray(uniforms(world.seed, SimulationDraw.TICKET, payer, payee, serial) < share)


# ---- output


def _sent_ends(rows: Frame) -> Frame:
    return Frame({"source": rows["node"], "destination": rows["peer"]}, len(rows))


def _build_deliveries(now: Trading, rows: Frame) -> Frame:
    """Build deliveries with the commitments of their payees."""
    payee, payer = rows["node"].astype(np.int64), rows["peer"].astype(np.int64)
    secrets = derive_secrets(now.world.secret_keys[payee], now.world.public_keys[payer], rows["serial"])
    return (
        _sent_ends(rows)
        .with_columns(
            kind=np.full(len(rows), state.DELIVERY),
            queue=rows["queue"],
            serial=rows["serial"],
            block=np.zeros(len(rows), dtype=np.uint64),
            word=commit(secrets),
            signature=np.zeros((len(rows), 64), dtype=np.uint8),
        )
        .select(_SAID["payments"])
    )


def _signed(now: Trading, rows: Frame) -> Frame:
    """Build tickets, signed if a payee checks them."""
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
        signed = world.signing_keys[payer[row]].sign(payloads[row].tobytes())
        signature[row] = np.frombuffer(signed, dtype=np.uint8)
    return (
        _sent_ends(rows)
        .with_columns(
            kind=np.full(len(rows), state.TICKET),
            queue=rows["queue"],
            serial=rows["serial"],
            block=block,
            word=nonce,
            signature=signature,
        )
        .select(_SAID["payments"])
    )


def _update_purses(now: Trading, tenders: Frame, payments: Frame, tickets: Frame, good: Mask, wins: Mask) -> Frame:
    """Update the trading counters of the nodes."""
    before, count = now.before.rows["purses"], len(now.nodes)

    def count_by_node(nodes: npt.NDArray[np.uint32], weights: U64 | None = None) -> U64:
        rows = now.nodes.searchsorted(nodes)
        return np.bincount(rows, weights=weights, minlength=count).astype(np.uint64)

    checked = _is_checked(
        now.world, tickets["source"].astype(np.int64), tickets["destination"].astype(np.int64), tickets["serial"]
    )
    new = {
        "offers": count_by_node(tenders["source"][tenders["kind"] == OFFER]),
        "requests": count_by_node(tenders["source"][tenders["kind"] == REQUEST]),
        "deliveries": count_by_node(payments["source"][payments["kind"] == state.DELIVERY]),
        "tickets": count_by_node(payments["source"][payments["kind"] == state.TICKET]),
        "refused": count_by_node(tickets["destination"][~good]),
        "checked": count_by_node(tickets["destination"][checked]),
        "won": count_by_node(tickets["destination"][wins]),
        "bytes": sum(count_by_node(rows["source"], trade_bytes(rows)) for rows in (tenders, payments)),
    }
    return Frame({"node": now.nodes, **{name: before[name] + new[name] for name in state.PURSE_COUNTERS}}, count)
