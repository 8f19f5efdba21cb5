"""Programs for the comparison of kernel and oracle: each in Causeway's form and as a behaviour of the oracle.

The two forms are written apart: a program here uses ``causeway.programs``, its behaviour plain functions of plain
values.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import cbor2

from causeway.programs.scalar import Context, Ingress, Program, Reject, Reply, Request
from tests.spec import ic

LONG = "x" + "é" * 5_000
"""A text that is cut in the middle of a character if it is cut by bytes."""

MANY_CYCLES = 10**30
"""More than anyone has."""


def ops(*described: Any) -> bytes:
    """The payload of an ingress message for an actor: what it shall do, in order.

    ("call", receiver, method, payload, cycles, note), ("flush", share): answer all requests in hand, ("refuse",):
    reject them, ("accept", share): accept of them, ("raise",).
    """
    return cbor2.dumps([list(one) for one in described])


def accepting(payload: bytes) -> bytes:
    """What an actor is told to do, with acceptance before the answer in the place of other things that it is told."""
    told: list[Any] = []
    for op, *arguments in cbor2.loads(payload):
        if op == "call":
            receiver, method, *rest = arguments
            told.append((op, receiver, {"echo": "keep", "take": "keep", "raise": "trap"}.get(method, method), *rest))
        else:
            told.append(("accept", 2) if op == "refuse" else (op, *arguments))
    return ops(*told)


class Actor(Program):
    """Does what it is told; notes what it sees."""

    def initial_state(self) -> dict[str, Any]:
        return {"held": [], "seen": []}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        self._perform(cbor2.loads(message.payload), context)

    def on_request(self, request: Request, context: Context) -> bytes | tuple[bytes, int] | None:
        self.state["seen"].append([request.sender, request.callback, request.amount])
        if request.method == "hold":
            self.state["held"].append(request.ref)
            return None
        if request.method == "refuse":
            raise Reject("not today")
        if request.method == "loud":
            raise Reject(LONG)
        if request.method == "raise":
            context.call(request.sender, "echo", b"undone")
            raise ValueError("no")
        if request.method == "take":
            return request.payload, context.attached(request.ref) // 2
        if request.method == "keep":
            half = context.attached(request.ref) // 2
            context.accept(half)
            context.call(request.sender, "echo", b"paid on", amount=half)
            self.state["held"].append(request.ref)
            return None
        if request.method == "trap":
            context.accept(context.attached(request.ref))
            raise ValueError("accepted nothing")
        if request.method == "early":
            attached = request.payload[0] if request.payload else 0
            context.call(request.sender, "echo", b"after the answer", amount=attached)
            context.answer(request.ref, b"early", accept=context.attached(request.ref))
            self._perform([["flush", 1]], context)
            return None
        if request.method == "spend":
            context.call(request.sender, "echo", amount=MANY_CYCLES)
        if request.method == "relay":
            receiver, method, payload = cbor2.loads(request.payload)
            context.call(receiver, method, payload, note=request.ref)
            return None
        return request.payload

    def on_reply(self, reply: Reply, context: Context) -> None:
        self.state["seen"].append([reply.respondent, reply.callback, reply.code, reply.refund])
        if reply.note == "boom":
            raise KeyError("boom")
        if isinstance(reply.note, list):
            context.answer(reply.note, reply.payload if reply.ok else b"relayed a reject")

    def _perform(self, told: list[Any], context: Context) -> None:
        for op, *arguments in told:
            if op == "call":
                receiver, method, payload, cycles, note = arguments
                context.call(receiver, method, payload, amount=cycles, note=note)
            elif op == "flush":
                for ref in self.state["held"]:
                    context.answer(ref, b"late", accept=context.attached(ref) // arguments[0])
                self.state["held"] = []
            elif op == "accept":
                for ref in self.state["held"]:
                    context.accept(context.attached(ref) // arguments[0], ref)
            elif op == "refuse":
                for ref in self.state["held"]:
                    context.reject(ref, "late refusal")
                self.state["held"] = []
            else:
                raise RuntimeError("told so")


ACTOR = f"{__name__}:Actor"


def actor_start() -> dict[str, Any]:
    return {"state": {"held": [], "seen": []}, "notes": {}, "open": {}, "accepted": {}, "next": 0}


class _Doing:
    """An actor's turn in the oracle's terms: a copy of its state, and the effects so far."""

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.program: dict[str, Any] = copy.deepcopy(dict(start))
        self.effects: list[ic.Effect] = []

    def call(self, receiver: int, method: str, payload: bytes = b"", cycles: int = 0, note: Any = None) -> None:
        if note is not None:
            self.program["notes"][self.program["next"]] = note
        self.program["next"] += 1
        self.effects.append(ic.Call(receiver, method, payload, cycles))

    def answer(self, ref: Any, data: bytes | None, accepted: int = 0, reject: tuple[int, str] | None = None) -> None:
        key = tuple(ref)
        self.program["accepted"].pop(key, None)
        self.program["open"][key] -= 1
        if not self.program["open"][key]:
            del self.program["open"][key]
        self.effects.append(ic.Reply(key, data=data, accepted=accepted, reject=reject))

    def attached(self, ref: Any) -> int:
        return int(ref[2] - self.program["accepted"].get(tuple(ref), 0))

    def accept(self, cycles: int, ref: Any) -> None:
        if cycles:
            self.program["accepted"][tuple(ref)] = ref[2] - self.attached(ref) + cycles
        self.effects.append(ic.Accept(tuple(ref), cycles))

    def perform(self, told: list[Any]) -> None:
        for op, *arguments in told:
            if op == "call":
                self.call(*arguments)
            elif op == "accept":
                for ref in self.program["state"]["held"]:
                    self.accept(self.attached(ref) // arguments[0], ref)
            elif op == "raise":
                raise RuntimeError("told so")
            else:
                for ref in self.program["state"]["held"]:
                    if op == "flush":
                        self.answer(ref, b"late", self.attached(ref) // arguments[0])
                    else:
                        self.answer(ref, None, reject=(4, "late refusal"))
                self.program["state"]["held"] = []


def actor(canister: int, program: Mapping[str, Any], message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """What ``Actor`` does."""
    doing = _Doing(program)
    if isinstance(message, ic.Ingress):
        doing.perform(cbor2.loads(message.payload))
        return doing.program, doing.effects
    seen = doing.program["state"]["seen"]
    if isinstance(message, ic.Response):
        code = 0 if message.reject is None else message.reject[0]
        note = doing.program["notes"].pop(message.callback, None)
        seen.append([message.respondent, message.callback, code, message.refund])
        if note == "boom":
            raise KeyError("boom")
        if note is not None:
            doing.answer(note, b"relayed a reject" if code else message.data)
        return doing.program, doing.effects
    ref = [message.sender, message.callback, message.cycles, message.deadline]
    doing.program["open"][tuple(ref)] = doing.program["open"].get(tuple(ref), 0) + 1
    seen.append([message.sender, message.callback, message.cycles])
    if message.method == "hold":
        doing.program["state"]["held"].append(ref)
    elif message.method == "refuse":
        return dict(program), [ic.Reply(tuple(ref), reject=(4, "not today"))]  # type: ignore[arg-type]
    elif message.method == "loud":
        return dict(program), [ic.Reply(tuple(ref), reject=(4, LONG))]  # type: ignore[arg-type]
    elif message.method == "raise":
        raise ValueError("no")
    elif message.method == "take":
        doing.answer(ref, message.payload, doing.attached(ref) // 2)
    elif message.method == "keep":
        half = doing.attached(ref) // 2
        doing.accept(half, ref)
        doing.call(message.sender, "echo", b"paid on", half)
        doing.program["state"]["held"].append(ref)
    elif message.method == "trap":
        raise ValueError("accepted nothing")
    elif message.method == "early":
        doing.call(message.sender, "echo", b"after the answer", message.payload[0] if message.payload else 0)
        doing.answer(ref, b"early", doing.attached(ref))
        doing.perform([["flush", 1]])
    elif message.method == "relay":
        receiver, method, payload = cbor2.loads(message.payload)
        doing.call(receiver, method, payload, note=ref)
    else:
        if message.method == "spend":
            doing.call(message.sender, "echo", b"", MANY_CYCLES)
        doing.answer(ref, message.payload)
    return doing.program, doing.effects


class ScalarCaller(Program):
    """The scalar form of ``causeway.programs.bundled.messaging.Caller``."""

    def initial_state(self) -> dict[str, int]:
        return {"answered": 0, "rejected": 0, "malformed": 0}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        if message.method != "call":
            return
        try:
            receiver, cycles, method, body = parse_call(message.payload)
        except ValueError:
            self.state["malformed"] += 1
            return
        context.call(receiver, method, body, amount=cycles)

    def on_request(self, request: Request, context: Context) -> bytes:
        return request.payload

    def on_reply(self, reply: Reply, context: Context) -> None:
        self.state["answered" if reply.ok else "rejected"] += 1


SCALAR_CALLER = f"{__name__}:ScalarCaller"


def parse_call(payload: bytes) -> tuple[int, int, str, bytes]:
    """Read the payload of ingress method ``call`` (the format of ``causeway.core.ingress_call``, read by hand)."""
    if len(payload) < 25 or len(payload) < 25 + payload[24]:
        raise ValueError("too short")
    method = payload[25 : 25 + payload[24]].decode()
    return int.from_bytes(payload[:8], "big"), int.from_bytes(payload[8:24], "big"), method, payload[25 + payload[24] :]


def echo(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """What ``Echo`` and ``ScalarEcho`` do with messages from canisters."""
    if isinstance(message, ic.Request):
        return program, [ic.Reply(ic.RequestKey.of(message), data=message.payload)]
    return program, []


def caller(canister: int, program: tuple[int, int, int], message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """What ``Caller`` does. Its state: answered, rejected, malformed."""
    answered, rejected, malformed = program
    if isinstance(message, ic.Response):
        return (answered + (message.reject is None), rejected + (message.reject is not None), malformed), []
    if isinstance(message, ic.Request):
        return echo(canister, program, message)
    if message.method != "call":
        return program, []
    try:
        receiver, cycles, method, body = parse_call(message.payload)
    except ValueError:
        return (answered, rejected, malformed + 1), []
    return program, [ic.Call(receiver, method, body, cycles)]


def ping_pong(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
    """What ``PingPong`` does."""
    if isinstance(message, ic.Response):
        payload = (message.data or b"") if message.reject is None else message.reject[1].encode()
        return program, [ic.Call(message.respondent, "ping", payload)]
    _, effects = caller(canister, (0, 0, 0), message)
    return program, effects


BEHAVIOURS: dict[str, tuple[Any, Any]] = {
    ACTOR: (actor_start(), actor),
    SCALAR_CALLER: ((0, 0, 0), caller),
    "caller": ((0, 0, 0), caller),
    "echo": (None, echo),
    "scalar_echo": (None, echo),
    "ping_pong": (None, ping_pong),
}
"""Name of a program -> its first state and its behaviour in the oracle."""


def behaviour_of(programs: Mapping[int, str | None]) -> ic.Behaviour:
    """The behaviour of a network in which ``programs`` are installed."""

    def behaviour(canister: int, program: Any, message: ic.Message) -> tuple[Any, list[ic.Effect]]:
        name = programs[canister]
        assert name is not None
        if name == "scalar_echo" and isinstance(message, ic.Ingress):
            raise NotImplementedError(f"no ingress method {message.method}")
        result: tuple[Any, list[ic.Effect]] = BEHAVIOURS[name][1](canister, program, message)
        return result

    return behaviour
