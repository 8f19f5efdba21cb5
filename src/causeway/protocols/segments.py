"""Where in the lake the entries of lanes lie: segments, runs of entries that one chain appended at one height."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, empty_frame
from causeway.model.joins import codes, over
from causeway.protocols.contract import RANGES_SCHEMA
from causeway.protocols.messages import LANE


def located(ranges: Frame, segments: Frame) -> Frame:
    """Cut ``ranges`` (lane, ``begin``, ``end``; any number a lane) at the ``segments`` that hold them.

    ``segments``: lane, ``height``, ``first``, ``count``, those of a lane in the order of their indices and without gaps
    between them; every range lies within them. Returns ``RANGES_SCHEMA``.
    """
    ranges = ranges.filter(ranges["end"] > ranges["begin"])
    if len(ranges) == 0:
        return empty_frame(RANGES_SCHEMA)
    starts = segments.select([*LANE, "first"])
    lanes = ranges.select(LANE)
    first, begin, last = codes(
        (*LANE, "first"),
        starts,
        lanes.with_columns(first=ranges["begin"]),
        lanes.with_columns(first=ranges["end"] - np.uint64(1)),
    )
    order = np.argsort(first, kind="stable")
    low = np.searchsorted(first[order], begin, side="right") - 1
    high = np.searchsorted(first[order], last, side="right")
    wanted, position = over(low, high)
    rows = order[position]
    cut = segments.select([*LANE, "height"]).take(rows)
    return cut.with_columns(
        begin=np.maximum(ranges["begin"][wanted], segments["first"][rows]),
        end=np.minimum(ranges["end"][wanted], (segments["first"] + segments["count"])[rows]),
    )


def oldest(segments: Frame) -> int | None:
    """Return the lowest height of which entries are still in a lane, None when none are."""
    return int(segments["height"].min()) if len(segments) else None
