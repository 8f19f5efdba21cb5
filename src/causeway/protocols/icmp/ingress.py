"""What a parachain may consume: its pending ingress, as far as the bodies are there (ICMP reference 3.2, 3.4, 3.9)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.protocols.digests import same
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.state import State
from causeway.protocols.messages import LANE

ENTRY = (*LANE, "number")


def pending(unrouted: Frame, tips: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``ingress(B, p)`` of each chain of ``tips``, B being the relay block ``now``: rows of ``unrouted`` with
    ``destination``, by (destination, number, source)."""
    at = lookup(tips, Frame({"chain": unrouted["to"]}, len(unrouted)), ("chain",))
    above = at >= 0
    above[above] = unrouted["number"][above] > tips["watermark"][at[above]]
    last = now if options.ingress_upper == "inclusive" else now - 1
    above &= unrouted["number"] <= np.uint64(max(last, 0))
    rows = unrouted.filter(above)
    rows = rows.with_columns(destination=rows["to"], substream=np.zeros(len(rows), dtype=np.uint64))
    return rows.take(stable_order(rows["destination"], rows["number"], rows["source"]))


def with_bodies(entries: Frame, segments: Frame, state: State) -> Frame:
    """Return the entries with where their bodies lie: ``height``, ``first``, ``count`` (0: nobody has the body).

    ``segments``: the queues that others keep. Queues of one lane are posted in the order in which they were made, so
    that the next to be consumed is the first that was not; the roots say whether it is the one that was posted.
    """
    cursors = state["cursors"]
    order = stable_order(*(segments[name] for name in (*LANE, "first")))
    segments = segments.take(order)
    at = lookup(cursors, segments.select(LANE), ("destination", "source", "substream"))
    seen = np.where(at >= 0, cursors["index"][np.maximum(at, 0)] if len(cursors) else 0, 0).astype(np.uint64)
    segments = segments.filter(segments["first"] >= seen)
    held = segments.with_columns(rank=_ranks(segments))
    lanes = stable_order(*(entries[name] for name in ENTRY))
    rank = np.empty(len(entries), dtype=np.uint64)
    rank[lanes] = _ranks(entries.take(lanes))
    found = lookup(held, entries.with_columns(rank=rank), (*LANE, "rank"))
    there = found >= 0
    there[there] = same(entries["root"][there], held["root"][found[there]])
    columns = {}
    for name in ("height", "first", "count"):
        columns[name] = np.zeros(len(entries), dtype=np.uint64)
        columns[name][there] = held[name][found[there]]
    return entries.with_columns(**columns)


def _ranks(rows: Frame) -> np.ndarray:
    return groups_of(*(rows[name] for name in LANE)).ranks().astype(np.uint64)


def complete_prefix(entries: Frame, missing: np.ndarray) -> Frame:
    """Return, of each chain, the entries of the longest run of blocks of which every queue is there (3.9; G2).

    ``entries``: by (destination, number, source); ``missing``: which are not there.
    """
    if not missing.any():
        return entries
    rows = np.flatnonzero(missing)[::-1]
    stop = np.full(int(entries["destination"].max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    stop[entries["destination"][rows]] = entries["number"][rows]
    return entries.filter(entries["number"] < stop[entries["destination"]])
