"""Drafts of rows of the ledger: what a log row tells of a message, in numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.ingest.run_messages import CALL, NO_PLACE, Form
from causeway.ledger.codes import NOT_SEEN, Names
from causeway.ledger.order import EVENTS
from causeway.ledger.schema import Event as Happened
from causeway.model.frame import Frame, repeated
from causeway.model.joins import codes
from causeway.model.ledger import NO_CHAIN, Kind
from causeway.model.order import groups_of, stable_order
from causeway.protocols.messages import LANE_COLUMNS

LOGS = ("outbound", "events", "collected")
"""The log tables, as ``source_file`` names them; a draft has the place of its own."""

OUTBOUND, EVENTS_LOG, COLLECTED = range(3)
_AMOUNT = ("amount_high", "amount_low")
_COPIED = (*LANE_COLUMNS, *CALL, *_AMOUNT, "code", "number", "tick")


class Name(IntEnum):
    """What a row's ``message_id`` is made of: the call; of a refused message from a user its place in what came in the
    tick; the place in a lane, of a control message; the place in the log, of a control row about no message."""

    CALL = 0
    REFUSED = 1
    PLACE = 2
    CONTROL = 3


def of_messages(
    messages: Frame, chain: Any, event: Happened, *, log: int = OUTBOUND, detail: Any = NOT_SEEN, hashed: bool = True
) -> Frame:
    """Return the drafts that ``event`` happened to messages when they were made."""
    in_lane = messages["form"] == Form.LANE
    control = in_lane & (messages["kind"] == Kind.CONTROL)
    return drafts_of(
        len(messages),
        **{name: messages[name] for name in _COPIED},
        log=np.uint8(log),
        at=messages["height"],
        height=messages["height"],
        owner=chain,
        chain=chain,
        event=np.int8(EVENTS.index(event)),
        detail=detail,
        named=np.where(control, np.uint8(Name.PLACE), np.uint8(Name.CALL)),
        hash=messages["hash"],
        hashed=hashed,
        of_programs=~control,
    )


_DEFAULTS: dict[str, Any] = {
    "log": np.uint8(0),
    "at": np.uint64(0),
    "owner": np.uint32(NO_CHAIN),
    "number": np.uint64(0),
    "source": np.uint32(NO_CHAIN),
    "destination": np.uint32(NO_CHAIN),
    "substream": np.uint64(0),
    "index": np.uint64(NO_PLACE),
    "place": np.uint64(0),
    "came": np.int64(0),
    "kind": np.uint8(0),
    "sender": np.uint64(0),
    "receiver": np.uint64(0),
    "callback": np.uint64(0),
    "amount_high": np.uint64(0),
    "amount_low": np.uint64(0),
    "valued": np.bool_(True),
    "of_programs": np.bool_(True),
    "code": np.uint8(0),
    "event": np.int8(0),
    "chain": np.uint32(NO_CHAIN),
    "height": np.uint64(0),
    "position": np.uint64(NO_PLACE),
    "tick": np.int64(0),
    "detail": np.int32(NOT_SEEN),
    "named": np.uint8(0),
    "hash": np.zeros(32, dtype=np.uint8),
    "hashed": np.bool_(False),
}
DRAFT = [*_DEFAULTS]


def drafts_of(length: int, **columns: Any) -> Frame:
    """Return drafts with the columns given, and what stands for nothing in the others.

    ``log``, ``at``, ``owner``, ``number``: the log row that tells it: its table (``LOGS``), height, chain and place.
    ``index``: ``NO_PLACE`` of what is in no lane; ``place``, ``came``: of a refused message from a user its place and
    the tick in which it came. ``event``: its place in ``order.EVENTS``. ``valued``: whether the amount says anything;
    ``of_programs``: whether sender and receiver do; ``hashed``: whether the hash does. ``named``: ``Name``.
    """
    return Frame({name: draft_column(name, columns.get(name, _DEFAULTS[name]), length) for name in DRAFT}, length)


def no_drafts() -> Frame:
    """Return drafts without rows."""
    return drafts_of(0)


def draft_column(name: str, value: Any, length: int) -> npt.NDArray[Any]:
    """Return a column of drafts: values of each row, or one of all."""
    default = _DEFAULTS[name]
    if np.ndim(value) == np.ndim(default):
        return repeated(value if np.ndim(value) else default.dtype.type(value), length)
    found: npt.NDArray[Any] = value.astype(default.dtype, copy=False)
    return found


def reverted_rows(rows: Frame, reasons: Names, at: int, tick: int) -> Frame:
    """Return rows that take back drafts, because of what their chain did at the height ``at``; ``position``: the height
    that is taken back."""
    names = np.array([reasons.code(name) for name in EVENTS], dtype=np.int32)
    return rows.with_columns(
        detail=names[rows["event"]],
        event=np.int8(EVENTS.index(Happened.REVERTED)),
        height=np.uint64(at),
        position=rows["at"],
        tick=np.int64(tick),
        at=np.uint64(at),
        hashed=np.bool_(False),
    )


def with_positions(rows: Frame) -> Frame:
    """Return drafts with a position where several tell the same of one message at one height of a chain: the number of
    each in the log. They happened more than once; without it they were one event that was recorded more than once.

    Of all others no position is known: a log is not in the order of lanes.
    """
    words = np.zeros(len(rows), dtype=np.uint64)
    for name in _SAME:
        words = (words ^ rows[name].astype(np.uint64)) * _ODD
        words ^= words >> np.uint64(29)
    ordered = np.sort(words)
    alike = np.flatnonzero(np.isin(words, ordered[1:][ordered[1:] == ordered[:-1]]))
    if len(alike) == 0:
        return rows
    some = rows.take(alike)
    (key,) = codes(_SAME, some.with_columns(event=some["event"].astype(np.uint8)))
    order = stable_order(key)
    groups = groups_of(key[order])
    again = np.zeros(len(some), dtype=bool)
    again[order] = groups.spread(groups.counts) > 1
    position = rows["position"].copy()
    position[alike] = np.where(again & (some["position"] == np.uint64(NO_PLACE)), some["number"], some["position"])
    return rows.with_columns(position=position)


_ODD = np.uint64(0x9E3779B97F4A7C15)
_SAME = (*LANE_COLUMNS, "named", *CALL, "place", "event", "chain", "height", "position")


__all__ = [
    "COLLECTED", "DRAFT", "EVENTS_LOG", "LOGS", "OUTBOUND", "Name", "draft_column", "drafts_of", "no_drafts",
    "of_messages", "reverted_rows", "with_positions",
]  # fmt: skip
