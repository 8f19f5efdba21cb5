"""Carriers of envelopes that drop, delay, repeat and alter, the same way for kernel and oracle."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.spec.xdm.values import CONSENSUS, CrossDomainMessage, Tag

Alter = Callable[[CrossDomainMessage], CrossDomainMessage]
Copies = list[tuple[int, Alter]]
"""Of each copy of an envelope that arrives, how many blocks late, and what was altered."""


def honest(x: CrossDomainMessage) -> Copies:
    return [(0, as_it_is)]


def as_it_is(x: CrossDomainMessage) -> CrossDomainMessage:
    return x


def proof(x: CrossDomainMessage, **parts: Any) -> CrossDomainMessage:
    return replace(x, proof=replace(x.proof, **parts))


def head(x: CrossDomainMessage, **parts: Any) -> CrossDomainMessage:
    return proof(x, consensus=replace(x.proof.consensus, **parts))


def mmr(x: CrossDomainMessage, **parts: Any) -> CrossDomainMessage:
    return head(x, proof=replace(x.proof.consensus.proof, **parts))


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def other_form(x: CrossDomainMessage) -> CrossDomainMessage:
    """The form that does not fit the source: a domain's without the receipt, the consensus chain's with one."""
    shown = x.proof.message_proof if x.src == CONSENSUS else None
    return proof(x, domain_proof=shown)


def unused_node(x: CrossDomainMessage) -> CrossDomainMessage:
    return proof(x, message_proof=tuple(sorted((*x.proof.message_proof, b"\x41\x01\x04\x07"))))


def doubled_node(x: CrossDomainMessage) -> CrossDomainMessage:
    return proof(x, message_proof=(x.proof.message_proof[0], *x.proof.message_proof))


def other_node(x: CrossDomainMessage) -> CrossDomainMessage:
    nodes = x.proof.message_proof
    return proof(x, message_proof=tuple(sorted((*nodes[:-1], flip(nodes[-1])))))


def other_leaf(x: CrossDomainMessage) -> CrossDomainMessage:
    return head(x, opaque_mmr_leaf=flip(x.proof.consensus.opaque_mmr_leaf))


def other_count(x: CrossDomainMessage) -> CrossDomainMessage:
    return mmr(x, leaf_count=x.proof.consensus.proof.leaf_count + 1)


ALTERED: tuple[Alter, ...] = (
    lambda x: replace(x, nonce=x.nonce + 1),
    lambda x: replace(x, nonce=x.nonce + 600),
    lambda x: replace(x, channel_id=x.channel_id + 1),
    lambda x: replace(x, channel_id=x.channel_id + 9),
    lambda x: replace(x, src=CONSENSUS if x.src != CONSENSUS else 0),
    other_form,
    lambda x: proof(x, message_proof=x.proof.message_proof[1:]),
    unused_node,
    other_node,
    other_leaf,
    other_count,
    lambda x: mmr(x, items=x.proof.consensus.proof.items[1:]),
    lambda x: head(x, consensus_block_number=x.proof.consensus.consensus_block_number + 1),
    lambda x: head(x, consensus_block_hash=bytes(32)),
)
"""Each makes another envelope of one, which no chain takes."""


class Faults:
    """Carriers that misbehave with one in so many envelopes; ``tags``: they alter tags, too; ``turn``: which of
    ``ALTERED`` is the first."""

    def __init__(self, rng: random.Random, strength: float, tags: bool, turn: int = 0) -> None:
        self.rng, self.strength, self.tags = rng, strength, tags
        self.turn = turn

    def __call__(self, x: CrossDomainMessage) -> Copies:
        rng = self.rng
        if rng.random() >= self.strength:
            return [(0, as_it_is)]
        fault = rng.randrange(5 + 2 * self.tags)
        if fault == 0:
            return []
        if fault == 1:
            return [(rng.randrange(1, 7), as_it_is)]
        if fault == 2:
            return [(0, as_it_is), (rng.randrange(4), as_it_is)]
        if fault >= 5:
            tag = rng.choice([Tag(4), Tag(x.tag.kind, x.tag.endpoint and x.tag.endpoint - 1), Tag(0), Tag(1)])
            return [(0, lambda x: replace(x, tag=tag))]
        self.turn += 1  # each in its turn
        return [(0, ALTERED[self.turn % len(ALTERED)]), (rng.randrange(3), as_it_is)]
