"""A gossip node: its state (2.5), what it expects of a leaf, and what it may send to whom (3.8: allowed).

Decisions.
- A gossip message is the envelope, (topic, Queue) of 2.2, so `seen` of a peer has pairs (topic, root). With roots
  alone, as 2.5 has it, a queue that is posted again with the same messages would never travel a second time, and in
  block mode nobody could collect it under its second block (L1, L2; hazard 15).
- `allowed_by = topic | root`. By the text (D-5) a message is allowed if a common leaf has its topic. In block mode one
  topic has many roots, of which some may be routed at that leaf: then a queue is allowed that its receiver does not
  expect, whoever obeys is noted as wasteful, and the queue counts as sent, so that it does not come again when a fork
  needs it (L1). With `root`, a common leaf must have the root on the topic. In root mode they are the same.
- `seen_until = disconnect | purge`: how long is remembered what was seen with a peer. G8 and the text know no end but
  the connection's. Then it grows with history, and a queue that was purged, and whose fork comes back, is not sent
  again to those who purged it (L1). With `purge`, it is forgotten with its topic; and since a peer that purged may send
  again to one that did not, repeating is impolite only if the peer has not declared other heads since: whoever purges
  has other leaves, and has said so before.
- Best leaves are those of the highest numbers and, of one number, the smallest hashes (hazard 29).
- A root is known if it is in the pool on its topic: so an entry that remains keeps its flag, and so does one whose leaf
  goes and comes back between two purges.
- `ancestors` (5.1 (1)): the views of a leaf's last ancestors are kept if they were leaves here once; they are expected
  as the leaves' are, or what a peer may send would be held against it. Of a peer's heads, those ancestors count whose
  headers the node has.
- `from_to` (5.1 (3)): a node tells what it subscribes to. It expects the topics that it subscribes to and sends those
  that its peer subscribes to. What it keeps goes on topics to which it need not subscribe; so a topic is live, and is
  not purged, while a view has it. Whoever collects for p looks on the topic of what goes to p.
- Of a leaf that lists more than `max_leaf_queues` entries the first ones count, in the order of the runtime's lists.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tests.spec.icmp.events import NodeId
from tests.spec.icmp.options import MAX_CHAIN_HEADS, Options
from tests.spec.icmp.relay import Block, Hash, ParaId
from tests.spec.icmp.trie import topics

Key = tuple[Hash, Hash]
"""Topic and root."""
View = dict[Hash, set[Hash]]
"""leafTopics(l), with the roots of each topic."""
Label = tuple[str, ParaId]
"""What one subscribes to: ("from", x) or ("to", y)."""


class Unrouted(NamedTuple):
    """A root of ingress or egress; `block` is the block of that number on the leaf's chain."""

    number: int
    block: Hash
    sender: ParaId
    recipient: ParaId
    root: Hash


class Chain(Protocol):
    """What a node asks of the relay chain: states of leaves, headers of blocks that it has."""

    def parent(self, B: Hash) -> Hash | None: ...
    def unrouted(self, leaf: Hash) -> Sequence[Unrouted]: ...
    def ingress(self, leaf: Hash, p: ParaId) -> Sequence[Unrouted]: ...
    def egress(self, leaf: Hash, p: ParaId) -> Sequence[Unrouted]: ...


@dataclass
class PeerState:
    leaves: tuple[Hash, ...] = ()
    received: set[Key] = field(default_factory=set)
    sent: set[Key] = field(default_factory=set)
    fresh: set[Key] = field(default_factory=set)
    """Of what was received: what may not come again."""
    excused: set[Key] = field(default_factory=set)
    """What a declaration has let come again since the last purge of this node."""
    salt: Hash = b""
    """Of the connection (5.1 (4))."""
    impolite: int = 0
    reputation: int = 0
    """The sum of what it sent (X-1)."""
    interests: frozenset[Label] = frozenset()
    """What it says that it subscribes to (5.1 (3))."""


@dataclass
class Node:
    name: NodeId
    options: Options = field(default_factory=Options)
    collates: frozenset[ParaId] = frozenset()
    """Chains of which it is a collator or a full node."""
    leaves: tuple[Hash, ...] = ()
    views: dict[Hash, View] = field(default_factory=dict)
    expected: dict[Hash, dict[Hash, bool]] = field(default_factory=dict)
    """expectedQueues, each root with its flag known."""
    pool: dict[Hash, dict[Hash, tuple[bytes, ...]]] = field(default_factory=dict)
    peers: dict[NodeId, PeerState] = field(default_factory=dict)
    pool_bytes: int = 0
    kept: dict[Hash, tuple[bytes, ...]] = field(default_factory=dict)
    interests: frozenset[Label] = frozenset()
    labels: dict[Hash, Label] = field(default_factory=dict)
    """What the topics of the views are about, with from_to."""
    banned: dict[NodeId, int] = field(default_factory=dict)
    """Until when they are not connected again."""
    purge_at: int = 0


def best(leaves: Iterable[Block]) -> tuple[Hash, ...]:
    ordered = sorted(leaves, key=lambda block: (-block.number, block.hash))
    return tuple(block.hash for block in ordered[:MAX_CHAIN_HEADS])


def topic_of(options: Options, u: Unrouted) -> Hash:
    """The only one; with from_to the one of what goes to its recipient."""
    return topics(options, u.block, u.sender, u.recipient, u.root)[-1]


def labels_of(u: Unrouted) -> tuple[Label, Label]:
    """What its two topics are about, in their order."""
    return ("from", u.sender), ("to", u.recipient)


def subscribed(node: Node, interests: Collection[Label], t: Hash) -> bool:
    return node.options.topology == "flat" or node.labels.get(t) in interests


def leafTopics(options: Options, unrouted: Iterable[Unrouted]) -> View:
    view: View = {}
    for u in list(unrouted)[: options.max_leaf_queues]:
        for topic in topics(options, u.block, u.sender, u.recipient, u.root):
            view.setdefault(topic, set()).add(u.root)
    return view


def expectedQueues(node: Node) -> dict[Hash, dict[Hash, bool]]:
    """The union over all views (D-6), of what the node subscribes to."""
    union: dict[Hash, dict[Hash, bool]] = {}
    for view in node.views.values():
        for topic, roots in view.items():
            for root in roots if subscribed(node, node.interests, topic) else ():
                union.setdefault(topic, {})[root] = root in node.pool.get(topic, {})
    return union


def listed(node: Node) -> dict[Hash, set[Hash]]:
    """The union over all views, whatever the node subscribes to: what lives in its pool."""
    union: dict[Hash, set[Hash]] = {}
    for view in node.views.values():
        for topic, roots in view.items():
            union.setdefault(topic, set()).update(roots)
    return union


def near(chain: Chain, heads: Collection[Hash], a: int) -> list[Hash]:
    """Heads, then their last `a` ancestors as far as their headers are there."""
    found = list(dict.fromkeys(heads))
    last = found
    for _ in range(a):
        parents = [chain.parent(B) for B in last]
        last = [B for B in dict.fromkeys(parents) if B is not None]
        found = list(dict.fromkeys([*found, *last]))
    return found


def common(node: Node, chain: Chain, heads: Collection[Hash]) -> list[Hash]:
    """leaves ∩ leaves_k, and with `ancestors` those of both sides."""
    found = []
    for leaf in node.leaves:
        path = near(chain, [leaf], node.options.ancestors)
        met = [i for i, B in enumerate(path) if B in heads]
        found += path[min(met) :] if met else []
    return list(dict.fromkeys(found))


def implied(node: Node, chain: Chain, k: NodeId, t: Hash, root: Hash) -> tuple[bool, int]:
    """Whether a common leaf has the topic (the root), and how many table accesses that took: each block of ours against
    each head of theirs, its header where it is an ancestor, and for each that is common its topics."""
    accesses = 0
    for leaf in node.leaves:
        met = False
        for depth, B in enumerate(near(chain, [leaf], node.options.ancestors)):
            accesses += depth > 0
            for head in () if met else node.peers[k].leaves:
                accesses += 1
                if head == B:
                    met = True
                    break
            if met:
                accesses += 1
                roots = node.views.get(B, {}).get(t, set())
                if root in roots or (roots and node.options.allowed_by == "topic"):
                    return True, accesses
    return False, accesses


def allowed(node: Node, chain: Chain, k: NodeId, t: Hash, root: Hash) -> tuple[bool, int]:
    """allowed_k(m, t), and how many table accesses it took."""
    peer = node.peers[k]
    if (t, root) in peer.received or (t, root) in peer.sent:
        return False, 1
    if not subscribed(node, peer.interests, t):
        return False, 2
    answer, accesses = implied(node, chain, k, t, root)
    return answer, 1 + accesses
