"""Headers and watermarks of a lake that Causeway ran, as rows of a ledger.

What is stated is what the chains have after the last height that is taken. A ledger to which further heights are added
may have stated more: then rows say what a fork took back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.ingest.run_chains import MARKS_SCHEMA, header_rows, log_watermarks, marks, watermark_rows
from causeway.ingest.run_names import RunNames
from causeway.ledger.schema import DECLARED, HEADER, STATED_BY
from causeway.model.document import validated
from causeway.model.errors import InvalidInput
from causeway.model.frame import Frame
from causeway.model.joins import codes
from causeway.model.ledger import REVERTED
from causeway.model.order import groups_of
from causeway.pipeline.descent import COLUMNS, Bools, Descent, by_chain
from causeway.pipeline.lake import Lake
from causeway.pipeline.lake_logs import LakeLogs
from causeway.pipeline.layout import LAKE_FILE
from causeway.pipeline.manifests import Manifest
from causeway.pipeline.reverted import Reverted, reverted
from causeway.protocols.registry import protocol
from causeway.protocols.semantics import Lanes, StateWatermark

RANGE_ROWS = 1 << 18
"""Log rows that are read at a time, about."""

FEW_ROWS = 1 << 10
"""Headers that are read first of heights that were taken before; then twice as many, and so on."""

MOST_BREAKS = 16
"""So many headers of a chain may name a parent that there is not: what is below one of them is a chain of its own."""

MOST_CHANGES = 1 << 20
"""So many headers that were stated before may change at once."""

EVERY_COMMIT, EVERY = 64, 32
"""State tables are read at the first so many commits, and then at every so many."""

LANE_COLUMNS = ("source", "destination", "substream", "height", "tick")


@dataclass
class LakeChains:
    """Derives what the chains of a lake state. ``top``: after ``headers``, the number of the last header of chains."""

    logs: LakeLogs
    names: RunNames
    top: dict[str, int] = field(default_factory=dict)
    _promising: dict[tuple[str, int, bool], bool] = field(default_factory=dict)

    def headers(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the headers that chains have after the height ``end`` - 1 (``HEADERS_SCHEMA``), of those that they made
        at heights from ``first`` on, and before what has changed of them since.

        Raises ``LakeDamaged``.
        """
        now = Descent(dict.fromkeys(range(len(self.names.chains)), end - 1), self._back(end))
        yield from self._stated(now, first, end)
        broken = now.broken()
        if first:
            changes, broken = self._changes(now, first, end)
            yield from changes
        for _ in range(MOST_BREAKS if not first else 1):
            if not broken:
                break
            below = Descent(broken, now.back)
            yield from self._stated(below, first, max(broken.values()) + 1)
            broken = below.broken()
        self.top |= {self.names.chains[chain]: number for chain, number in now.top.items()}

    def watermarks(self, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the watermarks that chains have after the height ``end`` - 1 (``WATERMARKS_SCHEMA``), of the heights
        from ``first`` on, and which earlier ones forks have taken back since.

        Raises ``LakeDamaged``.
        """
        back = self._back(end)
        for heights in self.logs.ranges(first, end, RANGE_ROWS, ("outbound", "collected")):
            found = self._marks(heights)
            yield watermark_rows(found if back is None else found.filter(pa.array(~_hits(back, found))), self.names)
        before = self._back(first) if first else None
        if back is None or not first:
            return
        # Forks that came since took back heights from this one on.
        rows = self.logs.read(REVERTED, range(first, end), ("first",))
        low = min(rows["first"].to_pylist(), default=first)
        for heights in self.logs.ranges(low, first, RANGE_ROWS, ("outbound", "collected")):
            found = self._marks(heights)
            gone = _hits(back, found) & ~_hits(before, found)
            if gone.any():
                yield watermark_rows(found.filter(pa.array(gone)), self.names, self.logs.tick(end - 1))

    def windows(self, stated: pa.Table) -> list[dict[str, Any]]:
        """Return, after ``headers``, the windows of the headers of all chains, for the table of windows; ``stated``:
        the one before."""
        top = {
            row["chain"]: row["last_height"]
            for row in stated.to_pylist()
            if row["events"] == [HEADER] and row["stated_by"] == STATED_BY
        } | self.top
        rest = {"events": [HEADER], "how": DECLARED, "stated_by": STATED_BY, "first_height": 0}
        return [{**rest, "chain": chain, "last_height": top[chain]} for chain in self.names.chains if chain in top]

    # ---- headers

    def _stated(self, descent: Descent, first: int, end: int) -> Iterator[pa.Table]:
        """Yield the headers of the heights from ``first`` to ``end`` - 1 that a descent finds."""
        for heights in self._down(end, first, RANGE_ROWS):
            rows = self._headers(heights)
            found = descent.take(rows)
            if found.any():
                yield header_rows(rows.filter(pa.array(found)), self.names)

    def _changes(self, now: Descent, first: int, end: int) -> tuple[list[pa.Table], dict[int, int]]:
        """Return what is to be stated of headers below ``first``, and of chains that are not what they were, without a
        fork, the height below which their new headers are a chain of its own."""
        before = Descent(dict.fromkeys(now.since, first - 1), self._back(first))
        tick, stop, size, count = self.logs.tick(end - 1), first, FEW_ROWS, 0
        changes: list[tuple[pa.Table, Bools, bool]] = []
        while stop > 0 and count < MOST_CHANGES:
            heights = next(self._down(stop, 0, size))
            rows = self._headers(heights)
            has, had = now.take(rows), before.take(rows)
            for which, back in ((had & ~has, True), (has & ~had, False)):
                if which.any():
                    changes.append((rows, which, back))
                    count += int(which.sum())
            if now.agrees(before):
                break
            stop, size = heights.start, min(2 * size, RANGE_ROWS)
        lost = {chain for chain in now.since if now.wanted.get(chain) != before.wanted.get(chain)}
        tables = []
        for rows, which, back in changes:
            chosen = which & ~np.isin(rows["chain"].to_numpy(), list(lost))
            tables.append(header_rows(rows.filter(pa.array(chosen)), self.names, tick if back else None))
        broken = {chain: now.lowest[chain] - 1 for chain in lost if now.lowest.get(chain, 0) > first}
        return tables, broken

    def _headers(self, heights: range) -> pa.Table:
        """Return the log of headers ``by_chain``, each with its place among those of its chain and height."""
        rows = by_chain(self.logs.read("headers", heights, COLUMNS))
        groups = groups_of(rows["chain"].to_numpy(), rows["height"].to_numpy())
        return rows.append_column("row", pa.array((groups.ranks() + 1).astype(np.uint64)))

    def _down(self, end: int, first: int, rows: int) -> Iterator[range]:
        """Yield the heights from ``first`` to ``end`` - 1 in ranges, from the last to the first."""
        for heights in self.logs.ranges_back(end, rows, ["headers"]):
            yield range(max(heights.start, first), heights.stop)
            if heights.start <= first:
                return

    def _back(self, end: int) -> Reverted | None:
        """Return what forks took back at the heights below ``end``."""
        lake = self.logs.lake
        return reverted(lake, lake.manifest(end - 1), end - 1)

    # ---- watermarks

    def _marks(self, heights: range) -> pa.Table:
        """Return the watermarks of a range of heights (``MARKS_SCHEMA``)."""
        outbound = self.logs.read("outbound", heights, (*LANE_COLUMNS, "index"))
        collected = self.logs.read("collected", heights, (*LANE_COLUMNS, "chain", "what", "begin", "end"))
        # The index of an IBC receipt is that of its packet, and receipts are written in any order.
        outbound, collected = self._of_lanes(outbound, "numbered"), self._of_lanes(collected, "ordered_receives")
        return pa.concat_tables([log_watermarks(outbound, collected), *self._of_states(heights)]).unify_dictionaries()

    def _of_lanes(self, rows: pa.Table, promise: str) -> pa.Table:
        """Return the rows of lanes that have a promise."""
        own = rows["source"].to_numpy() == rows["destination"].to_numpy()
        lanes = np.stack((rows["substream"].to_numpy(), own.astype(np.uint64)), axis=1)
        distinct, at = np.unique(lanes, axis=0, return_inverse=True)
        promising = [self._promises(promise, substream, bool(own)) for substream, own in distinct.tolist()]
        return rows.filter(pa.array(np.array(promising, dtype=bool)[at.reshape(-1)]))

    def _promises(self, promise: str, substream: int, own: bool) -> bool:
        key = promise, substream, own
        if key not in self._promising:
            promised = protocol(self.names.protocol).load_semantics().promises
            lanes = lanes_of(self.logs.lake, self.names, [(substream, own)])
            self._promising[key] = promised is not None and any(
                each.promise == promise and (each.substream is None or each.own == own) for each in promised(lanes)
            )
        return self._promising[key]

    def _of_states(self, heights: range) -> Iterator[pa.Table]:
        """Yield the watermarks in state tables at the ends of commits, where they are not those of the commit before
        that was looked at."""
        for commit in self.logs.lake.commits(heights):
            manifest = commit.at(commit.last)
            if manifest.last not in heights or not _looked_at(manifest.number):
                continue
            earlier = self._looked_at_before(manifest.number)
            for declared in self._declared:
                now = self._of_state(manifest, declared)
                if earlier is not None:
                    now = _without(now, self._of_state(earlier, declared))
                if now.num_rows:
                    yield now

    def _looked_at_before(self, number: int) -> Manifest | None:
        before = next((each for each in range(number - 1, -1, -1) if _looked_at(each)), None)
        return None if before is None else self.logs.lake.numbered(before)

    def _of_state(self, manifest: Manifest, declared: StateWatermark) -> pa.Table:
        lake, at = self.logs.lake, declared
        if lake.freed(manifest.last) is not None:
            return MARKS_SCHEMA.empty_table()
        named = [at.chain, at.source, at.destination, at.value, *([at.substream] if at.substream else [])]
        parts = lake.state(manifest, at.table, list(dict.fromkeys(named)))
        if not parts:
            return MARKS_SCHEMA.empty_table()
        rows = pa.concat_tables(parts)
        count = rows.num_rows
        lane = {"chain": at.chain, "source": at.source, "destination": at.destination, "value": at.value}
        columns = {name: rows[column].to_numpy() for name, column in lane.items()}
        columns["substream"] = rows[at.substream].to_numpy() if at.substream else np.zeros(count, dtype=np.uint64)
        stamps = {"height": manifest.last, "tick": manifest.tick}
        columns |= {name: np.full(count, value, dtype=np.uint64) for name, value in stamps.items()}
        return marks(at.name, **columns)

    @cached_property
    def _declared(self) -> Sequence[StateWatermark]:
        """Return the numbers in state tables of this lake that never fall."""
        about = self.logs.lake.about()
        tables = {table["name"] for table in about["tables"]["state"]}
        return [each for each in protocol(about["protocol"]).load_semantics().watermarks if each.table in tables]


def protocol_options(lake: Lake, about: Mapping[str, Any]) -> Any:
    """Return the options of a lake's protocol, as the protocol declares them. Raises ``LakeDamaged``."""
    model = protocol(about["protocol"]).load_options()
    try:
        return validated(model, about["scenario"]["options"], "is not what was written", ("scenario", "options"))
    except InvalidInput as error:
        raise lake.damaged(LAKE_FILE, str(error)) from None


def lanes_of(lake: Lake, names: RunNames, substreams: Iterable[tuple[int, bool]]) -> Lanes[Any]:
    """Return the lanes of a lake's network that use some substreams, as its protocol says what they promise."""
    about = lake.about()
    options = protocol_options(lake, about)
    roles = {item["name"]: item["role"] for item in about["chains"] if item.get("role")}
    return Lanes(options, names.chains, roles, names.tick_micros, tuple(sorted(substreams)))


def _looked_at(number: int) -> bool:
    return number < EVERY_COMMIT or number % EVERY == 0


def _hits(back: Reverted | None, found: pa.Table) -> Bools:
    if back is None:
        return np.zeros(found.num_rows, dtype=bool)
    return back.hits(found, "chain")


def _without(now: pa.Table, before: pa.Table) -> pa.Table:
    """Return the watermarks of one name that are not the same in a table before."""
    keys = ("chain", "source", "destination", "substream", "value")
    frames = [Frame({key: table[key].to_numpy() for key in keys}, table.num_rows) for table in (now, before)]
    own, known = codes(keys, *frames)
    return now.filter(pa.array(~np.isin(own, known)))


__all__ = ["LakeChains", "lanes_of"]
