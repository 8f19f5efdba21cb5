"""Faults of causal order: a message that overtakes one of another lane, and a cycle of causes over several zones."""

from __future__ import annotations

from random import Random

from tests.planting.messages import Kind
from tests.planting.traffic import Planted, Span, Traffic, named, spans
from tests.spec.audit.causal import block_of, causal_order, contradicts_itself
from tests.spec.audit.ledger import Finding, Lane, Ledger, Message

Block = tuple[str, int]
Link = tuple[Block, Block]


def causal_messages(net: Traffic, random: Random) -> list[Message]:
    """Messages of lanes with guaranteed causal order, sent and received on two chains in known blocks."""
    return [
        message
        for message in net.messages(random, "sent", "received")
        if net.ledger.promised(message.lane, "causal") and link_of(message)
    ]


def link_of(message: Message) -> Link | None:
    """The blocks of its send and receipt; None if unknown, or on one chain."""
    if not message.has("sent", "received") or contradicts_itself(message):
        return None
    one, other = block_of(message, "sent"), block_of(message, "received")
    return None if None in (*one, *other) or one[0] == other[0] else (one, other)


def found_more(net: Traffic, before: set[Finding]) -> set[Finding]:
    """Additional findings of the definition of causal order."""
    ledger = Ledger(net.rows, net.observed, net.promises)
    return {found for found in causal_order(ledger)[1] if found.verdict == "violated"} - before


def overtakes_lane(net: Traffic, random: Random) -> Planted | None:
    """It is received in the block before the receipt of a message of another lane that was sent in an earlier
    block."""
    messages = causal_messages(net, random)
    before = set(causal_order(net.ledger)[1])
    for message in messages:
        for other in messages:
            if other.lane == message.lane or other.lane[:3] != message.lane[:3] or net.taken(other):
                continue
            (sent, _), (other_sent, other_came) = link_of(message), link_of(other)  # type: ignore[misc]
            place = other_came[1] - 1
            if other_sent[1] < sent[1] < place and is_only(net, message, place, before, "out_of_causal_order"):
                net.take(message)
                net.take(other)
                evidence = spans(*(each.first(event) for each in (message, other) for event in ("sent", "received")))
                found = {named("causal_order", "received_out_of_causal_order", message)}
                return Planted("overtakes_lane", frozenset(found), evidence)
    return None


def cycle(zones: int) -> Kind:
    """It is received in a block that its sending block depends on, over at least so many zones."""

    def kind(net: Traffic, random: Random) -> Planted | None:
        messages = causal_messages(net, random)
        links = [(link, message) for message in messages if (link := link_of(message))]
        before = set(causal_order(net.ledger)[1])
        for (sent, came), message in links:
            below, _ = net.neighbours(message, "received") if message.index is not None else (None, None)
            least = below["height"] if below and net.ledger.promised(message.lane, "ordered_receives") else 0
            others = [link for link, other in links if other is not message]
            place = depends_on(sent, came[0], others, zones)
            if place is None or place < (least or 0) or place >= came[1]:
                continue
            if not is_only(net, message, place, before, "in_causal_cycle"):
                continue
            net.take(message, lane=True)
            lanes = frozenset(lane for lane in net.by_lane if net.ledger.promised(lane, "causal"))
            found = {named("causal_order", "received_in_causal_cycle", message)}
            return Planted(f"cycle_of_{zones}", frozenset(found), everywhere(lanes), lanes)
        return None

    return kind


def everywhere(lanes: frozenset[Lane]) -> tuple[Span, ...]:
    """All heights of the chains at the ends of lanes."""
    chains = sorted({chain for lane in lanes for chain in lane[1:3] if chain is not None})
    return tuple((chain, 0, 2**64) for chain in chains)


def depends_on(block: Block, zone: str, links: list[Link], zones: int) -> int | None:
    """The last block of a zone that a block of another zone depends on, over so many zones."""
    last = {block[0]: block[1]}
    for _ in range(zones - 1):
        known = dict(last)
        for cause, effect in links:
            direct = zones > 2 and (effect[0], cause[0]) == (block[0], zone)
            if not direct and effect[1] <= known.get(effect[0], -1) and cause[0] != block[0]:
                last[cause[0]] = max(last.get(cause[0], -1), cause[1])
    return last.get(zone)


def is_only(net: Traffic, message: Message, place: int, before: set[Finding], reason: str) -> bool:
    """Receive it at a position, if that is the only new finding of the definition."""
    row = message.first("received")
    was = row["height"]
    row["height"] = place
    more = found_more(net, before)
    if {(found.reason, found.lane, found.number) for found in more} == {
        (f"received_{reason}", message.lane, message.index)
    }:
        return True
    row["height"] = was
    return False


__all__ = ["cycle", "overtakes_lane"]
