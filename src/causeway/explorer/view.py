"""The data of pages: the last look at a ledger, and the tables that several pages derive from it, once a look."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.explorer.addresses import Lane
from causeway.explorer.live import Snapshot
from causeway.explorer.pairs import Pairs
from causeway.explorer.reading import last_header, of_lane
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.network.opened import OpenedLake
from causeway.pipeline.layout import LakeError
from causeway.report.checked import findings_of_lanes
from causeway.report.summary import summary_data


class View:
    """A look at a ledger. ``opened``: the lake that it is of, None where it is a ledger."""

    def __init__(self, snapshot: Snapshot, opened: OpenedLake | None) -> None:
        self.snapshot, self.opened = snapshot, opened
        self.ledger, self.audit, self.figures = snapshot.ledger, snapshot.audit, snapshot.figures

    @property
    def verdict(self) -> str:
        """Return the verdict of the audit."""
        return self.audit.verdict.value

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Return the verdict, the checks and the key figures, as the report has them."""
        return summary_data(self.audit, self.figures, self.ledger.quarantined())

    @property
    def unit(self) -> str:
        """Return the unit of delays: ``ticks`` or ``seconds``."""
        return self.figures.totals.get("unit") or "seconds"

    @cached_property
    def violated(self) -> Mapping[tuple[str | None, ...], int]:
        """Return the number of violations of each lane."""
        return {lane: violated for lane, (violated, _) in findings_of_lanes(self.audit).items() if violated}

    @cached_property
    def lanes(self) -> pa.Table:
        """Return the figures of all lanes, without those of what never came into one; ``violated`` beside them."""
        found = self.figures.lanes
        seen = None
        for name in LANE[1:]:
            own = pc.is_valid(found[name])
            seen = own if seen is None else pc.or_(seen, own)
        found = found.filter(seen)
        counts = [0] * found.num_rows
        if self.violated:
            rows = {
                lane: place for place, lane in enumerate(zip(*(found[name].to_pylist() for name in LANE), strict=True))
            }
            for lane, count in self.violated.items():
                if lane in rows:
                    counts[rows[lane]] = count
        return found.append_column("violated", pa.array(counts, pa.int64()))

    def lane(self, lane: Lane) -> dict[str, Any] | None:
        """Return the figures of a lane, None where there is none."""
        found = plain_rows(of_lane(self.lanes, lane))
        return found[0] if found else None

    def of_pair(self, source: str | None, destination: str | None) -> list[dict[str, Any]]:
        """Return the figures of the lanes between two chains; None: not seen."""
        found = self.lanes
        for name, value in (("source", source), ("destination", destination)):
            column = found[name]
            found = found.filter(pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False))
        return plain_rows(found)

    @cached_property
    def pairs(self) -> Pairs:
        """Return the lanes by the chains between which they are."""
        return Pairs(self.lanes)

    @cached_property
    def chains(self) -> list[str]:
        """Return the names of all chains: those of the lake in its order, then others that the ledger names."""
        known = [] if self.opened is None else list(self.opened.names)
        seen = {*self.pairs.weights, *self.figures.chains["chain"].to_pylist()} - {None, *known}
        return known + sorted(seen, key=natural)

    @cached_property
    def last_height(self) -> int | None:
        """Return the last height that was read, None where the ledger has no heights."""
        return self.snapshot.height if self.opened is not None else last_header(self.ledger)

    def tick_of(self, height: int) -> int | None:
        """Return the tick of a height of the lake, None where that is not known: of a ledger, or of a lake that cannot
        be read any more."""
        if self.opened is None or self.last_height is None or height > self.last_height:
            return None
        try:
            return self.opened.manifest(height).tick
        except LakeError:
            return None


def natural(text: str) -> list[tuple[int, int, str]]:
    """Order names as people do: numbers in them by their value."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [(1, int(part), "") if place % 2 else (0, 0, part) for place, part in enumerate(parts)]


__all__ = ["View", "natural"]
