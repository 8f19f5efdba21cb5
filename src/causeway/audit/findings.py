"""The table of findings."""

from __future__ import annotations

import pyarrow as pa

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
        pa.field("magnitude", pa.float64()),
        pa.field("unit", pa.string()),
        pa.field("stated_by", pa.string()),
        pa.field("source_file", pa.string()),
        pa.field("source_row", pa.uint64()),
        pa.field("example", pa.string(), nullable=False),
    ]
)
"""One row a finding: what a check names, with its ``verdict`` (``violated`` or ``unknown``) and ``reason``.

``index``: of the message, or of the first that is missing. From ``event`` to ``transaction``: the row that is named,
null where the finding is about a message or a run of them. ``magnitude``: how bad it is, in ``unit``
(``microseconds``, ``messages``, ``units`` of an asset, rounded); null: it has none. From ``stated_by`` on: where the
row stands in the input. ``example``: ``first`` of its lane and reason, ``worst``, or ``both``."""


def as_findings(content: dict[str, pa.Array] | None) -> pa.Table:
    """Return columns as a table of findings, without ``example``; None: an empty one."""
    schema = VIOLATIONS_SCHEMA.remove(len(VIOLATIONS_SCHEMA) - 1)
    if content is None:
        return schema.empty_table()
    return pa.table([content[name].cast(kind) for name, kind in zip(schema.names, schema.types, strict=True)], schema)


__all__ = ["VIOLATIONS_SCHEMA", "as_findings"]
