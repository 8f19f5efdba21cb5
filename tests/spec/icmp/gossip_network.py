"""Gossip nodes that are connected to each other, over relay blocks that a `Network` makes: a test engine.

Time is milliseconds and moves only in `run`. What a test does (importing a block, connecting, saying something as a
stranger) happens at the present moment; packets arrive after the latency of their link, in the order in which they were
sent on it; every node purges at the multiples of the purge interval. Between events of one moment, the one that was
scheduled first comes first, and a purge comes before all others.

Decisions.
- Links keep order: with anything else, "the latest list it sent" (2.5) would not be what arrived last.
- A packet that is lost is lost silently; its sender takes it for sent. What is under way when a link ends is gone.
- A stranger is a peer without a node: what it is sent is noted, what it says is scripted, as packets or as raw bytes.
- A node executes the parachain blocks of its chains when it imports the relay block that includes them.
- The fallback's requests take no time, and go to the first holder in order of names that answers rightly; `lies` are
  what holders answer instead of the truth.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from . import gossip
from .candidates import Found
from .errors import IcmpError
from .events import Ingress, NodeId, Row
from .gossip import Declaration, Envelope, Out, Packet
from .network import Network
from .node import Node, Unrouted, topic_of
from .options import Options
from .reconcile import More, Sketch
from .relay import GENESIS, Block, Hash, ParaId
from .runtime import Runtime, egress, ingress
from .trie import H, R, u32
from .wire import decode


@dataclass
class Client:
    """The relay chain as one node's client has it: the blocks that it imported."""

    rt: Runtime
    imported: set[Hash] = field(default_factory=lambda: {GENESIS.hash})

    def leaves(self) -> list[Block]:
        blocks = [self.rt.relay.blocks[B] for B in self.imported]
        parents = {block.parent for block in blocks}
        return [block for block in blocks if block.hash not in parents]

    def parent(self, B: Hash) -> Hash | None:
        return self.rt.relay.blocks[B].parent if B in self.imported else None

    def unrouted(self, leaf: Hash) -> list[Unrouted]:
        return [u for p in sorted(self.rt.states[leaf].active) for u in self.ingress(leaf, p)]

    def ingress(self, leaf: Hash, p: ParaId) -> list[Unrouted]:
        return self._list(leaf, ingress(self.rt, leaf, p), lambda x, root: (x, p, root))

    def egress(self, leaf: Hash, p: ParaId) -> list[Unrouted]:
        return self._list(leaf, egress(self.rt, leaf, p), lambda y, root: (p, y, root))

    def _list(
        self, leaf: Hash, lists: Ingress | None, turned: Callable[[ParaId, Hash], tuple[ParaId, ParaId, Hash]]
    ) -> list[Unrouted]:
        chain = self.rt.relay.chain(leaf)
        return [Unrouted(n, chain[n].hash, *turned(para, root)) for n, rs in lists or () for para, root in rs]


Latency = Callable[[NodeId, NodeId], int]
Loss = Callable[[NodeId, NodeId], bool]


class GossipNetwork:
    def __init__(
        self,
        options: Options | None = None,
        latency: Latency = lambda _from, _to: 100,
        loses: Loss = lambda _from, _to: False,
    ) -> None:
        self.options = options or Options()
        self.base = Network(self.options)
        self.latency, self.loses = latency, loses
        self.nodes: dict[NodeId, Node] = {}
        self.clients: dict[NodeId, Client] = {}
        self.now = 0
        self.rows: list[Row] = []
        self.heard: dict[NodeId, list[tuple[NodeId, Packet]]] = {}
        """Of every stranger: what it was sent."""
        self.lies: dict[NodeId, tuple[bytes, ...]] = {}
        self._links: dict[frozenset[NodeId], int] = {}
        """Connected pairs, each connection with a number of its own."""
        self._numbers = count()
        self._under_way: list[tuple[int, int, int, NodeId, NodeId, Packet | tuple[Hash, bytes]]] = []
        self._arrives: dict[tuple[int, NodeId], int] = defaultdict(int)
        self._waiting: dict[tuple[NodeId, Hash, ParaId], int] = {}

    @property
    def log(self) -> list[Row]:
        return [*self.base.log, *self.rows]

    # who is there

    def add(self, name: NodeId, *collates: ParaId) -> None:
        """A node; it is a collator or a full node of these chains. Its client has genesis only."""
        self.nodes[name] = Node(name, self.options, frozenset(collates))
        self.clients[name] = Client(self.base.rt)
        self._new_leaf(name)

    def stranger(self, name: NodeId) -> None:
        self.heard[name] = []

    def connect(self, a: NodeId, b: NodeId) -> None:
        pair = frozenset((a, b))
        assert pair not in self._links and a != b
        self._links[pair] = next(self._numbers)
        salt = H(b"".join(name.encode() for name in sorted(pair)) + u32(self._links[pair]))
        for node, peer in ((a, b), (b, a)):
            if node in self.nodes:
                self._do(node, gossip.connect(self.nodes[node], self.now, peer, salt))

    def disconnect(self, a: NodeId, b: NodeId) -> None:
        del self._links[frozenset((a, b))]
        for node, peer in ((a, b), (b, a)):
            if node in self.nodes:
                self._do(node, gossip.disconnect(self.nodes[node], self.now, peer))

    def connected(self, a: NodeId) -> list[NodeId]:
        return sorted(b for pair in self._links if a in pair for b in pair - {a})

    # the relay chain

    def imports(self, name: NodeId, *blocks: Hash) -> None:
        """Blocks, in this order, as one update of the leaves."""
        client = self.clients[name]
        for B in blocks:
            assert self.base.rt.relay.blocks[B].parent in client.imported, "a block's parent comes first"
            client.imported.add(B)
            self._executes(name, B)
        self._new_leaf(name)

    def reverts(self, name: NodeId, B: Hash) -> None:
        """A block, and what stands on it, is found to be invalid."""
        client, relay = self.clients[name], self.base.rt.relay
        client.imported = {C for C in client.imported if relay.blocks[B] not in relay.chain(C)}
        self._new_leaf(name)

    def _executes(self, name: NodeId, B: Hash) -> None:
        node = self.nodes[name]
        for (at, x, y), messages in sorted(self.base.posted.items()):
            if at == B and x in node.collates and (at, x, y) not in self.base.lost:
                node.kept[R(messages)] = tuple(messages)

    def _new_leaf(self, name: NodeId) -> None:
        client = self.clients[name]
        self._do(name, gossip.on_new_leaf(self.nodes[name], client, self.now, client.leaves()))

    # packets

    def says(self, a: NodeId, b: NodeId, packet: Packet | tuple[Hash, bytes]) -> None:
        """A packet, or a topic with raw bytes, from a to b."""
        pair = frozenset((a, b))
        number = self._links[pair]
        if self.loses(a, b):
            return
        at = max(self.now + self.latency(a, b), self._arrives[number, b])
        self._arrives[number, b] = at
        heapq.heappush(self._under_way, (at, next(self._numbers), number, a, b, packet))

    def _do(self, name: NodeId, out: Out) -> None:
        self.rows += out.rows
        for k, packet in out.packets:
            self.says(name, k, packet)
        for k in out.dropped:
            self.disconnect(name, k)

    def _deliver(self, number: int, a: NodeId, b: NodeId, packet: Packet | tuple[Hash, bytes]) -> None:
        if self._links.get(frozenset((a, b))) != number:
            return
        if b not in self.nodes:
            assert not isinstance(packet, tuple)
            self.heard[b].append((a, packet))
            return
        node, client = self.nodes[b], self.clients[b]
        if isinstance(packet, tuple):
            try:
                packet = decode(*packet)
            except IcmpError:
                self._do(b, gossip.on_malformed(node, self.now, a))
                return
        self._do(b, self._answer(node, client, a, packet))

    def _answer(self, node: Node, client: Client, a: NodeId, packet: Packet) -> Out:
        if isinstance(packet, Envelope):
            return gossip.on_queue(node, client, self.now, a, packet)
        if isinstance(packet, Declaration):
            return gossip.on_chain_heads(node, client, self.now, a, packet.heads)
        if isinstance(packet, Sketch):
            return gossip.on_sketch(node, client, a, packet)
        if isinstance(packet, More):
            return gossip.on_more(node, client, self.now, a, packet)
        return gossip.on_ask(node, client, self.now, a, packet)

    # time

    def run(self, duration: int) -> None:
        """Everything that happens up to that much later, that moment included."""
        end, interval = self.now + duration, self.options.purge_interval
        while True:
            sweep = (self.now // interval + 1) * interval
            packet = self._under_way[0][0] if self._under_way else end + 1
            if min(sweep, packet) > end:
                break
            if sweep <= packet:
                self.now = sweep
                self.purge()
                continue
            self.now, _, number, a, b, what = heapq.heappop(self._under_way)
            self._deliver(number, a, b, what)
        self.now = end

    def settle(self) -> None:
        """Until nothing is under way."""
        while self._under_way:
            self.run(self._under_way[0][0] - self.now)

    def purge(self, *names: NodeId) -> None:
        """At once, of these nodes or of all."""
        for name in names or sorted(self.nodes):
            self._do(name, gossip.purge(self.nodes[name], self.now))

    # collecting

    def fetch(self, name: NodeId, B: Hash, p: ParaId) -> Found:
        """What the node has found of ingress(B, p); with the fallback, what it asks for is there next time."""
        node, client = self.nodes[name], self.clients[name]
        out, found = gossip.fetch(node, client, self.now, B, p)
        self._do(name, out)
        since = self._waiting.setdefault((name, B, p), self.now)
        wanted = {(u.number, u.root): topic_of(self.options, u) for u in client.ingress(B, p)}
        for n, sender, root in gossip.requests(node, client, B, p, self.now - since):
            for messages in self._answers(sender, root):
                answered, error = gossip.on_answer(node, client, self.now, Envelope(wanted[n, root], root, messages))
                self._do(name, answered)
                if error is None:
                    break
        return found

    def _answers(self, sender: ParaId, root: Hash) -> list[tuple[bytes, ...]]:
        holders = [name for name, node in sorted(self.nodes.items()) if sender in node.collates]
        answers = [self.lies.get(name, gossip.on_request(self.nodes[name], root)) for name in holders]
        return [messages for messages in answers if messages is not None]

    # what a test looks at

    def pool(self, name: NodeId) -> dict[tuple[Hash, Hash], tuple[bytes, ...]]:
        return {(t, root): messages for t, roots in self.nodes[name].pool.items() for root, messages in roots.items()}

    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]:
        return self.nodes[name].expected

    def leaves(self, name: NodeId) -> Sequence[Hash]:
        return self.nodes[name].leaves

    def held(self, name: NodeId) -> int:
        """How many entries a node keeps: of its pool, of its leaves' topics, of what it has seen with peers."""
        node = self.nodes[name]
        seen = sum(len(k.received) + len(k.sent) + len(k.leaves) for k in node.peers.values())
        views = sum(len(roots) for view in node.views.values() for roots in view.values())
        return len(self.pool(name)) + len(node.peers) + seen + views + sum(map(len, node.expected.values()))
