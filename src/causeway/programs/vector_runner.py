"""Execution of the vectorized programs of a round: one handler call for all instances.

When a handler raises, its messages are handled in two halves, and so on down to the message at fault, which alone is
rejected. The result equals handling each message alone, whichever instances share a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, group_rows

from causeway.core.frame import DeferredColumn, Frame, concat, empty_frame, repeat_value
from causeway.core.vocabulary import Kind
from causeway.programs.outputs import (
    NO_FAILURES,
    ClassOutcome,
    answer_rows,
    describe_failure,
    failure_frame,
    failure_text,
    immediate_answers,
    settle,
    sort_by_production,
)
from causeway.programs.scalar import ensure_all_certifiable
from causeway.programs.vector import Effects, VectorProgram
from causeway.protocols.shared.execution import CERTIFIED_DATA_SCHEMA, HANDLER_FAILED


class InvalidEffects(ValueError):
    """A vectorized handler returned something other than effects of its batch."""


class VectorRunner:
    """All instances of a vectorized program class."""

    def __init__(self, program: type[VectorProgram], options: Mapping[int, Mapping[str, Any]]) -> None:
        self._program = program(options)
        self.schema: pa.Schema = program.schema

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return the state of new instances (ascending numbers)."""
        state = self._program.initial_state(instances)
        if len(state) == 0 and self.schema.names == ["program"]:
            return empty_frame(self.schema)  # a program without state has no rows
        if not np.array_equal(state["program"], instances):
            raise ValueError("the first state must have one row for each instance, in their order")
        return self._in_schema(instances, state)

    def upgraded(self, instances: npt.NDArray[np.uint64], before: Frame) -> Frame:
        """Convert the state of instances (ascending) from another class with the same columns."""
        return self._in_schema(instances, before)

    def run(self, inputs: Frame, rows: Rows, accounts: Frame, state: Frame) -> ClassOutcome:
        """Run the inputs of a round.

        Args:
            inputs: Messages; those of an instance are adjacent and in order.
            rows: Their rows in the inputs of the whole round.
            accounts: Accounts of at least these instances.
            state: States of the instances.
        """
        try:
            read_only_state = state.read_only()
            effects = _check_effects(
                self._program.handle(inputs.read_only(), read_only_state), len(inputs), self.schema.names
            )
            certified = _certified_data(inputs, effects.certified, self._program.certifies)
            after = state if effects.state is read_only_state else self._state(state, effects.state)
            return replace(_outcome(inputs, rows, accounts, after, effects), certified=certified)
        except BaseException as error:  # any exception of a program: bisect to the message at fault
            if isinstance(error, KeyboardInterrupt):
                raise
            if len(inputs) == 1:
                outcome = _failure_outcome(inputs, rows, accounts, state, error)
                return replace(outcome, raised=(describe_failure(int(rows[0]), self._program.handle, error),))
        middle = _split_point(inputs)
        first = self.run(inputs.slice(0, middle), rows[:middle], accounts, state)
        second = self.run(inputs.slice(middle, len(inputs)), rows[middle:], first.accounts, first.state)
        return ClassOutcome(
            sort_by_production([first.outputs, second.outputs]),
            concat([first.failures, second.failures]),
            second.accounts,
            second.state,
            first.raised + second.raised,
            concat([first.certified, second.certified]),
        )

    def _state(self, before: Frame, after: Frame) -> Frame:
        """Return the new state in its schema. Raises ``ValueError`` if the instances changed."""
        if not np.array_equal(before["program"], after["program"]):
            raise ValueError("the state after must have the instances of the state before, in their order")
        return self._in_schema(before["program"], after)

    def _in_schema(self, instances: U64, state: Frame) -> Frame:
        """Cast a state to its schema, so that it has one root however the program built it."""
        columns = {item.name: _cast(state[item.name], item.type) for item in self.schema}
        return Frame({**columns, "program": instances}, len(instances))


def _check_effects(effects: Any, length: int, columns: Sequence[str]) -> Effects:
    """Validate the effects of a batch of ``length`` messages. ``columns``: columns of the state.

    Raises:
        InvalidEffects: The form is wrong; the text names the column and the allowed values.
    """
    if not isinstance(effects, Effects):
        raise InvalidEffects(f"handle returned {type(effects).__name__}, allowed: Effects")
    _ensure_frame("state", effects.state, columns, columns)
    for name, needed, amounts in (
        ("answers", ("row", "code", "payload"), "accepted"),
        ("calls", ("row", "receiver", "method", "payload"), "amount"),
        ("certified", ("row", "data"), None),
    ):
        frame = getattr(effects, name)
        if frame is not None:
            optional = () if amounts is None else (f"{amounts}_high", f"{amounts}_low")
            _ensure_frame(name, frame, needed, (*needed, *optional))
            _ensure_rows(name, frame["row"], length)
    return effects


def _ensure_frame(name: str, frame: Any, needed: Sequence[str], allowed: Sequence[str]) -> None:
    if not isinstance(frame, Frame):
        raise InvalidEffects(f"{name} is {type(frame).__name__}, allowed: a Frame")
    for column in needed:
        if column not in frame:
            raise InvalidEffects(f"{name} has no column {column}")
    for column in frame.names:
        if column not in allowed:
            raise InvalidEffects(f"{name} has a column {column}; allowed: {', '.join(allowed)}")


def _ensure_rows(name: str, rows: Any, length: int) -> None:
    numbers = np.asarray(rows)
    if numbers.dtype.kind not in "iu":
        raise InvalidEffects(f"{name}: row is of type {numbers.dtype}, allowed: whole numbers")
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < length:
        raise InvalidEffects(f"{name}: row must be from 0 to {length - 1}, the rows of the batch")
    if not bool((numbers[1:] >= numbers[:-1]).all()):
        raise InvalidEffects(f"{name}: row must ascend")


def _outcome(inputs: Frame, rows: Rows, accounts: Frame, state: Frame, effects: Effects) -> ClassOutcome:
    """Convert the effects of a handler; raise for effects that are not allowed."""
    parts = []
    answers, calls = _answers(inputs, effects.answers), _calls(inputs, effects.calls)
    accounts = settle(accounts, inputs, answers, calls)
    if answers is not None:
        parts.append(_responses(inputs, answers))
    if calls is not None:
        requests, accounts = _requests(inputs, calls, accounts)
        parts.append(requests)
    outputs = sort_by_production(parts)
    return ClassOutcome(outputs.with_columns(row=rows[outputs["row"]]), NO_FAILURES, accounts, state)


def _split_point(inputs: Frame) -> int:
    """Return the row at which to split the inputs: between instances if possible."""
    starts = group_rows(inputs["receiver"]).starts
    return int(starts[len(starts) // 2]) if len(starts) > 1 else len(inputs) // 2


def _failure_outcome(inputs: Frame, rows: Rows, accounts: Frame, state: Frame, error: BaseException) -> ClassOutcome:
    """Return the outcome of a message whose handler raised: a reject, or a failure with refund."""
    text = failure_text(error)
    if inputs["kind"][0] == Kind.REQUEST:
        payload = pa.array([text.encode()], pa.binary())
        answer = answer_rows(inputs, np.zeros(1, dtype=np.int64), HANDLER_FAILED, payload)
        return ClassOutcome(sort_by_production([answer.with_columns(row=rows)]), NO_FAILURES, accounts, state)
    return ClassOutcome(
        sort_by_production([]), failure_frame([int(rows[0])], [text]), settle(accounts, inputs, None, None), state
    )


def _cast(column: Any, kind: pa.DataType) -> Any:
    """Cast a column to a type of the schema."""
    if isinstance(column, np.ndarray):
        if pa.types.is_integer(kind):
            return _cast_integers(column, kind.to_pandas_dtype())
        if pa.types.is_boolean(kind):
            return column.astype(np.bool_, casting="same_kind", copy=False)
        column = pa.array(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise ValueError(f"a column of {kind} has nulls")
    return column if column.type == kind else column.cast(kind)


def _payloads(effects: Frame) -> Any:
    """Return the payloads of effects; those passed on from the batch stay deferred."""
    column = effects.column("payload")
    if isinstance(column, DeferredColumn) and column.is_of(pa.binary()):
        return column
    return _cast(effects["payload"], pa.binary())


def _cast_integers(column: Any, kind: type[np.integer[Any]]) -> npt.NDArray[Any]:
    """Cast numbers to an integer type. Raises ``ValueError`` if they do not fit."""
    numbers = np.asarray(column)
    if numbers.dtype == kind:
        return numbers
    limits = np.iinfo(kind)
    if numbers.dtype.kind not in "iu" or (
        len(numbers) and not limits.min <= int(numbers.min()) <= int(numbers.max()) <= limits.max
    ):
        raise ValueError(f"{numbers.dtype} numbers must be whole, from {limits.min} to {limits.max}")
    return numbers.astype(kind)


def _rows(effects: Frame) -> Rows:
    rows: Rows = np.asarray(effects["row"]).astype(np.int64, copy=False)
    return rows


def _amounts(effects: Frame, prefix: str) -> dict[str, Any]:
    """Return the halves of optional 128-bit amounts; a missing upper half is 0."""
    if f"{prefix}_low" not in effects:
        return {}
    low = _cast_integers(effects[f"{prefix}_low"], np.uint64)
    high = effects.get(f"{prefix}_high", repeat_value(np.uint64(0), len(low)))
    return {f"{prefix}_high": _cast_integers(high, np.uint64), f"{prefix}_low": low}


def _answers(inputs: Frame, answers: Frame | None) -> Frame | None:
    """Cast answers. Raises ``ValueError`` unless each answers a request, at most once."""
    if answers is None or len(answers) == 0:
        return None
    rows = _rows(answers)
    if not bool((inputs["kind"][rows] == Kind.REQUEST).all()) or not bool((rows[1:] > rows[:-1]).all()):
        raise ValueError("answers must name each request at most once")
    accepted = _amounts(answers, "accepted")
    if accepted:
        high, low = inputs["amount_high"][rows], inputs["amount_low"][rows]
        exceeds = (accepted["accepted_high"] > high) | (
            (accepted["accepted_high"] == high) & (accepted["accepted_low"] > low)
        )
        if exceeds.any():
            raise ValueError("an answer accepts more than its request attaches")
    code = _cast_integers(answers["code"], np.uint8)
    payload = _payloads(answers)
    return Frame({"row": rows, "code": code, "payload": payload, **accepted}, len(rows))


def _calls(inputs: Frame, calls: Frame | None) -> Frame | None:
    """Cast calls."""
    if calls is None or len(calls) == 0:
        return None
    rows = _rows(calls)
    return Frame(
        {
            "row": rows,
            "receiver": _cast_integers(calls["receiver"], np.uint64),
            "method": _cast(calls["method"], pa.dictionary(pa.int32(), pa.string())),
            "payload": _payloads(calls),
            **_amounts(calls, "amount"),
        },
        len(rows),
    )


def _certified_data(inputs: Frame, certified: Frame | None, declared: bool) -> Frame:
    """Return the certified data of instances (``CERTIFIED_DATA_SCHEMA``). Raises if not allowed."""
    if certified is None or len(certified) == 0:
        return empty_frame(CERTIFIED_DATA_SCHEMA)
    data = _cast(certified["data"], pa.binary())
    ensure_all_certifiable(data, declared)
    return Frame({"program": inputs["receiver"][_rows(certified)], "data": data}, len(certified))


def _responses(inputs: Frame, answers: Frame) -> Frame:
    rows = answers["row"]
    refund = None
    if "accepted_low" in answers:
        low, high = inputs["amount_low"][rows], inputs["amount_high"][rows]
        borrow = (answers["accepted_low"] > low).astype(np.uint64)
        refund = (high - answers["accepted_high"] - borrow, low - answers["accepted_low"])
    return answer_rows(inputs, rows, answers["code"], answers.column("payload"), refund)


def _requests(inputs: Frame, calls: Frame, accounts: Frame) -> tuple[Frame, Frame]:
    """Return the calls as requests with callback ids, and accounts with new callback counters."""
    rows, length = calls["row"], len(calls)
    sender = inputs["receiver"][rows]
    groups = group_rows(sender)
    account = np.searchsorted(accounts["program"], sender[groups.starts])
    next_callback: U64 = accounts["next_callback"].copy()
    callback = groups.spread(next_callback[account]) + groups.ranks().astype(np.uint64)
    next_callback[account] += groups.counts.astype(np.uint64)
    zero = repeat_value(np.uint64(0), length)
    requests = Frame(
        {
            "row": rows,
            "kind": repeat_value(np.uint8(Kind.REQUEST), length),
            "sender": sender,
            "receiver": calls["receiver"],
            "callback": callback,
            "amount_high": calls.get("amount_high", zero),
            "amount_low": calls.get("amount_low", zero),
            "code": repeat_value(np.uint8(0), length),
            "deadline": repeat_value(np.uint32(0), length),
            "method": calls["method"],
            "payload": calls.column("payload"),
            **immediate_answers(length),
        },
        length,
    )
    return requests, accounts.with_columns(next_callback=next_callback)
