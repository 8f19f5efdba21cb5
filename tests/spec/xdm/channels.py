"""Channels and sending: 3.1 to 3.3, 3.7, 3.8, X-1 and X-2. Every check stands in the reference's order."""

from dataclasses import replace

from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.options import U128, U256
from tests.spec.xdm.state import (
    Account,
    ChainNode,
    Channel,
    ChannelState,
    Handler,
    note_transfer_out,
    subtract,
    transaction,
)
from tests.spec.xdm.values import (
    CONSENSUS,
    Chain,
    ChannelClose,
    ChannelOpen,
    CollectedFee,
    EndpointCall,
    EndpointRequest,
    Message,
    Payload,
    encode_message,
    request_tag,
)


def kind_of(payload: Payload) -> str:
    names = {ChannelOpen: "open", ChannelClose: "close", EndpointCall: "endpoint"}
    return names.get(type(payload), "response")


def withdraw(c: ChainNode, account: Account, amount: int, error: str) -> None:
    """Take from an account and keep it alive. An amount of zero needs no account."""
    free = c.state.balances.get(account, 0)
    if amount and free - amount < c.options.existential_deposit:
        raise XdmError(error)
    subtract(c.state.balances, account, amount, error)


def credit(c: ChainNode, account: Account, amount: int) -> None:
    total = c.state.balances.get(account, 0) + amount
    if total > U128:
        raise XdmError("BalanceOverflow")
    if total:
        c.state.balances[account] = total


FeeChoice = tuple[str | None, int | None]
"""A fee model and its relay fee; None: those of the options."""


def channel_fee(c: ChainNode, choice: FeeChoice) -> int | None:
    """The relay fee of a channel with fee model v0, None with v1 (2.2)."""
    model, relay_fee = choice
    if (model or c.options.fee_model) == "v1":
        return None
    return c.options.relay_fee if relay_fee is None else relay_fee


def initiate_channel(
    c: ChainNode, o: Account, dst: Chain, max_outgoing: int | None = None, choice: FeeChoice = (None, None)
) -> int:
    """3.1. Decision: with `initiate_by = root` the root account is o, and its deposit is held like anybody's (G9);
    with `signed` root, who signs nothing, is none."""
    with transaction(c):
        if (c.options.initiate_by == "root") != (o == c.root):
            raise XdmError("BadOrigin")
        amount = c.options.reserve
        if c.state.balances.get(o, 0) - amount < c.options.existential_deposit:
            raise XdmError("InsufficientBalance")
        withdraw(c, o, amount, "BalanceHold")
        if dst == c.chain_id:
            raise XdmError("InvalidChain")
        limit = c.options.max_outgoing_messages if max_outgoing is None else max_outgoing
        if limit < 1:
            raise XdmError("InvalidMaxOutgoingMessages")
        if amount <= 0:
            raise XdmError("InvalidChannelReserveFee")
        if c.options.allowlist == "on" and dst not in c.state.allowlist:
            raise XdmError("ChainNotAllowed")
        channel = c.state.next_channel_id.get(dst, 0)
        if channel == U256:
            raise XdmError("Overflow")
        c.state.next_channel_id[dst] = channel + 1
        fee = channel_fee(c, choice)
        c.state.channels[dst, channel] = Channel(channel, ChannelState.INITIATED, 0, 0, None, fee, limit, o, amount)
        c.state.deposits[dst, channel] = amount
        c.log("ChannelInitiated", foreign=dst, channel_id=channel, by=o, deposit=(amount, 0, 0), limit=limit)
        new_outbox_message(c, dst, channel, ChannelOpen(limit, fee))
        return channel


def payload_version(c: ChainNode, ch: Channel, payload: Payload) -> int:
    """Under v0 what opens a channel carries its fee model, which only V0 has a place for (2.3; step 11 creates the
    channel from it); collected fees need the layout of V1 (D-4), which the old chain that recomputes them had not."""
    if ch.fee is None:
        return 1
    return 1 if isinstance(payload, EndpointCall) and c.options.v0_mint == "collected" else 0


def new_outbox_message(c: ChainNode, dst: Chain, channel: int, payload: Payload) -> int:
    """3.2."""
    if dst == c.chain_id:
        raise XdmError("InvalidMessageDestination")
    ch = c.state.channels.get((dst, channel))
    if ch is None:
        raise XdmError("MissingChannel")
    count = c.state.outbox_count.get((dst, channel), 0)
    if count >= ch.max_outgoing_messages:
        raise XdmError("OutboxFull")
    n = ch.next_outbox_nonce
    if n >= c.options.max_messages:
        raise XdmError("Overflow")
    m = Message(c.chain_id, dst, channel, n, payload, ch.latest_response, payload_version(c, ch, payload))
    c.state.outbox[dst, channel, n] = m
    c.state.sent_in[dst, channel, n] = c.block
    if count + 1 > 2**32 - 1:
        raise XdmError("MessageCountOverflow")
    c.state.outbox_count[dst, channel] = count + 1
    c.state.channels[dst, channel] = replace(ch, next_outbox_nonce=n + 1)
    c.state.outbox_tags[dst, channel, n] = request_tag(m)
    fees = fees_in(payload)
    c.log(
        "OutboxMessage",
        foreign=dst,
        channel_id=channel,
        nonce=n,
        payload_hash=blake2b(encode_message(m)),
        kind=kind_of(payload),
        src_fee=fees.src_chain_fee,
        dst_fee=fees.dst_chain_fee,
        last_delivered=ch.latest_response,
    )
    return n


def fees_in(payload: Payload) -> CollectedFee:
    if isinstance(payload, EndpointCall) and payload.collected_fee:
        return payload.collected_fee
    return CollectedFee(0, 0)


def fees(c: ChainNode, handler: Handler, relay_fee: int | None) -> CollectedFee:
    """3.8. Decision: the fee model is the channel's, which is why a channel has a relay fee, or none (v1)."""
    message = c.options.weight_to_fee(handler.message_weight)
    response = c.options.weight_to_fee(handler.response_weight)
    if relay_fee is None:
        found = CollectedFee(response * c.options.fee_multiplier, message * c.options.fee_multiplier)
    else:
        found = CollectedFee(response + relay_fee, message + relay_fee)
    if max(found.src_chain_fee, found.dst_chain_fee, found.src_chain_fee + found.dst_chain_fee) > U128:
        raise XdmError("BalanceOverflow")
    return found


def send_message(c: ChainNode, sender: Account, dst: Chain, req: EndpointRequest) -> tuple[int, int]:
    """3.3."""
    with transaction(c):
        if c.options.allowlist == "on" and dst not in c.state.allowlist:
            raise XdmError("ChainNotAllowed")
        usable = [
            channel
            for (foreign, channel), ch in c.state.channels.items()
            if foreign == dst and ch.state == ChannelState.OPEN and has_room(c, dst, channel)
        ]
        if not usable:
            raise XdmError("NoOpenChannel")
        channel = max(usable)
        handler = c.handlers.get(req.src_endpoint)
        if handler is None:
            raise XdmError("NoMessageHandler")
        fee = fees(c, handler, c.state.channels[dst, channel].fee)
        withdraw(c, sender, fee.src_chain_fee + fee.dst_chain_fee, "FundsUnavailable")
        n = new_outbox_message(c, dst, channel, EndpointCall(req, fee))
        c.state.outbox_fee[dst, channel, n] = fee.src_chain_fee
        c.state.outbox_fees_on_hold += fee.src_chain_fee
        try:
            note_transfer_out(c, fee.dst_chain_fee, dst)
        except XdmError as error:
            raise XdmError("FailedToNoteTransferOut") from error
        c.log("FeeBurn", foreign=dst, channel_id=channel, nonce=n, amount=fee.dst_chain_fee, by=sender)
        if c.state.outbox[dst, channel, n].version == 0:  # what is collected is not in the message: it stays known here
            forget_fee(c, dst, channel, n)
        return channel, n


def has_room(c: ChainNode, dst: Chain, channel: int) -> bool:
    """Whether a channel takes another message of an endpoint. Decision: the last one that it may send is the request to
    close it (D-11)."""
    ch = c.state.channels[dst, channel]
    full = c.state.outbox_count.get((dst, channel), 0) >= ch.max_outgoing_messages
    return not full and ch.next_outbox_nonce < c.options.max_messages - 1


def close_exhausted(c: ChainNode) -> None:
    """A channel is open until the maximum number of messages are sent: at the end of a block one that has a single
    message left is closed, as by root, unless its outbox is full."""
    for (foreign, channel), ch in sorted(c.state.channels.items()):
        full = c.state.outbox_count.get((foreign, channel), 0) >= ch.max_outgoing_messages
        if ch.state == ChannelState.OPEN and ch.next_outbox_nonce >= c.options.max_messages - 1 and not full:
            close_locally(c, foreign, channel, c.root)
            new_outbox_message(c, foreign, channel, ChannelClose())


def forget_fee(c: ChainNode, dst: Chain, channel: int, n: int) -> None:
    """A V0 message names no fee: its row still says what the sender paid, but its bytes have none."""
    m = c.state.outbox[dst, channel, n]
    if isinstance(m.payload, EndpointCall):
        m = replace(m, payload=replace(m.payload, collected_fee=None))
        c.state.outbox[dst, channel, n] = m


def close_channel(c: ChainNode, caller: Account, foreign: Chain, channel: int) -> None:
    """3.7."""
    with transaction(c):
        ch = c.state.channels.get((foreign, channel))
        if caller != c.root and c.options.close_by == "root":
            raise XdmError("BadOrigin")
        if caller != c.root and (ch is None or caller != ch.owner):
            raise XdmError("ChannelOwner")
        close_locally(c, foreign, channel, caller)
        try:
            new_outbox_message(c, foreign, channel, ChannelClose())
        except XdmError:  # D-10
            if c.options.force_close == "off" or caller != c.root:
                raise


def close_locally(c: ChainNode, foreign: Chain, channel: int, by: Account | None) -> None:
    """3.7, steps 2 to 4. Decision: the protocol portion is burned, and a receipt of the domain names it (X-3), so that
    the books follow; it is rounded to the nearest unit, a half down, as the deployed Perbill does."""
    ch = c.state.channels.get((foreign, channel))
    if ch is None:
        raise XdmError("MissingChannel")
    if ch.state == ChannelState.CLOSED:
        raise XdmError("InvalidChannelState")
    released = burned = 0
    if ch.owner is not None:
        if ch.state == ChannelState.INITIATED:
            burned = (ch.reserve * c.options.reserve_portion + 49) // 100
        released = ch.reserve - burned
        subtract(c.state.deposits, (foreign, channel), ch.reserve, "BalanceUnlock")
        credit(c, ch.owner, released)
        c.state.burned += burned
    c.state.channels[foreign, channel] = replace(ch, state=ChannelState.CLOSED)
    c.log("ChannelClosed", foreign=foreign, channel_id=channel, by=by, deposit=(0, released, burned))


# Allow lists


def update_consensus_chain_allowlist(c: ChainNode, caller: Account, operation: str, chain: Chain) -> None:
    with transaction(c):
        if caller != c.root:
            raise XdmError("BadOrigin")
        if c.chain_id != CONSENSUS:
            raise XdmError("OperationNotAllowed")
        if chain == c.chain_id:
            raise XdmError("InvalidAllowedChain")
        if operation == "Add":
            if chain not in c.domains:
                raise XdmError("InvalidChain")
            c.state.allowlist.add(chain)
        else:
            c.state.allowlist.discard(chain)


def initiate_domain_update_chain_allowlist(
    c: ChainNode, caller: Account, domain: Chain, operation: str, chain: Chain
) -> None:
    """Decision: the checks stand in the order in which X-1 names them."""
    with transaction(c):
        if c.domains.get(domain) != caller:
            raise XdmError("NotDomainOwner")
        if c.chain_id != CONSENSUS:
            raise XdmError("OperationNotAllowed")
        if chain == domain:
            raise XdmError("InvalidAllowedChain")
        if chain != CONSENSUS and chain not in c.domains:
            raise XdmError("InvalidChain")
        allow, remove = c.state.domain_updates.get(domain, (frozenset(), frozenset()))
        one = frozenset([chain])
        pending = (allow | one, remove - one) if operation == "Add" else (allow - one, remove | one)
        c.state.domain_updates[domain] = pending


def apply_allowlist_updates(
    c: ChainNode,
    pending: tuple[frozenset[Chain], frozenset[Chain]],
    given: tuple[frozenset[Chain], frozenset[Chain]] | None,
) -> None:
    """The mandatory inherent of a domain's block: removals first, then additions. It may be left out if nothing is
    pending."""
    if given is None:
        if pending != (frozenset(), frozenset()):
            raise XdmError("MissingAllowlistUpdates")
        return
    if given != pending:
        raise XdmError("IncorrectAllowlistUpdates")
    allow, remove = given
    c.state.allowlist = (c.state.allowlist - remove) | allow
