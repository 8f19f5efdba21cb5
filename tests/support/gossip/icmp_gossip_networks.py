"""Generated histories of gossip: forks, nodes that are late, links that break, packets that are lost, a stranger."""

from collections.abc import Callable
from random import Random

from tests.spec.icmp.candidates import Candidate
from tests.spec.icmp.gossip_network import GossipNetwork
from tests.spec.icmp.gossip_nodes import AnyNodes, Nodes
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope, Packet
from tests.spec.icmp.relay import Hash
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import R

PARAS = (1, 2, 3)
NODES = {"a": (1,), "b": (2,), "c": (3,), "d": (1, 2), "v": (), "w": ()}
LINKS = (("a", "b"), ("b", "c"), ("c", "v"), ("v", "d"), ("d", "w"), ("w", "a"), ("b", "w"))
SLOT, PROPAGATION, LATENCY = 5_000, 2_000, 500
"""1.4: blocks at least so far apart, nodes at most so much later than each other, links at most so slow."""


class World:
    """A network that makes a relay block a slot; whatever is random comes of one seed."""

    def __init__(
        self, seed: int, options: Options, loss: float = 0.0, nodes: Callable[[Options], AnyNodes] = Nodes
    ) -> None:
        self.r = Random(seed)
        self.g = GossipNetwork(
            options,
            lambda _from, _to: self.r.randrange(20, LATENCY),
            lambda _from, _to: self.r.random() < loss,
            nodes,
        )
        self.first = self.g.base.make(calls=[Call("register", p, head=b"head") for p in PARAS]).block.hash
        self.blocks = [self.first]
        for name, paras in NODES.items():
            self.g.add(name, *paras)
            self.g.imports(name, self.first)
        self.g.stranger("s")
        for a, b in (*LINKS, ("s", "a"), ("s", "v")):
            self.g.connect(a, b)

    def sends(self, p: int) -> list[tuple[int, bytes]]:
        """Few different messages, so that many queues are the same."""
        others = [q for q in PARAS if q != p]
        return [(self.r.choice(others), bytes([self.r.randrange(4)])) for _ in range(self.r.randrange(4))]

    def candidates(self, parent: Hash) -> list[Candidate]:
        """Of every chain that has a collator who sees the parent: all that it could collect."""
        found = []
        for p in PARAS:
            able = [n for n, paras in NODES.items() if p in paras and parent in self.g.leaves(n)]
            if able and self.r.random() < 0.8:
                held = self.g.fetch(self.r.choice(able), parent, p)
                found.append(self.g.base.candidate(parent, p, self.sends(p), held=held))
        return found

    def slot(self, fork: float = 0.25, late: float = 0.0) -> None:
        """A block, and all import it at some time of their own; some not before the next."""
        parent = self.blocks[-1] if self.r.random() >= fork else self.r.choice(self.blocks[-4:])
        made = self.g.base.make(parent, self.candidates(parent), seal=bytes([len(self.blocks)]))
        assert made.errors == []
        self.blocks.append(made.block.hash)
        end, delays = self.g.now + SLOT, sorted((self.r.randrange(PROPAGATION), name) for name in NODES)
        start = self.g.now
        for delay, name in delays:
            self.g.run(start + delay - self.g.now)
            if self.r.random() >= late:
                self.catch_up(name)
        self.g.run(end - self.g.now)

    def catch_up(self, name: str) -> None:
        has = self.g.clients[name].imported
        lacking = [B for B in self.blocks if B not in has]
        if lacking:
            self.g.imports(name, *lacking)

    def churn(self) -> None:
        """A link breaks, or is made again."""
        a, b = self.r.choice(LINKS)
        (self.g.disconnect if b in self.g.connected(a) else self.g.connect)(a, b)

    def mischief(self) -> None:
        """The stranger says something to one of its peers."""
        peers = self.g.connected("s")
        if peers:
            said = self.r.choice(MISCHIEF)(self)
            if said is not None:
                self.g.says("s", self.r.choice(peers), said)


def some_queue(w: World) -> Envelope | None:
    heard = [packet for _, packet in w.g.heard["s"] if isinstance(packet, Envelope)]
    return w.r.choice(heard) if heard else None


def altered(w: World) -> Envelope | None:
    m = some_queue(w)
    return m and Envelope(m.topic, m.root, (*m.messages, b"more"))


def unheard_of(w: World) -> Envelope:
    messages = (bytes([w.r.randrange(256)]),)
    return Envelope(b"t" * 32, R(messages), messages)


def declared(w: World) -> Declaration:
    return Declaration(tuple(w.r.sample(w.blocks, min(len(w.blocks), w.r.randrange(8)))))


def honest(w: World) -> Declaration:
    return Declaration(tuple(w.blocks[-1:]))


MISCHIEF: tuple[Callable[[World], Packet | tuple[Hash, bytes] | None], ...] = (
    some_queue,
    altered,
    unheard_of,
    declared,
    honest,
    honest,
    lambda w: (b"t" * 32, bytes([w.r.randrange(6)]) * w.r.randrange(40)),
)


def run(
    seed: int,
    options: Options,
    slots: int,
    loss: float = 0.0,
    churn: float = 0.3,
    late: float = 0.1,
    nodes: Callable[[Options], AnyNodes] = Nodes,
) -> World:
    w = World(seed, options, loss, nodes)
    for _ in range(slots):
        w.mischief()
        if w.r.random() < churn:
            w.churn()
        w.slot(late=late)
    return w
