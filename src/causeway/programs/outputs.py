"""What programs produce, as message columns: answers and calls in the order of production.

What is known of a handler that raised: which it was, what it raised, and where in the program.

Balances of programs: what a round's answers and calls take from them and bring to them, exact to 128 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame, repeat_text, repeat_value
from causeway.core.vocabulary import Kind
from causeway.programs.scalar import MAX_BALANCE, BalanceOverflow, InsufficientFunds
from causeway.protocols.shared.execution import ACCEPTED_SCHEMA, CERTIFIED_DATA_SCHEMA

MAX_TEXT = 1_000
"""Characters of an error's text that are kept."""

NO_RAISED = Frame(
    {
        "row": np.empty(0, dtype=np.int64),
        **{name: repeat_text("", 0) for name in ("handler", "error", "file")},
        "line": np.empty(0, dtype=np.uint32),
    },
    0,
)
"""One row a handler call that raised: the input's ``row``; ``handler``: its name; ``error``: what it raised; ``file``
and ``line``: where in the program."""


@dataclass(frozen=True)
class HandlerError:
    """A handler call that raised.

    Attributes:
        row: of the input.
        handler: the name of the method.
        error: what it raised.
        file, line: the innermost place in the file of the program's class; that of the handler where the fault is in
            what it returned.
    """

    row: int
    handler: str
    error: BaseException
    file: str
    line: int


def describe_failure(row: int, handler: Callable[..., Any], error: BaseException) -> HandlerError:
    """Return what is known of ``handler`` (a method) that raised ``error`` on the input ``row``."""
    code = handler.__code__ if inspect.isfunction(handler) else getattr(handler, "__func__", handler).__code__
    file, line = code.co_filename, code.co_firstlineno
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return HandlerError(row, handler.__name__, error, file, line)


def failure_rows(found: Sequence[HandlerError]) -> Frame:
    """Return handler calls that raised as ``NO_RAISED`` has them."""
    if not found:
        return NO_RAISED

    def texts(values: list[str]) -> pa.Array:
        return pa.array(values, pa.string()).dictionary_encode()

    return Frame(
        {
            "row": np.array([each.row for each in found], dtype=np.int64),
            "handler": texts([each.handler for each in found]),
            "error": texts([failure_text(each.error)[:MAX_TEXT] for each in found]),
            "file": texts([each.file for each in found]),
            "line": np.array([each.line for each in found], dtype=np.uint32),
        },
        len(found),
    )


def failure_text(error: BaseException) -> str:
    """Return the reject text of a handler that raised, whatever it raised."""
    try:
        text = f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # an error may fail even at telling what it is
        text = type(error).__name__
    return text.encode(errors="backslashreplace").decode()


OUTPUT_FIELDS: list[tuple[str, Any]] = [
    ("row", np.int64),
    ("kind", np.uint8),
    ("sender", np.uint64),
    ("receiver", np.uint64),
    ("callback", np.uint64),
    ("amount_high", np.uint64),
    ("amount_low", np.uint64),
    ("code", np.uint8),
    ("deadline", np.uint32),
    ("late", np.uint8),
    ("asked_high", np.uint64),
    ("asked_low", np.uint64),
]
"""Numeric columns of a produced message; ``row`` is the input that it comes from. ``late``: 1 for the answer to a
request that is not this input; ``asked`` was attached to it before the handler. ``method`` and ``payload`` follow."""

ASKED_COLUMNS = ["late", "asked_high", "asked_low"]
MESSAGE_COLUMNS = [*(name for name, _ in OUTPUT_FIELDS if name not in ("row", *ASKED_COLUMNS)), "method", "payload"]
OUTPUT_COLUMNS = ["row", *MESSAGE_COLUMNS, *ASKED_COLUMNS]

WORD = 2**64

NO_OUTPUTS = Frame(
    {
        **{name: np.empty(0, dtype=kind) for name, kind in OUTPUT_FIELDS},
        "method": repeat_text("", 0),
        "payload": pa.array([], pa.binary()),
    },
    0,
)

NO_FAILURES = Frame({"row": np.empty(0, dtype=np.int64), "text": pa.array([], pa.string())}, 0)
"""``row`` of the input whose handler raised, and ``text``: why; inputs that have an answer are not among them."""


@dataclass(frozen=True)
class ClassOutcome:
    """What the instances of one program class did.

    Attributes:
        outputs: by (row, emission).
        failures: of the handlers that raised, those on an input that has no answer (``NO_FAILURES``).
        accounts, state: after.
        raised: all handler calls that raised.
        certified: what was set as certified data, in the order in which it was (``CERTIFIED_DATA_SCHEMA``).
        accepted: of requests that stay open, ``row`` being that of the whole round's inputs (``ACCEPTED_SCHEMA``).
    """

    outputs: Frame
    failures: Frame
    accounts: Frame
    state: Frame
    raised: tuple[HandlerError, ...] = ()
    certified: Frame = field(default_factory=lambda: empty_frame(CERTIFIED_DATA_SCHEMA))
    accepted: Frame = field(default_factory=lambda: empty_frame(ACCEPTED_SCHEMA))


def answer_rows(
    inputs: Frame, rows: np.ndarray, code: Any, payload: Any, refund: tuple[Any, Any] | None = None
) -> Frame:
    """Return the responses to the requests at ``rows``; the whole amount goes back unless ``refund`` says otherwise."""
    length = len(rows)
    asked = inputs.select(["sender", "receiver", "callback", "amount_high", "amount_low", "deadline"]).take(rows)
    high, low = refund if refund is not None else (asked["amount_high"], asked["amount_low"])
    return Frame(
        {
            "row": rows,
            "kind": repeat_value(np.uint8(Kind.RESPONSE), length),
            "sender": asked["receiver"],
            "receiver": asked["sender"],
            "callback": asked["callback"],
            "amount_high": high,
            "amount_low": low,
            "code": code if isinstance(code, np.ndarray) else repeat_value(np.uint8(code), length),
            "deadline": asked["deadline"],
            "method": repeat_text("", length),
            "payload": payload,
            **immediate_answers(length),
        },
        length,
    )


def immediate_answers(length: int) -> dict[str, np.ndarray]:
    """Return the columns of messages that are no late answers (``ASKED_COLUMNS``)."""
    return {name: repeat_value(kind(0), length) for name, kind in OUTPUT_FIELDS if name in ASKED_COLUMNS}


def from_records(records: list[Mapping[str, Any]]) -> Frame:
    """Return outputs from one mapping a message, ``amount`` and ``asked`` as one number each."""
    if not records:
        return NO_OUTPUTS
    columns: dict[str, Any] = {}
    for name, kind in OUTPUT_FIELDS:
        amount, _, half = name.rpartition("_")
        if half == "high":
            values = [record[amount] // WORD for record in records]
        elif half == "low":
            values = [record[amount] % WORD for record in records]
        else:
            values = [record[name] for record in records]
        columns[name] = np.array(values, dtype=kind)
    columns["method"] = pa.array([record["method"] for record in records], pa.string()).dictionary_encode()
    columns["payload"] = pa.array([record["payload"] for record in records], pa.binary())
    return Frame(columns, len(records))


def sort_by_production(parts: list[Frame]) -> Frame:
    """Return outputs of several kinds in order of their input's row, for one row in the order of ``parts``."""
    full = [part.select(OUTPUT_COLUMNS) for part in parts if len(part)]
    if not full:
        return NO_OUTPUTS
    joined = concat(full)
    if len(full) == 1:
        return joined
    return joined.take(stable_order(joined["row"].view(np.uint64)))


def failure_frame(rows: list[int], texts: list[str]) -> Frame:
    """Return a frame of failures."""
    if not rows:
        return NO_FAILURES
    return Frame({"row": np.array(rows, dtype=np.int64), "text": pa.array(texts, pa.string())})


COMING, GOING, TAKEN = 0, 1, 2
"""What moves for one input, in this order: a response's refund comes in, calls go out, what was accepted comes in."""

BALANCE = ("balance_over", "balance_high", "balance_low")
"""The words of a balance, the most significant first. The first is 0 but where refunds came to a full balance."""

SMALL = 2**62
"""Below this, sums of all that moves fit a signed word."""


def balance_words(balance: int) -> tuple[int, int, int]:
    """Return the words of a balance (``BALANCE``)."""
    return balance // WORD**2, balance // WORD % WORD, balance % WORD


def balance_from_words(over: Any, high: Any, low: Any) -> int:
    """Return the balance of three words."""
    return (int(over) * WORD + int(high)) * WORD + int(low)


def settle(accounts: Frame, inputs: Frame, answers: Frame | None, calls: Frame | None) -> Frame:
    """Return the accounts after the inputs, in order: a refund comes in, calls go out, what was accepted comes in.

    ``inputs``: one instance's rows are neighbours, in order. ``answers`` and ``calls``: effects by row of the inputs.
    Raises ``InsufficientFunds`` when a call attaches more than there is at that point, and ``BalanceOverflow`` when
    what is accepted would raise a balance above 2**128 - 1. A refund is never refused: what is beyond 128 bits
    goes to ``balance_over``.
    """
    response = np.flatnonzero(inputs["kind"] == Kind.RESPONSE)
    parts = [_moving(response, inputs.select(["amount_high", "amount_low"]).take(response), "amount", COMING)]
    if calls is not None and "amount_low" in calls:
        parts.append(_moving(calls["row"], calls, "amount", GOING))
    if answers is not None and "accepted_low" in answers:
        parts.append(_moving(answers["row"], answers, "accepted", TAKEN))
    rows, step, high, low = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if len(rows) == 0:
        return accounts
    order = stable_order(rows.astype(np.uint64), step)
    account = np.searchsorted(accounts["program"], inputs["receiver"][rows[order]])
    return _moved(accounts, account, step[order], high[order], low[order])


def _moving(rows: Rows, frame: Frame, prefix: str, step: int) -> tuple[Rows, npt.NDArray[np.uint8], U64, U64]:
    """Return row, step, and the two halves of what moves, where it is not nothing."""
    high, low = frame[f"{prefix}_high"], frame[f"{prefix}_low"]
    some = np.flatnonzero((high > 0) | (low > 0))
    return rows[some], np.full(len(some), step, dtype=np.uint8), high[some], low[some]


def _moved(accounts: Frame, account: Rows, step: npt.NDArray[np.uint8], high: U64, low: U64) -> Frame:
    """Return the accounts after amounts went or came; rows of one account are neighbours, in order."""
    going = step == GOING
    groups = group_rows(account)
    first = account[groups.starts]
    over_after, high_after, low_after = (accounts[name].copy() for name in BALANCE)
    total = float(low.astype(np.float64).sum()) + float(low_after[first].max())
    if not high.any() and not high_after[first].any() and not over_after[first].any() and total < SMALL:
        signed = np.where(going, -low.astype(np.int64), low.astype(np.int64))
        running = np.cumsum(signed)
        start = running[groups.starts] - signed[groups.starts]
        balance = running + groups.spread(low_after[first].astype(np.int64) - start)
        if bool((balance < 0).any()):
            row = int(np.argmax(balance < 0))
            raise InsufficientFunds(f"balance {int(balance[row]) + int(low[row])}, attached {int(low[row])}")
        low_after[first] = balance[groups.starts + groups.counts - 1].astype(np.uint64)
        return accounts.with_columns(balance_high=high_after, balance_low=low_after)
    for place, start, count in zip(first.tolist(), groups.starts.tolist(), groups.counts.tolist(), strict=True):
        held = balance_from_words(over_after[place], high_after[place], low_after[place])
        for row in range(start, start + count):
            amount = int(high[row]) * WORD + int(low[row])
            if going[row] and amount > held:
                raise InsufficientFunds(f"balance {held}, attached {amount}")
            if step[row] == TAKEN and held + amount > MAX_BALANCE:
                raise BalanceOverflow(f"balance {held}, accepted {amount}, at most 2**128 - 1")
            held += -amount if going[row] else amount
        over_after[place], high_after[place], low_after[place] = balance_words(held)
    return accounts.with_columns(balance_over=over_after, balance_high=high_after, balance_low=low_after)
