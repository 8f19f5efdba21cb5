"""What a commit of recorded traffic has to know of earlier ones: a small table of the ledger, ``state``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from causeway.ingest.links import End
from causeway.ledger.restarts import HeightBounds
from causeway.pipeline.ledger_commits import STATE_SCHEMA


@dataclass(frozen=True)
class State:
    """What later commits have to know of earlier ones: the earliest and the latest block of each chain, and the chains
    at the other ends of lanes."""

    bounds: HeightBounds = field(default_factory=HeightBounds)
    counterparties: Mapping[End, str | None] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """Return it as rows (``STATE_SCHEMA``)."""
        rows: list[tuple[Any, ...]] = []
        for what, blocks in (("first_block", self.bounds.first), ("last_block", self.bounds.last)):
            rows += [(what, chain, *blocks[chain], None) for chain in sorted(blocks)]
        ends = {json.dumps(end): chain for end, chain in self.counterparties.items()}
        rows += [("counterparty", end, None, None, ends[end]) for end in sorted(ends)]
        return pa.table([[row[at] for row in rows] for at in range(len(STATE_SCHEMA))], schema=STATE_SCHEMA)

    @classmethod
    def of(cls, table: pa.Table) -> State:
        """Return what rows say."""
        blocks: dict[str, dict[str, tuple[int, int]]] = {"first_block": {}, "last_block": {}}
        counterparties: dict[End, str | None] = {}
        for row in table.to_pylist():
            if row["what"] == "counterparty":
                protocol, role, chain, lane = json.loads(row["key"])
                counterparties[protocol, role, chain, lane] = row["value"]
            else:
                blocks[row["what"]][row["key"]] = row["time"], row["height"]
        return cls(HeightBounds(blocks["first_block"], blocks["last_block"]), counterparties)


__all__ = ["State"]
