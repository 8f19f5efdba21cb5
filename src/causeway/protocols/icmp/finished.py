"""Which bodies a sender gives up: what was consumed, and what nobody will ever consume (ICMP reference 1.4, D-3, D-12,
5.1 (2)).

A sender keeps a body until a block that consumed it is included, or until the relay chain has said that the queue is
not routed and never will be (``gone``). What it keeps is so what can still be consumed, wherever in its lane that lies,
and the queues of its block that is not included yet. As long as the relay chain has several leaves nothing is given up:
what was consumed or is gone at one may be wanted at another.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.ledger import COLLECTED_MESSAGES, Event
from causeway.model.order import groups_of, stable_order
from causeway.protocols.contract import RANGES_SCHEMA, View
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.icmp.errors import Gone
from causeway.protocols.icmp.forks import Standing
from causeway.protocols.icmp.state import State
from causeway.protocols.messages import LANE, LANE_COLUMNS

_CURSOR = ("destination", "source", "substream")
_LISTED = ("to", "source", "issued")


def bodies_to_give_up(state: State, view: View, standing: Standing) -> tuple[Frame, Frame]:
    """Return the queues that senders give up, because they were consumed and because they are gone (with ``why``,
    ``errors.Gone``): rows of ``runs``."""
    runs = state["runs"]
    held = runs["source"] != runs["destination"]
    held &= ~np.isin(runs["source"], standing.back["chain"])
    if standing.forked:
        held[:] = False
    queues = runs.filter(held)
    paras, cursors, dropped = (view.tables[name] for name in ("paras", "cursors", "dropped"))
    listed = lookup(dropped, queues.with_columns(to=queues["destination"], issued=queues["number"]), _LISTED)
    gone = listed >= 0
    row = lookup(paras, Frame({"para": cursors["destination"]}, len(cursors)), ("para",))
    known = row >= 0
    known[known] = cursors["number"][known] <= paras["number"][row[known]]
    at = lookup(cursors.filter(known), queues, _CURSOR)
    consumed = (at >= 0) & ~gone
    ends = (queues["first"] + queues["count"])[consumed]
    consumed[consumed] = ends <= cursors["index"][known][at[consumed]]
    return queues.filter(consumed), queues.filter(gone).with_columns(why=dropped["why"][listed[gone]])


def places_of(queues: Frame) -> Frame:
    """Return where the messages of queues (rows of ``runs``) lie (``RANGES_SCHEMA``)."""
    return queues.with_columns(begin=queues["first"], end=queues["first"] + queues["count"]).select(RANGES_SCHEMA.names)


def given_up(state: State, consumed: Frame, gone: Frame, messages: Frame, log: EventLog) -> State:
    """Return the state without these bodies; every message of those that are gone leaves an event.

    ``messages``: of ``gone``, in any order.
    """
    if len(consumed):
        begins = np.ones(len(consumed), dtype=bool)
        before = consumed["first"][:-1] + consumed["count"][:-1]
        begins[1:] = consumed["first"][1:] != before
        for name in LANE:
            begins[1:] |= consumed[name][1:] != consumed[name][:-1]
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(consumed)) - 1
        end = (consumed["first"] + consumed["count"])[last]
        log.collected(consumed.select(LANE).take(first), COLLECTED_MESSAGES, consumed["first"][first], end)
    if len(gone):
        rows = messages.take(stable_order(*(messages[name] for name in LANE_COLUMNS)))
        reasons = names_column([why.name for why in Gone], gone["why"].repeat(gone["count"].astype(np.int64)))
        log.add(event_rows(rows, Event.DROPPED, chain=rows["source"], on_lane=True, reason=reasons))
    went = concat([frame.select([*LANE, "first"]) for frame in (consumed, gone)])
    if len(went) == 0:
        return state
    went = went.take(stable_order(*(went[name] for name in went.names)))
    runs = state["runs"]
    stay = runs.filter(lookup(went, runs, went.names) < 0)
    lanes = went.select(LANE).take(groups_of(*(went[name] for name in LANE)).starts)
    heads = stay.take(groups_of(*(stay[name] for name in LANE)).starts)
    at = lookup(heads, lanes, LANE)
    queues = state.with_tables(runs=stay).lanes()
    to = queues.count_of("next_index", lanes).copy()
    to[at >= 0] = heads["first"][at[at >= 0]]
    return state.with_lanes(queues.advance(lanes, to))
