"""Which bodies a sender gives up: what was consumed, and what went with a deregistration (ICMP reference 1.4, D-3).

A sender keeps a body until a block that consumed it is included, or until the relay chain has dropped the queue because
whom it was for was deregistered. A queue of a block that is not included yet is never given up. As long as the relay
chain has several leaves nothing is: what was consumed or dropped at one may be wanted again at another.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.protocols.contract import View
from causeway.protocols.icmp.forks import Standing
from causeway.protocols.icmp.state import State
from causeway.protocols.messages import LANE

_KEYS = ("destination", "source", "substream")


def bodies_to_give_up(state: State, view: View, standing: Standing) -> tuple[Frame, Frame]:
    """Return what each sender gives up of its lanes, because it was consumed and because it was dropped: lane,
    ``begin``, ``to``; the second follows on the first.

    Of a lane of which several deregistrations dropped queues the first is dealt with, and the others in later rounds.
    """
    queues = state["queues"]
    full = (queues["next_index"] > queues["begin"]) & (queues["source"] != queues["destination"])
    full &= ~np.isin(queues["source"], standing.back["chain"])
    if standing.forked:
        full[:] = False
    lanes = queues.filter(full).select([*LANE, "begin"])
    end, first, last = lanes["begin"].copy(), *_dropped(lanes, state["runs"], view.tables["dropped"])
    paras, cursors, pending = view.tables["paras"], view.tables["cursors"], np.zeros(len(lanes), dtype=bool)
    if len(cursors) and len(lanes):
        row = lookup(paras, Frame({"para": cursors["destination"]}, len(cursors)), ("para",))
        included = (row >= 0) & (cursors["number"] <= paras["number"][np.maximum(row, 0)])
        at = lookup(cursors, lanes, _KEYS)
        pending[at >= 0] = ~included[at[at >= 0]]
        seen = (at >= 0) & ~pending
        end[seen] = np.maximum(end[seen], cursors["index"][at[seen]])
    # Below what was dropped all was consumed; above it what came after the next registration.
    end = np.where(last > 0, np.minimum(end, np.maximum(first, lanes["begin"])), end)
    consumed = lanes.with_columns(to=end).filter(end > lanes["begin"])
    # Nothing is unrouted to a parachain that is not registered, nor what it once had censored.
    nobody = (last == 0) & ~np.isin(lanes["destination"], paras["para"][paras["active"] == 1])
    if nobody.any():
        last = np.where(nobody, np.maximum(_included(lanes, state["runs"], paras), end), last)
    # Where the last consumption is not included the one before is not known: it is a round later.
    gone = (last > end) & ~pending
    return consumed, lanes.with_columns(begin=end, to=last).filter(gone)


def _included(lanes: Frame, runs: Frame, paras: Frame) -> np.ndarray:
    """Return up to where the queues of each lane are of blocks that are included, 0 where none is."""
    found = np.zeros(len(lanes), dtype=np.uint64)
    if len(lanes) == 0 or len(paras) == 0:
        return found
    at = lookup(paras, Frame({"para": runs["source"]}, len(runs)), ("para",))
    lane = lookup(lanes, runs, LANE)
    ours = (at >= 0) & (lane >= 0) & (runs["number"] <= paras["number"][np.maximum(at, 0)])
    np.maximum.at(found, lane[ours], (runs["first"] + runs["count"])[ours])
    return found


def _dropped(lanes: Frame, runs: Frame, dropped: Frame) -> tuple[np.ndarray, np.ndarray]:
    """Return from where to where the relay chain dropped the first queues of each lane that are still held; 0, 0 where
    it did not.

    ``dropped``: ``tables.DROPPED_SCHEMA``; ``runs``: the queues that senders hold.
    """
    first, last = np.zeros(len(lanes), dtype=np.uint64), np.zeros(len(lanes), dtype=np.uint64)
    if len(dropped) == 0 or len(lanes) == 0:
        return first, last
    wanted = np.isin(runs["source"], dropped["source"]) & np.isin(runs["destination"], dropped["to"])
    held = runs.filter(wanted & (runs["source"] != runs["destination"]))
    lane = lookup(lanes, held, LANE)
    held, lane = held.filter(lane >= 0), lane[lane >= 0]
    row = _row_of(held, dropped)
    held, lane, row = held.filter(row >= 0), lane[row >= 0], row[row >= 0]
    order = stable_order(lane.view(np.uint64), held["first"])
    held, lane, row = held.take(order), lane[order], row[order]
    if len(held) == 0:
        return first, last
    spans = groups_of(lane, row)
    ends = spans.starts + spans.counts - 1
    of_lane = groups_of(lane[spans.starts])
    start, stop = spans.starts[of_lane.starts], ends[of_lane.starts]
    first[lane[start]] = held["first"][start]
    last[lane[start]] = held["first"][stop] + held["count"][stop]
    return first, last


def _row_of(held: Frame, dropped: Frame) -> np.ndarray:
    """Return for each queue the row that dropped it, -1 for none: rows of a lane follow each other, apart."""
    found = np.full(len(held), -1, dtype=np.int64)
    if len(held) == 0:
        return found
    order = np.concatenate([dropped["to"], held["destination"]]), np.concatenate([dropped["source"], held["source"]])
    number = np.concatenate([dropped["first"], held["number"]])
    ranks = stable_order(*order, number)
    last = np.maximum.accumulate(np.where(ranks < len(dropped), np.arange(len(ranks)), -1))
    before = np.full(len(ranks), -1, dtype=np.int64)
    before[ranks] = np.where(last >= 0, ranks[np.maximum(last, 0)], -1)
    row = before[len(dropped) :]
    at = np.maximum(row, 0)
    inside = (row >= 0) & (dropped["to"][at] == held["destination"]) & (dropped["source"][at] == held["source"])
    inside &= held["number"] <= dropped["last"][at]
    found[inside] = row[inside]
    return found
