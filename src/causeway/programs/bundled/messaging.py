"""Programs for tests and demonstrations of messaging.

``Caller`` makes calls on behalf of users and counts answers; ``PingPong`` calls again on every answer. ``Echo`` and
``ScalarEcho`` return payloads. ``FanOut`` calls many programs and joins their answers. ``Faulty`` fails on purpose, to
test that callers and zones recover.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import stable_order

from causeway.core.frame import Frame, concat, repeat_text, repeat_value
from causeway.core.ingress_call import CALL_METHOD, decode_calls
from causeway.core.vocabulary import Kind
from causeway.programs.scalar import Context, Ingress, Program, Reject, Reply, Request
from causeway.programs.vector import Effects, VectorProgram, method_is, rows_of


class Caller(VectorProgram):
    """Calls on behalf of users.

    Ingress method ``call`` (payload as in ``causeway.core.ingress_call``) makes a call; answers are counted. A
    malformed payload is ignored and counted in ``malformed``. Requests are echoed, so that callers can call callers.
    """

    schema: ClassVar[pa.Schema] = pa.schema(
        [
            pa.field("program", pa.uint64(), nullable=False),
            pa.field("answered", pa.uint64(), nullable=False),
            pa.field("rejected", pa.uint64(), nullable=False),
            pa.field("malformed", pa.uint64(), nullable=False),
        ]
    )

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Make the requested calls, echo requests, and count answers."""
        ingress = np.flatnonzero((batch["kind"] == Kind.INGRESS) & method_is(batch, "call"))
        calls, malformed = parse_requested_calls(batch, ingress)
        replies = rows_of(batch, Kind.RESPONSE)
        rejected = replies[batch["code"][replies] > 0]
        answered = replies[batch["code"][replies] == 0]
        state = state.with_columns(
            answered=_add_counts(state, "answered", batch, answered),
            rejected=_add_counts(state, "rejected", batch, rejected),
            malformed=_add_counts(state, "malformed", batch, malformed),
        )
        return Effects(state, answers=echo_answers(batch), calls=calls)


class PingPong(VectorProgram):
    """Echoes requests, and repeats a call to the same peer whenever it is answered.

    Ingress method ``call`` starts a rally; its amount goes with the first call only. So a network has a constant number
    of messages in flight.
    """

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Echo requests, and answer every reply by a new call."""
        ingress = np.flatnonzero((batch["kind"] == Kind.INGRESS) & method_is(batch, "call"))
        replies = rows_of(batch, Kind.RESPONSE)
        returned = batch.take(replies)
        calls = Frame(
            {
                "row": replies,
                "receiver": returned["sender"],
                "method": repeat_text("ping", len(replies)),
                "payload": returned.column("payload"),
            },
            len(replies),
        )
        if len(ingress):
            started, _ = parse_requested_calls(batch, ingress)
            calls = calls.with_columns(amount_high=np.uint64(0), amount_low=np.uint64(0))
            calls = _merge_by_row(started, calls.select(started.names))
        return Effects(state, answers=echo_answers(batch), calls=calls)


def echo_answers(batch: Frame) -> Frame:
    """Return answers that echo all requests of ``batch``."""
    rows = rows_of(batch, Kind.REQUEST)
    payload = batch.select(["payload"]).take(rows).column("payload")
    return Frame({"row": rows, "code": np.zeros(len(rows), dtype=np.uint8), "payload": payload}, len(rows))


def parse_requested_calls(batch: Frame, asked: npt.NDArray[np.int64]) -> tuple[Frame, npt.NDArray[np.int64]]:
    """Decode the calls that ingress rows request.

    Args:
        batch: Messages.
        asked: Rows of ingress messages.

    Returns:
        The calls, and the rows with a malformed payload.
    """
    decoded = decode_calls(batch.select(["payload"]).take(asked)["payload"])
    good = np.flatnonzero(decoded.valid)
    calls = Frame(
        {
            "row": asked,
            "receiver": decoded.receivers,
            "method": _as_dictionary(decoded.methods),
            "payload": decoded.bodies,
            "amount_high": decoded.amount_high,
            "amount_low": decoded.amount_low,
        },
        len(asked),
    )
    return calls.filter(decoded.valid) if len(good) < len(asked) else calls, asked[~decoded.valid]


def _as_dictionary(methods: pa.Array) -> pa.DictionaryArray:
    return methods if pa.types.is_dictionary(methods.type) else methods.dictionary_encode()


def _merge_by_row(first: Frame, second: Frame) -> Frame:
    both = concat([first, second])
    return both.take(stable_order(both["row"].astype(np.uint64)))


def _add_counts(state: Frame, column: str, batch: Frame, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    counts: npt.NDArray[np.uint64] = state[column]
    if len(rows) == 0:
        return counts
    places = np.searchsorted(state["program"], batch["receiver"][rows])
    return counts + np.bincount(places, minlength=len(counts)).astype(np.uint64)


class Echo(VectorProgram):
    """Echoes every request, whatever the method; stateless."""

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Answer the requests of ``batch``."""
        rows = rows_of(batch, Kind.REQUEST)
        payload = batch["payload"] if len(rows) == len(batch) else batch.select(["payload"]).take(rows)["payload"]
        code = repeat_value(np.uint8(0), len(rows))
        return Effects(state, answers=Frame({"row": rows, "code": code, "payload": payload}, len(rows)))


class ScalarEcho(Program):
    """``Echo`` as a scalar program."""

    def on_request(self, request: Request, context: Context) -> bytes:
        """Return the payload."""
        return request.payload


class FanOut(Program):
    """Calls ``method`` of every program in option ``targets`` and joins the answers.

    Once all targets have answered, a request is answered with their payloads joined in the order of ``targets``; a
    reject counts as empty. The whole attached amount is refunded. Ingress starts the same, and ``finished`` counts
    completed ones.
    """

    def initial_state(self) -> dict[str, Any]:
        """Return no open requests."""
        return {"next": 0, "open": {}, "finished": 0, "rejected": 0}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Call all targets on behalf of a user."""
        self._call_targets(None, message.method, message.payload, context)

    def on_request(self, request: Request, context: Context) -> bytes | None:
        """Call all targets on behalf of another program; the answer follows later."""
        if not self.options["targets"]:
            return b""
        self._call_targets(request.ref, request.method, request.payload, context)
        return None

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Store an answer; after the last one, answer the request."""
        number, index = reply.note
        entry = self.state["open"][number]
        entry["answers"][index] = reply.payload if reply.ok else b""
        entry["missing"] -= 1
        self.state["rejected"] += 0 if reply.ok else 1
        if entry["missing"]:
            return
        del self.state["open"][number]
        self.state["finished"] += 1
        if entry["ref"] is not None:
            context.answer(entry["ref"], b"".join(entry["answers"]))

    def _call_targets(self, ref: list[int] | None, method: str, payload: bytes, context: Context) -> None:
        targets = self.options["targets"]
        number = self.state["next"]
        self.state["next"] += 1
        if targets:
            self.state["open"][number] = {"ref": ref, "missing": len(targets), "answers": [b""] * len(targets)}
        for index, target in enumerate(targets):
            context.call(target, method, payload, note=[number, index])


WAIT = "wait"
MEND = "mend"


class Faulty(Program):
    """Echoes requests, except those that it fails.

    Each option is a number n that selects messages whose callback id, counted from 1, is a multiple of n; 0 or absent
    selects none. The first option that applies counts.

    - ``raise_every``: for each caller's requests, the handler raises after it changed its state and made a call.
    - ``reject_every``: the request is rejected.
    - ``late_every``, ``late_by``: the answer follows ``late_by`` calls to itself later (default 1); a call within a
      zone takes a block.
    - ``raise_in_reply_every``: for its own calls, the handler of the answer raises after it changed its state, until a
      user sends ``mend``: under ``ibc`` the packet stays till then, and is answered again.

    Ingress method ``call`` (``causeway.core.ingress_call``) makes a call. ``served``, ``answered`` and ``rejected``
    count answered requests and received answers; ``undone`` stays 0 whatever fails.
    """

    def initial_state(self) -> dict[str, Any]:
        """Return zero counters."""
        counts = dict.fromkeys(("served", "late", "answered", "rejected", "undone"), 0)
        return {**counts, "mended": False, "waiting": {}}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Make a call for a user, or stop failing on answers."""
        if message.method == MEND:
            self.state["mended"] = True
            return
        decoded = decode_calls(pa.array([message.payload], pa.binary()))
        if message.method != CALL_METHOD or not decoded.valid[0]:
            raise ValueError(f"method {message.method} with {len(message.payload)} bytes is no call")
        amount = (int(decoded.amount_high[0]) << 64) + int(decoded.amount_low[0])
        body = decoded.bodies[0].as_py()
        context.call(int(decoded.receivers[0]), decoded.methods[0].as_py(), body, amount=amount)

    def on_request(self, request: Request, context: Context) -> bytes | None:
        """Echo a request, or fail it."""
        if request.method == WAIT and request.sender == context.program:
            return self._wait(request, context)
        if self._is_selected("raise_every", request.callback):
            self.state["undone"] += 1
            context.call(request.sender, "never", b"sent")
            raise RuntimeError("on purpose")
        if self._is_selected("reject_every", request.callback):
            raise Reject("on purpose")
        if self._is_selected("late_every", request.callback):
            number = self.state["late"]
            self.state["late"] += 1
            self.state["waiting"][number] = [request.ref, request.payload]
            self._call_itself(number, self.options.get("late_by", 1), context)
            return None
        self.state["served"] += 1
        return request.payload

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Count an answer, or fail on it."""
        if reply.note == WAIT:
            return
        if not self.state["mended"] and self._is_selected("raise_in_reply_every", reply.callback):
            self.state["undone"] += 1
            raise RuntimeError("on purpose")
        self.state["answered" if reply.ok else "rejected"] += 1

    def _wait(self, request: Request, context: Context) -> bytes:
        number, remaining = (int(word) for word in request.payload.split())
        if remaining > 1:
            self._call_itself(number, remaining - 1, context)
        else:
            ref, payload = self.state["waiting"].pop(number)
            self.state["served"] += 1
            context.answer(ref, payload)
        return b""

    def _call_itself(self, number: int, remaining: int, context: Context) -> None:
        context.call(context.program, WAIT, f"{number} {remaining}".encode(), note=WAIT)

    def _is_selected(self, option: str, callback: int) -> bool:
        """Return True if an option selects a callback id."""
        every = self.options.get(option, 0)
        return bool(every) and (callback + 1) % every == 0
