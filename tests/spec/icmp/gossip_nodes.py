"""The nodes of a gossip network, each a `Node` that the functions of `gossip` change, and what each one's client knows.

What happens to a node gives its packets and rows.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.spec.icmp import gossip, gossip_pool
from tests.spec.icmp.candidates import Found
from tests.spec.icmp.errors import IcmpError
from tests.spec.icmp.events import Ingress, NodeId
from tests.spec.icmp.gossip_step import Arrived, take_in
from tests.spec.icmp.node import Key, Node, Unrouted
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Envelope, Garbled, Out, Packet, Wanted
from tests.spec.icmp.relay import GENESIS, Block, Hash, ParaId
from tests.spec.icmp.runtime import Runtime, egress, ingress
from tests.spec.icmp.trie import R
from tests.spec.icmp.wire import decode

Said = Packet | tuple[Hash, bytes]
"""A packet, or a topic with raw bytes."""


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


class AnyNodes(Protocol):
    """What a network asks of its nodes."""

    def add(self, name: NodeId, collates: frozenset[ParaId], client: Client) -> None: ...
    def keeps(self, name: NodeId, messages: Sequence[bytes]) -> None: ...
    def connect(self, name: NodeId, now: int, k: NodeId, salt: Hash) -> Out: ...
    def disconnect(self, name: NodeId, now: int, k: NodeId) -> Out: ...
    def new_leaf(self, name: NodeId, now: int) -> Out: ...
    def said(self, name: NodeId, now: int, k: NodeId, packet: Said) -> Out: ...
    def purge(self, name: NodeId, now: int) -> Out: ...
    def fetch(self, name: NodeId, now: int, B: Hash, p: ParaId) -> tuple[Out, Found]: ...
    def requests(self, name: NodeId, B: Hash, p: ParaId, waited: int) -> list[Wanted]: ...
    def on_request(self, name: NodeId, root: Hash) -> tuple[bytes, ...] | None: ...
    def on_answer(self, name: NodeId, now: int, m: Envelope) -> tuple[Out, str | None]: ...
    def pool(self, name: NodeId) -> dict[Key, tuple[bytes, ...]]: ...
    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]: ...
    def leaves(self, name: NodeId) -> Sequence[Hash]: ...
    def held(self, name: NodeId) -> int: ...


class Nodes:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.nodes: dict[NodeId, Node] = {}
        self.clients: dict[NodeId, Client] = {}

    def add(self, name: NodeId, collates: frozenset[ParaId], client: Client) -> None:
        self.nodes[name] = Node(name, self.options, collates)
        self.clients[name] = client

    def keeps(self, name: NodeId, messages: Sequence[bytes]) -> None:
        self.nodes[name].kept[R(messages)] = tuple(messages)

    # what happens to a node

    def connect(self, name: NodeId, now: int, k: NodeId, salt: Hash) -> Out:
        return gossip_pool.connect(self.nodes[name], now, k, salt)

    def disconnect(self, name: NodeId, now: int, k: NodeId) -> Out:
        return gossip_pool.disconnect(self.nodes[name], now, k)

    def new_leaf(self, name: NodeId, now: int) -> Out:
        client = self.clients[name]
        return gossip.on_new_leaf(self.nodes[name], client, now, client.leaves())

    def said(self, name: NodeId, now: int, k: NodeId, packet: Said) -> Out:
        node, client = self.nodes[name], self.clients[name]
        if isinstance(packet, tuple):
            try:
                packet = decode(*packet)
            except IcmpError:
                packet = Garbled()
        return take_in(node, client, now, Arrived(said=[(k, packet)]))

    def purge(self, name: NodeId, now: int) -> Out:
        return gossip_pool.purge(self.nodes[name], now)

    # collecting

    def fetch(self, name: NodeId, now: int, B: Hash, p: ParaId) -> tuple[Out, Found]:
        return gossip.fetch(self.nodes[name], self.clients[name], now, B, p)

    def requests(self, name: NodeId, B: Hash, p: ParaId, waited: int) -> list[Wanted]:
        return gossip.requests(self.nodes[name], self.clients[name], B, p, waited)

    def on_request(self, name: NodeId, root: Hash) -> tuple[bytes, ...] | None:
        return gossip.on_request(self.nodes[name], root)

    def on_answer(self, name: NodeId, now: int, m: Envelope) -> tuple[Out, str | None]:
        return gossip.on_answer(self.nodes[name], self.clients[name], now, m)

    # what a test looks at

    def pool(self, name: NodeId) -> dict[Key, tuple[bytes, ...]]:
        return {(t, root): messages for t, roots in self.nodes[name].pool.items() for root, messages in roots.items()}

    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]:
        return self.nodes[name].expected

    def leaves(self, name: NodeId) -> Sequence[Hash]:
        return self.nodes[name].leaves

    def held(self, name: NodeId) -> int:
        node = self.nodes[name]
        seen = sum(len(k.received) + len(k.sent) + len(k.leaves) for k in node.peers.values())
        views = sum(len(roots) for view in node.views.values() for roots in view.values())
        return len(self.pool(name)) + len(node.peers) + seen + views + sum(map(len, node.expected.values()))
