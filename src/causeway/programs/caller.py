"""Caller: makes the calls that users ask for, and counts their answers. Ping-pong: calls again whenever it is
answered."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated_text
from causeway.model.ingress_call import decode_calls
from causeway.model.ledger import Kind
from causeway.model.order import stable_order
from causeway.programs.vector import Effects, VectorProgram, method_is, rows_of


class Caller(VectorProgram):
    """Ingress method ``call`` (payload as in ``causeway.model.ingress_call``) makes a call; answers are counted.

    A malformed payload is ignored and counted in ``malformed``. Requests are answered by an echo, so that callers can
    call callers.
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
        """Make the calls asked for, echo requests, count answers."""
        asked = np.flatnonzero((batch["kind"] == Kind.INGRESS) & method_is(batch, "call"))
        calls, malformed = calls_asked_for(batch, asked)
        replies = rows_of(batch, Kind.RESPONSE)
        rejected = replies[batch["code"][replies] > 0]
        answered = replies[batch["code"][replies] == 0]
        state = state.with_columns(
            answered=_counted(state, "answered", batch, answered),
            rejected=_counted(state, "rejected", batch, rejected),
            malformed=_counted(state, "malformed", batch, malformed),
        )
        return Effects(state, answers=echoes(batch), calls=calls)


class PingPong(VectorProgram):
    """Echoes requests; whenever one of its calls is answered, calls the same peer again with the same payload.

    Ingress method ``call`` starts a rally; the amount attached to it goes with the first call only. So a network keeps
    a constant number of messages under way.
    """

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Echo requests, and answer every reply by a new call."""
        asked = np.flatnonzero((batch["kind"] == Kind.INGRESS) & method_is(batch, "call"))
        replies = rows_of(batch, Kind.RESPONSE)
        returned = batch.take(replies)
        calls = Frame(
            {
                "row": replies,
                "receiver": returned["sender"],
                "method": repeated_text("ping", len(replies)),
                "payload": returned.column("payload"),
            },
            len(replies),
        )
        if len(asked):
            started, _ = calls_asked_for(batch, asked)
            calls = calls.with_columns(amount_high=np.uint64(0), amount_low=np.uint64(0))
            calls = _merged(started, calls.select(started.names))
        return Effects(state, answers=echoes(batch), calls=calls)


def echoes(batch: Frame) -> Frame:
    """Return answers to all requests of ``batch`` with their payloads."""
    rows = rows_of(batch, Kind.REQUEST)
    payload = batch.select(["payload"]).take(rows).column("payload")
    return Frame({"row": rows, "code": np.zeros(len(rows), dtype=np.uint8), "payload": payload}, len(rows))


def calls_asked_for(batch: Frame, asked: npt.NDArray[np.int64]) -> tuple[Frame, npt.NDArray[np.int64]]:
    """Return the calls that the ingress rows ``asked`` ask for, and the rows whose payload is malformed."""
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


def _merged(first: Frame, second: Frame) -> Frame:
    both = concat([first, second])
    return both.take(stable_order(both["row"].astype(np.uint64)))


def _counted(state: Frame, column: str, batch: Frame, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    counts: npt.NDArray[np.uint64] = state[column]
    if len(rows) == 0:
        return counts
    places = np.searchsorted(state["program"], batch["receiver"][rows])
    return counts + np.bincount(places, minlength=len(counts)).astype(np.uint64)
