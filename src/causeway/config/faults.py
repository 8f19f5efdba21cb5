"""What goes wrong on purpose in a network: the faults of a scenario as one table."""

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
"""One row a fault. ``kind``: what goes wrong, of those that the protocol declares. ``source``: number of the chain that
it is about, or of the one whose messages it is about (null: any); ``destination``: of the one they go to (null: any).
``from``, ``until``: the ticks in which it acts, both included. ``args``: a JSON object of what else the kind needs."""

FOR_EVER = 2**63
"""A fault whose last tick is at or past this has no end."""


@dataclass(frozen=True)
class FaultRule:
    """One fault, as in ``FAULTS_SCHEMA``."""

    kind: str
    source: int | None = None
    destination: int | None = None
    first: int = 0
    last: int = FOR_EVER
    args: Mapping[str, Any] = field(default_factory=dict)

    def is_active(self, tick: int) -> bool:
        """Return whether it acts at ``tick``."""
        return self.first <= tick <= self.last


@dataclass(frozen=True)
class Faults:
    """All faults of a scenario, in its order, chains as numbers. ``skip``: the probability that a destination takes
    nothing from one source at one tick (a slow carrier)."""

    table: pa.Table = field(default_factory=FAULTS_SCHEMA.empty_table)
    skip: float = 0.0

    @classmethod
    def of(cls, *faults: FaultRule, skip: float = 0.0) -> Faults:
        """Return the faults as a table."""
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
        """Return the faults one by one."""
        return [
            FaultRule(
                row["kind"], row["source"], row["destination"], row["from"], row["until"], json.loads(row["args"])
            )
            for row in self.table.to_pylist()
        ]
