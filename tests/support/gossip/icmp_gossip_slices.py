"""Random networks of gossip in slices of time: whatever came to any node since the last slice comes in one step.

Forks, reversions, nodes that are late, links that break, packets that wait, and peers that obey no rule.
"""

from collections import defaultdict
from dataclasses import dataclass, field, fields
from random import Random

from tests.spec.icmp.events import NodeId, Row
from tests.spec.icmp.gossip_nodes import Client
from tests.spec.icmp.gossip_step import Arrived
from tests.spec.icmp.network import Network
from tests.spec.icmp.node import Label
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope, Garbled, Packet, Subscriptions
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import Hash
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import H, R, topics
from tests.support.gossip.icmp_gossip_steps import Stepped

PARAS = (1, 2, 3)
NODES = {"a": (1,), "b": (2,), "c": (3,), "d": (1, 2), "e": (), "f": (), "g": ()}
HOSTILE = ("s", "t")
SLICE = 500
LABELS: tuple[Label, ...] = tuple((side, p) for side in ("from", "to") for p in PARAS)

Link = tuple[NodeId, NodeId]


@dataclass
class Chances:
    """Of each slice: how likely what is."""

    block: float = 0.3
    fork: float = 0.3
    imports: float = 0.5
    reverts: float = 0.03
    churn: float = 0.1
    waits: float = 0.3
    hostile: float = 0.7
    answers: float = 0.05
    subscribes: float = 0.3


@dataclass
class Slices:
    seed: int
    options: Options
    chances: Chances = field(default_factory=Chances)
    degree: int = 3

    def __post_init__(self) -> None:
        self.r = Random(self.seed)
        self.now = 0
        self.base = Network(self.options)
        self.first = self.base.make(calls=[Call("register", p, head=b"head") for p in PARAS]).block.hash
        self.blocks = [self.first]
        self.clients = {name: Client(self.base.rt) for name in NODES}
        self.both = Stepped(self.options, {name: frozenset(paras) for name, paras in NODES.items()}, self.clients)
        self.links: set[Link] = set()
        """Both ways; of one that a node knows, the other end may not."""
        self.under_way: dict[Link, list[Packet]] = defaultdict(list)
        self.heard: dict[NodeId, list[Packet]] = {name: [] for name in HOSTILE}
        self.arrived: dict[NodeId, Arrived] = {}
        self.rows: list[Row] = []
        ring = [*NODES]
        self.r.shuffle(ring)
        self.pairs = {(a, b) for i, a in enumerate(ring) for b in (ring[i - 1], ring[i - 2]) if a != b}
        self.pairs |= {(a, b) for b in HOSTILE for a in self.r.sample(ring, self.degree)}

    @property
    def log(self) -> list[Row]:
        return [*self.base.log, *self.rows]

    def to(self, name: NodeId) -> Arrived:
        return self.arrived.setdefault(name, Arrived())

    # a slice

    def slice(self) -> None:
        if self.now == 0:
            for a, b in sorted(self.pairs):
                self.connect(a, b)
            for name in NODES if self.options.topology == "from_to" else ():
                self.to(name).subscribes = self.interests(name)
        else:
            self.happens()
        for name in NODES:
            if self.now == 0 or self.r.random() < self.chances.imports:
                self.catch_up(name)
        self.deliver()
        self.now += SLICE
        arrived, self.arrived = self.arrived, {}
        outs = self.both.step(self.now, arrived, self.r)
        for name, out in outs.items():
            self.rows += out.rows
            for k, packet in out.packets:
                if (name, k) in self.links:
                    self.under_way[name, k].append(packet)
        for name, out in outs.items():
            for k in out.dropped:
                self.disconnect(name, k, told=k)

    def settle(self) -> None:
        """Nothing more is made or said out of turn; everybody has all blocks, and all that waits arrives."""
        quiet = dict.fromkeys((kind.name for kind in fields(Chances)), 0.0)
        self.chances = Chances(**{**quiet, "imports": 1.0})
        for a, b in sorted(self.pairs):
            if b not in HOSTILE and (a, b) not in self.links:
                self.connect(a, b)
        for _ in range(14):
            self.slice()

    def happens(self) -> None:
        chances, r = self.chances, self.r
        if r.random() < chances.block:
            self.make()
        if r.random() < chances.reverts:
            self.reverts()
        if r.random() < chances.churn:
            a, b = r.choice(sorted(self.pairs))
            if (a, b) in self.links:
                self.disconnect(a, b)
            else:
                self.connect(a, b)
        for name in HOSTILE:
            for k in sorted(k for one, k in self.links if one == name):
                while r.random() < chances.hostile:
                    self.under_way[name, k].append(self.mischief(name))
        if r.random() < chances.answers:
            self.to(r.choice([*NODES])).answers.append(self.some_queue(r.random() < 0.3))
        if self.options.topology == "from_to" and r.random() < chances.subscribes:
            name = r.choice([*NODES])
            self.to(name).subscribes = self.interests(name)

    def deliver(self) -> None:
        for (a, b), waiting in sorted(self.under_way.items()):
            count = 0 if self.r.random() < self.chances.waits else self.r.randrange(len(waiting) + 1)
            now, self.under_way[a, b] = waiting[:count], waiting[count:]
            if b in NODES:
                self.to(b).said += [(a, packet) for packet in now]
            else:
                self.heard[b] += now
        for one in self.arrived.values():
            # Of several peers the packets are mixed, of each they keep their order.
            order = [k for k, _ in one.said]
            self.r.shuffle(order)
            of = {k: iter([packet for peer, packet in one.said if peer == k]) for k in order}
            one.said = [(k, next(of[k])) for k in order]

    # links

    def connect(self, a: NodeId, b: NodeId) -> None:
        self.links |= {(a, b), (b, a)}
        salt = H(f"{a} {b} {self.now}".encode())
        for name, k in ((a, b), (b, a)):
            if name in NODES:
                self.to(name).came.append((k, salt))

    def disconnect(self, a: NodeId, b: NodeId, told: NodeId | None = None) -> None:
        """``told``: the end that does not know yet; None: neither does."""
        if (a, b) not in self.links:
            return
        self.links -= {(a, b), (b, a)}
        for name, k in ((a, b), (b, a)):
            self.under_way.pop((name, k), None)
            if name in NODES and told in (None, name):
                self.to(name).left.append(k)

    # the relay chain

    def make(self) -> None:
        r = self.r
        parent = self.blocks[-1] if r.random() >= self.chances.fork else r.choice(self.blocks[-3:])
        candidates = []
        for p in PARAS:
            if r.random() < 0.7:
                take = None if r.random() < 0.5 else r.randrange(3)
                candidates.append(self.base.candidate(parent, p, self.sends(p), take))
        made = self.base.make(parent, candidates, seal=bytes([len(self.blocks)]))
        assert made.errors == []
        self.blocks.append(made.block.hash)

    def sends(self, p: int) -> list[tuple[int, bytes]]:
        """Few different messages, so that many queues are the same, and of several lengths."""
        others = [q for q in PARAS if q != p]
        return [
            (self.r.choice(others), bytes(self.r.choice((1, 1, 2, 40)))) for _ in range(self.r.choice((0, 1, 2, 3, 5)))
        ]

    def catch_up(self, name: NodeId) -> None:
        client = self.clients[name]
        lacking = [block for block in self.blocks if block not in client.imported]
        some = lacking if self.r.random() < 0.8 else lacking[:1]
        for block in some:
            if self.base.rt.relay.blocks[block].parent in client.imported:
                client.imported.add(block)
                self.executes(name, block)
        if some or self.r.random() < 0.1:
            self.to(name).leaves = client.leaves()

    def executes(self, name: NodeId, block: Hash) -> None:
        for (at, x, _), messages in sorted(self.base.posted.items()):
            if at == block and x in NODES[name]:
                self.both.nodes[name].kept[R(messages)] = tuple(messages)

    def reverts(self) -> None:
        """One node goes back by a block; it may import it again."""
        name = self.r.choice([*NODES])
        client, relay = self.clients[name], self.base.rt.relay
        block = self.r.choice(self.blocks[1:] or self.blocks)
        if self.first != block:
            client.imported = {C for C in client.imported if relay.blocks[block] not in relay.chain(C)}
            self.to(name).leaves = client.leaves()

    def interests(self, name: NodeId) -> frozenset[Label]:
        """What its chains need, and more."""
        own = [("to", p) for p in NODES[name]]
        return frozenset([*own, *self.r.sample(LABELS, self.r.randrange(1, 4))][: self.options.max_subscriptions])

    # those who obey no rule

    def some_queue(self, altered: bool) -> Envelope:
        """Of the last blocks; perhaps of a topic on which it is not."""
        r = self.r
        posted = [
            (block, x, y, m) for (block, x, y), m in sorted(self.base.posted.items()) if block in self.blocks[-4:]
        ]
        if not posted or r.random() < 0.15:
            messages: tuple[bytes, ...] = (bytes([r.randrange(256)]),)
            return Envelope(H(bytes([r.randrange(4)])), R(messages), messages)
        block, x, y, m = r.choice(posted)
        messages, root = tuple(m), R(m)
        topic = r.choice(topics(self.options, block if r.random() < 0.9 else self.first, x, y, root))
        if altered:
            messages = r.choice(((), (*messages, b"more"), messages[::-1], (bytes(50),)))
        return Envelope(topic, root, messages)

    def mischief(self, name: NodeId) -> Packet:
        r = self.r
        kind = r.randrange(10)
        heard = [packet for packet in self.heard[name] if isinstance(packet, Envelope)]
        if kind < 2:
            return Declaration(tuple(r.sample(self.blocks[-6:], min(len(self.blocks), r.randrange(7)))))
        if kind == 2:
            return Declaration(tuple(self.blocks[-2:]))
        if kind == 3 and heard:
            return r.choice(heard)
        if kind == 4:
            return Garbled()
        if kind == 5 and self.options.topology == "from_to":
            return Subscriptions(tuple(sorted(r.sample(LABELS, r.randrange(len(LABELS))))))
        if kind in (5, 6) and self.options.reconciliation == "minisketch":
            ids = tuple(r.randrange(1, 2**32) for _ in range(r.randrange(3)))
            return r.choice((Sketch(4, frozenset(ids)), Ask(ids), More(2 ** r.randrange(2, 8))))
        return self.some_queue(kind > 7)
