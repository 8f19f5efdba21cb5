"""The check ``causal_order``: zones keep the order of causes over all guaranteed lanes.

The first pass counts the causal links of each run (``CausalLinks.summary``). The links of all runs are compared
together (``causal_links.compare_links``). A second pass over runs with misplaced links names their messages.

Reference: IBC reference 1.2, rules C1 to C5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.audit.arrays import Array, Bytes, Ints, Words
from causeway.audit.bucket import BucketMessages
from causeway.audit.causal_links import ACKNOWLEDGEMENTS, CYCLE, LINKS_SCHEMA, OVERTAKES, RECEIPTS, LinkComparison
from causeway.audit.checks.lane_order import lane_columns
from causeway.audit.columns import NO_HEIGHT
from causeway.audit.findings import (
    COUNTS_SCHEMA,
    UNKNOWN,
    VIOLATED,
    VIOLATIONS_SCHEMA,
    CheckResult,
    Finding,
    to_findings_table,
)
from causeway.ledger.encodings import NameCodes
from causeway.ledger.schema import CAUSAL, LANE, LedgerEvent

CHECK = "causal_order"

REASONS = {
    (RECEIPTS, CYCLE): "received_in_causal_cycle",
    (ACKNOWLEDGEMENTS, CYCLE): "acknowledged_in_causal_cycle",
    (RECEIPTS, OVERTAKES): "received_out_of_causal_order",
    (ACKNOWLEDGEMENTS, OVERTAKES): "acknowledged_out_of_causal_order",
}


class _Links(NamedTuple):
    """Links of messages of a run, in message order.

    Attributes:
        kind: Kind of each link.
        row: Row of the effect.
        lane: Lane code.
        cause: Chain code of the cause.
        effect: Chain code of the effect.
        causes: Height of the cause.
        effects: Height of the effect.
    """

    kind: Ints
    row: Ints
    lane: Ints
    cause: Ints
    effect: Ints
    causes: Words
    effects: Words

    def of(self, chosen: Array) -> _Links:
        """Return chosen links."""
        kind, row, lane, cause, effect = (column[chosen] for column in self[:5])
        return _Links(kind, row, lane, cause, effect, self.causes[chosen], self.effects[chosen])


class CausalLinks:
    """Causal links of a run's messages in lanes with the guarantee ``causal``."""

    def __init__(self, bucket: BucketMessages) -> None:
        self._bucket = bucket
        self._names = NameCodes(bucket.columns.chains)
        lanes = bucket.promised(CAUSAL)
        self._messages = np.flatnonzero(lanes[bucket.lane]) if lanes.any() else np.zeros(0, np.int64)
        self._examined = np.zeros(len(bucket.lane), bool)
        self._unplaced: list[Ints] = []
        self._restarted: list[Ints] = []
        self._links = self._placed()

    def _placed(self) -> _Links:
        """Return the links with known heights, and record the others."""
        bucket, messages = self._bucket, self._messages
        lane = bucket.lane[messages].astype(np.int64)
        if not len(messages):
            none = np.zeros(0, np.int64)
            return _Links(none, none, none, none, none, none.astype(np.uint64), none.astype(np.uint64))
        events = (LedgerEvent.SENT, LedgerEvent.RECEIVED, LedgerEvent.ACKNOWLEDGED)
        sent, received, acknowledged = (bucket.first(event)[messages] for event in events)
        places = [self._place(rows, lane, end) for rows, end in ((sent, 1), (received, 2), (acknowledged, 1))]
        (begun, begun_at), _, (ended, ended_at) = places
        # The check ``causality`` covers acknowledgements before their sending.
        sound = ~((sent >= 0) & (acknowledged >= 0) & (begun == ended) & (begun_at != NO_HEIGHT))
        sound |= ended_at >= begun_at
        anew = np.array([bucket.known.promises.restarts(name) for name in (*self._names.known(), None)], bool)
        found = []
        for kind, (one, other) in enumerate(((sent, received), (received, acknowledged))):
            (cause, causes), (effect, effects) = places[kind], places[kind + 1]
            linked = (one >= 0) & (other >= 0) & ((cause != effect) | (cause < 0))
            self._examined[messages[linked]] = True
            unplaced = (cause < 0) | (effect < 0) | (causes == NO_HEIGHT) | (effects == NO_HEIGHT)
            restarted = anew[cause] | anew[effect]
            self._unplaced.append(other[linked & unplaced].astype(np.int64))
            self._restarted.append(other[linked & ~unplaced & restarted].astype(np.int64))
            chosen = np.flatnonzero(linked & ~unplaced & ~restarted & sound)
            links = _Links(np.full(len(lane), kind), other.astype(np.int64), lane, cause, effect, causes, effects)
            found.append(links.of(chosen))
        return _Links(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _place(self, rows: Array, lane: Ints, end: int) -> tuple[Ints, Words]:
        """Return the chain of rows, by default that of their lane end, and their heights."""
        columns = self._bucket.columns
        ends = np.array([self._names.code(own[end]) for own in columns.lanes], np.int64)
        chain = columns.chain[rows].astype(np.int64)
        return np.where(chain < 0, ends[lane], chain), columns.height[rows]

    def check(self) -> CheckResult:
        """Return the findings; misplaced links are known in a second pass only."""
        bucket = self._bucket
        found = [
            *(Finding(CHECK, UNKNOWN, "place_unseen", rows) for rows in self._unplaced),
            *(Finding(CHECK, UNKNOWN, "heights_restarted", rows) for rows in self._restarted),
        ]
        if bucket.known.misplaced:
            why = self._misplaced()
            for (kind, each), reason in REASONS.items():
                rows = self._links.row[(self._links.kind == kind) & (why == each)]
                found.append(Finding(CHECK, VIOLATED, reason, rows))
        return CheckResult(CHECK, bucket.count(self._examined), found)

    def _misplaced(self) -> Bytes:
        """Return the reason of misplaced links, 0 for others."""
        links, lanes, names = self._links, self._bucket.columns.lanes, self._names.known()
        found = np.zeros(len(links.row), np.uint8)
        order = stable_order(links.lane.astype(np.uint32))
        bounds = np.searchsorted(links.lane[order], np.arange(len(lanes) + 1))
        for lane, name in enumerate(lanes):
            own, known = order[bounds[lane] : bounds[lane + 1]], self._bucket.known.misplaced.get(name)
            if known is not None and len(own):
                own_links = links.of(own)
                chains, ends = np.unique(np.concatenate((own_links.cause, own_links.effect)), return_inverse=True)
                cause, effect = np.split(ends, 2)
                of = [names[chain] for chain in chains.tolist()]
                found[own] = known.of(own_links.kind, cause, effect, own_links.causes, own_links.effects, of)
        return found

    def summary(self) -> pa.Table:
        """Return the links by lane and block (``LINKS_SCHEMA``)."""
        links = self._links
        if not len(links.row):
            return LINKS_SCHEMA.empty_table()
        runs = group_rows(links.kind, *links[2:])
        own, messages = links.of(runs.starts), runs.counts
        keys = [each.astype(np.uint32) for each in (own.lane, own.kind, own.cause, own.effect)]
        order = stable_order(*keys, own.effects, own.causes)
        own, messages = own.of(order), messages[order]
        same = group_rows(own.lane, own.kind, own.cause, own.effect, own.effects, own.causes)
        own, messages = own.of(same.starts), np.add.reduceat(messages, same.starts)
        tables = group_rows(own.lane, own.kind, own.cause, own.effect)
        firsts, offsets = own.of(tables.starts), pa.array(np.append(tables.starts, len(messages)).astype(np.int32))
        names = pa.array(self._names.known(), pa.string())
        content = lane_columns(self._bucket.columns, firsts.lane) | {
            "kind": pa.array(firsts.kind),
            "cause": names.take(pa.array(firsts.cause)),
            "effect": names.take(pa.array(firsts.effect)),
            "links": pa.array(tables.counts),
            "events": pa.array(np.add.reduceat(messages, tables.starts)),
            "ascend": pa.array(np.logical_and.reduceat(own.effects > own.causes, tables.starts)),
        }
        for name, values in (("causes", own.causes), ("effects", own.effects), ("messages", messages)):
            content[name] = pa.ListArray.from_arrays(offsets, pa.array(values))
        return pa.table(content).cast(LINKS_SCHEMA)


def undecided_links(compared: LinkComparison) -> tuple[pa.Table, pa.Table]:
    """Return a finding for each lane with uncompared links, and their counts.

    Args:
        compared: Comparison of all links of a ledger.

    Returns:
        Findings (``VIOLATIONS_SCHEMA`` without ``example``) with verdict ``UNKNOWN``, and counts (``COUNTS_SCHEMA``).
    """
    found = [
        {
            **dict(zip(LANE, lane, strict=True)),
            **{"check": CHECK, "verdict": UNKNOWN, "reason": "not_compared"},
            **{"count": count, "magnitude": float(count), "size": str(count), "unit": "messages"},
        }
        for lane, count in compared.undecided.items()
    ]
    findings, counts = (
        {field.name: pa.array([row.get(field.name) for row in found], field.type) for field in schema}
        for schema in (VIOLATIONS_SCHEMA, COUNTS_SCHEMA)
    )
    return to_findings_table(findings), pa.table(counts, COUNTS_SCHEMA)


__all__ = ["CHECK", "CausalLinks", "undecided_links"]
