"""Pages: batches of messages for HRMP channels, and the lanes behind them.

The data of an HRMP message are a page of messages or a signal:

```
01 Compact(index) (Compact(length) message)*        02 00 suspend        02 01 resume
```

``index`` is that of the first message in its lane. The received messages follow from the bytes under the channel's head
alone.

A lane loses its messages to consumption, or to a closed channel.

Reference: ICMP, X-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, group_rows, stable_order
from causeway_proofs.substrate import ScaleColumns, ScaleTypes, decode_compact, encode_compact, struct
from causeway_proofs.substrate.errors import FailedToDecode

from causeway.core.frame import Frame, concat, from_table
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import COLLECTED_MESSAGES, NO_INDEX, Event
from causeway.protocols.contract import Chains, View
from causeway.protocols.hrmp.acceptance import data_lengths
from causeway.protocols.hrmp.state import HRMP_TABLES, PAGES_SCHEMA, PAIR, SENT_SCHEMA
from causeway.protocols.relay_chain.errors import CHANNEL_CLOSED, NO_DESTINATION
from causeway.protocols.relay_chain.options import RELAY_POSITION, HrmpOptions
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.contents import decode_contents
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE
from causeway.protocols.shared.state_tables import sort_table


class ChannelSignal(IntEnum):
    """Signal of a recipient to a sender."""

    NONE = 0
    SUSPEND = 1
    RESUME = 2


MESSAGES = b"\x01"
SIGNALS = {ChannelSignal.SUSPEND: b"\x02\x00", ChannelSignal.RESUME: b"\x02\x01"}

MOST_BYTES = 2**24
"""Maximum size of a message in a page."""

_FRAGMENTS = ScaleColumns(ScaleTypes({"Fragment": struct(("data", "Vec<u8>"))}), "Fragment", "a message", MOST_BYTES)

_LANE = ("source", "destination")
_PAGE = PAGES_SCHEMA.names[len(_LANE) :]
_PAGE_SCHEMA = pa.schema([PAGES_SCHEMA.field(name) for name in _PAGE])

_Page = tuple[int, int, int, int, bytes]
"""A page of a lane: position, issuing block, first message, count, data."""


def add_to_pages(pages: Frame, rows: Frame, messages: pa.LargeBinaryArray, limit: int) -> Frame:
    """Append messages to pages: to the last page of their lane if they fit, else to a new one.

    Args:
        pages: ``PAGES_SCHEMA``.
        rows: ``source``, ``destination``, ``index`` of each message in lane order, and ``number``, its block.
        messages: Content of each message.
        limit: Maximum size of a page in bytes; a page with one message may be longer.
    """
    if len(rows) == 0:
        return pages
    fragments = _FRAGMENTS.encode({"data": messages})
    offsets = np.frombuffer(fragments.buffers()[1], dtype=np.int64)[fragments.offset : fragments.offset + len(rows) + 1]
    content = memoryview(fragments.buffers()[2] or b"")
    groups = group_rows(*(rows[name] for name in _LANE))
    lanes = rows.select(_LANE).take(groups.starts)
    # The row of the last page of each lane, -1 without one.
    last = np.full(len(lanes), -1, dtype=np.int64)
    if len(pages):
        known_lanes = group_rows(*(pages[name] for name in _LANE))
        at = lookup_rows(pages.select(_LANE).take(known_lanes.starts), lanes, _LANE)
        last = np.where(at >= 0, (known_lanes.starts + known_lanes.counts - 1)[at], -1)
    open_rows = pages.take(last[last >= 0]).select(_PAGE).to_table(_PAGE_SCHEMA)
    open_pages: list[_Page] = [*zip(*(column.to_pylist() for column in open_rows.columns), strict=True)]
    rows_added: list[tuple[Any, ...]] = []
    ends = zip(*(lanes[name].tolist() for name in _LANE), strict=True)
    for lane, (start, count), known in zip(
        ends, zip(groups.starts, groups.counts, strict=True), last >= 0, strict=True
    ):
        page = open_pages.pop(0) if known else None
        filled = _fill_pages(page, rows, offsets, content, (int(start), int(start + count)), limit)
        rows_added += [(*lane, *page_row) for page_row in filled]
    columns = [
        pa.array(column, item.type) for column, item in zip(zip(*rows_added, strict=True), PAGES_SCHEMA, strict=True)
    ]
    added = from_table(pa.table(columns, schema=PAGES_SCHEMA))
    remaining = np.ones(len(pages), dtype=bool)
    remaining[last[last >= 0]] = False
    return sort_table(HRMP_TABLES["pages"], concat([pages.filter(remaining), added]))


def _fill_pages(
    open_page: _Page | None,
    rows: Frame,
    offsets: npt.NDArray[np.int64],
    content: memoryview,
    row_range: tuple[int, int],
    limit: int,
) -> Iterator[_Page]:
    """Yield the pages of one lane from its last one on."""
    (start, stop), position = row_range, 0
    if open_page is not None:
        position, number, first, count, data = open_page
        end = _end_of_page(offsets, start, stop, limit - len(data))
        yield position, number, first, count + end - start, data + bytes(content[offsets[start] : offsets[end]])
        start, position = end, position + 1
    while start < stop:
        first = int(rows["index"][start])
        data = MESSAGES + encode_compact(first)
        end = max(_end_of_page(offsets, start, stop, limit - len(data)), start + 1)
        data += bytes(content[offsets[start] : offsets[end]])
        yield position, int(rows["number"][start]), first, end - start, data
        start, position = end, position + 1


def _end_of_page(offsets: npt.NDArray[np.int64], start: int, stop: int, room: int) -> int:
    """Return the row after the last of those from ``start`` that fit into ``room`` bytes."""
    return int(start + np.searchsorted(offsets[start + 1 : stop + 1], offsets[start] + room, side="right"))


class OutgoingPages(NamedTuple):
    """Sent data (``SENT_SCHEMA``), remaining pages, and remaining signals in ``ends``."""

    sent: Frame
    pages: Frame
    ends: Frame


def take_outbound(pages: Frame, ends: Frame, channels: Frame, chains: Chains, options: HrmpOptions) -> OutgoingPages:
    """Select the data that the blocks of ``chains`` send.

    A recipient gets a pending signal, else the first page, if its channel has capacity and the sender is not suspended.
    Recipients with the oldest pages come first.

    Args:
        pages: ``PAGES_SCHEMA``.
        ends: ``ENDS_SCHEMA``.
        channels: ``CHANNELS_SCHEMA``.
        chains: Positions of the parachains.
        options: Options of the protocol.
    """
    due = np.flatnonzero((ends["signal"] != ChannelSignal.NONE) & np.isin(ends["chain"], chains))
    firsts = group_rows(*(pages[name] for name in _LANE)).starts
    firsts = firsts[np.isin(pages["source"][firsts], chains)]
    heads = pages.take(firsts)
    other = lookup_rows(
        ends, heads.with_columns(chain=heads["source"], foreign=heads["destination"]), ("chain", "foreign")
    )
    known = np.maximum(other, 0)
    silent = np.zeros(len(heads), dtype=bool)
    if len(ends):
        has_return_channel = (
            lookup_rows(channels, heads.with_columns(sender=heads["destination"], recipient=heads["source"]), PAIR) >= 0
        )
        # A recipient without a return channel cannot resume the sender.
        suspended = (ends["suspended_by"][known] == 1) & has_return_channel
        silent = (other >= 0) & (suspended | (ends["signal"][known] != ChannelSignal.NONE))
    heads, firsts = heads.filter(~silent), firsts[~silent]
    data = pa.array([SIGNALS[ChannelSignal(signal)] for signal in ends["signal"][due].tolist()], pa.binary())
    signals = Frame({"source": ends["chain"][due], "to": ends["foreign"][due], "data": data}, len(due))
    signals = signals.with_columns(age=np.uint64(0), row=due, page=np.False_)
    full = heads.with_columns(to=heads["destination"]).select(["source", "to", "data"])
    full = full.with_columns(age=heads["number"] + np.uint64(1), row=firsts, page=np.True_)
    rows = concat([signals, full]).with_columns(destination=np.uint32(RELAY_POSITION))
    at = lookup_rows(channels, rows.with_columns(sender=rows["source"], recipient=rows["to"]), PAIR)
    can_send = at >= 0
    channel, size = channels.take(at[can_send]), data_lengths(rows)[can_send]
    fits = (channel["closing"] == 0) & (size <= channel["max_message_size"])
    fits &= channel["total_size"].astype(np.int64) + size <= channel["max_total_size"]
    can_send[can_send] = fits & (channel["msg_count"] < channel["max_capacity"])
    rows = rows.filter(can_send)
    rows = rows.take(stable_order(rows["source"], rows["age"], rows["to"]))
    rows = rows.filter(group_rows(rows["source"]).ranks() < options.max_messages_per_candidate)
    rows = rows.take(stable_order(rows["source"], rows["to"]))
    rows = rows.with_columns(place=group_rows(rows["source"]).ranks().astype(np.uint32))
    of_page = rows["page"]
    remaining = np.ones(len(pages), dtype=bool)
    remaining[rows["row"][of_page]] = False
    signal = ends["signal"].copy()
    signal[rows["row"][~of_page]] = ChannelSignal.NONE
    return OutgoingPages(
        rows.select(SENT_SCHEMA.names), pages.filter(remaining), drop_silent_ends(ends.with_columns(signal=signal))
    )


def drop_silent_ends(ends: Frame) -> Frame:
    """Remove rows of ``ends`` without any information."""
    has_content = ends["head"].any(axis=1)
    for name in ("suspended", "suspended_by", "signal"):
        has_content |= ends[name] != 0
    return ends.filter(has_content)


class PageContents(NamedTuple):
    """Messages of pages.

    Attributes:
        messages: Content of each message.
        page: Row of its page.
        indices: Its index in the lane.
        malformed: Mask of malformed pages; their messages are ignored.
    """

    messages: pa.LargeBinaryArray
    page: npt.NDArray[np.int64]
    indices: npt.NDArray[np.uint64]
    malformed: npt.NDArray[np.bool_]


def read_pages(pages: Frame) -> PageContents:
    """Read the messages of pages.

    Args:
        pages: Rows with ``data``.
    """
    messages: list[bytes] = []
    rows: list[int] = []
    indices: list[int] = []
    malformed = np.zeros(len(pages), dtype=bool)
    for row, data in enumerate(pages["data"].to_pylist()):
        try:
            first, fragments = _fragments(data)
        except FailedToDecode:
            malformed[row] = True
        else:
            messages += fragments
            rows += [row] * len(fragments)
            indices += range(first, first + len(fragments))
    return PageContents(
        pa.array(messages, pa.large_binary()),
        np.array(rows, dtype=np.int64),
        np.array(indices, dtype=np.uint64),
        malformed,
    )


def _fragments(data: bytes) -> tuple[int, list[bytes]]:
    """Return the index of a page's first message, and all messages.

    Raises:
        FailedToDecode: The page is malformed.
    """
    if data[:1] != MESSAGES:
        raise FailedToDecode("a page begins with another byte")
    first, at = decode_compact(data, 1, "a page")
    found = []
    while at < len(data):
        length, at = decode_compact(data, at, "a page")
        if at + length > len(data):
            raise FailedToDecode("a page ends inside a message")
        found.append(data[at : at + length])
        at += length
    if first + len(found) >= NO_INDEX:
        raise FailedToDecode("a page has messages behind the last index of a lane")
    return first, found


def _cursors(queues: Frame, view: View) -> U64:
    """Return the index after the last consumed message of each lane."""
    cursors = view.tables["cursors"]
    at = lookup_rows(cursors, queues.select(LANE), ("destination", "source", "substream"))
    known = np.maximum(at, 0)
    seen = cursors["index"][known] if len(cursors) else np.zeros(len(queues), dtype=np.uint64)
    return np.maximum(queues["begin"], np.where(at >= 0, seen, 0).astype(np.uint64))


def lost_lanes(state: State, view: View, chains: np.ndarray) -> Frame:
    """Return the lanes of ``chains`` with lost messages, from ``begin`` to ``end``.

    Messages are lost if they left the pages, are not consumed and have no channel. A sender with an included last block
    and the relay chain agree on that. Pages to an unregistered parachain are lost, too.

    Args:
        state: State of the parachains.
        view: Tables that chains published at the previous height.
        chains: Parachains with an included last block.
    """
    queues, pages = state["queues"], state["pages"]
    away = queues.filter((queues["source"] != queues["destination"]) & np.isin(queues["source"], chains))
    first = pages.take(group_rows(pages["source"], pages["destination"]).starts)
    at = lookup_rows(first, away, ("source", "destination"))
    end = away["next_index"].copy()
    paras = view.tables["paras"]
    has_pages = (at >= 0) & np.isin(away["destination"], paras["para"][paras["active"] == 1])
    end[has_pages] = first["first"][at[has_pages]]
    begin = _cursors(away, view)
    channels = view.tables["channels"]
    has_channel = (
        lookup_rows(channels, away.with_columns(sender=away["source"], recipient=away["destination"]), PAIR) >= 0
    )
    return away.select(LANE).with_columns(begin=begin, end=end).filter(~has_channel & (end > begin))


def drop_lost(state: State, lanes: Frame, own: Frame, view: View, log: EventLog) -> State:
    """Remove lost messages from the state, with an event for each.

    Args:
        state: State of the parachains.
        lanes: Result of ``lost_lanes``.
        own: The lost messages.
        view: Tables that chains published at the previous height.
        log: Event log.
    """
    if len(lanes) == 0:
        return state
    paras, pages = view.tables["paras"], state["pages"]
    no_recipient = np.isin(own["destination"], paras["para"][paras["active"] == 0])
    for rows, reason in ((own.filter(no_recipient), NO_DESTINATION), (own.filter(~no_recipient), CHANNEL_CLOSED)):
        log.add(event_rows(rows, Event.DROPPED, chain=rows["source"], on_lane=True, reason=reason))
    at = lookup_rows(lanes, pages, ("source", "destination"))
    inside = (at >= 0) & (pages["first"] < lanes["end"][np.maximum(at, 0)])
    state = state.with_tables(pages=pages.filter(~inside)) if inside.any() else state
    return state.with_lanes(state.lanes().advance(lanes.select(LANE), lanes["end"]))


def drop_consumed(state: State, view: View, log: EventLog) -> State:
    """Remove messages that their recipients consumed."""
    queues = state["queues"]
    if len(queues) == 0:
        return state
    cursors = _cursors(queues, view)
    is_consumed = (queues["source"] != queues["destination"]) & (cursors > queues["begin"])
    if not is_consumed.any():
        return state
    lanes = queues.filter(is_consumed).select(LANE)
    log.collected(lanes, COLLECTED_MESSAGES, queues["begin"][is_consumed], cursors[is_consumed])
    return state.with_lanes(state.lanes().advance(lanes, cursors[is_consumed]))


def page_entries(pages: Frame) -> Frame:
    """Return the lane range of each page (``LANE``, ``to``, ``first``, ``count``).

    ``pages`` are ``WAITING_SCHEMA``; pages without messages have none.
    """
    opened = read_pages(pages)
    groups = group_rows(opened.page)
    lanes = _lanes_of(pages, opened.page[groups.starts])
    return lanes.with_columns(
        to=lanes["destination"], first=opened.indices[groups.starts], count=groups.counts.astype(np.uint64)
    )


def _lanes_of(pages: Frame, rows: np.ndarray) -> Frame:
    """Return the lane of each page."""
    zero = np.zeros(len(rows), dtype=np.uint64)
    return Frame({"source": pages["sender"][rows], "destination": pages["chain"][rows], "substream": zero}, len(rows))


def page_bodies(pages: Frame) -> tuple[Frame, Frame]:
    """Return the messages of pages in order, and the malformed pages."""
    opened = read_pages(pages)
    variant, messages = decode_contents(opened.messages)
    lanes = _lanes_of(pages, opened.page)
    messages = messages.with_columns(**{name: lanes[name] for name in LANE}, index=opened.indices)
    return messages.filter(variant >= 0), pages.filter(opened.malformed)
