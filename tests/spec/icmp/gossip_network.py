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
from itertools import count

from tests.spec.icmp.candidates import Found
from tests.spec.icmp.events import NodeId, Row
from tests.spec.icmp.gossip_nodes import AnyNodes, Client, Nodes, Said
from tests.spec.icmp.network import Network
from tests.spec.icmp.node import topic_of
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Envelope, Out, Packet
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.trie import H, u32

Latency = Callable[[NodeId, NodeId], int]
Loss = Callable[[NodeId, NodeId], bool]


class GossipNetwork:
    def __init__(
        self,
        options: Options | None = None,
        latency: Latency = lambda _from, _to: 100,
        loses: Loss = lambda _from, _to: False,
        nodes: Callable[[Options], AnyNodes] = Nodes,
    ) -> None:
        self.options = options or Options()
        self.base = Network(self.options)
        self.latency, self.loses = latency, loses
        self.nodes = nodes(self.options)
        self.collates: dict[NodeId, frozenset[ParaId]] = {}
        self.clients: dict[NodeId, Client] = {}
        self.now = 0
        self.rows: list[Row] = []
        self.heard: dict[NodeId, list[tuple[NodeId, Packet]]] = {}
        """Of every stranger: what it was sent."""
        self.lies: dict[NodeId, tuple[bytes, ...]] = {}
        self._links: dict[frozenset[NodeId], int] = {}
        """Connected pairs, each connection with a number of its own."""
        self._numbers = count()
        self._under_way: list[tuple[int, int, int, NodeId, NodeId, Said]] = []
        self._arrives: dict[tuple[int, NodeId], int] = defaultdict(int)
        self._waiting: dict[tuple[NodeId, Hash, ParaId], int] = {}

    @property
    def log(self) -> list[Row]:
        return [*self.base.log, *self.rows]

    # who is there

    def add(self, name: NodeId, *collates: ParaId) -> None:
        """A node; it is a collator or a full node of these chains. Its client has genesis only."""
        self.collates[name], self.clients[name] = frozenset(collates), Client(self.base.rt)
        self.nodes.add(name, self.collates[name], self.clients[name])
        self._new_leaf(name)

    def stranger(self, name: NodeId) -> None:
        self.heard[name] = []

    def connect(self, a: NodeId, b: NodeId) -> None:
        pair = frozenset((a, b))
        assert pair not in self._links and a != b
        self._links[pair] = next(self._numbers)
        salt = H(b"".join(name.encode() for name in sorted(pair)) + u32(self._links[pair]))
        for node, peer in ((a, b), (b, a)):
            if node in self.clients:
                self._do(node, self.nodes.connect(node, self.now, peer, salt))

    def disconnect(self, a: NodeId, b: NodeId) -> None:
        del self._links[frozenset((a, b))]
        for node, peer in ((a, b), (b, a)):
            if node in self.clients:
                self._do(node, self.nodes.disconnect(node, self.now, peer))

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
        for (at, x, y), messages in sorted(self.base.posted.items()):
            if at == B and x in self.collates[name] and (at, x, y) not in self.base.lost:
                self.nodes.keeps(name, messages)

    def _new_leaf(self, name: NodeId) -> None:
        self._do(name, self.nodes.new_leaf(name, self.now))

    # packets

    def says(self, a: NodeId, b: NodeId, packet: Said) -> None:
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

    def _deliver(self, number: int, a: NodeId, b: NodeId, packet: Said) -> None:
        if self._links.get(frozenset((a, b))) != number:
            return
        if b in self.clients:
            self._do(b, self.nodes.said(b, self.now, a, packet))
        else:
            assert not isinstance(packet, tuple)
            self.heard[b].append((a, packet))

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
        for name in names or sorted(self.clients):
            self._do(name, self.nodes.purge(name, self.now))

    # collecting

    def fetch(self, name: NodeId, B: Hash, p: ParaId) -> Found:
        """What the node has found of ingress(B, p); with the fallback, what it asks for is there next time."""
        out, found = self.nodes.fetch(name, self.now, B, p)
        self._do(name, out)
        since = self._waiting.setdefault((name, B, p), self.now)
        wanted = {(u.number, u.root): topic_of(self.options, u) for u in self.clients[name].ingress(B, p)}
        for n, sender, root in self.nodes.requests(name, B, p, self.now - since):
            for messages in self._answers(sender, root):
                answered, error = self.nodes.on_answer(name, self.now, Envelope(wanted[n, root], root, messages))
                self._do(name, answered)
                if error is None:
                    break
        return found

    def _answers(self, sender: ParaId, root: Hash) -> list[tuple[bytes, ...]]:
        holders = [name for name, collates in sorted(self.collates.items()) if sender in collates]
        answers = [self.lies.get(name, self.nodes.on_request(name, root)) for name in holders]
        return [messages for messages in answers if messages is not None]

    # what a test looks at

    def pool(self, name: NodeId) -> dict[tuple[Hash, Hash], tuple[bytes, ...]]:
        return self.nodes.pool(name)

    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]:
        return self.nodes.expected(name)

    def leaves(self, name: NodeId) -> Sequence[Hash]:
        return self.nodes.leaves(name)

    def held(self, name: NodeId) -> int:
        """How many entries a node keeps: of its pool, of its leaves' topics, of what it has seen with peers."""
        return self.nodes.held(name)
