"""Pages: how a parachain packs messages for the channels to others, and which of them its block sends (ICMP reference
X-6).

The data of an HRMP message are a page of messages, or a signal:

```
01 Compact(index) (Compact(length) message)*        02 00 suspend        02 01 resume
```
``index`` is that of the first message in its lane: which messages came is read from the bytes that lead to the
channel's head, and from nothing beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.model.value import NO_INDEX
from causeway.proofs.substrate import ScaleColumns, ScaleTypes, decode_compact, encode_compact, struct
from causeway.proofs.substrate.errors import FailedToDecode
from causeway.protocols.contract import Chains
from causeway.protocols.icmp.chains import RELAY_POSITION
from causeway.protocols.icmp.channel_options import HrmpOptions
from causeway.protocols.icmp.hrmp.checks import data_lengths
from causeway.protocols.icmp.hrmp.tables import HRMP_TABLES, PAGES_SCHEMA, PAIR, SENT_SCHEMA


class Signal(IntEnum):
    """What a recipient tells a sender."""

    NONE = 0
    SUSPEND = 1
    RESUME = 2


MESSAGES = b"\x01"
SIGNALS = {Signal.SUSPEND: b"\x02\x00", Signal.RESUME: b"\x02\x01"}

MOST_BYTES = 2**24
"""Of a message in a page."""

_FRAGMENTS = ScaleColumns(ScaleTypes({"Fragment": struct(("data", "Vec<u8>"))}), "Fragment", "a message", MOST_BYTES)

_LANE = ("source", "destination")
_PAGE = PAGES_SCHEMA.names[len(_LANE) :]

_Page = tuple[int, int, int, int, bytes]
"""A page of a lane: its place, the block that began it, the first message, their number, the data."""


def add_to_pages(pages: Frame, rows: Frame, messages: pa.LargeBinaryArray, limit: int) -> Frame:
    """Return the pages with messages at their ends: each goes into the last page of its lane if it fits, else it begins
    a new one. A page has at most ``limit`` bytes, unless its one message is longer.

    ``rows``: ``source``, ``destination``, ``index`` of each message, in the order of their lanes, and ``number``: the
    block that sends it.
    """
    if len(rows) == 0:
        return pages
    fragments = _FRAGMENTS.encode({"data": messages})
    cuts = np.frombuffer(fragments.buffers()[1], dtype=np.int64)[fragments.offset : fragments.offset + len(rows) + 1]
    content = memoryview(fragments.buffers()[2] or b"")
    groups = groups_of(*(rows[name] for name in _LANE))
    lanes = rows.select(_LANE).take(groups.starts)
    last = _last_pages(pages, lanes)
    begun: list[tuple[int, int, int, int, bytes]] = [
        *zip(*(_list(pages.take(last[last >= 0])[name]) for name in _PAGE), strict=True)
    ]
    made: list[tuple[Any, ...]] = []
    ends = zip(*(lanes[name].tolist() for name in _LANE), strict=True)
    for lane, (start, count), known in zip(
        ends, zip(groups.starts, groups.counts, strict=True), last >= 0, strict=True
    ):
        page = begun.pop(0) if known else None
        filled = _filled(page, rows, cuts, content, (int(start), int(start + count)), limit)
        made += [(*lane, *one) for one in filled]
    columns = dict(zip(PAGES_SCHEMA.names, zip(*made, strict=True), strict=True))
    added = Frame(
        {
            name: pa.array(column, pa.binary())
            if name == "data"
            else np.array(column, dtype=PAGES_SCHEMA.field(name).type.to_pandas_dtype())
            for name, column in columns.items()
        },
        len(made),
    )
    stays = np.ones(len(pages), dtype=bool)
    stays[last[last >= 0]] = False
    return _ordered("pages", concat([pages.filter(stays), added]))


def _list(column: Any) -> list[Any]:
    found: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
    return found


def _last_pages(pages: Frame, lanes: Frame) -> npt.NDArray[np.int64]:
    """Return the row of the last page of each lane, -1 where it has none."""
    if len(pages) == 0:
        return np.full(len(lanes), -1, dtype=np.int64)
    groups = groups_of(*(pages[name] for name in _LANE))
    at = lookup(pages.select(_LANE).take(groups.starts), lanes, _LANE)
    return np.where(at >= 0, (groups.starts + groups.counts - 1)[at], -1)


def _filled(
    begun: _Page | None,
    rows: Frame,
    cuts: npt.NDArray[np.int64],
    content: memoryview,
    of_lane: tuple[int, int],
    limit: int,
) -> Iterator[_Page]:
    """Yield the pages of one lane from its last one on."""
    (start, stop), place = of_lane, 0
    if begun is not None:
        place, number, first, held, data = begun
        end = _fits(cuts, start, stop, limit - len(data))
        yield place, number, first, held + end - start, data + bytes(content[cuts[start] : cuts[end]])
        start, place = end, place + 1
    while start < stop:
        first = int(rows["index"][start])
        data = MESSAGES + encode_compact(first)
        end = max(_fits(cuts, start, stop, limit - len(data)), start + 1)
        data += bytes(content[cuts[start] : cuts[end]])
        yield place, int(rows["number"][start]), first, end - start, data
        start, place = end, place + 1


def _fits(cuts: npt.NDArray[np.int64], start: int, stop: int, room: int) -> int:
    """Return the row after the last of those from ``start`` that fit into ``room`` bytes together."""
    return int(start + np.searchsorted(cuts[start + 1 : stop + 1], cuts[start] + room, side="right"))


class Outgoing(NamedTuple):
    """What blocks send (``SENT_SCHEMA``), and what is left: the pages, and what is due to other chains."""

    sent: Frame
    pages: Frame
    ends: Frame


def take_outbound(pages: Frame, ends: Frame, channels: Frame, chains: Chains, options: HrmpOptions) -> Outgoing:
    """Take what the blocks of ``chains`` send: to a recipient the signal that is due to it, else the first page, where
    the channel has room and did not suspend its sender; of too many recipients those with the oldest pages."""
    due = np.flatnonzero((ends["signal"] != Signal.NONE) & np.isin(ends["chain"], chains))
    firsts = groups_of(*(pages[name] for name in _LANE)).starts
    firsts = firsts[np.isin(pages["source"][firsts], chains)]
    heads = pages.take(firsts)
    other = lookup(ends, heads.with_columns(chain=heads["source"], foreign=heads["destination"]), ("chain", "foreign"))
    known = np.maximum(other, 0)
    silent = np.zeros(len(heads), dtype=bool)
    if len(ends):
        back = lookup(channels, heads.with_columns(sender=heads["destination"], recipient=heads["source"]), PAIR) >= 0
        # Who closed the channel back cannot resume anybody over it.
        suspended = (ends["suspended_by"][known] == 1) & back
        silent = (other >= 0) & (suspended | (ends["signal"][known] != Signal.NONE))
    heads, firsts = heads.filter(~silent), firsts[~silent]
    signals = _signal_rows(ends.take(due))
    rows = concat(
        [
            signals.with_columns(age=np.zeros(len(due), dtype=np.uint64), row=due, page=np.zeros(len(due), dtype=bool)),
            _to_relay(heads.with_columns(to=heads["destination"]).select(["source", "to", "data"])).with_columns(
                age=heads["number"] + np.uint64(1), row=firsts, page=np.ones(len(heads), bool)
            ),
        ]
    )
    at = lookup(channels, rows.with_columns(sender=rows["source"], recipient=rows["to"]), PAIR)
    open_ = at >= 0
    channel, size = channels.take(at[open_]), data_lengths(rows)[open_]
    fits = (channel["closing"] == 0) & (size <= channel["max_message_size"])
    fits &= channel["total_size"].astype(np.int64) + size <= channel["max_total_size"]
    open_[open_] = fits & (channel["msg_count"] < channel["max_capacity"])
    rows = rows.filter(open_)
    rows = rows.take(stable_order(rows["source"], rows["age"], rows["to"]))
    rows = rows.filter(groups_of(rows["source"]).ranks() < options.max_messages_per_candidate)
    rows = rows.take(stable_order(rows["source"], rows["to"]))
    rows = rows.with_columns(place=groups_of(rows["source"]).ranks().astype(np.uint32))
    of_page = rows["page"]
    stays = np.ones(len(pages), dtype=bool)
    stays[rows["row"][of_page]] = False
    signal = ends["signal"].copy()
    signal[rows["row"][~of_page]] = Signal.NONE
    return Outgoing(rows.select(SENT_SCHEMA.names), pages.filter(stays), told(ends.with_columns(signal=signal)))


def _signal_rows(ends: Frame) -> Frame:
    data = [SIGNALS[Signal(signal)] for signal in ends["signal"].tolist()]
    rows = Frame({"source": ends["chain"], "to": ends["foreign"]}, len(ends))
    return _to_relay(rows.with_columns(data=pa.array(data, pa.binary())))


def _to_relay(rows: Frame) -> Frame:
    return rows.with_columns(destination=np.full(len(rows), RELAY_POSITION, dtype=np.uint32))


def told(ends: Frame) -> Frame:
    """Return the rows of ``ends`` without those that say nothing."""
    says = ends["head"].any(axis=1)
    for name in ("suspended", "suspended_by", "signal"):
        says |= ends[name] != 0
    return ends.filter(says)


def _ordered(name: str, rows: Frame) -> Frame:
    return rows.take(stable_order(*(rows[key] for key in HRMP_TABLES[name].order)))


class Opened(NamedTuple):
    """What is in pages: messages, the page (its row) and the index in its lane of each; and which pages are malformed:
    of those no message is taken."""

    messages: pa.LargeBinaryArray
    page: npt.NDArray[np.int64]
    indices: npt.NDArray[np.uint64]
    malformed: npt.NDArray[np.bool_]


def messages_of(pages: Frame) -> Opened:
    """Return what is in the ``data`` of pages."""
    found: list[bytes] = []
    rows: list[int] = []
    indices: list[int] = []
    malformed = np.zeros(len(pages), dtype=bool)
    for row, data in enumerate(pages["data"].to_pylist()):
        try:
            first, fragments = _fragments(data)
        except FailedToDecode:
            malformed[row] = True
        else:
            found += fragments
            rows += [row] * len(fragments)
            indices += range(first, first + len(fragments))
    return Opened(
        pa.array(found, pa.large_binary()),
        np.array(rows, dtype=np.int64),
        np.array(indices, dtype=np.uint64),
        malformed,
    )


def _fragments(data: bytes) -> tuple[int, list[bytes]]:
    """Return the index of the first message of a page, and all. Raises ``FailedToDecode``."""
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
