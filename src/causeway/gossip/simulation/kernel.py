"""Kernel of gossiping nodes: one slice of time of any set of nodes as a pure function.

A slice consists of arrived mail, churn, new leaves, one ``gossip.step``, and outgoing mail. Nodes
that break the rules (``world.behaviour``) run the same step but alter its output.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import Rows, group_rows

from causeway.config.faults import Faults
from causeway.config.topology import Topology
from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import encode_keys, expand_ranges, lookup_rows
from causeway.gossip.listings import Mask
from causeway.gossip.peers import disconnect
from causeway.gossip.simulation.mail import (
    ArrivedMail,
    OutgoingMail,
    answer_requests,
    answers_input,
    collect_outgoing,
    fallback_bodies_requested,
    junk_queues,
    post_mail,
    queues_input,
    receive_mail,
    sketches_input,
    subscriptions_input,
)
from causeway.gossip.simulation.options import SimulationOptions
from causeway.gossip.simulation.state import (
    CLOSED,
    COUNTERS,
    DECLARED,
    LOGS,
    MALFORMED,
    OUTBOUND,
    PURSE_COUNTERS,
    REPLY,
    REQUEST,
    SALT_BYTES,
    SKETCH,
    SUBSCRIBED,
    LiveWindow,
    State,
    heads_hashes,
    in_flight_tables,
    state_tables,
    unpack_state,
)
from causeway.gossip.simulation.trading import Trading, empty_purses, trade_bodies, trade_bytes
from causeway.gossip.simulation.world import LIE, NO_PARA, SPAM, FixedInputs, SimulationWorld
from causeway.gossip.state import GossipState, OwnTopics, start_nodes
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import ANSWER, QUEUE, StepOutput
from causeway.protocols.contract import (
    HEADERS_SCHEMA,
    RANGES_SCHEMA,
    Chains,
    Inputs,
    Plan,
    Reads,
    RoundResult,
    StateTable,
    Tick,
    View,
)
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.digests import section_digests
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.random_numbers import SimulationDraw, words
from causeway.protocols.shared.state_tables import Hosting, StaticHosting

ITSELF = 2**32 - 1
"""Peer number for a body of the node's own queue."""

_AT = {name: row for row, name in enumerate(COUNTERS)}


@dataclass(frozen=True)
class TimeSlice:
    """Nodes, in ascending order, at a tick."""

    world: SimulationWorld
    nodes: npt.NDArray[np.uint32]
    tick: int

    @cached_property
    def time(self) -> int:
        """Time in ms."""
        return self.tick * self.world.options.slice

    @cached_property
    def before(self) -> int:
        """Time of the previous slice in ms."""
        return self.time - self.world.options.slice

    @cached_property
    def there(self) -> Mask:
        """Mask of the nodes that are present."""
        return self.world.there(self.nodes.astype(np.int64), self.time)

    @cached_property
    def left(self) -> Mask:
        """Mask of the nodes that left since the previous slice."""
        return np.asarray(~self.there & self.world.there(self.nodes.astype(np.int64), self.before))

    @cached_property
    def new(self) -> Mask:
        """Mask of the nodes that joined since the previous slice."""
        return np.asarray(self.there & ~self.world.there(self.nodes.astype(np.int64), self.before))


def run_slice(now: TimeSlice, state: State, under_way: Mapping[str, Frame]) -> tuple[State, dict[str, Frame]]:
    """Run a slice.

    Args:
        now: The nodes and the tick.
        state: State before the slice.
        under_way: Rows in flight to the nodes, by table.

    Returns:
        The state after the slice and the rows of log tables by name.
    """
    world, options = now.world, now.world.gossip
    mail = receive_mail(under_way, now.time, now.nodes[now.there], world)
    state = _shift_window(_clear_absent(state, now.left), LiveWindow.at(world, now.time))
    closed, subscribed = mail.packets["kind"] == CLOSED, mail.packets["kind"] == SUBSCRIBED
    ended = _add_ended(state.rows["ended"], mail.packets.filter(closed), "destination", "source")
    leaves, blocks = _new_leaves(now)
    came, answered = queues_input(world, mail.bodies), answers_input(world, mail.sketches)
    # Neighbour packets as `step` takes them.
    packets = mail.packets.filter(~closed & ~subscribed)
    packet_columns = {"node": packets["destination"], "peer": packets["source"], "count": packets["count"]}
    heads = heads_hashes(world.relay, packets["heads"])
    # Queues of new leaves that collators keep.
    para = world.keeps[leaves["node"].astype(np.int64)]
    mine = para != NO_PARA
    inputs = StepInputs(
        disconnect=_disconnections(now, state.gossip, ended),
        connect=_new_connections(now, ended),
        leaves=None if len(leaves) == 0 else (leaves, *world.relay.context(np.unique(blocks))),
        kept=world.relay.collator_queues(leaves["node"][mine], para[mine], blocks[mine]) if mine.any() else None,
        heads=Frame({**packet_columns, "heads": heads, "malformed": packets["kind"] == MALFORMED}, len(packets)),
        subscriptions=subscriptions_input(world, mail.packets.filter(subscribed)) if subscribed.any() else None,
        queues=came,
        answers=answered,
        **(sketches_input(mail.sketches) if len(mail.sketches) else {}),
    )
    before = state.gossip
    gossip, out = step(before, inputs, now.time, options)
    hops, logs = _update_hops(now, state, out, mail)
    ended = _add_ended(ended, out.disconnected, "node", "peer")
    # The number of links passed by each outgoing body.
    root = now.world.relay.root_numbers(out.queues["root"]) - state.window.first_root
    outgoing = collect_outgoing(world, out, np.asarray(hops[now.nodes.searchsorted(out.queues["node"]), root]))
    traded: Mapping[str, Frame] = {}
    if world.options.tickets.mode == "on":
        outgoing, traded, trade_logs = trade_bodies(
            Trading(world, now.nodes, now.time, state, gossip, hops), out, mail, outgoing
        )
        logs |= trade_logs
    sent = _apply_misbehaviour(now, gossip, outgoing, leaves, blocks)
    requests = [
        answer_requests(world, mail.sketches, now.time),
        fallback_bodies_requested(world, gossip, now.nodes[now.there], now.time),
    ]
    sent = replace(sent, sketches=concat([sent.sketches, *requests]))
    counters = _update_counters(now, state, gossip, out, sent, came, logs)
    rows = {"ended": ended, **traded, **post_mail(world, sent, now.time, now.tick), **mail.waiting}
    state = replace(state, gossip=gossip, hops=hops, counters=counters, rows=rows)
    logs["disconnected"] = _log_rows(out.disconnected, ("peer", "code"))
    if now.time % world.options.sample == 0:
        gossip = state.gossip
        columns = {
            "chain": gossip.nodes["node"],
            "pool_bytes": gossip.nodes["bytes"],
            "pool_queues": gossip.pool.sum(axis=1).astype(np.uint64),
            **{name: state.counters[row] for name, row in _AT.items()},
        }
        logs["samples"] = Frame(columns, len(gossip.nodes))
        if "purses" in traded:
            purses = traded["purses"]
            logs["purse_samples"] = _log_rows(purses, PURSE_COUNTERS)
    if world.options.events == "all":
        logs |= _event_logs(world, out, sent, came, mail.bodies, leaves, blocks)
    return state, logs


# ---- churn


def _clear_absent(state: State, away: Mask) -> State:
    """Clear the state of absent nodes."""
    gossip = state.gossip
    if not away.any():
        return state
    own, leaf, pool = gossip.own.blocks.copy(), gossip.leaf.copy(), gossip.pool.copy()
    own[away], leaf[away], pool[away] = False, gossip.listed.nothing, False
    bytes_, hops = gossip.nodes["bytes"].copy(), state.hops.copy()
    bytes_[away], hops[away] = 0, 0
    peers = gossip.peers.select(("node", "peer")).filter(away[gossip.node_of])
    gossip = disconnect(gossip, peers)
    nodes = gossip.nodes.with_columns(bytes=bytes_)
    gossip = replace(gossip, own=OwnTopics(own, gossip.listed), leaf=leaf, pool=pool, nodes=nodes)
    return replace(state, gossip=gossip, hops=hops)


def _shift_window(state: State, window: LiveWindow) -> State:
    """Shift the state to another window."""
    if window == state.window:
        return state
    hops = np.zeros((len(state.hops), window.roots), dtype=np.uint8)
    first, end = max(window.first_root, state.window.first_root), min(window.end_root, state.window.end_root)
    if first < end:
        old = state.hops[:, first - state.window.first_root : end - state.window.first_root]
        hops[:, first - window.first_root : end - window.first_root] = old
    return replace(state, window=window, hops=hops)


def _add_ended(ended: Frame, rows: Frame, node: str, peer: str) -> Frame:
    """Add pairs to the ended connections."""
    if len(rows) == 0:
        return ended
    pairs = [np.concatenate([ended["chain"], rows[node]]), np.concatenate([ended["peer"], rows[peer]])]
    known = np.unique(np.stack(pairs, axis=1).astype(np.uint32), axis=0)
    return Frame({"chain": known[:, 0].copy(), "peer": known[:, 1].copy()}, len(known))


def _disconnections(now: TimeSlice, gossip: GossipState, ended: Frame) -> Frame | None:
    """Return the peers that are absent or ended the connection."""
    peers = gossip.peers
    if len(peers) == 0:
        return None
    mask = (
        lookup_rows(ended, Frame({"chain": peers["node"], "peer": peers["peer"]}, len(peers)), ("chain", "peer")) >= 0
    )
    if now.world.options.churn.share:
        mask |= ~now.world.there(peers["peer"].astype(np.int64), now.time)
    return peers.select(("node", "peer")).filter(mask) if mask.any() else None


def _new_connections(now: TimeSlice, ended: Frame) -> Frame | None:
    """Return the links that become active: both ends are present, neither ended it before."""
    churn = now.world.options.churn.share > 0
    if now.tick and not churn:
        return None
    world, graph, nodes = now.world, now.world.graph, now.nodes.astype(np.int64)
    row, link = expand_ranges(graph.begins[nodes], graph.begins[nodes + 1])
    peer = graph.peer[link]
    both = now.there[row] & world.there(peer, now.time)
    earlier = world.there(nodes, now.before)[row] & world.there(peer, now.before)
    rows = np.flatnonzero(both & ~earlier)
    pairs = Frame({"node": now.nodes[row[rows]], "peer": peer[rows].astype(np.uint32)}, len(rows))
    if world.options.gossip.reconciliation != "off":
        # The salt of a connection is the same at both ends.
        node = nodes[row[rows]]
        low, high = np.minimum(node, peer[rows])[:, None], np.maximum(node, peer[rows])[:, None]
        salts = words(now.world.seed, SimulationDraw.SALT, low, high, now.tick, np.arange(SALT_BYTES // 8)[None, :])
        pairs = pairs.with_columns(salt=np.ascontiguousarray(salts).astype("<u8").view(np.uint8))
    ended_row = lookup_rows(
        ended, Frame({"chain": pairs["node"], "peer": pairs["peer"]}, len(pairs)), ("chain", "peer")
    )
    return pairs.filter(ended_row < 0)


# ---- leaves


def _new_leaves(now: TimeSlice) -> tuple[Frame, Rows]:
    """Return the leaves of nodes with new leaves (``node``, ``hash``) and their block numbers."""
    world, nodes = now.world, now.nodes.astype(np.int64)
    changed = now.there & (world.nodes_with_new_block(nodes, now.before, now.time) | now.new)
    some = np.flatnonzero(changed)
    if len(some) == 0:
        return Frame({"node": np.empty(0, dtype=np.uint32), "hash": np.empty((0, 32), dtype=np.uint8)}, 0), some
    row, block = world.leaves(nodes[some], now.time)
    return Frame({"node": now.nodes[some[row]], "hash": world.relay.hashes[block]}, len(row)), block


# ---- outgoing mail


def _apply_misbehaviour(
    now: TimeSlice, gossip: GossipState, sent: OutgoingMail, leaves: Frame, blocks: Rows
) -> OutgoingMail:
    """Replace the output of nodes that break the rules."""
    behaviour = now.world.behaviour
    if not behaviour[now.nodes.astype(np.int64)].any():
        return sent
    sender, mute = sent.bodies["source"].astype(np.int64), now.world.mute
    altered = np.where(behaviour[sender] == LIE, np.uint8(1), sent.bodies["altered"])
    bodies = sent.bodies.with_columns(altered=altered).filter(~mute[sender])
    sketches = sent.sketches.filter(~mute[sent.sketches["source"].astype(np.int64)])
    sent = replace(sent, bodies=bodies, sketches=sketches)
    begin = gossip.peer_begins
    liars = behaviour[leaves["node"].astype(np.int64)] == LIE
    for node, block in zip(leaves["node"][liars].tolist(), blocks[liars].tolist(), strict=True):
        row = int(gossip.nodes["node"].searchsorted(node))
        peers = gossip.peers["peer"][begin[row] : begin[row + 1]].astype(np.int64)
        queue = now.world.relay.queues_of(now.world.relay.unrouted[block]).astype(np.uint64)
        sent = sent.with_bodies(
            np.full(len(peers) * len(queue), node), peers.repeat(len(queue)), np.tile(queue, len(peers))
        )
    for node in now.nodes[behaviour[now.nodes.astype(np.int64)] == SPAM].tolist():
        row = int(gossip.nodes["node"].searchsorted(node))
        peers = gossip.peers["peer"][begin[row] : begin[row + 1]].astype(np.int64).repeat(now.world.rate[node])
        source = np.full(len(peers), node)
        sent = sent.with_bodies(source, peers, junk_queues(now.tick, source, np.arange(len(peers))))
    return sent


# ---- logs and counters


def _valid_bodies(world: SimulationWorld, out: StepOutput, mail: ArrivedMail) -> Frame:
    """Return the valid gossiped and answered bodies (``node``, ``root``, ``peer``, ``hops``)."""
    relay, right = world.relay, out.verdicts["code"] == PeerVerdict.OK
    rows = out.verdicts["row"]
    gossiped = mail.bodies.take(rows[right & (out.verdicts["kind"] == QUEUE)])
    answered = mail.sketches.filter(mail.sketches["kind"] == REPLY)
    answered = answered.take(rows[right & (out.verdicts["kind"] == ANSWER)])
    root = [
        relay.queue_root[gossiped["queue"].astype(np.int64)],
        relay.root[answered["value"].astype(np.int64)],
    ]
    parts = ("node", "destination"), ("peer", "source")
    columns = {name: np.concatenate([gossiped[column], answered[column]]) for name, column in parts}
    hops = np.concatenate([gossiped["hops"], np.ones(len(answered), dtype=np.uint8)])
    return Frame({**columns, "root": np.concatenate(root).astype(np.uint64), "hops": hops}, len(hops))


def _update_hops(
    now: TimeSlice, state: State, out: StepOutput, mail: ArrivedMail
) -> tuple[npt.NDArray[np.uint8], dict[str, Frame]]:
    """Update the hop counts (plus one) of pooled bodies.

    Returns:
        The hop counts, shape (nodes, roots of the window), and the new bodies as rows of ``got``.
    """
    relay = now.world.relay
    got = out.got.select(("node", "root"))
    if len(got) == 0:
        return state.hops, {}
    root = relay.root_numbers(got["root"])
    # A body is counted once, under any number of topics.
    _, first_topic = np.unique(got["node"].astype(np.int64) * len(relay.roots) + root, return_index=True)
    got, root = got.take(first_topic), root[first_topic]
    valid = _valid_bodies(now.world, out, mail)
    wanted_rows = Frame({"node": got["node"], "root": root.astype(np.uint64)}, len(got))
    own, wanted = encode_keys(("node", "root"), valid, wanted_rows)
    order = np.argsort(own, kind="stable")
    first = order[group_rows(own[order]).starts]
    at = lookup_rows(Frame({"code": own[first]}, len(first)), Frame({"code": wanted}, len(wanted)), ("code",))
    found = at >= 0
    from_peer = first[at[found]]
    links, peer = np.zeros(len(got), dtype=np.uint8), np.full(len(got), ITSELF, dtype=np.uint32)
    links[found], peer[found] = valid["hops"][from_peer], valid["peer"][from_peer]
    hops = state.hops.copy()
    hops[now.nodes.searchsorted(got["node"]), root - state.window.first_root] = np.minimum(links, 254) + 1
    columns = {"chain": got["node"], "root": root.astype(np.uint32), "peer": peer, "hops": links}
    return hops, {"got": Frame(columns, len(got))}


def _update_counters(
    now: TimeSlice,
    state: State,
    gossip: GossipState,
    out: StepOutput,
    sent: OutgoingMail,
    arrived: Frame,
    logs: dict[str, Frame],
) -> npt.NDArray[np.uint64]:
    """Update the cumulative counters of the nodes."""
    counters, world = state.counters.copy(), now.world

    def add(name: str, nodes: npt.NDArray[np.uint32], amounts: npt.NDArray[np.uint64] | None = None) -> None:
        count = len(now.nodes)
        rows = now.nodes.searchsorted(nodes)
        if amounts is None:
            counters[_AT[name]] += np.bincount(rows, minlength=count).astype(np.uint64)
        else:
            np.add.at(counters[_AT[name]], rows, amounts)

    bodies = sent.bodies
    number = bodies["queue"].astype(np.int64)
    relay = world.relay
    size = np.full(len(bodies), world.options.relay.bytes, dtype=np.uint64)
    size[number >= 0] = relay.sizes[relay.queue_root[number[number >= 0]]]
    add("sent_queues", bodies["source"])
    add("sent_bytes", bodies["source"], size)
    add("sent_heads", sent.packets["source"][sent.packets["kind"] == DECLARED])
    if len(sent.sketches):
        kind = sent.sketches["kind"]
        add("sent_sketches", sent.sketches["source"][kind < REQUEST])
        add("requests", sent.sketches["source"][kind == REQUEST])
        # Sizes in bytes of sketches, requests for larger ones, short ids, requests and answers.
        kind, relay = sent.sketches["kind"], world.relay
        sketch_bytes = np.full(len(kind), 4, dtype=np.uint64)
        sketch_bytes[kind == SKETCH] = np.asarray(pc.binary_length(sent.sketches["data"]), dtype=np.uint64)[
            kind == SKETCH
        ]
        sketch_bytes[kind == REQUEST] = 32
        sketch_bytes[kind == REPLY] = relay.sizes[relay.root[sent.sketches["value"][kind == REPLY].astype(np.int64)]]
        add("sent_bytes", sent.sketches["source"], sketch_bytes)
    if sent.trades is not None:
        for rows in sent.trades:
            add("sent_bytes", rows["source"], trade_bytes(rows))
    add("answered", out.verdicts["node"][(out.verdicts["kind"] == ANSWER) & (out.verdicts["code"] == PeerVerdict.OK)])
    verdicts = out.verdicts.filter(out.verdicts["kind"] == QUEUE)
    verdicts = verdicts.filter(verdicts["code"] != PeerVerdict.NotConnected)
    size, code = arrived["size"][verdicts["row"]], verdicts["code"]
    add("got_queues", verdicts["node"])
    add("got_bytes", verdicts["node"], size)
    accepted = (code == PeerVerdict.OK) | (code == PeerVerdict.Duplicate)
    add("wasted", verdicts["node"][~accepted])
    add("wasted_bytes", verdicts["node"][~accepted], size[~accepted])
    add("repeated", verdicts["node"][accepted])
    if "got" in logs:
        add("new", logs["got"]["chain"][logs["got"]["peer"] != ITSELF])
    most = _AT["most_pool_bytes"]
    counters[most] = np.maximum(counters[most], gossip.nodes["bytes"])
    return counters


def _log_rows(rows: Frame, names: tuple[str, ...]) -> Frame:
    return Frame({"chain": rows["node"], **{name: rows[name] for name in names}}, len(rows))


def _event_logs(
    world: SimulationWorld, out: StepOutput, sent: OutgoingMail, came: Frame, bodies: Frame, leaves: Frame, blocks: Rows
) -> dict[str, Frame]:
    """Build the full event log: sent and verified queues, new leaves, changes of pools."""
    relay, sends = world.relay, sent.bodies
    verdicts = out.verdicts.filter(out.verdicts["kind"] == QUEUE)
    received = {"chain": verdicts["node"], "peer": verdicts["peer"], "queue": bodies["queue"][verdicts["row"]]}
    sent_columns = {
        "chain": sends["source"],
        "peer": sends["destination"],
        "queue": sends["queue"],
        "altered": sends["altered"],
    }
    added, removed = (
        relay.queue_numbers(some["root"], some["topic"]).astype(np.uint32) for some in (out.got, out.purged)
    )
    return {
        "trace_sent": Frame(sent_columns, len(sends)),
        "trace_got": Frame({**received, "code": verdicts["code"], "change": verdicts["change"]}, len(verdicts)),
        "trace_leaves": Frame({"chain": leaves["node"], "block": blocks.astype(np.uint32)}, len(leaves)),
        "trace_put": Frame({"chain": out.got["node"], "queue": added}, len(added)),
        "trace_purged": Frame({"chain": out.purged["node"], "queue": removed}, len(removed)),
    }


class Nodes(Hosting):
    """Hosting of the nodes, by number; there are no programs."""

    def _rank(self, name: str, number: int) -> int:
        return number


@dataclass(frozen=True)
class GossipKernel(StaticHosting):
    """Kernel of gossiping nodes.

    Attributes:
        topology: The nodes.
        programs: Unused; part of the kernel contract.
        options: Options of the simulation.
        seed: Seed of all random inputs.
        tick_ns: Length of a tick in ns.
        faults: Injected faults.
        given: Fixed inputs that replace random ones, for tests.
    """

    topology: Topology
    programs: ProgramRunner
    options: SimulationOptions = field(default_factory=lambda: SimulationOptions.model_validate({}))
    seed: int = 0
    tick_ns: int = 100_000_000
    faults: Faults = field(default_factory=Faults)
    given: FixedInputs = field(default_factory=FixedInputs)

    name: ClassVar[str] = "gossip"
    outbound: ClassVar[pa.Schema] = OUTBOUND
    logs: ClassVar[Mapping[str, pa.Schema]] = LOGS
    header_heights: ClassVar[int] = 1
    past_heights: ClassVar[int] = 0
    retained_heights: ClassVar[int] = 0
    last_tick: ClassVar[int] = 2**24 - 1

    @cached_property
    def world(self) -> SimulationWorld:
        """Fixed parts of the simulation."""
        return SimulationWorld(self.options, self.seed, self.given)

    def __getstate__(self) -> dict[str, object]:
        # Derived values are recomputed after unpickling.
        return {name: value for name, value in self.__dict__.items() if name not in ("world", "hosting")}

    @cached_property
    def hosting(self) -> Nodes:
        """Hosting of the nodes."""
        return Nodes(self.topology)

    def tables(self) -> Mapping[str, StateTable]:
        """Return the state tables by name."""
        return state_tables(self.options.tickets)

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Build the state from its tables; missing tables are empty."""
        return unpack_state(self.world, frames)

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Create nodes without leaves and peers; the first tick connects them."""
        window = LiveWindow.at(self.world, 0)
        counters = np.zeros((len(COUNTERS), len(chains)), dtype=np.uint64)
        rows = {name: empty_frame(table.schema) for name, table in self.tables().items()}
        rows = {name: frame for name, frame in rows.items() if name not in ("nodes", "own", "links")}
        if "purses" in rows:
            rows["purses"] = empty_purses(chains)
        hops = np.zeros((len(chains), window.roots), dtype=np.uint8)
        gossip = start_nodes(chains, self.options.gossip)
        if self.options.gossip.topology == "from_to":
            own = self.world.interests[chains.astype(np.int64)]
            gossip = replace(gossip, nodes=gossip.nodes.with_columns(interests=own))
        state = State(self.world, window, gossip, hops, counters, rows)
        headers = self._headers(state, chains, 0)
        return RoundResult(state, empty_frame(OUTBOUND), {}, headers, 0)

    def committed(self, state: State) -> Frame:
        """Return no entries: the state holds the whole content of its root."""
        return empty_frame(RANGES_SCHEMA)

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Compute a digest of each node's rows of all tables (``chain``, ``root``)."""
        frames = state.frames()
        sections = [
            section_digests(frames[name], frames[name][table.owner], chains) for name, table in self.tables().items()
        ]
        roots = [hashlib.sha256(b"".join(parts)).digest() for parts in zip(*sections, strict=True)]
        found = np.frombuffer(b"".join(roots), dtype=np.uint8).reshape(len(chains), 32)
        return Frame({"chain": chains, "root": found}, len(chains))

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[View]:
        """Plan no reads: all input is in flight to the nodes."""
        return Plan(Reads(), view, EventLog().logs()["events"])

    def round(
        self, state: State, chains: Chains, plan: Plan[View], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run a slice of ``chains``."""
        tables = plan.content.tables
        in_flight = {
            name: concat([state.rows["waiting_" + name], tables[name]])
            for name in in_flight_tables(self.options.tickets)
        }
        state, logs = run_slice(TimeSlice(self.world, chains, tick.tick), state, in_flight)
        last = tick.tick >= self.options.end
        headers = empty_frame(HEADERS_SCHEMA)
        if last or tick.tick * self.options.slice % self.options.relay.interval == 0:
            headers = self._headers(state, chains, tick.height)
        return RoundResult(state, empty_frame(OUTBOUND), logs, headers, None if last else tick.tick + 1)

    def _headers(self, state: State, chains: Chains, height: int) -> Frame:
        """Build a header of each node, with every relay block and at the end."""
        roots = self.roots(state, chains, Tick(height, 0), empty_frame(RANGES_SCHEMA))
        empty = pa.array([b""] * len(chains), pa.binary())
        number = np.full(len(chains), height, dtype=np.uint64)
        columns = {"chain": chains, "number": number, "hash": empty, "parent": empty, "root": roots["root"]}
        return Frame({**columns, "certification": empty}, len(chains))
