"""Rows of a ledger, as messages; what is covered, and what is promised.

A row is a dict with the columns of the ledger; ``time`` is in microseconds, ``amount`` is a number, and ``at`` is where
the row stands in the order of the ledger, so that of two rows at one place one is the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from tests.spec.audit.outcomes import state_of

Row = dict[str, Any]
Lane = tuple[str | None, ...]
NAMES = ("protocol", "source", "destination", "lane")
LATE = float("inf")
ARRIVALS = ("received", "executed", "failed", "answered", "rejected", "dropped", "redundant")
MESSAGES = (
    *ARRIVALS, "sent", "committed", "relayed", "acknowledged", "timed_out", "refunded", "collected", "final",
    "reverted", "observed", "upgraded",
)  # fmt: skip
EVERY: Lane = (None,) * 4
"""What stands for a lane where every lane is meant."""


class Finding(NamedTuple):
    """What a check names. ``row``: ``source_row`` of the row, None for a finding about messages."""

    check: str
    verdict: str
    reason: str
    lane: Lane
    number: int | None
    row: int | None
    magnitude: float | None = None


def lane_of(row: Row) -> Lane:
    return tuple(row[name] for name in NAMES)


def with_revision(row: Row) -> Row:
    """A row whose height is above all heights of earlier revisions of its chain."""
    found = row
    for height, revision in (("height", "revision"), ("timeout_height", "timeout_revision")):
        if row.get(height) is not None and row.get(revision):
            found = {**found, height: row[revision] << 38 | row[height]}
    return found


def restarted(one: Row, other: Row, restarts: Collection[str]) -> bool:
    """Whether the times of two rows contradict their heights, on a chain whose heights began anew."""
    if one["chain"] != other["chain"] or one["chain"] not in restarts:
        return False
    if None in (one["height"], other["height"], one["time"], other["time"]):
        return False
    return bool((one["height"] - other["height"]) * (one["time"] - other["time"]) < 0)


def place(row: Row) -> tuple[float, float, int]:
    """Order of rows of one message: by height, then by time, what was not seen last, then as they stand."""
    return (
        LATE if row["height"] is None else row["height"],
        LATE if row["time"] is None else row["time"],
        row["at"],
    )


def moment(row: Row) -> tuple[float, float, int]:
    """Order of reverted rows, and of all rows of a message where the heights of a chain began anew: by time, then by
    height, what was not seen last, then as they stand."""
    height, time, at = place(row)
    return time, height, at


def before(effect: Row, cause: Row, tolerance: int = 0, restarts: Collection[str] = ()) -> bool | None:
    """Whether a row is before another: by height where both are on one chain and have one, unless its heights began
    anew in between, else by time. None: it is not seen. ``tolerance``: of the clocks of two chains."""
    chain = cause["chain"] is not None and cause["chain"] == effect["chain"]
    if chain and None not in (cause["height"], effect["height"]):
        return bool(effect["height"] < cause["height"] and not restarted(effect, cause, restarts))
    if cause["time"] is not None and effect["time"] is not None:
        return bool(effect["time"] + (0 if chain else tolerance) < cause["time"])
    return None


def after(event: Row, back: Row) -> bool:
    """Whether an event is seen to be after what takes one of its kind back, which then speaks of another one. Heights
    say nothing of that: behind a fork they begin anew."""
    return None not in (event["time"], back["time"]) and bool(event["time"] > back["time"])


class Message:
    """The rows of one message that were not taken back. ``final_after``: how long it must be under way at least;
    ``tolerances``: by how much the clocks of chains may be wrong; ``undoes``: whether a failure gives its value
    back."""

    def __init__(
        self,
        rows: Iterable[Row],
        final_after: int | None = None,
        tolerances: Sequence[tuple[str | None, int]] = (),
        undoes: bool = True,
        restarts: Collection[str] = (),
    ) -> None:
        rows, self.final_after, self.tolerances = list(rows), final_after, tolerances
        self.undoes, self.restarts = undoes, restarts
        self.lane, self.index, self.message_id = lane_of(rows[0]), rows[0]["index"], rows[0]["message_id"]
        left = sorted((row for row in rows if row["event"] != "reverted"), key=place)
        for back in sorted((row for row in rows if row["event"] == "reverted"), key=moment):
            same = [row for row in left if row["event"] == back["detail"] and row["chain"] == back["chain"]]
            own = next((row for row in same if not after(row, back)), None)
            left = [row for row in left if row is not own]
        self.rows = left
        relays = [row for event in ("received", "acknowledged") for row in self.again(event) if self.relayed_again(row)]
        self.rows = [{**row, "event": "redundant"} if any(row is each for each in relays) else row for row in left]

    def first_of(self, rows: Iterable[Row]) -> Any:
        """The first of some of its rows: by time where the heights of a chain of the message began anew."""
        anew = any(row["chain"] in self.restarts for row in self.rows)
        return min(rows, key=moment if anew else place, default=None)

    def tolerance(self, one: Row, other: Row) -> int:
        """By how much the clocks of the chains of two rows may differ."""
        return sum(
            max([number for chain, number in self.tolerances if chain in (None, row["chain"])], default=0)
            for row in (one, other)
        )

    def all(self, event: str) -> list[Row]:
        return [row for row in self.rows if row["event"] == event]

    @property
    def contents(self) -> set[bytes | None]:
        """The contents with which it was sent."""
        return {row["payload_hash"] for row in self.all("sent")}

    @property
    def sendings(self) -> list[Row]:
        """The first row of each content with which it was sent."""
        contents = dict.fromkeys(row["payload_hash"] for row in sorted(self.all("sent"), key=place))
        same = [[row for row in self.all("sent") if row["payload_hash"] == each] for each in contents]
        return [self.first_of(rows) for rows in same]

    def forged(self, row: Row) -> bool:
        """Whether a received row has surely another content than every sent one."""
        sent, own = self.contents, row["payload_hash"]
        return bool(sent) and own is not None and None not in sent and own not in sent

    def earliest(self, event: str) -> Any:
        """The first row of an event; a forged one is none."""
        rows = [row for row in self.all(event) if event != "received" or not self.forged(row)]
        return self.first_of(rows)

    def first(self, event: str) -> Any:
        """The first row of an event, and of those received the receipt."""
        return self.receipt if event == "received" else self.earliest(event)

    @property
    def receipt(self) -> Any:
        """The first received row that is not forged: of those that are not on another chain, if there are any, of these
        of those that are not before the sending, if there are any, and of these of those that are not too early for the
        lane, if there are any."""
        every = [row for row in self.all("received") if not self.forged(row)]
        sent = self.earliest("sent")
        if not sent:
            return self.first_of(every)
        every = [row for row in every if not self.is_elsewhere(row)] or every
        rows = [row for row in every if not before(row, sent, self.tolerance(row, sent), self.restarts)]
        return self.first_of([row for row in rows if not self.too_early(row, sent)] or rows or every)

    def is_elsewhere(self, row: Row) -> bool:
        """Whether a row at the destination is on another chain than the one to which its lane goes."""
        return None not in (row["chain"], self.lane[2]) and row["chain"] != self.lane[2]

    def too_early(self, row: Row, sent: Row) -> bool:
        """Whether a row is seen to be sooner after the sending than the lane promises."""
        unseen = self.final_after is None or row["time"] is None or sent["time"] is None
        return not unseen and row["time"] - sent["time"] < self.final_after

    def has(self, *events: str) -> bool:
        return any(self.first(event) for event in events)

    def again(self, event: str) -> list[Row]:
        """The rows with which an event happened again to one content of the message; where it is not known which of
        its contents is right, also receipts with another content."""
        found: list[Row] = []
        for content in {row["payload_hash"] for row in self.all(event)}:
            found += self.all_but_one([row for row in self.all(event) if row["payload_hash"] == content])
        if event == "received" and not self.contents - {None}:
            found += self.all_but_one([row for row in self.all(event) if row["payload_hash"] is not None])
        return list({row["source_row"]: row for row in found}.values())

    def all_but_one(self, rows: list[Row]) -> list[Row]:
        """These rows without the receipt, or without the first of them where it is not among them."""
        receipt = self.receipt
        kept = receipt if any(row is receipt for row in rows) else self.first_of(rows)
        return [row for row in rows if row is not kept]

    def relayed_again(self, row: Row) -> bool:
        """Whether a row is a relay, in a transaction of its own, of a message that was executed once, or an
        acknowledgement of one that was received once."""
        executions = ("executed", "failed", "answered")
        once = self.has(*executions) or (
            row["event"] == "acknowledged" and self.first("received") and not self.again("received")
        )
        names = row["transaction"], self.first(row["event"])["transaction"] if self.first(row["event"]) else None
        return bool(
            once
            and not any(self.repeated(each) for each in executions)
            and not (row["event"] == "received" and self.forged(row))
            and None not in names
            and names[0] != names[1]
        )

    def repeated(self, event: str) -> list[Row]:
        """The rows of an event, with one content, but the first."""
        found = []
        for content in {row["payload_hash"] for row in self.all(event)}:
            rows = [row for row in self.all(event) if row["payload_hash"] == content]
            found += [row for row in rows if row is not self.first_of(rows)]
        return found

    @property
    def undone(self) -> bool:
        """Whether it failed, and its value was given back with that."""
        erring = ("executed", "answered", "acknowledged")
        return self.undoes and any(
            row["event"] == "failed" or (row["event"] in erring and row["code"] and row["kind"] == "request")
            for row in self.rows
        )

    @property
    def counted_receipt(self) -> Any:
        """The receipt, if it counts as received value."""
        return None if self.undone else self.receipt

    @property
    def refund(self) -> Any:
        """The row that gives its value back."""
        return self.first("timed_out") or self.first("refunded")

    @property
    def no_program_sent(self) -> bool:
        """Whether its chain says that no program sent it."""
        return any(row["event"] in ("sent", "observed") and row["detail"] == "forged" for row in self.rows)

    @property
    def is_open(self) -> bool:
        """Sent, and nothing says that it came or will not come."""
        return self.has("sent") and self.state == "pending"

    @property
    def state(self) -> str:
        """What became of it by itself, by the events that count."""
        counting = [row for row in self.rows if row["event"] != "received" or not self.forged(row)]
        return state_of((row["event"], bool(row["code"]) and row["kind"] == "request") for row in counting)


class Ledger:
    """Messages by lane and index (or ``message_id``), windows and promises."""

    def __init__(
        self,
        rows: Iterable[Row],
        observed: Iterable[Row],
        promises: Iterable[Row],
        watermarks: Iterable[Row] = (),
        headers: Iterable[Row] = (),
        value: Iterable[Row] = (),
    ) -> None:
        self.rows, self.observed, self.promises = list(map(with_revision, rows)), list(observed), list(promises)
        self.watermarks, self.headers, self.value = list(watermarks), list(headers), list(value)
        found: dict[Any, list[Row]] = {}
        for row in self.rows:
            if row["index"] is not None:
                found.setdefault((lane_of(row), 0, row["index"]), []).append(row)
            elif row["message_id"] is not None:
                found.setdefault((lane_of(row), 1, row["message_id"]), []).append(row)
        self.tolerances = tolerances = [
            (row["source"], row["number"] or 0)
            for row in self.promises
            if row["promise"] == "clock_tolerance" and (row["protocol"], row["destination"], row["lane"]) == (None,) * 3
        ]
        self.restarts = {
            row["source"]
            for row in self.promises
            if row["promise"] == "restarted" and (row["protocol"], row["destination"], row["lane"]) == (None,) * 3
        }
        self.messages = [
            Message(
                each,
                self.number(key[0], "final_after"),
                tolerances,
                not self.promised(key[0], "refund_messages"),
                self.restarts,
            )
            for key, each in found.items()
        ]
        self.lanes = {message.lane for message in self.messages}

    def is_anew(self, lane: Lane) -> bool:
        """Whether heights at an end of a lane began anew, or those of any chain where an end is not known."""
        return bool(self.restarts) and (None in lane[1:3] or not self.restarts.isdisjoint(lane[1:3]))

    def numbered(self, lane: Lane) -> list[Message]:
        """The messages of a lane that have an index, in its order."""
        own = [message for message in self.messages if message.lane == lane and message.index is not None]
        return sorted(own, key=lambda message: message.index)

    def promised(self, lane: Lane, promise: str) -> bool:
        return bool(self._promises(lane, promise))

    def number(self, lane: Lane, promise: str) -> int | None:
        numbers = [row["number"] for row in self._promises(lane, promise) if row["number"] is not None]
        return (max if promise == "final_after" else min)(numbers, default=None)

    def _promises(self, lane: Lane, promise: str) -> list[Row]:
        return [
            row
            for row in self.promises
            if row["promise"] == promise
            and all(row[name] in (None, own) for name, own in zip(NAMES, lane, strict=True))
        ]

    def tolerance(self, chain: str | None) -> int:
        """By how much the clock of a chain may be wrong."""
        return max([number for of, number in self.tolerances if of in (None, chain)], default=0)

    def causes(self, lane: Lane) -> set[str]:
        """The causes for which the protocol of a lane drops messages."""
        return {row["detail"] for row in self._promises(lane, "may_drop") if row["detail"] is not None}

    def carriers(self, protocol: str | None, name: str | None) -> list[Row]:
        """The sendings that carry on the message of a name, those that were sent last at the end.

        A sending is named by itself, not by the other rows of its message.
        """
        found = [
            (row["time"] if row["time"] is not None else LATE, number, row)
            for number, other in enumerate(self.messages)
            if other.lane[0] == protocol and name is not None
            for row in other.all("sent")
            if row["continues"] == name != row["message_id"] and row["kind"] != "control" and row["detail"] != "forged"
        ]
        return [row for *_, row in sorted(found, key=lambda each: each[:2])]

    def is_carried(self, message: Message) -> bool:
        """Whether another message carries this one on under a new id, not before it and not in a circle."""
        first, protocol = message.first("sent"), message.lane[0]
        name = first["message_id"] if first is not None else None
        carriers = self.carriers(protocol, name)
        if not carriers:
            return False
        sent, again = (row["time"] if row["time"] is not None else LATE for row in (first, carriers[-1]))
        if sent != LATE and again + sum(self.tolerance(chain) for chain in message.lane[1:3]) < sent:
            return False
        seen = [name]
        while carriers := self.carriers(protocol, name):
            name = carriers[-1]["message_id"]
            if name in seen:
                return False
            seen.append(name)
        return True

    def shows_ends(self, lane: Lane) -> bool:
        """Whether any message of a lane was received or acknowledged."""
        return any(m.lane == lane and (m.all("received") or m.has("acknowledged")) for m in self.messages)

    def declares(self, chain: str | None, lane: Lane, event: str | None = None) -> bool:
        """Whether a window of a chain that was declared has an event of a lane; None: any."""
        return any(
            row["how"] == "declared"
            and row["chain"] == chain
            and lane_of(row) in (EVERY, lane)
            and (event is None or row["events"] is None or event in row["events"])
            for row in self.observed
        )

    @property
    def end(self) -> int | None:
        """The last time of any row."""
        return max((row["time"] for row in self.rows if row["time"] is not None), default=None)

    @property
    def last(self) -> int | None:
        """The last time of any row or declared window."""
        declared = [row["last_time"] for row in self.observed if row["how"] == "declared"]
        return max((time for time in (self.end, *declared) if time is not None), default=None)

    def arrivals_until(self, lane: Lane, time: int | None, limit: int = 0) -> tuple[int | None, bool, bool]:
        """Until when the input would show the arrival of a message sent at a time, whether it shows the destination at
        all, and whether it has everything from the sending to its end."""
        _, source, destination, _ = lane
        if self.declares(destination, lane, "received"):
            windows = [None if time is None else self.window(*shown, time) for shown in self._arrivals(lane)]
            end = min(window[1] for window in windows) if all(windows) else None  # type: ignore[index]
            return end, True, self.waits_at_the_end(lane, time)
        there = self.inferred(destination, lane, ARRIVALS, time, limit)
        here = self.inferred(source, lane, MESSAGES, time, limit)
        if there is None:
            end, whole = (self.end, True) if here is None else here
            return end, False, whole
        end, whole = there
        spans = self.windows(destination, lane, ARRIVALS, "time")
        after = bool(spans) and time is not None and time > spans[-1][1] and end is None
        if here and here[0] is not None and (whole or after):
            end = here[0] if end is None else max(end, here[0])
            whole = whole or here[1]
        return end, True, whole

    def inferred(
        self, chain: str | None, lane: Lane, events: tuple[str, ...], time: int | None, limit: int = 0
    ) -> tuple[int | None, bool] | None:
        """Until when a chain shows some events that follow a time, of several windows in that which has the time, and
        whether it goes on to its end. The first one has what is sent up to ``limit`` before it. None: no window."""
        spans = self.windows(chain, lane, events, "time")
        if not spans:
            return (None, False) if len(self.windows(chain, lane, events, "height")) > 1 else None
        if len(spans) == 1:
            return spans[0][1], True
        if time is None:
            return None, False
        own = [span for span in spans if span[0] <= time <= span[1]]
        own += spans[:1] if spans[0][0] - limit <= time < spans[0][0] else []
        return (own[0][1], own[0] == spans[-1]) if own else (None, False)

    def _arrivals(self, lane: Lane) -> list[tuple[str | None, Lane, str]]:
        """What shows arrivals on a lane: chain, lane and event."""
        shown: list[tuple[str | None, Lane, str]] = [(lane[2], lane, "received")]
        return [*shown, *([(lane[1], lane, "timed_out")] if self.declares(lane[1], lane, "timed_out") else [])]

    def waits_at_the_end(self, lane: Lane, time: int | None) -> bool:
        """Whether the last declared windows of what shows arrivals have a message that was sent at a time."""
        declared = self.declares(lane[2], lane, "received")
        return declared and all(self.in_last(*shown, time) for shown in self._arrivals(lane))

    def in_last(self, chain: str | None, lane: Lane, event: str, time: int | None) -> bool:
        """Whether the last window of a chain with an event has a time."""
        last = max(self.windows(chain, lane, event, "time"), default=None)
        return time is not None and last is not None and last[0] <= time <= last[1]

    def asks_at_the_end(self, sent: Row, lane: Lane, over_lanes: bool) -> bool:
        """Whether the last declared windows of what shows replies have a request."""
        shown = [(sent["chain"], of, event) for of, event in _replies(lane, over_lanes)]
        declared = self.shows_replies(sent["chain"], lane, over_lanes)
        return declared and all(self.in_last(*each, sent["time"]) for each in shown)

    def shows_replies(self, chain: str | None, lane: Lane, over_lanes: bool) -> bool:
        """Whether a window of a chain that was declared shows replies to requests of a lane."""
        return any(self.declares(chain, of, event) for of, event in _replies(lane, over_lanes))

    def replies_until(self, chain: str | None, lane: Lane, time: int, over_lanes: bool) -> int | None:
        """Until when the input would show a reply to a request that was sent at a time."""
        if not self.shows_replies(chain, lane, over_lanes):
            own = self.inferred(chain, lane, MESSAGES, time)
            return self.end if own is None else own[0]
        windows = [self.window(chain, of, event, time) for of, event in _replies(lane, over_lanes)]
        return min(window[1] for window in windows) if all(windows) else None  # type: ignore[index]

    def windows(
        self, chain: str | None, lane: Lane, event: str | tuple[str, ...], kind: str, *, closing: bool = False
    ) -> list[tuple[int, int]]:
        """The windows of a chain in heights or times with an event, or one of several, as one where they touch;
        ``closing``: inferred ones, too, that have no such event."""
        events = {event} if isinstance(event, str) else set(event)
        windows = [
            row
            for row in self.observed
            if chain is not None
            and row["chain"] == chain
            and (lane_of(row) == EVERY or lane_of(row) == lane)
            and (row["events"] is None or events & set(row["events"]) or (closing and row["how"] == "inferred"))
        ]

        def ends(row: Row, kind: str) -> tuple[int, int] | None:
            first, last = row[f"first_{kind}"], row[f"last_{kind}"]
            return None if first is None or last is None or first > last else (first, last)

        spans = [span for row in windows if (span := ends(row, kind))]
        if kind == "time":
            # Windows with no block between them have no time between them either.
            whole = [
                (*heights, *times) for row in windows if (heights := ends(row, "height")) if (times := ends(row, kind))
            ]
            for low, high in joined_spans([each[:2] for each in whole], 1):
                inside = [each for each in whole if low <= each[0] and each[1] <= high]
                spans.append((min(each[2] for each in inside), max(each[3] for each in inside)))
        return joined_spans(spans, 1 if kind == "height" else 0)

    def first_block(self, chain: str | None) -> int:
        """The height of a chain's first block: 1, unless a window begins at 0."""
        return 0 if any(row["chain"] == chain and row["first_height"] == 0 for row in self.observed) else 1

    def since_first_block(self, chain: str, row: Row) -> bool:
        """Whether all that a chain sent, on any lane, is covered from its first block to a row of that chain."""
        first = self.windows(chain, EVERY, "sent", "height")[:1]
        block = self.first_block(chain)
        if row["height"] is not None and any(low <= block and row["height"] <= high for low, high in first):
            return True
        end = self.all_until(chain, EVERY)
        return row["time"] is not None and end is not None and bool(row["time"] <= end)

    def window(self, chain: str | None, lane: Lane, event: str, time: int) -> tuple[int, int] | None:
        """The window that has a time."""
        spans = self.windows(chain, lane, event, "time")
        return next((span for span in spans if span[0] <= time <= span[1]), None)

    def together(self, one: Row | None, other: Row, lane: Lane, event: str, *, closing: bool = False) -> bool:
        """Whether one window of a chain has two rows, in heights or in times; None: the first block of the chain."""
        heights = self.windows(other["chain"], lane, event, "height", closing=closing)
        if one is None:
            return other["height"] is not None and any(
                first <= self.first_block(other["chain"]) and other["height"] <= last for first, last in heights[:1]
            )
        if one["chain"] != other["chain"]:
            return False
        for kind in ("height", "time"):
            if one[kind] is not None and other[kind] is not None:
                low, high = sorted((one[kind], other[kind]))
                spans = self.windows(other["chain"], lane, event, kind, closing=closing)
                if any(first <= low and high <= last for first, last in spans):
                    return True
        return False

    def in_last_window(self, row: Row, lane: Lane, event: str) -> bool:
        """Whether a row is in its chain's last window, in heights if it has one and there are any, else in times."""
        for kind in ("height", "time"):
            spans = self.windows(row["chain"], lane, event, kind)
            if row[kind] is not None and spans:
                return bool(spans[-1][0] <= row[kind] <= spans[-1][1])
        return False

    def reaches(self, row: Row, lane: Lane, event: str, time: int | None) -> bool:
        """Whether the last window of a row's chain in times has the row, and ends at this time or later."""
        spans = self.windows(row["chain"], lane, event, "time")
        if not spans or row["time"] is None or time is None:
            return False
        first, last = spans[-1]
        return bool(first <= row["time"] <= last and time <= last)

    def all_until(self, chain: str | None, lane: Lane, event: str = "sent") -> int | None:
        """Until which time all of an event since a chain's first block is covered."""
        ends = [
            row["last_time"]
            for row in self.observed
            if chain is not None
            and row["chain"] == chain
            and (lane_of(row) == EVERY or lane_of(row) == lane)
            and (row["events"] is None or event in row["events"])
            and row["first_height"] is not None
            and row["first_height"] <= self.first_block(chain)
            and row["last_time"] is not None
        ]
        if not ends:
            return None
        span = self.window(chain, lane, event, max(ends))
        return span[1] if span else max(ends)

    def unsent(self, lane: Lane, index: int | None, time: int | None) -> tuple[str, str]:
        """Verdict and reason of something that says at a time that a message was sent which no row shows as sent."""
        sent = [message for message in self.numbered(lane) if message.has("sent")]
        if self.promised(lane, "ordered_sends") and index is not None and time is not None:
            before = [message.first("sent")["time"] for message in sent if message.index < index]
            if any(its_time is not None and its_time > time for its_time in before):
                return "violated", "not_sent_yet"
        numbered = self.promised(lane, "numbered") and index is not None and sent
        if numbered and sent[0].index <= index <= sent[-1].index:
            return "unknown", "missing_in_sequence"
        ends = [self.all_until(lane[1], lane)]
        below = numbered and index < sent[0].index
        if numbered and not below:
            last = sent[-1].first("sent")["time"]
            span = None if last is None else self.window(lane[1], lane, "sent", last)
            ends.append(span[1] if span else None)
        if time is not None and any(end is not None and time <= end for end in ends):
            return "violated", "not_sent"
        return "unknown", "before_first_sent" if below else "sends_not_covered"


def _replies(lane: Lane, over_lanes: bool) -> list[tuple[Lane, str]]:
    return [(lane, "acknowledged"), (lane, "timed_out"), *([(EVERY, "received")] if over_lanes else [])]


def joined_spans(spans: list[tuple[int, int]], touching: int) -> list[tuple[int, int]]:
    """Spans as one where they overlap, or one begins at most so much behind another."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + touching:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
