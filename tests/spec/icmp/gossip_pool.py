"""The pool of a node and its peers: what is put, sent and purged (3.8); who connects, and whose connection ends.

Decisions: those of `gossip`.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from tests.spec.icmp.events import NodeId, Peer, Pool, Reported, Sent
from tests.spec.icmp.network import messages_hash
from tests.spec.icmp.node import Chain, Key, Node, PeerState, allowed, listed
from tests.spec.icmp.packets import REPUTATION, Declaration, Envelope, Out, Packet, Subscriptions, size
from tests.spec.icmp.reconcile import FIRST_CAPACITY, sketch
from tests.spec.icmp.relay import Hash


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
        node.pool_bytes += size(queues[t, root])
        if t in node.expected:
            node.expected[t][root] = True
        out.rows.append(Pool(node.name, now, t, root, "put", messages_hash(queues[t, root])))
    for k in sorted(node.peers):
        for t, root in new:
            send(node, chain, now, out, k, t, root)


@dataclass
class Taken:
    """What one step puts; after the first for which there is no room, nothing."""

    queues: dict[Key, tuple[bytes, ...]] = field(default_factory=dict)
    size: int = 0
    full: bool = False


def take(node: Node, taken: Taken, key: Key, messages: tuple[bytes, ...]) -> bool:
    """Whether the pool has the queue, or will have it."""
    if key[1] in node.pool.get(key[0], {}) or key in taken.queues:
        return True
    if taken.full or node.pool_bytes + taken.size + size(messages) > node.options.max_pool_bytes:
        taken.full = True
        return False
    taken.queues[key] = messages
    taken.size += size(messages)
    return True


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
    node.banned = {one: until for one, until in node.banned.items() if until > now}
    if k in node.banned or len(node.peers.keys() - {k}) >= node.options.max_peers:
        return Out(dropped=[k])
    peer = node.peers.setdefault(k, PeerState())
    peer.leaves, peer.interests, peer.salt = (), frozenset(), salt
    told: list[tuple[NodeId, Packet]] = [(k, Declaration(node.leaves))] if node.leaves else []
    out = Out(told, [Peer(node.name, k, now, "connect")])
    if node.options.topology == "from_to":
        out.packets.append((k, Subscriptions(tuple(sorted(node.interests)))))
    return out


def disconnect(node: Node, now: int, k: NodeId) -> Out:
    node.peers.pop(k, None)
    return Out(rows=[Peer(node.name, k, now, "disconnect")])


def end(node: Node, now: int, out: Out, k: NodeId) -> None:
    """For what it sent."""
    del node.peers[k]
    out.dropped.append(k)
    if node.options.ban_time:
        node.banned[k] = now + node.options.ban_time
        longest = sorted(node.banned, key=lambda one: (-node.banned[one], one))
        node.banned = {one: node.banned[one] for one in longest[: node.options.max_banned]}


def earned(node: Node, now: int, out: Out, k: NodeId, reputation: int) -> None:
    node.peers[k].reputation = min(node.peers[k].reputation + reputation, node.options.most_reputation)
    if reputation < 0 and node.peers[k].reputation <= node.options.least_reputation:
        end(node, now, out, k)


def purge(node: Node, now: int) -> Out:
    out, live = Out(), listed(node)
    for t in sorted(node.pool):
        if t not in live:
            out.rows += [Pool(node.name, now, t, root, "purge") for root in sorted(node.pool[t])]
            node.pool_bytes -= sum(map(size, node.pool.pop(t).values()))
    for peer in node.peers.values() if node.options.seen_until == "purge" else ():
        peer.received = {key for key in peer.received if key[0] in live}
        peer.sent = {key for key in peer.sent if key[0] in live}
        peer.fresh = {key for key in peer.fresh if key[0] in live}
        peer.excused = set()
    out.rows.append(Pool(node.name, now, None, None, "sweep"))
    return out


def report(node: Node, now: int, out: Out, k: NodeId, error: str) -> None:
    out.rows.append(Reported(node.name, k, now, error, REPUTATION[error]))
    earned(node, now, out, k, REPUTATION[error])
