"""The checks ``delivery`` and ``agreement``, each as it is stated."""

from __future__ import annotations

from typing import Any

from tests.spec.audit.ledger import ARRIVALS, Finding, Ledger, Message, Row, lane_of

Checked = tuple[int, list[Finding]]


def named(check: str, verdict: str, reason: str, row: Row, magnitude: float | None = None) -> Finding:
    return Finding(check, verdict, reason, lane_of(row), row["index"], row["source_row"], magnitude)


def delivery(ledger: Ledger) -> Checked:
    """Every message that a program sent is executed, answered, refunded, or pending within its deadline."""
    examined, found = 0, []
    for message in ledger.messages:
        found += [
            named("delivery", "violated", "chain_stopped", row)
            for row in message.all("observed")
            if row["kind"] == "control" and (row["detail"] or "").split(" ")[0] == "stopped"
        ]
        sent = message.first("sent")
        known = sent or (message.first("dropped") if message.state in ("dropped", "discarded") else None)
        if not known or message.no_program_sent or known["kind"] == "control":
            continue
        examined += 1
        if message.state in ("dropped", "discarded"):
            row = message.first("dropped")
            declared = row["detail"] is not None and row["detail"] in ledger.causes(message.lane)
            verdict, reason = ("noted", "dropped_as_declared") if declared else ("violated", "dropped")
            found.append(named("delivery", verdict, reason, row))
        elif message.state == "pending":
            found.append(open_message(ledger, message, sent))
        elif message.state == "failed":
            found.append(named("delivery", "noted", "failed", message.first("failed") or message.first("executed")))
        if message.state in ("delivered", "executed", "failed", "answered", "rejected", "refunded"):
            found += late(ledger, message, sent)
    return examined, found


def open_message(ledger: Ledger, message: Message, sent: Row) -> Finding:
    if ledger.is_carried(message):
        return named("delivery", "noted", "carried_on", sent)
    limit, _ = deadline(ledger, message.lane)
    if ledger.promised(message.lane, "settled") and sent["detail"] != "expired":
        end, _, whole = ledger.arrivals_until(message.lane, sent["time"], limit or 0)
        if ledger.declares(message.lane[2], message.lane, "received"):
            whole = whole and (ledger.last is None or (end is not None and end >= ledger.last))
        verdict, reason = ("violated", "lost") if whole else ("unknown", "arrival_not_covered")
        return named("delivery", verdict, reason, sent)
    if sent["time"] is None and limit is not None:
        return named("delivery", "unknown", "time_unseen", sent)
    end, decided, whole = ledger.arrivals_until(message.lane, sent["time"], limit or 0)
    age = 0 if end is None or sent["time"] is None else end - sent["time"]
    if limit is None or age <= limit:
        verdict, reason = ("noted", "pending") if whole else ("unknown", "arrival_not_covered")
        return named("delivery", verdict, reason, sent)
    if decided or ledger.shows_ends(message.lane):
        return named("delivery", "violated", "overdue", sent, age)
    return named("delivery", "unknown", "ends_not_recorded", sent, age)


def late(ledger: Ledger, message: Message, sent: Row) -> list[Finding]:
    limit, promised = deadline(ledger, message.lane)
    if limit is None:
        return []
    events = ("received", "executed", "failed", "answered", "rejected", "acknowledged")
    row = next(row for event in events if (row := message.first(event)))
    if sent["time"] is None or row["time"] is None:
        return [named("delivery", "unknown", "time_unseen", row)] if promised and row["time"] is None else []
    delay = row["time"] - sent["time"]
    return [named("delivery", "violated" if promised else "noted", "late", row, delay)] if delay > limit else []


def deadline(ledger: Ledger, lane: Any) -> tuple[int | None, bool]:
    limit = ledger.number(lane, "received")
    return (limit, True) if limit is not None else (ledger.number(lane, "expected"), False)


def agreement(ledger: Ledger) -> Checked:
    """The source and the destination of a message report one end of it."""
    examined, found = 0, []
    for message in ledger.messages:
        ended, limited = message.has("acknowledged", "timed_out", "refunded"), limits_of(message) != (None, None)
        if not message.has("sent"):
            continue
        found += contradictions(ledger, message)
        if not (ended or limited):
            continue
        examined += 1
        acknowledged, timed_out = message.first("acknowledged"), message.first("timed_out")
        if acknowledged and timed_out:
            found.append(named("agreement", "violated", "acknowledged_and_timed_out", timed_out))
        taken = ("received", "executed", "failed", "answered", "rejected", "redundant")
        if acknowledged and not message.has(*taken):
            found += unsupported(ledger, message, acknowledged)
        found += limits(ledger, message)
        carries = message.first("sent")["amount"] is not None
        if ledger.promised(message.lane, "refunds_recorded") and carries and not message.has("refunded"):
            if message.state in ("timed_out", "contradicted") and timed_out:
                found.append(named("agreement", "violated", "not_refunded", timed_out))
            elif message.undone and acknowledged:
                found.append(named("agreement", "violated", "not_refunded", timed_out or acknowledged))
    return examined, found


def unsupported(ledger: Ledger, message: Message, acknowledged: Row) -> list[Finding]:
    destination, sent = message.lane[2], message.first("sent")
    if destination == message.lane[1]:
        return []
    if not any(ledger.windows(destination, message.lane, ARRIVALS, kind) for kind in ("height", "time")):
        arrives = any(other.lane == message.lane and other.all("received") for other in ledger.messages)
        return [named("agreement", "unknown", "receipt_not_covered", acknowledged)] if arrives else []
    times = sent["time"], acknowledged["time"]
    within = ledger.windows(destination, message.lane, ARRIVALS, "time")
    covered = None not in times and any(first <= min(times) and max(times) <= last for first, last in within)
    verdict, reason = ("violated", "acknowledged_not_received") if covered else ("unknown", "receipt_not_covered")
    return [named("agreement", verdict, reason, acknowledged)]


def contradictions(ledger: Ledger, message: Message) -> list[Finding]:
    """Two ends of which one excludes the other, and a refund of more than was sent."""

    def erred(event: str) -> list[Row]:
        return [row for row in message.all(event) if row["code"] and row["kind"] == "request"]

    def succeeded(event: str) -> list[Row]:
        return [row for row in message.all(event) if row["code"] == 0]

    def violated(reason: str, row: Row) -> Finding:
        return named("agreement", "violated", reason, row)

    sent, refunded = message.first("sent"), message.first("refunded")
    found = []
    if refunded and more_than(refunded, sent):
        found.append(violated("refund_exceeds_amount", refunded))
    if sent["kind"] != "request":
        return found
    failed = message.all("failed") + erred("executed")
    executed = [row for row in message.all("executed") if not any(row is each for each in failed)]
    run = [row for event in ("executed", "failed", "answered") for row in message.all(event)]
    if executed and failed:
        found.append(violated("executed_and_failed", message.first("failed") or message.first("executed")))
    rejected = message.first("rejected")
    chains = [message.first(event)["chain"] for event in ("executed", "failed", "answered") if message.has(event)]
    if rejected and rejected["chain"] is not None and rejected["chain"] in chains:
        found.append(violated("executed_and_rejected", rejected))
    if run and message.has("timed_out") and not message.has("received"):
        found.append(violated("executed_and_timed_out", message.first("timed_out")))
    good, bad = succeeded("answered"), erred("answered")
    returned = (
        refunded
        and not message.has("timed_out")
        and not ledger.promised(message.lane, "refund_messages")
        and not more_than(sent, refunded)
    )
    acknowledged, fine, wrong = message.first("acknowledged"), succeeded("acknowledged"), erred("acknowledged")
    if (executed or (fine and not wrong)) and not failed and not bad and returned:
        found.append(violated("executed_and_refunded", refunded))
    if failed and not executed and fine:
        found.append(violated("failed_and_acknowledged", acknowledged))
    if (good and not bad and wrong) or (bad and not good and fine):
        found.append(violated("acknowledged_another_answer", acknowledged))
    return found


def more_than(one: Row, other: Row) -> bool:
    """Whether the amount of a row is more than that of another, of the same asset."""
    if None in (one["amount"], other["amount"]) or one["asset"] != other["asset"]:
        return False
    return int(one["amount"]) > int(other["amount"])


def limits_of(message: Message) -> tuple[int | None, int | None]:
    """The height and the time from which on a message may no longer be received."""
    heights = [row["timeout_height"] for row in message.rows if row["timeout_height"] is not None]
    times = [row["timeout_time"] for row in message.rows if row["timeout_time"] is not None]
    return min(heights, default=None), min(times, default=None)


def heights_after(ledger: Ledger, chain: str | None, time: int) -> list[int]:
    """The heights at which a chain received messages with a limit by height, after a time."""
    receipts = [
        message.first("received")
        for message in ledger.messages
        if message.lane[2] == chain is not None and chain not in ledger.restarts and limits_of(message)[0] is not None
    ]
    seen = [row for row in receipts if row and None not in (row["height"], row["time"])]
    return [row["height"] for row in seen if row["time"] > time and row["chain"] in (None, chain)]


def limits(ledger: Ledger, message: Message) -> list[Finding]:
    height, time = limits_of(message)
    found: list[Finding] = []
    if height is None and time is None:
        return found
    timed_out, receipt = message.first("timed_out"), message.first("received")
    if timed_out and timed_out["time"] is not None:
        slack = sum(ledger.tolerance(chain) for chain in message.lane[1:3])
        before_time = time is None or timed_out["time"] < time - slack
        shown = heights_after(ledger, message.lane[2], timed_out["time"] + slack)
        before_height = height is None or (shown and min(shown) < height)
        if before_time and before_height:
            by = None if time is None else time - timed_out["time"]
            found.append(named("agreement", "violated", "timed_out_too_early", timed_out, by))
    if receipt:
        by_time = time is not None and receipt["time"] is not None and receipt["time"] >= time
        by_height = height is not None and receipt["height"] is not None and receipt["height"] >= height
        if by_time or by_height:
            by = None if time is None or receipt["time"] is None else max(receipt["time"] - time, 0)
            found.append(named("agreement", "violated", "received_after_timeout", receipt, by))
    return found
