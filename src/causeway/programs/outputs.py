"""What programs produce, as message columns: answers and calls in the order of production."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, repeated, repeated_text
from causeway.model.ledger import Kind
from causeway.model.order import stable_order
from causeway.programs.failing import Raised
from causeway.protocols.execution import ACCEPTED_SCHEMA, CERTIFIED_DATA_SCHEMA

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
        "method": repeated_text("", 0),
        "payload": pa.array([], pa.binary()),
    },
    0,
)

NO_FAILURES = Frame({"row": np.empty(0, dtype=np.int64), "text": pa.array([], pa.string())}, 0)
"""``row`` of the input whose handler raised, and ``text``: why; inputs that have an answer are not among them."""


@dataclass(frozen=True)
class Outcome:
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
    raised: tuple[Raised, ...] = ()
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
            "kind": repeated(np.uint8(Kind.RESPONSE), length),
            "sender": asked["receiver"],
            "receiver": asked["sender"],
            "callback": asked["callback"],
            "amount_high": high,
            "amount_low": low,
            "code": code if isinstance(code, np.ndarray) else repeated(np.uint8(code), length),
            "deadline": asked["deadline"],
            "method": repeated_text("", length),
            "payload": payload,
            **at_once(length),
        },
        length,
    )


def at_once(length: int) -> dict[str, np.ndarray]:
    """Return the columns of messages that are no late answers (``ASKED_COLUMNS``)."""
    return {name: repeated(kind(0), length) for name, kind in OUTPUT_FIELDS if name in ASKED_COLUMNS}


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


def by_production(parts: list[Frame]) -> Frame:
    """Return outputs of several kinds in order of their input's row, for one row in the order of ``parts``."""
    full = [part.select(OUTPUT_COLUMNS) for part in parts if len(part)]
    if not full:
        return NO_OUTPUTS
    joined = concat(full)
    if len(full) == 1:
        return joined
    return joined.take(stable_order(joined["row"].view(np.uint64)))


def failures(rows: list[int], texts: list[str]) -> Frame:
    """Return a frame of failures."""
    if not rows:
        return NO_FAILURES
    return Frame({"row": np.array(rows, dtype=np.int64), "text": pa.array(texts, pa.string())})
