"""Fan-out: asks many programs at once and answers when all have answered."""

from __future__ import annotations

from typing import Any

from causeway.programs.scalar import Context, Ingress, Program, Reply, Request


class FanOut(Program):
    """Calls ``method`` of every program in option ``targets`` and gathers the answers.

    A request is answered, once all targets have answered, with their payloads joined in the order of ``targets`` (a
    rejected one counts as empty); the whole amount attached goes back. Ingress starts the same and counts the finished
    ones in ``finished``.
    """

    def initial_state(self) -> dict[str, Any]:
        """Return no gathering under way."""
        return {"next": 0, "open": {}, "finished": 0, "rejected": 0}

    def on_ingress(self, message: Ingress, context: Context) -> None:
        """Ask all targets on behalf of a user."""
        self._ask(None, message.method, message.payload, context)

    def on_request(self, request: Request, context: Context) -> bytes | None:
        """Ask all targets on behalf of another program; the answer comes later."""
        if not self.options["targets"]:
            return b""
        self._ask(request.ref, request.method, request.payload, context)
        return None

    def on_reply(self, reply: Reply, context: Context) -> None:
        """Note one answer; when it was the last, answer the request."""
        gathering, place = reply.note
        entry = self.state["open"][gathering]
        entry["answers"][place] = reply.payload if reply.ok else b""
        entry["missing"] -= 1
        self.state["rejected"] += 0 if reply.ok else 1
        if entry["missing"]:
            return
        del self.state["open"][gathering]
        self.state["finished"] += 1
        if entry["ref"] is not None:
            context.answer(entry["ref"], b"".join(entry["answers"]))

    def _ask(self, ref: list[int] | None, method: str, payload: bytes, context: Context) -> None:
        targets = self.options["targets"]
        gathering = self.state["next"]
        self.state["next"] += 1
        if targets:
            self.state["open"][gathering] = {"ref": ref, "missing": len(targets), "answers": [b""] * len(targets)}
        for place, target in enumerate(targets):
            context.call(target, method, payload, note=[gathering, place])
