"""A comparison as a whole: the same traffic, a column a protocol, what each guarantees, and what faults do to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from causeway.comparing.column import Column
from causeway.comparing.ingress import difference
from causeway.protocols.semantics import TOPICS


@dataclass(frozen=True)
class Comparison:
    """The columns of one scenario. ``guarantees``: of each protocol (``column.guarantees_of``); ``faults``: as of
    ``faults.try_faults``, None where none were tried; ``tried``: on which scenario; ``seconds_per_tick``: of all."""

    scenario: str
    seconds_per_tick: float
    columns: Sequence[Column]
    guarantees: Mapping[str, Sequence[Mapping[str, str | None]]]
    faults: Mapping[str, Any] | None = None
    tried: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Return whether every column and trial ran, and no column violates what its protocol guarantees."""
        tried = (
            [] if self.faults is None else [one for found in self.faults["found"].values() for one in found.values()]
        )
        return not any(one.get("internal_error") for one in tried) and all(
            column.failed is None and column.content["audit"]["verdict"] != "FAILED" for column in self.columns
        )

    def as_json(self) -> dict[str, Any]:
        """Return all of it. What is under ``measured`` is of this machine; the rest is the same on every one."""
        taken = next((column.taken for column in self.columns if column.taken is not None), None)
        ticks = sorted(taken.ticks) if taken is not None else []
        return {
            "scenario": self.scenario,
            "seconds_per_tick": self.seconds_per_tick,
            "protocols": [column.protocol for column in self.columns],
            "traffic": {
                "messages": 0 if taken is None else taken.count,
                "digest": None if taken is None else taken.digest,
                "first_tick": ticks[0] if ticks else None,
                "last_tick": ticks[-1] if ticks else None,
            },
            "columns": {column.protocol: {"failed": column.failed, **column.content} for column in self.columns},
            "topics": dict(TOPICS),
            "guarantees": {name: [dict(one) for one in said] for name, said in self.guarantees.items()},
            "faults": None if self.faults is None else {**self.faults, "scenario": self.tried},
            "holds": self.holds,
            "measured": {
                "machine": dict(self.about),
                "columns": {column.protocol: asdict(column.measured) for column in self.columns},
            },
        }


def same_ingress(columns: Sequence[Column]) -> list[Column]:
    """Return the columns; one that took in other messages of users than the first one has failed."""
    first = next((column.taken for column in columns if column.taken is not None), None)
    found = []
    for column in columns:
        reason = None if first is None or column.taken is None else difference(first, column.taken)
        found.append(column if reason is None else Column(column.protocol, reason))
    return found
