"""A scalar program on trial: one instance without a network, for its unit tests.

The handlers run as they do in a round, with the same rules: what raises is undone, and a request that raised is
answered with a reject. The traceback of what it raised goes to standard error, which pytest shows with a test that
failed.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.ledger import Kind
from causeway.programs.accounts import BALANCE, balance_of, words_of
from causeway.programs.outputs import WORD
from causeway.programs.scalar import Answer, Call, Program
from causeway.programs.scalar_runner import ScalarRunner


class HandlerFailed(Exception):
    """A handler raised on a message that has no answer; its cause is what it raised."""


class Trial:
    """One instance of a scalar program.

    Args:
        program: the class.
        options: as a scenario gives them.
        number: the instance's number.
        balance: the value it starts with.
    """

    def __init__(
        self, program: type[Program], options: Mapping[str, Any] | None = None, *, number: int = 0, balance: int = 0
    ) -> None:
        self._runner = ScalarRunner(program, {number: options or {}})
        self._number = number
        self._callback = 0
        self._certified_data: bytes | None = None
        numbers = np.array([number], dtype=np.uint64)
        self._state = self._runner.initial_state(numbers)
        self._account = Frame(
            {
                "program": numbers,
                "next_callback": np.zeros(1, dtype=np.uint64),
                **{
                    name: np.array([word], dtype=np.uint64)
                    for name, word in zip(BALANCE, words_of(balance), strict=True)
                },
            }
        )

    @property
    def state(self) -> Any:
        """Return the program's state."""
        return cbor2.loads(self._state["state"].to_pylist()[0])[0]

    @property
    def balance(self) -> int:
        """Return the program's balance."""
        return balance_of(*(self._account[name][0] for name in BALANCE))

    @property
    def certified_data(self) -> bytes | None:
        """Return what the program set as its certified data last; None if it never did."""
        return self._certified_data

    def ingress(self, method: str, payload: bytes = b"", *, user: int = 0) -> list[Answer | Call]:
        """Give it a message from a user; return the calls and answers that it makes. Raises ``HandlerFailed``."""
        return self._turn(Kind.INGRESS, user, 0, method=method, payload=payload)

    def request(self, sender: int, method: str, payload: bytes = b"", *, amount: int = 0) -> list[Answer | Call]:
        """Call it as program ``sender`` does; return the answers (the one to this call first, if any) and calls."""
        self._callback += 1
        return self._turn(Kind.REQUEST, sender, self._callback, method=method, payload=payload, amount=amount)

    def reply(self, call: Call, payload: bytes = b"", *, code: int = 0, refund: int = 0) -> list[Answer | Call]:
        """Answer a call that it made: with data, or with a reject when ``code`` is not 0. Raises ``HandlerFailed``."""
        return self._turn(Kind.RESPONSE, call.receiver, call.callback, payload=payload, code=code, amount=refund)

    def _turn(
        self,
        kind: Kind,
        sender: int,
        callback: int,
        *,
        method: str = "",
        payload: bytes = b"",
        code: int = 0,
        amount: int = 0,
    ) -> list[Answer | Call]:
        message = Frame(
            {
                "kind": np.array([kind], dtype=np.uint8),
                "sender": np.array([sender], dtype=np.uint64),
                "receiver": np.array([self._number], dtype=np.uint64),
                "callback": np.array([callback], dtype=np.uint64),
                "amount_high": np.array([amount // WORD], dtype=np.uint64),
                "amount_low": np.array([amount % WORD], dtype=np.uint64),
                "code": np.array([code], dtype=np.uint8),
                "deadline": np.zeros(1, dtype=np.uint32),
                "method": pa.array([method], pa.string()).dictionary_encode(),
                "payload": pa.array([payload], pa.binary()),
            },
            1,
        )
        outcome = self._runner.run(message, np.zeros(1, dtype=np.int64), self._account, self._state)
        self._account, self._state = outcome.accounts, outcome.state
        for data in outcome.certified["data"].to_pylist():
            self._certified_data = data
        for each in outcome.raised:
            if len(outcome.failures):
                raise HandlerFailed(outcome.failures["text"].to_pylist()[0]) from each.error
            traceback.print_exception(each.error)
        return _made(outcome.outputs)


def _made(outputs: Frame) -> list[Answer | Call]:
    numbers = ("kind", "receiver", "callback", "amount_high", "amount_low", "code", "deadline")
    columns = [outputs[name].tolist() for name in numbers]
    texts = [outputs[name].to_pylist() for name in ("method", "payload")]
    made: list[Answer | Call] = []
    for kind, receiver, callback, high, low, code, deadline, method, payload in zip(*columns, *texts, strict=True):
        amount = high * WORD + low
        if kind == Kind.REQUEST:
            made.append(Call(receiver, callback, method, payload, amount))
        else:
            made.append(Answer(receiver, callback, amount, deadline, code, payload))
    return made
