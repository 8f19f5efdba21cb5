"""Programs as modules, and what packets mean to them (composition: "Programs and packets")."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.spec.ibc.errors import InvalidPacket
from tests.spec.ibc.events import Failed
from tests.spec.ibc.values import HANDLER_FAILED, NO_SUCH_PROGRAM, PERMISSION, REJECTED, SUCCESS, Receipt
from tests.spec.ibc.zone import LATER, Arrived, Handler, Zone, transaction

CALL = "call"
"""The request/reply module's type: declared on all zones, for all modules."""

MAX_CYCLES = 2**128 - 1


@dataclass(frozen=True)
class RequestKey:
    """What an answer needs to know of its request. `zone`: whose packet `index` it is; None: from this zone itself."""

    zone: str | None
    index: int
    sender: int
    callback: int
    cycles: int


@dataclass(frozen=True)
class Request:
    key: RequestKey
    receiver: int
    method: str
    payload: bytes


@dataclass(frozen=True)
class Reply:
    """`code` 0: success, `payload` the data; else `payload` the text of the refusal."""

    callback: int
    code: int
    payload: bytes
    refund: int


@dataclass(frozen=True)
class Ingress:
    user: int | str
    receiver: int
    method: str = ""
    payload: bytes = b""


@dataclass(frozen=True)
class Call:
    """An effect: call a program. The limits are those of the packet (X-1)."""

    receiver: int
    method: str = ""
    payload: bytes = b""
    cycles: int = 0
    max_height: int | None = None
    max_time: int | None = None


@dataclass(frozen=True)
class Answer:
    """An effect: answer the request at hand or an earlier one. A program that rejects gives code 16 or above."""

    to: RequestKey
    payload: bytes = b""
    accepted: int = 0
    code: int = SUCCESS

    @classmethod
    def reject(cls, to: RequestKey, text: str) -> "Answer":
        return cls(to, text.encode(), 0, REJECTED)


@dataclass(frozen=True)
class Accept:
    """An effect: take a part of what is still attached to the request at hand or an earlier one that is open."""

    of: RequestKey
    cycles: int


class Program(Protocol):
    """A handler may change the program's own state; when it raises, the change is undone."""

    def on_request(self, request: Request) -> Sequence[Call | Answer | Accept]: ...

    def on_reply(self, reply: Reply) -> Sequence[Call | Answer | Accept]: ...

    def on_ingress(self, ingress: Ingress) -> Sequence[Call | Answer | Accept]: ...


class InsufficientFunds(Exception):
    """A call beyond the balance: the handler run counts as raised."""


class BalanceOverflow(Exception):
    """More cycles than 128 bits: the handler run counts as raised."""


@dataclass(frozen=True)
class Outgoing:
    """A call that a program made in this block."""

    program: int
    callback: int
    call: Call


@dataclass
class App:
    """The state of a zone's modules. `calls`, `answers`, `made`: of this block. `local`: the local lane's messages of
    the block before, in the order of production; each is (program, Request or Reply). `open_local`: local requests that
    have no answer yet. `unserved`: answers to local requests for programs that are not there; they go out behind those
    that programs made (composition). `accepted`: what programs took of requests that are open."""

    programs: dict[int, Any]
    balances: dict[int, int]
    callbacks: dict[int, int] = field(default_factory=dict)
    calls: list[Outgoing] = field(default_factory=list)
    answers: list[tuple[RequestKey, Receipt]] = field(default_factory=list)
    unserved: list[tuple[RequestKey, Receipt]] = field(default_factory=list)
    local: list[tuple[int, Request | Reply]] = field(default_factory=list)
    made: list[tuple[int, Request | Reply]] = field(default_factory=list)
    open_local: set[RequestKey] = field(default_factory=set)
    accepted: dict[RequestKey, int] = field(default_factory=dict)


# ---- the envelope and the result


def encode_envelope(sender: int, callback: int, call: Call) -> bytes:
    numbers = b"".join(number.to_bytes(8, "big") for number in (sender, call.receiver, callback))
    method = call.method.encode()
    return numbers + call.cycles.to_bytes(16, "big") + bytes([len(method)]) + method + call.payload


def decode_envelope(data: bytes) -> tuple[int, int, Call]:
    """(sender, callback, call)."""
    if len(data) < 41 or len(data) < 41 + data[40]:
        raise InvalidPacket("envelope ends early")
    sender, receiver, callback = (int.from_bytes(data[at : at + 8], "big") for at in (0, 8, 16))
    end = 41 + data[40]
    cycles, method = int.from_bytes(data[24:40], "big"), data[41:end].decode()
    return sender, callback, Call(receiver, method, data[end:], cycles)


def encode_result(refund: int, payload: bytes) -> bytes:
    return refund.to_bytes(16, "big") + payload


def decode_result(result: bytes, cycles: int) -> tuple[int, bytes]:
    """(refund, payload). What the queue itself answers is empty: all cycles come back."""
    if len(result) < 16:
        return cycles, b""
    return min(cycles, int.from_bytes(result[:16], "big")), result[16:]


# ---- running handlers


def run(app: App, program: int, handler: str, given: Any) -> None:
    """One handler run and its effects, in the order made. Whatever it raises, the caller undoes it."""
    for effect in getattr(app.programs[program], handler)(given):
        if isinstance(effect, Accept):
            assert 0 <= effect.cycles <= effect.of.cycles - app.accepted.get(effect.of, 0)
            app.balances[program] += effect.cycles
            app.accepted[effect.of] = app.accepted.get(effect.of, 0) + effect.cycles
            continue
        if isinstance(effect, Answer):
            left = effect.to.cycles - app.accepted.pop(effect.to, 0)
            assert 0 <= effect.accepted <= left, "a program accepts what was attached at most"
            app.balances[program] += effect.accepted
            result = encode_result(left - effect.accepted, effect.payload)
            app.answers.append((effect.to, Receipt(result, effect.code)))
            continue
        balance = app.balances[program]
        if effect.cycles > balance:
            raise InsufficientFunds(f"balance {balance}, attached {effect.cycles}")
        if effect.cycles > MAX_CYCLES:
            raise BalanceOverflow(f"attached {effect.cycles}, at most 2**128 - 1")
        app.balances[program] -= effect.cycles
        callback = app.callbacks.get(program, 0)
        app.callbacks[program] = callback + 1
        app.calls.append(Outgoing(program, callback, effect))


def program_handler(zone: Zone, directory: Mapping[int, str]) -> Handler:
    """The handler that every declared type has. `directory`: program -> the zone where it lives."""

    def receive(arrived: Arrived) -> Any:
        sender, callback, call = decode_envelope(arrived.data)
        key = RequestKey(arrived.remote, arrived.index, sender, callback, call.cycles)
        if directory.get(sender) != arrived.remote:
            return encode_result(call.cycles, b"PermissionDenied"), PERMISSION
        if call.receiver not in zone.app.programs:
            return encode_result(call.cycles, no_such_program(call.receiver)), NO_SUCH_PROGRAM
        try:
            run(zone.app, call.receiver, "on_request", Request(key, call.receiver, call.method, call.payload))
        except Exception as error:  # whatever a program raises is its own failure
            return encode_result(call.cycles, failure(error)), HANDLER_FAILED
        answer = answer_at_hand(zone.app, key)
        if answer is LATER and zone.options.asynchronous == "off":
            return encode_result(call.cycles, b"asynchronous receipts are off"), HANDLER_FAILED
        return answer

    def settle(arrived: Arrived, code: int, result: bytes) -> None:
        sender, callback, call = decode_envelope(arrived.data)
        if sender not in zone.app.programs:
            return  # the zone itself has forged the packet: there is nothing to commit or to roll back
        refund, payload = decode_result(result, call.cycles)
        zone.app.balances[sender] += refund
        run(zone.app, sender, "on_reply", Reply(callback, code, payload, refund))

    return Handler(receive, lambda arrived, result: settle(arrived, SUCCESS, result), settle)


def answer_at_hand(app: App, key: RequestKey) -> Any:
    """What step 11 gets: the answer made by this very run, or LATER. A rejection is an answer too: its run stands."""
    for given in app.answers:
        if given[0] == key:
            app.answers.remove(given)
            return given[1]
    return LATER


def run_alone(zone: Zone, program: int, handler: str, given: Any) -> str | None:
    """A run outside any packet; gives the text of its failure, after undoing it."""
    try:
        with transaction(zone):
            run(zone.app, program, handler, given)
    except Exception as error:  # whatever a program raises is its own failure
        return failure(error).decode()
    return None


def failure(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}".encode()


def no_such_program(program: int) -> bytes:
    return f"no program {program}".encode()


# ---- local lane


def take_local(zone: Zone, in_substreams: bool) -> None:
    """The local lane's messages of the block before."""
    app, taken = zone.app, zone.app.local
    app.local = []
    if in_substreams:
        taken = sorted(taken, key=lambda one: isinstance(one[1], Reply))
    for program, message in taken:
        if isinstance(message, Reply):
            zone.app.balances[program] += message.refund
            text = run_alone(zone, program, "on_reply", message)
            if text is not None:
                zone.log.append(Failed(zone.chain_id, zone.height, program, "reply", text))
            continue
        cycles = message.key.cycles
        if program not in zone.app.programs:
            refusal = Receipt(encode_result(cycles, no_such_program(program)), NO_SUCH_PROGRAM)
            zone.app.unserved.append((message.key, refusal))
            continue
        text = run_alone(zone, program, "on_request", message)
        if text is not None:
            zone.app.answers.append((message.key, Receipt(encode_result(cycles, text.encode()), HANDLER_FAILED)))


def take_ingress(zone: Zone, ingress: Sequence[Ingress]) -> None:
    for one in ingress:
        text = (
            run_alone(zone, one.receiver, "on_ingress", one)
            if one.receiver in zone.app.programs
            else no_such_program(one.receiver).decode()
        )
        if text is not None:
            zone.log.append(Failed(zone.chain_id, zone.height, one.receiver, "ingress", text))
