"""A module that fails on purpose, to see that whoever calls it, and the zone that carries the call, recover."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from causeway.model.ingress_call import CALL_METHOD, decode_calls
from causeway.programs.scalar import Context, Ingress, Program, Reject, Reply, Request

WAIT = "wait"
MEND = "mend"


class Faulty(Program):
    """Echoes requests, but for those that it fails.

    Options, each a number n that says which fail (none, if absent or 0): those whose callback id, counted from 1, is a
    multiple of n; the first that applies counts.

    - ``raise_every``: of each caller's requests, the handler raises after it has changed its state and made a call.
    - ``reject_every``: rejected.
    - ``late_every``, ``late_by``: answered ``late_by`` calls to itself later (1, if absent); a call within a zone
      takes a block.
    - ``raise_in_reply_every``: of its own calls, the handler of the answer raises after it has changed its state, until
      a user sends ``mend``: under ``ibc`` the packet stays till then, and is answered again.

    Ingress method ``call`` (``causeway.model.ingress_call``) makes a call. ``served``, ``answered`` and ``rejected``
    count requests answered and answers taken; ``undone`` stays 0, whatever fails.
    """

    def initial_state(self) -> dict[str, Any]:
        """Return that nothing has happened."""
        counts = dict.fromkeys(("served", "late", "answered", "rejected", "undone"), 0)
        return {**counts, "mended": False, "waiting": {}}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Make the call that a user asks for, or stop failing at answers."""
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
        if self._due("raise_every", request.callback):
            self.state["undone"] += 1
            context.call(request.sender, "never", b"sent")
            raise RuntimeError("on purpose")
        if self._due("reject_every", request.callback):
            raise Reject("on purpose")
        if self._due("late_every", request.callback):
            place = self.state["late"]
            self.state["late"] += 1
            self.state["waiting"][place] = [request.ref, request.payload]
            self._call_itself(place, self.options.get("late_by", 1), context)
            return None
        self.state["served"] += 1
        return request.payload

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Count an answer, or fail at it."""
        if reply.note == WAIT:
            return
        if not self.state["mended"] and self._due("raise_in_reply_every", reply.callback):
            self.state["undone"] += 1
            raise RuntimeError("on purpose")
        self.state["answered" if reply.ok else "rejected"] += 1

    def _wait(self, request: Request, context: Context) -> bytes:
        place, left = (int(word) for word in request.payload.split())
        if left > 1:
            self._call_itself(place, left - 1, context)
        else:
            ref, payload = self.state["waiting"].pop(place)
            self.state["served"] += 1
            context.answer(ref, payload)
        return b""

    def _call_itself(self, place: int, left: int, context: Context) -> None:
        context.call(context.program, WAIT, f"{place} {left}".encode(), note=WAIT)

    def _due(self, option: str, callback: int) -> bool:
        every = self.options.get(option, 0)
        return bool(every) and (callback + 1) % every == 0
