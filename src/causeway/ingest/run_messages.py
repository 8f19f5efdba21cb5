"""Messages of a run as its logs show them, and which of them other rows of the logs speak of.

A row of a log names a message by its place in a lane, or by its call: who calls whom, and which call of these it is.
Both names lead to the message that was made last by then: where chains have forks, a place may be given again.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.ledger.limbs import slices_of
from causeway.model.frame import Frame, concat, from_table
from causeway.model.joins import over
from causeway.model.ledger import COLLECTED_MESSAGES, NO_CHAIN, Event, Kind, Via
from causeway.model.order import Rows, groups_of, stable_order
from causeway.proofs.hashing import HashFunction, digest_rows, digest_slices
from causeway.protocols.messages import FORGED, LANE_COLUMNS, NO_QUEUE

Mask = npt.NDArray[np.bool_]

CALL = ("kind", "sender", "receiver", "callback")
"""What names a message by its call."""

_CARRIED = ("amount_high", "amount_low", "code")

NO_PLACE = 2**64 - 1
"""The index of a message that is in no lane."""


class Form(IntEnum):
    """Where a message is, as far as its row says.

    ``LANE``: in a lane. ``QUEUED``: sent, and in no lane: it waits for one, or never came into one. ``MADE``: an answer
    that the chain of its receiver made itself, which is in no lane.
    """

    LANE = 0
    QUEUED = 1
    MADE = 2


class RunLogs(NamedTuple):
    """Rows of the log tables of one range of heights, with their ``height``, ``tick`` and ``number``: each one's place
    among those that its chain logged in the table at the height, from 1."""

    outbound: Frame
    events: Frame
    collected: Frame


class SpokenOf(NamedTuple):
    """Messages that rows speak of: ``lanes`` (``LANE_COLUMNS``, ``height``) by their places, ``calls`` (``CALL``,
    ``height``) by their calls, up to which height each was made."""

    lanes: Frame
    calls: Frame

    def __len__(self) -> int:
        return len(self.lanes) + len(self.calls)


def run_logs(outbound: pa.Table, events: pa.Table, collected: pa.Table) -> RunLogs:
    """Return log rows, those of one chain and height in the order in which it logged them, with their numbers."""
    told = _time_outs_told(numbered_rows(events, "chain"))
    return RunLogs(numbered_rows(outbound, "source"), told, numbered_rows(collected, "chain"))


def _time_outs_told(events: Frame) -> Frame:
    """Return rows of ``events`` in which what says that a message in a lane timed out says just that.

    What its chain is given instead of an answer is received in no lane. Of a control message no program hears, so that
    this row alone has its place: it is the time-out, and the one beside it without a place says nothing more.
    """
    on_lane, control = events["source"] != np.uint32(NO_CHAIN), events["kind"] == Kind.CONTROL
    given = on_lane & (events["via"] == Via.TIMEOUT) & has(events, Event.RECEIVED)
    again = control & ~on_lane & has(events, Event.TIMED_OUT)
    if not (given.any() or again.any()):
        return events
    bits = np.where(given & control, np.uint16(Event.TIMED_OUT), events["events"])
    apart = given & ~control
    ends = {name: np.where(apart, np.uint32(NO_CHAIN), events[name]) for name in LANE_COLUMNS[:2]}
    return events.with_columns(events=np.where(again, np.uint16(0), bits), **ends)


def numbered_rows(rows: pa.Table, owner: str) -> Frame:
    """Return rows of a log table with their numbers; ``owner``: the column with the chain whose a row is."""
    frame = from_table(rows)
    height = frame["height"].astype(np.uint64)
    order = stable_order(height, frame[owner])
    ranks = np.empty(len(frame), dtype=np.uint64)
    ranks[order] = groups_of(height[order], frame[owner][order]).ranks() + 1
    return frame.with_columns(number=ranks, height=height)


def messages_of(logs: RunLogs) -> Frame:
    """Return the messages that rows show for the first time: ``form``, ``LANE_COLUMNS``, ``CALL``, what they carry,
    ``height``, ``tick``, ``sent_tick``, ``chain``, ``number``, ``hash``, and ``ended`` (1: the row that shows it says
    what else happened to it), in no order."""
    outbound, events = logs.outbound, logs.events
    in_lanes = outbound.select([*LANE_COLUMNS, *CALL, *_CARRIED, "height", "tick", "number"]).with_columns(
        form=np.uint8(Form.LANE),
        chain=outbound["source"],
        queue_index=outbound["queue_index"],
        sent_tick=outbound["sent_tick"],
        ended=np.uint8(0),
        hash=payload_hashes(outbound["payload"]),
    )
    apart = events["source"] == np.uint32(NO_CHAIN)
    apart &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    queued, made = apart & has(events, Event.SENT), apart & is_made(events) & has(events, Event.RECEIVED)
    parts = [in_lanes]
    for form, rows in ((Form.QUEUED, events.filter(queued)), (Form.MADE, events.filter(made))):
        if not len(rows):
            continue
        named = rows.select([*CALL, *_CARRIED, "height", "tick", "number", "chain"])
        named = named.with_columns(
            form=np.uint8(form),
            source=np.uint32(NO_CHAIN),
            destination=np.uint32(NO_CHAIN),
            substream=np.uint64(0),
            index=np.uint64(NO_PLACE),
            queue_index=rows["queue_index"],
            sent_tick=rows["tick"].astype(np.uint64),
            ended=(rows["events"] != np.uint16(Event.SENT)).astype(np.uint8),
            hash=field_hashes(rows),
        )
        parts.append(named.select(in_lanes.names))
    return concat(parts)


def has(events: Frame, event: Event) -> Mask:
    """Return which rows of the log ``events`` have an event."""
    found: Mask = (events["events"] & np.uint16(event)) > 0
    return found


def is_made(events: Frame) -> Mask:
    """Return which rows tell of an answer that its receiver's chain made itself, in no lane."""
    via = events["via"]
    found: Mask = (events["source"] == np.uint32(NO_CHAIN)) & ((via == Via.SYNTHETIC) | (via == Via.TIMEOUT))
    return found & (has(events, Event.RECEIVED) | has(events, Event.DROPPED))


def of_lanes(events: Frame) -> Mask:
    """Return which rows are about the message at their place in a lane. Of control rows those that tell of a message
    that was received or timed out: others tell of what chains and carriers do."""
    on_lane = events["source"] != np.uint32(NO_CHAIN)
    told = has(events, Event.RECEIVED) | has(events, Event.TIMED_OUT)
    found: Mask = on_lane & ((events["kind"] != Kind.CONTROL) | told)
    return found


def of_calls(events: Frame) -> Mask:
    """Return which rows are about a message that was shown before, and name it by its call."""
    apart = events["source"] == np.uint32(NO_CHAIN)
    apart &= (events["kind"] != Kind.INGRESS) & (events["kind"] != Kind.CONTROL)
    found: Mask = apart & ~has(events, Event.SENT) & ~is_made(events) & (events["queue_index"] != np.uint64(FORGED))
    return found


def is_forged(messages: Frame) -> Mask:
    """Return a mask of the messages that a chain put into a lane without any program having sent them."""
    queue_index = messages["queue_index"]
    found: Mask = queue_index == np.uint64(FORGED)
    found |= (messages["kind"] == Kind.REQUEST) & (queue_index == np.uint64(NO_QUEUE))
    found &= messages["form"] == Form.LANE
    return found


def answering(events: Frame) -> Mask:
    """Return which rows tell that an answer reached who called, so that its request is acknowledged there."""
    heard = has(events, Event.ANSWERED) | (has(events, Event.RECEIVED) & has(events, Event.DROPPED))
    found: Mask = (events["kind"] == Kind.RESPONSE) & heard & (events["via"] != Via.TIMEOUT)
    return found


def requests_of(answers: Frame) -> Frame:
    """Return the calls (``CALL``, ``height``) that answers are to."""
    return Frame(
        {
            "kind": np.full(len(answers), Kind.REQUEST, dtype=np.uint8),
            "sender": answers["receiver"],
            "receiver": answers["sender"],
            "callback": answers["callback"],
            "height": answers["height"],
        },
        len(answers),
    )


def collected_places(collected: Frame) -> tuple[Frame, Rows]:
    """Return the places (``LANE_COLUMNS``, ``height``) of the messages that chains collected, and the row of each."""
    ranges = np.flatnonzero(collected["what"] == COLLECTED_MESSAGES)
    rows, index = over(collected["begin"][ranges], collected["end"][ranges])
    rows = ranges[rows]
    named = {name: collected[name][rows] for name in (*LANE_COLUMNS[:3], "height")}
    return Frame({**named, "index": index}, len(index)), rows


def payload_hashes(payload: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of each payload, shape (n, 32)."""
    data, offsets = slices_of(payload)
    return digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])


def field_hashes(rows: Frame, before: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
    """Return the SHA-256 of what a log says of each message, shape (n, 32): kind, sender, receiver, callback, amount
    and code, as eight bytes each, little-endian, behind the digest ``before``, if one is given."""
    words = np.stack([rows[name].astype("<u8") for name in (*CALL, *_CARRIED)], axis=1)
    fields = np.ascontiguousarray(words).view(np.uint8).reshape(len(rows), -1)
    if before is not None:
        fields = np.concatenate([before, fields], axis=1)
    return digest_rows(HashFunction.SHA256, np.ascontiguousarray(fields))


def differing(rows: Frame, messages: Frame) -> Mask:
    """Return which rows say something else of their message than the message itself, row by row. The code of a request
    is none of its own: it is what came of it."""
    found: Mask = (rows["kind"] == Kind.RESPONSE) & (rows["code"] != messages["code"])
    for name in (*CALL, *_CARRIED[:2]):
        found |= rows[name] != messages[name]
    return found


__all__ = [
    "CALL", "NO_PLACE", "Form", "RunLogs", "SpokenOf", "answering", "collected_places", "differing",
    "field_hashes", "has", "is_forged", "is_made", "messages_of", "numbered_rows", "of_calls", "of_lanes",
    "payload_hashes", "requests_of", "run_logs",
]  # fmt: skip
