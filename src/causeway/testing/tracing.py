"""What programs are given in a round and what they make of it, as tests see it: which message was made for which.

No log of a network says that. ``TracedPrograms`` run as ``Programs`` do, and tell whoever listens (``listening``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from causeway.model.frame import Frame
from causeway.programs.outputs import WORD
from causeway.programs.runner import Programs
from causeway.protocols.execution import Execution
from causeway.testing.twice import ensure_repeatable


class Key(NamedTuple):
    """What names a message: its ``kind`` (``Kind``), ``sender``, ``receiver`` and ``callback``."""

    kind: int
    sender: int
    receiver: int
    callback: int


@dataclass(frozen=True)
class Content:
    """What a message says. ``amount``: attached to a request, given back with a response."""

    method: str
    payload: bytes
    amount: int
    code: int


@dataclass(frozen=True)
class Handled:
    """A message that a program handled: what it says, the messages that were made for it, and how the handler failed
    where it raised."""

    key: Key
    content: Content
    made: tuple[tuple[Key, Content], ...]
    raised: str | None


Round = list[tuple[Frame, Execution]]
"""What each call of the programs in a round was given, and what it made."""

_LISTENER: ContextVar[Round | None] = ContextVar("listener", default=None)
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
def listening(*, twice: bool) -> Iterator[Round]:
    """Yield what traced programs are given and make in the body of a ``with`` statement. ``twice``: run each block
    again, and raise ``NotDeterministic`` where something else comes of it."""
    found: Round = []
    tokens = _LISTENER.set(found), _TWICE.set(twice)
    try:
        yield found
    finally:
        _LISTENER.reset(tokens[0])
        _TWICE.reset(tokens[1])


def handled_in(calls: Round) -> dict[Key, Handled]:
    """Return the messages that were handled in a round. A protocol may run programs again in a round without messages
    whose handling it does not accept: of a message in several calls the last counts."""
    found: dict[Key, Handled] = {}
    for inputs, execution in calls:
        made: dict[int, list[tuple[Key, Content]]] = {}
        for row, message in zip(execution.origins.tolist(), messages_of(execution.produced), strict=True):
            made.setdefault(row, []).append(message)
        raised = _raised(execution)
        for row, (key, content) in enumerate(messages_of(inputs)):
            found[key] = Handled(key, content, tuple(made.get(row, ())), raised.get(row))
    return found


def messages_of(rows: Frame) -> list[tuple[Key, Content]]:
    """Return messages (the columns of ``messages.MESSAGE_FIELDS``) one by one."""
    numbers = ("kind", "sender", "receiver", "callback", "amount_high", "amount_low", "code")
    columns: list[list[Any]] = [rows[name].tolist() for name in numbers]
    texts = [rows["method"].to_pylist(), rows["payload"].to_pylist()]
    return [
        (Key(kind, sender, receiver, callback), Content(method, payload, high * WORD + low, code))
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
