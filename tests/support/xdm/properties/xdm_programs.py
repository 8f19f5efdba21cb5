"""The kernel's counterpart of the oracle's programs (``tests/spec/xdm/programs.py``), which fails on request."""

from __future__ import annotations

from typing import Any

from causeway.programs.scalar import Context, Program, Reject, Request
from tests.spec.xdm.errors import XdmError
from tests.spec.xdm.programs import Answer, decode


class Special(Program):
    """Echoes. To a payload that begins with ``~`` and a digit it answers so many blocks later; one that begins with
    ``!`` is rejected, with ``*`` or ``#`` its handler raises."""

    def initial_state(self) -> dict[str, Any]:
        return {"calls": 0, "open": {}}

    def on_request(self, request: Request, context: Context) -> bytes | None:
        if request.sender == context.program:
            place, left = (int(word) for word in request.payload.split())
            return self._wait(place, left - 1, context)
        if request.payload.startswith(b"!"):
            raise Reject("refused")
        if request.payload[:1] in (b"*", b"#"):
            raise RuntimeError("the program fails")
        if request.payload.startswith(b"~"):
            place = self.state["calls"]
            self.state["calls"] += 1
            self.state["open"][place] = [request.ref, request.payload]
            self._wait(place, int(request.payload[1:2]), context)
            return None
        return request.payload

    def _wait(self, place: int, left: int, context: Context) -> bytes:
        if left:
            context.call(context.program, "wait", f"{place} {left}".encode())
        else:
            context.answer(*self.state["open"].pop(place))
        return b""


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
