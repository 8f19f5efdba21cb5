"""A relayer inside a domain's operator (3.10, X-5), in simple form.

Decisions. The state of the other side is read where the deployed relayer has it from gossip. The 15 channels of a block
are taken in turn, not at random. What was submitted is remembered for `resubmit_after` blocks, which serves as the
deployed cache of its own progress too; a fork clears it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.spec.xdm.keys import confirmed_key, outbox_key, responses_key
from tests.spec.xdm.options import CHANNELS_A_BLOCK, NONCES_A_CHANNEL
from tests.spec.xdm.state import ChainNode, State
from tests.spec.xdm.values import CONSENSUS, Chain, ConsensusProof, CrossDomainMessage, Proof, Tag, encode_xdm

if TYPE_CHECKING:
    from tests.spec.xdm.network import Network, Snapshot
    from tests.spec.xdm.proofs import Kind


def prove(
    net: "Network",
    kind: "Kind",
    src: Chain,
    dst: Chain,
    channel: int,
    nonce: int,
    described: int,
    made_at: int,
    tag: Tag,
) -> CrossDomainMessage:
    """An item with all its proofs: MMR at block `made_at` of the leaf that describes block `described`, the receipt
    that is confirmed there, the message under its root."""
    consensus = net.snapshot(CONSENSUS, described)
    block = consensus
    domain_proof = None
    if src != CONSENSUS:
        domain_proof = consensus.trie.prove(confirmed_key(src))
        block = net.snapshot(src, consensus.state.confirmed[src].domain_block_number)
    key = (outbox_key if kind == "request" else responses_key)(dst, channel, nonce)
    mmr = net.mmr.prove(net.view.leaves[described], net.view.leaves[made_at])
    head = ConsensusProof(made_at, net.view.hashes[made_at], net.leaf(described), mmr)
    return CrossDomainMessage(src, dst, channel, nonce, Proof(head, domain_proof, block.trie.prove(key)), tag)


@dataclass
class Relayer:
    domain: Chain
    name: str
    working: bool = True
    sent: dict[tuple["Kind", Chain, Chain, int, int], int] = field(default_factory=dict)

    def act(self, net: "Network") -> None:
        """On a new best block b: relay what the block before `confirmed` shows, for consensus and the own domain."""
        found = net.confirmed()
        if not self.working or found is None:
            return
        self.sent = {k: at for k, at in self.sent.items() if net.view.best - at < net.options.resubmit_after}
        described, confirmed = found
        self.relay_from(net, CONSENSUS, described, described.number, confirmed)
        number = described.state.confirmed[self.domain].domain_block_number
        self.relay_from(net, self.domain, net.snapshot(self.domain, number), described.number, confirmed)

    def relay_from(self, net: "Network", src: Chain, block: "Snapshot", described: int, confirmed: int) -> None:
        channels = sorted(block.state.channels)
        start = net.view.best * CHANNELS_A_BLOCK % len(channels) if len(channels) > CHANNELS_A_BLOCK else 0
        for foreign, channel in (channels[start:] + channels[:start])[:CHANNELS_A_BLOCK]:
            if foreign not in net.chains:
                continue
            dst = net.chains[foreign]
            there = dst.state.channels.get((src, channel))
            made_at = net.view.best if foreign == CONSENSUS else confirmed
            first = there.next_inbox_nonce if there else 0
            answered = there.latest_response if there else None
            after = 0 if answered is None else answered + 1
            pending: list[tuple[Kind, int]] = [
                ("request", n) for n in stored(block.state, "request", foreign, channel, first)
            ]
            pending += [("response", n) for n in stored(block.state, "response", foreign, channel, after)]
            for kind, nonce in pending:
                self.relay(net, kind, src, dst, channel, nonce, described, made_at, block.state)

    def relay(
        self,
        net: "Network",
        kind: "Kind",
        src: Chain,
        dst: ChainNode,
        channel: int,
        nonce: int,
        described: int,
        made_at: int,
        state: State,
    ) -> None:
        item = (kind, src, dst.chain_id, channel, nonce)
        if item in self.sent:
            return
        self.sent[item] = net.view.best
        tag = tag_of(state, dst, kind, src, channel, nonce)
        x = prove(net, kind, src, dst.chain_id, channel, nonce, described, made_at, tag)
        net.send(encode_xdm(x), kind, dst.chain_id, self.name)


def stored(state: State, kind: "Kind", foreign: Chain, channel: int, first: int) -> list[int]:
    """The nonces from `first` on, as many as a relayer takes, that are still there; those below the first one that is
    still stored are dropped."""
    queue = state.outbox if kind == "request" else state.inbox_responses
    found = [n for f, ch, n in queue if (f, ch) == (foreign, channel) and n >= first]
    return sorted(found)[:NONCES_A_CHANNEL]


def tag_of(state: State, dst: ChainNode, kind: "Kind", src: Chain, channel: int, nonce: int) -> Tag:
    """The weight tag, from the queue's tags (2.5)."""
    if kind == "request":
        return state.outbox_tags[dst.chain_id, channel, nonce]
    return state.response_tags[dst.chain_id, channel, nonce]
