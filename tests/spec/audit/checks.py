"""The checks, each as it is stated: it returns how many messages it looked at, and its findings."""

from __future__ import annotations

from itertools import pairwise

from tests.spec.audit.answering import asked, earlier, first_answers, names_asked, responses
from tests.spec.audit.causal import causal_order
from tests.spec.audit.delivery import agreement, deadline, delivery
from tests.spec.audit.ledger import Finding, Lane, Ledger, Message, Row, before, lane_of, place
from tests.spec.audit.stated import headers, watermarks
from tests.spec.audit.value import Paid, backing, key_of_message, paid_of_unsent, payments, payments_covered

Checked = tuple[int, list[Finding]]
ONCE = ("sent", "received", "executed", "failed", "answered", "acknowledged", "timed_out", "refunded")


def named(check: str, verdict: str, reason: str, row: Row, magnitude: float | None = None) -> Finding:
    return Finding(check, verdict, reason, lane_of(row), row["index"], row["source_row"], magnitude)


def exactly_once(ledger: Ledger) -> Checked:
    """Nothing happens twice to one content of a message; it is not both received and timed out; it is received."""
    examined, found = 0, []
    for message in ledger.messages:
        given_up = any(row["detail"] == "timeout" for row in message.all("observed"))
        examined += message.has(*ONCE) or given_up
        for event in ONCE:
            for row in message.again(event):
                if event == "received" and in_parts(message):
                    found.append(named("exactly_once", "noted", "partial_receipt", row))
                else:
                    found.append(named("exactly_once", "violated", f"{event}_again", row))
        found += [named("exactly_once", "noted", "redundant_relay", row) for row in message.all("redundant")]
        receipt, timed_out = message.first("received"), message.first("timed_out")
        if receipt and timed_out:
            found.append(named("exactly_once", "violated", "timed_out_and_received", timed_out))
        if given_up and not message.has(*ONCE):
            found.append(named("exactly_once", "unknown", "timeout_observed", message.first("observed")))
        if receipt and given_up:
            found.append(named("exactly_once", "unknown", "timeout_observed_and_received", receipt))
        if message.is_open:
            if ledger.is_carried(message) or ledger.waits_at_the_end(message.lane, message.first("sent")["time"]):
                found.append(named("exactly_once", "noted", "not_arrived", message.first("sent")))
            else:
                found.append(named("exactly_once", "unknown", "not_received", message.first("sent")))
    answers = sorted(responses(ledger), key=lambda answer: place(answer.row))
    for number, answer in enumerate(answers):
        if any(before.request == answer.request for before in answers[:number]):
            found.append(named("exactly_once", "violated", "answered_twice", answer.row))
    return examined, found


def in_parts(message: Message) -> bool:
    """Whether the receipts of a message, none of them of nothing, add up to what was sent of one asset, or less."""
    rows = [*message.sendings, *message.all("received")]
    if message.undone or not message.sendings or any(not row["amount"] for row in message.all("received")):
        return False
    base = message.first("sent")
    if any(row["amount"] is None or row["asset"] != base["asset"] or row["asset"] is None for row in rows):
        return False
    if message.refund and sum(row["amount"] for row in message.all("received")) == sum(
        row["amount"] for row in message.sendings
    ):
        return False
    return bool(sum(row["amount"] for row in message.all("received")) <= sum(row["amount"] for row in message.sendings))


def authenticity(ledger: Ledger) -> Checked:
    """What is received was sent, with this content, to this chain, and no number stands for two contents."""
    examined, found = 0, []
    for message in ledger.messages:
        contents = message.contents
        for row in message.all("received"):
            examined += 1
            if not contents:
                verdict, reason = ledger.unsent(message.lane, message.index, row["time"])
                found.append(named("authenticity", verdict, reason, row))
            elif message.forged(row):
                found.append(named("authenticity", "violated", "content_differs", row))
            elif row["payload_hash"] is None or row["payload_hash"] not in contents:
                found.append(named("authenticity", "unknown", "content_unseen", row))
        # A program that moves takes its inputs along: what was received where its lane goes may be executed elsewhere.
        moved = message.receipt is not None and not message.is_elsewhere(message.receipt)
        events = ("received",) if moved else ("received", "executed", "failed", "answered")
        for row in (row for event in events for row in message.all(event)):
            if message.is_elsewhere(row):
                found.append(named("authenticity", "violated", "wrong_chain", row))
        for row in message.all("sent"):
            if None not in (row["chain"], message.lane[1]) and row["chain"] != message.lane[1]:
                found.append(named("authenticity", "violated", "wrong_source", row))
        received = {row["payload_hash"] for row in message.all("received")}
        several = contents - {None} or received - {None}
        if len(several) > 1:
            too_many = len(several) - 1
            found.append(
                Finding("authenticity", "violated", "number_reused", message.lane, message.index, None, too_many)
            )
    return examined, found


def order(ledger: Ledger) -> Checked:
    """On a lane that promises it, no message's event is before that of a message with a lower index."""
    examined, found = 0, []
    promises = {"ordered_sends": "sent", "ordered_receives": "received", "ordered_acknowledgements": "acknowledged"}
    for lane in ledger.lanes:
        for promise, event in promises.items():
            if not ledger.promised(lane, promise):
                continue
            for message in ledger.messages:
                row = message.first(event)
                if message.lane == lane and row:
                    examined += 1
                    if message.index is None:
                        found.append(named("order", "unknown", "index_unseen", row))
                    elif row["height"] is None and row["time"] is None:
                        found.append(named("order", "unknown", "place_unseen", row))
            found += [named("order", "violated", f"{event}_out_of_order", r) for r in out_of_order(ledger, lane, event)]
    return examined, found


def out_of_order(ledger: Ledger, lane: Lane, event: str) -> list[Row]:
    """The rows of an event, one a message, that are before one of a message with a lower index.

    Rows with height are compared with the one of the greatest height, and with the latest one, of the lower indices: a
    row is before that if it is lower, and where heights began anew not later, or at one height by position. Rows
    without height are compared by time with others without.
    """
    rows = [row for message in ledger.numbered(lane) if (row := message.first(event))]

    def behind(row: Row, other: Row) -> bool:
        later = ledger.is_anew(lane) and None not in (row["time"], other["time"]) and row["time"] > other["time"]
        return row["height"] < other["height"] and not later

    def is_before(row: Row, lower: list[Row]) -> bool:
        if row["height"] is None:
            times = [each["time"] for each in lower if each["height"] is None and each["time"] is not None]
            return row["time"] is not None and any(row["time"] < time for time in times)
        placed = [each for each in lower if each["height"] is not None]
        if not placed:
            return False
        greatest = max(each["height"] for each in placed)
        top = [each for each in placed if each["height"] == greatest]
        positions = [each["position"] for each in top if each["position"] is not None]
        if row["height"] == greatest:
            return row["position"] is not None and any(row["position"] < position for position in positions)
        last = max(positions, default=None)
        at = [each for each in top if each["position"] == last]
        timed = [each for each in placed if each["time"] is not None]
        latest = max(timed, key=lambda each: (each["time"], each["height"]), default=None)
        return behind(row, at[0]) or (latest is not None and behind(row, latest))

    return [row for number, row in enumerate(rows) if is_before(row, rows[:number])]


ENDED_AT_SOURCE = ("timed_out", "dropped", "rejected")
ENDED_AT_DESTINATION = ("received", "dropped", "rejected")


def gaps(ledger: Ledger) -> Checked:
    """A numbered lane shows all indices between the first and the last sent: what is missing is missing in the input.
    A lane with ordered receives skips no message: what is received after an open message shows that it was lost, if the
    input would show that it ended in another way until then."""
    examined, found = 0, []
    shared = shared_numbers(ledger)
    for (protocol, source, name), (_, indices) in shared.items():
        for one, other in pairwise(sorted(indices)):
            if other - one > 1:
                number, size = one + 1, other - one - 1
                whole = (protocol, source, None, name)
                found.append(Finding("gaps", "unknown", "missing_on_all_lanes", whole, number, None, size))
    in_shared = {lane for lanes, _ in shared.values() for lane in lanes}
    for lane in ledger.lanes:
        numbered, ordered = ledger.promised(lane, "numbered"), ledger.promised(lane, "ordered_receives")
        if numbered or ordered:
            examined += sum(message.lane == lane and message.has("sent", "received") for message in ledger.messages)
        sent = [message.first("sent") for message in ledger.numbered(lane) if message.has("sent")]
        for one, other in pairwise(sent):
            missing = other["index"] - one["index"] - 1
            if numbered and missing and lane not in in_shared:
                inside = ledger.together(one, other, lane, "sent")
                reason = "missing_inside_window" if inside else "missing_outside_windows"
                found.append(Finding("gaps", "unknown", reason, lane, one["index"] + 1, None, missing))
        receipt: Row | None = None
        waiting: list[Message] = []
        for message in ledger.numbered(lane) if ordered else ():
            row = message.first("received")
            if row:
                if waiting:
                    covered = all(
                        ledger.together(receipt, row, lane, event, closing=True) for event in ENDED_AT_DESTINATION
                    )
                    covered &= all(
                        ledger.in_last_window(message.first("sent"), lane, event)
                        and ledger.reaches(message.first("sent"), lane, event, row["time"])
                        for message in waiting
                        for event in ENDED_AT_SOURCE
                        if ledger.declares(message.first("sent")["chain"], lane)
                    )
                    covered |= overdue(ledger, waiting[0].first("sent"), lane)
                    verdict, reason = ("violated", "skipped") if covered else ("unknown", "skipped_not_covered")
                    first = waiting[0].index
                    found.append(Finding("gaps", verdict, reason, lane, first, None, len(waiting)))
                receipt, waiting = row, []
            elif message.is_open:
                waiting.append(message)
    return examined, found


def shared_numbers(ledger: Ledger) -> dict[Lane, tuple[list[Lane], set[int]]]:
    """The lanes of one protocol, source and name that have no index in common, and together lack fewer indices than
    each of them by itself: their source counts over all of them. With all their indices."""
    groups: dict[Lane, list[Lane]] = {}
    for lane in ledger.lanes:
        if lane[1] is not None and ledger.promised(lane, "numbered"):
            groups.setdefault((lane[0], lane[1], lane[3]), []).append(lane)
    found = {}
    for group, lanes in groups.items():
        sent = {lane: {m.index for m in ledger.numbered(lane) if m.has("sent")} for lane in lanes}
        lanes = [lane for lane in lanes if sent[lane]]
        every = set().union(*sent.values())
        alone = sum(max(sent[lane]) - min(sent[lane]) + 1 - len(sent[lane]) for lane in lanes)
        disjoint = len(every) == sum(map(len, sent.values()))
        if len(lanes) > 1 and disjoint and max(every) - min(every) + 1 - len(every) < alone:
            found[group] = lanes, every
    return found


def overdue(ledger: Ledger, sent: Row, lane: Lane) -> bool:
    """Whether a message is missing beyond the deadline of its lane."""
    limit, _ = deadline(ledger, lane)
    if limit is None or sent["time"] is None:
        return False
    end, _, _ = ledger.arrivals_until(lane, sent["time"], limit)
    return end is not None and end - sent["time"] > limit


BEFORE = (
    ("sent", "committed"), ("sent", "received"), ("sent", "acknowledged"), ("sent", "timed_out"), ("sent", "refunded"),
    ("received", "executed"), ("received", "failed"), ("received", "answered"), ("received", "acknowledged"),
)  # fmt: skip


def causality(ledger: Ledger) -> Checked:
    """Nothing happens before what it needs: by height where both are on one chain, else by time."""
    examined, found = 0, []
    for message in ledger.messages:
        for cause, effect in BEFORE:
            one, other = message.earliest(cause), message.earliest(effect)
            if not one or not other:
                continue
            examined += 1
            delay = None if one["time"] is None or other["time"] is None else other["time"] - one["time"]
            magnitude = None if delay is None else max(0, -delay)
            wrong = before(other, one, message.tolerance(other, one), message.restarts)
            if wrong is None:
                found.append(named("causality", "unknown", "place_unseen", other))
            elif wrong:
                found.append(named("causality", "violated", f"{effect}_before_{cause}", other, magnitude))
    return examined, found


def finality(ledger: Ledger) -> Checked:
    """A message is received no sooner after it was sent than its lane promises."""
    examined, found = 0, []
    for message in ledger.messages:
        least = ledger.number(message.lane, "final_after")
        one, other = message.first("sent"), message.first("received")
        if least is None or not one or not other:
            continue
        examined += 1
        if one["time"] is None or other["time"] is None:
            found.append(named("finality", "unknown", "time_unseen", other))
        elif other["time"] - one["time"] < least:
            found.append(named("finality", "violated", "too_early", other, least - other["time"] + one["time"]))
    return examined, found


def answers(ledger: Ledger) -> Checked:
    """Every request of a lane that promises it is acknowledged or times out, within the time promised."""
    examined, found = 0, []
    over_lanes = first_answers(responses(ledger))
    callers = {request[:2] for request in over_lanes}
    for message in ledger.messages:
        sent = message.first("sent")
        if not sent or sent["kind"] != "request" or not ledger.promised(message.lane, "answered"):
            continue
        if message.no_program_sent:
            continue
        examined += 1
        limit = ledger.number(message.lane, "answered")
        own = message.first("acknowledged") or message.first("timed_out")
        response = over_lanes.get(asked(message))  # type: ignore[arg-type]
        reply = response if response and (not own or earlier(response, own)) else own
        if reply and limit is not None:
            if sent["time"] is None or reply["time"] is None:
                found.append(named("answers", "unknown", "time_unseen", reply))
            elif reply["time"] - sent["time"] > limit:
                found.append(named("answers", "violated", "late", reply, reply["time"] - sent["time"]))
        elif not reply:
            source = sent["chain"] if message.lane[1] is None else message.lane[1]
            others = (message.lane[0], source) in callers
            age = age_of(ledger, sent, over_lanes=others)
            if limit is not None and age is not None and age > limit:
                found.append(named("answers", "violated", "unanswered", sent, age))
            elif ledger.asks_at_the_end(sent, message.lane, others):
                found.append(named("answers", "noted", "pending", sent))
            else:
                found.append(named("answers", "unknown", "open", sent))
    return examined, found


def age_of(ledger: Ledger, sent: Row, *, over_lanes: bool) -> int | None:
    """How old a request is at the end of what would show a reply to it."""
    lane, time = lane_of(sent), sent["time"]
    end = None if time is None else ledger.replies_until(sent["chain"], lane, time, over_lanes)
    return None if end is None or end < time else end - time


def answers_without_request(ledger: Ledger) -> Checked:
    """What is acknowledged, timed out or answered was sent, and so was the request that a response names."""
    examined, found = 0, []
    for message in ledger.messages:
        reply = message.first("acknowledged") or message.first("timed_out") or message.first("answered")
        if reply:
            examined += 1
            if not message.has("sent"):
                verdict, reason = ledger.unsent(message.lane, message.index, reply["time"])
                found.append(named("answers_without_request", verdict, reason, reply))
    requests = {name for message in ledger.messages for name in names_asked(message)}
    for answer in responses(ledger):
        examined += 1
        if answer.request not in requests:
            covered = ledger.since_first_block(answer.request[1], answer.row)
            verdict, reason = ("violated", "no_request") if covered else ("unknown", "request_not_covered")
            found.append(named("answers_without_request", verdict, reason, answer.row))
    return examined, found


def conservation(ledger: Ledger) -> Checked:
    """On a lane that promises it, what is received of an asset, and what is paid out of the message, is what was sent
    of it, and a refund takes its place. No more comes into a chain than left another one for it."""
    paid_out = payments(ledger)
    examined, found = 0, []
    for message in ledger.messages:
        if ledger.promised(message.lane, "conserved") and (message.has("sent") or message.all("received")):
            examined += 1
            found += conserved(ledger, message, paid_out.get(key_of_message(message)))
    for more, others in (paid_of_unsent(ledger), backing(ledger)):
        examined, found = examined + more, found + others
    return examined, found


def conserved(ledger: Ledger, message: Message, paid: Paid | None) -> list[Finding]:
    """What is wrong with the value of a message, if anything is."""
    every, base = message.all("received"), message.first("sent")
    receipt, refund = message.counted_receipt, message.refund
    extra = [row for row in every if row is not message.receipt]
    shown = max(extra, key=lambda row: row["at"], default=message.receipt or base)
    received = [] if message.undone else every
    rows = [*message.sendings, *received]
    sent = sum(row["amount"] or 0 for row in message.sendings)
    came = sum(row["amount"] or 0 for row in received)
    out = paid.of(base["asset"]) if paid and base else 0

    def said(verdict: str, reason: str, row: Row, magnitude: int | None = None) -> list[Finding]:
        return [named("conservation", verdict, reason, row, magnitude)]

    if any(row["amount"] is None or row["asset"] is None for row in rows):
        return said("unknown", "amount_unseen", shown)
    if base and paid and not paid.seen:
        return said("unknown", "amount_unseen", receipt or base)
    if base and any(row["asset"] != base["asset"] for row in rows):
        return said("violated", "asset_differs", shown)
    if not base:  # whatever was paid out of it
        return said(*ledger.unsent(message.lane, message.index, shown["time"]), shown)
    if paid and paid.others(base["asset"]):
        return said("violated", "asset_differs", receipt or base)
    difference = came + out - sent if receipt else came or max(0, out - sent)
    row = shown if receipt or came else base
    if difference and any(unlike(message.all(event)) for event in ("sent", "received")):
        return said("unknown", "content_unseen", row, abs(difference))
    if difference > 0:
        return said("violated", "more_received" if receipt or came else "more_paid", row, difference)
    if difference < 0:
        covered = out >= 0 and payments_covered(ledger, base, receipt)
        verdict, reason = ("violated", "less_received") if covered else ("unknown", "payments_not_covered")
        return said(verdict, reason, row, -difference)
    if receipt and refund:
        return said("violated", "received_and_refunded", refund, came)
    return []


def unlike(rows: list[Row]) -> bool:
    """Whether some rows show a content and others none, so that it is not known which of them say the same."""
    return len({row["payload_hash"] is None for row in rows}) > 1


ENDS = ("acknowledged", "timed_out", "collected", "dropped", "rejected")


def back_pressure(ledger: Ledger) -> Checked:
    """No more messages of a lane are in flight than it promises: sent, and on its source chain not yet at an end."""
    examined, found = 0, []
    for lane in ledger.lanes:
        capacity = ledger.number(lane, "capacity")
        if capacity is None:
            continue
        flights = [(m, m.first("sent"), ends_of(m)) for m in ledger.messages if m.lane == lane and m.has("sent")]
        examined += len(flights)
        heights = all(row["height"] is not None for _, sent, ends in flights for row in [sent, *ends])
        kind = "height" if heights else "time"
        for message, sent, _ in flights:
            now = sent[kind]
            if now is None:
                found.append(named("back_pressure", "unknown", "place_unseen", sent))
                continue
            certain, possible = 0, 0
            for other, its_sent, its_ends in flights:
                begun, ends = its_sent[kind], [row[kind] for row in its_ends if row[kind] is not None]
                if begun is None or (begun, behind(other)) > (now, behind(message)):
                    continue
                if ends:
                    certain += min(ends) > now
                else:
                    covered = not its_ends and all(spanned(ledger, lane, event, kind, begun, now) for event in ENDS)
                    certain += covered
                    possible += not covered
            possible += certain
            if certain > capacity:
                found.append(named("back_pressure", "violated", "over_capacity", sent, certain - capacity))
            elif possible > capacity:
                found.append(named("back_pressure", "unknown", "ends_not_covered", sent, possible - capacity))
    return examined, found


def ends_of(message: Message) -> list[Row]:
    """The rows on its source chain that end a message's flight."""
    return [row for row in message.rows if row["event"] in ENDS and row["chain"] in (message.lane[1], None)]


def spanned(ledger: Ledger, lane: Lane, event: str, kind: str, first: int, last: int) -> bool:
    """Whether one window of a lane's source has two places."""
    return any(low <= first and last <= high for low, high in ledger.windows(lane[1], lane, event, kind))


def behind(message: Message) -> tuple[bool, int, str]:
    """Where a message stands among those sent at one place: by index, and what has none last, by name."""
    return message.index is None, message.index or 0, message.rows[0]["message_id"] or ""


CHECKS = {
    check.__name__: check
    for check in (
        *(delivery, exactly_once, authenticity, agreement, order, gaps, causality, causal_order, finality),
        *(answers, answers_without_request, conservation, back_pressure, watermarks, headers),
    )
}
