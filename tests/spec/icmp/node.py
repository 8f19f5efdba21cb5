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
- `from_to` (5.1 (3)) is not restated: the text does not say how a peer's subscriptions become known.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from .events import NodeId
from .options import MAX_CHAIN_HEADS, Options
from .relay import Block, Hash, ParaId
from .trie import topics

Key = tuple[Hash, Hash]
"""Topic and root."""
View = dict[Hash, set[Hash]]
"""leafTopics(l), with the roots of each topic."""


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
    salt: Hash = b""
    """Of the connection (5.1 (4))."""
    impolite: int = 0
    reputation: int = 0
    """The sum of what it sent (X-1)."""


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
    kept: dict[Hash, tuple[bytes, ...]] = field(default_factory=dict)


def best(leaves: Iterable[Block]) -> tuple[Hash, ...]:
    ordered = sorted(leaves, key=lambda block: (-block.number, block.hash))
    return tuple(block.hash for block in ordered[:MAX_CHAIN_HEADS])


def topic_of(options: Options, u: Unrouted) -> Hash:
    assert options.topology == "flat"
    (topic,) = topics(options, u.block, u.sender, u.recipient, u.root)
    return topic


def leafTopics(options: Options, unrouted: Iterable[Unrouted]) -> View:
    view: View = {}
    for u in unrouted:
        view.setdefault(topic_of(options, u), set()).add(u.root)
    return view


def expectedQueues(node: Node) -> dict[Hash, dict[Hash, bool]]:
    """The union over all views (D-6)."""
    union: dict[Hash, dict[Hash, bool]] = {}
    for view in node.views.values():
        for topic, roots in view.items():
            for root in roots:
                union.setdefault(topic, {})[root] = root in node.pool.get(topic, {})
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
    answer, accesses = implied(node, chain, k, t, root)
    return answer, 1 + accesses
