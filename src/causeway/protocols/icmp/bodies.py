"""Which bodies a parachain's collators have at a tick, by what the options say (ICMP reference 3.9; hazards 1, 2, 17).

How bodies travel is the simulator's matter. Here each queue comes to its recipient some time after the relay block that
posted it was made, or never: drawn from a distribution, or as the table of a simulation says. With ``fallback_request``
the recipient's validators bring it after ``fallback_after`` ticks at the latest, from a validator of the sending chain.

Which bodies a sender gives up: what was consumed, and what nobody will ever consume (ICMP reference 1.4, D-3, D-12,
5.1 (2)).

A sender keeps a body until a block that consumed it is included, or until the relay chain has said that the queue is
not routed and never will be (``gone``). What it keeps is so what can still be consumed, wherever in its lane that lies,
and the queues of its block that is not included yet. As long as the relay chain has several leaves nothing is given up:
what was consumed or is gone at one may be wanted at another.
"""

from __future__ import annotations

import numpy as np
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import COLLECTED_MESSAGES, Event
from causeway.protocols.contract import RANGES_SCHEMA, View
from causeway.protocols.icmp.forks import ChainPositions
from causeway.protocols.relay_chain.errors import DropReason
from causeway.protocols.relay_chain.options import NEVER, IcmpOptions
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS
from causeway.protocols.shared.random_numbers import SimulationDraw, paired_words

_MS = 1_000_000
"""Nanoseconds."""


def body_arrivals(listed: Frame, seed: int, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return the tick before the one in which recipients have queues of ``ingress(B, p)`` (``to``, ``number``,
    ``source``): ``NEVER`` for those that do not come.

    ``tick_ns``: how long a tick is.
    """
    if options.bodies == "ideal" or len(listed) == 0:
        return np.full(len(listed), -1, dtype=np.int64)
    words = paired_words(seed, SimulationDraw.BODY, listed["to"], listed["source"], listed["number"])
    delays = _simulated(listed, words[0], tick_ns, options) if options.body_table else _drawn(words, options)
    if options.fallback_request == "on":
        delays = np.minimum(delays, options.fallback_after)
    # Ticks of blocks have 32 bits; a block is seen in the tick after its own.
    came: Rows = np.where(delays < NEVER, listed["tick"].astype(np.int64) + delays, NEVER)
    return came


def _drawn(words: tuple[U64, U64], options: IcmpOptions) -> Rows:
    """Return after how many ticks queues come: exponentially distributed, or never."""
    first, second = ((column >> np.uint64(11)).astype(np.float64) * 2.0**-53 for column in words)
    ticks = np.floor(-np.log1p(-first) * options.body_ticks).astype(np.int64)
    return np.where(second < options.body_loss, NEVER, ticks)


def _simulated(listed: Frame, words: U64, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return after how many ticks queues come by the simulation's table; what has not come when the next tick begins
    comes with one of those after it."""
    assert options.body_table is not None
    delay = options.body_table.delays(listed, words)
    ticks = -(-np.minimum(delay, NEVER // _MS) * _MS // tick_ns)
    return np.where(delay >= NEVER, NEVER, np.maximum(ticks - 1, 0))


_CURSOR = ("destination", "source", "substream")
_LISTED = ("to", "source", "issued")


def find_finished_bodies(state: State, view: View, standing: ChainPositions) -> tuple[Frame, Frame]:
    """Return the queues that senders give up, because they were consumed and because they are gone (with ``why``,
    ``errors.Gone``): rows of ``runs``."""
    runs = state["runs"]
    held = runs["source"] != runs["destination"]
    held &= ~np.isin(runs["source"], standing.back["chain"])
    if standing.forked:
        held[:] = False
    queues = runs.filter(held)
    paras, cursors, dropped = (view.tables[name] for name in ("paras", "cursors", "dropped"))
    listed = lookup_rows(dropped, queues.with_columns(to=queues["destination"], issued=queues["number"]), _LISTED)
    gone = listed >= 0
    row = lookup_rows(paras, Frame({"para": cursors["destination"]}, len(cursors)), ("para",))
    known = row >= 0
    known[known] = cursors["number"][known] <= paras["number"][row[known]]
    at = lookup_rows(cursors.filter(known), queues, _CURSOR)
    consumed = (at >= 0) & ~gone
    ends = (queues["first"] + queues["count"])[consumed]
    consumed[consumed] = ends <= cursors["index"][known][at[consumed]]
    return queues.filter(consumed), queues.filter(gone).with_columns(why=dropped["why"][listed[gone]])


def body_ranges(queues: Frame) -> Frame:
    """Return where the messages of queues (rows of ``runs``) lie (``RANGES_SCHEMA``)."""
    return queues.with_columns(begin=queues["first"], end=queues["first"] + queues["count"]).select(RANGES_SCHEMA.names)


def drop_bodies(state: State, consumed: Frame, gone: Frame, messages: Frame, log: EventLog) -> State:
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
        reasons = names_column([why.name for why in DropReason], gone["why"].repeat(gone["count"].astype(np.int64)))
        log.add(event_rows(rows, Event.DROPPED, chain=rows["source"], on_lane=True, reason=reasons))
    went = concat([frame.select([*LANE, "first"]) for frame in (consumed, gone)])
    if len(went) == 0:
        return state
    went = went.take(stable_order(*(went[name] for name in went.names)))
    runs = state["runs"]
    stay = runs.filter(lookup_rows(went, runs, went.names) < 0)
    lanes = went.select(LANE).take(group_rows(*(went[name] for name in LANE)).starts)
    heads = stay.take(group_rows(*(stay[name] for name in LANE)).starts)
    at = lookup_rows(heads, lanes, LANE)
    queues = state.with_tables(runs=stay).lanes()
    to = queues.read_counters("next_index", lanes).copy()
    to[at >= 0] = heads["first"][at[at >= 0]]
    return state.with_lanes(queues.advance(lanes, to))
