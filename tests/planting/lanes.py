"""Faults of lanes: order, skipped indices, in-flight limits, and answers that travel in them."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.planting.messages import OVER, Kind, last_place, next_index, overdue, reply_lost
from tests.planting.traffic import ORDERS, Named, Planted, Span, Traffic, named, other_content, spans
from tests.spec.audit.checks import ENDED_AT_SOURCE
from tests.spec.audit.ledger import Lane, Message, Row


def overtakes(event: str) -> Kind:
    """The event happens to a message in the block before that of its predecessor."""

    def kind(net: Traffic, random: Random) -> Planted | None:
        for message in net.messages(random, event):
            row = message.first(event)
            if message.index is None or row is None or not net.ledger.promised(message.lane, ORDERS[event]):
                continue
            below, _ = net.neighbours(message, event)
            if below is None or (below["height"] is None) != (row["height"] is None) or below["time"] is None:
                continue
            if below["height"] == 0:
                continue
            place = {"height": None if below["height"] is None else below["height"] - 1, "time": below["time"] - 1}
            if not may_be_at(net, message, event, place):
                continue
            net.take(message, lane=True)
            row.update(place, position=None)
            found = {named("order", f"{event}_out_of_order", message)}
            return Planted(f"{event}_overtakes", frozenset(found), spans(row, below))
        return None

    return kind


def may_be_at(net: Traffic, message: Message, event: str, place: Row) -> bool:
    """Whether an event of a message may be at an earlier position without violating more than the lane's order."""
    sent, received = message.first("sent"), message.first("received")
    if event == "sent":
        limit, reply = net.ledger.number(message.lane, "answered"), message.first("acknowledged")
        late = limit is not None and (not reply or reply["time"] - place["time"] > limit)
        return not late and net.room(message.lane)
    for cause in (sent, received) if event == "acknowledged" else (sent,):
        if cause is None:
            continue
        here = cause["chain"] == message.first(event)["chain"]
        if not here and net.ledger.promised(message.lane, "causal") and place["height"] == cause["height"]:
            return False  # two such messages could close a cycle
        if here and None not in (place["height"], cause["height"]) and place["height"] < cause["height"]:
            return False
        if cause["time"] is None or place["time"] < cause["time"]:
            return False
    least = net.ledger.number(message.lane, "final_after")
    return event != "received" or not sent or not least or bool(place["time"] - sent["time"] >= least)


ENDS = ("acknowledged", "timed_out", "collected", "dropped", "rejected")

BEFORE = (
    *(("sent", "committed"), ("sent", "received"), ("sent", "acknowledged"), ("sent", "timed_out")),
    *(("received", "executed"), ("received", "answered"), ("received", "acknowledged")),
)


def before(cause: str, effect: str) -> Kind:
    """An effect comes before its cause: a block earlier on one chain, a microsecond earlier on two."""

    def kind(net: Traffic, random: Random) -> Planted | None:
        for message in net.messages(random, cause, effect):
            one, other = message.first(cause), message.first(effect)
            if one is None or other is None:
                continue
            here = one["chain"] is not None and one["chain"] == other["chain"]
            heights = here and one["height"] is not None and other["height"] is not None
            if (heights and not one["height"]) or (not heights and None in (one["time"], other["time"])):
                continue
            found = {named("causality", f"{effect}_before_{cause}", message)}
            sent = message.first("sent")
            if heights and effect in ("received", "acknowledged", "timed_out"):
                ordered = ORDERS.get(effect)
                if ordered is not None and net.ledger.promised(message.lane, ordered):
                    continue  # other lanes have this fault alone
                received = message.first("received")
                if effect == "acknowledged" and received and received["chain"] == other["chain"]:
                    continue
            elif not heights and effect == "acknowledged" and sent and one["time"] <= sent["time"]:
                continue
            least = net.ledger.number(message.lane, "final_after")
            if effect == "received" and not heights and least:
                found.add(named("finality", "too_early", message))
            if other["height"] is None and effect in ORDERS and net.ledger.promised(message.lane, ORDERS[effect]):
                continue
            net.take(message)
            if heights:
                other["height"] = one["height"] - 1
            else:
                other["time"] = one["time"] - 1
            return Planted(f"{effect}_before_{cause}", frozenset(found), spans(one, other))
        return None

    return kind


def skipped(net: Traffic, random: Random) -> Planted | None:
    """A lane continues after a message that never arrived."""
    for message in net.messages(random, "sent", "received"):
        lane, row = message.lane, message.first("received")
        if row is None or message.index is None or not net.ledger.promised(lane, "ordered_receives"):
            continue
        below, above = net.neighbours(message, "received")
        if above is None or above["height"] is None or (below is not None and below["height"] is None):
            continue
        low, lowest = (1, -1) if below is None else (below["height"], below["index"])
        others = (m for m in net.by_lane[lane] if m.index is not None and lowest < m.index < above["index"])
        if any(other.is_open for other in others) or not net.window(
            lane[2], "height", low, above["height"], "received"
        ):
            continue
        if not all(net.ledger.reaches(message.first("sent"), lane, event, above["time"]) for event in ENDED_AT_SOURCE):
            continue
        lost = reply_lost(net, message, row)
        missing = [] if answers_of(net, message) else overdue(net, message)
        if lost is None or missing is None or not (message.has("collected") or net.room(lane)):
            continue
        for each in (message, *lost[1]):
            net.take(each)
        net.whole.add(lane)
        net.remove(r for r in message.rows if r["event"] in OVER)
        found = {named("gaps", "skipped", message), *lost[0], *missing}
        since = message.first("sent")["height"]  # from then on its timeout would be visible
        evidence = [(lane[2], 0 if below is None else low, above["height"]), (lane[1], since, 2**64)]
        evidence += ends(lane) if lost[0] or missing else ()
        return Planted("skipped", frozenset(found), tuple(evidence))  # type: ignore[arg-type]
    return None


def ends(lane: Lane) -> tuple[Span, ...]:
    """All heights of both ends of a lane."""
    return tuple((chain, 0, 2**64) for chain in lane[1:3] if chain is not None)


def answers_of(net: Traffic, request: Message) -> list[Message]:
    """The responses to a message that its chain received."""
    name = request.first("sent")["message_id"]
    return [
        message
        for message in net.ledger.messages
        if message.lane[0] == request.lane[0] and message.lane[2] == request.lane[1] and name is not None
        if any(row["answers"] == name and row["event"] in ("received", "answered") for row in message.rows)
    ]


def requests(net: Traffic, random: Random) -> list[tuple[Message, int]]:
    """Requests of lanes with a response deadline, and the deadline."""
    found = [(message, net.ledger.number(message.lane, "answered")) for message in net.messages(random, "sent")]
    return [
        (message, limit) for message, limit in found if limit is not None and message.first("sent")["kind"] == "request"
    ]


def unanswered(net: Traffic, random: Random) -> Planted | None:
    """A request is not answered in time within the input: its answer is removed with all its rows."""
    for message, _ in requests(net, random):
        answers = answers_of(net, message)
        own = message.all("acknowledged") + message.all("timed_out")
        gone = [*own, *(row for answer in answers for row in answer.rows)]
        found = overdue(net, message)
        if not gone or not found or any(net.taken(answer) for answer in answers):
            continue
        opens = own and not message.has("received", "executed", "answered", "rejected", "dropped")
        if opens and net.ledger.promised(message.lane, "ordered_receives"):
            continue  # it would be skipped, too
        if own and not message.has("collected") and not net.room(message.lane):
            continue
        for each in (message, *answers):
            net.take(each)
        net.remove(gone)
        return Planted("unanswered", frozenset(found), ends(message.lane)[:1])
    return None


def late(net: Traffic, random: Random) -> Planted | None:
    """A request is answered a microsecond after its deadline."""
    for message, limit in requests(net, random):
        sent, answers = message.first("sent"), answers_of(net, message)
        own = message.all("acknowledged") + message.all("timed_out")
        if len(own) + len(answers) != 1 or sent["time"] is None:
            continue
        reply = answers[0] if answers else message
        rows = own or [row for row in reply.rows if row["event"] in ("received", "answered")]
        if len(rows) != 1 or rows[0]["time"] is None or net.taken(reply) or (answers and reply.has("acknowledged")):
            continue
        if rows[0]["height"] is None and any(net.ledger.promised(reply.lane, promise) for promise in ORDERS.values()):
            continue
        net.take(message)
        net.take(reply)
        rows[0]["time"] = sent["time"] + limit + 1
        return Planted("late", frozenset({named("answers", "late", reply)}), spans(sent, rows[0]))
    return None


def behind_all(net: Traffic, template: Message, **changes: Any) -> Message | None:
    """Send a copy of a message after all messages of its lane, with the same events."""
    lane = template.lane
    index = next_index(net, lane)
    rows = [row for message in net.by_lane[lane] for row in message.rows]
    placed = all(row["time"] is not None and row["height"] is not None for row in rows)
    if index is None or not placed or not template.has("sent", "received") or last_place(net, lane, "received") is None:
        return None
    heights = {
        chain: max(row["height"] for row in rows if row["chain"] == chain) for chain in {r["chain"] for r in rows}
    }
    time = max(row["time"] for row in rows)
    least = net.ledger.number(lane, "final_after") or 0
    new = [
        net.add(
            row,
            **{"index": index, "message_id": f"planted {index}", "position": None, "height": heights[row["chain"]]},
            **{"time": time if row["event"] in ("sent", "committed") else time + least, **changes},
        )
        for row in template.rows
    ]
    net.whole.add(lane)
    return Message(new)


def responses(net: Traffic, random: Random) -> list[Message]:
    found = list(net.messages(random, "sent", "received"))
    return [m for m in found if m.first("received") and m.first("received")["answers"] is not None]


def answered_twice(net: Traffic, random: Random) -> Planted | None:
    """A request gets a second response."""
    for message in responses(net, random):
        new = behind_all(net, message, payload_hash=other_content(random))
        if new is None:
            continue
        net.take(message)
        found = {("exactly_once", "violated", "answered_twice", message.lane, new.index)}
        return Planted("answered_twice", frozenset(found), spans(*message.rows, *new.rows))
    return None


def no_request(net: Traffic, random: Random) -> Planted | None:
    """A response arrives without a request."""
    for message in responses(net, random):
        caller = message.lane[2]
        rows = (row for other in net.by_lane[message.lane] for row in other.rows if row["chain"] == caller)
        last = max((row["height"] or 0 for row in rows), default=0)
        if not net.window(caller, "height", 1, last, "sent"):
            continue
        new = behind_all(net, message, answers=f"nothing {len(net.rows)}")
        if new is None:
            continue
        found = {("answers_without_request", "violated", "no_request", message.lane, new.index)}
        return Planted("no_request", frozenset(found), (*ends((None, caller)), *spans(*new.rows)))
    return None


def over_capacity(net: Traffic, random: Random) -> Planted | None:
    """A lane has one in-flight message more than its capacity."""
    for lane in net.lanes(random, "capacity"):
        capacity, index, last = (
            net.ledger.number(lane, "capacity"),
            next_index(net, lane),
            last_place(net, lane, "sent"),
        )
        if capacity is None or capacity > 1_000 or index is None or last is None or last["height"] is None:
            continue
        if not all(net.window(lane[1], "height", last["height"], last["height"], event) for event in ENDS):
            continue
        flying = net.in_flight(lane, last["height"])
        new = {"position": None, "kind": "control", "answers": None}
        for number in range(capacity + 1 - flying):
            net.add(last, **new, index=index + number, message_id=f"planted {index + number}")
        net.whole.add(lane)
        found: set[Named] = {("back_pressure", "violated", "over_capacity", lane, index + capacity - flying)}
        return Planted("over_capacity", frozenset(found), ((lane[1], 0, last["height"]),))  # type: ignore[arg-type]
    return None
