"""What is done with a response, and when one is acknowledged: 3.5 and 3.6."""

from dataclasses import replace

from tests.spec.xdm.channels import credit
from tests.spec.xdm.errors import XdmError, name_of
from tests.spec.xdm.keys import blake2b
from tests.spec.xdm.state import ChainNode, ChannelState, Early, subtract, transaction
from tests.spec.xdm.values import (
    TAG_OPEN,
    Chain,
    ChannelClose,
    ChannelOpen,
    EndpointCall,
    EndpointResponse,
    Message,
    Payload,
    ProtocolResponse,
    Tag,
    encode_message,
    request_tag,
    response_tag,
)


def result_of(response: Payload) -> str:
    """Ok, or the name of the error."""
    if isinstance(response, ProtocolResponse):
        return "Ok" if response.error is None else name_of(response.error)
    assert isinstance(response, EndpointResponse)
    return "Ok" if isinstance(response.result, bytes) else name_of(response.result)


def set_open(c: ChainNode, foreign: Chain, channel: int) -> None:
    ch = c.state.channels.get((foreign, channel))
    if ch is None:
        raise XdmError("MissingChannel")
    if ch.state != ChannelState.INITIATED:
        raise XdmError("InvalidChannelState")
    c.state.channels[foreign, channel] = replace(ch, state=ChannelState.OPEN)
    c.log("ChannelOpen", foreign=foreign, channel_id=channel, limit=ch.max_outgoing_messages)


def prepare_response(c: ChainNode, item: Early, src: Chain, channel: int) -> None:
    ch = c.state.channels[src, channel]
    c.state.channels[src, channel] = replace(ch, latest_response=item.message.nonce)
    c.log(
        "OutboxMessageResponse",
        foreign=src,
        channel_id=channel,
        nonce=item.message.nonce,
        payload_hash=blake2b(encode_message(item.message)),
        result=result_of(item.message.payload),
        proof_block=item.proof_block,
        relayer=item.relayer,
    )


def process_response(c: ChainNode, item: Early) -> None:
    r = item.message
    key = (r.src, r.channel_id, r.nonce)
    q = c.state.outbox.pop(key, None)
    if q is None:
        raise XdmError("MissingMessage")
    subtract(c.state.outbox_count, key[:2], 1, "MessageCountUnderflow")
    c.state.outbox_tags.pop(key, None)
    result = "Ok"
    sent_in = c.state.sent_in.pop(key, c.block)
    try:
        deliver(c, item, q, sent_in)
    except XdmError as error:
        result = error.name
    c.state.updated_channels.add(key[:2])
    c.log("OutboxMessageResult", foreign=r.src, channel_id=r.channel_id, nonce=r.nonce, result=result)


def deliver(c: ChainNode, item: Early, q: Message, sent_in: int) -> None:
    """3.5 step 2. An error here is only reported; what was paid before it stays paid."""
    r = item.message
    tag = item.tag if c.options.trust_tag == "on" else response_tag(request_tag(q), r.payload)
    if isinstance(q.payload, ChannelOpen) and isinstance(r.payload, ProtocolResponse):
        if r.payload.error is None:
            if tag != TAG_OPEN:
                raise XdmError("WeightTagNotMatch")
            set_open(c, r.src, r.channel_id)
    elif isinstance(q.payload, ChannelClose) and isinstance(r.payload, ProtocolResponse):
        pass
    elif isinstance(q.payload, EndpointCall) and isinstance(r.payload, EndpointResponse):
        fee = c.state.outbox_fee.pop((r.src, r.channel_id, r.nonce), 0)
        c.state.outbox_fees_on_hold = less(c.state.outbox_fees_on_hold, fee)
        fall_due(c, r.src, r.channel_id, r.nonce, fee, sent_in, "response")
        handler = c.handlers.get(q.payload.req.src_endpoint)
        if handler is None:
            raise XdmError("NoMessageHandler")
        if tag != Tag(3, q.payload.req.dst_endpoint):
            raise XdmError("WeightTagNotMatch")
        try:
            with transaction(c):
                handler.message_response(c, r.src, (r.channel_id, r.nonce), q.payload.req, r.payload.result)
        except XdmError:
            raise
        except Exception as error:  # a panic of the application is contained
            raise XdmError("Other") from error
    else:
        raise XdmError("InvalidMessagePayload")


def less(held: int, amount: int) -> int:
    if amount > held:
        raise XdmError("BalanceUnderflow")
    return held - amount


def fall_due(c: ChainNode, foreign: Chain, channel: int, nonce: int, amount: int, receipt: int, kind: str) -> None:
    """A held fee is due to the operators who submitted the receipt of the own block that includes the message."""
    if amount:
        c.state.dues[receipt] = c.state.dues.get(receipt, 0) + amount
        c.log("FeePay", foreign=foreign, channel_id=channel, nonce=nonce, kind=kind, amount=amount, receipt=receipt)


def pay_operators(c: ChainNode) -> None:
    """Equal parts for the operators who submitted each receipt. Decisions: what is due for one receipt in one block is
    paid at its end, together; the units that are left go one each to operators in ascending order, from the one at the
    place receipt modulo their count. A consensus block has no receipt: its author is paid."""
    for receipt, amount in sorted(c.state.dues.items()):
        places = list(range(len(c.operators))) if c.submitters is None else c.submitters(receipt)
        share, left = divmod(amount, len(places))
        lucky = {places[(receipt + i) % len(places)] for i in range(left)}
        for place in places:
            part = share + (place in lucky)
            if part:
                credit(c, c.operators[place], part)
                c.log("FeeShare", to=c.operators[place], amount=part, receipt=receipt)
    c.state.dues = {}


def acknowledge(c: ChainNode, src: Chain, channel: int, n: int | None) -> None:
    """3.6."""
    if n is None:
        return
    k = n
    while c.state.inbox_responses.pop((src, channel, k), None) is not None:
        c.state.response_tags.pop((src, channel, k), None)
        fee = c.state.inbox_fee.pop((src, channel, k), 0)
        c.log("ResponseDeleted", foreign=src, channel_id=channel, nonce=k)
        c.state.inbox_fees_on_hold = less(c.state.inbox_fees_on_hold, fee)
        fall_due(c, src, channel, k, fee, c.state.answered_in.pop((src, channel, k), c.block), "acknowledgement")
        k -= 1
