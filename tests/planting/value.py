"""Faults of value: wrong payments, and value that never left its source."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.planting.messages import last_place, next_index, seen_until, valued
from tests.planting.traffic import Named, Planted, Span, Traffic, named, spans
from tests.spec.audit.ledger import EVERY, Row
from tests.spec.audit.value import ABROAD, HOLDER, key_of, key_of_message

RELAYER: Row = {"from": HOLDER, "to": "relayer", "why": "fee"}


def pay(net: Traffic, row: Row, amount: int, **changes: Any) -> Row:
    """Make a payment from the message of a row at its position."""
    names = ("protocol", "source", "destination", "lane", "index", "message_id", "chain", "height", "tick", "time")
    paid = {**{name: row[name] for name in (*names, "asset")}, "position": None, "amount": amount, **RELAYER, **changes}
    net.value.append(paid)
    net.used[id(paid)] = paid
    return paid


def until_end(*rows: Row | None) -> tuple[Span, ...]:
    """From rows to the end of the recorded input of their chains: a payment might come there."""
    return tuple((chain, first, 2**64) for chain, first, _ in spans(*rows))


def paid_too(net: Traffic, random: Random) -> Planted | None:
    """A payment from a fully received message."""
    for message in net.messages(random, "sent", "received"):
        row = message.first("received")
        if row is None or message.has("timed_out") or not valued(net, message):
            continue
        net.take(message)
        paid = pay(net, random.choice((row, message.first("sent"))), random.randrange(1, 2**40), asset=row["asset"])
        found = {named("conservation", "more_received", message)}
        return Planted("paid_too", frozenset(found), spans(message.first("sent"), row, paid))
    return None


def paid_beyond(net: Traffic, random: Random) -> Planted | None:
    """More is paid from an unreceived message than it was sent with."""
    for message in net.messages(random, "sent"):
        sent = message.first("sent")
        if message.all("received") or not valued(net, message):
            continue
        net.take(message)
        paid = pay(net, sent, sent["amount"] + 1)
        return Planted("paid_beyond", frozenset({named("conservation", "more_paid", message)}), spans(sent, paid))
    return None


def payment_lost(net: Traffic, random: Random) -> Planted | None:
    """Less is received than was sent, and nobody received the rest."""
    paid = {key_of(row): row for row in net.value if row["from"] == HOLDER and row["why"] != "reverted"}
    for message in net.messages(random, "sent", "received"):
        row, sent, own = message.first("received"), message.first("sent"), paid.get(key_of_message(message))
        if row is None or own is None or message.has("timed_out") or not valued(net, message) or not own["amount"]:
            continue
        net.take(message)
        net.value = [each for each in net.value if each is not own]
        found = {named("conservation", "less_received", message)}
        return Planted("payment_lost", frozenset(found), until_end(sent, row))
    return None


def paid_other_asset(net: Traffic, random: Random) -> Planted | None:
    """Another asset is paid from a message than it was sent with."""
    for message in net.messages(random, "sent"):
        if not valued(net, message) or (message.all("received") and not message.has("received")):
            continue
        net.take(message)
        paid = pay(net, message.first("sent"), 1, asset="something else")
        found = {named("conservation", "asset_differs", message)}
        return Planted("paid_other_asset", frozenset(found), spans(*message.rows, paid))
    return None


def paid_unsent(net: Traffic, random: Random) -> Planted | None:
    """A payment from an unsent message, after all others of its lane."""
    for lane in net.lanes(random, "conserved"):
        last = last_place(net, lane, "received")
        index, time = next_index(net, lane), seen_until(net, lane)
        if last is None or last["asset"] is None or index is None or time is None or time < last["time"]:
            continue
        net.whole.add(lane)
        paid = pay(net, {**last, "index": index + random.choice((0, 1, 2**20)), "message_id": None}, 1)
        found: set[Named] = {("conservation", "violated", "paid_not_sent", lane, paid["index"])}
        evidence = ((lane[1], 0, 2**64), *spans(paid))
        return Planted("paid_unsent", frozenset(found), evidence)  # type: ignore[arg-type]
    return None


def came_unsent(net: Traffic, random: Random) -> Planted | None:
    """More of an asset comes from another chain than ever left it."""
    rows = [row for row in net.value if str(row["from"]).startswith(ABROAD)]
    random.shuffle(rows)
    for row in rows:
        one, two = sorted((row["chain"], row["from"].removeprefix(ABROAD)))
        movements = between(net, one, two)
        if any(id(each) in net.used or not shown(net, each, one, two) for each, _ in movements):
            continue
        away = sum(sign * each["amount"] for each, sign in movements if each["asset"] == row["asset"])
        forged = {**row, "amount": away + random.randrange(1, 2**20)}
        net.value.append(forged)
        net.used |= {id(each): each for each in (forged, *(each for each, _ in movements))}
        found: set[Named] = {("conservation", "violated", "more_came_than_left", (None, one, two, None), None)}
        return Planted("came_unsent", frozenset(found), ((one, 0, 2**64), (two, 0, 2**64)))
    return None


def between(net: Traffic, one: str, two: str) -> list[tuple[Row, int]]:
    """The movements between a chain and another one, with the sign by which they count as departed."""
    holders = {(one, ABROAD + two), (two, ABROAD + one)}
    ends = (("to", 1), ("from", -1))
    return [(row, sign) for row in net.value for end, sign in ends if (row["chain"], row[end]) in holders]


def shown(net: Traffic, row: Row, one: str, two: str) -> bool:
    """Whether a movement is known, and all that left the other chain until then."""
    end = net.ledger.all_until(two if row["chain"] == one else one, EVERY, "value")
    return None not in (row["asset"], row["amount"], row["time"], end) and row["time"] <= end
