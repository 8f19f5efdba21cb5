"""Fixed parts of a simulation: behaviour, presence, links, latencies, block arrivals.

All of it is a function of the scenario and its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows, find_positions
from causeway_proofs.tendermint.validators import SigningKey

from causeway.gossip.listings import TO, Mask
from causeway.gossip.options import GossipOptions
from causeway.gossip.simulation.options import LinksSection, SimulationOptions
from causeway.gossip.simulation.relay_chain import SimulatedRelayChain, create_relay_chain
from causeway.gossip.simulation.relay_table import NO_BLOCK
from causeway.gossip.state import NO_INTEREST
from causeway.protocols.shared.digests import digests
from causeway.protocols.shared.random_numbers import SimulationDraw, uniforms, words


@dataclass(frozen=True)
class Graph:
    """Links in both directions, ascending by ``node`` and ``peer``; ``latency`` in ms."""

    node: Rows
    peer: Rows
    latency: Rows
    count: int

    @cached_property
    def begins(self) -> Rows:
        """Offsets of each node's links, with the total at the end."""
        return self.node.searchsorted(np.arange(self.count + 1))

    @cached_property
    def _codes(self) -> U64:
        return (self.node * self.count + self.peer).astype(np.uint64)

    def links_of(self, node: Rows, peer: Rows) -> Rows:
        """Return the row of each link, or -1 if there is none."""
        return find_positions(self._codes, (node * self.count + peer).astype(np.uint64))


def build_graph(options: SimulationOptions, seed: int, subscribers: Sequence[Rows] | None, keeps: Rows) -> Graph:
    """Build the links of a scenario: its topology, modified by eclipse attackers.

    Args:
        options: Options of the simulation.
        seed: Seed of the generator.
        subscribers: Carriers of the queues to each parachain, with topics of senders and recipients. They
            are linked with each other, and keepers of queues with some of each.
        keeps: Parachain whose queues each node keeps.
    """
    count, degree = options.nodes.count, options.topology.degree
    if subscribers is not None:
        pairs = _topic_links(seed, subscribers, keeps, degree // 2, options.topology.entries)
    elif options.topology.kind == "regular":
        pairs = _random_cycles(seed, np.arange(count), degree // 2)
    else:
        pairs = _ring(seed, count, degree // 2, options.topology.rewired * (options.topology.kind == "small_world"))
    pairs = _distinct_pairs(pairs, count)
    first = count - sum(attackers.count for attackers in options.attackers)
    honest = first
    for row, attackers in enumerate(options.attackers):
        nodes = np.arange(first, first + attackers.count)
        first += attackers.count
        if attackers.kind == "eclipse":
            victim_words = words(seed, SimulationDraw.VICTIM, row, np.arange(honest))
            victims = np.argsort(victim_words, kind="stable")[: attackers.victims]
            # Victims keep few honest peers and are linked to all attackers.
            for victim in victims.tolist():
                own = (pairs == victim).any(axis=1)
                peer = np.where(pairs[:, 0] == victim, pairs[:, 1], pairs[:, 0])
                honest_links = np.flatnonzero(own & (peer < honest))[: attackers.honest_links]
                own[honest_links] = False
                attacks = np.stack([np.full(len(nodes), victim), nodes], axis=1)
                pairs = np.concatenate([pairs[~own], attacks])
    # Both directions of each pair, with its latency.
    pairs = _distinct_pairs(pairs, count)
    latency = latencies(options.links, seed, pairs)
    node, peer = np.concatenate([pairs, pairs[:, ::-1]]).T
    order = np.lexsort((peer, node))
    return Graph(node[order], peer[order], np.concatenate([latency, latency])[order], count)


def _random_cycles(seed: int, nodes: Rows, cycles: int, stream: int = 0) -> Rows:
    """Draw links of random cycles through nodes; ``which`` selects the random stream."""
    found = []
    for cycle in range(cycles):
        order = nodes[np.argsort(words(seed, SimulationDraw.GRAPH, cycle, nodes, stream), kind="stable")]
        found.append(np.stack([order, np.roll(order, -1)], axis=1))
    return np.concatenate(found)


def _topic_links(seed: int, subscribers: Sequence[Rows], keeps: Rows, cycles: int, entries: int) -> Rows:
    """Draw cycles through the subscribers of each topic, and links from keepers to some."""
    found = []
    for para, nodes in enumerate(subscribers):
        found.append(_random_cycles(seed, nodes, cycles, 1 + para))
        keepers = np.flatnonzero((keeps >= 0) & (keeps != para))
        entry_words = words(seed, SimulationDraw.ENTRY, keepers[:, None], nodes[None, :], para)
        first = nodes[np.argsort(entry_words, axis=1, kind="stable")[:, :entries]]
        found.append(np.stack([np.repeat(keepers, first.shape[1]), first.reshape(-1)], axis=1))
    return np.concatenate(found)


def _ring(seed: int, count: int, reach: int, rewired: float) -> Rows:
    """Link each node to its successors on a ring; rewire a share of the links at random."""
    node = np.repeat(np.arange(count), reach)
    place = np.tile(np.arange(1, reach + 1), count)
    peer = (node + place) % count
    if rewired:
        rewire = uniforms(seed, SimulationDraw.REWIRED, node, place) < rewired
        to = (words(seed, SimulationDraw.REWIRED, node, place, 1) % np.uint64(count)).astype(np.int64)
        # The link to the direct successor stays, so the ring remains connected.
        peer = np.where(rewire & (place > 1) & (to != node), to, peer)
    return np.stack([node, peer], axis=1)


def _distinct_pairs(pairs: Rows, count: int) -> Rows:
    """Return distinct pairs, the lower node first, without loops."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    codes = np.unique((low * count + high)[low != high])
    return np.stack([codes // count, codes % count], axis=1)


def latencies(links: LinksSection, seed: int, pairs: Rows) -> Rows:
    """Draw the latency in ms of pairs, the lower node first."""
    if links.distribution == "constant":
        return np.full(len(pairs), links.most, dtype=np.int64)
    drawn = uniforms(seed, SimulationDraw.LATENCY, pairs[:, 0], pairs[:, 1])
    if links.distribution == "uniform":
        found = links.least + drawn * (links.most - links.least + 1)
    else:
        found = links.least - np.log(drawn) * max(links.mean - links.least, 1)
    return np.minimum(np.floor(found), links.most).astype(np.int64)


NO_PARA = -1

HONEST, SILENT, LIE, SPAM, SELFISH, WITHHOLD = range(6)
"""Behaviours of nodes; eclipse attackers lie."""

_BEHAVIOUR = {"silent": SILENT, "lie": LIE, "spam": SPAM, "eclipse": LIE, "selfish": SELFISH, "withhold": WITHHOLD}


@dataclass(frozen=True)
class SimulationWorld:
    """Fixed parts of a simulation.

    Attributes:
        options: Options of the simulation.
        seed: Seed of all random inputs.
        given: Fixed inputs that replace random ones.
    """

    options: SimulationOptions
    seed: int
    given: FixedInputs = field(default_factory=lambda: FixedInputs())

    @cached_property
    def relay(self) -> SimulatedRelayChain:
        """Relay chain."""
        table = self.options.relay.table
        if table is not None:
            blocks = table.hashes, table.heights, table.parents, table.times
            entries = table.issued, table.sources, table.destinations, table.root
            return SimulatedRelayChain(
                self.options.gossip, *blocks, *entries, table.roots, table.sizes, table.messages, table.unrouted
            )
        return self.given.relay or create_relay_chain(self.options, self.seed)

    @cached_property
    def gossip(self) -> GossipOptions:
        """Options of gossip without bans: a disconnected pair never reconnects."""
        return self.options.gossip.model_copy(update={"ban_time": 0})

    @cached_property
    def graph(self) -> Graph:
        """Links."""
        if self.given.graph is not None:
            return self.given.graph
        subscribers = None
        if self.options.gossip.topology == "from_to":
            subscribers = [
                np.flatnonzero((self.interests == np.uint64(para + TO)).any(axis=1))
                for para in range(self.options.nodes.parachains)
            ]
        return build_graph(self.options, self.seed, subscribers, self.keeps)

    @cached_property
    def behaviour(self) -> Rows:
        """Behaviour of each node."""
        found = np.full(self.options.nodes.count, HONEST, dtype=np.int64)
        first = len(found) - sum(attackers.count for attackers in self.options.attackers)
        for attackers in self.options.attackers:
            found[first : first + attackers.count] = _BEHAVIOUR[attackers.kind]
            first += attackers.count
        return found

    @cached_property
    def mute(self) -> Mask:
        """Mask of nodes that forward nothing; selfish ones forward only if it pays."""
        found = np.isin(self.behaviour, (SILENT, SPAM))
        return np.asarray(found | ((self.behaviour == SELFISH) & (not self.options.tickets.pays)))

    @cached_property
    def signing_keys(self) -> list[SigningKey]:
        """Signing key of each node, for tickets."""
        return [SigningKey.from_name(f"gossip node {self.seed} {node}") for node in range(self.options.nodes.count)]

    @cached_property
    def secret_keys(self) -> Digests:
        """Seeds of the keys, shape (nodes, 32); nonces and secrets derive from them."""
        return digests([key.seed for key in self.signing_keys])

    @cached_property
    def public_keys(self) -> Digests:
        """Public keys, shape (nodes, 32)."""
        return digests([key.public_key.data for key in self.signing_keys])

    @cached_property
    def rate(self) -> Rows:
        """Queues that each spammer sends to a peer in a slice."""
        found = np.zeros(self.options.nodes.count, dtype=np.int64)
        first = len(found) - sum(attackers.count for attackers in self.options.attackers)
        for attackers in self.options.attackers:
            found[first : first + attackers.count] = attackers.rate * (attackers.kind == "spam")
            first += attackers.count
        return found

    @cached_property
    def needs(self) -> Rows:
        """Parachain whose incoming queues each node needs, or ``NO_PARA``."""
        if self.given.paras is not None:
            return self.given.paras
        nodes = self.options.nodes
        found = np.full(nodes.count, NO_PARA, dtype=np.int64)
        placed = nodes.parachains * (nodes.collators + nodes.validators)
        found[:placed] = np.arange(placed) % nodes.parachains
        return found

    @cached_property
    def keeps(self) -> Rows:
        """Parachain whose outgoing queues each node keeps (collators), or ``NO_PARA``."""
        if self.given.paras is not None:
            return self.given.paras
        found = self.needs.copy()
        found[self.options.nodes.parachains * self.options.nodes.collators :] = NO_PARA
        return found

    @cached_property
    def keepers(self) -> tuple[Rows, Rows]:
        """Keepers of queues by parachain, and the offsets of each parachain's keepers."""
        order = np.argsort(self.keeps, kind="stable")
        order = order[self.keeps[order] != NO_PARA]
        return order, self.keeps[order].searchsorted(np.arange(self.options.nodes.parachains + 1))

    @cached_property
    def asks(self) -> Mask:
        """Mask of nodes that send fallback requests: validators, or collators if there are none."""
        needs = self.needs != NO_PARA
        return np.asarray(needs & (self.keeps == NO_PARA) if self.options.nodes.validators else needs)

    def latency(self, source: Rows, destination: Rows) -> Rows:
        """Return the latency in ms of pairs of nodes, linked or not."""
        link = self.graph.links_of(source, destination)
        found = np.append(self.graph.latency, 0)[link]
        unlinked = np.flatnonzero(link < 0)
        pairs = np.sort(np.stack([source[unlinked], destination[unlinked]], axis=1), axis=1)
        found[unlinked] = latencies(self.options.links, self.seed, pairs)
        return found

    @cached_property
    def interests(self) -> U64:
        """Subscriptions of each node with ``from_to``, shape (nodes, max_subscriptions).

        A node subscribes to the queues of its parachain. Nodes without one carry those of some parachains,
        in rotation.
        """
        nodes, most = self.options.nodes, self.options.gossip.max_subscriptions
        found = np.full((nodes.count, most), NO_INTEREST)
        some = np.flatnonzero(self.needs != NO_PARA)
        found[some, 0] = self.needs[some] + TO
        carriers = np.flatnonzero(self.needs == NO_PARA)
        carried = min(nodes.carried, nodes.parachains)
        parachains = np.arange(len(carriers) * carried).reshape(-1, carried) % nodes.parachains
        found[carriers, :carried] = np.sort(parachains, axis=1) + TO
        return found

    @cached_property
    def _phase(self) -> Rows:
        period = np.uint64(self.options.churn.period)
        return (words(self.seed, SimulationDraw.CHURN, np.arange(self.options.nodes.count), 0) % period).astype(
            np.int64
        )

    def there(self, nodes: Rows, time: int) -> Mask:
        """Return a mask of the nodes present at a time in ms.

        Attackers are always present, and every node is in its first period.
        """
        churn = self.options.churn
        if time < 0:
            return np.zeros(len(nodes), dtype=bool)
        if not churn.share:
            return np.ones(len(nodes), dtype=bool)
        period = (time + self._phase[nodes]) // churn.period
        away = uniforms(self.seed, SimulationDraw.CHURN, nodes, period + 1) < churn.share
        return np.asarray(~away | (period < 1) | (self.behaviour[nodes] != HONEST))

    @cached_property
    def arrivals(self) -> npt.NDArray[np.int64]:
        """Time in ms at which each node has each block in its leaves, shape (blocks, nodes)."""
        if self.given.imports is not None:
            return self.given.imports
        relay, blocks = self.options.relay, len(self.relay.hashes)
        nodes = np.arange(self.options.nodes.count)
        drawn = words(self.seed, SimulationDraw.PROPAGATION, nodes[None, :], np.arange(blocks)[:, None])
        later = (drawn % np.uint64(relay.propagation + 1)).astype(np.int64) + relay.update
        later[0] = 0
        return self.relay.times[:, None] + later

    @cached_property
    def latest(self) -> npt.NDArray[np.int64]:
        """Time in ms at which the last node has each block."""
        return np.asarray(self.arrivals.max(axis=1))

    def nodes_with_new_block(self, nodes: Rows, since: int, time: int) -> Mask:
        """Return a mask of the nodes that got a block after ``since`` up to ``time`` (ms)."""
        some = np.flatnonzero((self.relay.times <= time) & (self.latest > since))
        arrival_times = self.arrivals[some][:, nodes]
        return np.asarray(((arrival_times > since) & (arrival_times <= time)).any(axis=0))

    def leaves(self, nodes: Rows, time: int) -> tuple[Rows, Rows]:
        """Return the leaves of nodes at a time in ms: rows of ``nodes``, and blocks.

        A block arrives with its ancestors; leaves below the finality depth are dropped.
        """
        relay = self.relay
        heights = relay.heights.astype(np.int64)
        created = np.flatnonzero(relay.times <= time)
        everywhere = created[self.latest[created] <= time]
        least = int(heights[everywhere].max(initial=0)) - self.options.relay.finality
        some = created[heights[created] >= least]
        has = self.arrivals[some][:, nodes] <= time
        place = {block: row for row, block in enumerate(some.tolist())}
        parent = [place.get(int(block), NO_BLOCK) for block in relay.parents[some]]
        covered = np.zeros_like(has)
        for row in np.argsort(-heights[some], kind="stable").tolist():
            has[row] |= covered[row]
            if parent[row] != NO_BLOCK:
                covered[parent[row]] |= has[row]
        best = np.where(has, heights[some][:, None], -1).max(axis=0)
        leaf = has & ~covered & (heights[some][:, None] >= best - self.options.relay.finality)
        row, block = leaf.T.nonzero()
        return row, some[block]

    def first_block(self, time: int) -> int:
        """Return the lowest block whose queues may be pooled or marked as seen at a time in ms."""
        relay, gossip = self.options.relay, self.options.gossip
        if gossip.seen_until == "disconnect":
            return 0
        heights = self.relay.heights.astype(np.int64)
        everywhere = np.flatnonzero(self.latest <= time - 2 * gossip.purge_interval)
        below = int(heights[everywhere].max(initial=0)) - self._listing_depth - relay.finality - gossip.ancestors - 1
        return int(np.argmax(heights >= below))

    @cached_property
    def _listing_depth(self) -> int:
        """Maximum height difference between a queue's block and the last block that lists it."""
        heights, relay = self.relay.heights.astype(np.int64), self.relay
        gaps = [
            int((heights[block] - heights[relay.issued[rows]]).max(initial=0))
            for block, rows in enumerate(relay.unrouted)
        ]
        return max(gaps)

    def first_queue(self, time: int) -> tuple[int, int]:
        """Return the lowest queue and the lowest root of the blocks from ``first_block`` on."""
        block = self.first_block(time)
        queues = np.flatnonzero(self.relay.queue_issued >= block)
        roots = np.flatnonzero(self.relay.root_issued >= block)
        queue = int(queues[0]) if len(queues) else len(self.relay.queue_issued)
        return queue, int(roots[0]) if len(roots) else len(self.relay.roots)


@dataclass(frozen=True)
class FixedInputs:
    """Inputs that replace random ones.

    Attributes:
        relay: Relay chain.
        graph: Links.
        imports: Arrival time in ms of each block at each node, shape (blocks, nodes).
        paras: Parachain of each node.
    """

    relay: SimulatedRelayChain | None = None
    graph: Graph | None = None
    imports: npt.NDArray[np.int64] | None = None
    paras: Rows | None = None
