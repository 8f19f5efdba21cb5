"""Bodies of queues: arrival at recipients and removal by senders.

Each body arrives at its recipient some time after its relay block, or never. The delay is sampled from a distribution
or from the table of a gossip simulation. With ``fallback_request`` the recipient's validators fetch it from a validator
of the sender after at most ``fallback_after`` ticks.

A sender stores a body until the inclusion of a block that consumed it, or until the relay chain lists the queue as
dropped. It thus stores every body that can still be consumed, and those of its unincluded block. Nothing is removed
while the relay chain has several leaves, since other leaves may still need the body.

Reference: ICMP, sections 1.4, 3.9 and 5.1 (2); D-3, D-12; hazards 1, 2, 17.
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
"""Nanoseconds of a millisecond."""


def body_arrivals(listed: Frame, seed: int, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return the last tick before the arrival of each body, ``NEVER`` for lost bodies.

    Args:
        listed: Queues of ``ingress(B, p)`` (``to``, ``number``, ``source``).
        seed: Seed of all random numbers.
        tick_ns: Duration of a tick (ns).
        options: Options of the protocol.
    """
    if options.bodies == "ideal" or len(listed) == 0:
        return np.full(len(listed), -1, dtype=np.int64)
    words = paired_words(seed, SimulationDraw.BODY, listed["to"], listed["source"], listed["number"])
    delays = (
        _simulated_delays(listed, words[0], tick_ns, options) if options.body_table else _sample_delays(words, options)
    )
    if options.fallback_request == "on":
        delays = np.minimum(delays, options.fallback_after)
    # Ticks of blocks have 32 bits; a block is seen in the tick after its own.
    arrivals: Rows = np.where(delays < NEVER, listed["tick"].astype(np.int64) + delays, NEVER)
    return arrivals


def _sample_delays(words: tuple[U64, U64], options: IcmpOptions) -> Rows:
    """Sample delays in ticks from an exponential distribution with losses."""
    first, second = ((column >> np.uint64(11)).astype(np.float64) * 2.0**-53 for column in words)
    ticks = np.floor(-np.log1p(-first) * options.body_ticks).astype(np.int64)
    return np.where(second < options.body_loss, NEVER, ticks)


def _simulated_delays(listed: Frame, words: U64, tick_ns: int, options: IcmpOptions) -> Rows:
    """Return delays in ticks from the simulation's table, rounded up to the next tick."""
    assert options.body_table is not None
    delay = options.body_table.delays(listed, words)
    ticks = -(-np.minimum(delay, NEVER // _MS) * _MS // tick_ns)
    return np.where(delay >= NEVER, NEVER, np.maximum(ticks - 1, 0))


_CURSOR = ("destination", "source", "substream")
_LISTED = ("to", "source", "issued")


def find_finished_bodies(state: State, view: View, standing: ChainPositions) -> tuple[Frame, Frame]:
    """Return the bodies that senders remove.

    Args:
        state: State of the parachains.
        view: Tables that chains published at the previous height.
        standing: Positions of the parachains.

    Returns:
        Consumed queues, and dropped queues with ``why`` (``DropReason``); both are rows of ``runs``.
    """
    runs = state["runs"]
    removable = runs["source"] != runs["destination"]
    removable &= ~np.isin(runs["source"], standing.rollbacks["chain"])
    if standing.forked:
        removable[:] = False
    queues = runs.filter(removable)
    paras, cursors, dropped = (view.tables[name] for name in ("paras", "cursors", "dropped"))
    listed = lookup_rows(dropped, queues.with_columns(to=queues["destination"], issued=queues["number"]), _LISTED)
    is_dropped = listed >= 0
    row = lookup_rows(paras, Frame({"para": cursors["destination"]}, len(cursors)), ("para",))
    known = row >= 0
    known[known] = cursors["number"][known] <= paras["number"][row[known]]
    at = lookup_rows(cursors.filter(known), queues, _CURSOR)
    consumed = (at >= 0) & ~is_dropped
    ends = (queues["first"] + queues["count"])[consumed]
    consumed[consumed] = ends <= cursors["index"][known][at[consumed]]
    return queues.filter(consumed), queues.filter(is_dropped).with_columns(why=dropped["why"][listed[is_dropped]])


def body_ranges(queues: Frame) -> Frame:
    """Return the location of the messages of queues (rows of ``runs``) as ``RANGES_SCHEMA``."""
    return queues.with_columns(begin=queues["first"], end=queues["first"] + queues["count"]).select(RANGES_SCHEMA.names)


def drop_bodies(state: State, consumed: Frame, dropped: Frame, messages: Frame, log: EventLog) -> State:
    """Remove bodies from the state; log an event for each message of a dropped queue.

    Args:
        state: State of the parachains.
        consumed: Consumed queues (rows of ``runs``).
        dropped: Dropped queues (rows of ``runs``).
        messages: Messages of ``dropped``, in any order.
        log: Event log.
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
    if len(dropped):
        rows = messages.take(stable_order(*(messages[name] for name in LANE_COLUMNS)))
        reasons = names_column(
            [why.name for why in DropReason], dropped["why"].repeat(dropped["count"].astype(np.int64))
        )
        log.add(event_rows(rows, Event.DROPPED, chain=rows["source"], on_lane=True, reason=reasons))
    removed = concat([frame.select([*LANE, "first"]) for frame in (consumed, dropped)])
    if len(removed) == 0:
        return state
    removed = removed.take(stable_order(*(removed[name] for name in removed.names)))
    runs = state["runs"]
    remaining = runs.filter(lookup_rows(removed, runs, removed.names) < 0)
    lanes = removed.select(LANE).take(group_rows(*(removed[name] for name in LANE)).starts)
    heads = remaining.take(group_rows(*(remaining[name] for name in LANE)).starts)
    at = lookup_rows(heads, lanes, LANE)
    queues = state.with_tables(runs=remaining).lanes()
    to = queues.read_counters("next_index", lanes).copy()
    to[at >= 0] = heads["first"][at[at >= 0]]
    return state.with_lanes(queues.advance(lanes, to))
