"""What a check names: rows of a run, and the table of findings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Array, Ints
from causeway.audit.verdict import NOTED, UNKNOWN, VIOLATED
from causeway.ledger.schema import LANE

VIOLATIONS_SCHEMA = pa.schema(
    [
        pa.field("check", pa.string(), nullable=False),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        *(pa.field(name, pa.string()) for name in LANE),
        pa.field("index", pa.uint64()),
        pa.field("message_id", pa.string()),
        pa.field("event", pa.string()),
        pa.field("chain", pa.string()),
        pa.field("height", pa.uint64()),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("transaction", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("magnitude", pa.float64()),
        pa.field("size", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("stated_by", pa.string()),
        pa.field("source_file", pa.string()),
        pa.field("source_row", pa.uint64()),
        pa.field("example", pa.string(), nullable=False),
    ]
)
"""One row a finding: what a check names, with its ``verdict`` (``VIOLATED``, ``UNKNOWN``, ``NOTED``) and ``reason``.

``index``: of the message, or of the first that is missing. From ``event`` to ``detail``: the row that is named,
null where the finding is about a message or a run of them. ``magnitude``: how bad it is, in ``unit``
(``microseconds``, ``messages``, ``units`` of an asset), rounded to a float; null: it has none; ``size``: the same as
decimal digits, where all of them are known. From ``stated_by`` on: where the
row stands in the input. ``example``: ``first`` of its lane and reason, ``worst``, or ``both``."""


def as_findings(content: dict[str, pa.Array] | None) -> pa.Table:
    """Return columns as a table of findings, without ``example``; None: an empty one."""
    schema = VIOLATIONS_SCHEMA.remove(len(VIOLATIONS_SCHEMA) - 1)
    if content is None:
        return schema.empty_table()
    for name in ("size", "detail"):
        if name not in content:
            content = {**content, name: pa.nulls(len(content["check"]), pa.string())}
    return pa.table([content[name].cast(kind) for name, kind in zip(schema.names, schema.types, strict=True)], schema)


def sized(magnitude: Array) -> dict[str, pa.Array]:
    """Return how bad findings are as columns: of whole numbers all digits, too; NaN: not known."""
    size = magnitude.astype(np.float64)
    whole = np.issubdtype(magnitude.dtype, np.integer)
    exact = pa.array(magnitude).cast(pa.string()) if whole else pa.nulls(len(size), pa.string())
    return {"magnitude": pa.array(size, mask=np.isnan(size)), "size": exact}


class Finding(NamedTuple):
    """Rows that a check names for one reason. ``from_index``: that of the first missing message instead of the row's
    own; ``magnitude``: how bad each is, whole numbers where all digits are known, NaN: not known; ``placed``: whether
    it is about the row itself, and not only about its message."""

    check: str
    verdict: str
    reason: str
    rows: Ints
    magnitude: Array | None = None
    unit: str | None = None
    from_index: Array | None = None
    placed: bool = True


class Checked(NamedTuple):
    """One check on one bucket: of how many messages each lane's were examined, and what was found."""

    check: str
    examined: Ints
    found: list[Finding]


__all__ = ["NOTED", "UNKNOWN", "VIOLATED", "VIOLATIONS_SCHEMA", "Checked", "Finding", "as_findings", "sized"]
