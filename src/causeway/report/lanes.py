"""The lanes of a ledger as plain data: those that are shown, the others together, and the matrix of chains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.audit.plain import plain_row
from causeway.ledger.schema import LANE
from causeway.ledger.typed import plain_rows
from causeway.report.checked import LaneKey
from causeway.report.matrix import Figures, folded

SHOWN = 150
"""Lanes that are listed: first those with violations, then with most that is pending, then with most messages;
what is in no lane is behind these."""

MEASURES = ("delivery", "round_trip")
"""Delays of lanes; the first that any lane has shades the matrix."""

_ADDED = ("messages", "sent", "received", "pending", "in_flight")


def lanes_data(
    lanes: pa.Table, findings: Mapping[LaneKey, tuple[int, int]], wanted: Iterable[LaneKey] = (), shown: int = SHOWN
) -> dict[str, Any]:
    """Return the lanes. ``total`` and ``others`` do not count what is in no lane, which has a row of its own.

    Args:
        lanes: of ``figures.lanes.LANES_SCHEMA``.
        findings: the numbers of violated and unknown ones of each lane.
        wanted: lanes that are listed whatever they have, because others lead to them.
        shown: so many are listed beside these.
    """
    keys: list[LaneKey] = [*zip(*(lanes[name].to_pylist() for name in LANE), strict=True)]
    found = [findings.get(key, (0, 0)) for key in keys]
    violated, unknown = (np.array([each[place] for each in found], np.int64) for place in (0, 1))
    pending, messages = (lanes[name].to_numpy() for name in ("pending", "messages"))
    nowhere = np.array([all(name is None for name in key[1:]) for key in keys], bool)
    order = np.lexsort((np.arange(len(keys)), -messages, nowhere, -pending, -violated))
    asked = set(wanted)
    kept = sorted({*order[:shown].tolist(), *(row for row, key in enumerate(keys) if key in asked)})
    rank = {row: place for place, row in enumerate(order.tolist())} if len(kept) < len(keys) else None
    chosen = sorted(kept, key=lambda row: rank[row]) if rank is not None else order.tolist()
    rows = [plain_row(row) or {} for row in plain_rows(lanes.take(pa.array(chosen, pa.int64())))]
    for place, (row, number) in enumerate(zip(rows, chosen, strict=True)):
        row |= {"ident": f"lane-{place + 1}", "violated": int(violated[number])}
        row["unknown_findings"] = int(unknown[number])
    left = np.ones(len(keys), bool)
    left[chosen] = False
    others = {name: int(lanes[name].to_numpy()[left].sum()) for name in _ADDED}
    others |= {"lanes": int((left & ~nowhere).sum()), "violated": int(violated[left].sum())}
    others["unknown_findings"] = int(unknown[left].sum())
    measure, unit = shading(lanes)
    idents = {keys[number]: row["ident"] for row, number in zip(rows, chosen, strict=True)}
    pairs = _pairs(lanes, keys, found, measure, idents)
    return {
        "total": int((~nowhere).sum()),
        "latency": measure,
        "unit": unit,
        "chains": len({chain for key in keys for chain in key[1:3] if chain is not None}),
        "rows": rows,
        "others": others,
        "matrix": [
            {"source": [*source], "destination": [*destination], **vars(figures)}
            for (source, destination), figures in sorted(folded(pairs).items())
        ],
    }


def shading(lanes: pa.Table) -> tuple[str | None, str]:
    """Return which delay of lanes can be compared, and its unit: that of most lanes."""
    for measure in MEASURES:
        known = lanes.filter(lanes[f"{measure}_p99"].is_valid())
        if known.num_rows:
            units = sorted(known["unit"].drop_null().to_pylist())
            return measure, max(dict.fromkeys(units), key=units.count, default="seconds")
    return None, "seconds"


def _pairs(
    lanes: pa.Table,
    keys: list[LaneKey],
    findings: list[tuple[int, int]],
    measure: str | None,
    idents: Mapping[LaneKey, str],
) -> dict[tuple[str | None, str | None], Figures]:
    messages, pending = lanes["messages"].to_pylist(), lanes["pending"].to_pylist()
    delays = [None] * len(keys) if measure is None else lanes[f"{measure}_p99"].to_pylist()
    pairs: dict[tuple[str | None, str | None], Figures] = {}
    for key, sent, open_, delay, (violated, unknown) in zip(keys, messages, pending, delays, findings, strict=True):
        if all(name is None for name in key[1:]):
            continue  # in no lane
        href = f"#{idents[key]}" if key in idents else None
        one = Figures(1, sent, open_, violated, unknown, delay, href)
        pair = key[1], key[2]
        pairs[pair] = pairs[pair] + one if pair in pairs else one
    return pairs


__all__ = ["MEASURES", "SHOWN", "lanes_data", "shading"]
