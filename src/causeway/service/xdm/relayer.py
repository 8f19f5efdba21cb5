"""The relay loop as state machines: they ask questions and hand over transactions, and know no socket and no clock
(XDM reference 3.10, X-5).

    place = Place(consensus="main", home="a", chains=("main", "left", "right"), limits=limits)
    steps = messages(Direction("a", "left", "right"), place, Memory())
    step = next(steps)
    ... step = steps.send(answer to step) ... until StopIteration, whose value is a ``Passed``

Three kinds of things are carried. The consensus chain's blocks, and what is confirmed in them, to the lake that follows
it; receipts of that lake's domains to the consensus chain; messages and responses between chains of the two. Whoever
runs a pass may stop at any step and never come back: the next one finds out by itself what is left. What a lake says is
verified before it is handed over, as its target will.
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
    Messages,
    Receipts,
    SignedReceipt,
    encode_transaction,
)
from causeway.protocols.xdm.value.books import declared_key
from causeway.protocols.xdm.wire import TAG_BITS
from causeway.service.http.client import ServiceError
from causeway.service.relay.steps import Submit
from causeway.service.xdm.answers import (
    AnchorAnswer,
    BlocksAnswer,
    ChannelsAnswer,
    FollowedAnswer,
    MessageAnswer,
    MessagesAnswer,
    ReceiptedAnswer,
    ReceiptsAnswer,
    UnderAnswer,
)
from causeway.service.xdm.relay_state import (
    ChainPair,
    Key,
    ReadAnchor,
    ReadBlocks,
    ReadChannels,
    ReadFollowed,
    ReadMessages,
    ReadReceipted,
    ReadReceipts,
    RelayLimits,
    RelayMemory,
    Step,
)

TAGS = ("ProtocolChannelOpen", "ProtocolChannelClose", "EndpointRequest", "EndpointResponse", "None")
"""Variants of weight tags by the numbers of the wire."""

TRANSACTION_MARGIN = 1 << 10
ITEM_MARGIN = 16
"""Bytes beside the items of a transaction, and beside each item."""


class PassOutcome(Enum):
    """How a pass ended."""

    IDLE = "idle"
    """There was nothing to do."""
    WAITING = "waiting for confirmation"
    """There is something that cannot be proved to the target yet."""
    BROUGHT = "brought"
    """All that there is was brought, and is not taken yet."""
    SUBMITTED = "submitted"
    REFUSED = "refused"
    """What the source says is not what the target would take."""


@dataclass(frozen=True)
class RelayPlacement:
    """Where what is needed of all directions is. ``consensus``: the consensus chain; ``home``: the end that runs it;
    ``chains``: all chains in the order of their positions; ``limits``: of the options."""

    consensus: str
    home: str
    chains: tuple[str, ...]
    limits: RelayLimits

    def id_of(self, chain: str) -> ChainId:
        """Return a chain as messages name it."""
        return ChainId(None if chain == self.consensus else self.domain(chain))

    def domain(self, chain: str) -> int:
        """Return the number of a domain."""
        return self.chains.index(chain) - 1


@dataclass(frozen=True)
class DomainPass:
    """What a pass found and did. ``left``: how much there was to bring; ``mark``: changes whenever the target goes on;
    ``why``: of what could not be done; ``in_vain``: whether it was waited for longer than anything takes."""

    state: PassOutcome
    left: int = 0
    messages: int = 0
    transactions: int = 0
    mark: Any = None
    why: str = ""
    in_vain: bool = False


Pass = Generator[Step, Any, DomainPass]


def relay_direction(
    direction: ChainPair, place: RelayPlacement, memory: RelayMemory, beside: Sequence[str] = ()
) -> Pass:
    """Make one pass in a direction. ``beside``: for blocks, the domains of the lake that follows."""
    if direction.what == "blocks":
        return relay_blocks(direction, place, beside)
    if direction.what == "receipts":
        return relay_receipts(direction, place)
    return relay_messages(direction, place, memory)


def relay_blocks(direction: ChainPair, place: RelayPlacement, domains: Sequence[str]) -> Pass:
    """Bring blocks of the consensus chain to the lake that follows it, and what a final one has of its domains: the
    receipts that are confirmed, under which they prove their messages to each other, and what value domains of other
    lakes have declared for them."""
    followed: FollowedAnswer = yield ReadFollowed(direction.other, place.consensus)
    found: BlocksAnswer = yield ReadBlocks(direction.end, place.consensus, followed.best)
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
        confirmed = yield from _confirmed(direction, place, followed, domains)
        if isinstance(confirmed, str):
            return DomainPass(PassOutcome.REFUSED, mark=mark, why=confirmed)
        ready += [(encode_transaction(one), len(one.domains)) for one in confirmed]
    for row, (transaction, count) in enumerate(ready):
        yield Submit(direction.other, place.consensus, transaction, count, last=row == len(ready) - 1)
    state = PassOutcome.SUBMITTED if ready else PassOutcome.IDLE
    return DomainPass(state, len(found.headers), sum(count for _, count in ready), len(ready), mark)


def _confirmed(
    direction: ChainPair, place: RelayPlacement, followed: FollowedAnswer, domains: Sequence[str]
) -> Generator[Step, Any, list[Confirmed] | str]:
    """Return what the block before the newest final one has of domains, as far as the lake has not got it; a text says
    why it is not to be believed."""
    assert followed.final is not None
    receipts, shown = ({one.domain: one.block for one in of} for of in (followed.receipts, followed.declared))
    found: list[ConfirmedDomain] = []
    block = None
    for domain in domains:
        if block is not None and min(receipts.get(domain, -1), shown.get(domain, -1)) >= block:
            continue
        anchor: AnchorAnswer = yield ReadAnchor(direction.end, place.consensus, followed.final, domain)
        if block is not None and anchor.block != block:
            raise ServiceError(f"{place.consensus}: two blocks are before {followed.final}")
        block, number = anchor.block, place.domain(domain)
        receipt = () if anchor.receipt is None or receipts.get(domain, -1) >= block else anchor.receipt.proof
        declared = () if shown.get(domain, -1) >= block else anchor.declared
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
    return [Confirmed(block, tuple(batch)) for batch in _batches(found, [one.size for one in found])]


def relay_receipts(direction: ChainPair, place: RelayPlacement) -> Pass:
    """Bring receipts of a domain to the consensus chain, each after the one before it, as long as it confirms any."""
    known: ReceiptedAnswer = yield ReadReceipted(direction.other, place.consensus, direction.source)
    if known.unbooked is not None:
        books = f"the books of {place.consensus}"
        why = f"{books} refused the receipt of block {known.unbooked}: none is confirmed any more"
        return DomainPass(PassOutcome.REFUSED, mark=known.unbooked, why=why)
    found: ReceiptsAnswer = yield ReadReceipts(direction.end, direction.source, known.number)
    domain = place.domain(direction.source)
    items = [SignedReceipt(domain, one.receipt, one.signature) for one in found.receipts]
    sizes = [len(one.receipt) + len(one.signature) for one in items]
    batches = _batches(items, sizes)
    for row, batch in enumerate(batches):
        data = encode_transaction(Receipts(tuple(batch)))
        yield Submit(direction.other, place.consensus, data, len(batch), last=row == len(batches) - 1)
    state = PassOutcome.SUBMITTED if items else PassOutcome.IDLE
    return DomainPass(state, len(items), len(items), len(batches), (known.number, known.confirmed))


def relay_messages(direction: ChainPair, place: RelayPlacement, memory: RelayMemory) -> Pass:
    """Bring messages and responses of a chain to another: what the target has not taken, as far as it is confirmed."""
    theirs: ChannelsAnswer = yield ReadChannels(direction.other, direction.target, direction.source)
    ours: ChannelsAnswer = yield ReadChannels(direction.end, direction.source, direction.target)
    due = due_lanes(ours, theirs)
    waited = memory.waited(received_lanes(ours, theirs), theirs.best, theirs.height, due=bool(due))
    longest = place.limits.longest_wait
    if not due:
        memory.lanes.clear()
        return DomainPass(PassOutcome.IDLE, in_vain=waited >= longest)
    passed: DomainPass = yield from _brought(direction, place, memory, theirs, due)
    if waited < longest or passed.why:
        return replace(passed, in_vain=waited >= longest)
    ((channel, response), (expected, _)), what = min(due.items()), direction.target
    lane = f"channel {channel}, {'responses' if response else 'requests'} from nonce {expected} on"
    why = f"{what} has taken nothing in {longest} blocks of what {direction.source} says that there is: {lane}"
    return replace(passed, in_vain=True, why=why)


def _brought(
    direction: ChainPair,
    place: RelayPlacement,
    memory: RelayMemory,
    theirs: ChannelsAnswer,
    due: dict[Key, tuple[int, int]],
) -> Pass:
    """Bring what is ``due`` (of each lane, the nonce that the target expects and the end of what there is), as far as
    it is confirmed and was not just brought."""
    left = sum(end - expected for expected, end in due.values())
    mark, under = memory.mark, theirs.under
    if under is None:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    wanted = memory.wanted(due, theirs.height, place.limits)
    if not wanted:
        return DomainPass(PassOutcome.BROUGHT, left, mark=mark)
    domain = None if direction.source == place.consensus else direction.source
    anchor: AnchorAnswer = yield ReadAnchor(place.home, place.consensus, under.number, domain)
    if domain is None:
        block = anchor.block
    elif anchor.receipt is None:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    else:
        block = anchor.receipt.number
    step = ReadMessages(direction.end, direction.source, direction.target, block, tuple(wanted), place.limits.nonces)
    said: MessagesAnswer = yield step
    new = [
        one
        for one in said.messages
        if not memory.rests((one.channel, one.response), one.nonce, theirs.height, place.limits)
    ]
    found = said.model_copy(update={"messages": new})
    try:
        envelopes = _envelopes(direction, place, under, anchor, found, step)
    except (ProofError, InvalidInput) as error:
        return DomainPass(PassOutcome.REFUSED, left, mark=mark, why=f"a proof of {direction.source} is none: {error}")
    if not envelopes:
        return DomainPass(PassOutcome.WAITING, left, mark=mark)
    items = [(envelope, one.response) for envelope, one in zip(envelopes, found.messages, strict=True)]
    batches = _batches(items, [len(envelope) for envelope in envelopes])
    for row, batch in enumerate(batches):
        data = encode_transaction(Messages(tuple(one for one, _ in batch), tuple(response for _, response in batch)))
        yield Submit(direction.other, direction.target, data, len(batch), last=row == len(batches) - 1)
    nonces: dict[Key, list[int]] = {}
    for one in new:
        nonces.setdefault((one.channel, one.response), []).append(one.nonce)
    for key, taken in nonces.items():
        memory.handed_over(key, taken, due[key][0], theirs.height)
    return DomainPass(PassOutcome.SUBMITTED, left, len(items), len(batches), mark)


def due_lanes(ours: ChannelsAnswer, theirs: ChannelsAnswer) -> dict[Key, tuple[int, int]]:
    """Return the lanes of a chain that have something for the other: the nonce that it expects, and the end of what
    there is, as both sides' channels say.

    A chain has answered the requests below its ``next_inbox``; a channel that the other side does not know yet has
    nothing there.
    """
    known = {one.channel: one for one in theirs.channels}
    found: dict[Key, tuple[int, int]] = {}
    for one in ours.channels:
        other = known.get(one.channel)
        expected = 0 if other is None else other.next_inbox
        if one.next_outbox > expected:
            found[one.channel, False] = expected, one.next_outbox
        if other is not None and one.next_inbox > other.next_response:
            found[one.channel, True] = other.next_response, one.next_inbox
    return found


def received_lanes(ours: ChannelsAnswer, theirs: ChannelsAnswer) -> dict[Key, int]:
    """Return the lanes that a chain has for the other: up to which nonce that says it has taken what there is."""
    known = {one.channel: one for one in theirs.channels}
    found: dict[Key, int] = {}
    for one in ours.channels:
        other = known.get(one.channel)
        found[one.channel, False] = 0 if other is None else min(other.next_inbox, one.next_outbox)
        found[one.channel, True] = 0 if other is None else min(other.next_response, one.next_inbox)
    return found


def _envelopes(
    direction: ChainPair,
    place: RelayPlacement,
    under: UnderAnswer,
    anchor: AnchorAnswer,
    found: MessagesAnswer,
    asked: ReadMessages,
) -> list[bytes]:
    """Return an envelope for each message, composed of both lakes' parts and verified as the target will.

    Raises:
        ProofError: it proves nothing under what the target knows of the consensus chain.
        InvalidInput: it is about something else than what was asked for.
    """
    mmr = ConsensusChainMmrProof(
        anchor.under, anchor.hash, anchor.leaf, (anchor.leaf_index,), anchor.leaf_count, tuple(anchor.items)
    )
    if (anchor.under, anchor.hash, anchor.leaf_count) != (under.number, under.hash, under.leaf_count):
        raise InvalidInput(f"{place.consensus}: another block {under.number} than {direction.target} knows")
    verify_consensus_leaf(under.root, mmr, under.leaf_count)
    receipt = None if anchor.receipt is None else tuple(anchor.receipt.proof)
    lanes = {(lane.channel, lane.response): lane.first for lane in asked.lanes}
    made = []
    for one in found.messages:
        first = lanes.get((one.channel, one.response))
        if first is None or not first <= one.nonce < first + asked.most:
            raise InvalidInput(f"channel {one.channel}: a message with nonce {one.nonce} was not asked for")
        envelope = CrossDomainMessage(
            place.id_of(direction.source),
            place.id_of(direction.target),
            one.channel,
            one.nonce,
            EnvelopeProof(mmr, _nodes(one, found.nodes), receipt),
            _tag(one.tag),
        )
        verify_cross_domain_message(under.root, envelope, response=one.response, leaf_count=under.leaf_count)
        made.append(envelope.encode())
    return made


def _nodes(message: MessageAnswer, nodes: Sequence[bytes]) -> tuple[bytes, ...]:
    if any(member >= len(nodes) for member in message.members):
        raise InvalidInput("a proof names a node that there is not")
    return tuple(sorted({nodes[member] for member in message.members}))


def _tag(number: int) -> WeightTag:
    kind = number & (1 << TAG_BITS) - 1
    if kind >= len(TAGS):
        raise InvalidInput(f"{number} is no weight tag")
    return WeightTag(TAGS[kind], number >> TAG_BITS if TAGS[kind].startswith("Endpoint") else None)


def _batches(items: Sequence[Any], sizes: Sequence[int]) -> list[list[Any]]:
    """Return items cut into transactions."""
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
