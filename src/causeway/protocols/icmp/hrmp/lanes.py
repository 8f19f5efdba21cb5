"""Lanes of a parachain: what others have consumed of them, and what closed channels took along (ICMP reference X-6)."""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame
from causeway.model.joins import lookup
from causeway.model.ledger import COLLECTED_MESSAGES, Event
from causeway.model.order import U64, groups_of
from causeway.protocols.contents import decode_contents
from causeway.protocols.contract import View
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.icmp.errors import CHANNEL_CLOSED, NO_DESTINATION
from causeway.protocols.icmp.hrmp.pages import messages_of
from causeway.protocols.icmp.hrmp.tables import PAIR
from causeway.protocols.icmp.state import State
from causeway.protocols.messages import LANE


def _cursors(queues: Frame, view: View) -> U64:
    """Return up to which index each lane is consumed by its destination."""
    cursors = view.tables["cursors"]
    at = lookup(cursors, queues.select(LANE), ("destination", "source", "substream"))
    known = np.maximum(at, 0)
    seen = cursors["index"][known] if len(cursors) else np.zeros(len(queues), dtype=np.uint64)
    return np.maximum(queues["begin"], np.where(at >= 0, seen, 0).astype(np.uint64))


def lost(state: State, view: View, chains: np.ndarray) -> Frame:
    """Return the lanes of ``chains`` to others with messages that a closed channel took along: with ``begin`` and
    ``end``, the indices of these messages.

    Lost is what has left the pages, is not consumed, and has no channel: a sender whose last block is included knows
    both ends after the same blocks. To a parachain that is not registered the pages are lost, too.
    """
    queues, pages = state["queues"], state["pages"]
    away = queues.filter((queues["source"] != queues["destination"]) & np.isin(queues["source"], chains))
    first = pages.take(groups_of(pages["source"], pages["destination"]).starts)
    at = lookup(first, away, ("source", "destination"))
    end = away["next_index"].copy()
    paras = view.tables["paras"]
    kept = (at >= 0) & np.isin(away["destination"], paras["para"][paras["active"] == 1])
    end[kept] = first["first"][at[kept]]
    begin = _cursors(away, view)
    channels = view.tables["channels"]
    open_ = lookup(channels, away.with_columns(sender=away["source"], recipient=away["destination"]), PAIR) >= 0
    return away.select(LANE).with_columns(begin=begin, end=end).filter(~open_ & (end > begin))


def without_lost(state: State, lanes: Frame, own: Frame, view: View, log: EventLog) -> State:
    """Return the state without what was lost (``lost``); ``own``: these messages, each of which leaves an event."""
    if len(lanes) == 0:
        return state
    paras, pages = view.tables["paras"], state["pages"]
    gone = np.isin(own["destination"], paras["para"][paras["active"] == 0])
    for rows, reason in ((own.filter(gone), NO_DESTINATION), (own.filter(~gone), CHANNEL_CLOSED)):
        log.add(event_rows(rows, Event.DROPPED, chain=rows["source"], on_lane=True, reason=reason))
    at = lookup(lanes, pages, ("source", "destination"))
    inside = (at >= 0) & (pages["first"] < lanes["end"][np.maximum(at, 0)])
    state = state.with_tables(pages=pages.filter(~inside)) if inside.any() else state
    return state.with_lanes(state.lanes().advance(lanes.select(LANE), lanes["end"]))


def without_consumed(state: State, view: View, log: EventLog) -> State:
    """Return the state without what the chains that it was for have consumed."""
    queues = state["queues"]
    if len(queues) == 0:
        return state
    to = _cursors(queues, view)
    gone = (queues["source"] != queues["destination"]) & (to > queues["begin"])
    if not gone.any():
        return state
    lanes = queues.filter(gone).select(LANE)
    log.collected(lanes, COLLECTED_MESSAGES, queues["begin"][gone], to[gone])
    return state.with_lanes(state.lanes().advance(lanes, to[gone]))


def entries_of(pages: Frame) -> Frame:
    """Return what pages (``WAITING_SCHEMA``) are in lanes: ``LANE``, ``to``, ``first``, ``count``; nothing of those
    that have no message."""
    opened = messages_of(pages)
    groups = groups_of(opened.page)
    lanes = _lanes_of(pages, opened.page[groups.starts])
    return lanes.with_columns(
        to=lanes["destination"], first=opened.indices[groups.starts], count=groups.counts.astype(np.uint64)
    )


def _lanes_of(pages: Frame, rows: np.ndarray) -> Frame:
    """Return the lane of each of some pages."""
    zero = np.zeros(len(rows), dtype=np.uint64)
    return Frame({"source": pages["sender"][rows], "destination": pages["chain"][rows], "substream": zero}, len(rows))


def bodies_of(pages: Frame) -> tuple[Frame, Frame]:
    """Return the messages in pages, in their order, as messages in lanes, and the pages that are malformed."""
    opened = messages_of(pages)
    variant, messages = decode_contents(opened.messages)
    lanes = _lanes_of(pages, opened.page)
    messages = messages.with_columns(**{name: lanes[name] for name in LANE}, index=opened.indices)
    return messages.filter(variant >= 0), pages.filter(opened.malformed)
