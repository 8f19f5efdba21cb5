"""One gossip network twice: nodes of the oracle, and the simulation that is given the same relay chain, links and
times; and what the simulation logs as rows of the oracle's event log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from causeway.config.topology import CHAINS_SCHEMA, PROGRAMS_SCHEMA, Topology
from causeway.core.frame import Frame
from causeway.gossip.simulation.kernel import GossipKernel
from causeway.gossip.simulation.options import SimulationOptions
from causeway.gossip.simulation.relay_chain import SimulatedRelayChain
from causeway.gossip.simulation.relay_table import NO_BLOCK
from causeway.gossip.simulation.world import NO_PARA, FixedInputs, Graph
from causeway.gossip.state import GossipState
from causeway.programs.runner import Programs
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.digests import digests
from tests.spec.icmp.events import Got, Leaf, Peer, Pool, Row, Sent
from tests.spec.icmp.events import Verdict as Judged
from tests.spec.icmp.gossip_network import GossipNetwork
from tests.spec.icmp.gossip_nodes import Client
from tests.spec.icmp.network import messages_hash
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import Hash
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import R
from tests.support.gossip.gossip_networks import ticks

SLICE, SLOT, SPREAD, LATEST = 100, 2_000, 1_500, 500
"""Milliseconds: all times are multiples of a slice, so that rounding changes none."""

SHARED = (
    "topic_mode",
    "heads_diff",
    "ancestors",
    "reconciliation",
    "propagate_on_leaf",
    "allowed_by",
    "seen_until",
    "purge_interval",
)
"""Options that both have under one name."""

VERDICTS: dict[PeerVerdict, Judged] = {
    PeerVerdict.OK: "good",
    PeerVerdict.Duplicate: "duplicate",
    PeerVerdict.Impolite: "disallowed",
}

Put = tuple[str, Hash, int]


@dataclass(frozen=True)
class World:
    """A network: ``blocks`` in the order in which they are made, one a slot; ``imports``, when each node has each."""

    g: GossipNetwork
    options: Options
    nodes: int
    paras: list[int | None]
    links: list[tuple[int, int, int]]
    blocks: list[Hash]
    imports: list[list[int]]

    @property
    def end(self) -> int:
        return (len(self.blocks) + 3) * SLOT


def name(node: int) -> str:
    return f"{node:02d}"


def world(
    seed: int, nodes: int, paras: int, slots: int, options: Options, fork: float = 0.25, most_taken: int = 2
) -> World:
    """Return a network. ``most_taken``: blocks of ingress that a parachain's block consumes at most; with 0 nothing is
    ever routed, so that no order of what comes at one moment decides who gets a queue."""
    r = Random(seed)
    links = {(min(a, b), max(a, b)) for a in range(nodes) for b in ((a + 1) % nodes, r.randrange(nodes)) if a != b}
    far = [(a, b, SLICE * r.randrange(1, LATEST // SLICE + 1)) for a, b in sorted(links)]
    latency = {frozenset((name(a), name(b))): ms for a, b, ms in far}
    g = GossipNetwork(options, lambda a, b: latency[frozenset((a, b))])
    blocks = [g.base.make(calls=[Call("register", p, head=b"head") for p in range(1, paras + 1)]).block.hash]
    sent = 0
    for slot in range(slots):
        parent = blocks[-1] if r.random() >= fork else r.choice(blocks[-3:])
        candidates = []
        for p in range(1, paras + 1):
            if r.random() < 0.7:
                others = [q for q in range(1, paras + 1) if q != p]
                sends = [(r.choice(others), b"%d" % (sent + k)) for k in range(r.randrange(4))]
                sent += len(sends)
                candidates.append(g.base.candidate(parent, p, sends, take=r.randrange(most_taken + 1)))
        made = g.base.make(parent, candidates, seal=bytes([slot]))
        blocks.append(made.block.hash)
    parents = [g.base.rt.relay.blocks[B].parent for B in blocks]
    imports: list[list[int]] = []
    for slot, before in enumerate(parents):
        least = imports[blocks.index(before)] if before in blocks else [0] * nodes
        made_at = (slot + 1) * SLOT
        row = [made_at + SLICE * r.randrange(1, SPREAD // SLICE) for _ in range(nodes)]
        imports.append([max(a, b) for a, b in zip(row, least, strict=True)])
    return World(
        g, options, nodes, [1 + n % paras if n < 2 * paras else None for n in range(nodes)], far, blocks, imports
    )


def with_oracle(w: World) -> None:
    """Let the oracle's nodes live through it."""
    for node in range(w.nodes):
        para = w.paras[node]
        w.g.add(name(node), *([] if para is None else [para]))
    for a, b, _ in w.links:
        w.g.connect(name(a), name(b))
    due = sorted((at, node, block) for block, row in enumerate(w.imports) for node, at in enumerate(row))
    for at, node, block in due:
        # Whoever has a new leaf has it before what comes at the same moment. No purge is due then.
        assert at % w.options.purge_interval
        if w.g.now < at:
            w.g.run(at - 1 - w.g.now)
            w.g.now = at
        w.g.imports(name(node), w.blocks[block])
    w.g.run(w.end - w.g.now)


def relay_of(w: World, options: SimulationOptions) -> SimulatedRelayChain:
    """Return the oracle's relay chain as an input of the simulation."""
    relay, client = w.g.base.rt.relay, Client(w.g.base.rt)
    genesis = relay.blocks[w.blocks[0]].parent
    assert genesis is not None
    hashes = [genesis, *w.blocks]
    number = {B: at for at, B in enumerate(hashes)}
    posts = sorted(w.g.base.posted.items(), key=lambda post: (number[post[0][0]], post[0][1:]))
    entry = {post: at for at, (post, _) in enumerate(posts)}
    bodies = {R(messages): messages for _, messages in posts}
    root = {digest: at for at, digest in enumerate(bodies)}
    unrouted = [[entry[u.block, u.sender, u.recipient] for u in client.unrouted(B)] for B in hashes]
    parents = [relay.blocks[B].parent for B in hashes]
    columns = np.array([(number[B], x - 1, y - 1) for (B, x, y), _ in posts], dtype=np.int64).reshape(-1, 3)
    return SimulatedRelayChain(
        options.gossip,
        digests(hashes),
        np.array([relay.blocks[B].number for B in hashes], dtype=np.uint64),
        np.array([NO_BLOCK if B is None else number[B] for B in parents], dtype=np.int64),
        np.arange(len(hashes), dtype=np.int64) * SLOT,
        columns[:, 0],
        columns[:, 1],
        columns[:, 2],
        np.array([root[R(messages)] for _, messages in posts], dtype=np.int64),
        digests([*bodies]),
        np.array([sum(map(len, body)) for body in bodies.values()], dtype=np.uint64),
        np.array([len(body) for body in bodies.values()], dtype=np.uint64),
        [np.array(rows, dtype=np.int64) for rows in unrouted],
        [*bodies.values()],
    )


def kernel_of(w: World) -> GossipKernel:
    """Return the simulation of the same network."""
    shared = (
        "topic_mode",
        "heads_diff",
        "ancestors",
        "propagate_on_leaf",
        "allowed_by",
        "seen_until",
        "purge_interval",
    )
    gossip = {key: getattr(w.options, key) for key in shared}
    given = {
        "slice": SLICE,
        "tail": 0,
        "events": "all",
        "nodes": {"count": w.nodes, "parachains": max(p or 0 for p in w.paras), "collators": 1},
        "links": {"most": SLICE},
        "topology": {"degree": 2},
        "relay": {"interval": SLOT, "blocks": w.end // SLOT - 1, "finality": 64, "queues": 1, "update": 0},
        "gossip": gossip,
    }
    options = SimulationOptions.model_validate(given)
    paras = np.array([NO_PARA if para is None else para - 1 for para in w.paras], dtype=np.int64)
    both = np.array([(a, b, ms) for one, two, ms in w.links for a, b in ((one, two), (two, one))], dtype=np.int64)
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    graph = Graph(both[:, 0], both[:, 1], both[:, 2], w.nodes)
    imports = np.array([[0] * w.nodes, *w.imports], dtype=np.int64)
    numbers = pa.table({"number": range(w.nodes), "name": [name(n) for n in range(w.nodes)]}, schema=CHAINS_SCHEMA)
    topology = Topology(numbers, PROGRAMS_SCHEMA.empty_table())
    inputs = FixedInputs(relay_of(w, options), graph, imports, paras)
    return GossipKernel(topology, Programs(topology), options, given=inputs)


def rows(kernel: GossipKernel, ends: tuple[int, ...] = ()) -> Iterator[tuple[list[Row], dict[int, GossipState]]]:
    """Yield what each tick of the simulation logs as rows of the event log, and the states of the buckets after it."""
    purge = kernel.options.gossip.purge_interval
    names, graph = kernel.chains(), kernel.world.graph
    connected: list[Row] = [
        Peer(names[a], names[b], 0, "connect") for a, b in zip(graph.node.tolist(), graph.peer.tolist(), strict=True)
    ]
    for tick, states, logs in ticks(kernel, ends):
        time = tick * kernel.options.slice
        found = connected if tick == 0 else []
        found = found + _of_tick(kernel, logs, time)
        if time % purge == 0:
            found += [Pool(one, time, None, None, "sweep") for one in names]
        yield found, {bucket: state.gossip for bucket, state in states.items()}


def _of_tick(kernel: GossipKernel, logs: dict[str, Frame], time: int) -> list[Row]:
    relay, names = kernel.world.relay, kernel.chains()
    roots, topics = relay.roots[relay.queue_root], relay.queue_topic
    bodies = relay.bodies
    assert bodies is not None

    def named(table: str, *columns: str) -> list[tuple[int, ...]]:
        frame = logs.get(table)
        return [] if frame is None else [*zip(*(frame[column].tolist() for column in columns), strict=True)]

    def key(queue: int) -> tuple[Hash, Hash]:
        return topics[queue].tobytes(), roots[queue].tobytes()

    leaves: dict[int, list[Hash]] = {}
    for node, block in named("trace_leaves", "chain", "block"):
        leaves.setdefault(node, []).append(relay.hashes[block].tobytes())
    heights = {relay.hashes[block].tobytes(): int(number) for block, number in enumerate(relay.heights)}
    found: list[Row] = []
    for node, some in leaves.items():
        best = sorted(some, key=lambda block: (-heights[block], block))[:5]
        found.append(Leaf(names[node], time, tuple(best)))
    judged = named("trace_got", "chain", "peer", "queue", "code", "change")
    echoed = {(node, peer, queue) for node, peer, queue, code, _ in judged if code == PeerVerdict.Duplicate}
    sent = [
        (row, Sent(names[row[0]], names[row[1]], time, *key(row[2]), int(relay.sizes[relay.queue_root[row[2]]]), 0))
        for row in named("trace_sent", "chain", "peer", "queue")
    ]
    # What was sent before the peer's own came in the same slice: that one is then an echo.
    found += [row for key_, row in sent if key_ in echoed]
    for node, peer, queue, code, change in judged:
        size = int(relay.sizes[relay.queue_root[queue]])
        verdict: Judged = VERDICTS.get(PeerVerdict(code), "wasteful")
        error = PeerVerdict(code).name if verdict == "wasteful" else None
        found.append(Got(names[node], names[peer], time, *key(queue), size, verdict, error, change, 0))
    for node, queue in named("trace_put", "chain", "queue"):
        body = messages_hash(bodies[int(relay.queue_root[queue])])
        found.append(Pool(names[node], time, *key(queue), "put", body))
    found += [row for key_, row in sent if key_ not in echoed]
    found += [Pool(names[node], time, *key(queue), "purge") for node, queue in named("trace_purged", "chain", "queue")]
    return found


def puts(log: list[Row]) -> set[Put]:
    """Return when which body was put first into the pool of each node."""
    first: dict[tuple[str, Hash], int] = {}
    for row in log:
        if isinstance(row, Pool) and row.change == "put" and row.root is not None:
            first.setdefault((row.node, row.root), row.time)
    return {(*key, time) for key, time in first.items()}
