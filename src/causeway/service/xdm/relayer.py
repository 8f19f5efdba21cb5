"""Relay loop between domains as state machines without I/O (XDM reference 3.10, X-5).

    place = RelayPlacement(consensus="main", home="a", chains=("main", "left", "right"), limits=limits)
    steps = relay_messages(ChainPair("a", "left", "right"), place, RelayMemory())
    step = next(steps)
    ... step = steps.send(answer to step) ... until StopIteration, whose value is a ``DomainPass``

Three kinds of items are relayed: blocks of the consensus chain, with confirmed facts, to the lake that follows it;
receipts of that lake's domains to the consensus chain; messages and responses between chains of the two. A pass may
be abandoned at any step: the next one determines the remaining work by itself. A lake's data is verified before
submission, as the target will do.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.substrate.proof import read_entry, read_value
from causeway_proofs.xdm.envelope import (
    ConsensusChainMmrProof,
    CrossDomainMessage,
    EnvelopeProof,
    MmrLeaf,
    receipt_storage_key,
    verify_consensus_leaf,
    verify_cross_domain_message,
)
from causeway_proofs.xdm.messages import ChainId, WeightTag

from causeway.protocols.shared.limits import MAX_CALLS, MAX_TRANSACTION_BYTES
from causeway.protocols.xdm.transactions import (
    BlockHeader,
    Blocks,
    Confirmed,
    ConfirmedDomain,
    Receipts,
    RelayedMessages,
    SignedReceipt,
    encode_transaction,
)
from causeway.protocols.xdm.value.books import declared_key
from causeway.protocols.xdm.wire import TAG_BITS
from causeway.service.http.client import ServiceError
from causeway.service.relay.loop import Submit
from causeway.service.xdm import answers, relay_state

TAGS = ("ProtocolChannelOpen", "ProtocolChannelClose", "EndpointRequest", "EndpointResponse", "None")
"""Variants of weight tags by their numbers on the wire."""

TRANSACTION_MARGIN = 1 << 10
ITEM_MARGIN = 16
"""Bytes besides the items of a transaction, and besides each item."""


class PassOutcome(Enum):
    """Final state of a pass."""

    IDLE = "idle"
    """There was no work."""
    WAITING = "waiting for confirmation"
    """There is work that cannot be proved to the target yet."""
    BROUGHT = "brought"
    """All work was submitted, and is not received yet."""
    SUBMITTED = "submitted"
    REFUSED = "refused"
    """The target would not accept the source's data."""


@dataclass(frozen=True)
class RelayPlacement:
    """Placement of the chains.

    Attributes:
        consensus: Name of the consensus chain.
        home: End that runs the consensus chain.
        chains: Names of all chains by position.
        limits: Options of the network.
    """

    consensus: str
    home: str
    chains: tuple[str, ...]
    limits: relay_state.RelayLimits

    def id_of(self, chain: str) -> ChainId:
        """Return the chain id in messages."""
        return ChainId(None if chain == self.consensus else self.domain(chain))

    def domain(self, chain: str) -> int:
        """Return the number of a domain."""
        return self.chains.index(chain) - 1


@dataclass(frozen=True)
class DomainPass:
    """Result of a pass.

    Attributes:
        state: Final state.
        left: Work before the pass.
        messages: Submitted items.
        transactions: Submitted transactions.
        mark: Value that changes with every progress of the target.
        why: Reason for incomplete work.
        in_vain: True if the awaited work is overdue.
    """

    state: PassOutcome
    left: int = 0
    messages: int = 0
    transactions: int = 0
    mark: Any = None
    why: str = ""
    in_vain: bool = False


Pass = Generator[relay_state.Step, Any, DomainPass]


def relay_direction(
    direction: relay_state.ChainPair,
    place: RelayPlacement,
    memory: relay_state.LaneRelayMemory,
    beside: Sequence[str] = (),
) -> Pass:
    """Run one pass in a direction.

    Args:
        direction: The direction.
        place: Placement of the chains.
        memory: Memory of the direction.
        beside: For blocks, the domains of the lake that follows.
    """
    if direction.what == "blocks":
        return relay_blocks(direction, place, beside)
    if direction.what == "receipts":
        return relay_receipts(direction, place)
    return relay_messages(direction, place, memory)


def relay_blocks(direction: relay_state.ChainPair, place: RelayPlacement, domains: Sequence[str]) -> Pass:
    """Relay consensus blocks to the lake that follows them, with facts of a final block.

    The facts are its domains' confirmed receipts, which anchor their proofs for each other, and the value declared for
    them by domains of other lakes.

    Args:
        direction: The direction.
        place: Placement of the chains.
        domains: Domains of the lake that follows.
    """
    followed: answers.FollowedAnswer = yield relay_state.ReadFollowed(direction.other, place.consensus)
    found: answers.BlocksAnswer = yield relay_state.ReadBlocks(direction.end, place.consensus, followed.best)
    mark = followed.best, tuple((one.domain, one.block) for one in (*followed.receipts, *followed.declared))
    ready: list[tuple[bytes, int]] = []
    if found.headers:
        headers = tuple(
            BlockHeader(one.parent, one.number, one.state_root, one.extrinsics_root) for one in found.headers
        )
        if len(found.signature) != 64:
            raise ServiceError(f"{place.consensus}: headers without a signature")
        ready.append((encode_transaction(Blocks(headers, found.signature)), len(headers)))
    if followed.final is not None:
        confirmed = yield from _confirmed_facts(direction, place, followed, domains)
        if isinstance(confirmed, str):
            return DomainPass(PassOutcome.REFUSED, mark=mark, why=confirmed)
        ready += [(encode_transaction(one), len(one.domains)) for one in confirmed]
    for row, (transaction, count) in enumerate(ready):
        yield Submit(direction.other, place.consensus, transaction, count, last=row == len(ready) - 1)
    state = PassOutcome.SUBMITTED if ready else PassOutcome.IDLE
    return DomainPass(state, len(found.headers), sum(count for _, count in ready), len(ready), mark)


def _confirmed_facts(
    direction: relay_state.ChainPair, place: RelayPlacement, followed: answers.FollowedAnswer, domains: Sequence[str]
) -> Generator[relay_state.Step, Any, list[Confirmed] | str]:
    """Return the facts of domains in the block before the newest final one that the lake lacks.

    A text is the reason for not believing them.
    """
    assert followed.final is not None
    receipts, declared_blocks = ({one.domain: one.block for one in of} for of in (followed.receipts, followed.declared))
    found: list[ConfirmedDomain] = []
    block = None
    for domain in domains:
        if block is not None and min(receipts.get(domain, -1), declared_blocks.get(domain, -1)) >= block:
            continue
        anchor: answers.AnchorAnswer = yield relay_state.ReadAnchor(
            direction.end, place.consensus, followed.final, domain
        )
        if block is not None and anchor.block != block:
            raise ServiceError(f"{place.consensus}: two blocks are before {followed.final}")
        block, number = anchor.block, place.domain(domain)
        receipt = () if anchor.receipt is None or receipts.get(domain, -1) >= block else anchor.receipt.proof
        declared = () if declared_blocks.get(domain, -1) >= block else anchor.declared
        try:
            root = MmrLeaf.decode(anchor.leaf).state_root
            if receipt:
                read_value(root, receipt, receipt_storage_key(number), strict=True)
            if declared:
                read_entry(root, declared, declared_key(number + 1), strict=True)
        except ProofError as error:
            return f"a proof of {place.consensus} is none: {error}"
        if receipt or declared:
            found.append(ConfirmedDomain(number, tuple(receipt), tuple(declared)))
    if block is None:
        return []
    return [Confirmed(block, tuple(batch)) for batch in _divide(found, [one.size for one in found])]


def relay_receipts(direction: relay_state.ChainPair, place: RelayPlacement) -> Pass:
    """Relay receipts of a domain to the consensus chain, in order, while it confirms any.

    Args:
        direction: The direction.
        place: Placement of the chains.
    """
    last: answers.ReceiptedAnswer = yield relay_state.ReadReceipted(direction.other, place.consensus, direction.source)
    if last.unbooked is not None:
        books = f"the books of {place.consensus}"
        why = f"{books} refused the receipt of block {last.unbooked}: none is confirmed any more"
        return DomainPass(PassOutcome.REFUSED, mark=last.unbooked, why=why)
    found: answers.ReceiptsAnswer = yield relay_state.ReadReceipts(direction.end, direction.source, last.number)
    domain = place.domain(direction.source)
    items = [SignedReceipt(domain, one.receipt, one.signature) for one in found.receipts]
    sizes = [len(one.receipt) + len(one.signature) for one in items]
    batches = _divide(items, sizes)
    for row, batch in enumerate(batches):
        data = encode_transaction(Receipts(tuple(batch)))
        yield Submit(direction.other, place.consensus, data, len(batch), last=row == len(batches) - 1)
    state = PassOutcome.SUBMITTED if items else PassOutcome.IDLE
    return DomainPass(state, len(items), len(items), len(batches), (last.number, last.confirmed))


def relay_messages(
    direction: relay_state.ChainPair, place: RelayPlacement, memory: relay_state.LaneRelayMemory
) -> Pass:
    """Relay a chain's confirmed messages and responses that another has not received.

    Args:
        direction: The direction.
        place: Placement of the chains.
        memory: Memory of the direction.
    """
    theirs: answers.ChannelsAnswer = yield relay_state.ReadChannels(direction.other, direction.target, direction.source)
    ours: answers.ChannelsAnswer = yield relay_state.ReadChannels(direction.end, direction.source, direction.target)
    due = due_lanes(ours, theirs)
    # The nonce up to which the other chain has received everything, by lane.
    known = {one.channel: one for one in theirs.channels}
    received: dict[relay_state.Key, int] = {}
    for one in ours.channels:
        other = known.get(one.channel)
        received[one.channel, False] = 0 if other is None else min(other.next_inbox, one.next_outbox)
        received[one.channel, True] = 0 if other is None else min(other.next_response, one.next_inbox)
    waited = memory.waited(received, theirs.best, theirs.height, due=bool(due))
    longest = place.limits.longest_wait
    if not due:
        memory.lanes.clear()
        return DomainPass(PassOutcome.IDLE, in_vain=waited >= longest)
    passed: DomainPass = yield from _submit_messages(direction, place, memory, theirs, due)
    if waited < longest or passed.why:
        return replace(passed, in_vain=waited >= longest)
    ((channel, response), (expected, _)), target = min(due.items()), direction.target
    lane = f"channel {channel}, {'responses' if response else 'requests'} from nonce {expected} on"
    why = f"{target} has taken nothing in {longest} blocks of what {direction.source} says that there is: {lane}"
    return replace(passed, in_vain=True, why=why)


def _submit_messages(
    direction: relay_state.ChainPair,
    place: RelayPlacement,
    memory: relay_state.LaneRelayMemory,
    theirs: answers.ChannelsAnswer,
    due: dict[relay_state.Key, tuple[int, int]],
) -> Pass:
    """Submit due messages that are confirmed and were not submitted recently.

    ``due`` has the expected nonce and the end of the messages by lane.
    """
    left = sum(end - expected for expected, end in due.values())
    mark, under = memory.mark, theirs.under
    if under is None:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    wanted = memory.wanted(due, theirs.height, place.limits)
    if not wanted:
        return DomainPass(PassOutcome.BROUGHT, left, mark=mark)
    domain = None if direction.source == place.consensus else direction.source
    anchor: answers.AnchorAnswer = yield relay_state.ReadAnchor(place.home, place.consensus, under.number, domain)
    if domain is None:
        block = anchor.block
    elif anchor.receipt is None:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    else:
        block = anchor.receipt.number
    step = relay_state.ReadMessages(
        direction.end, direction.source, direction.target, block, tuple(wanted), place.limits.nonces
    )
    answer: answers.MessagesAnswer = yield step
    new = [
        one
        for one in answer.messages
        if not memory.rests((one.channel, one.response), one.nonce, theirs.height, place.limits)
    ]
    found = answer.model_copy(update={"messages": new})
    try:
        envelopes = _build_envelopes(direction, place, under, anchor, found, step)
    except (ProofError, InvalidInput) as error:
        return DomainPass(PassOutcome.REFUSED, left, mark=mark, why=f"a proof of {direction.source} is none: {error}")
    if not envelopes:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    items = [(envelope, one.response) for envelope, one in zip(envelopes, found.messages, strict=True)]
    batches = _divide(items, [len(envelope) for envelope in envelopes])
    for row, batch in enumerate(batches):
        relayed, responses = tuple(one for one, _ in batch), tuple(response for _, response in batch)
        data = encode_transaction(RelayedMessages(relayed, responses))
        yield Submit(direction.other, direction.target, data, len(batch), last=row == len(batches) - 1)
    nonces: dict[relay_state.Key, list[int]] = {}
    for one in new:
        nonces.setdefault((one.channel, one.response), []).append(one.nonce)
    for key, submitted in nonces.items():
        memory.handed_over(key, submitted, due[key][0], theirs.height)
    return DomainPass(PassOutcome.SUBMITTED, left, len(items), len(batches), mark)


def due_lanes(ours: answers.ChannelsAnswer, theirs: answers.ChannelsAnswer) -> dict[relay_state.Key, tuple[int, int]]:
    """Return expected nonce and end of the messages, by lane with work for the other chain.

    A chain has answered the requests below its ``next_inbox``; an unknown channel of the other side is empty.

    Args:
        ours: Channels of the source.
        theirs: Channels of the target.
    """
    known = {one.channel: one for one in theirs.channels}
    found: dict[relay_state.Key, tuple[int, int]] = {}
    for one in ours.channels:
        other = known.get(one.channel)
        expected = 0 if other is None else other.next_inbox
        if one.next_outbox > expected:
            found[one.channel, False] = expected, one.next_outbox
        if other is not None and one.next_inbox > other.next_response:
            found[one.channel, True] = other.next_response, one.next_inbox
    return found


def _build_envelopes(
    direction: relay_state.ChainPair,
    place: RelayPlacement,
    under: answers.UnderAnswer,
    anchor: answers.AnchorAnswer,
    found: answers.MessagesAnswer,
    request: relay_state.ReadMessages,
) -> list[bytes]:
    """Compose an envelope for each message from both lakes' parts, and verify it.

    Raises:
        ProofError: It proves nothing under the target's known consensus block.
        InvalidInput: It differs from the request.
    """
    mmr = ConsensusChainMmrProof(
        anchor.under, anchor.hash, anchor.leaf, (anchor.leaf_index,), anchor.leaf_count, tuple(anchor.items)
    )
    if (anchor.under, anchor.hash, anchor.leaf_count) != (under.number, under.hash, under.leaf_count):
        raise InvalidInput(f"{place.consensus}: another block {under.number} than {direction.target} knows")
    verify_consensus_leaf(under.root, mmr, under.leaf_count)
    receipt = None if anchor.receipt is None else tuple(anchor.receipt.proof)
    lanes = {(lane.channel, lane.response): lane.first for lane in request.lanes}
    envelopes = []
    for one in found.messages:
        first = lanes.get((one.channel, one.response))
        if first is None or not first <= one.nonce < first + request.most:
            raise InvalidInput(f"channel {one.channel}: a message with nonce {one.nonce} was not asked for")
        envelope = CrossDomainMessage(
            place.id_of(direction.source),
            place.id_of(direction.target),
            one.channel,
            one.nonce,
            EnvelopeProof(mmr, _proof_nodes(one, found.nodes), receipt),
            _decode_tag(one.tag),
        )
        verify_cross_domain_message(under.root, envelope, response=one.response, leaf_count=under.leaf_count)
        envelopes.append(envelope.encode())
    return envelopes


def _proof_nodes(message: answers.MessageAnswer, nodes: Sequence[bytes]) -> tuple[bytes, ...]:
    if any(member >= len(nodes) for member in message.members):
        raise InvalidInput("a proof names a node that there is not")
    return tuple(sorted({nodes[member] for member in message.members}))


def _decode_tag(number: int) -> WeightTag:
    kind = number & (1 << TAG_BITS) - 1
    if kind >= len(TAGS):
        raise InvalidInput(f"{number} is no weight tag")
    return WeightTag(TAGS[kind], number >> TAG_BITS if TAGS[kind].startswith("Endpoint") else None)


def _divide(items: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Divide items into transactions."""
    found: list[list[Any]] = []
    room = 0
    for item, size in zip(items, sizes, strict=True):
        size += ITEM_MARGIN
        if not found or size > room or len(found[-1]) == MAX_CALLS:
            found.append([])
            room = MAX_TRANSACTION_BYTES - TRANSACTION_MARGIN
        found[-1].append(item)
        room -= size
    return found
