"""The fixed parts of a simulation: what each node is, when it is there, when it has which block. All of it is a
function of the scenario and its seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from causeway.model.order import U64, Rows
from causeway.proofs.hashing import Digests
from causeway.proofs.tendermint.keys import SigningKey
from causeway.protocols.digests import digests
from causeway.protocols.icmp.column_draws import Draw, uniforms, words
from causeway.protocols.icmp.gossip.listed import TO, Mask
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.protocols.icmp.gossip.state import NO_INTEREST
from causeway.protocols.icmp.simulation.graph import Graph, graph_of, latencies
from causeway.protocols.icmp.simulation.options import SimulationOptions
from causeway.protocols.icmp.simulation.relay import RelayChain, relay_chain
from causeway.protocols.icmp.simulation.relay_table import NO_BLOCK

NO_PARA = -1

HONEST, SILENT, LIE, SPAM, SELFISH, WITHHOLD = range(6)
"""How a node behaves; who eclipses others lies."""

_BEHAVIOUR = {"silent": SILENT, "lie": LIE, "spam": SPAM, "eclipse": LIE, "selfish": SELFISH, "withhold": WITHHOLD}


@dataclass(frozen=True)
class World:
    """A scenario made ready. ``given``: what a test gives instead of what is drawn; of ``imports``, by block and node,
    when a node has a block (ms); of ``paras`` the parachain of each node."""

    options: SimulationOptions
    seed: int
    given: Given = field(default_factory=lambda: Given())

    @cached_property
    def relay(self) -> RelayChain:
        """The relay chain."""
        table = self.options.relay.table
        if table is not None:
            # The relay chain that a run made.
            blocks = table.hashes, table.heights, table.parents, table.times
            entries = table.issued, table.sources, table.destinations, table.root
            return RelayChain(
                self.options.gossip, *blocks, *entries, table.roots, table.sizes, table.messages, table.unrouted
            )
        return self.given.relay or relay_chain(self.options, self.seed)

    @cached_property
    def gossip(self) -> GossipOptions:
        """The options of gossip. Nobody connects again to whom it was disconnected from, so that no bans are kept."""
        return self.options.gossip.model_copy(update={"ban_time": 0})

    @cached_property
    def graph(self) -> Graph:
        """The links."""
        if self.given.graph is not None:
            return self.given.graph
        subscribers = None
        if self.options.gossip.topology == "from_to":
            subscribers = [
                np.flatnonzero((self.interests == np.uint64(para + TO)).any(axis=1))
                for para in range(self.options.nodes.parachains)
            ]
        return graph_of(self.options, self.seed, subscribers, self.keeps)

    @cached_property
    def behaviour(self) -> Rows:
        """How each node behaves."""
        found = np.full(self.options.nodes.count, HONEST, dtype=np.int64)
        first = len(found) - sum(attackers.count for attackers in self.options.attackers)
        for attackers in self.options.attackers:
            found[first : first + attackers.count] = _BEHAVIOUR[attackers.kind]
            first += attackers.count
        return found

    @cached_property
    def mute(self) -> Mask:
        """Which nodes forward nothing; selfish ones do not where it does not pay."""
        found = np.isin(self.behaviour, (SILENT, SPAM))
        return np.asarray(found | ((self.behaviour == SELFISH) & (not self.options.tickets.pays)))

    @cached_property
    def signing_keys(self) -> list[SigningKey]:
        """The key of each node, for tickets."""
        return [SigningKey.from_name(f"gossip node {self.seed} {node}") for node in range(self.options.nodes.count)]

    @cached_property
    def secret_keys(self) -> Digests:
        """The seeds of the keys, shape (nodes, 32): nonces and secrets are derived from them."""
        return digests([key.seed for key in self.signing_keys])

    @cached_property
    def public_keys(self) -> Digests:
        """The public keys, shape (nodes, 32)."""
        return digests([key.public_key.data for key in self.signing_keys])

    @cached_property
    def rate(self) -> Rows:
        """How many queues a slice each spammer sends to a peer."""
        found = np.zeros(self.options.nodes.count, dtype=np.int64)
        first = len(found) - sum(attackers.count for attackers in self.options.attackers)
        for attackers in self.options.attackers:
            found[first : first + attackers.count] = attackers.rate * (attackers.kind == "spam")
            first += attackers.count
        return found

    @cached_property
    def needs(self) -> Rows:
        """The parachain to which each node needs the queues, ``NO_PARA`` for none."""
        if self.given.paras is not None:
            return self.given.paras
        nodes = self.options.nodes
        found = np.full(nodes.count, NO_PARA, dtype=np.int64)
        placed = nodes.parachains * (nodes.collators + nodes.validators)
        found[:placed] = np.arange(placed) % nodes.parachains
        return found

    @cached_property
    def keeps(self) -> Rows:
        """The parachain of which each node keeps the queues: that of a collator."""
        if self.given.paras is not None:
            return self.given.paras
        found = self.needs.copy()
        found[self.options.nodes.parachains * self.options.nodes.collators :] = NO_PARA
        return found

    @cached_property
    def keepers(self) -> tuple[Rows, Rows]:
        """The nodes that keep queues, by parachain, and where those of each begin, and at last where they end."""
        order = np.argsort(self.keeps, kind="stable")
        order = order[self.keeps[order] != NO_PARA]
        return order, self.keeps[order].searchsorted(np.arange(self.options.nodes.parachains + 1))

    @cached_property
    def asks(self) -> Mask:
        """Which nodes ask those who keep a queue for it: validators, or where there are none collators."""
        needs = self.needs != NO_PARA
        return np.asarray(needs & (self.keeps == NO_PARA) if self.options.nodes.validators else needs)

    def latency(self, source: Rows, destination: Rows) -> Rows:
        """Return how far nodes are apart (ms), linked or not."""
        link = self.graph.links_of(source, destination)
        found = np.append(self.graph.latency, 0)[link]
        apart = np.flatnonzero(link < 0)
        pairs = np.sort(np.stack([source[apart], destination[apart]], axis=1), axis=1)
        found[apart] = latencies(self.options.links, self.seed, pairs)
        return found

    @cached_property
    def interests(self) -> U64:
        """What each node subscribes to, with ``from_to``, shape (nodes, max_subscriptions): the queues to the parachain
        that it needs; who needs none carries those to some, by turns."""
        nodes, most = self.options.nodes, self.options.gossip.max_subscriptions
        found = np.full((nodes.count, most), NO_INTEREST)
        some = np.flatnonzero(self.needs != NO_PARA)
        found[some, 0] = self.needs[some] + TO
        carriers = np.flatnonzero(self.needs == NO_PARA)
        carried = min(nodes.carried, nodes.parachains)
        turns = np.arange(len(carriers) * carried).reshape(-1, carried) % nodes.parachains
        found[carriers, :carried] = np.sort(turns, axis=1) + TO
        return found

    @cached_property
    def _phase(self) -> Rows:
        period = np.uint64(self.options.churn.period)
        return (words(self.seed, Draw.CHURN, np.arange(self.options.nodes.count), 0) % period).astype(np.int64)

    def there(self, nodes: Rows, time: int) -> Mask:
        """Return which nodes are there at a time; attackers always are, and all are in their first period."""
        churn = self.options.churn
        if time < 0:
            return np.zeros(len(nodes), dtype=bool)
        if not churn.share:
            return np.ones(len(nodes), dtype=bool)
        period = (time + self._phase[nodes]) // churn.period
        away = uniforms(self.seed, Draw.CHURN, nodes, period + 1) < churn.share
        return np.asarray(~away | (period < 1) | (self.behaviour[nodes] != HONEST))

    @cached_property
    def arrivals(self) -> npt.NDArray[np.int64]:
        """When each node has each block and has updated its leaves (ms), shape (blocks, nodes)."""
        if self.given.imports is not None:
            return self.given.imports
        relay, blocks = self.options.relay, len(self.relay.hashes)
        nodes = np.arange(self.options.nodes.count)
        drawn = words(self.seed, Draw.PROPAGATION, nodes[None, :], np.arange(blocks)[:, None])
        later = (drawn % np.uint64(relay.propagation + 1)).astype(np.int64) + relay.update
        later[0] = 0
        return self.relay.times[:, None] + later

    @cached_property
    def latest(self) -> npt.NDArray[np.int64]:
        """When the last node has each block."""
        return np.asarray(self.arrivals.max(axis=1))

    def came(self, nodes: Rows, since: int, time: int) -> Mask:
        """Return which nodes got a block after ``since`` up to ``time``."""
        some = np.flatnonzero((self.relay.times <= time) & (self.latest > since))
        when = self.arrivals[some][:, nodes]
        return np.asarray(((when > since) & (when <= time)).any(axis=0))

    def leaves(self, nodes: Rows, time: int) -> tuple[Rows, Rows]:
        """Return the leaves of nodes at a time: rows of ``nodes``, and blocks. A block comes with its ancestors; leaves
        too far below the best one are dropped."""
        relay = self.relay
        heights = relay.heights.astype(np.int64)
        made = np.flatnonzero(relay.times <= time)
        done = made[self.latest[made] <= time]
        least = int(heights[done].max(initial=0)) - self.options.relay.finality
        some = made[heights[made] >= least]
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
        """Return the lowest block of which a queue may still be in a pool, or seen with a peer, at a time."""
        relay, gossip = self.options.relay, self.options.gossip
        if gossip.seen_until == "disconnect":
            return 0
        heights = self.relay.heights.astype(np.int64)
        made = np.flatnonzero(self.latest <= time - 2 * gossip.purge_interval)
        below = int(heights[made].max(initial=0)) - self._listed - relay.finality - gossip.ancestors - 1
        return int(np.argmax(heights >= below))

    @cached_property
    def _listed(self) -> int:
        """How many numbers above its own the last block is that lists a queue, at most."""
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
class Given:
    """What is not drawn (see ``World``)."""

    relay: RelayChain | None = None
    graph: Graph | None = None
    imports: npt.NDArray[np.int64] | None = None
    paras: Rows | None = None
