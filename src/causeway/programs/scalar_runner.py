"""Execution of the scalar programs of a round: one handler call a message.

The state of a program is canonical CBOR. Amounts accepted from requests that stay open are output as columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.core.frame import Frame, empty_frame
from causeway.core.vocabulary import Kind, PortableCode
from causeway.programs.naming import NO_NAMES, ProgramDirectory
from causeway.programs.outputs import (
    BALANCE,
    WORD,
    ClassOutcome,
    HandlerError,
    balance_from_words,
    balance_words,
    describe_failure,
    failure_frame,
    failure_text,
    from_records,
)
from causeway.programs.scalar import (
    Acceptance,
    Answer,
    Call,
    Context,
    Ingress,
    Program,
    Ref,
    Reject,
    Reply,
    Request,
    certified_rows,
)
from causeway.programs.state_values import NO_OPTIONS, ensure_storable, read_state_value
from causeway.protocols.contract import BYTES, UINT64, table_schema
from causeway.protocols.shared.execution import (
    ACCEPTED_SCHEMA,
    HANDLER_FAILED,
    REJECTED_BY_PROGRAM,
    program_reject_code,
)


def acceptance_rows(found: Sequence[tuple[int, int, Acceptance]]) -> Frame:
    """Convert acceptances to rows (``ACCEPTED_SCHEMA``).

    Args:
        found: Input row, program and acceptance.
    """
    if not found:
        return empty_frame(ACCEPTED_SCHEMA)
    rows = []
    for row, program, each in found:
        sender, callback, _, deadline = each.ref
        rows.append((row, program, sender, callback, deadline, *divmod(each.before, WORD), *divmod(each.after, WORD)))
    columns = zip(ACCEPTED_SCHEMA, zip(*rows, strict=True), strict=True)
    return Frame({field.name: np.array(column, field.type.to_pandas_dtype()) for field, column in columns}, len(rows))


SCALAR_SCHEMA = table_schema(program=UINT64, state=BYTES)
"""``state``: canonical CBOR of the state, notes by callback, open requests and acceptances.

Notes are those of open calls. Open requests and the amounts accepted from them are keyed by ``Request.ref``; the latter
are absent if empty.
"""


class ScalarRunner:
    """All instances of a scalar program class.

    Args:
        program: The class.
        options: Options by instance number.
        names: Names of all programs of the network.
        meaning: Maps reject codes to portable codes.
    """

    schema = SCALAR_SCHEMA

    def __init__(
        self,
        program: type[Program],
        options: Mapping[int, Mapping[str, Any]],
        names: ProgramDirectory = NO_NAMES,
        meaning: PortableCode = program_reject_code,
    ) -> None:
        self._program = program
        self._options = options
        self._names = names
        self._meaning = meaning

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return the state of new instances (ascending numbers)."""
        blobs = [_encode(self._instance(number).initial_state(), {}, {}) for number in instances.tolist()]
        return Frame({"program": instances, "state": pa.array(blobs, pa.binary())}, len(instances))

    def upgraded(self, instances: npt.NDArray[np.uint64], before: Frame) -> Frame:
        """Convert the state of instances (ascending) from another class, ``before``."""
        blobs = []
        for number, blob in zip(instances.tolist(), before["state"].to_pylist(), strict=True):
            state, *rest = read_state_value(blob)
            blobs.append(_encode(self._instance(number).upgraded(state), *rest))
        return Frame({"program": instances, "state": pa.array(blobs, pa.binary())}, len(instances))

    def _instance(self, number: int) -> Program:
        return self._program(self._options.get(number, NO_OPTIONS))

    def run(self, inputs: Frame, rows: npt.NDArray[np.int64], accounts: Frame, state: Frame) -> ClassOutcome:
        """Run the inputs of a round.

        Args:
            inputs: Messages; those of an instance are adjacent and in order.
            rows: Their rows in the inputs of the whole round.
            accounts: Accounts of at least these instances, ascending.
            state: States of at least these instances, ascending.
        """
        work = _RoundState(accounts, state, self._names, self._meaning)
        messages = _messages(inputs)
        groups = group_rows(inputs["receiver"])
        for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
            number = int(inputs["receiver"][start])
            runner = _InstanceRun(self._instance(number), number, work)
            for position in range(start, start + count):
                runner.handle(int(rows[position]), messages[position])
            runner.store()
        return work.outcome()


def _encode(
    state: Any, notes: Mapping[int, Any], open_requests: Mapping[Ref, int], accepted: Mapping[Ref, int] | None = None
) -> bytes:
    ensure_storable(state, "state")
    content = [state, notes, open_requests, *([accepted] if accepted else [])]
    return cbor2.dumps(content, canonical=True)


def _messages(inputs: Frame) -> list[tuple[Any, ...]]:
    numbers = ("kind", "sender", "callback", "code", "deadline")
    columns = [inputs[name].tolist() for name in numbers]
    amount = [
        high * WORD + low
        for high, low in zip(inputs["amount_high"].tolist(), inputs["amount_low"].tolist(), strict=True)
    ]
    return list(zip(*columns, amount, inputs["method"].to_pylist(), inputs["payload"].to_pylist(), strict=True))


class _RoundState:
    """The states of the instances during a round, and their outputs so far."""

    def __init__(self, accounts: Frame, state: Frame, names: ProgramDirectory, meaning: PortableCode) -> None:
        self.accounts = accounts
        self.names = names
        self.meaning = meaning
        self.next_callback = accounts["next_callback"].copy()
        self.balance = [accounts[name].copy() for name in BALANCE]
        self.numbers = state["program"]
        self.blobs = state["state"].to_pylist()
        self.records: list[Mapping[str, Any]] = []
        self.failed_rows: list[int] = []
        self.failed_texts: list[str] = []
        self.raised: list[HandlerError] = []
        self.certified: list[tuple[int, bytes]] = []
        self.accepted: list[tuple[int, int, Acceptance]] = []

    def outcome(self) -> ClassOutcome:
        accounts = self.accounts.with_columns(
            next_callback=self.next_callback, **dict(zip(BALANCE, self.balance, strict=True))
        )
        return ClassOutcome(
            from_records(self.records),
            failure_frame(self.failed_rows, self.failed_texts),
            accounts,
            Frame({"program": self.numbers, "state": pa.array(self.blobs, pa.binary())}, len(self.numbers)),
            tuple(self.raised),
            certified_rows(self.certified),
            acceptance_rows(self.accepted),
        )


_ABSENT: Mapping[str, Any] = {"code": 0, "deadline": 0, "method": "", "late": 0, "asked": 0}
"""The values of outputs that requests or responses lack."""


class _InstanceRun:
    """The messages of one instance in a round."""

    def __init__(self, program: Program, number: int, work: _RoundState) -> None:
        self._program = program
        self._number = number
        self._round = work
        self._state_row = int(np.searchsorted(work.numbers, number))
        self._account_row = int(np.searchsorted(work.accounts["program"], number))
        self._blob = work.blobs[self._state_row]
        self._certified: bytes | None = None
        self._load()
        row = self._account_row
        self._balance = balance_from_words(*(words[row] for words in work.balance))
        self._next_callback = int(work.next_callback[row])

    def _load(self) -> None:
        self._program.state, self._notes, self._open, *accepted = read_state_value(self._blob)
        self._accepted: dict[Ref, int] = accepted[0] if accepted else {}

    def handle(self, row: int, message: tuple[Any, ...]) -> None:
        """Run a handler; undo its effects if it raises."""
        kind, sender, callback, code, deadline, amount, method, payload = message
        refund = amount if kind == Kind.RESPONSE else 0
        balance = self._balance + refund
        ref = (sender, callback, amount, deadline) if kind == Kind.REQUEST else None
        context_data = self._notes, self._open, self._program.certifies, self._round.names, self._accepted
        context = Context(self._number, balance, self._next_callback, *context_data, ref)
        answers: list[Answer] = []
        try:
            if kind == Kind.REQUEST:
                answers = self._request(Request(sender, callback, method, payload, amount, deadline), context)
            elif kind == Kind.RESPONSE:
                note = self._notes.pop(callback, None)
                reject = self._round.meaning(code, payload) if code else None
                self._program.on_reply(Reply(sender, callback, payload, code, amount, note, reject), context)
            else:
                self._program.on_ingress(Ingress(sender, method, payload), context)
            blob = _encode(self._program.state, self._notes, self._open, self._accepted)
        except BaseException as error:  # any exception of a program becomes a reject or a failure event
            if isinstance(error, KeyboardInterrupt):
                raise
            self._undo(kind, callback, balance)
            rejected = isinstance(error, Reject) and kind == Kind.REQUEST
            if not rejected:
                self._round.raised.append(describe_failure(row, self._handler(kind), error))
            if kind == Kind.REQUEST:
                text = failure_text(error)
                if rejected:
                    text = text.removeprefix(f"{type(error).__name__}: ")
                failed = REJECTED_BY_PROGRAM if rejected else HANDLER_FAILED
                self._respond(row, Answer(sender, callback, amount, deadline, failed, text.encode()), late=False)
            else:
                self._round.failed_rows.append(row)
                self._round.failed_texts.append(failure_text(error))
            return
        finally:
            context.end()
        self._blob = blob
        if context.certified_data is not None:
            self._certified = context.certified_data
        self._balance = context.balance
        self._next_callback = context.next_callback
        first_answer = next(
            (answer for answer in answers if (answer.asked, answer.deadline) == (amount, deadline)), None
        )
        for answer in answers:
            self._respond(row, answer, late=answer is not first_answer)
        self._round.accepted += [(row, self._number, each) for each in context.acceptances()]
        for effect in context.effects:
            if isinstance(effect, Call):
                self._call(row, effect)
            else:
                self._respond(row, effect, late=True)

    def _handler(self, kind: int) -> Callable[..., Any]:
        if kind == Kind.REQUEST:
            return self._program.on_request
        return self._program.on_reply if kind == Kind.RESPONSE else self._program.on_ingress

    def _undo(self, kind: int, callback: int, balance: int) -> None:
        """Restore the state before the handler. A response stays consumed, with its refund and note."""
        self._load()
        if kind == Kind.RESPONSE:
            self._balance = balance
            self._notes.pop(callback, None)
            self._blob = _encode(self._program.state, self._notes, self._open, self._accepted)

    def _request(self, request: Request, context: Context) -> list[Answer]:
        """Handle a request; return its immediate answer, which is the first output."""
        ref = request.ref
        key = (request.sender, request.callback, request.amount, request.deadline)
        before = self._open.get(key, 0)
        self._open[key] = before + 1
        result = self._program.on_request(request, context)
        if result is not None:
            payload, accepted = result if isinstance(result, tuple) else (result, 0)
            context.answer(ref, payload, accept=accepted)
        if self._open.get(key, 0) > before:
            return []
        own = [
            effect
            for effect in context.effects
            if isinstance(effect, Answer) and (effect.receiver, effect.callback) == key[:2]
        ]
        context.effects = [effect for effect in context.effects if effect not in own]
        return own

    def _respond(self, row: int, answer: Answer, *, late: bool) -> None:
        self._round.records.append(
            {
                **_ABSENT,
                "row": row,
                "kind": int(Kind.RESPONSE),
                "sender": self._number,
                "receiver": answer.receiver,
                "callback": answer.callback,
                "amount": answer.refund,
                "code": answer.code,
                "deadline": answer.deadline,
                "payload": answer.payload,
                "late": int(late),
                "asked": answer.asked if late else 0,
            }
        )

    def _call(self, row: int, call: Call) -> None:
        self._round.records.append(
            {
                **_ABSENT,
                "row": row,
                "kind": int(Kind.REQUEST),
                "sender": self._number,
                "receiver": call.receiver,
                "callback": call.callback,
                "amount": call.amount,
                "method": call.method,
                "payload": call.payload,
            }
        )

    def store(self) -> None:
        """Store the instance's state and account."""
        work, row = self._round, self._account_row
        work.blobs[self._state_row] = self._blob
        work.next_callback[row] = self._next_callback
        for words, word in zip(work.balance, balance_words(self._balance), strict=True):
            words[row] = word
        if self._certified is not None:
            work.certified.append((self._number, self._certified))
