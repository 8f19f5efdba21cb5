"""Outputs of programs: message columns in order of production, failures, and balances.

``settle`` applies the refunds, calls and acceptances of a round to balances, exact to 128 bits. ``describe_failure``
records the handler, exception and source line of a failed call.
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
"""Maximum number of stored characters of an error text."""

NO_RAISED = Frame(
    {
        "row": np.empty(0, dtype=np.int64),
        **{name: repeat_text("", 0) for name in ("handler", "error", "file")},
        "line": np.empty(0, dtype=np.uint32),
    },
    0,
)
"""Handler calls that raised, with input row, handler, error, and program file and line."""


@dataclass(frozen=True)
class HandlerError:
    """A handler call that raised.

    Attributes:
        row: Row of the input.
        handler: Name of the method.
        error: The exception.
        file: File of the program's class.
        line: Innermost line in that file; the handler's first line for a wrong return value.
    """

    row: int
    handler: str
    error: BaseException
    file: str
    line: int


def describe_failure(row: int, handler: Callable[..., Any], error: BaseException) -> HandlerError:
    """Describe an exception of a handler.

    Args:
        row: Row of the input.
        handler: The method.
        error: The exception.
    """
    code = handler.__code__ if inspect.isfunction(handler) else getattr(handler, "__func__", handler).__code__
    file, line = code.co_filename, code.co_firstlineno
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return HandlerError(row, handler.__name__, error, file, line)


def failure_rows(found: Sequence[HandlerError]) -> Frame:
    """Convert handler errors to rows as in ``NO_RAISED``."""
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
    """Return the reject text for an exception of a handler."""
    try:
        text = f"{type(error).__name__}: {error}"
    except KeyboardInterrupt:
        raise
    except BaseException:  # the exception's own __str__ may raise
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
"""Numeric columns of an output message; ``method`` and ``payload`` follow.

``row``: the input that produced it. ``late``: 1 for the answer to an earlier request; ``asked``: the amount attached to
that request before the handler.
"""

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
"""Failed inputs without an answer: ``row`` of the input and ``text`` of the failure."""


@dataclass(frozen=True)
class ClassOutcome:
    """The outcome of a program class in a round.

    Attributes:
        outputs: Output messages by (row, emission).
        failures: Failed inputs without an answer (``NO_FAILURES``).
        accounts: Accounts after the round.
        state: States after the round.
        raised: All handler calls that raised.
        certified: Certified data in the order of setting (``CERTIFIED_DATA_SCHEMA``).
        accepted: Acceptances from requests that stay open (``ACCEPTED_SCHEMA``); ``row`` refers to the whole round's
            inputs.
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
    """Build the responses to requests.

    Args:
        inputs: Input messages.
        rows: Rows of the requests.
        code: Reject code or codes; 0 for data.
        payload: Payloads, a bytes column.
        refund: High and low words of the refunds; None: the full amounts.
    """
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
    """Return the late-answer columns (``ASKED_COLUMNS``) of other messages."""
    return {name: repeat_value(kind(0), length) for name, kind in OUTPUT_FIELDS if name in ASKED_COLUMNS}


def from_records(records: list[Mapping[str, Any]]) -> Frame:
    """Build outputs from one mapping a message, with ``amount`` and ``asked`` as single numbers."""
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
    """Merge outputs by input row; parts of one row keep the order of ``parts``."""
    full = [part.select(OUTPUT_COLUMNS) for part in parts if len(part)]
    if not full:
        return NO_OUTPUTS
    joined = concat(full)
    if len(full) == 1:
        return joined
    return joined.take(stable_order(joined["row"].view(np.uint64)))


def failure_frame(rows: list[int], texts: list[str]) -> Frame:
    """Build a frame of failures (``NO_FAILURES``)."""
    if not rows:
        return NO_FAILURES
    return Frame({"row": np.array(rows, dtype=np.int64), "text": pa.array(texts, pa.string())})


COMING, GOING, TAKEN = 0, 1, 2
"""Order of movements for an input: a response's refund, calls, acceptances."""

BALANCE = ("balance_over", "balance_high", "balance_low")
"""Words of a balance, most significant first; the first is 0 except after refunds."""

SMALL = 2**62
"""Below this bound, sums of all movements fit a signed word."""


def balance_words(balance: int) -> tuple[int, int, int]:
    """Return the words of a balance (``BALANCE``)."""
    return balance // WORD**2, balance // WORD % WORD, balance % WORD


def balance_from_words(over: Any, high: Any, low: Any) -> int:
    """Return the balance of three words (``BALANCE``).

    Args:
        over: Bits from 128 on.
        high: Bits 64 to 127.
        low: Bits 0 to 63.
    """
    return (int(over) * WORD + int(high)) * WORD + int(low)


def settle(accounts: Frame, inputs: Frame, answers: Frame | None, calls: Frame | None) -> Frame:
    """Apply refunds, calls and acceptances to accounts, in order of the inputs.

    A refund always succeeds; the part beyond 128 bits goes to ``balance_over``.

    Args:
        accounts: Accounts of the programs.
        inputs: Messages; those of an instance are adjacent and in order.
        answers: Answers by row of the inputs; None: none.
        calls: Calls by row of the inputs; None: none.

    Returns:
        The new accounts.

    Raises:
        InsufficientFunds: A call attaches more than the balance at that point.
        BalanceOverflow: An acceptance would raise a balance above 2**128 - 1.
    """
    response = np.flatnonzero(inputs["kind"] == Kind.RESPONSE)
    parts = [_movements_of(response, inputs.select(["amount_high", "amount_low"]).take(response), "amount", COMING)]
    if calls is not None and "amount_low" in calls:
        parts.append(_movements_of(calls["row"], calls, "amount", GOING))
    if answers is not None and "accepted_low" in answers:
        parts.append(_movements_of(answers["row"], answers, "accepted", TAKEN))
    rows, step, high, low = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if len(rows) == 0:
        return accounts
    order = stable_order(rows.astype(np.uint64), step)
    account = np.searchsorted(accounts["program"], inputs["receiver"][rows[order]])
    return _apply_movements(accounts, account, step[order], high[order], low[order])


def _movements_of(rows: Rows, frame: Frame, prefix: str, step: int) -> tuple[Rows, npt.NDArray[np.uint8], U64, U64]:
    """Return row, step, and the two words of each nonzero movement."""
    high, low = frame[f"{prefix}_high"], frame[f"{prefix}_low"]
    some = np.flatnonzero((high > 0) | (low > 0))
    return rows[some], np.full(len(some), step, dtype=np.uint8), high[some], low[some]


def _apply_movements(accounts: Frame, account: Rows, step: npt.NDArray[np.uint8], high: U64, low: U64) -> Frame:
    """Apply movements to accounts; those of one account are adjacent and in order."""
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
    for position, start, count in zip(first.tolist(), groups.starts.tolist(), groups.counts.tolist(), strict=True):
        current = balance_from_words(over_after[position], high_after[position], low_after[position])
        for row in range(start, start + count):
            amount = int(high[row]) * WORD + int(low[row])
            if going[row] and amount > current:
                raise InsufficientFunds(f"balance {current}, attached {amount}")
            if step[row] == TAKEN and current + amount > MAX_BALANCE:
                raise BalanceOverflow(f"balance {current}, accepted {amount}, at most 2**128 - 1")
            current += -amount if going[row] else amount
        over_after[position], high_after[position], low_after[position] = balance_words(current)
    return accounts.with_columns(balance_over=over_after, balance_high=high_after, balance_low=low_after)
