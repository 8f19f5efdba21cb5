"""Faulty endings of messages: lost, stuck, late, failed, repeated and contradictory ones.

They are planted in ledgers of ``honest.Endings``. Unlike ``messages``, they say what is noted, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.planting.honest import DEADLINE, LAST, OFFSETS, TICK
from tests.planting.traffic import Named, Traffic, key_of
from tests.spec.audit.ledger import Message, Row

Ending = Callable[[Traffic, Random], set[Named] | None]
"""Plants one fault, and returns the expected findings; None: there is no message for it."""

AT_DESTINATION = ("received", "executed", "answered", "failed", "rejected", "dropped")


def found(net: Traffic, message: Message, *reasons: tuple[str, str, str]) -> set[Named]:
    """Return the expected finding of a message, which is not used again."""
    net.take(message)
    return {(check, verdict, reason, message.lane, key_of(message)) for check, verdict, reason in reasons}


def lane_promises(net: Traffic, message: Message, *names: str) -> bool:
    return all(net.ledger.promised(message.lane, name) for name in names)


def some(
    net: Traffic, random: Random, *events: str, without: tuple[str, ...] = (), loose: bool = False
) -> Iterator[Message]:
    """Yield messages with one row each of some events and none of others; ``loose``: of unordered lanes."""
    for message in net.messages(random, "sent", *events):
        if message.has(*without) or (loose and lane_promises(net, message, "ordered_receives")):
            continue
        yield message


def only_sent(net: Traffic, message: Message) -> Row:
    """Remove all events of a message after its send, and its limits."""
    sent: Row = message.first("sent")
    net.remove(row for row in message.rows if row is not sent)
    sent |= {"timeout_height": None, "timeout_time": None}
    return sent


def at(chain: Any, tick: int, **known: object) -> Row:
    return {"chain": chain, "height": OFFSETS[chain] + tick, "time": tick * TICK, **known}


def dropped(net: Traffic, random: Random) -> set[Named] | None:
    """It is dropped for a cause that its protocol does not declare."""
    for message in some(net, random):
        sent = only_sent(net, message)
        net.add(sent, event="dropped", detail="overflow", **at(message.lane[2], sent["time"] // TICK + 1))
        return found(net, message, ("delivery", "violated", "dropped"))
    return None


def lost(net: Traffic, random: Random) -> set[Named] | None:
    """It has no further event, and none will follow."""
    for message in some(net, random, loose=True):
        if lane_promises(net, message, "settled"):
            only_sent(net, message)
            return found(net, message, ("delivery", "violated", "lost"))
    return None


def overdue(net: Traffic, random: Random) -> set[Named] | None:
    """It has no further event until its deadline."""
    for message in some(net, random, loose=True):
        others = [other for other in net.by_lane[message.lane] if other is not message]
        shown = any(other.has("received", "acknowledged") for other in others)
        limited = lane_promises(net, message, "received") or lane_promises(net, message, "expected")
        if shown and limited and message.first("sent")["time"] + DEADLINE < LAST * TICK:
            only_sent(net, message)
            return found(net, message, ("delivery", "violated", "overdue"))
    return None


def failed(net: Traffic, random: Random) -> set[Named] | None:
    """Its execution fails."""
    for message in some(net, random, "received", without=("failed", "answered", "acknowledged", "dropped")):
        if not any(row["code"] for row in message.all("executed")):
            net.remove(message.all("executed"))
            net.add(message.first("received"), event="failed")
            return found(net, message, ("delivery", "noted", "failed"))
    return None


def both_executions(net: Traffic, random: Random) -> set[Named] | None:
    """It is executed successfully, and fails."""
    for message in some(net, random, "received", "executed", without=("failed", "answered", "acknowledged", "dropped")):
        if not any(row["code"] for row in message.rows):
            net.add(message.first("executed"), event="failed")
            reasons = ("delivery", "noted", "failed"), ("agreement", "violated", "executed_and_failed")
            return found(net, message, *reasons)
    return None


def late(net: Traffic, random: Random) -> set[Named] | None:
    """It arrives after its deadline."""
    for message in some(net, random, "received", without=("dropped",), loose=True):
        promised = lane_promises(net, message, "received")
        by = message.first("sent")["time"] + DEADLINE + TICK - message.first("received")["time"]
        rows = [row for row in message.rows if row["event"] != "sent"]
        if not (promised or lane_promises(net, message, "expected")) or max(r["time"] for r in rows) + by > LAST * TICK:
            continue
        for row in message.rows:
            row |= {"timeout_height": None, "timeout_time": None}
        for row in rows:
            row |= {"time": row["time"] + by, "height": row["height"] + by // TICK}
        return found(net, message, ("delivery", "violated" if promised else "noted", "late"))
    return None


def redundant(net: Traffic, random: Random) -> set[Named] | None:
    """A relayer delivers it again, and no handler runs again."""
    for message in some(net, random, "received", "executed", without=("failed", "dropped")):
        if not any(row["code"] for row in message.all("executed")):
            net.add(message.first("received"), **later_by_a_tick(message), transaction="of another relayer")
            return found(net, message, ("exactly_once", "noted", "redundant_relay"))
    return None


def partial(net: Traffic, random: Random) -> set[Named] | None:
    """It is received in two parts."""
    for message in some(net, random, "received", without=("executed", "failed", "acknowledged", "dropped")):
        receipt = message.first("received")
        part = random.randrange(1, receipt["amount"])
        net.add(receipt, **later_by_a_tick(message), amount=receipt["amount"] - part)
        receipt["amount"] = part
        return found(net, message, ("exactly_once", "noted", "partial_receipt"))
    return None


def later_by_a_tick(message: Message) -> Row:
    receipt = message.first("received")
    return {"height": receipt["height"] + 1, "time": receipt["time"] + TICK}


def both_ends(net: Traffic, random: Random) -> set[Named] | None:
    """It is acknowledged, and times out."""
    for message in some(net, random, "received", "acknowledged", without=("failed", "refunded", "dropped")):
        if any(row["code"] for row in message.rows):
            continue
        for row in message.rows:
            row |= {"timeout_height": None, "timeout_time": None}
        net.add(message.first("acknowledged"), event="timed_out", code=None)
        reasons = [("agreement", "acknowledged_and_timed_out"), ("exactly_once", "timed_out_and_received")]
        reasons += [("conservation", "received_and_refunded")] * lane_promises(net, message, "conserved")
        reasons += [("agreement", "not_refunded")] * lane_promises(net, message, "refunds_recorded")
        return found(net, message, *((check, "violated", reason) for check, reason in reasons))
    return None


def unsupported(net: Traffic, random: Random) -> set[Named] | None:
    """It is acknowledged without a receipt at its destination, in a window that would show one."""
    for message in some(net, random, "received", "acknowledged", without=("failed", "refunded", "dropped")):
        if message.lane[2] != "d" and not any(row["code"] for row in message.rows):
            known = message.first("acknowledged")["time"]  # when it has arrived according to the input
            net.remove(row for row in message.rows if row["event"] in AT_DESTINATION)
            reasons = [("agreement", "violated", "acknowledged_not_received")]
            if known - message.first("sent")["time"] > DEADLINE:
                verdicts = {"received": "violated", "expected": "noted"}
                promised = [verdict for name, verdict in verdicts.items() if lane_promises(net, message, name)]
                reasons += [("delivery", verdict, "late") for verdict in promised]
            return found(net, message, *reasons)
    return None


def too_early(net: Traffic, random: Random) -> set[Named] | None:
    """It times out a microsecond before its limit, within the clock tolerance."""
    for message in some(net, random, "timed_out"):
        slack = sum(net.ledger.tolerance(chain) for chain in message.lane[1:3])
        limit = message.first("timed_out")["time"] + slack + 1
        for row in message.rows:
            row |= {"timeout_height": None, "timeout_time": limit}
        return found(net, message, ("agreement", "violated", "timed_out_too_early"))
    return None


def below_its_limit(net: Traffic, random: Random) -> set[Named] | None:
    """It times out, and later receipts of its destination have lower heights than its limit."""
    receipts = [
        each for each in some(net, random, "received") if any(row["timeout_height"] is not None for row in each.rows)
    ]
    for message in some(net, random, "timed_out"):
        slack = sum(net.ledger.tolerance(chain) for chain in message.lane[1:3])
        known = message.first("timed_out")["time"] + slack
        for other in receipts:
            receipt = other.first("received")
            if other.lane[2] == message.lane[2] and receipt["time"] > known:
                for row in message.rows:
                    row |= {"timeout_height": receipt["height"] + 1, "timeout_time": None}
                net.take(other)
                return found(net, message, ("agreement", "violated", "timed_out_too_early"))
    return None


def kept(net: Traffic, random: Random) -> set[Named] | None:
    """It failed or timed out, and its value was not returned."""
    for message in some(net, random, "refunded"):
        net.remove(message.all("refunded"))
        return found(net, message, ("agreement", "violated", "not_refunded"))
    return None


ENDINGS: dict[str, Ending] = {
    "dropped": dropped,
    "lost": lost,
    "overdue": overdue,
    "failed": failed,
    "both_executions": both_executions,
    "late": late,
    "redundant": redundant,
    "partial": partial,
    "both_ends": both_ends,
    "unsupported": unsupported,
    "too_early": too_early,
    "below_its_limit": below_its_limit,
    "kept": kept,
}

__all__ = ["ENDINGS", "Ending"]
