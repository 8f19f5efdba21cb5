"""What runs on chains in scenes: a program of the kernel's side that does what its payload says, and the oracle's
handler of the endpoint of programs, which does the same (docs/explanation/protocols/xdm.md, "Programs")."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from causeway.programs.scalar import Context, Program, Reject, Request
from tests.spec.xdm.channels import credit
from tests.spec.xdm.endpoints import Transporter, decode_transfer
from tests.spec.xdm.errors import DispatchError, XdmError
from tests.spec.xdm.programs import Answer, Call, account, decode, encode
from tests.spec.xdm.state import Account, ChainNode, note_claimed, note_rejected, note_transfer_in, note_transfer_out
from tests.spec.xdm.values import Chain, EndpointRequest

REJECTED, HANDLER_FAILED = 4, 5
VARIOUS = "tests.support.xdm.properties.xdm_scene_programs:Various"


class Various(Program):
    """Echoes; a payload that begins with ``!`` is rejected, with ``*`` or ``#`` its handler raises, and with ``$`` it
    keeps a third of what is attached."""

    def on_request(self, request: Request, context: Context) -> bytes | tuple[bytes, int]:
        if request.payload.startswith(b"!"):
            raise Reject("refused")
        if request.payload[:1] in (b"*", b"#"):
            raise RuntimeError("the program fails")
        if request.payload.startswith(b"$"):
            return b"kept", request.amount // 3
        return request.payload


@dataclass
class Programs:
    """The handler: programs of a chain, by number, as ``Special`` is one."""

    message_weight: int
    response_weight: int
    here: set[int]

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
        back, code, payload = run(call)
        if back < call.amount:
            credit(c, account(call.receiver), call.amount - back)
        if call.amount:
            note_transfer_in(c, call.amount, src)
            c.log("Transfer", foreign=src, channel_id=key[0], nonce=key[1], kind="in", amount=call.amount)
        if back:
            note_transfer_out(c, back, src)
            c.log("Transfer", foreign=src, channel_id=-1 - key[0], nonce=key[1], kind="out", amount=back)
        return encode(Answer(call.callback, call.receiver, call.sender, back, code, payload))

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        call = decode(req.payload)
        assert isinstance(call, Call)
        channel, kind, amount = key[0], "back", call.amount
        answer = None if isinstance(result, DispatchError) else decode(result)
        if isinstance(answer, Answer):
            channel, kind, amount = -1 - channel, "in", answer.amount
        self.count(c, account(call.sender), isinstance(answer, Answer) and answer.code == 0)
        if not amount:
            return
        (note_transfer_in if kind == "in" else note_claimed)(c, amount, dst)
        credit(c, account(call.sender), amount)
        c.log("Transfer", foreign=dst, channel_id=channel, nonce=key[1], kind=kind, amount=amount)

    def count(self, c: ChainNode, caller: Account, ok: bool) -> None:
        """A program has an answer."""
        key = ("answered" if ok else "rejected", caller)
        c.state.notes[key] = c.state.notes.get(key, 0) + 1


@dataclass
class Transfers(Transporter):
    """The transporter, whose callers are told by the endpoint of programs."""

    programs: Programs | None = None

    def message_response(
        self, c: ChainNode, dst: Chain, key: tuple[int, int], req: EndpointRequest, result: bytes | DispatchError
    ) -> None:
        super().message_response(c, dst, key, req, result)
        assert self.programs
        self.programs.count(c, decode_transfer(req.payload).sender[1], isinstance(result, bytes))


def run(call: Call) -> tuple[int, int, bytes]:
    """What a program answers: what it gives back, the code, the content."""
    if call.payload.startswith(b"!"):
        return call.amount, REJECTED, b"refused"
    if call.payload[:1] in (b"*", b"#"):
        return call.amount, HANDLER_FAILED, b"RuntimeError: the program fails"
    if call.payload.startswith(b"$"):
        return call.amount - call.amount // 3, 0, b"kept"
    return call.amount, 0, call.payload


def credit_known(known: Collection[Account]) -> Callable[[ChainNode, Account, int], None]:
    """Credit accounts of programs that there are."""

    def known_only(c: ChainNode, to: Account, amount: int) -> None:
        if to not in known:
            raise XdmError("InvalidAccountId")
        credit(c, to, amount)

    return known_only
