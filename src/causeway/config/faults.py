"""Faults of a scenario as one table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

FAULTS_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("source", pa.uint64()),
        pa.field("destination", pa.uint64()),
        pa.field("from", pa.uint64(), nullable=False),
        pa.field("until", pa.uint64(), nullable=False),
        pa.field("args", pa.string(), nullable=False),
    ]
)
"""One row a fault.

``kind``: a kind of the protocol. ``source``: number of the affected chain, or of the chain whose messages are affected
(null: any). ``destination``: receiving chain of those messages (null: any). ``from``, ``until``: first and last tick of
the fault. ``args``: JSON object of further keys of the kind.
"""

FOR_EVER = 2**63
"""Last tick of a fault without end."""


@dataclass(frozen=True)
class FaultRule:
    """A fault, as in ``FAULTS_SCHEMA``."""

    kind: str
    source: int | None = None
    destination: int | None = None
    first: int = 0
    last: int = FOR_EVER
    args: Mapping[str, Any] = field(default_factory=dict)

    def is_active(self, tick: int) -> bool:
        """Return True if the fault is in effect at a tick."""
        return self.first <= tick <= self.last


@dataclass(frozen=True)
class Faults:
    """All faults of a scenario, in order, with chain numbers.

    Attributes:
        table: Rows of ``FAULTS_SCHEMA``.
        skip: Probability that a destination fetches nothing from a source at a tick.
    """

    table: pa.Table = field(default_factory=FAULTS_SCHEMA.empty_table)
    skip: float = 0.0

    @classmethod
    def of(cls, *faults: FaultRule, skip: float = 0.0) -> Faults:
        """Create the table of faults."""
        rows = [
            {
                "kind": fault.kind,
                "source": fault.source,
                "destination": fault.destination,
                "from": fault.first,
                "until": fault.last,
                "args": json.dumps(dict(fault.args), sort_keys=True),
            }
            for fault in faults
        ]
        return cls(pa.Table.from_pylist(rows, schema=FAULTS_SCHEMA), skip)

    @cached_property
    def rows(self) -> list[FaultRule]:
        """The faults as objects."""
        return [
            FaultRule(
                row["kind"], row["source"], row["destination"], row["from"], row["until"], json.loads(row["args"])
            )
            for row in self.table.to_pylist()
        ]
