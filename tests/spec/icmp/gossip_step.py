"""What one node does with all that came to it since the last time: one thing after the other, in a fixed order.

The text has one event at a time. A step with one event is that; of many, the order is: peers that left, peers that
came, leaves, the node's own subscriptions, those of peers, declarations, queues, sketches and what is asked for,
answers of holders, the purge.

Decisions.
- All queues of a step are judged in the order in which they came, before what is good of them goes out: two peers that
  sent the same one are both thanked, and neither is sent it back.
- Of what one peer declares in a step, or subscribes to, the last counts. All of it is judged.
- Who is dropped is dropped at once: nothing that it sent after that counts, and nothing goes to it.
- A purge is due when another multiple of the interval is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from . import gossip, gossip_pool
from .events import NodeId
from .node import Chain, Label, Node
from .packets import Declaration, Envelope, Out, Packet, Subscriptions
from .reconcile import Ask, More, Sketch
from .relay import Block, Hash


@dataclass
class Arrived:
    """What came to one node."""

    left: list[NodeId] = field(default_factory=list)
    came: list[tuple[NodeId, Hash]] = field(default_factory=list)
    """Peers, with the salts of their connections."""
    leaves: Sequence[Block] | None = None
    subscribes: frozenset[Label] | None = None
    said: list[tuple[NodeId, Packet]] = field(default_factory=list)
    malformed: list[NodeId] = field(default_factory=list)
    """Who sent packets that were not decoded; they count as declarations."""
    answers: list[Envelope] = field(default_factory=list)


def step(node: Node, chain: Chain, now: int, arrived: Arrived) -> Out:
    out = take_in(node, chain, now, arrived)
    if now // node.options.purge_interval > node.purged:
        node.purged = now // node.options.purge_interval
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
    out += gossip.on_chain_heads(node, chain, now, [(k, m) for k, m in said if isinstance(m, Declaration)])
    for k in arrived.malformed:
        if k in node.peers:
            gossip_pool.report(node, now, out, k, "Malformed")
    out += gossip.on_queues(node, chain, now, [(k, m) for k, m in said if isinstance(m, Envelope)])
    for kind in (Sketch, More, Ask):
        for k, m in said:
            if isinstance(m, kind) and k in node.peers:
                out += on_reconciling(node, chain, now, k, m)
    for answer in arrived.answers:
        out += gossip.on_answer(node, chain, now, answer)[0]
    return out


def on_reconciling(node: Node, chain: Chain, now: int, k: NodeId, m: Sketch | More | Ask) -> Out:
    if isinstance(m, Sketch):
        return gossip.on_sketch(node, chain, k, m)
    if isinstance(m, More):
        return gossip.on_more(node, chain, now, k, m)
    return gossip.on_ask(node, chain, now, k, m)
