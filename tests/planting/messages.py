"""Faults of single messages: repeated, never sent, altered, too early or too late ones."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.planting.traffic import ORDERS, Named, Planted, Traffic, later, named, other_content, spans
from tests.spec.audit.delivery import open_message
from tests.spec.audit.ledger import Lane, Message, Row

Kind = Callable[[Traffic, Random], Planted | None]
OVER = ("received", "executed", "answered", "acknowledged", "rejected", "timed_out", "dropped")
"""Events that show that a message arrived, or will not arrive."""


def watched(net: Traffic, message: Message) -> bool:
    """Whether value of this message is watched, and known."""
    rows = [*message.all("sent"), *message.all("received")]
    known = all(row["amount"] is not None and row["asset"] is not None for row in rows)
    return net.ledger.promised(message.lane, "conserved") and known


def valued(net: Traffic, message: Message) -> bool:
    """Whether the value of this message is watched, and not zero."""
    return watched(net, message) and bool(message.first("sent")["amount"])


def again(event: str) -> Kind:
    """It happens again, a block later."""

    def kind(net: Traffic, random: Random) -> Planted | None:
        for message in net.messages(random, event):
            row = message.first(event)
            if row is None or (event == "received" and len(message.all("sent")) != 1):
                continue
            net.take(message)
            extra = net.add(row, **later(row))
            found = [named("exactly_once", f"{event}_again", message)]
            if event == "received" and valued(net, message):
                found.append(named("conservation", "more_received", message))
            return Planted(f"{event}_again", frozenset(found), spans(row, extra, message.first("sent")))
        return None

    return kind


def copied_early(net: Traffic, random: Random) -> Planted | None:
    """It is received before its send or its finality, and then as expected: only the copy is named."""
    for message in net.messages(random, "sent", "received"):
        sent, row = message.first("sent"), message.first("received")
        least = net.ledger.number(message.lane, "final_after") or 0
        if row is None or None in (sent["time"], row["time"]) or row["time"] - sent["time"] < least:
            continue
        unsent = least == 0 or random.random() < 0.5
        here = unsent and row["chain"] == sent["chain"] and None not in (row["height"], sent["height"])
        height = sent["height"] if here else row["height"]
        if height == 0:
            continue
        found = [named("exactly_once", "received_again", message)]
        if unsent:
            found.append(named("causality", "received_before_sent", message))
        if valued(net, message):
            found.append(named("conservation", "more_received", message))
        net.take(message)
        time = sent["time"] - 1 if unsent else sent["time"] + least - 1
        extra = net.add(row, height=None if height is None else height - 1, position=None, time=time)
        return Planted("copied_early", frozenset(found), spans(sent, row, extra))
    return None


def last_place(net: Traffic, lane: Lane, event: str) -> Row | None:
    """The last row of an event in a lane, if no message after it is open and all have positions."""
    rows = [row for message in net.by_lane[lane] for row in message.all(event)]
    placed = all(row["time"] is not None for row in rows) and len({row["height"] is None for row in rows}) == 1
    if not rows or not placed or (net.ledger.promised(lane, "ordered_receives") and net.late_open(lane)):
        return None
    return max(rows, key=lambda row: (row["height"] or 0, row["time"]))


def next_index(net: Traffic, lane: Lane) -> int | None:
    """The index after all recorded ones of a lane; None: it has no indices, or no free one."""
    indices = [message.index for message in net.by_lane[lane] if message.index is not None]
    return max(indices) + 1 if len(indices) == len(net.by_lane[lane]) and max(indices) < 2**63 else None


def seen_until(net: Traffic, lane: Lane) -> int | None:
    """The time until which the input shows that the next message of a lane was not sent."""
    first = [row["first_time"] for row in net.observed if row["chain"] == lane[1] and row["first_height"] in (0, 1)]
    ends = [net.end(lane[1], time, "sent") for time in first if time is not None]
    sent = [m.first("sent")["time"] for m in net.by_lane[lane] if m.index is not None and m.has("sent")]
    if sent and sent[-1] is not None and net.ledger.promised(lane, "numbered"):
        ends.append(net.end(lane[1], sent[-1], "sent"))
    return max((end for end in ends if end is not None), default=None)


def unsent(event: str, check: str) -> Kind:
    """An event of an unsent message, after all others of its lane."""

    def kind(net: Traffic, random: Random) -> Planted | None:
        for lane in net.lanes(random):
            last = last_place(net, lane, event)
            if last is None:
                continue
            index, time = next_index(net, lane), seen_until(net, lane)
            ordered = net.ledger.promised(lane, ORDERS[event])
            if time is not None and time < last["time"] and last["height"] is None and not ordered:
                last = {**last, "time": time}
            own = {"index": index if index is None else index + random.choice((0, 0, 1, 2**20))}
            reason = "not_sent"
            if index is not None and net.ledger.promised(lane, "ordered_sends"):
                sent = (row["time"] for message in net.by_lane[lane] for row in message.all("sent"))
                reason = "not_sent_yet" if any(each is not None and each > last["time"] for each in sent) else reason
            if reason == "not_sent" and (time is None or time < last["time"]):
                continue
            row = net.add(last, **own, message_id=f"forged {len(net.rows)}", answers=None, position=None)
            key = row["message_id"] if index is None else row["index"]
            found: list[Named] = [(check, "violated", reason, lane, key)]
            value = row["amount"] is not None and row["asset"] is not None
            if event == "received" and value and net.ledger.promised(lane, "conserved"):
                found.append(("conservation", "violated", reason, lane, key))
            net.whole.add(lane)
            evidence = ((lane[1], 0, 2**64), *spans(row))
            return Planted(f"{event}_unsent", frozenset(found), evidence)  # type: ignore[arg-type]
        return None

    return kind


def reply_lost(net: Traffic, message: Message, row: Row) -> tuple[list[Named], list[Message]] | None:
    """The effects on the requests that a response answers if their caller does not get this row, and these requests;
    None: unclear."""
    if row["answers"] is None:
        return [], []
    found: list[Named] = []
    asked = []
    other = [r for m in net.ledger.messages for r in m.rows if r["answers"] == row["answers"] and r is not row]
    for request in net.ledger.messages:
        sent = request.first("sent")
        if not sent or sent["message_id"] != row["answers"] or request.lane[1] != message.lane[2]:
            continue
        missing = [] if request.has("acknowledged", "timed_out") else overdue(net, request)
        if missing is None or net.taken(request) or any(r["event"] in ("received", "answered") for r in other):
            return None
        found += missing
        asked.append(request)
    return found, asked


def overdue(net: Traffic, request: Message) -> list[Named] | None:
    """The expected finding of a message without any reply; None: unclear."""
    sent, limit = request.first("sent"), net.ledger.number(request.lane, "answered")
    if limit is None or sent["kind"] != "request":
        return []
    end = None if sent["time"] is None else net.end(request.lane[1], sent["time"], "acknowledged")
    if end is None:
        return None
    return [named("answers", "unanswered", request)] if end - sent["time"] > limit else []


def altered(net: Traffic, random: Random) -> Planted | None:
    """It is received with other content than it was sent with."""
    for message in net.messages(random, "sent", "received"):
        row, sent = message.first("received"), message.first("sent")
        if row is None or row["payload_hash"] is None or sent["payload_hash"] is None:
            continue
        left = any(message.has(event) for event in OVER if event != "received")
        _, above = net.neighbours(message, "received")
        if not left and net.ledger.promised(message.lane, "ordered_receives") and above is not None:
            continue  # it would be skipped, too
        lost: tuple[list[Named], list[Message]] | None = ([], [])
        if not message.has("answered"):
            lost = reply_lost(net, message, row)
        if lost is None:
            continue
        found = [named("authenticity", "content_differs", message), *lost[0]]
        if valued(net, message):
            found.append(named("conservation", "more_received", message))
        for each in (message, *lost[1]):
            net.take(each)
        row["payload_hash"] = other_content(random)
        evidence = (*spans(sent, row), *(((message.lane[2], 0, 2**64),) if lost[0] else ()))
        missed = None if left else open_message(net.ledger, message, sent)
        if missed is not None and missed.verdict == "violated":  # the sent message had no effect
            found.append(named("delivery", missed.reason, message))
            evidence += tuple((chain, 0, 2**64) for chain in message.lane[1:3] if chain is not None)
        return Planted("altered", frozenset(found), evidence)
    return None


def forged_too(net: Traffic, random: Random) -> Planted | None:
    """It is received as sent, and with other content as well."""
    for message in net.messages(random, "sent", "received"):
        row, sent = message.first("received"), message.first("sent")
        if row is None or row["payload_hash"] is None or sent["payload_hash"] is None:
            continue
        found = [named("authenticity", "content_differs", message)]
        if valued(net, message):
            found.append(named("conservation", "more_received", message))
        net.take(message)
        extra = net.add(row, **later(row), payload_hash=other_content(random), answers=None)
        return Planted("forged_too", frozenset(found), spans(sent, row, extra))
    return None


def reused(net: Traffic, random: Random) -> Planted | None:
    """Its index is sent with other content as well."""
    for message in net.messages(random, "sent"):
        sent = message.first("sent")
        if sent["payload_hash"] is None or len(message.all("received")) > 1:
            continue
        found = [named("authenticity", "number_reused", message)]
        if message.has("received") and valued(net, message):
            found.append(named("conservation", "less_received", message))
        net.take(message)
        net.add(sent, payload_hash=other_content(random))
        evidence = spans(sent, message.first("received"))
        return Planted("reused", frozenset(found), tuple((chain, first, 2**64) for chain, first, _ in evidence))
    return None


def early(net: Traffic, random: Random) -> Planted | None:
    """It is received a microsecond before it can be final."""
    for message in net.messages(random, "sent", "received"):
        sent, row = message.first("sent"), message.first("received")
        least = net.ledger.number(message.lane, "final_after")
        if not least or row is None or sent["time"] is None or row["time"] is None:
            continue
        if row["height"] is None and net.ledger.promised(message.lane, "ordered_receives"):
            continue
        net.take(message)
        row["time"] = sent["time"] + least - 1
        return Planted("early", frozenset({named("finality", "too_early", message)}), spans(sent, row))
    return None


def timed_out_too(net: Traffic, random: Random) -> Planted | None:
    """It is received, and times out as well."""
    for message in net.messages(random, "sent", "received"):
        sent, row = message.first("sent"), message.first("received")
        if row is None or message.has("timed_out"):
            continue
        found = [named("exactly_once", "timed_out_and_received", message)]
        if watched(net, message):
            found.append(named("conservation", "received_and_refunded", message))
        if message.has("acknowledged"):
            found.append(named("agreement", "acknowledged_and_timed_out", message))
        net.take(message)
        extra = net.add(sent, event="timed_out", **later(sent), payload_hash=None)
        return Planted("timed_out_too", frozenset(found), spans(sent, row, extra, message.first("acknowledged")))
    return None


def amount(kind: str) -> Kind:
    """Another amount, or another asset, is received than was sent."""
    reasons = {"more": "more_received", "less": "less_received", "asset": "asset_differs"}

    def plant(net: Traffic, random: Random) -> Planted | None:
        for message in net.messages(random, "sent", "received"):
            row = message.first("received")
            if row is None or message.has("timed_out") or not valued(net, message):
                continue
            net.take(message)
            if kind == "asset":
                row["asset"] = "something else"
            else:
                row["amount"] += random.randrange(1, 2**40) << random.randrange(60) if kind == "more" else -1
            found = {named("conservation", reasons[kind], message)}
            evidence = spans(message.first("sent"), row)
            if kind == "less":  # a payment of the rest might come until the end
                evidence = tuple((chain, first, 2**64) for chain, first, _ in evidence)
            return Planted(kind, frozenset(found), evidence)
        return None

    return plant
