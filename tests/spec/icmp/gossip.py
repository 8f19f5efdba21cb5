"""What a gossip node does: on a new leaf, on a declaration, on a queue, and with its pool (3.5 to 3.9).

Each function takes the node, what it may ask of the chain, the time (a label of the rows, nothing depends on it) and
its input; it changes the node and gives packets and rows in order. Peers, topics and roots are gone through in
ascending order.

Decisions.
- A peer that connects is told the leaves at once: 3.8 says only that nothing is allowed before it declares its own, and
  would let a node that joins wait for the next block (hazard 16).
- `propagate_on_leaf = off | on`. 3.5 sends nothing that is in the pool already. A peer that declares a head before this
  node has it is sent nothing at its declaration, and nothing when the head arrives: whoever is always behind never
  serves whoever is always ahead (L1). With `on`, a new leaf has the effect of a declaration of all peers that have it.
- "Not yet propagated" (3.5 step 3) is "not in the pool": what was purged with a fork is put again when that returns.
- Step 3 is done for every leaf that is new in `leaves`; one that is not among the best has no topics. What a node keeps
  goes on every topic that expects its root: whoever else posted the same messages, they are these.
- What is in the pool already is not put again: it went to everybody when it became allowed, and to look at all peers
  for each copy that comes would cost the square of their number.
- What one event sends to one peer goes in ascending order of topics and roots.
- A queue that we sent to a peer and that it sends back once is a duplicate and costs nothing: two nodes that hold the
  same queue may send it at the same time. Sent a second time it is impolite (hazard 13).
- A good queue counts as beneficial once a peer, also if another peer was first: the text asks for good(m) only.
- Wasteful queues are not remembered: there is no bound to what is unexpected (hazard 14), and whoever sent other
  messages than the root's does not have these.
- Only impolite acts end a connection; all else that is wrong has its price (X-1), and who pays how much is the peer
  set's matter. An impolite act has no price of its own.
- `mistrust_unimplied` costs extra whatever else a queue brings, but for duplicates and impolite ones. Heads that the
  node does not know imply nothing.
- Decoding comes first (Malformed), then the bound of heads (BadNeighborPacket); the order of a queue's errors is 3.7's:
  Impolite, UnexpectedQueue, RootMismatch. A packet of somebody who is not connected is not read.
- Collecting needs the state of its block, so that block is a leaf (1.4 (3)); its topics are live then, so that the pool
  has all that ever came. A chain that is not registered wants nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from .candidates import Found, collect, missing
from .events import Fetch, Got, Heads, Ingress, Leaf, NodeId, Peer, Pool, Read, Reported, Row, Sent, Verdict
from .network import messages_hash
from .node import (
    Chain,
    Key,
    Node,
    PeerState,
    allowed,
    best,
    common,
    expectedQueues,
    implied,
    leafTopics,
    near,
    topic_of,
)
from .options import MAX_CHAIN_HEADS
from .reconcile import FIRST_CAPACITY, MAX_CAPACITY, Ask, More, Sketch, difference, shared, sketch
from .relay import Block, Hash, ParaId
from .trie import R

REPUTATION = {"good": 50, "UnexpectedQueue": -100, "RootMismatch": -150, "BadNeighborPacket": -300, "Malformed": -500}
"""X-1. RootMismatch is per message, of at least one (D-14)."""


@dataclass(frozen=True)
class Declaration:
    """A neighbour packet."""

    heads: tuple[Hash, ...]


@dataclass(frozen=True)
class Envelope:
    """A queue on a topic."""

    topic: Hash
    root: Hash
    messages: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(len(message) for message in self.messages)


Packet = Declaration | Envelope | Sketch | Ask | More
Wanted = tuple[int, ParaId, Hash]
"""A queue that is missing: number of its block, sender, root."""


@dataclass
class Out:
    packets: list[tuple[NodeId, Packet]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    dropped: list[NodeId] = field(default_factory=list)
    """Peers to disconnect from."""


# 3.8


def send(node: Node, chain: Chain, now: int, out: Out, k: NodeId, t: Hash, root: Hash) -> None:
    """One pool message to one peer, if it is allowed."""
    yes, accesses = allowed(node, chain, k, t, root)
    if yes:
        m = Envelope(t, root, node.pool[t][root])
        node.peers[k].sent.add((t, root))
        out.packets.append((k, m))
        out.rows.append(Sent(node.name, k, now, t, root, m.size, accesses))


def put(node: Node, chain: Chain, now: int, out: Out, queues: dict[Key, tuple[bytes, ...]]) -> None:
    """Those that the pool does not have yet; each peer is sent what it is allowed, in ascending order."""
    new = sorted((t, root) for t, root in queues if root not in node.pool.get(t, {}))
    for t, root in new:
        node.pool.setdefault(t, {})[root] = queues[t, root]
        node.expected[t][root] = True
        out.rows.append(Pool(node.name, now, t, root, "put", messages_hash(queues[t, root])))
    for k in sorted(node.peers):
        for t, root in new:
            send(node, chain, now, out, k, t, root)


def propagateTopic(node: Node, chain: Chain, now: int, out: Out, k: NodeId, t: Hash) -> None:
    for root in sorted(node.pool.get(t, {})):
        send(node, chain, now, out, k, t, root)


def propagate(node: Node, chain: Chain, now: int, out: Out, k: NodeId, blocks: Collection[Hash]) -> None:
    """The topics of these common leaves to one peer; with sketches, a sketch of those of all common leaves."""
    if node.options.reconciliation == "minisketch":
        some = [B for B in blocks if B in node.views]
        out.packets += [(k, sketch(node, chain, k, FIRST_CAPACITY))] if some else []
        return
    push(node, chain, now, out, k, blocks)


def push(node: Node, chain: Chain, now: int, out: Out, k: NodeId, blocks: Collection[Hash]) -> None:
    for t in sorted({t for B in blocks for t in node.views.get(B, {})}):
        propagateTopic(node, chain, now, out, k, t)


def connect(node: Node, now: int, k: NodeId, salt: Hash = b"") -> Out:
    """Nothing of the pool is allowed yet: the peer has declared no leaves."""
    node.peers[k] = PeerState(salt=salt)
    return Out([(k, Declaration(node.leaves))], [Peer(node.name, k, now, "connect")])


def disconnect(node: Node, now: int, k: NodeId) -> Out:
    del node.peers[k]
    return Out(rows=[Peer(node.name, k, now, "disconnect")])


def purge(node: Node, now: int) -> Out:
    out = Out()
    for t in sorted(node.pool):
        if t not in node.expected:
            out.rows += [Pool(node.name, now, t, root, "purge") for root in sorted(node.pool[t])]
            del node.pool[t]
            for peer in node.peers.values() if node.options.seen_until == "purge" else ():
                peer.received = {key for key in peer.received if key[0] != t}
                peer.sent = {key for key in peer.sent if key[0] != t}
                peer.fresh = {key for key in peer.fresh if key[0] != t}
    out.rows.append(Pool(node.name, now, None, None, "sweep"))
    return out


# 3.5


def on_new_leaf(node: Node, chain: Chain, now: int, leaves: Collection[Block]) -> Out:
    """`leaves` are all leaves that the node's client knows."""
    out, before, views = Out(), node.leaves, dict(node.views)
    shared = {k: common(node, chain, peer.leaves) for k, peer in node.peers.items()}
    node.leaves = best(leaves)
    out.rows.append(Leaf(node.name, now, node.leaves))
    for l in node.leaves:  # noqa: E741
        if l not in views:
            out.rows.append(Read(node.name, now, l))
            views[l] = leafTopics(node.options, chain.unrouted(l))
    kept = near(chain, node.leaves, node.options.ancestors)
    node.views = {B: views[B] for B in kept if B in views}
    node.expected = expectedQueues(node)
    for k in sorted(node.peers):
        out.packets.append((k, Declaration(node.leaves)))
    if node.options.propagate_on_leaf == "on":
        for k in sorted(node.peers):
            now_shared = common(node, chain, node.peers[k].leaves)
            propagate(node, chain, now, out, k, [B for B in now_shared if B not in shared[k]])
    put_own(node, chain, now, out, [leaf for leaf in node.leaves if leaf not in before])
    return out


def put_own(node: Node, chain: Chain, now: int, out: Out, leaves: Sequence[Hash]) -> None:
    roots = set()
    for leaf in leaves:
        out.rows += [Read(node.name, now, leaf) for _ in node.collates]
        roots |= {u.root for p in node.collates for u in chain.egress(leaf, p)} & node.kept.keys()
    queues = {(t, root): node.kept[root] for t, expected in node.expected.items() for root in roots & expected.keys()}
    put(node, chain, now, out, queues)


# 3.6, 3.7


def on_chain_heads(node: Node, chain: Chain, now: int, k: NodeId, heads: tuple[Hash, ...]) -> Out:
    out, peer = Out(), node.peers[k]
    if len(heads) > MAX_CHAIN_HEADS:
        out.rows.append(Heads(node.name, k, now, heads, "BadNeighborPacket"))
        out.rows.append(reported(node, now, k, "BadNeighborPacket"))
        return out
    before = common(node, chain, peer.leaves)
    if node.options.seen_until == "purge" and heads != peer.leaves:
        peer.fresh = set()
    peer.leaves = heads
    out.rows.append(Heads(node.name, k, now, heads))
    blocks = common(node, chain, heads)
    if node.options.heads_diff == "new_only":
        blocks = [B for B in blocks if B not in before]
    propagate(node, chain, now, out, k, blocks)
    return out


def on_queue(node: Node, chain: Chain, now: int, k: NodeId, m: Envelope) -> Out:
    out, peer, key = Out(), node.peers[k], (m.topic, m.root)

    def got(verdict: Verdict, error: str | None, reputation: int, accesses: int) -> None:
        if verdict in ("good", "wasteful") and node.options.mistrust_unimplied == "on":
            yes, more = implied(node, chain, k, m.topic, m.root)
            reputation, accesses = reputation + (0 if yes else node.options.mistrust), accesses + more
        peer.reputation += reputation
        out.rows.append(Got(node.name, k, now, m.topic, m.root, m.size, verdict, error, reputation, accesses))

    if key in peer.fresh:
        got("disallowed", "Impolite", 0, 1)
        peer.impolite += 1
        if peer.impolite >= node.options.impolite_limit:
            out.dropped.append(k)
    elif key in peer.sent or key in peer.received:
        got("duplicate", None, 0, 1)
        peer.fresh.add(key)
    elif m.root not in node.expected.get(m.topic, {}):
        got("wasteful", "UnexpectedQueue", REPUTATION["UnexpectedQueue"], 2)
    elif R(m.messages) != m.root:
        got("wasteful", "RootMismatch", REPUTATION["RootMismatch"] * max(1, len(m.messages)), 2)
    else:
        got("good", None, REPUTATION["good"], 2)
        peer.received.add(key)
        peer.fresh.add(key)
        put(node, chain, now, out, {key: m.messages})
    return out


def on_malformed(node: Node, now: int, k: NodeId) -> Out:
    return Out(rows=[reported(node, now, k, "Malformed")])


def reported(node: Node, now: int, k: NodeId, error: str) -> Reported:
    node.peers[k].reputation += REPUTATION[error]
    return Reported(node.name, k, now, error, REPUTATION[error])


# 5.1 (4)


def on_sketch(node: Node, chain: Chain, k: NodeId, s: Sketch) -> Out:
    own = shared(node, chain, k)
    found = difference(s, own)
    if found is None:
        return Out([(k, More(2 * s.capacity))])
    lacking = tuple(sorted(found - own.keys()))
    return Out([(k, Ask(lacking))] if lacking else [])


def on_more(node: Node, chain: Chain, now: int, k: NodeId, m: More) -> Out:
    out = Out()
    if m.capacity > MAX_CAPACITY:
        push(node, chain, now, out, k, common(node, chain, node.peers[k].leaves))
    else:
        out.packets.append((k, sketch(node, chain, k, m.capacity)))
    return out


def on_ask(node: Node, chain: Chain, now: int, k: NodeId, a: Ask) -> Out:
    out, own = Out(), shared(node, chain, k)
    for t, root in sorted(own[i] for i in set(a.ids) & own.keys()):
        send(node, chain, now, out, k, t, root)
    return out


# 3.9


def want(node: Node, chain: Chain, B: Hash, p: ParaId) -> tuple[Ingress, Found]:
    """ingress(B, p), and what of it is in the pool: in block mode on the topic of its block."""
    assert B in node.leaves, "the state of a block is there while it is a leaf"
    wanted: dict[int, list[tuple[ParaId, Hash]]] = {}
    found: dict[tuple[int, Hash], Sequence[bytes]] = {}
    for u in chain.ingress(B, p):
        wanted.setdefault(u.number, []).append((u.sender, u.root))
        pooled = node.pool.get(topic_of(node.options, u), {})
        if u.root in pooled:
            found[u.number, u.root] = pooled[u.root]
    return tuple((n, tuple(pairs)) for n, pairs in wanted.items()), found


def fetch(node: Node, chain: Chain, now: int, B: Hash, p: ParaId) -> tuple[Out, Found]:
    """The complete prefix at this moment (steps 1 and 2), as the row `Fetch`; and all that was found."""
    wanted, found = want(node, chain, B, p)
    prefix = tuple(n for n, _ in collect(wanted, found))
    rows: list[Row] = [Read(node.name, now, B), Fetch(node.name, now, B, p, tuple(n for n, _ in wanted), prefix)]
    return Out(rows=rows), found


def requests(node: Node, chain: Chain, B: Hash, p: ParaId, waited: int) -> list[Wanted]:
    """What a validator of p asks the senders' holders for, after it has waited long enough (step 3)."""
    if node.options.fallback_request == "off" or waited < node.options.fallback_after:
        return []
    return missing(*want(node, chain, B, p))


def on_request(node: Node, root: Hash) -> tuple[bytes, ...] | None:
    """What a holder answers."""
    return node.kept.get(root)


def on_answer(node: Node, chain: Chain, now: int, m: Envelope) -> tuple[Out, str | None]:
    """The same acceptance as on gossip, but nobody's reputation; what is good is gossiped here."""
    if m.root not in node.expected.get(m.topic, {}):
        return Out(), "UnexpectedQueue"
    if R(m.messages) != m.root:
        return Out(), "RootMismatch"
    out = Out()
    put(node, chain, now, out, {(m.topic, m.root): m.messages})
    return out, None
