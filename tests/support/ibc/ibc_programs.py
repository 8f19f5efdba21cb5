"""Programs for the comparison of the IBC kernel and its oracle: each in Causeway's form and in the oracle's.

The two forms are written apart: one uses ``causeway.programs``, the other plain values of the oracle.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import cbor2

from causeway.programs.scalar import Context, Ingress, Program, Reject, Reply, Request
from tests.spec import ibc
from tests.support.ic.ic_programs import parse_call

MANY_CYCLES = 10**30
"""More than anyone has."""


def ops(*described: Any) -> bytes:
    """The payload of an ingress message for an actor: what it shall do, in order.

    ("call", receiver, method, payload, cycles, note), ("flush", share): answer all requests in hand, ("refuse",):
    reject them, ("accept", share): accept of them, ("raise",), ("calm",): from now on no reply makes it raise.
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
        return {"held": [], "seen": [], "calm": False}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        self._perform(cbor2.loads(message.payload), context)

    def on_request(self, request: Request, context: Context) -> bytes | tuple[bytes, int] | None:
        self.state["seen"].append([request.sender, request.callback, request.method, request.payload, request.amount])
        if request.method == "hold":
            self.state["held"].append(request.ref)
            return None
        if request.method == "refuse":
            raise Reject("not today")
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
            context.call(request.sender, "echo", b"before the answer", amount=request.amount)
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
        self.state["seen"].append([reply.callback, reply.code, reply.payload, reply.refund])
        if reply.note == "boom" and not self.state["calm"]:
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
            elif op == "calm":
                self.state["calm"] = True
            else:
                raise RuntimeError("told so")


ACTOR = f"{__name__}:Actor"


class SpecActor:
    """What ``Actor`` does, in the oracle's terms."""

    def __init__(self) -> None:
        self.held: list[ibc.RequestKey] = []
        self.seen: list[list[Any]] = []
        self.calm = False
        self.notes: dict[int, Any] = {}
        self.open: list[ibc.RequestKey] = []
        self.accepted: Counter[ibc.RequestKey] = Counter()
        self.next = 0
        self.effects: list[ibc.Call | ibc.Answer | ibc.Accept] = []

    def _call(self, receiver: int, method: str, payload: bytes = b"", cycles: int = 0, note: Any = None) -> None:
        if note is not None:
            self.notes[self.next] = note
        self.next += 1
        self.effects.append(ibc.Call(receiver, method, payload, cycles))

    def _answer(self, answer: ibc.Answer) -> None:
        self.open.remove(answer.to)
        del self.accepted[answer.to]
        self.effects.append(answer)

    def _attached(self, key: ibc.RequestKey) -> int:
        return key.cycles - self.accepted[key]

    def _accept(self, cycles: int, key: ibc.RequestKey) -> None:
        self.accepted[key] += cycles
        self.effects.append(ibc.Accept(key, cycles))

    def _done(self) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        effects, self.effects = self.effects, []
        return effects

    def on_ingress(self, ingress: ibc.Ingress) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        self._perform(cbor2.loads(ingress.payload))
        return self._done()

    def on_request(self, request: ibc.Request) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        key = request.key
        if request.method == "refuse":
            return [ibc.Answer.reject(key, "not today")]
        self.open.append(key)
        self.seen.append([key.sender, key.callback, request.method, request.payload, key.cycles])
        if request.method == "hold":
            self.held.append(key)
        elif request.method == "raise":
            raise ValueError("no")
        elif request.method == "take":
            self._answer(ibc.Answer(key, request.payload, self._attached(key) // 2))
        elif request.method == "keep":
            half = self._attached(key) // 2
            self._accept(half, key)
            self._call(key.sender, "echo", b"paid on", half)
            self.held.append(key)
        elif request.method == "trap":
            raise ValueError("accepted nothing")
        elif request.method == "early":
            self._call(key.sender, "echo", b"before the answer", key.cycles)
            self._answer(ibc.Answer(key, b"early", self._attached(key)))
            self._perform([["flush", 1]])
        elif request.method == "relay":
            receiver, method, payload = cbor2.loads(request.payload)
            self._call(receiver, method, payload, note=key)
        else:
            if request.method == "spend":
                self._call(key.sender, "echo", b"", MANY_CYCLES)
            self._answer(ibc.Answer(key, request.payload))
        return self._done()

    def on_reply(self, reply: ibc.Reply) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        self.seen.append([reply.callback, reply.code, reply.payload, reply.refund])
        note = self.notes.pop(reply.callback, None)
        if note == "boom" and not self.calm:
            raise KeyError("boom")
        if isinstance(note, ibc.RequestKey):
            self._answer(ibc.Answer(note, reply.payload if reply.code == 0 else b"relayed a reject"))
        return self._done()

    def _perform(self, told: list[Any]) -> None:
        for op, *arguments in told:
            if op == "call":
                self._call(*arguments)
            elif op == "flush":
                for key in self.held:
                    self._answer(ibc.Answer(key, b"late", self._attached(key) // arguments[0]))
                self.held = []
            elif op == "accept":
                for key in self.held:
                    self._accept(self._attached(key) // arguments[0], key)
            elif op == "refuse":
                for key in self.held:
                    self._answer(ibc.Answer.reject(key, "late refusal"))
                self.held = []
            elif op == "calm":
                self.calm = True
            else:
                raise RuntimeError("told so")

    def view(self) -> dict[str, Any]:
        """What of ``Actor`` it is comparable with."""
        return {
            "state": {"held": [list(ref(key)) for key in self.held], "seen": self.seen, "calm": self.calm},
            "open": dict(Counter(ref(key) for key in self.open)),
            "accepted": {ref(key): cycles for key, cycles in self.accepted.items() if cycles},
        }


def ref(key: ibc.RequestKey) -> tuple[int, int, int, int]:
    """How a request is named in Causeway; under IBC no deadline comes with it."""
    return key.sender, key.callback, key.cycles, 0


class SpecEcho:
    """What ``Echo`` does."""

    def on_ingress(self, ingress: ibc.Ingress) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        return []

    def on_request(self, request: ibc.Request) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        return [ibc.Answer(request.key, request.payload)]

    def on_reply(self, reply: ibc.Reply) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        return []

    def view(self) -> dict[str, Any]:
        return {}


class SpecCaller(SpecEcho):
    """What ``Caller`` does."""

    def __init__(self) -> None:
        self.answered = self.rejected = self.malformed = 0

    def on_ingress(self, ingress: ibc.Ingress) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        if ingress.method != "call":
            return []
        try:
            receiver, cycles, method, body = parse_call(ingress.payload)
        except ValueError:
            self.malformed += 1
            return []
        return [ibc.Call(receiver, method, body, cycles)]

    def on_reply(self, reply: ibc.Reply) -> list[ibc.Call | ibc.Answer | ibc.Accept]:
        if reply.code == 0:
            self.answered += 1
        else:
            self.rejected += 1
        return []

    def view(self) -> dict[str, Any]:
        return {"answered": self.answered, "rejected": self.rejected, "malformed": self.malformed}


SPEC_PROGRAMS: dict[str, Any] = {ACTOR: SpecActor, "echo": SpecEcho, "caller": SpecCaller}
"""Name of a program -> its form in the oracle."""
