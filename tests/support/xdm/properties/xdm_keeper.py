"""A program that accepts part of the attached value and delays some responses."""

from __future__ import annotations

from typing import Any

from causeway.programs.scalar import Context, Program, Reject, Reply, Request


class Keeper(Program):
    """Accept a third of the attached value; reject every fifth call, and answer every third after a call to itself."""

    def initial_state(self) -> dict[str, Any]:
        return {"calls": 0, "open": {}}

    def on_request(self, request: Request, context: Context) -> tuple[bytes, int] | None:
        if request.sender == context.program:
            return b"", request.amount // 2
        self.state["calls"] += 1
        number = self.state["calls"]
        if number % 5 == 0:
            raise Reject("on purpose")
        if number % 3:
            return b"kept", request.amount // 3
        self.state["open"][number] = [request.ref, request.amount // 3]
        context.call(context.program, "later", amount=min(3, context.balance), note=number)
        return None

    def on_reply(self, reply: Reply, context: Context) -> None:
        ref, kept = self.state["open"].pop(reply.note)
        context.answer(ref, b"late", accept=kept)
