"""Echo: answers every request with its own payload. The smallest program, in both forms."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, repeated
from causeway.model.ledger import Kind
from causeway.programs.scalar import Context, Program, Request
from causeway.programs.vector import Effects, VectorProgram, rows_of


class Echo(VectorProgram):
    """Answers every request with its payload, whatever the method; keeps no state."""

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Answer the requests of ``batch``."""
        rows = rows_of(batch, Kind.REQUEST)
        payload = batch["payload"] if len(rows) == len(batch) else batch.select(["payload"]).take(rows)["payload"]
        code = repeated(np.uint8(0), len(rows))
        return Effects(state, answers=Frame({"row": rows, "code": code, "payload": payload}, len(rows)))


class ScalarEcho(Program):
    """The same, one message at a time."""

    def on_request(self, request: Request, context: Context) -> bytes:
        """Return the payload."""
        return request.payload
