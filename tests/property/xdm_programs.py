"""The endpoint of programs in plain Python: its contents (docs/protocols/xdm.md, "Programs"), as a handler of the
oracle, and a program of the kernel's side that fails when it is told to."""

from __future__ import annotations

from dataclasses import dataclass, field

from causeway.programs.scalar import Context, Program, Reject, Request
from tests.spec.xdm.channels import credit
from tests.spec.xdm.errors import DispatchError, XdmError
from tests.spec.xdm.scale import Reader, blob, little, u128
from tests.spec.xdm.state import ChainNode, note_claimed, note_rejected, note_transfer_in, note_transfer_out
from tests.spec.xdm.values import Chain, EndpointRequest

PROGRAMS_ENDPOINT = 2
REJECTED, HANDLER_FAILED = 4, 5


class Special(Program):
    """Echoes; a payload that begins with ``!`` is rejected, with ``*`` or ``#`` its handler raises."""

    def on_request(self, request: Request, context: Context) -> bytes:
        if request.payload.startswith(b"!"):
            raise Reject("refused")
        if request.payload[:1] in (b"*", b"#"):
            raise RuntimeError("the program fails")
        return request.payload


@dataclass(frozen=True)
class Call:
    callback: int
    sender: int
    receiver: int
    amount: int
    deadline: int
    method: bytes
    payload: bytes


@dataclass(frozen=True)
class Answer:
    callback: int
    sender: int
    receiver: int
    amount: int
    code: int
    payload: bytes


def encode(content: Call | Answer) -> bytes:
    head = b"".join(little(n, 8) for n in (content.callback, content.sender, content.receiver)) + u128(content.amount)
    if isinstance(content, Call):
        return b"\0" + head + little(content.deadline, 4) + blob(content.method) + blob(content.payload)
    return b"\1" + head + little(content.code, 1) + blob(content.payload)


def decode(data: bytes) -> Call | Answer | None:
    """None: accepted, answered later."""
    r = Reader(data)
    kind = r.index(3)
    if kind == 2:
        r.end()
        return None
    head = r.integer(8), r.integer(8), r.integer(8), r.integer(16)
    content = Answer(*head, r.integer(1), r.blob()) if kind else Call(*head, r.integer(4), r.blob(), r.blob())
    r.end()
    return content


def answered_amount(content: bytes) -> int:
    """The value that a response's content gives back."""
    if not content:
        return 0
    try:
        found = decode(content)
    except XdmError:
        return 0
    return found.amount if isinstance(found, Answer) else 0


def program_failed(content: bytes) -> bool:
    """Whether a response's content is an answer that says that the program failed. The endpoint of programs contains
    it: whoever called is told why, which no DispatchError can say."""
    if not content:
        return False
    try:
        found = decode(content)
    except XdmError:
        return False
    return isinstance(found, Answer) and found.code > 0


def account(number: int) -> bytes:
    """The account of a program."""
    return little(number, 32)


@dataclass
class Programs:
    """The handler: programs of a chain, by number, all of which echo and give what was attached back."""

    message_weight: int
    response_weight: int
    here: set[int]
    calls: dict[int, int] = field(default_factory=dict)
    """Callers and how many calls they have made."""

    def message(
        self, c: ChainNode, src: Chain, key: tuple[int, int], req: EndpointRequest, pre_check: XdmError | None
    ) -> bytes:
        call = decode(req.payload)
        assert isinstance(call, Call)
        failed = pre_check or (None if call.receiver in self.here else XdmError("NoMessageHandler"))
        if failed:
            if call.amount:
                note_rejected(c, call.amount, src)
            raise failed
        if call.amount:
            note_transfer_in(c, call.amount, src)
            note_transfer_out(c, call.amount, src)
            c.log("Transfer", foreign=src, channel_id=key[0], nonce=key[1], kind="in", amount=call.amount)
            c.log("Transfer", foreign=src, channel_id=-1 - key[0], nonce=key[1], kind="out", amount=call.amount)
        return encode(Answer(call.callback, call.receiver, call.sender, call.amount, 0, call.payload))

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        call = decode(req.payload)
        assert isinstance(call, Call)
        if not call.amount:
            return
        channel = key[0]
        if isinstance(result, DispatchError):
            note_claimed(c, call.amount, dst)
            kind = "back"
        else:
            note_transfer_in(c, call.amount, dst)
            kind, channel = "in", -1 - channel
        credit(c, account(call.sender), call.amount)
        c.log("Transfer", foreign=dst, channel_id=channel, nonce=key[1], kind=kind, amount=call.amount)
