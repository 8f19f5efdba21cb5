"""The checks of messages: what the messages of one bucket show, as rows that are named and counts.

docs/audit has a page for each; what needs to know more of a lane than one bucket has is asked of ``Known``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from causeway.audit.arrays import Array, Ints
from causeway.audit.columns import NO_HEIGHT, NO_TIME, REQUEST, Bools, Columns, Messages, code_of
from causeway.audit.windows import EVERY, Lane, Promises, Spans, Windows
from causeway.ledger.schema import Event

VIOLATED, UNKNOWN = "violated", "unknown"

ONCE = (Event.SENT, Event.RECEIVED, Event.EXECUTED, Event.ANSWERED, Event.ACKNOWLEDGED, Event.TIMED_OUT)
"""What happens to a message at most once."""

ENDED_AT_SOURCE = (Event.TIMED_OUT, Event.DROPPED, Event.REJECTED)
ENDED_AT_DESTINATION = (Event.RECEIVED, Event.DROPPED, Event.REJECTED)
"""How a message may end on its two chains: where one that looks open would show it, the windows must have these."""

ORDERED = {
    "ordered_sends": Event.SENT,
    "ordered_receives": Event.RECEIVED,
    "ordered_acknowledgements": Event.ACKNOWLEDGED,
}
"""Promises of order, and of which event, in the order in which ``lane_loops.walk`` has them."""

BEFORE = (
    (Event.SENT, Event.COMMITTED), (Event.SENT, Event.RECEIVED), (Event.SENT, Event.ACKNOWLEDGED),
    (Event.SENT, Event.TIMED_OUT), (Event.RECEIVED, Event.EXECUTED), (Event.RECEIVED, Event.ANSWERED),
    (Event.RECEIVED, Event.ACKNOWLEDGED),
)  # fmt: skip
"""What cannot happen before what."""

DONE = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.COLLECTED)
REFUSED = (Event.DROPPED, Event.REJECTED)
"""With what the chain that sent a message is done with it: events of that chain, and those that may be of either."""

MICROSECONDS = "microseconds"

UNDECIDED = "undecided"
"""The reason of what is decided when all buckets were seen."""

NOT_SENT_YET = "not_sent_yet"

UNDECIDED_PAID = "undecided_paid"
"""The same of what was paid out of messages that no row shows."""

PAID_NOT_SENT = "paid_not_sent"
"""What ``not_sent`` and ``not_sent_yet`` are of what was paid out of a message."""

_NOTHING = np.zeros(0, dtype=np.int64)


NEVER = np.int64(-0x8000000000000000)
"""The time before every time."""


MOST = np.int64(2**63 - 1)
"""The greatest number that is told apart from others: of microseconds, of messages."""


def microseconds(one: Ints, other: Ints) -> tuple[Ints, Bools]:
    """Return the microseconds from times to others, exactly (at most ``MOST``, at least ``NEVER``), and of which both
    were seen."""
    between = other - one
    wrong = ((other ^ one) & (other ^ between)) < 0
    if wrong.any():
        between[wrong] = np.where(other[wrong] < 0, NEVER, MOST)
    return between, np.asarray((one != NO_TIME) & (other != NO_TIME))


def _numbers(promised: Sequence[Mapping[str, int | None]], name: str) -> tuple[Bools, Ints]:
    found = [each.get(name) for each in promised]
    numbers = np.array([min(each or 0, int(MOST)) for each in found], np.int64)
    return np.array([each is not None for each in found], bool), numbers


def final_after(columns: Columns, promises: Promises) -> Ints:
    """Return how many microseconds each lane promises between a sending and its receipt, -1: none."""
    has_number, numbers = _numbers([promises.of(lane) for lane in columns.lanes], "final_after")
    return np.where(has_number, numbers, -1)


class SentEnds(NamedTuple):
    """The first and the last index that a lane is known to have sent, and when the last was sent (``NO_TIME``).

    ``before``: of each piece of the lane, in their order, its first index and the latest time at which a message of the
    pieces before it was sent (``NEVER``); empty where there are none.
    """

    first: int
    last: int
    last_time: int
    before: tuple[tuple[int, int], ...] = ()


@dataclass
class Known:
    """What is known of lanes beside a bucket's rows: windows, promises and, in a second look, ``sent`` of each lane.
    ``complete``: whether that is known."""

    windows: Windows
    promises: Promises
    sent: dict[Lane, SentEnds] = field(default_factory=dict)
    complete: bool = False


class Finding(NamedTuple):
    """Rows that a check names for one reason. ``from_index``: that of the first missing message instead of the row's
    own; ``magnitude``: how bad each is, NaN for not known; ``placed``: whether it is about the row itself, and not
    only about its message."""

    check: str
    verdict: str
    reason: str
    rows: Ints
    magnitude: Array | None = None
    unit: str | None = None
    from_index: Array | None = None
    placed: bool = True


class Checked(NamedTuple):
    """One check on one bucket: of how many messages each lane's were examined, and what was found."""

    check: str
    examined: Ints
    found: list[Finding]


class Bucket:
    """One bucket's rows with what its messages come to, and lanes' promises as columns."""

    def __init__(self, columns: Columns, known: Known) -> None:
        self.columns, self.known = columns, known
        self.lane = columns.lane[columns.starts[:-1]]
        self._promised = [known.promises.of(lane) for lane in columns.lanes]
        self.messages = Messages.of(columns, final_after(columns, known.promises))
        self._none = np.full(len(self.lane), -1, np.int32)

    def promised(self, name: str) -> Bools:
        """Return which lanes promise something."""
        return np.array([name in promised for promised in self._promised], dtype=bool)

    def numbers(self, name: str) -> tuple[Bools, Array]:
        """Return of each lane whether its promise has a number, and the number (that of ``MOST`` where it is more)."""
        return _numbers(self._promised, name)

    def floats(self, name: str) -> Array:
        """Return the number of each lane's promise, rounded."""
        return np.array([float(promised.get(name) or 0) for promised in self._promised])

    def first(self, event: Event) -> Array:
        """Return each message's first row of an event (of received ones the receipt), -1 for none."""
        return self.messages.firsts.get(code_of(event), self._none)

    def has(self, *events: Event) -> Bools:
        """Return which messages have one of some events."""
        found = np.zeros(len(self.lane), dtype=bool)
        for event in events:
            if code_of(event) in self.messages.firsts:
                found |= self.first(event) >= 0
        return found

    @cached_property
    def is_open(self) -> Bools:
        """Which messages were sent, and nothing says that they came or will not come."""
        over = (Event.RECEIVED, Event.EXECUTED, Event.ANSWERED, Event.ACKNOWLEDGED, Event.REJECTED)
        return self.has(Event.SENT) & ~self.has(*over, Event.TIMED_OUT, Event.DROPPED)

    @cached_property
    def is_unacknowledged(self) -> Bools:
        """Which messages were sent, and nothing says that the chain that sent them is done with them."""
        found = self.has(Event.SENT) & ~self.has(*DONE)
        columns = self.columns
        rows = np.flatnonzero(np.isin(columns.event, [code_of(event) for event in REFUSED]))
        if len(rows) and found.any():
            # Wherever they happen: on the chain that the message goes to they are not known at its source.
            codes = {name: code for code, name in enumerate(columns.chains)}
            source = np.array([codes.get(lane[1] or "", -1) for lane in columns.lanes], np.int64)
            chain = columns.chain[rows]
            rows = rows[(columns.alive[rows] > 0) & ((chain < 0) | (chain == source[columns.lane[rows]]))]
            found[columns.message[rows]] = False
        return found

    def count(self, messages: Bools) -> Ints:
        """Return how many of some messages each lane has."""
        return self.total(messages)

    def total(self, numbers: Array) -> Ints:
        """Return the sum of the numbers of each lane's messages."""
        return np.add.reduceat(numbers, self.columns.lane_starts, dtype=np.int64) if len(numbers) else _NOTHING

    def first_sent(self, messages: Bools) -> Ints:
        """Return when the first of some sent messages of each lane was sent, ``NO_TIME``: not seen of any."""
        if not len(messages):
            return _NOTHING
        times = np.full(len(messages), NO_TIME, np.int64)
        times[messages] = self.columns.time[self.first(Event.SENT)[messages]]
        found: Ints = np.minimum.reduceat(times, self.columns.lane_starts)
        return found

    def microseconds_between(self, one: Array, other: Array) -> tuple[Ints, Bools]:
        """Return the microseconds from rows to others, and of which both times were seen."""
        return microseconds(self.columns.time[one], self.columns.time[other])

    @cached_property
    def open_until(self) -> Ints:
        """Until which time it is sure of open messages of lanes with ordered receives that they ended nowhere on the
        chain that sent them, ``NEVER`` of others: the last window of each event that would say so has their sending,
        in heights and in times, and the first of these ends then."""
        chosen = np.flatnonzero(self.is_open & self.promised("ordered_receives")[self.lane])
        found = np.full(len(self.lane), NEVER)
        found[chosen] = MOST
        rows = self.first(Event.SENT)[chosen]
        for event in ENDED_AT_SOURCE if len(rows) else ():
            for places, spans, _ in self.spans(rows, self.columns.chain[rows], event):
                height, time = self.columns.height[rows[places]], self.columns.time[rows[places]]
                by_height = (height != NO_HEIGHT) & bool(len(spans.heights[0]))
                by_time = (time != NO_TIME) & spans.in_last_time(time)
                has = np.where(by_height, spans.in_last_height(height), by_time)
                last = spans.times[1][-1] if len(spans.times[1]) else NEVER
                found[chosen[places]] = np.where(has & by_time, np.minimum(found[chosen[places]], last), NEVER)
        return found

    def spans(
        self, rows: Array, chains: Array | None, event: Event | str, *, every: bool = False
    ) -> Iterator[tuple[Array, Spans, Lane]]:
        """Yield where rows stand that have one lane and chain (``chains``: codes; None: the lane's source), and the
        windows of that chain; ``every``: those of all lanes."""
        columns = self.columns
        lanes = columns.lane[rows]
        codes = np.zeros(len(rows), np.int64) if chains is None else chains.astype(np.int64)
        pairs, at = np.unique(np.column_stack((lanes, codes)), axis=0, return_inverse=True)
        order = np.argsort(at.reshape(-1), kind="stable")
        bounds = np.searchsorted(at.reshape(-1)[order], np.arange(len(pairs) + 1))
        for number, (lane_code, code) in enumerate(pairs.tolist()):
            lane = columns.lanes[lane_code]
            chain = lane[1] if chains is None else (columns.chains[code] if code >= 0 else None)
            places = order[bounds[number] : bounds[number + 1]]
            yield places, self.known.windows.of(chain, EVERY if every else lane, str(event)), lane

    def together(self, one: Array, other: Array, event: Event) -> Bools:
        """Return whether pairs of rows are on one chain and in one of its windows."""
        columns = self.columns
        covered = np.zeros(len(one), dtype=bool)
        same = columns.chain[one] == columns.chain[other]
        heights = (columns.height[one] != NO_HEIGHT) & (columns.height[other] != NO_HEIGHT)
        times = (columns.time[one] != NO_TIME) & (columns.time[other] != NO_TIME)
        for places, spans, _ in self.spans(one, columns.chain[one], event):
            a, b = one[places], other[places]
            by_height = spans.together_in_heights(columns.height[a], columns.height[b])
            by_time = spans.together_in_times(columns.time[a], columns.time[b])
            covered[places] = np.where(heights[places], by_height, times[places] & by_time)
        return np.asarray(covered & same)

    def unsent(self, check: str, rows: Ints) -> list[Finding]:
        """Return what rows are that say that a message was sent which no row shows as sent: ``UNDECIDED`` in the first
        look, in which it is not known what lanes sent, else what ``why_unsent`` says."""
        if not len(rows):
            return []
        early = self._before_lower_ones(rows)
        found = [Finding(check, VIOLATED, NOT_SENT_YET, rows[early])]
        rows = rows[~early]
        if not self.known.complete:
            return [*found, Finding(check, UNKNOWN, UNDECIDED, rows)]
        columns = self.columns
        places = columns.indexed[rows] == 1, columns.index[rows], columns.time[rows]
        reasons = why_unsent(self.known, columns.lanes, columns.lane[rows], *places)
        return [
            *found,
            *(
                Finding(check, verdict_of_unsent(reason), reason, rows[reasons == reason])
                for reason in sorted(set(reasons.tolist()))
            ),
        ]

    def _before_lower_ones(self, rows: Ints) -> Bools:
        """Return which rows are of a time before a message of this run with a lower index was sent, in lanes with
        ordered sends."""
        columns = self.columns
        early = np.zeros(len(rows), dtype=bool)
        asked = self.promised("ordered_sends")[columns.lane[rows]] & (columns.indexed[rows] == 1)
        sent = self.first(Event.SENT)
        ends = np.append(self.columns.lane_starts, len(sent))
        for lane in np.unique(columns.lane[rows[asked]]).tolist():
            messages = np.arange(ends[lane], ends[lane + 1])
            own = sent[messages]
            times = np.where((own >= 0) & (columns.time[own] != NO_TIME), columns.time[own], NEVER)
            latest = np.maximum.accumulate(times)
            chosen = np.flatnonzero(asked & (columns.lane[rows] == lane))
            at = columns.message[rows[chosen]] - ends[lane] - 1
            early[chosen] = (at >= 0) & (columns.time[rows[chosen]] < latest[np.maximum(at, 0)])
        return early


def why_unsent(known: Known, lanes: Sequence[Lane], lane: Array, indexed: Bools, index: Array, time: Array) -> Array:
    """Return why nothing shows that messages were sent of which something else was seen.

    ``not_sent_yet``, where sends are ordered and a message with a lower index was sent later than the time of the row.
    ``not_sent``, where the windows would show the sending: those of the source have everything since its first block
    or, where the lane is numbered and the index above the last one sent, since that one; until the time of the row.

    Args:
        known: what lanes sent, too.
        lanes, lane: the lanes, and which of them each row's is.
        indexed, index, time: of rows; ``NO_TIME``: not seen.
    """
    reasons = np.full(len(lane), "sends_not_covered", dtype=object)
    never = np.iinfo(np.int64).min
    order = np.argsort(lane, kind="stable")
    bounds = np.searchsorted(lane[order], np.arange(len(lanes) + 1))
    for number, own in enumerate(lanes):
        places = order[bounds[number] : bounds[number + 1]]
        if not len(places):
            continue
        spans, sent = known.windows.of(own[1], own, Event.SENT.value), known.sent.get(own)
        until = np.full(len(places), never if spans.all_until is None else spans.all_until, np.int64)
        if sent is not None:
            its_index = index[places]
            is_numbered = indexed[places] & ("numbered" in known.promises.of(own))
            end = spans.end_of(sent.last_time)
            if end is not None:
                until = np.where(is_numbered & (its_index > np.uint64(sent.last)), np.maximum(until, end), until)
        covered = (time[places] != NO_TIME) & (time[places] <= until)
        reasons[places[covered]] = "not_sent"
        if sent is not None:
            inside = is_numbered & (its_index >= np.uint64(sent.first)) & (its_index <= np.uint64(sent.last))
            reasons[places[inside]] = "missing_in_sequence"
            reasons[places[is_numbered & (its_index < np.uint64(sent.first)) & ~covered]] = "before_first_sent"
            if sent.before and "ordered_sends" in known.promises.of(own):
                at = np.searchsorted(np.array([first for first, _ in sent.before], np.uint64), its_index, side="right")
                latest = np.array([NEVER, *(time for _, time in sent.before)], np.int64)[at]
                reasons[places[indexed[places] & (time[places] < latest)]] = NOT_SENT_YET
    return reasons


def verdict_of_unsent(reason: str) -> str:
    """Return the verdict that goes with a reason of ``why_unsent``."""
    return VIOLATED if reason in ("not_sent", NOT_SENT_YET) else UNKNOWN


def exactly_once(bucket: Bucket) -> Checked:
    """Every message is received once, and nothing happens to it twice."""
    columns, messages = bucket.columns, bucket.messages
    found = []
    again = np.flatnonzero(messages.again)
    for event in ONCE:
        rows = again[columns.event[again] == code_of(event)]
        found.append(Finding("exactly_once", VIOLATED, f"{event.value}_again", rows))
    received, timed_out = bucket.has(Event.RECEIVED), bucket.has(Event.TIMED_OUT)
    both = bucket.first(Event.TIMED_OUT)[received & timed_out]
    found.append(Finding("exactly_once", VIOLATED, "timed_out_and_received", both))
    observed = (messages.flags & 2) > 0
    late = bucket.first(Event.RECEIVED)[received & observed]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed_and_received", late))
    found.append(Finding("exactly_once", UNKNOWN, "not_received", bucket.first(Event.SENT)[bucket.is_open]))
    happened = bucket.has(*ONCE)
    given_up = bucket.first(Event.OBSERVED)[observed & ~happened]
    found.append(Finding("exactly_once", UNKNOWN, "timeout_observed", given_up))
    return Checked("exactly_once", bucket.count(happened | observed), found)


def authenticity(bucket: Bucket) -> Checked:
    """What is received was sent, with this content, and no number stands for two contents."""
    status = bucket.messages.status
    reused = (bucket.messages.flags & 1) > 0
    sent, received = bucket.first(Event.SENT), bucket.first(Event.RECEIVED)
    named, too_many = np.where(sent >= 0, sent, received), bucket.messages.contents.astype(np.float64) - 1
    found = [
        Finding("authenticity", VIOLATED, "content_differs", np.flatnonzero(status == 3)),
        Finding("authenticity", UNKNOWN, "content_unseen", np.flatnonzero(status == 2)),
        *bucket.unsent("authenticity", np.flatnonzero(status == 4)),
        Finding("authenticity", VIOLATED, "number_reused", named[reused], too_many[reused], "messages", placed=False),
    ]
    return Checked("authenticity", bucket.total(bucket.messages.receives), found)


def causality(bucket: Bucket) -> Checked:
    """Nothing happens before what it needs: by height on one chain, else by time."""
    from causeway.audit.message_loops import NO_PLACE, TOO_SOON, compare_pairs

    columns = bucket.columns
    examined = np.zeros(len(columns.lanes), dtype=np.int64)
    pairs = np.zeros(len(bucket.lane), dtype=np.uint8)
    found = []
    for cause, effect in BEFORE:
        if code_of(effect) not in bucket.messages.firsts or code_of(cause) not in bucket.messages.firsts:
            continue
        rows: list[Array] = [
            bucket.messages.earliest if event is Event.RECEIVED else bucket.first(event) for event in (cause, effect)
        ]
        one, other = rows
        compare_pairs(one, other, columns.chain, columns.height, columns.time, pairs)
        examined += bucket.count(pairs > 0)
        wrong, unseen = np.flatnonzero(pairs == TOO_SOON), np.flatnonzero(pairs == NO_PLACE)
        between, seen = bucket.microseconds_between(other[wrong], one[wrong])
        by = np.where(seen, np.maximum(between, 0).astype(np.float64), np.nan)
        name = f"{effect.value}_before_{cause.value}"
        found.append(Finding("causality", VIOLATED, name, other[wrong], by, MICROSECONDS))
        found.append(Finding("causality", UNKNOWN, "place_unseen", other[unseen]))
    return Checked("causality", examined, found)


def finality(bucket: Bucket) -> Checked:
    """A message is received no sooner after it was sent than its lane promises."""
    has_number, least = bucket.numbers("final_after")
    both = has_number[bucket.lane] & bucket.has(Event.SENT) & bucket.has(Event.RECEIVED)
    one, other = bucket.first(Event.SENT)[both], bucket.first(Event.RECEIVED)[both]
    delay, seen = bucket.microseconds_between(one, other)
    promised = least[bucket.lane[both]]
    early = seen & (delay < promised)
    missing = microseconds(delay[early], promised[early])[0].astype(np.float64)
    # Of numbers that are more than can be told apart.
    missing += (bucket.floats("final_after") - least.astype(np.float64))[bucket.lane[both]][early]
    found = [
        Finding("finality", VIOLATED, "too_early", other[early], missing, MICROSECONDS),
        Finding("finality", UNKNOWN, "time_unseen", other[~seen]),
    ]
    return Checked("finality", bucket.count(both), found)


class Replies(NamedTuple):
    """What came of each message as a request: whether its lane promises an answer (``asked``), the row of its own lane
    that is its ``reply`` (-1: none), one of ``OUTCOMES`` with the ``row`` that it names and its ``magnitude``."""

    asked: Bools
    reply: Array
    outcome: Array
    row: Array
    magnitude: Array


NO_FINDING, LATE, WITHOUT_TIME, UNANSWERED, OPEN = range(5)
OUTCOMES = {LATE: "late", WITHOUT_TIME: "time_unseen", UNANSWERED: "unanswered", OPEN: "open"}
"""What may be found of a request."""


def own_replies(bucket: Bucket, over_lanes: Bools | None = None) -> Replies:
    """Return what came of requests in their own lanes. ``over_lanes``: to which messages responses may come over other
    lanes; None: to none."""
    columns = bucket.columns
    sent = bucket.first(Event.SENT)
    asked = bucket.promised("answered")[bucket.lane] & (sent >= 0)
    asked &= columns.kind[np.maximum(sent, 0)] == REQUEST
    has_limit, limits = bucket.numbers("answered")
    limited, limit = asked & has_limit[bucket.lane], limits[bucket.lane]
    acknowledged, timed_out = bucket.first(Event.ACKNOWLEDGED), bucket.first(Event.TIMED_OUT)
    reply = np.where(acknowledged >= 0, acknowledged, timed_out)
    outcome = np.where(asked & (reply < 0), OPEN, NO_FINDING)
    row, magnitude = np.where(reply >= 0, reply, sent), np.full(len(sent), np.nan)
    came = np.flatnonzero(limited & (reply >= 0))
    delay, seen = bucket.microseconds_between(sent[came], reply[came])
    outcome[came[seen & (delay > limit[came])]] = LATE
    outcome[came[~seen]] = WITHOUT_TIME
    magnitude[came] = np.where(seen, delay, np.nan)
    waiting = np.flatnonzero(limited & (reply < 0))
    age = _age(bucket, sent[waiting], None if over_lanes is None else over_lanes[waiting])
    over = waiting[age > limit[waiting]]
    outcome[over] = UNANSWERED
    magnitude[waiting] = np.where(age < 0, np.nan, age)
    return Replies(asked, reply, outcome, row, magnitude)


def _age(bucket: Bucket, rows: Array, over_lanes: Bools | None) -> Ints:
    """Return how old requests without reply are, at the end of the windows that have their sending and would show a
    reply: microseconds, -1 for one whose reply may have been missed."""
    columns = bucket.columns
    times = columns.time[rows]
    ends = np.full(len(rows), NO_TIME)
    shown_by = [(Event.ACKNOWLEDGED, np.arange(len(rows))), (Event.TIMED_OUT, np.arange(len(rows)))]
    if over_lanes is not None:
        shown_by.append((Event.RECEIVED, np.flatnonzero(over_lanes)))
    for event, which in shown_by:
        every = event is Event.RECEIVED
        for places, spans, _ in bucket.spans(rows[which], columns.chain[rows[which]], event, every=every):
            own = which[places]
            ends[own] = np.minimum(ends[own], spans.ends_of(times[own]))
    return np.where((times == NO_TIME) | (ends < times), -1, microseconds(times, ends)[0])


def answers(bucket: Bucket) -> Checked:
    """Every request of a lane that promises it gets its answer, within the time promised."""
    own = own_replies(bucket)
    found = []
    for code, reason in OUTCOMES.items():
        chosen = own.outcome == code
        verdict = VIOLATED if code in (LATE, UNANSWERED) else UNKNOWN
        size = (own.magnitude[chosen], MICROSECONDS) if verdict == VIOLATED else (None, None)
        found.append(Finding("answers", verdict, reason, own.row[chosen], *size))
    return Checked("answers", bucket.count(own.asked), found)


def answers_without_request(bucket: Bucket) -> Checked:
    """What is answered, acknowledged or timed out was sent."""
    replies = (Event.ACKNOWLEDGED, Event.TIMED_OUT, Event.ANSWERED)
    has = bucket.has(*replies)
    rows = bucket.first(replies[2])
    for event in replies[1::-1]:
        rows = np.where(bucket.first(event) >= 0, bucket.first(event), rows)
    found = bucket.unsent("answers_without_request", rows[has & ~bucket.has(Event.SENT)].astype(np.int64))
    return Checked("answers_without_request", bucket.count(has), found)


CHECKS: tuple[Callable[[Bucket], Checked], ...] = (
    exactly_once,
    authenticity,
    causality,
    finality,
    answers,
    answers_without_request,
)
"""Checks of messages by themselves; order and gaps are in ``along``, conservation has its own file."""
