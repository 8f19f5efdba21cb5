"""Figures of a ledger, stated slowly: what became of each message, delays, backlog over time, lanes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.spec.audit.ledger import NAMES, Ledger, Message, Row, place
from tests.spec.audit.outcomes import state_of

PLACE = ("chain", "height", "tick", "time")
ENDINGS = ("answered", "rejected", "failed", "refunded", "timed_out", "dropped", "contradicted", "delivered")
DETAILED = (
    *("rejected", "dropped", "timed_out", "failed", "refunded", "acknowledged", "answered", "executed"),
    *("received", "observed", "relayed", "sent"),
)
CALLED = ("sent", "committed", "relayed", "received", "answered", "acknowledged", "timed_out")
EVENTS = (
    *("sent", "committed", "relayed", "received", "executed", "answered", "acknowledged", "rejected", "timed_out"),
    *("dropped", "collected", "final", "reverted", "observed", "failed", "refunded", "redundant", "upgraded"),
)


class Told(NamedTuple):
    """What became of a message. Places are rows, or None."""

    message: Message
    base: Row
    outcome: str
    code: int | None
    detail: str | None
    sent: Any
    received: Any
    executed: Any
    ended: Any
    landed: Any
    over: Any
    answer: Any

    @property
    def is_sent(self) -> bool:
        return self.message.has("sent", "committed")

    @property
    def of_users(self) -> bool:
        """From a user to a chain: no chain sent it."""
        called = self.message.has(*CALLED) or any(name is not None for name in self.message.lane[1:])
        return self.base["kind"] == "request" and not called and not self.message.no_program_sent

    @property
    def is_message(self) -> bool:
        """Said by a program of a chain to another: what is counted as a message."""
        return not (self.base["kind"] == "control" or self.message.no_program_sent or self.of_users)

    @property
    def counted_as(self) -> str:
        """The kind under which it is counted."""
        kind: str = self.base["kind"]
        forged = self.message.no_program_sent and kind != "control"
        return "forged" if forged else "from_users" if self.of_users else kind

    @property
    def is_between_chains(self) -> bool:
        _, source, destination, lane = self.message.lane
        return self.is_sent and lane is not None and source != destination


def told(ledger: Ledger) -> list[Told]:
    """All messages of which any row counts."""
    return [_told(ledger, message) for message in ledger.messages if message.rows]


def _told(ledger: Ledger, message: Message) -> Told:
    def first(*events: str) -> Any:
        return next((row for event in events if (row := message.first(event))), None)

    base = first("sent") or min(message.rows, key=lambda row: row["at"])
    request = base["kind"] == "request"
    acknowledged = first("acknowledged")
    reply = reply_to(ledger, message, base) if request and message.has("sent", "committed") else None
    reply = None if acknowledged or first("timed_out") else reply
    lost = reply is not None and reply["event"] == "dropped"
    reply = None if lost else reply
    state = state_with(message, reply)
    awaited = request and message.has("sent", "committed") and ledger.promised(message.lane, "answered")
    outcome = {
        "executed": "delivered", "refused": "rejected", "returned": "refunded", "discarded": "dropped",
    }.get(state, state)  # fmt: skip
    if awaited and state in ("delivered", "executed"):
        outcome = "pending"
    if lost and state in ("pending", "delivered", "executed"):
        outcome = "dropped"
    if not request and outcome == "answered":
        outcome = "delivered"
    if base["kind"] == "control" and outcome == "pending":
        outcome = "unknown"
    answer = (acknowledged or reply) if request else None
    ended = acknowledged or reply or first("timed_out")
    over = {
        "timed_out": first("timed_out"),
        "contradicted": first("timed_out"),
        "dropped": first("dropped"),
        "delivered": first("received", "executed", "answered", "acknowledged"),
        "pending": None,
        "unknown": None,
    }.get(outcome, answer or first("answered", "rejected", "failed", "refunded", "executed"))
    coded = ("answered", "rejected", "failed", "dropped", "timed_out", "received", "executed", "observed")
    spoken = [acknowledged, reply, *(first(event) for event in coded)]
    details = [first(event) for event in DETAILED]
    return Told(
        message,
        base,
        outcome,
        next((row["code"] for row in spoken if row and row["code"] is not None), None),
        next((row["detail"] for row in details if row and row["detail"] is not None), None),
        first("sent"),
        first("received"),
        first("executed"),
        ended,
        first("received", "executed", "failed", "answered", "rejected", "dropped", "timed_out", "refunded") or ended,
        over,
        answer if outcome in ("answered", "rejected", "refunded") else None,
    )


def state_with(message: Message, reply: Row | None) -> str:
    """The state of a message with its answer over another lane."""
    events = [
        (row["event"], bool(row["code"]) and row["kind"] == "request")
        for row in message.rows
        if row["event"] != "received" or not message.forged(row)
    ]
    if reply:
        events.append({"response": ("answered", bool(reply["code"])), "refund": ("refunded", False)}.get(
            reply["kind"], ("answered", True)
        ))  # fmt: skip
    return state_of(events)


def reply_to(ledger: Ledger, request: Message, base: Row) -> Row | None:
    """What answers a request over another lane, as the chain saw it that asked."""
    caller = base["chain"] if request.lane[1] is None else request.lane[1]
    if caller is None or base["message_id"] is None:
        return None
    found = [
        row
        for message in ledger.messages
        for row in message.rows
        if row["answers"] == base["message_id"]
        and row["kind"] in ("response", "reject", "refund")
        and row["event"] in ("received", "answered", "dropped")
        and (
            row["event"] != "dropped"
            or (
                row is message.first("dropped")
                and message.state in ("dropped", "discarded")
                and not message.no_program_sent
            )
        )
        and not (row["event"] == "received" and message.forged(row))
        and (message.lane[0], message.lane[2]) == (request.lane[0], caller)
        and (row["event"] == "dropped" or row["chain"] in (None, caller))
    ]
    kinds = ("request", "response", "reject", "refund", "control")

    def order(row: Row) -> tuple[Any, ...]:
        rest = [(row[name] is None, row[name] or 0) for name in ("tick", "code")]
        return (row["event"] == "dropped", *place(row)[:2], rest[0], kinds.index(row["kind"]), rest[1])

    chosen = min(found, key=order, default=None)
    return None if chosen is None else {**chosen, "chain": caller}


def delay(one: Row | None, other: Row | None, name: str) -> int | None:
    if one is None or other is None or one[name] is None or other[name] is None:
        return None
    if name == "height" and (one["chain"] is None or one["chain"] != other["chain"]):
        return None
    return int(other[name] - one[name])


MEASURES = (
    *(("delivery", "ticks"), ("delivery", "seconds"), ("service", "ticks"), ("service", "seconds")),
    *(("round_trip", "ticks"), ("round_trip", "seconds"), ("round_trip", "heights")),
)
_AXIS = {"ticks": "tick", "seconds": "time", "heights": "height"}


def delays(each: Told) -> dict[tuple[str, str], int]:
    """The delays of a message that were seen, in ticks, heights and microseconds."""
    ends = {
        "delivery": (each.sent, each.received),
        "service": (each.received, each.executed),
        "round_trip": (each.sent, each.answer),
    }
    found = {key: delay(*ends[key[0]], _AXIS[key[1]]) for key in MEASURES}
    return {key: number for key, number in found.items() if number is not None}


def quantile(numbers: Iterable[int], percent: int) -> int:
    """The least number that so many percent of all do not exceed."""
    ordered = sorted(numbers)
    return next(number for many, number in enumerate(ordered, start=1) if many * 100 >= percent * len(ordered))


def axis_of(every: Iterable[Told]) -> str | None:
    """By what the backlog is counted: ticks where as much is seen of them as of times."""
    many = {name: sum(len(moves(each, name)) for each in every) for name in ("tick", "time")}
    if not any(many.values()):
        return None
    return "tick" if many["tick"] >= many["time"] else "time"


def moves(each: Told, axis: str) -> list[tuple[str, int]]:
    """What a message does to the counts over time, and when."""

    def at(row: Row | None) -> int | None:
        return None if row is None else row[axis]

    found = []
    sent, received = at(each.sent), at(each.received)
    if sent is not None:
        found.append(("sent", sent))
    if received is not None:
        found.append(("received", received))

    def end(row: Row | None) -> int | None:
        when = at(row)
        return when if sent is None else max(sent, sent if when is None else when)

    if each.outcome in ENDINGS and (when := end(each.over)) is not None:
        found.append((each.outcome, when))
        if sent is not None:
            found.append(("over", when))
    if sent is not None and each.landed is not None:
        when = end(each.landed)
        found.append(("landed", sent if when is None else when))
    return found


def backlog(every: list[Told], axis: str, width: int) -> list[dict[str, int]]:
    """The backlog by bins of a width, from the first to the last."""
    all_moves = [move for each in every for move in moves(each, axis)]
    bins = [when // width for _, when in all_moves]
    found = []
    for number in range(min(bins), max(bins) + 1):
        inside = [what for what, when in all_moves if when // width == number]
        until = [what for what, when in all_moves if when // width <= number]
        row = {name: inside.count(name) for name in ("sent", "received", *ENDINGS)}
        row |= {"begin": number * width, "in_flight": until.count("sent") - until.count("landed")}
        found.append(row | {"pending": until.count("sent") - until.count("over")})
    return found


def over_time(every: list[Told], axis: str, width: int) -> dict[tuple[int, str], list[int]]:
    """The delays of what was received, and of what was answered, by the bin in which it was."""
    found: dict[tuple[int, str], list[int]] = {}
    for each in every:
        for measure, end in (("delivery", each.received), ("round_trip", each.answer)):
            took = delay(each.sent, end, axis)
            if took is not None:
                when = end[axis] if measure == "delivery" else max(each.sent[axis], end[axis])
                found.setdefault((when // width * width, measure), []).append(took)
    return found


def key_of(each: Told) -> tuple[Any, ...]:
    index = each.message.index
    return (*each.message.lane, index, None if index is not None else each.message.message_id)


def name_order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The order of the ledger: names by their bytes, not seen first; indices, not seen last; then ids."""
    *lane, index, ident = key
    places = [(name is not None, (name or "").encode()) for name in (*lane, ident)]
    return (*places[:-1], index is None, index or 0, places[-1])


def worst(every: Iterable[Told], measure: str | None, unit: str) -> list[tuple[int, tuple[Any, ...]]]:
    """The messages by a delay, the longest first, or (``measure`` None) those that are pending, the oldest first, with
    when they were sent; of equal ones in the order of the ledger."""
    found = []
    for each in every:
        if measure is not None:
            number = delays(each).get((measure, unit))
            number = None if number is None else -number
        else:
            number = each.sent[_AXIS[unit]] if each.outcome == "pending" and each.sent else None
        if number is not None:
            found.append((number, key_of(each)))
    found.sort(key=lambda each: (each[0], name_order(each[1])))
    return [(number if measure is None else -number, key) for number, key in found]


def fees(value: Iterable[Row]) -> dict[tuple[Any, ...], tuple[int, int, int]]:
    """Movements by lane, asset, reason and whether they are fees: how many, how many without amount, and their sum."""
    found: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for row in value:
        why, payer, amount = row["why"], row["from"], row["amount"]
        pays = payer is None or why == "fee" or payer.startswith("account:")
        is_fee = payer == "message" or (why is not None and why.startswith("fee") and pays)
        key = (*(row[name] for name in NAMES), row["asset"], why, is_fee)
        movements, unseen, total = found.get(key, (0, 0, 0))
        found[key] = movements + 1, unseen + (amount is None), total + (amount or 0)
    return found


def step(row: Row | None) -> tuple[Any, ...]:
    return (None,) * len(PLACE) if row is None else tuple(row[name] for name in PLACE)


__all__ = [
    "MEASURES",
    "NAMES",
    "Told",
    "axis_of",
    "backlog",
    "delays",
    "fees",
    "key_of",
    "name_order",
    "over_time",
    "quantile",
    "step",
    "told",
    "worst",
]
