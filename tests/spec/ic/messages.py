"""Messages (2.4), verdicts (2.6), and the rejects that routing makes itself (2.4, X-13)."""

from dataclasses import dataclass
from enum import IntEnum

from tests.spec.ic.ids import CanisterId, canister_text

MESSAGE_OVERHEAD = 256
"""D-3."""

MAX_RESPONSE = 2 * 1024 * 1024 + MESSAGE_OVERHEAD
"""The size of the largest response, in bytes."""

MAX_TEXT = 8 * 1024
MAX_SYNTHETIC_TEXT = 255
"""What is left of the text of a reject that a canister makes, and of one that is made in its stead (X-7), in bytes."""

User = int | str | bytes
MessageId = tuple[object, ...]


class RejectCode(IntEnum):
    """2.4."""

    SysFatal = 1
    SysTransient = 2
    DestinationInvalid = 3
    CanisterReject = 4
    CanisterError = 5
    SysUnknown = 6


class Reason(IntEnum):
    """Why a signal is REJECT (2.9)."""

    CanisterMigrating = 1
    CanisterNotFound = 2
    CanisterStopped = 3
    CanisterStopping = 4
    QueueFull = 5
    OutOfMemory = 6
    Unknown = 7


@dataclass(frozen=True)
class Verdict:
    """ACCEPT, or REJECT with its reason."""

    reason: Reason | None = None


ACCEPT = Verdict()
REJECT = Verdict
"""`REJECT(Reason.QueueFull)`."""


@dataclass(frozen=True)
class Request:
    receiver: CanisterId
    sender: CanisterId
    callback: int
    cycles: int = 0
    method: str = ""
    payload: bytes = b""
    deadline: int = 0

    @property
    def src(self) -> CanisterId:
        return self.sender

    @property
    def dst(self) -> CanisterId:
        return self.receiver


@dataclass(frozen=True)
class Response:
    """Carries `data`, or `reject` = (code, text)."""

    originator: CanisterId
    respondent: CanisterId
    callback: int
    refund: int = 0
    data: bytes | None = None
    reject: tuple[int, str] | None = None
    deadline: int = 0

    @property
    def src(self) -> CanisterId:
        return self.respondent

    @property
    def dst(self) -> CanisterId:
        return self.originator


@dataclass(frozen=True)
class Ingress:
    user: User
    canister: CanisterId
    method: str = ""
    payload: bytes = b""


CanisterMessage = Request | Response
Message = Request | Response | Ingress


def message_id(message: Message, ingress_index: int | None = None) -> MessageId:
    """("q", sender, callback), ("r", originator, callback), ("i", user, canister, index in the ingress queue)."""
    if isinstance(message, Request):
        return ("q", message.sender, message.callback)
    if isinstance(message, Response):
        return ("r", message.originator, message.callback)
    return ("i", message.user, message.canister, ingress_index)


def kind(message: Message) -> str:
    """request, response or ingress."""
    return type(message).__name__.lower()


def cycles_of(message: Message) -> int:
    """The cycles that a message carries: a request's payment, a response's refund."""
    if isinstance(message, Request):
        return message.cycles
    return message.refund if isinstance(message, Response) else 0


def message_size(message: CanisterMessage) -> int:
    """What a message counts for the byte limit of its stream: MESSAGE_OVERHEAD + length of payload (2.10)."""
    if isinstance(message, Request):
        return MESSAGE_OVERHEAD + len(message.payload)
    if message.reject is not None:
        return MESSAGE_OVERHEAD + len(message.reject[1].encode())
    return MESSAGE_OVERHEAD + len(message.data or b"")


def payload_size(message: CanisterMessage) -> int:
    """What X-7 limits: the name of a request's method and its payload, or a response's data or text."""
    named = len(message.method.encode()) if isinstance(message, Request) else 0
    return message_size(message) - MESSAGE_OVERHEAD + named


def reject_of(reason: Reason, request: Request) -> tuple[RejectCode, str]:
    """Code and text for a reject signal (X-13)."""
    canister, requested = canister_text(request.receiver), max(message_size(request), MAX_RESPONSE)
    return {
        Reason.CanisterMigrating: (RejectCode.SysTransient, "Canister migration in progress"),
        Reason.CanisterNotFound: (RejectCode.DestinationInvalid, f"Canister {canister} not found"),
        Reason.CanisterStopped: (RejectCode.CanisterError, f"Canister {canister} is stopped"),
        Reason.CanisterStopping: (RejectCode.CanisterError, f"Canister {canister} is stopping"),
        Reason.QueueFull: (RejectCode.SysTransient, f"Canister {canister} input queue is full"),
        Reason.OutOfMemory: (RejectCode.CanisterError, f"Cannot induct request. Out of memory: requested {requested}"),
        Reason.Unknown: (RejectCode.SysFatal, "Inducting request failed due to an unknown error"),
    }[reason]


def cut(text: str, size: int) -> str:
    """As many characters of the text as fit `size` bytes."""
    return text.encode()[:size].decode(errors="ignore")


def reject_response(request: Request, code: int, text: str, most: int = MAX_SYNTHETIC_TEXT) -> Response:
    """A reject made in the receiver's stead: all cycles of the request come back. `most`: bytes of its text."""
    return Response(
        originator=request.sender,
        respondent=request.receiver,
        callback=request.callback,
        refund=request.cycles,
        reject=(int(code), cut(text, most)),
        deadline=request.deadline,
    )


def NON_EXISTENT_CANISTER(m: CanisterMessage) -> Response:
    """2.4. Only `dead_destination = seed_literal` (D-8) ever asks it for a response, which has no cycles of its own:
    its refund is Lost with it, so the answer refunds nothing."""
    return Response(
        originator=m.src,
        respondent=m.dst,
        callback=m.callback,
        refund=m.cycles if isinstance(m, Request) else 0,
        reject=(int(RejectCode.DestinationInvalid), f"No route to canister {canister_text(m.dst)}"),
        deadline=m.deadline,
    )
