"""What programs are given in a round and what they make of it, as tests see it: which message was made for which.

No log of a network says that. ``TracedPrograms`` run as ``Programs`` do, and tell whoever listens (``listening``).

Handlers whose result depends on more than their state and message, such as a clock: found by running them twice.
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
"""Runs handlers over inputs, with the accounts and the states of programs."""

LATER_SECONDS = timedelta(days=400, hours=7, minutes=13, seconds=17)
"""How far the clock is ahead in the second run: no part of a date and of a time of day is the same."""

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
    """Run the handlers of a block again, more than a year later by the clock, and compare what comes of it with
    ``first``.

    Args:
        first: what came of ``inputs``.
        run: runs the handlers; it keeps nothing.
        inputs, accounts, states: what they are given.
        name_of: names a program by its number.

    Raises:
        NotDeterministic: something differs; it names the first handler call whose result does.
    """

    def later(some: Frame) -> Execution:
        with time_machine.travel(LATER_SECONDS, tick=True):
            return run(some, accounts, states)

    again = later(inputs)
    found = next(_differences(first, again), None)
    if found is None:
        return
    groups = group_rows(inputs["receiver"])
    for start, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        for end in range(start + 1, start + count + 1):
            some = inputs.take(np.arange(start, end))
            one, other = run(some, accounts, states), later(some)
            differs = next(_differences(one, other), None)
            if differs is not None:
                raise NotDeterministic(name_of(int(inputs["receiver"][start])), _handler(inputs, end - 1), *differs)
    # What differed is the same this time: the first program of the block is as good a guess as any.
    raise NotDeterministic(name_of(int(inputs["receiver"][0])), _handler(inputs, 0), *found)


def _handler(inputs: Frame, row: int) -> str:
    handler = _HANDLERS.get(int(inputs["kind"][row]), "handle")
    method = inputs["method"].slice(row, 1).to_pylist()[0]
    return f"{handler}({method})" if method else handler


def _differences(one: Execution, other: Execution) -> Iterator[tuple[str, str, str]]:
    """Yield what differs between two executions, and how it is in each."""
    pairs = (_texts(one.raised, "error"), _texts(other.raised, "error"))
    yield from _unequal("what it raises", *pairs)
    names = [name for name in one.produced.names if name not in ("method", "payload")]
    for name in ("method", "payload", *names):
        yield from _unequal(f"{name} of what it sends", _texts(one.produced, name), _texts(other.produced, name))
    for table, frame in one.programs.items():
        after = other.programs[table]
        if frame.names == SCALAR_SCHEMA.names:
            for mine, theirs in zip(_texts(frame, "state"), _texts(after, "state"), strict=True):
                yield from _state_differences(mine, theirs)
            continue
        for name in frame.names:
            yield from _unequal(f"state column {name}", _texts(frame, name), _texts(after, name))
    for name in one.accounts.names:
        yield from _unequal(name, _texts(one.accounts, name), _texts(other.accounts, name))
    yield from _unequal("certified data", _texts(one.certified, "data"), _texts(other.certified, "data"))


def _state_differences(mine: bytes, theirs: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the innermost difference of two states of a scalar program."""
    if mine == theirs:
        return
    one, other = (cbor2.loads(blob) for blob in (mine, theirs))
    state, path = _encoded(one[0]) != _encoded(other[0]), "state"
    one, other = (one[0], other[0]) if state else (one, other)
    while isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        key = next((key for key in one if _encoded(one[key]) != _encoded(other[key])), None)
        if key is None:
            break
        one, other, path = one[key], other[key], f"{path}[{key!r}]"
    yield path, _shown(one), _shown(other)


def _encoded(value: Any) -> bytes:
    """Return a value as it is kept: 1, 1.0 and True are three, and a NaN is itself."""
    return cbor2.dumps(value, canonical=True)


def _texts(frame: Frame, name: str) -> list[Any]:
    column = frame[name]
    found: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return found


def _unequal(what: str, one: list[Any], other: list[Any]) -> Iterator[tuple[str, str, str]]:
    if one != other:
        places = (row for row, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)
        row = next(places, None)
        shown = (f"{len(one)} values", f"{len(other)}") if row is None else (_shown(one[row]), _shown(other[row]))
        yield what, *shown


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class TracedKey(NamedTuple):
    """What names a message: its ``kind`` (``Kind``), ``sender``, ``receiver`` and ``callback``."""

    kind: int
    sender: int
    receiver: int
    callback: int


@dataclass(frozen=True)
class TracedContent:
    """What a message says. ``amount``: attached to a request, given back with a response."""

    method: str
    payload: bytes
    amount: int
    code: int


@dataclass(frozen=True)
class HandledMessage:
    """A message that a program handled: what it says, the messages that were made for it, and how the handler failed
    where it raised."""

    key: TracedKey
    content: TracedContent
    made: tuple[tuple[TracedKey, TracedContent], ...]
    raised: str | None


TracedRound = list[tuple[Frame, Execution]]
"""What each call of the programs in a round was given, and what it made."""

_LISTENER: ContextVar[TracedRound | None] = ContextVar("listener", default=None)
_TWICE: ContextVar[bool] = ContextVar("twice", default=False)


class TracedPrograms(Programs):
    """Programs that tell what they were given and what they made of it."""

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers over ``inputs``, as ``Programs.run`` does."""
        execution = super().run(inputs, accounts, states)
        if _TWICE.get():
            run = super().run
            ensure_repeatable(execution, run, inputs, accounts, states, self._called)
        found = _LISTENER.get()
        if found is not None:
            found.append((inputs, execution))
        return execution

    def _called(self, number: int) -> str:
        return self._names.name_of(number) or f"program {number}"


@contextmanager
def listen_to_programs(*, twice: bool) -> Iterator[TracedRound]:
    """Yield what traced programs are given and make in the body of a ``with`` statement. ``twice``: run each block
    again, and raise ``NotDeterministic`` where something else comes of it."""
    found: TracedRound = []
    tokens = _LISTENER.set(found), _TWICE.set(twice)
    try:
        yield found
    finally:
        _LISTENER.reset(tokens[0])
        _TWICE.reset(tokens[1])


def handled_messages(calls: TracedRound) -> dict[TracedKey, HandledMessage]:
    """Return the messages that were handled in a round. A protocol may run programs again in a round without messages
    whose handling it does not accept: of a message in several calls the last counts."""
    found: dict[TracedKey, HandledMessage] = {}
    for inputs, execution in calls:
        made: dict[int, list[tuple[TracedKey, TracedContent]]] = {}
        for row, message in zip(execution.origins.tolist(), iterate_messages(execution.produced), strict=True):
            made.setdefault(row, []).append(message)
        raised = _raised(execution)
        for row, (key, content) in enumerate(iterate_messages(inputs)):
            found[key] = HandledMessage(key, content, tuple(made.get(row, ())), raised.get(row))
    return found


def iterate_messages(rows: Frame) -> list[tuple[TracedKey, TracedContent]]:
    """Return messages (the columns of ``messages.MESSAGE_FIELDS``) one by one."""
    numbers = ("kind", "sender", "receiver", "callback", "amount_high", "amount_low", "code")
    columns: list[list[Any]] = [rows[name].tolist() for name in numbers]
    texts = [rows["method"].to_pylist(), rows["payload"].to_pylist()]
    return [
        (TracedKey(kind, sender, receiver, callback), TracedContent(method, payload, high * WORD + low, code))
        for kind, sender, receiver, callback, high, low, code, method, payload in zip(*columns, *texts, strict=True)
    ]


def _raised(execution: Execution) -> dict[int, str]:
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
