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
- An impolite act has no price of its own; all else that is wrong has its price (X-1). A connection ends with the
  `impolite_limit`-th impolite act, or when a price takes a reputation to `least_reputation`. What the peer sent after
  that is not read, and it is banned: until then whoever connects is told and asked nothing.
- Bans that last longest are remembered, of equal ones those of the first names; and a node with `max_peers` connects to
  nobody else.
- A queue with too many messages or bytes is Malformed, before anything else is asked of it.
- A good queue for which the pool has no room is PoolFull: its sender did what it should, so it earns what a good queue
  does, once. What the node keeps itself goes into its pool as long as there is room.
- A node tells its subscriptions in full, when somebody connects and when they change (5.1 (3)). To hear them has the
  effect of a declaration of the same heads. More than `max_subscriptions` are Malformed.
- `mistrust_unimplied` costs extra whatever else a queue brings, but for duplicates and impolite ones. Heads that the
  node does not know imply nothing.
- Decoding comes first (Malformed), then the bound of heads (BadNeighborPacket); the order of a queue's errors is 3.7's:
  Impolite, UnexpectedQueue, RootMismatch. A packet of somebody who is not connected is not read.
- Collecting needs the state of its block, so that block is a leaf (1.4 (3)); its topics are live then, so that the pool
  has all that ever came. A chain that is not registered wants nothing.
"""

from collections.abc import Collection, Sequence

from tests.spec.icmp.candidates import Found, collect, missing
from tests.spec.icmp.events import Fetch, Got, Heads, Ingress, Leaf, NodeId, Read, Row, Verdict
from tests.spec.icmp.gossip_pool import Taken, earned, end, propagate, push, put, report, send, take
from tests.spec.icmp.node import (
    Chain,
    Label,
    Node,
    Unrouted,
    best,
    common,
    expectedQueues,
    implied,
    labels_of,
    leafTopics,
    listed,
    near,
    topic_of,
)
from tests.spec.icmp.options import MAX_CHAIN_HEADS
from tests.spec.icmp.packets import REPUTATION, Declaration, Envelope, Garbled, Out, Subscriptions, Wanted
from tests.spec.icmp.reconcile import Ask, More, Sketch, difference, shared, sketch
from tests.spec.icmp.relay import Block, Hash, ParaId
from tests.spec.icmp.trie import R, topics

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
            unrouted = chain.unrouted(l)
            views[l] = leafTopics(node.options, unrouted)
            node.labels |= about(node, unrouted)
    kept = near(chain, node.leaves, node.options.ancestors)
    node.views = {B: views[B] for B in kept if B in views}
    live = listed(node)
    node.labels = {t: label for t, label in node.labels.items() if t in live}
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
    taken = Taken()
    for root, t in sorted((root, t) for t, expected in listed(node).items() for root in roots & expected):
        take(node, taken, (t, root), node.kept[root])
    put(node, chain, now, out, taken.queues)


# 5.1 (3)


def about(node: Node, unrouted: Sequence[Unrouted]) -> dict[Hash, Label]:
    if node.options.topology == "flat":
        return {}
    pairs = [
        zip(topics(node.options, u.block, u.sender, u.recipient, u.root), labels_of(u), strict=True) for u in unrouted
    ]
    return {t: label for pair in pairs for t, label in pair}


def subscribe(node: Node, interests: Collection[Label]) -> Out:
    node.interests = frozenset(interests)
    node.expected = expectedQueues(node)
    return Out([(k, Subscriptions(tuple(sorted(node.interests)))) for k in sorted(node.peers)])


def on_subscriptions(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, Subscriptions]]) -> Out:
    """Of what a peer says in one step the last counts; then everybody is sent what that allows."""
    out, told = Out(), set[NodeId]()
    for k, s in came:
        if k in node.peers and len(s.labels) > node.options.max_subscriptions:
            report(node, now, out, k, "Malformed")
        elif k in node.peers:
            node.peers[k].interests = frozenset(s.labels)
            told.add(k)
    for k in sorted(told & node.peers.keys()):
        propagate(node, chain, now, out, k, common(node, chain, node.peers[k].leaves))
    return out


# 3.6, 3.7


def on_chain_heads(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, Declaration | Garbled]]) -> Out:
    """Of what a peer declared in one step the last counts; then everybody is sent what that allows."""
    out = Out()
    before = {k: common(node, chain, peer.leaves) for k, peer in node.peers.items()}
    told: set[NodeId] = set()
    for k, m in came:
        if k not in node.peers:
            continue
        if isinstance(m, Garbled):
            report(node, now, out, k, "Malformed")
            continue
        heads = m.heads
        if len(heads) > MAX_CHAIN_HEADS:
            out.rows.append(Heads(node.name, k, now, heads, "BadNeighborPacket"))
            report(node, now, out, k, "BadNeighborPacket")
            continue
        if node.options.seen_until == "purge" and heads != node.peers[k].leaves:
            peer = node.peers[k]
            peer.excused, peer.fresh = peer.excused | peer.fresh, peer.fresh & peer.excused
        node.peers[k].leaves = heads
        told.add(k)
        out.rows.append(Heads(node.name, k, now, heads))
    for k in sorted(told & node.peers.keys()):
        blocks = common(node, chain, node.peers[k].leaves)
        if node.options.heads_diff == "new_only":
            blocks = [B for B in blocks if B not in before[k]]
        propagate(node, chain, now, out, k, blocks)
    return out


def on_queues(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, Envelope]]) -> Out:
    """All that came in one step is judged before anything of it is put."""
    out, taken = Out(), Taken()
    for k, m in came:
        if k in node.peers:
            judge(node, chain, now, out, k, m, taken)
    put(node, chain, now, out, taken.queues)
    return out


def judge(node: Node, chain: Chain, now: int, out: Out, k: NodeId, m: Envelope, taken: Taken) -> None:
    peer, key = node.peers[k], (m.topic, m.root)

    def got(verdict: Verdict, error: str | None, reputation: int, accesses: int) -> None:
        if verdict in ("good", "wasteful") and node.options.mistrust_unimplied == "on":
            yes, more = implied(node, chain, k, m.topic, m.root)
            reputation, accesses = reputation + (0 if yes else node.options.mistrust), accesses + more
        out.rows.append(Got(node.name, k, now, m.topic, m.root, m.size, verdict, error, reputation, accesses))
        earned(node, now, out, k, reputation)

    if len(m.messages) > node.options.max_queue_messages or m.size > node.options.max_queue_bytes:
        report(node, now, out, k, "Malformed")
    elif key in peer.fresh:
        got("disallowed", "Impolite", 0, 1)
        peer.impolite += 1
        if peer.impolite >= node.options.impolite_limit:
            end(node, now, out, k)
    elif key in peer.sent or key in peer.received:
        got("duplicate", None, 0, 1)
        peer.fresh.add(key)
    elif m.root not in node.expected.get(m.topic, {}):
        got("wasteful", "UnexpectedQueue", REPUTATION["UnexpectedQueue"], 2)
    elif R(m.messages) != m.root:
        got("wasteful", "RootMismatch", REPUTATION["RootMismatch"] * max(1, len(m.messages)), 2)
    else:
        peer.received.add(key)
        peer.fresh.add(key)
        got("good", None if take(node, taken, key, m.messages) else "PoolFull", REPUTATION["good"], 2)


# 5.1 (4)


def on_sketches(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, Sketch]]) -> Out:
    out, last = Out(), dict[NodeId, Sketch]()
    for k, s in came:
        if k in node.peers and not 1 <= s.capacity <= node.options.max_sketch_capacity:
            report(node, now, out, k, "Malformed")
        elif k in node.peers:
            last[k] = s
    decoded = 0
    for k in sorted(last.keys() & node.peers.keys()):
        decoded += 1
        if decoded > node.options.max_step_sketches:
            out.packets.append((k, More(node.options.max_sketch_capacity + 1)))
            continue
        own = shared(node, chain, k, node.interests)
        found = difference(last[k], own)
        if found is None:
            out.packets.append((k, More(2 * last[k].capacity)))
        elif found - own.keys():
            out.packets.append((k, Ask(tuple(sorted(found - own.keys())))))
    return out


def on_more(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, More]]) -> Out:
    out, made = Out(), 0
    for k, m in sorted({k: m for k, m in came if k in node.peers}.items()):
        made += m.capacity <= node.options.max_sketch_capacity
        if m.capacity > node.options.max_sketch_capacity or made > node.options.max_step_sketches:
            push(node, chain, now, out, k, common(node, chain, node.peers[k].leaves))
        else:
            out.packets.append((k, sketch(node, chain, k, m.capacity)))
    return out


def on_asks(node: Node, chain: Chain, now: int, came: Sequence[tuple[NodeId, Ask]]) -> Out:
    out, asked = Out(), dict[NodeId, set[int]]()
    for k, a in came:
        if k in node.peers:
            asked.setdefault(k, set()).update(a.ids)
    for k in sorted(asked):
        own = shared(node, chain, k, node.peers[k].interests)
        for t, root in sorted(own[i] for i in asked[k] & own.keys()):
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
    taken = Taken()
    if not take(node, taken, (m.topic, m.root), m.messages):
        return out, "PoolFull"
    put(node, chain, now, out, taken.queues)
    return out, None
