"""Derive message events from the logs of a run, a draft row an event.

All functions are pure functions of columns. All rows of a message share one identity: its position in a lane as soon as
it has one, otherwise its call. Drafts have numbers in place of names; later steps name them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys, lookup_rows
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.ledger.encodings import UNSEEN_NAME, NameCodes
from causeway.ledger.lake.messages import (
    CALL,
    COLLECTED,
    DRAFT,
    EVENTS_LOG,
    NO_PLACE,
    OUTBOUND,
    DraftName,
    MessageForm,
    RunLogs,
    RunMessageIndex,
    answered_requests,
    build_drafts,
    collected_places,
    differs_from_message,
    draft_column,
    draft_sent_events,
    field_hashes,
    has_event,
    is_answer_delivery,
    is_call_reference,
    is_chain_made_answer,
    is_forged,
    is_lane_reference,
)
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import EXPIRED
from causeway.ledger.schema import FORGED as FORGED_HERE
from causeway.ledger.schema import LedgerEvent as Happened
from causeway.protocols.shared.messages import FORGED, LANE_COLUMNS

INGRESS_EVENTS = "received"
"""Detail of an observed user message: no chain sent it, so that no row says "received"."""

_AMOUNT = ("amount_high", "amount_low")
_NO_PAYLOAD = np.frombuffer(sha256(b"").digest(), np.uint8)
_LEDGER_EVENTS = {
    Event.RECEIVED: Happened.RECEIVED,
    Event.EXECUTED: Happened.EXECUTED,
    Event.ANSWERED: Happened.ANSWERED,
    Event.REJECTED: Happened.REJECTED,
    Event.TIMED_OUT: Happened.TIMED_OUT,
    Event.DROPPED: Happened.DROPPED,
    Event.RELAYED: Happened.RELAYED,
    Event.STOPPED: Happened.OBSERVED,
}
"""Ledger event of each log event. Sendings derive from the messages themselves. ``ACKNOWLEDGED`` derives from
collection, except for control rows: there it says that a chain acted."""


class RangeEvents(NamedTuple):
    """Events of a range of heights.

    Attributes:
        rows: Drafts of ledger rows.
        queued: Drafts of sendings of messages that wait for a lane.
        gone: Names (``CALL``) of messages that stopped waiting.
    """

    rows: Frame
    queued: Frame
    gone: Frame


@dataclass
class EventDerivation:
    """Derives events, one range of heights at a time.

    Attributes:
        heights_of: Returns the heights of executed ticks.
        own: Mask of chains, by position, that the run executes.
        expired: Codes of expired messages, as of ``registry.ProtocolInfo``.
        paired: Pairs request and response lanes, as of ``registry.ProtocolInfo``.
        collects_answered: As of ``registry.ProtocolInfo``.
        reasons: Names behind the column ``detail`` of drafts.
    """

    heights_of: Callable[[U64], U64]
    own: npt.NDArray[np.bool_]
    expired: tuple[int, ...] = ()
    paired: Callable[[U64], tuple[U64, npt.NDArray[np.bool_]]] | None = None
    collects_answered: bool = False
    reasons: NameCodes = field(default_factory=NameCodes)

    def derive(self, logs: RunLogs, new: Frame, messages: RunMessageIndex) -> RangeEvents:
        """Derive the events of log rows.

        Args:
            logs: Logs of a range of heights.
            new: Messages that the logs show for the first time (``messages_of``).
            messages: These and all other messages that the logs mention.

        Returns:
            Drafts of the range.
        """
        events = logs.events
        lanes = new.filter(new["form"] == MessageForm.LANE)
        sent, left = self._sent(lanes)
        spoken = _take_known(messages.rows, _message_of_rows(events, messages))
        queued, ended, over = self._queued(events, new, spoken)
        parts = [
            sent,
            draft_sent_events(lanes, lanes["source"], Happened.COMMITTED),
            *self._logged_events(events, spoken),
            *self._chain_made(new.filter(new["form"] == MessageForm.MADE)),
            *self._acknowledged(logs, messages),
            *self._collected(logs, messages),
            *self._unlogged(logs, lanes, messages),
            ended,
        ]
        return RangeEvents(self._observe_remote(concat(parts)), queued, concat([left, over]))

    def _observe_remote(self, rows: Frame) -> Frame:
        """Turn statements about chains outside of the run into observations of the run."""
        remote = (rows["named"] == DraftName.CONTROL) & ~self.own[
            np.minimum(rows["chain"], np.uint32(len(self.own) - 1))
        ]
        if not remote.any():
            return rows
        return rows.with_columns(event=np.where(remote, np.int8(EVENTS.index(Happened.OBSERVED)), rows["event"]))

    def _sent(self, lanes: Frame) -> tuple[Frame, Frame]:
        """Return sendings of messages in lanes, and the calls of those that had waited."""
        waited = lanes["sent_tick"] < lanes["tick"].astype(np.uint64)
        waited &= lanes["queue_index"] < np.uint64(FORGED)
        forged = is_forged(lanes)
        expired = (lanes["kind"] == Kind.RESPONSE) & np.isin(lanes["code"], self.expired)
        detail = np.full(len(lanes), UNSEEN_NAME, np.int32)
        for chosen, name in ((expired, EXPIRED), (forged, FORGED_HERE)):
            if chosen.any():
                detail[chosen] = self.reasons.code(name)
        drafts = draft_sent_events(lanes, lanes["source"], Happened.SENT, detail=detail)
        if waited.any():
            height, tick = drafts["height"].copy(), drafts["tick"].copy()
            height[waited] = self.heights_of(lanes["sent_tick"][waited])
            tick[waited] = lanes["sent_tick"][waited].astype(tick.dtype)
            drafts = drafts.with_columns(height=height, tick=tick)
        return drafts, lanes.filter(waited).select(CALL)

    def _queued(self, events: Frame, new: Frame, spoken: Frame) -> tuple[Frame, Frame, Frame]:
        """Return sendings of messages that wait or ended outside of lanes, and calls that ended."""
        rows = new.filter(new["form"] == MessageForm.QUEUED)
        waits = rows["ended"] == 0
        over = spoken["known"] & (spoken["form"] == MessageForm.QUEUED) & (spoken["ended"] == 0)
        over &= is_call_reference(events) & ending_rows(events)
        ended = concat([rows.filter(~waits), spoken.filter(over).select(rows.names)])
        return draft_queued_sends(rows.filter(waits)), draft_queued_sends(ended), spoken.filter(over).select(CALL)

    def _logged_events(self, events: Frame, spoken: Frame) -> list[Frame]:
        """Return the drafts of logged events, a table an event."""
        in_lane, control = is_lane_reference(events), events["kind"] == Kind.CONTROL
        ingress = events["kind"] == Kind.INGRESS
        loose = control & ~in_lane
        rows = self._event_drafts(events, spoken, in_lane, loose)
        # No chain sent a user message, so its arrival is observed, not received.
        parts = []
        for event, happened in _LEDGER_EVENTS.items():
            chosen = has_event(events, event)
            if event == Event.RECEIVED:
                late = chosen & self._expired(events, spoken)
                parts.append(_event_rows(rows, chosen & ~ingress & ~late, happened, hashed=True))
                parts.append(_event_rows(rows, late & ~has_event(events, Event.REJECTED), Happened.REJECTED))
                detail = self.reasons.code(INGRESS_EVENTS)
                parts.append(_event_rows(rows, chosen & ingress, Happened.OBSERVED, detail=detail))
            elif event == Event.STOPPED:
                parts.append(self._stopped(rows, chosen))
            elif event == Event.DROPPED:
                # A forged message outside of any lane was never sent.
                unsent = chosen & ~in_lane & (events["queue_index"] == np.uint64(FORGED))
                detail = self.reasons.code(FORGED_HERE)
                parts.append(_event_rows(rows, unsent, Happened.OBSERVED, detail=detail))
                parts.append(_event_rows(rows, chosen & ~unsent, happened))
            else:
                parts.append(_event_rows(rows, chosen, happened))
        parts.append(_event_rows(rows, control & has_event(events, Event.ACKNOWLEDGED), Happened.EXECUTED))
        return parts

    def _expired(self, events: Frame, spoken: Frame) -> npt.NDArray[np.bool_]:
        """Return a mask of rows that receive a message only to report its expiry.

        The code of such a row differs from the code of the message itself.
        """
        late = np.isin(events["code"], self.expired) & (events["kind"] != Kind.RESPONSE)
        found: npt.NDArray[np.bool_] = late & spoken["known"] & (spoken["code"] != events["code"])
        return found

    def _event_drafts(
        self, events: Frame, spoken: Frame, in_lane: npt.NDArray[np.bool_], loose: npt.NDArray[np.bool_]
    ) -> Frame:
        """Build the drafts of ``events`` without their event."""
        known = spoken["known"]
        control = events["kind"] == Kind.CONTROL
        # A control row has fewer fields than its message; the content of a control message is complete, whatever the
        # receiver makes of it.
        by_entry = known & in_lane & control
        # A call received as a protocol message differs from the sent one. Exceptions: a transfer without payload, which
        # its receiver logs this way with its credit in the value log, and refused messages.
        mistaken = by_entry & has_event(events, Event.RECEIVED) & ~has_event(events, Event.REJECTED)
        mistaken &= spoken["kind"] != Kind.CONTROL
        mistaken[mistaken] = (spoken["hash"][mistaken] != _NO_PAYLOAD).any(axis=1)
        by_entry &= ~mistaken
        amounts = by_entry | (known & in_lane & (spoken["kind"] == Kind.CONTROL))
        both = known & in_lane & ~control & (spoken["kind"] != Kind.CONTROL)
        columns: dict[str, Any] = {name: events[name] for name in (*CALL, *_AMOUNT, "code")}
        for name in (*CALL, *_AMOUNT):
            columns[name] = np.where(amounts if name in _AMOUNT else by_entry, spoken[name], columns[name])
        hashes = spoken["hash"]
        other = mistaken | (both & differs_from_message(events, spoken))
        if other.any():
            hashes = hashes.copy()
            hashes[other] = field_hashes(events.filter(other), hashes[other])
        made = is_chain_made_answer(events)
        if made.any():
            hashes = hashes.copy() if not other.any() else hashes
            hashes[made] = field_hashes(events.filter(made))
        apart = known & ~in_lane
        ends = {
            name: np.where(in_lane | loose, events[name], np.where(apart, spoken[name], np.uint32(NO_CHAIN)))
            for name in LANE_COLUMNS[:2]
        }
        substream = np.where(in_lane | loose, events["substream"], np.where(apart, spoken["substream"], np.uint64(0)))
        index = np.where(in_lane, events["index"], np.where(apart, spoken["index"], np.uint64(NO_PLACE)))
        refused = (events["kind"] == Kind.INGRESS) & (events["via"] == Via.INGRESS) & has_event(events, Event.REJECTED)
        named = np.where(refused, np.uint8(DraftName.REFUSED), np.uint8(DraftName.CALL))
        named = np.where(loose, np.uint8(DraftName.CONTROL), named)
        named = np.where(in_lane & (columns["kind"] == Kind.CONTROL), np.uint8(DraftName.PLACE), named)
        removal = loose & (events["source"] == np.uint32(NO_CHAIN)) & has_event(events, Event.DROPPED)
        return build_drafts(
            len(events),
            log=EVENTS_LOG,
            **columns,
            **ends,
            substream=substream,
            index=index,
            place=events["index"],
            came=events["tick"],
            number=events["number"],
            tick=events["tick"],
            at=events["height"],
            height=events["height"],
            owner=events["chain"],
            chain=events["chain"],
            detail=self._reasons(events),
            named=named,
            # The sender of a control message states its content.
            valued=(events["kind"] != Kind.INGRESS) & (~loose | removal) & ((known & ~mistaken) | ~in_lane | ~control),
            of_programs=(columns["kind"] != Kind.CONTROL) | removal,
            hash=hashes,
        ).with_columns(known=known | made)

    def _reasons(self, events: Frame) -> npt.NDArray[np.int32]:
        codes = self.reasons.codes(events["reason"])
        return np.where(codes == self.reasons.code(""), np.int32(UNSEEN_NAME), codes)

    def _stopped(self, rows: Frame, chosen: npt.NDArray[np.bool_]) -> Frame:
        """Return observations of stopped chains."""
        stopped = rows.filter(chosen)
        names = self.reasons.known()
        texts = ["stopped" if code < 0 else f"stopped {names[code]}" for code in stopped["detail"].tolist()]
        detail = np.array([self.reasons.code(text) for text in texts], dtype=np.int32)
        return _event_rows(rows, chosen, Happened.OBSERVED, detail=detail)

    def _chain_made(self, made: Frame) -> list[Frame]:
        """Return sendings of answers that chains made; the row of their reception implies them."""
        return [draft_sent_events(made, made["chain"], Happened.SENT, log=EVENTS_LOG)]

    def _acknowledged(self, logs: RunLogs, messages: RunMessageIndex) -> list[Frame]:
        """Return acknowledgements of requests, on the chains that execute the answers."""
        answers = logs.events.filter(is_answer_delivery(logs.events))
        asked = messages.last_call(answered_requests(answers))
        if len(answers) and is_forged(messages.rows).any():
            self._resolve_forged(asked, answers, logs.collected, messages)
        known = asked >= 0
        requests, answers = messages.rows.take(asked[known]), answers.filter(known)
        drafts = draft_sent_events(requests, answers["chain"], Happened.ACKNOWLEDGED, log=EVENTS_LOG, hashed=False)
        stamps = {name: answers[name] for name in ("code", "number", "tick", "height")}
        return [drafts.with_columns(**stamps, at=answers["height"], owner=answers["chain"])]

    def _resolve_forged(self, asked: Rows, answers: Frame, collected: Frame, messages: RunMessageIndex) -> None:
        """Write the request of each answer into ``asked`` if position or collection identifies it.

        A forged request may repeat a program's call. If nothing distinguishes them, the program's request was answered:
        its chain refuses an answer to a call that is not open.
        """
        if self.paired is not None:
            substream, of_response = self.paired(answers["substream"])
            chosen = np.flatnonzero(
                of_response & (answers["source"] != answers["destination"]) & is_lane_reference(answers)
            )
            at = messages.find_by_position.last(_reversed(answers.take(chosen), substream[chosen]))
            asked[chosen[at >= 0]] = at[at >= 0]
        elif self.collects_answered:
            # The first answer to a call at a height belongs to its first request collected there.
            places, ranges = collected_places(collected)
            at = messages.find_by_position.last(places)
            of_request = at >= 0
            of_request[of_request] = messages.rows["kind"][at[of_request]] == Kind.REQUEST
            at, chains = at[of_request], collected["chain"][ranges[of_request]]
            requests = messages.rows.take(at).with_columns(height=places["height"][of_request], chain=chains)
            calls = answered_requests(answers).with_columns(chain=answers["chain"])
            names = encode_keys((*CALL, "height", "chain"), requests, calls)
            same = lookup_rows(_ranked(names[0]), _ranked(names[1]), ("name", "rank"), ordered=False)
            asked[same >= 0] = at[same[same >= 0]]

    def _collected(self, logs: RunLogs, messages: RunMessageIndex) -> list[Frame]:
        """Return collections, and acknowledgements of control messages."""
        places, ranges = collected_places(logs.collected)
        found = messages.find_by_position.last(places)
        known = found >= 0
        gone, rows, places = messages.rows.take(found[known]), logs.collected.take(ranges[known]), places.filter(known)
        events = logs.events
        signal = has_event(events, Event.ACKNOWLEDGED) & (events["kind"] != Kind.CONTROL)
        signal &= events["source"] != np.uint32(NO_CHAIN)
        signals = events.filter(signal)
        at = lookup_rows(signals, places, (*LANE_COLUMNS, "height"), ordered=False)
        code, detail = gone["code"].copy(), np.full(len(gone), UNSEEN_NAME, dtype=np.int32)
        code[at >= 0] = signals["code"][at[at >= 0]]
        detail[at >= 0] = self._reasons(signals)[at[at >= 0]]
        drafts = draft_sent_events(gone, rows["chain"], Happened.COLLECTED, log=COLLECTED, detail=detail, hashed=False)
        stamps = {name: rows[name] for name in ("number", "tick", "height")}
        drafts = drafts.with_columns(**stamps, code=code, at=rows["height"], owner=rows["chain"])
        # No program hears the result of a control message; its collection is the only trace.
        control = (gone["kind"] == Kind.CONTROL) & ~_is_logged(
            events.filter(has_event(events, Event.TIMED_OUT)), places
        )
        shown = drafts.filter(control).with_columns(event=np.int8(EVENTS.index(Happened.ACKNOWLEDGED)))
        return [drafts, shown]

    def further(self, logs: RunLogs, new: Frame) -> list[Frame]:
        """Return positions (``LANE_COLUMNS``, ``height``) of messages that other rows show received."""
        return [
            places for places, _, _, _ in self._implied_receptions(logs, new.filter(new["form"] == MessageForm.LANE))
        ]

    def _implied_receptions(self, logs: RunLogs, lanes: Frame) -> list[tuple[Frame, Frame, str, int]]:
        """Return positions of messages whose reception other rows imply.

        A sent response implies its request's reception; a collected request implies its response's. Each entry has the
        positions, the implying rows, their chain column and their log.
        """
        if self.paired is None:
            return []
        found = []
        places, ranges = collected_places(logs.collected)
        rows = logs.collected.take(ranges)
        for named, shown, chain, log in ((lanes, lanes, "source", OUTBOUND), (places, rows, "chain", COLLECTED)):
            substream, of_response = self.paired(named["substream"])
            chosen = (of_response if log == OUTBOUND else ~of_response) & (named["source"] != named["destination"])
            named, shown = named.filter(chosen), shown.filter(chosen)
            found.append((_reversed(named, substream[chosen]), shown, chain, log))
        return found

    def _unlogged(self, logs: RunLogs, lanes: Frame, messages: RunMessageIndex) -> list[Frame]:
        """Return receptions of control messages without a row in ``events``."""
        events = logs.events.filter(is_lane_reference(logs.events))
        parts = []
        for places, implying, chain, log in self._implied_receptions(logs, lanes):
            at = messages.find_by_position.last(places)
            unlogged = (at >= 0) & ~_is_logged(events, places)
            unlogged[unlogged] = messages.rows["kind"][at[unlogged]] == Kind.CONTROL
            received, rows = messages.rows.take(at[unlogged]), implying.filter(unlogged)
            drafts = draft_sent_events(received, rows[chain], Happened.RECEIVED, log=log)
            stamps = {name: rows[name] for name in ("number", "tick", "height")}
            parts.append(drafts.with_columns(**stamps, at=rows["height"], owner=rows[chain]))
        return parts


def draft_queued_sends(messages: Frame) -> Frame:
    """Return drafts of sendings of messages outside of lanes.

    Args:
        messages: Messages, from ``extract_messages``.

    Returns:
        Drafts of ``SENT`` on the chain of each message.
    """
    return draft_sent_events(messages, messages["chain"], Happened.SENT, log=EVENTS_LOG)


def ending_rows(events: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of rows that end the wait of a message named by its call.

    A response refused while it waits is sent all the same, as a reject.

    Args:
        events: Rows of the log ``events``.

    Returns:
        Mask, shape (n,).
    """
    found: npt.NDArray[np.bool_] = has_event(events, Event.REJECTED) & (events["kind"] == Kind.REQUEST)
    return found | has_event(events, Event.TIMED_OUT) | has_event(events, Event.DROPPED)


def _is_logged(events: Frame, places: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of positions that a row of ``events`` mentions at their height."""
    if len(events) == 0 or len(places) == 0:
        return np.zeros(len(places), dtype=bool)
    own, wanted = encode_keys((*LANE_COLUMNS, "height"), events, places)
    return np.isin(wanted, own)


def _message_of_rows(events: Frame, messages: RunMessageIndex) -> Rows:
    """Return the message of each row of ``events``, -1: none."""
    found = np.full(len(events), -1, dtype=np.int64)
    lanes, calls = is_lane_reference(events), is_call_reference(events)
    found[lanes] = messages.find_by_position.last(events.filter(lanes))
    found[calls] = messages.last_call(events.filter(calls))
    # A caller executes the answer of its own chain, if there is one.
    answers = calls & (events["kind"] == Kind.RESPONSE) & has_event(events, Event.EXECUTED)
    if answers.any():
        own = messages.made.last(events.filter(answers))
        found[answers] = np.where(own >= 0, own, found[answers])
    return found


def _ranked(names: U64) -> Frame:
    """Return names with the rank of each row among those of its name."""
    order = stable_order(names)
    rank = np.empty(len(names), dtype=np.uint64)
    rank[order] = group_rows(names[order]).ranks()
    return Frame({"name": names, "rank": rank}, len(names))


def _reversed(named: Frame, substream: U64) -> Frame:
    """Return the positions of the same index in the lanes of the opposite direction."""
    turned = {
        "source": named["destination"],
        "destination": named["source"],
        "substream": substream,
        "index": named["index"],
        "height": named["height"],
    }
    return Frame(turned, len(named))


def _take_known(messages: Frame, rows: Rows) -> Frame:
    """Return the message of each row, with a mask of existing ones (``known``)."""
    known = rows >= 0
    if len(messages) == 0:
        empty = {
            name: np.zeros((len(rows), *messages[name].shape[1:]), messages[name].dtype) for name in messages.names
        }
        return Frame({**empty, "known": known}, len(rows))
    return messages.take(np.maximum(rows, 0)).with_columns(known=known)


def _event_rows(
    rows: Frame, chosen: npt.NDArray[np.bool_], event: Happened, *, detail: Any = None, hashed: bool = False
) -> Frame:
    """Return the drafts of chosen rows for an event. ``detail``: of each row, or of all."""
    drafts = rows.filter(chosen)
    columns: dict[str, Any] = {} if detail is None else {"detail": draft_column("detail", detail, len(drafts))}
    if hashed:
        columns["hashed"] = drafts["known"]
    return drafts.with_columns(event=np.int8(EVENTS.index(event)), **columns).select(DRAFT)


__all__ = ["INGRESS_EVENTS", "EventDerivation", "RangeEvents", "draft_queued_sends", "ending_rows"]
