"""What two peers tell each other of their pools instead of pushing them (5.1 (4)).

A sketch is restated by what it can do, not by its algebra: with capacity c, the difference of two sets is decoded if
and only if it has at most c elements.

Decisions.
- The sketch is of what the pool has on the topics of common leaves: the rest is not allowed, and would fill it for
  nothing. What was sent or received is in it, since the peer has it, too.
- A short id is the first four bytes, little endian, of H(salt || topic || root), or 1 if they are 0, which is no
  element.
- The first capacity is 4. Beyond `max_sketch_capacity` nothing is doubled: the sender pushes, as without sketches.
- Who receives a sketch asks for what it lacks; what the other lacks, it says in a sketch of its own. An id that the
  sender does not have is passed over; whether what comes is right is judged as always (3.7).
"""

from collections.abc import Collection
from dataclasses import dataclass

from tests.spec.icmp.events import NodeId
from tests.spec.icmp.node import Chain, Key, Label, Node, common, subscribed
from tests.spec.icmp.relay import Hash
from tests.spec.icmp.trie import H

FIRST_CAPACITY = 4


@dataclass(frozen=True)
class Sketch:
    capacity: int
    elements: frozenset[int]
    """What an actual sketch hides."""


@dataclass(frozen=True)
class Ask:
    ids: tuple[int, ...]


@dataclass(frozen=True)
class More:
    """The difference was not decoded: another sketch of this capacity, please."""

    capacity: int


def short_id(salt: Hash, key: Key) -> int:
    return int.from_bytes(H(salt + key[0] + key[1])[:4], "little") or 1


def shared(node: Node, chain: Chain, k: NodeId, interests: Collection[Label]) -> dict[int, Key]:
    """The pool on topics of common leaves, by short ids; with from_to, on those to which the receiver subscribes."""
    topics = {t for B in common(node, chain, node.peers[k].leaves) for t in node.views.get(B, {})}
    topics = {t for t in topics if subscribed(node, interests, t)}
    keys = [(t, root) for t in sorted(topics) for root in sorted(node.pool.get(t, {}))]
    return {short_id(node.peers[k].salt, key): key for key in keys}


def sketch(node: Node, chain: Chain, k: NodeId, capacity: int) -> Sketch:
    return Sketch(capacity, frozenset(shared(node, chain, k, node.peers[k].interests)))


def difference(s: Sketch, own: dict[int, Key]) -> frozenset[int] | None:
    """None: there are more than the sketch can hold."""
    found = s.elements ^ own.keys()
    return frozenset(found) if len(found) <= s.capacity else None
