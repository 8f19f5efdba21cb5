"""Deadlines and clock tolerances that a user states for an audit, beside what the ledger promises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from causeway.ledger.schema import (
    ANSWERED_WITHIN,
    CLOCK_TOLERANCE,
    EXPECTED_WITHIN,
    PROMISES_SCHEMA,
    RECEIVED_WITHIN,
)
from causeway.model.durations import seconds_of
from causeway.model.errors import InvalidInput

DEADLINES = (RECEIVED_WITHIN, ANSWERED_WITHIN)
"""What a deadline may be about."""

NONE = "none"
USER = "user"
"""Who states what a user asks for."""

_MOST_SECONDS = 9_000_000_000_000


@dataclass(frozen=True)
class Terms:
    """What a user states for an audit.

    Attributes:
        deadlines: microseconds within which each of ``DEADLINES`` happens in every lane, None: no deadline. They take
            the place of those that the ledger has.
        tolerances: microseconds by which the clock of each chain may be wrong, None: of every chain.
    """

    deadlines: Mapping[str, int | None] = field(default_factory=dict)
    tolerances: Mapping[str | None, int] = field(default_factory=dict)

    @classmethod
    def of(cls, deadlines: Iterable[str] = (), tolerances: Iterable[str] = ()) -> Terms:
        """Read terms as a user writes them: ``received=1h``, ``answered=none``; ``2s``, ``CHAIN=500ms``.

        Raises:
            InvalidInput: one is malformed.
        """
        limits: dict[str, int | None] = {}
        for text in deadlines:
            name, sign, time = text.partition("=")
            if not sign or name not in DEADLINES:
                raise InvalidInput(f"deadline {text!r}: must be EVENT=TIME (allowed events: {', '.join(DEADLINES)})")
            limits[name] = None if time == NONE else _microseconds(f"deadline {text!r}", time)
        clocks: dict[str | None, int] = {}
        for text in tolerances:
            chain, sign, time = text.rpartition("=")
            clocks[chain if sign else None] = _microseconds(f"tolerance {text!r}", time)
        return cls(limits, clocks)

    def applied(self, promises: pa.Table) -> pa.Table:
        """Return what lanes promise (``PROMISES_SCHEMA``) with these terms."""
        if not self.deadlines and not self.tolerances:
            return promises
        rows: list[dict[str, Any]] = []
        for row in promises.to_pylist():
            if row["promise"] in (RECEIVED_WITHIN, EXPECTED_WITHIN) and RECEIVED_WITHIN in self.deadlines:
                continue
            if row["promise"] == ANSWERED_WITHIN and ANSWERED_WITHIN in self.deadlines:
                row = {**row, "number": None}
            rows.append(row)
        stated = dict.fromkeys(PROMISES_SCHEMA.names) | {"stated_by": USER}
        rows += [
            {**stated, "promise": name, "number": limit} for name, limit in self.deadlines.items() if limit is not None
        ]
        rows += [
            {**stated, "source": chain, "promise": CLOCK_TOLERANCE, "number": micros}
            for chain, micros in self.tolerances.items()
        ]
        columns = []
        for each in PROMISES_SCHEMA:
            plain = pa.string() if pa.types.is_dictionary(each.type) else each.type
            columns.append(pa.array([row.get(each.name) for row in rows], plain).cast(each.type))
        return pa.table(columns, schema=PROMISES_SCHEMA)


def _microseconds(what: str, text: str) -> int:
    seconds = seconds_of(text)
    if seconds is None or not 0 <= seconds <= _MOST_SECONDS:
        raise InvalidInput(f"{what}: must be a time such as 90s, 30min, 2h or 1d")
    return round(seconds * 1_000_000)


__all__ = ["DEADLINES", "Terms"]
