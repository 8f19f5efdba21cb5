"""What one node does with all that came to it since the last time: one thing after the other, in a fixed order.

The text has one event at a time. A step with one event is that; of many, the order is: peers that left, peers that
came, leaves, the node's own subscriptions, those of peers, declarations, queues, sketches and what is asked for,
answers of holders, the purge.

Decisions.
- All queues of a step are judged in the order in which they came, before what is good of them goes out: two peers that
  sent the same one are both thanked, and neither is sent it back.
- Of what one peer declares in a step, subscribes to, sketches, or wants a larger sketch of, the last counts; what it
  asks for is answered at once. All of it is judged.
- Who is dropped is dropped at once: nothing that it sent after that counts, and nothing goes to it.
- Who comes again without having left has declared nothing anew; what else is known of it stays.
- The first step purges, then the first one in which the interval is over since the last purge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.spec.icmp import gossip, gossip_pool
from tests.spec.icmp.events import NodeId
from tests.spec.icmp.node import Chain, Label, Node
from tests.spec.icmp.packets import Declaration, Envelope, Garbled, Out, Packet, Subscriptions
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import Block, Hash


@dataclass
class Arrived:
    """What came to one node."""

    left: list[NodeId] = field(default_factory=list)
    came: list[tuple[NodeId, Hash]] = field(default_factory=list)
    """Peers, with the salts of their connections."""
    leaves: Sequence[Block] | None = None
    subscribes: frozenset[Label] | None = None
    said: list[tuple[NodeId, Packet]] = field(default_factory=list)
    answers: list[Envelope] = field(default_factory=list)


def step(node: Node, chain: Chain, now: int, arrived: Arrived) -> Out:
    out = take_in(node, chain, now, arrived)
    if now >= node.purge_at:
        node.purge_at = now + node.options.purge_interval
        out += gossip_pool.purge(node, now)
    return out


def take_in(node: Node, chain: Chain, now: int, arrived: Arrived) -> Out:
    out = Out()
    for k in arrived.left:
        out += gossip_pool.disconnect(node, now, k)
    for k, salt in arrived.came:
        out += gossip_pool.connect(node, now, k, salt)
    if arrived.leaves is not None:
        out += gossip.on_new_leaf(node, chain, now, arrived.leaves)
    if arrived.subscribes is not None:
        out += gossip.subscribe(node, arrived.subscribes)
    said = arrived.said
    out += gossip.on_subscriptions(node, chain, now, [(k, m) for k, m in said if isinstance(m, Subscriptions)])
    out += gossip.on_chain_heads(node, chain, now, [(k, m) for k, m in said if isinstance(m, Declaration | Garbled)])
    out += gossip.on_queues(node, chain, now, [(k, m) for k, m in said if isinstance(m, Envelope)])
    out += gossip.on_sketches(node, chain, now, [(k, m) for k, m in said if isinstance(m, Sketch)])
    out += gossip.on_more(node, chain, now, [(k, m) for k, m in said if isinstance(m, More)])
    out += gossip.on_asks(node, chain, now, [(k, m) for k, m in said if isinstance(m, Ask)])
    for answer in arrived.answers:
        out += gossip.on_answer(node, chain, now, answer)[0]
    return out
