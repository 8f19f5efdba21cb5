"""Replies to requests: in the request's own lane, or as responses on other lanes.

A response on another lane names its request in ``answers``. In the first pass a run reports the chains that receive
such responses (``find_calling_chains``). Requests of these chains and their responses then give records
(``reply_records``), and the records of one name are joined in one part (``passes.cross_bucket_join``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows

from causeway.audit.arrays import Array, Ints, Words, time_differences
from causeway.audit.bucket import BucketMessages, message_keys, text_digests
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME, REQUEST, Bools, event_code
from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.ledger.row_order import EVENTS
from causeway.ledger.schema import LedgerEvent, LedgerKind
from causeway.ledger.windows import EVERY_CHAIN_OR_LANE, Lane, ObservedWindowTable


class LaneReplies(NamedTuple):
    """Result of each message as a request in its own lane.

    Attributes:
        asked: Mask of messages whose lane guarantees an answer.
        reply: Row of the reply, or -1.
        outcome: One of ``OUTCOMES``, or ``NO_FINDING``.
        row: Row that a finding names.
        magnitude: Delay or age, in microseconds.
    """

    asked: Bools
    reply: Array
    outcome: Array
    row: Array
    magnitude: Array


NO_FINDING, LATE, WITHOUT_TIME, UNANSWERED, OPEN, PENDING = range(6)
OUTCOMES = {
    LATE: (VIOLATED, "late"),
    WITHOUT_TIME: (UNKNOWN, "time_unseen"),
    UNANSWERED: (VIOLATED, "unanswered"),
    OPEN: (UNKNOWN, "open"),
    PENDING: (NOTED, "pending"),
}
"""Verdict and reason by outcome of a request."""


NO_LIMIT = -1


def find_lane_replies(bucket: BucketMessages, over_lanes: Bools | None = None) -> LaneReplies:
    """Find the replies to requests in their own lanes.

    Args:
        bucket: The run.
        over_lanes: Mask of messages whose response may come on another lane; None: none.

    Returns:
        The result of each message.
    """
    from causeway.audit.message_loops import judge_replies

    columns = bucket.columns
    sent = bucket.first(LedgerEvent.SENT)
    asked = bucket.promised("answered")[bucket.lane] & (sent >= 0) & ~bucket.forged
    asked &= columns.kind[np.maximum(sent, 0)] == REQUEST
    has_limit, limits = bucket.numbers("answered")
    limits = np.where(has_limit, limits, NO_LIMIT)
    acknowledged, timed_out = bucket.first(LedgerEvent.ACKNOWLEDGED), bucket.first(LedgerEvent.TIMED_OUT)
    reply = np.where(acknowledged >= 0, acknowledged, timed_out)
    outcome = np.full(len(sent), NO_FINDING, np.uint8)
    row, magnitude = np.where(reply >= 0, reply, sent), np.full(len(sent), np.nan)
    judge_replies(
        asked.view(np.uint8), bucket.lane, limits, sent, reply, columns.time, outcome, magnitude, LATE, WITHOUT_TIME
    )
    waiting = np.flatnonzero(asked & (reply < 0))
    age, declared = _age(bucket, sent[waiting], None if over_lanes is None else over_lanes[waiting])
    outcome[waiting] = pending_outcome(age, limits[bucket.lane[waiting]], declared)
    magnitude[waiting] = np.where(age < 0, np.nan, age)
    return LaneReplies(asked, reply, outcome, row, magnitude)


def pending_outcome(age: Ints, limit: Ints, declared: Bools) -> Array:
    """Return the outcome of requests without reply.

    Args:
        age: Age of each, in microseconds; -1: unknown.
        limit: Deadline of each, in microseconds; ``NO_LIMIT``: none.
        declared: Mask: declared windows cover the wait until their end.
    """
    return np.where((limit != NO_LIMIT) & (age > limit), UNANSWERED, np.where(declared & (age >= 0), PENDING, OPEN))


def _age(bucket: BucketMessages, rows: Array, over_lanes: Bools | None) -> tuple[Ints, Bools]:
    """Return the age of open requests at the end of coverage, and a mask of declared coverage.

    Ages are in microseconds; -1 if a reply may have been missed.
    """
    columns = bucket.columns
    times, ends = columns.time[rows], np.full(len(rows), NO_TIME)
    declared = np.zeros(len(rows), bool)
    over = np.zeros(len(rows), bool) if over_lanes is None else over_lanes
    lanes, chains = columns.lane[rows], columns.chain[rows]
    order = np.lexsort((over, chains, lanes))
    groups = group_rows(lanes[order], chains[order], over[order])
    for begin, count in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        own = order[begin : begin + count]
        lane, chain = columns.lanes[lanes[own[0]]], chains[own[0]]
        name = columns.chains[chain] if chain >= 0 else None
        until = bucket.known.windows.replies_until(name, lane, times[own], bool(over[own[0]]))
        ends[own], declared[own] = until.end, until.to_the_end & until.declared
    return age_at_window_end(times, ends), declared


def age_at_window_end(times: Ints, ends: Ints) -> Ints:
    """Return the age of requests at the ends of windows, in microseconds; -1: unknown."""
    return np.where((times == NO_TIME) | (ends < times), -1, time_differences(times, ends)[0])


ResponseCaller = tuple[str, str]
"""A protocol, and a chain that sends requests."""

CALLERS_SCHEMA = pa.schema([("protocol", pa.string()), ("chain", pa.string()), ("count", pa.int64())])
"""Number of rows of a run that may be responses to a chain."""

IS_RESPONSE = np.isin(
    np.arange(len(KINDS)), [KINDS.index(kind) for kind in (LedgerKind.RESPONSE, LedgerKind.REJECT, LedgerKind.REFUND)]
)
_HERE = [event_code(event) for event in (LedgerEvent.RECEIVED, LedgerEvent.ANSWERED)]
"""Events of a response on the requesting chain."""

_IS_HERE = np.isin(np.arange(len(EVENTS)), _HERE)

_SHOWN_TO_SOURCE = [event_code(event) for event in (LedgerEvent.ACKNOWLEDGED, LedgerEvent.TIMED_OUT)]
"""Events that show the end of a request to its sender."""

_FORGED = 3
"""Status of a received row whose content differs from every sending (``message_loops.DIFFERS``)."""

HAS_REPLY = np.uint8(16)
"""Flag in the outcome of a request with a reply in its own lane."""

_KEY = [("id_0", pa.uint64()), ("id_1", pa.uint64()), ("caller", pa.int32())]
_ROW = [
    *(("lane", pa.int32()), ("bucket", pa.int32()), ("row", pa.int64()), ("index", pa.uint64())),
    *(("indexed", pa.uint8()), ("height", pa.uint64()), ("time", pa.int64())),
]

REQUESTS_SCHEMA = pa.schema(
    [*_KEY, *_ROW, ("sent", pa.int64()), ("limit", pa.int64()), ("outcome", pa.uint8()), ("magnitude", pa.float64())]
)
"""A request. ``id_0``, ``id_1``: digest of its ``message_id``; ``caller``: number of the requesting chain; ``lane``:
number of its lane; ``row``: row of its bucket that the outcome names (``find_lane_replies``); ``height``,
``time``: of the reply in its own lane; ``sent``: send time; ``limit``: deadline of its lane in microseconds, -1:
none."""

RESPONSES_SCHEMA = pa.schema(
    [*_KEY, *_ROW, ("begin", pa.uint64()), ("own_0", pa.uint64()), ("own_1", pa.uint64()), ("covered", pa.uint8())]
)
"""A response, as the requesting chain saw it first. ``id_0``, ``id_1``: digest of the request's id; for a message
without index ``begin``: the first bytes of its own ``message_id``, ``own_0``, ``own_1``: the digest; ``covered``:
1 if the input covers all earlier sendings of the chain."""


@dataclass(frozen=True)
class ReplyContext:
    """Context of the records of requests and responses.

    Attributes:
        callers: Number of each requesting chain.
        lanes: Number of each lane of requests and responses.
        asking: Lanes of requests.
        parts: Number of parts.
    """

    callers: Mapping[ResponseCaller, int]
    lanes: Mapping[Lane, int]
    asking: frozenset[Lane]
    parts: int


def find_calling_chains(bucket: BucketMessages) -> pa.Table:
    """Return the chains with possible responses that name a request (``CALLERS_SCHEMA``)."""
    columns = bucket.columns
    rows = response_rows(bucket)
    if len(rows):
        named = np.asarray(columns.rows.take(("answers",), rows)["answers"].is_valid())
        rows = rows[named]
    counts = np.bincount(columns.lane[rows], minlength=len(columns.lanes))
    found: dict[ResponseCaller, int] = {}
    for lane in np.flatnonzero(counts).tolist():
        protocol, _, caller, _ = columns.lanes[lane]
        if protocol is not None and caller is not None:
            found[protocol, caller] = found.get((protocol, caller), 0) + int(counts[lane])
    keys = sorted(found)
    content = [[key[0] for key in keys], [key[1] for key in keys], [found[key] for key in keys]]
    return pa.table(content, CALLERS_SCHEMA)


def response_rows(bucket: BucketMessages) -> Ints:
    """Return the rows of responses, rejects and refunds on the requesting chain.

    Forged ones are excluded.

    Args:
        bucket: The run.

    Returns:
        Row numbers, int64.
    """
    columns = bucket.columns
    if not columns.events.intersection(_HERE):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(IS_RESPONSE[columns.kind] & _IS_HERE[columns.event] & (columns.alive == 1))
    rows = rows[
        ~((columns.event[rows] == event_code(LedgerEvent.RECEIVED)) & (bucket.messages.status[rows] == _FORGED))
    ]
    codes = {name: code for code, name in enumerate(columns.chains)}
    here = np.array([codes.get(lane[2] or "", -1) for lane in columns.lanes], np.int64)
    found: Ints = rows[(columns.chain[rows] < 0) | (columns.chain[rows] == here[columns.lane[rows]])]
    return found


def reply_records(
    bucket: BucketMessages, places: Ints, number: int, state: ReplyContext
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the records of a run's requests and responses, by kind.

    Args:
        bucket: The run.
        places: Position of each of its rows in the bucket.
        number: Number of the bucket.
        state: Context of the records.
    """
    lanes = bucket.columns.lanes
    numbers = np.array([state.lanes.get(lane, -1) for lane in lanes], np.int32)
    callers = np.array([state.callers.get((lane[0] or "", lane[2] or ""), -1) for lane in lanes], np.int32)
    asking = np.array([lane in state.asking for lane in lanes], bool)
    if asking.any():
        own = _requests(bucket, places, number, numbers, asking, _callers(bucket, state))
        yield "requests", pa.concat_tables([own, _moved_requests(bucket, places, number, numbers, asking, state)])
    if (callers >= 0).any():
        yield "responses", _responses(bucket, places, number, numbers, callers)


def _callers(bucket: BucketMessages, state: ReplyContext) -> Array:
    """Return the number of the requesting chain of each message, -1: no response to it is known.

    It is the source of its lane or, if unknown, the chain of its first sending.
    """
    columns = bucket.columns
    of_lanes = [state.callers.get((lane[0] or "", lane[1] or ""), -1) for lane in columns.lanes]
    found = np.array(of_lanes, np.int32)[bucket.lane]
    sent = bucket.first(LedgerEvent.SENT)
    for code, (protocol, source, _, _) in enumerate(columns.lanes):
        if source is None:
            numbers = [state.callers.get((protocol or "", chain), -1) for chain in columns.chains]
            messages = np.flatnonzero((bucket.lane == code) & (sent >= 0))
            found[messages] = np.array([*numbers, -1], np.int32)[columns.chain[sent[messages]]]
    return found


def _requests(
    bucket: BucketMessages, places: Ints, number: int, lanes: Array, asking: Array, callers: Array
) -> pa.Table:
    columns = bucket.columns
    sent = bucket.first(LedgerEvent.SENT)
    messages = np.flatnonzero((sent >= 0) & asking[bucket.lane])
    messages = messages[columns.kind[sent[messages]] == REQUEST]
    own = find_lane_replies(bucket, callers >= 0)
    at = sent[messages]
    digests, named = text_digests(columns, at, "message_id")
    has_limit, limits = bucket.numbers("answered")
    lane = bucket.lane[messages]
    row = own.row[messages]
    reply = own.reply[messages]
    content = {
        "id_0": digests[:, 0],
        "id_1": digests[:, 1],
        "caller": np.where(named, callers[messages], np.int32(-1)),
        "lane": lanes[lane],
        "bucket": np.full(len(messages), number, np.int32),
        "row": places[np.where(row >= 0, row, at)],
        "index": columns.index[at],
        "indexed": columns.indexed[at],
        "height": np.where(reply >= 0, columns.height[reply], NO_HEIGHT),
        "time": np.where(reply >= 0, columns.time[reply], NO_TIME),
        "sent": columns.time[at],
        "limit": np.where(has_limit[lane] & own.asked[messages], limits[lane], -1),
        "outcome": np.where(own.asked[messages], own.outcome[messages], NO_FINDING) + HAS_REPLY * (reply >= 0),
        "magnitude": own.magnitude[messages],
    }
    return pa.table({name: content[name] for name in REQUESTS_SCHEMA.names}).cast(REQUESTS_SCHEMA)


def _moved_requests(
    bucket: BucketMessages, places: Ints, number: int, lanes: Array, asking: Array, state: ReplyContext
) -> pa.Table:
    """Return records of requests whose end was shown on another chain.

    The caller had moved there, and its answer arrives there. These records give no findings.
    """
    columns = bucket.columns
    ended = np.isin(columns.event, _SHOWN_TO_SOURCE) & (columns.alive == 1) & (columns.chain >= 0)
    rows = np.flatnonzero(ended & asking[columns.lane])
    at = bucket.first(LedgerEvent.SENT)[columns.message[rows]]
    rows, at = rows[at >= 0], at[at >= 0]
    codes = {name: code for code, name in enumerate(columns.chains)}
    of_lanes = [-1 if lane[1] is None else codes.get(lane[1], len(codes)) for lane in columns.lanes]
    sources = np.array(of_lanes, np.int64)[columns.lane[rows]]
    home = np.where(sources >= 0, sources, columns.chain[at])
    elsewhere = (columns.kind[at] == REQUEST) & (columns.chain[rows] != home) & (home >= 0)
    rows, at = rows[elsewhere], at[elsewhere]
    callers = np.full(len(rows), -1, np.int32)
    lane = columns.lane[rows]
    for code in np.unique(lane).tolist():
        protocol = columns.lanes[code][0] or ""
        numbers = np.array([state.callers.get((protocol, chain), -1) for chain in columns.chains], np.int32)
        callers[lane == code] = numbers[columns.chain[rows[lane == code]]]
    digests, named = text_digests(columns, at, "message_id")
    chosen = np.flatnonzero(named & (callers >= 0))
    rows, at = rows[chosen], at[chosen]
    content = {
        "id_0": digests[chosen, 0],
        "id_1": digests[chosen, 1],
        "caller": callers[chosen],
        "lane": lanes[lane[chosen]],
        "bucket": np.full(len(chosen), number, np.int32),
        "row": places[rows],
        "index": columns.index[at],
        "indexed": columns.indexed[at],
        "height": np.full(len(chosen), NO_HEIGHT),
        "time": np.full(len(chosen), NO_TIME),
        "sent": columns.time[at],
        "limit": np.full(len(chosen), -1, np.int64),
        "outcome": np.full(len(chosen), NO_FINDING + HAS_REPLY, np.uint8),
        "magnitude": np.full(len(chosen), np.nan),
    }
    return pa.table({name: content[name] for name in REQUESTS_SCHEMA.names}).cast(REQUESTS_SCHEMA)


def _responses(bucket: BucketMessages, places: Ints, number: int, lanes: Array, callers: Array) -> pa.Table:
    columns = bucket.columns
    rows = response_rows(bucket)
    rows = rows[callers[columns.lane[rows]] >= 0]
    digests, named = text_digests(columns, rows, "answers")
    rows, digests = rows[named], digests[named]
    # Keep the first row by position of each message and request.
    keys = (columns.message[rows], digests[:, 0], digests[:, 1])
    order = np.lexsort((rows, columns.time[rows], columns.height[rows], *keys[::-1]))
    order = order[group_rows(*(key[order] for key in keys)).starts]
    rows, digests = rows[order], digests[order]
    lane = columns.lane[rows]
    content = {
        "id_0": digests[:, 0],
        "id_1": digests[:, 1],
        "caller": callers[lane],
        "lane": lanes[lane],
        "bucket": np.full(len(rows), number, np.int32),
        "row": places[rows],
        "index": columns.index[rows],
        "indexed": columns.indexed[rows],
        "height": columns.height[rows],
        "time": columns.time[rows],
        **message_keys(columns, rows),
        "covered": _all_covered(bucket, rows),
    }
    return pa.table({name: content[name] for name in RESPONSES_SCHEMA.names}).cast(RESPONSES_SCHEMA)


def update_reply_windows(
    requests: pa.Table,
    responses: pa.Table,
    lanes: list[Lane],
    callers: Mapping[ResponseCaller, int],
    windows: ObservedWindowTable,
) -> tuple[pa.Table, pa.Table]:
    """Update records to other windows.

    Args:
        requests: Requests sent by the source of their lane.
        responses: Responses.
        lanes: Lanes by number.
        callers: Number of each requesting chain.
        windows: The new windows.

    Returns:
        The updated requests and responses.
    """
    limit, outcome = requests["limit"].to_numpy(), requests["outcome"].to_numpy().copy()
    waiting = np.flatnonzero((outcome != NO_FINDING) & (outcome < HAS_REPLY))
    if len(waiting):
        lane, sent = requests["lane"].to_numpy()[waiting], requests["sent"].to_numpy()[waiting]
        ends, declared = np.full(len(waiting), NO_TIME), np.zeros(len(waiting), bool)
        for code in np.unique(lane).tolist():
            places, own = np.flatnonzero(lane == code), lanes[code]
            over_lanes = (own[0] or "", own[1] or "") in callers
            until = windows.replies_until(own[1], own, sent[places], over_lanes)
            ends[places], declared[places] = until.end, until.to_the_end & until.declared
        age = age_at_window_end(sent, ends)
        outcome[waiting] = pending_outcome(age, limit[waiting], declared)
        magnitude = requests["magnitude"].to_numpy().copy()
        magnitude[waiting] = np.where(age < 0, np.nan, age)
        content = {**dict(zip(requests.column_names, requests.columns, strict=True)), "outcome": outcome}
        requests = pa.table({**content, "magnitude": magnitude}).cast(REQUESTS_SCHEMA)
    if responses.num_rows:
        lane, covered = responses["lane"].to_numpy(), np.zeros(responses.num_rows, np.uint8)
        for code in np.unique(lane).tolist():
            places = np.flatnonzero(lane == code)
            height, time = (responses[name].to_numpy()[places] for name in ("height", "time"))
            covered[places] = _covers(windows, lanes[code], height, time)
        at = responses.schema.get_field_index("covered")
        responses = responses.set_column(at, responses.schema.field(at), pa.array(covered))
    return requests, responses


def _all_covered(bucket: BucketMessages, rows: Ints) -> npt.NDArray[np.uint8]:
    """Return 1 for rows where the input covers all earlier sendings of the responding chain."""
    columns, windows = bucket.columns, bucket.known.windows
    found = np.zeros(len(rows), np.uint8)
    lane = columns.lane[rows]
    for code in np.unique(lane).tolist():
        places = np.flatnonzero(lane == code)
        found[places] = _covers(windows, columns.lanes[code], columns.height[rows[places]], columns.time[rows[places]])
    return found


def _covers(windows: ObservedWindowTable, lane: Lane, height: Words, time: Ints) -> Bools:
    """Return a mask of positions with all earlier sendings of a lane's destination covered."""
    spans = windows.of(lane[2], EVERY_CHAIN_OR_LANE, LedgerEvent.SENT.value)
    covered = (height != NO_HEIGHT) & spans.since_genesis(height)
    if spans.all_until is not None:
        covered |= (time != NO_TIME) & (time <= spans.all_until)
    return np.asarray(covered)
