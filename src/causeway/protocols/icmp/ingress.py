"""The lists that the relay chain offers, and how much of them a parachain can take (ICMP reference 3.2, 3.3, 3.9)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import stable_order
from causeway.protocols.digests import same
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.messages import LANE

Number = TypeVar("Number", int, npt.NDArray[np.int64])


def last_listed(now: Number, options: IcmpOptions) -> Number:
    """Return the last number that the lists of a relay block of number ``now`` may have, -1 for none (D-2)."""
    return now if options.ingress_upper == "inclusive" else now - 1


def ingress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``ingress(B, p)`` of all parachains at a leaf, whose block B has the number ``now``: rows of ``unrouted``,
    by (to, number, source).

    What lies at or below a watermark, or is for nobody, is not in ``unrouted``: pending ingress is what there is.
    """
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["to"], rows["number"], rows["source"]))


def egress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``egress(B, p)`` of all parachains at a leaf: the rows of ``ingress``, by (source, number, to)."""
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["source"], rows["number"], rows["to"]))


def with_bodies(listed: Frame, segments: Frame) -> Frame:
    """Return entries of ``ingress`` with where their bodies lie: lane, ``height``, ``first``, ``count`` (0: nobody has
    the body).

    ``segments``: the queues that their senders keep, one a lane and block of the sender. The root says whether a queue
    is the one that was posted.
    """
    count = len(listed)
    entries = listed.with_columns(destination=listed["to"], substream=np.zeros(count, dtype=np.uint64))
    names = (*LANE, "number")
    held = segments.take(stable_order(*(segments[name] for name in names)))
    found = lookup(held, entries.with_columns(number=entries["issued"]), names)
    there = found >= 0
    there[there] = same(entries["root"][there], held["root"][found[there]])
    columns = {}
    for name in ("height", "first", "count"):
        columns[name] = np.zeros(count, dtype=np.uint64)
        columns[name][there] = held[name][found[there]]
    return entries.with_columns(**columns)


def complete_prefix(entries: Frame, missing: np.ndarray) -> Frame:
    """Return, of each chain, the entries of the longest run of blocks of which every queue is there (3.9; G2).

    ``entries``: by (to, number, source); ``missing``: which are not there.
    """
    if not missing.any():
        return entries
    stop = np.full(int(entries["to"].max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(stop, entries["to"][missing], entries["number"][missing])
    return entries.filter(entries["number"] < stop[entries["to"]])
