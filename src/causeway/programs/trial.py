"""Unit tests of a single program without a network.

Handlers run under the rules of a round: an exception undoes their effects, and rejects a request. Its traceback goes to
standard error, which pytest shows with a failed test. A vectorized program gets the messages of one call as one batch.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
from causeway_proofs.errors import CausewayError, InvalidInput

from causeway.core.frame import Frame
from causeway.core.text import format_value
from causeway.core.vocabulary import Kind, RejectCode
from causeway.programs.naming import UnknownProgram, resolve_refs
from causeway.programs.outputs import BALANCE, WORD, balance_from_words, balance_words
from causeway.programs.scalar import Answer, Call, Ingress, Program, Reply, Request
from causeway.programs.scalar_runner import ScalarRunner
from causeway.programs.state_values import read_only
from causeway.programs.vector import VectorProgram, ensure_rootable
from causeway.programs.vector_runner import VectorRunner
from causeway.protocols.shared.execution import HANDLER_FAILED, REJECTED_BY_PROGRAM, program_reject_code

FIRST_OF_OTHERS = 1_000
"""Number of the first other program."""

_FIRST_CODE = 200
_CODES = {RejectCode.REFUSED: REJECTED_BY_PROGRAM, RejectCode.FAILED: HANDLER_FAILED} | {
    code: _FIRST_CODE + place
    for place, code in enumerate(RejectCode)
    if code not in (RejectCode.REFUSED, RejectCode.FAILED)
}
_MEANINGS = {number: code for code, number in _CODES.items()}


class HandlerFailed(CausewayError):
    """A handler raised on a message without an answer; the cause is its exception."""


class Trial:
    """One instance of a program.

    Args:
        program: The class, scalar or vectorized.
        options: Options as in a scenario; ``ref(name)`` in them becomes a number.
        number: Number of the instance.
        balance: Its initial balance.
        programs: Numbers of other programs by name; unknown names get a number on first use.
    """

    def __init__(
        self,
        program: type[Program] | type[VectorProgram],
        options: Mapping[str, Any] | None = None,
        *,
        number: int = 0,
        balance: int = 0,
        programs: Mapping[str, int] | None = None,
    ) -> None:
        given_class: object = program
        if not (isinstance(given_class, type) and issubclass(given_class, Program | VectorProgram)):
            raise InvalidInput(
                f"program: {format_value(program)}: must be a subclass of cw.Program or cw.VectorProgram"
            )
        _check_amount("balance", balance)
        self._class_name = program.__name__
        self._names = _OtherPrograms(number, programs or {})
        given = {number: read_only(resolve_refs(options or {}, self._names.number_of))}
        self._scalar = issubclass(program, Program)
        self._runner: ScalarRunner | VectorRunner
        if issubclass(program, Program):
            self._runner = ScalarRunner(program, given, self._names, _portable_code)
        else:
            ensure_rootable(program.__name__, program.schema)
            self._runner = VectorRunner(program, given)
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
                    for name, word in zip(BALANCE, balance_words(balance), strict=True)
                },
            }
        )

    def __repr__(self) -> str:
        """Return class, state and balance on one line."""
        return f"<Trial of {self._class_name}: state {format_value(self.state)}, balance {self.balance}>"

    @property
    def state(self) -> Any:
        """The stored value of a scalar program, or the columns of a vectorized program's row."""
        if self._scalar:
            return cbor2.loads(self._state["state"].to_pylist()[0])[0]
        rows = self._state.to_table(self._runner.schema).to_pylist()
        return rows[0] if rows else None

    @property
    def balance(self) -> int:
        """Balance of the program."""
        return balance_from_words(*(self._account[name][0] for name in BALANCE))

    @property
    def certified_data(self) -> bytes | None:
        """Current certified data, or None."""
        return self._certified_data

    def number_of(self, name: str) -> int:
        """Return the number of another program."""
        return self._names.number_of(name)

    def ingress(self, method: str, payload: bytes = b"", *, user: int = 0) -> list[Answer | Call]:
        """Deliver a user message.

        Args:
            method: Called method.
            payload: Argument bytes.
            user: Number of the user.

        Returns:
            The program's calls and answers.

        Raises:
            HandlerFailed: The handler raised.
        """
        return self.turn([Ingress(user, method, payload)])

    def request(self, sender: int | str, method: str, payload: bytes = b"", *, amount: int = 0) -> list[Answer | Call]:
        """Call the program from another one.

        Args:
            sender: Name or number of the calling program.
            method: Called method.
            payload: Argument bytes.
            amount: Units attached.

        Returns:
            The program's answers (the one to this call first, if any) and calls.
        """
        number = self.number_of(sender) if isinstance(sender, str) else sender
        _check_amount("amount", amount)
        self._callback += 1
        return self.turn([Request(number, self._callback, method, payload, amount, 0)])

    def reply(
        self, call: Call, payload: bytes = b"", *, code: int | RejectCode = 0, refund: int = 0
    ) -> list[Answer | Call]:
        """Answer a call of the program.

        Args:
            call: The call.
            payload: Data, or the text of a reject.
            code: 0 for data, else a reject code.
            refund: Units returned.

        Returns:
            The program's answers and calls.

        Raises:
            HandlerFailed: The handler raised.
        """
        if not isinstance(call, Call):
            raise InvalidInput(f"reply: {format_value(call)}: must be a call that the program made")
        _check_amount("refund", refund)
        number = _CODES[code] if isinstance(code, RejectCode) else code
        return self.turn([Reply(call.receiver, call.callback, payload, number, refund, None)])

    def turn(self, messages: Sequence[Ingress | Request | Reply]) -> list[Answer | Call]:
        """Deliver the messages of one round, in order.

        Args:
            messages: The messages; the ``note`` of a reply is replaced by that of its call.

        Returns:
            The program's answers and calls.

        Raises:
            HandlerFailed: The handler raised on a message without an answer, the first such.
        """
        inputs = _inputs([(self._number, *_columns(message)) for message in messages])
        rows = np.arange(len(messages), dtype=np.int64)
        outcome = self._runner.run(inputs, rows, self._account, self._state)
        self._account, self._state = outcome.accounts, outcome.state
        for data in outcome.certified["data"].to_pylist():
            self._certified_data = data
        unanswered = dict(zip(outcome.failures["row"].tolist(), outcome.failures["text"].to_pylist(), strict=True))
        for each in outcome.raised:
            if each.row in unanswered:
                raise HandlerFailed(unanswered[each.row]) from each.error
            traceback.print_exception(each.error)
        return _to_effects(outcome.outputs, self._names)


class _OtherPrograms:
    """Other programs by name, numbered on first use."""

    def __init__(self, own: int, numbers: Mapping[str, int]) -> None:
        self._own, self._numbers = own, dict(numbers)

    def number_of(self, name: str) -> int:
        if not name:
            raise UnknownProgram("no program is called ''")
        if name not in self._numbers:
            used = {self._own, *self._numbers.values()}
            self._numbers[name] = next(each for each in range(FIRST_OF_OTHERS, 2**64) if each not in used)
        return self._numbers[name]

    def name_of(self, program: int) -> str | None:
        return next((name for name, number in self._numbers.items() if number == program), None)


def _portable_code(code: int, text: bytes) -> RejectCode:
    return _MEANINGS.get(code, program_reject_code(code, text))


def _check_amount(key: str, amount: object) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int) or not 0 <= amount < 2**128:
        raise InvalidInput(f"{key}: {format_value(amount)}: must be from 0 to 2**128 - 1")


Columns = tuple[Kind, int, int, str, bytes, int, int, int]


def _columns(message: Ingress | Request | Reply) -> Columns:
    """Return kind, sender, callback, method, payload, code, amount and deadline of a message."""
    if isinstance(message, Ingress):
        return Kind.INGRESS, message.user, 0, message.method, message.payload, 0, 0, 0
    if isinstance(message, Request):
        ends = message.sender, message.callback, message.method, message.payload
        return Kind.REQUEST, *ends, 0, message.amount, message.deadline
    code = message.code
    return Kind.RESPONSE, message.respondent, message.callback, "", message.payload, code, message.refund, 0


def _inputs(messages: Sequence[tuple[int, Kind, int, int, str, bytes, int, int, int]]) -> Frame:
    receivers, kinds, senders, callbacks, methods, payloads, codes, amounts, deadlines = (
        [list(column) for column in zip(*messages, strict=True)] if messages else [[] for _ in range(9)]
    )
    return Frame(
        {
            "kind": np.array(kinds, dtype=np.uint8),
            "sender": np.array(senders, dtype=np.uint64),
            "receiver": np.array(receivers, dtype=np.uint64),
            "callback": np.array(callbacks, dtype=np.uint64),
            "amount_high": np.array([amount // WORD for amount in amounts], dtype=np.uint64),
            "amount_low": np.array([amount % WORD for amount in amounts], dtype=np.uint64),
            "code": np.array(codes, dtype=np.uint8),
            "deadline": np.array(deadlines, dtype=np.uint32),
            "method": pa.array(methods, pa.string()).dictionary_encode(),
            "payload": pa.array(payloads, pa.binary()),
        },
        len(messages),
    )


def _to_effects(outputs: Frame, names: _OtherPrograms) -> list[Answer | Call]:
    """Convert output rows to answers and calls."""
    numbers = ("kind", "receiver", "callback", "amount_high", "amount_low", "code", "deadline")
    columns = [outputs[name].tolist() for name in numbers]
    texts = [outputs[name].to_pylist() for name in ("method", "payload")]
    effects: list[Answer | Call] = []
    for kind, receiver, callback, high, low, code, deadline, method, payload in zip(*columns, *texts, strict=True):
        amount = high * WORD + low
        if kind == Kind.REQUEST:
            effects.append(Call(receiver, callback, method, payload, amount, names.name_of(receiver)))
        else:
            effects.append(Answer(receiver, callback, amount, deadline, code, payload))
    return effects
