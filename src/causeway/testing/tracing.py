"""Tracing of programs in tests: messages with their causes, and nondeterministic handlers.

``TracedPrograms`` run as ``Programs`` do and report inputs and outputs to a listener; no log of a network has that.
``ensure_repeatable`` runs handlers twice, at different clock times, to find those that depend on more than state and
message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import cbor2
import numpy as np
import time_machine
from causeway_proofs.order import group_rows

from causeway.core.frame import Frame
from causeway.core.vocabulary import Kind
from causeway.programs.outputs import WORD
from causeway.programs.runner import Programs
from causeway.programs.scalar_runner import SCALAR_SCHEMA
from causeway.protocols.shared.execution import Execution
from causeway.testing.errors import NotDeterministic

HandlerRun = Callable[[Frame, Frame, Mapping[str, Frame]], Execution]
"""Runs handlers on inputs, accounts and states."""

LATER_SECONDS = timedelta(days=400, hours=7, minutes=13, seconds=17)
"""Clock offset of the second run: all parts of date and time differ."""

_HANDLERS = {int(Kind.REQUEST): "on_request", int(Kind.RESPONSE): "on_reply", int(Kind.INGRESS): "on_ingress"}
_SHOWN = 60


def ensure_repeatable(
    first: Execution,
    run: HandlerRun,
    inputs: Frame,
    accounts: Frame,
    states: Mapping[str, Frame],
    name_of: Callable[[int], str],
) -> None:
    """Run the handlers of a block again, a year later by the clock, and compare the results.

    Args:
        first: Result of the first run.
        run: Runs the handlers without side effects.
        inputs: Input messages.
        accounts: Accounts of the programs.
        states: States of the programs by class.
        name_of: Names a program by number.

    Raises:
        NotDeterministic: The results differ; it names the first handler call that differs.
    """

    def later(some: Frame) -> Execution:
        with time_machine.travel(LATER_SECONDS, tick=True):
            return run(some, accounts, states)

    repeated = later(inputs)
    difference = next(_differences(first, repeated), None)
    if difference is None:
        return
    groups = group_rows(inputs["receiver"])
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        for end in range(start + 1, start + count + 1):
            some = inputs.take(np.arange(start, end))
            one, other = run(some, accounts, states), later(some)
            differs = next(_differences(one, other), None)
            if differs is not None:
                raise NotDeterministic(name_of(int(inputs["receiver"][start])), _handler(inputs, end - 1), *differs)
    # The difference did not recur; name the first program of the block.
    raise NotDeterministic(name_of(int(inputs["receiver"][0])), _handler(inputs, 0), *difference)


def _handler(inputs: Frame, row: int) -> str:
    handler = _HANDLERS.get(int(inputs["kind"][row]), "handle")
    method = inputs["method"].slice(row, 1).to_pylist()[0]
    return f"{handler}({method})" if method else handler


def _differences(one: Execution, other: Execution) -> Iterator[tuple[str, str, str]]:
    """Yield the differences between two executions: name and both values."""
    pairs = (_values(one.raised, "error"), _values(other.raised, "error"))
    yield from _compare_values("what it raises", *pairs)
    names = [name for name in one.produced.names if name not in ("method", "payload")]
    for name in ("method", "payload", *names):
        yield from _compare_values(
            f"{name} of what it sends", _values(one.produced, name), _values(other.produced, name)
        )
    for table, frame in one.programs.items():
        after = other.programs[table]
        if frame.names == SCALAR_SCHEMA.names:
            for mine, theirs in zip(_values(frame, "state"), _values(after, "state"), strict=True):
                yield from _state_differences(mine, theirs)
            continue
        for name in frame.names:
            yield from _compare_values(f"state column {name}", _values(frame, name), _values(after, name))
    for name in one.accounts.names:
        yield from _compare_values(name, _values(one.accounts, name), _values(other.accounts, name))
    yield from _compare_values("certified data", _values(one.certified, "data"), _values(other.certified, "data"))


def _state_differences(mine: bytes, theirs: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the innermost difference between two states of a scalar program."""
    if mine == theirs:
        return
    one, other = (cbor2.loads(blob) for blob in (mine, theirs))
    state, path = _encode(one[0]) != _encode(other[0]), "state"
    one, other = (one[0], other[0]) if state else (one, other)
    while isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        key = next((key for key in one if _encode(one[key]) != _encode(other[key])), None)
        if key is None:
            break
        one, other, path = one[key], other[key], f"{path}[{key!r}]"
    yield path, _abbreviate(one), _abbreviate(other)


def _encode(value: Any) -> bytes:
    """Encode a value as stored: it distinguishes 1, 1.0 and True, and a NaN equals itself."""
    return cbor2.dumps(value, canonical=True)


def _values(frame: Frame, name: str) -> list[Any]:
    column = frame[name]
    found: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return found


def _compare_values(name: str, one: list[Any], other: list[Any]) -> Iterator[tuple[str, str, str]]:
    if one != other:
        places = (row for row, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)
        row = next(places, None)
        values = (
            (f"{len(one)} values", f"{len(other)}") if row is None else (_abbreviate(one[row]), _abbreviate(other[row]))
        )
        yield name, *values


def _abbreviate(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class TracedKey(NamedTuple):
    """Identity of a message: ``kind`` (``Kind``), ``sender``, ``receiver`` and ``callback``."""

    kind: int
    sender: int
    receiver: int
    callback: int


@dataclass(frozen=True)
class TracedContent:
    """Content of a message. ``amount``: attached to a request, refunded with a response."""

    method: str
    payload: bytes
    amount: int
    code: int


@dataclass(frozen=True)
class HandledMessage:
    """A message that a program handled.

    Attributes:
        key: Its identity.
        content: Its content.
        made: Messages that the handler created.
        raised: The exception of the handler, or None.
    """

    key: TracedKey
    content: TracedContent
    made: tuple[tuple[TracedKey, TracedContent], ...]
    raised: str | None


TracedRound = list[tuple[Frame, Execution]]
"""Inputs and result of each execution of programs in a round."""

_LISTENER: ContextVar[TracedRound | None] = ContextVar("listener", default=None)
_TWICE: ContextVar[bool] = ContextVar("twice", default=False)


class TracedPrograms(Programs):
    """Programs that report inputs and results to a listener."""

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers as ``Programs.run`` does."""
        execution = super().run(inputs, accounts, states)
        if _TWICE.get():
            run = super().run
            ensure_repeatable(execution, run, inputs, accounts, states, self._program_name)
        found = _LISTENER.get()
        if found is not None:
            found.append((inputs, execution))
        return execution

    def _program_name(self, number: int) -> str:
        return self._names.name_of(number) or f"program {number}"


@contextmanager
def listen_to_programs(*, twice: bool) -> Iterator[TracedRound]:
    """Collect the executions of traced programs in the body of a ``with`` statement.

    Args:
        twice: Run each block twice, and raise ``NotDeterministic`` if the results differ.
    """
    found: TracedRound = []
    tokens = _LISTENER.set(found), _TWICE.set(twice)
    try:
        yield found
    finally:
        _LISTENER.reset(tokens[0])
        _TWICE.reset(tokens[1])


def handled_messages(calls: TracedRound) -> dict[TracedKey, HandledMessage]:
    """Return the messages handled in a round.

    A protocol may run programs again without messages that it rejects; the last execution counts.
    """
    found: dict[TracedKey, HandledMessage] = {}
    for inputs, execution in calls:
        outputs: dict[int, list[tuple[TracedKey, TracedContent]]] = {}
        for row, message in zip(execution.origins.tolist(), iterate_messages(execution.produced), strict=True):
            outputs.setdefault(row, []).append(message)
        raised = _exceptions(execution)
        for row, (key, content) in enumerate(iterate_messages(inputs)):
            found[key] = HandledMessage(key, content, tuple(outputs.get(row, ())), raised.get(row))
    return found


def iterate_messages(rows: Frame) -> list[tuple[TracedKey, TracedContent]]:
    """Return message rows (``MESSAGE_COLUMNS``) one by one."""
    numbers = ("kind", "sender", "receiver", "callback", "amount_high", "amount_low", "code")
    columns: list[list[Any]] = [rows[name].tolist() for name in numbers]
    texts = [rows["method"].to_pylist(), rows["payload"].to_pylist()]
    return [
        (TracedKey(kind, sender, receiver, callback), TracedContent(method, payload, high * WORD + low, code))
        for kind, sender, receiver, callback, high, low, code, method, payload in zip(*columns, *texts, strict=True)
    ]


def _exceptions(execution: Execution) -> dict[int, str]:
    rows = execution.raised
    if not len(rows):
        return {}
    texts = [rows[name].to_pylist() for name in ("handler", "error", "file")]
    lines = zip(rows["row"].tolist(), *texts, rows["line"].tolist(), strict=True)
    here = f"{os.getcwd()}{os.sep}"
    return {
        row: f"{error} ({file.removeprefix(here)}, line {line}, in {handler})"
        for row, handler, error, file, line in lines
    }
