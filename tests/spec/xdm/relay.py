"""What is done with a relayed request: 3.4; D-3, D-7 and D-9; and with what comes too early."""

from dataclasses import replace

from tests.spec.xdm.channels import close_locally
from tests.spec.xdm.errors import DispatchError, XdmError, custom, dispatch
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.options import U128, U256
from tests.spec.xdm.proofs import Kind, message_root, read_message, verify_mmr
from tests.spec.xdm.responses import acknowledge, prepare_response, process_response, result_of, set_open
from tests.spec.xdm.state import ChainNode, Channel, ChannelState, Early, note_transfer_in, transaction
from tests.spec.xdm.values import (
    TAG_CLOSE,
    TAG_OPEN,
    Chain,
    ChannelClose,
    ChannelOpen,
    CrossDomainMessage,
    EndpointCall,
    EndpointResponse,
    Message,
    Payload,
    ProtocolResponse,
    Response,
    Tag,
    encode_message,
    request_tag,
    response_tag,
)


class OverWeight(Exception):
    """A handler used more weight than a message may."""


def validate(c: ChainNode, x: CrossDomainMessage, kind: Kind) -> Message:
    """Steps 1 to 9 of 3.4; 3.5 says where a response differs.

    Decisions. A response for no channel is InvalidCall at step 3, where 3.5 names it. The tag is not compared: D-7 asks
    for it, D-9 derives it instead, and hazard 16 wants what D-9 does. The kind of an early item is checked when its
    turn comes (D-3), that of any response here, and that it is a request at all: this no channel can change.
    """
    strict = c.options.strict_envelope == "on"
    leaf = verify_mmr(c, x.proof.consensus)
    if x.dst != c.chain_id:
        raise XdmError("InvalidCall")
    ch = c.state.channels.get((x.src, x.channel_id))
    if kind == "response" and ch is None:
        raise XdmError("InvalidCall")
    next_nonce = expected(c, x.src, x.channel_id, kind)
    if x.channel_id > c.state.next_channel_id.get(x.src, 0):
        raise custom(203)
    if x.nonce < next_nonce:
        raise custom(201)
    root = message_root(leaf.state_root, x, strict)
    m = read_message(c.chain_id, root, x, kind, strict)
    if kind == "response":
        if not isinstance(m.payload, ProtocolResponse | EndpointResponse):
            raise XdmError("InvalidCall")
    elif not isinstance(m.payload, ChannelOpen | ChannelClose | EndpointCall):
        raise XdmError("InvalidCall")
    elif x.nonce == next_nonce or c.options.inbox == "pool":
        check_kind(ch, m.payload)
    if x.nonce > next_nonce + c.options.max_future_nonces:
        raise custom(204)
    return m


def expected(c: ChainNode, src: Chain, channel: int, kind: Kind) -> int:
    """The next nonce of that direction."""
    ch = c.state.channels.get((src, channel))
    if kind == "request":
        return ch.next_inbox_nonce if ch else 0
    if ch is None or ch.latest_response is None:
        return 0
    if ch.latest_response == U256:
        raise custom(202)
    return ch.latest_response + 1


def check_kind(ch: Channel | None, payload: Payload) -> None:
    """3.4 step 8. In a pool it holds for early items too, as it is written: what comes before its channel is refused
    and relayed again; D-3 puts it off for `stored` only."""
    allowed = (
        (isinstance(payload, ChannelOpen) and ch is None)
        or (isinstance(payload, ChannelClose) and ch is not None and ch.state != ChannelState.CLOSED)
        or (isinstance(payload, EndpointCall) and ch is not None and ch.state != ChannelState.INITIATED)
    )
    if not allowed:
        raise XdmError("InvalidCall")


# Calls


def submit(c: ChainNode, x: CrossDomainMessage, kind: Kind, relayer: str = "") -> str | None:
    """A relayed item in a block: validate, prepare, call. The name of the refusal, or None.

    `inbox = stored`: an early item is kept and applied directly after its predecessor, in the same block. A second copy
    of an item that waits is Stale.
    """
    refused = None
    try:
        m = validate(c, x, kind)
        item = Early(m, x.tag, relayer, x.proof.consensus.consensus_block_number)
        if x.nonce > expected(c, x.src, x.channel_id, kind):
            keep_early(c, x, kind, item)
        else:
            apply(c, item, x.src, x.channel_id, kind)
    except XdmError as error:
        refused = error.name
        if refused != "Future":  # it stays in the pool
            refuse(c, kind, x.src, x.channel_id, x.nonce, refused, relayer)
    drain(c, x.src, x.channel_id, kind)  # also after a call that failed: its nonce is used up
    return refused


def refuse(c: ChainNode, kind: str, src: Chain, channel: int, nonce: int, error: str, relayer: str = "") -> None:
    call = {"request": "relay_message", "response": "relay_message_response"}.get(kind, kind)
    c.log("Refused", foreign=src, channel_id=channel, nonce=nonce, call=call, error=error, relayer=relayer)


def keep_early(c: ChainNode, x: CrossDomainMessage, kind: Kind, item: Early) -> None:
    """Step 10 for a nonce whose turn has not come."""
    if c.options.inbox == "pool":
        raise XdmError("Future")
    waiting = c.state.inbox if kind == "request" else c.state.outbox_responses
    if (x.src, x.channel_id, x.nonce) in waiting:
        raise XdmError("Stale")
    waiting[x.src, x.channel_id, x.nonce] = item


def drain(c: ChainNode, src: Chain, channel: int, kind: Kind) -> None:
    """Apply what waited for its turn (D-3). What is refused then is discarded, its nonce is not consumed."""
    while True:
        waiting = c.state.inbox if kind == "request" else c.state.outbox_responses
        nonce = expected(c, src, channel, kind)
        item = waiting.pop((src, channel, nonce), None)
        if item is None:
            return
        try:
            if kind == "request":
                check_kind(c.state.channels.get((src, channel)), item.message.payload)
            apply(c, item, src, channel, kind)
        except XdmError as error:
            refuse(c, kind, src, channel, nonce, error.name, item.relayer)


def apply(c: ChainNode, item: Early, src: Chain, channel: int, kind: Kind) -> None:
    """Prepare, then the call. What prepare changed stays when the call fails."""
    if kind == "request":
        prepare_request(c, item, src, channel)
        with transaction(c):
            process_inbox_message(c, item)
    else:
        prepare_response(c, item, src, channel)
        with transaction(c):
            process_response(c, item)


def prepare_request(c: ChainNode, item: Early, src: Chain, channel: int) -> None:
    """Steps 11 and 12. Decision: a channel that the other side opened counts in NextChannelId too; else the next own
    one would overwrite it, and the other side's second one would be 203."""
    m = item.message
    with transaction(c):
        if (src, channel) not in c.state.channels:
            assert isinstance(m.payload, ChannelOpen)  # step 8
            fee = m.payload.relay_fee if m.version == 0 else None
            limit = m.payload.max_outgoing_messages
            created = Channel(channel, ChannelState.INITIATED, 0, 0, None, fee, limit, None, 0)
            c.state.channels[src, channel] = created
            c.state.next_channel_id[src] = max(c.state.next_channel_id.get(src, 0), channel + 1)
        ch = c.state.channels[src, channel]
        if ch.next_inbox_nonce == U256:
            raise custom(205)
        c.state.channels[src, channel] = replace(ch, next_inbox_nonce=ch.next_inbox_nonce + 1)
        c.log(
            "InboxMessage",
            foreign=src,
            channel_id=channel,
            nonce=m.nonce,
            payload_hash=blake2b(encode_message(m)),
            proof_block=item.proof_block,
            relayer=item.relayer,
        )


def process_inbox_message(c: ChainNode, item: Early) -> None:
    """Steps 14 to 16. Steps 12's slot and 13's MissingMessage are the argument here: it cannot be missing. Decision: an
    answer has the layout of V1, whatever its request has."""
    m = item.message
    src, channel = m.src, m.channel_id
    tag = item.tag if c.options.trust_tag == "on" else request_tag(m)
    response = answer(c, m, tag)
    reply = Message(c.chain_id, src, channel, m.nonce, response, None)
    c.state.inbox_responses[src, channel, m.nonce] = reply
    c.state.answered_in[src, channel, m.nonce] = c.block
    c.state.response_tags[src, channel, m.nonce] = response_tag(tag, response)
    c.state.updated_channels.add((src, channel))
    acknowledge(c, src, channel, m.last_delivered)
    c.log(
        "InboxMessageResponse",
        foreign=src,
        channel_id=channel,
        nonce=m.nonce,
        payload_hash=blake2b(encode_message(reply)),
        result=result_of(response),
    )


def answer(c: ChainNode, m: Message, tag: Tag) -> Response:
    """Step 14. A failure of what is asked for is an answer; FailedToNoteTransferIn fails the call."""
    if isinstance(m.payload, EndpointCall):
        mint(c, m, m.payload)
        return EndpointResponse(ask_handler(c, m, m.payload, tag))
    try:
        with transaction(c):
            if isinstance(m.payload, ChannelOpen):
                open_here(c, m, tag)
            elif isinstance(m.payload, ChannelClose):
                if tag != TAG_CLOSE:
                    raise XdmError("WeightTagNotMatch")
                close_locally(c, m.src, m.channel_id, None)
            else:
                raise XdmError("InvalidMessagePayload")
    except XdmError as error:
        return ProtocolResponse(dispatch(error.name))
    return ProtocolResponse(None)


def open_here(c: ChainNode, m: Message, tag: Tag) -> None:
    if c.options.allowlist == "on" and m.src not in c.state.allowlist:
        raise XdmError("ChainNotAllowed")
    if tag != TAG_OPEN:
        raise XdmError("WeightTagNotMatch")
    set_open(c, m.src, m.channel_id)


def fee_to_mint(c: ChainNode, m: Message, call: EndpointCall) -> int:
    """D-4. Decision: a message that names no fee (V0 layout) leaves only recomputation, whatever the option."""
    ch = c.state.channels.get((m.src, m.channel_id))
    v1 = ch is not None and ch.fee is None
    if call.collected_fee is not None and (v1 or c.options.v0_mint == "collected"):
        return call.collected_fee.dst_chain_fee
    handler = c.handlers.get(call.req.dst_endpoint)
    weight = handler.message_weight if handler else 0
    return (ch.fee if ch and ch.fee is not None else c.options.relay_fee) + c.options.weight_to_fee(weight)


def mint(c: ChainNode, m: Message, call: EndpointCall) -> None:
    """The fees for this side are issued, and held until the answer is acknowledged."""
    amount = fee_to_mint(c, m, call)
    c.state.inbox_fee[m.src, m.channel_id, m.nonce] = amount
    if c.state.inbox_fees_on_hold + amount > U128:
        raise XdmError("BalanceOverflow")
    c.state.inbox_fees_on_hold += amount
    try:
        note_transfer_in(c, amount, m.src)
    except XdmError as error:
        raise XdmError("FailedToNoteTransferIn") from error
    c.log("FeeMint", foreign=m.src, channel_id=m.channel_id, nonce=m.nonce, amount=amount)


def pre_check(c: ChainNode, m: Message, call: EndpointCall, tag: Tag) -> XdmError | None:
    ch = c.state.channels.get((m.src, m.channel_id))
    if tag != Tag(2, call.req.dst_endpoint):
        return XdmError("WeightTagNotMatch")
    if ch is None:
        return XdmError("MissingChannel")
    if ch.state != ChannelState.OPEN:
        return XdmError("InvalidChannelState")
    if c.options.allowlist == "on" and m.src not in c.state.allowlist:
        return XdmError("ChainNotAllowed")
    return None


def ask_handler(c: ChainNode, m: Message, call: EndpointCall, tag: Tag) -> bytes | DispatchError:
    """The handler's result. What a handler does to keep its books when it answers Err stays (X-3): it undoes by itself
    what it must. A panic undoes everything that it did."""
    handler = c.handlers.get(call.req.dst_endpoint)
    if handler is None:
        return dispatch("NoMessageHandler")
    check = pre_check(c, m, call, tag)
    before, rows = c.state.copy(), len(c.events)
    try:
        return handler.message(c, m.src, (m.channel_id, m.nonce), call.req, check)
    except XdmError as error:
        return dispatch(error.name)
    except OverWeight:
        error_name = "Exhausted"
    except Exception:  # a panic of the application is contained, hazard 19
        error_name = "Other"
    c.state = before
    del c.events[rows:]
    return dispatch(error_name)
