"""Who is connected with whom in a simulation, and how far apart they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from causeway.model.order import U64, Rows, positions_in
from causeway.protocols.icmp.column_draws import Draw, uniforms, words
from causeway.protocols.icmp.simulation.options import LinksSection, SimulationOptions


@dataclass(frozen=True)
class Graph:
    """Links between nodes, both ways, ascending by ``node`` and ``peer``; ``latency`` in ms."""

    node: Rows
    peer: Rows
    latency: Rows
    count: int

    @cached_property
    def begins(self) -> Rows:
        """Where the links of each node begin, and at last where they end."""
        return self.node.searchsorted(np.arange(self.count + 1))

    @cached_property
    def _codes(self) -> U64:
        return (self.node * self.count + self.peer).astype(np.uint64)

    def links_of(self, node: Rows, peer: Rows) -> Rows:
        """Return the row of each link, -1 where there is none."""
        return positions_in(self._codes, (node * self.count + peer).astype(np.uint64))


def graph_of(options: SimulationOptions, seed: int, subscribers: Sequence[Rows] | None, keeps: Rows) -> Graph:
    """Return the links of a scenario: those of its topology, and what eclipses make of them.

    ``subscribers``: with topics of senders and recipients, by parachain, the nodes that carry what goes to it: these
    are linked with each other, and those who keep queues (``keeps``: of which parachain) with some of each.
    """
    count, degree = options.nodes.count, options.topology.degree
    if subscribers is not None:
        pairs = _of_topics(seed, subscribers, keeps, degree // 2, options.topology.entries)
    elif options.topology.kind == "regular":
        pairs = _cycles(seed, np.arange(count), degree // 2)
    else:
        pairs = _ring(seed, count, degree // 2, options.topology.rewired * (options.topology.kind == "small_world"))
    pairs = _once(pairs, count)
    first = count - sum(attackers.count for attackers in options.attackers)
    honest = first
    for row, attackers in enumerate(options.attackers):
        nodes = np.arange(first, first + attackers.count)
        first += attackers.count
        if attackers.kind == "eclipse":
            drawn = words(seed, Draw.VICTIM, row, np.arange(honest))
            victims = np.argsort(drawn, kind="stable")[: attackers.victims]
            # The pairs in which victims have few honest peers, and all of the attackers.
            for victim in victims.tolist():
                own = (pairs == victim).any(axis=1)
                peer = np.where(pairs[:, 0] == victim, pairs[:, 1], pairs[:, 0])
                kept = np.flatnonzero(own & (peer < honest))[: attackers.honest_links]
                own[kept] = False
                there = np.stack([np.full(len(nodes), victim), nodes], axis=1)
                pairs = np.concatenate([pairs[~own], there])
    # The graph of `pairs` (shape (n, 2), the lower first), with latencies.
    pairs = _once(pairs, count)
    latency = latencies(options.links, seed, pairs)
    node, peer = np.concatenate([pairs, pairs[:, ::-1]]).T
    order = np.lexsort((peer, node))
    return Graph(node[order], peer[order], np.concatenate([latency, latency])[order], count)


def _cycles(seed: int, nodes: Rows, cycles: int, which: int = 0) -> Rows:
    """Return the links of random cycles through nodes, others for each ``which``."""
    found = []
    for cycle in range(cycles):
        order = nodes[np.argsort(words(seed, Draw.GRAPH, cycle, nodes, which), kind="stable")]
        found.append(np.stack([order, np.roll(order, -1)], axis=1))
    return np.concatenate(found)


def _of_topics(seed: int, subscribers: Sequence[Rows], keeps: Rows, cycles: int, entries: int) -> Rows:
    """Return random cycles through those who subscribe to a topic, of each topic, and links of those who keep queues to
    some of each topic but their own."""
    found = []
    for para, nodes in enumerate(subscribers):
        found.append(_cycles(seed, nodes, cycles, 1 + para))
        keepers = np.flatnonzero((keeps >= 0) & (keeps != para))
        drawn = words(seed, Draw.ENTRY, keepers[:, None], nodes[None, :], para)
        first = nodes[np.argsort(drawn, axis=1, kind="stable")[:, :entries]]
        found.append(np.stack([np.repeat(keepers, first.shape[1]), first.reshape(-1)], axis=1))
    return np.concatenate(found)


def _ring(seed: int, count: int, reach: int, rewired: float) -> Rows:
    """Return the links of each node to the next ones on a ring; a share of them goes to a random node instead."""
    node = np.repeat(np.arange(count), reach)
    place = np.tile(np.arange(1, reach + 1), count)
    peer = (node + place) % count
    if rewired:
        away = uniforms(seed, Draw.REWIRED, node, place) < rewired
        to = (words(seed, Draw.REWIRED, node, place, 1) % np.uint64(count)).astype(np.int64)
        # The link to the next one stays: so the ring is connected whatever is drawn.
        peer = np.where(away & (place > 1) & (to != node), to, peer)
    return np.stack([node, peer], axis=1)


def _once(pairs: Rows, count: int) -> Rows:
    """Return each pair once, the lower node first."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    codes = np.unique((low * count + high)[low != high])
    return np.stack([codes // count, codes % count], axis=1)


def latencies(links: LinksSection, seed: int, pairs: Rows) -> Rows:
    """Return how far nodes are apart (ms), by pairs, the lower node first."""
    if links.distribution == "constant":
        return np.full(len(pairs), links.most, dtype=np.int64)
    drawn = uniforms(seed, Draw.LATENCY, pairs[:, 0], pairs[:, 1])
    if links.distribution == "uniform":
        found = links.least + drawn * (links.most - links.least + 1)
    else:
        found = links.least - np.log(drawn) * max(links.mean - links.least, 1)
    return np.minimum(np.floor(found), links.most).astype(np.int64)
