"""The event log: the relations of 1.1 under the ten names of message life.

sent            Produced, at the sender's host: execution pushes to an output queue (`queue_index`). `via` is "forged"
                for what a byzantine subnet put into its stream itself; so it is in the `committed` that goes with it.
committed       Routed, at the source: a message is appended to a stream (`remote`, `substream`, `index`). From an
                output queue it has that queue's `queue_index`; a reject or a response that routing itself puts on its
                way has none, and `cause` = the name of the reject reason.
received        Enqueued (and Judged), at the destination: a push to an input or ingress queue (`queue_index`). `via`:
                xnet and loopback have the place in the remote's stream and mean verdict ACCEPT; synthetic (`cause`: the
                name of the reject reason, or no_route) and timeout are rejects made here; ingress.
rejected        1. Judged, at the destination: verdict REJECT (`reason`; a request also has `code` and `text`), `via`
                   xnet or loopback.
                2. At the sender's host: a request for a canister in no subnet left its output queue (`cause` no_route,
                   `code`, `text`, `queue_index`). A `received` via synthetic goes with it.
                3. Consumed, at the destination: a request or ingress for a canister that is not installed (`cause`
                   not_installed, `code`, `text`, `queue_index`). For a request a `sent` of the answer goes with it.
                4. Ingress refused at induction (`cause` not_hosted or not_installed, `code`), or because the subnet
                   runs no round (`cause` halted), `via` ingress, `index`: the place in the ingress payload.
                5. At the last host of a canister that is in no subnet any more: a request that it has not answered
                   (`cause` canister_removed, `code`, `text`; `queue_index` if it was in its input queue yet). A
                   `received` via synthetic, a `committed` or a `dropped` of the answer goes with it.
                6. At routing: a message too large (`cause` too_large, `code`, `text`, `queue_index`). A `received` via
                   synthetic goes with a request; a response goes on with what is left of it.
executed        Consumed, at the destination: a handler ran; `error` = its text when it raised.
answered        At the sender's host, beside each `executed` of a response: the *request* is answered (`code` and `text`
                if by a reject; `queue_index` is the response's).
timed_out       At the sender's host: a request left its output queue after its lifetime (`queue_index`, `code`,
                `text`). A `received` via timeout goes with it.
dropped         Lost, anywhere: gone for good, with its `cycles` and a `cause`: sender_mismatch, receiver_mismatch,
                response_induction_failed and NonMatchingResponse at judging (they have the place in the remote's
                stream and `via`, and mean verdict ACCEPT), NonMatchingResponse also of an answer made here (`via`
                synthetic or timeout), unroutable_response, canister_removed (`queue_index`: the place in a queue of a
                canister that is in no subnet any more); forged_for_nobody and halted: what a byzantine subnet would
                have put into a stream. With cause late_response it is not Lost: the refund is credited.
acknowledged    SignalSeen, at the source: the signal for a message that is still in our stream (`reason` if REJECT).
collected       Collected, at the source: that message is removed from the stream (same columns).

Events whose `kind` is "control" are about slices and signals:
received        Included: a slice is part of the batch; `detail` = one (substream, begin, end, signals_end, first
                message index, one past the last message index) a substream, the last two None without messages.
dropped         A canister is in no subnet any more (`receiver`): its balance is Lost (`cause` canister_removed).
stopped         The subnet violated a hard invariant (`cause`: its name) and runs no round from this one on.
rejected        A slice was refused; `error` = the name of the error.
collected       One of our signals was removed (`remote`, `substream`, `index`; `reason` when it was REJECT).

The order of the list is the order in the round (`step` of 1.1).
"""

from dataclasses import dataclass, field
from typing import Any

from tests.spec.ic.ids import CanisterId, SubnetId
from tests.spec.ic.messages import (
    CanisterMessage,
    Ingress,
    Message,
    MessageId,
    Response,
    User,
    cycles_of,
    kind,
    message_id,
)
from tests.spec.ic.queues import StreamIndex


@dataclass(frozen=True)
class Event:
    """One row. A column that does not apply is None."""

    event: str
    chain: SubnetId
    height: int
    kind: str
    message: MessageId | None = None
    sender: CanisterId | User | None = None
    receiver: CanisterId | None = None
    cycles: int | None = None
    remote: SubnetId | None = None
    substream: Any = None
    index: int | None = None
    queue_index: int | None = None
    via: str | None = None
    code: int | None = None
    text: str | None = None
    reason: str | None = None
    cause: str | None = None
    error: str | None = None
    detail: Any = None
    content: Message | None = field(default=None, compare=False, repr=False)
    """The message itself, for the guarantees; not part of a comparison."""


def canister_event(
    event: str,
    chain: SubnetId,
    height: int,
    message: CanisterMessage,
    *,
    remote: SubnetId | None = None,
    at: StreamIndex | None = None,
    **columns: Any,
) -> Event:
    """An event of a request or response. A reject response brings its code and text along."""
    if isinstance(message, Response) and message.reject is not None:
        columns.setdefault("code", message.reject[0])
        columns.setdefault("text", message.reject[1])
    return Event(
        event=event,
        chain=chain,
        height=height,
        kind=kind(message),
        message=message_id(message),
        sender=message.src,
        receiver=message.dst,
        cycles=cycles_of(message),
        remote=remote,
        substream=None if at is None else at[0],
        index=None if at is None else at[1],
        content=message,
        **columns,
    )


def ingress_event(event: str, chain: SubnetId, height: int, m: Ingress, index: int | None, **columns: Any) -> Event:
    """An event of an ingress message at `index` of its ingress queue; refused ones never had an index."""
    return Event(
        event=event,
        chain=chain,
        height=height,
        kind="ingress",
        message=message_id(m, index),
        sender=m.user,
        receiver=m.canister,
        queue_index=index,
        content=m,
        **columns,
    )
