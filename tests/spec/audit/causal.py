"""Causal order, from IBC reference 1.2: vector clocks over the blocks of all chains.

    A:send(m) -> B:receive(m)                               C1
    B:receive(m) -> A:receipt(m)                            C2
    x -> A:send(m) implies x -> B:receive(m)                C4
    y -> B:receive(m) implies y -> A:receipt(m)             C5

Blocks of a chain follow each other by height, and what happens in one block has no order. C3, and all order inside a
lane that promises it, is said of by ``order``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.spec.audit.ledger import Finding, Ledger, Message, Row, lane_of

Block = tuple[str, int]
"""A chain and a height."""

Checked = tuple[int, list[Finding]]

EVENTS = {"received": ("sent", "ordered_receives"), "acknowledged": ("received", "ordered_acknowledgements")}
"""Effects, each with its cause and the promise of lanes in which ``order`` compares the effects."""


class Link(NamedTuple):
    """A cause and its effect, an event of one message each."""

    cause: Block
    effect: Block
    event: str
    row: Row
    ordered: bool


def causal_order(ledger: Ledger) -> Checked:
    """No block comes before its cause, and effects come in the order of their causes."""
    examined, found, links = 0, [], []
    for message in ledger.messages:
        if not ledger.promised(message.lane, "causal"):
            continue
        across = [event for event in EVENTS if is_across(message, event)]
        examined += bool(across)
        for event in across:
            cause, effect = (block_of(message, each) for each in (EVENTS[event][0], event))
            row = message.first(event)
            if None in (*cause, *effect):
                found.append(named("unknown", "place_unseen", row))
            elif {cause[0], effect[0]} & ledger.restarts:
                found.append(named("unknown", "heights_restarted", row))
            elif not contradicts_itself(message):
                links.append(Link(cause, effect, event, row, ledger.promised(message.lane, EVENTS[event][1])))
    false = in_cycles(links)
    found += [named("violated", f"{link.event}_in_causal_cycle", link.row) for link in false]
    left = [link for link in links if link not in false]
    assert_clocks_ascend(left)
    found += [
        named("violated", f"{link.event}_out_of_causal_order", link.row)
        for link in left
        if overtakes(link, [other for other in left if same_way(link, other)])
    ]
    return examined, found


def named(verdict: str, reason: str, row: Row) -> Finding:
    return Finding("causal_order", verdict, reason, lane_of(row), row["index"], row["source_row"])


def block_of(message: Message, event: str) -> Any:
    """The block of a message's event; None for what was not seen. A chain not seen is that at the end of the lane."""
    row = message.first(event)
    end = message.lane[2] if event == "received" else message.lane[1]
    return end if row["chain"] is None else row["chain"], row["height"]


def is_across(message: Message, event: str) -> bool:
    """Whether an effect and its cause were seen, and are not on one chain."""
    if not message.has(event) or not message.has(EVENTS[event][0]):
        return False
    one, other = block_of(message, EVENTS[event][0])[0], block_of(message, event)[0]
    return one is None or one != other


def contradicts_itself(message: Message) -> bool:
    """Whether it is acknowledged in an earlier block than it was sent in: ``causality`` says so."""
    if not message.has("sent") or not message.has("acknowledged"):
        return False
    sent, acknowledged = block_of(message, "sent"), block_of(message, "acknowledged")
    return None not in (*sent, *acknowledged) and sent[0] == acknowledged[0] and acknowledged[1] < sent[1]


# ---- C1, C2: vector clocks


def in_cycles(links: Iterable[Link]) -> list[Link]:
    """The links that are left out so that every block comes after its causes.

    Blocks are replayed, each after the one before it and after the causes of what happens in it. Where none can be,
    chains wait for each other. From the first of them that waits, by name, each leads to the first by name that it
    waits for; where that comes round is a ring. Of one chain in the ring what its next block waits for, of the chain
    that it leads to, is left out: where that, if it were true, would contradict most messages (those that the other
    chain took, until the last block that is waited for, from blocks of the ring that are not replayed either). Of
    several such where the fewest are left out, then by name.
    """
    left, false = list(links), []
    blocks = sorted({block for link in left for block in (link.cause, link.effect)}, key=by_name)
    chains = sorted({chain for chain, _ in blocks}, key=str.encode)
    replayed: set[Block] = set()

    def following(chain: str) -> Block | None:
        return next((block for block in blocks if block[0] == chain and block not in replayed), None)

    def awaited(chain: str) -> list[Link]:
        block = following(chain)
        return [link for link in left if link.effect == block and link.cause not in replayed]

    while len(replayed) < len(blocks):
        ready = [block for chain in chains if (block := following(chain)) and not awaited(chain)]
        replayed.update(ready)
        if ready:
            continue
        path = [next(chain for chain in chains if following(chain))]
        while (on := min((link.cause[0] for link in awaited(path[-1])), key=str.encode)) not in path:
            path.append(on)
        ring = path[path.index(on) :]
        choices = []
        for chain, source in zip(ring, [*ring[1:], ring[0]], strict=True):
            own = [link for link in awaited(chain) if link.cause[0] == source]
            last = max(link.cause[1] for link in own)
            against = [
                link
                for link in left
                if link.effect[0] == source
                and link.effect[1] <= last
                and link.effect not in replayed
                and link.cause[0] in ring
                and link.cause not in replayed
            ]
            choices.append((-len(against), len(own), chain.encode(), own))
        gone = min(choices)[3]
        false += gone
        left = [link for link in left if not any(link is each for each in gone)]
    return false


def by_name(block: Block) -> tuple[bytes, int]:
    return block[0].encode(), block[1]


def assert_clocks_ascend(links: list[Link]) -> None:
    """Vector clocks, one entry a chain: a block's has all that it comes after, and nothing of its own chain from it
    on."""
    blocks = sorted({block for link in links for block in (link.cause, link.effect)}, key=by_name)
    clocks: dict[Block, dict[str, int]] = {}
    while len(clocks) < len(blocks):
        before = len(clocks)
        for chain, height in blocks:
            causes = [link.cause for link in links if link.effect == (chain, height)]
            causes += [block for block in blocks if block[0] == chain and block[1] < height][-1:]
            if (chain, height) in clocks or any(cause not in clocks for cause in causes):
                continue
            clock: dict[str, int] = {}
            for cause in causes:
                for name, count in [*clocks[cause].items(), cause]:
                    clock[name] = max(clock.get(name, 0), count)
            assert clock.get(chain, -1) < height
            clocks[chain, height] = clock
        assert len(clocks) > before, "blocks wait for each other"


# ---- C4, C5: the order of effects on one chain


def same_way(one: Link, other: Link) -> bool:
    """Whether two links are effects of one kind, of one protocol, from one chain to another."""
    ends = (one.event, one.row["protocol"], one.cause[0], one.effect[0])
    return ends == (other.event, other.row["protocol"], other.cause[0], other.effect[0])


def overtakes(link: Link, others: list[Link]) -> bool:
    """Whether its effect is in an earlier block than that of a link with an earlier cause.

    Nothing is said of what overtakes in its own lane, where ``order`` says so.
    """
    earlier = [other for other in others if other.cause[1] < link.cause[1] and other.effect[1] > link.effect[1]]
    own = [other for other in earlier if lane_of(other.row) == lane_of(link.row)]
    return bool(earlier) and not (link.ordered and own)
