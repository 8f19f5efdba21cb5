"""Answers that travel over lanes of their own: a response names its request in ``answers``, wherever that one lies.

In the first look a run says of which chains it has responses (``replies_in``). Where there are any, the requests of
those chains and the responses to them give records (``records_of``), of which those of one name come together in one
part (``meeting``): there it is found out what answers what (``answers_met``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.audit.arrays import Array, Ints, Words
from causeway.audit.bucket import Bucket
from causeway.audit.columns import KINDS, NO_HEIGHT, NO_TIME, REQUEST, Bools, code_of
from causeway.audit.naming import digests_of, own_names
from causeway.audit.replies import NO_FINDING, age_until, own_replies, waiting_outcome
from causeway.audit.windows import EVERY, Lane, Windows
from causeway.ledger.order import EVENTS
from causeway.ledger.schema import Event, Kind
from causeway.model.order import groups_of

Caller = tuple[str, str]
"""A protocol, and a chain that asks."""

CALLERS_SCHEMA = pa.schema([("protocol", pa.string()), ("chain", pa.string()), ("count", pa.int64())])
"""How many rows a run has that may be responses to a chain."""

IS_RESPONSE = np.isin(np.arange(len(KINDS)), [KINDS.index(kind) for kind in (Kind.RESPONSE, Kind.REJECT, Kind.REFUND)])
_HERE = [code_of(event) for event in (Event.RECEIVED, Event.ANSWERED)]
"""With what a response is seen on the chain that asked."""

_IS_HERE = np.isin(np.arange(len(EVENTS)), _HERE)

_SHOWN_TO_SOURCE = [code_of(event) for event in (Event.ACKNOWLEDGED, Event.TIMED_OUT)]
"""With what the end of a request is shown to who asked."""

_FORGED = 3
"""The status of a received row whose content no sending has (``message_loops.DIFFERS``)."""

HAS_REPLY = np.uint8(16)
"""What is added to the outcome of a request that has a reply in its own lane."""

_KEY = [("id_0", pa.uint64()), ("id_1", pa.uint64()), ("caller", pa.int32())]
_ROW = [
    *(("lane", pa.int32()), ("bucket", pa.int32()), ("row", pa.int64()), ("index", pa.uint64())),
    *(("indexed", pa.uint8()), ("height", pa.uint64()), ("time", pa.int64())),
]

REQUESTS_SCHEMA = pa.schema(
    [*_KEY, *_ROW, ("sent", pa.int64()), ("limit", pa.int64()), ("outcome", pa.uint8()), ("magnitude", pa.float64())]
)
"""A request. ``id_0``, ``id_1``: the digest of its ``message_id``; ``caller``: the number of who asks; ``lane``: that
of its lane; ``row``: of its bucket, which the outcome in its own lane names (``replies.own_replies``); ``height``,
``time``: of the reply in its own lane; ``sent``: when; ``limit``: microseconds that its lane promises, -1: none."""

RESPONSES_SCHEMA = pa.schema(
    [*_KEY, *_ROW, ("begin", pa.uint64()), ("own_0", pa.uint64()), ("own_1", pa.uint64()), ("covered", pa.uint8())]
)
"""A response as the chain that asked saw it first; ``id_0``, ``id_1``: the digest of what it answers; of a message
without index ``begin``: the first bytes of its own ``message_id``, ``own_0``, ``own_1``: the digest; ``covered``:
whether the input has all that the chain ever sent before."""


@dataclass(frozen=True)
class Answering:
    """What the records of requests and responses need.

    ``callers``: who asks, by number; ``lanes``: the lanes of requests and of responses, by number; ``asking``: those of
    requests; ``parts``: how many parts there are.
    """

    callers: Mapping[Caller, int]
    lanes: Mapping[Lane, int]
    asking: frozenset[Lane]
    parts: int


def replies_in(bucket: Bucket) -> pa.Table:
    """Return of which chains a run may have responses that name what they answer (``CALLERS_SCHEMA``)."""
    columns = bucket.columns
    rows = response_rows(bucket)
    if len(rows):
        named = np.asarray(columns.rows.take(("answers",), rows)["answers"].is_valid())
        rows = rows[named]
    counts = np.bincount(columns.lane[rows], minlength=len(columns.lanes))
    found: dict[Caller, int] = {}
    for lane in np.flatnonzero(counts).tolist():
        protocol, _, caller, _ = columns.lanes[lane]
        if protocol is not None and caller is not None:
            found[protocol, caller] = found.get((protocol, caller), 0) + int(counts[lane])
    keys = sorted(found)
    content = [[key[0] for key in keys], [key[1] for key in keys], [found[key] for key in keys]]
    return pa.table(content, CALLERS_SCHEMA)


def response_rows(bucket: Bucket) -> Ints:
    """Return the rows with which responses, rejects and refunds came to the chain that asked; none that is forged."""
    columns = bucket.columns
    if not columns.events.intersection(_HERE):
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(IS_RESPONSE[columns.kind] & _IS_HERE[columns.event] & (columns.alive == 1))
    rows = rows[~((columns.event[rows] == code_of(Event.RECEIVED)) & (bucket.messages.status[rows] == _FORGED))]
    codes = {name: code for code, name in enumerate(columns.chains)}
    here = np.array([codes.get(lane[2] or "", -1) for lane in columns.lanes], np.int64)
    found: Ints = rows[(columns.chain[rows] < 0) | (columns.chain[rows] == here[columns.lane[rows]])]
    return found


def records_of(bucket: Bucket, places: Ints, number: int, state: Answering) -> Iterator[tuple[str, pa.Table]]:
    """Yield a run's requests and responses.

    Args:
        bucket: the run.
        places: where each of its rows stands in its bucket.
        number: of the bucket.
        state: what is asked for.
    """
    lanes = bucket.columns.lanes
    numbers = np.array([state.lanes.get(lane, -1) for lane in lanes], np.int32)
    asked = np.array([state.callers.get((lane[0] or "", lane[2] or ""), -1) for lane in lanes], np.int32)
    asking = np.array([lane in state.asking for lane in lanes], bool)
    if asking.any():
        own = _requests(bucket, places, number, numbers, asking, _callers(bucket, state))
        yield "requests", pa.concat_tables([own, _moved(bucket, places, number, numbers, asking, state)])
    if (asked >= 0).any():
        yield "responses", _responses(bucket, places, number, numbers, asked)


def _callers(bucket: Bucket, state: Answering) -> Array:
    """Return the number of the chain that asks by each message, that its lane comes from or, where that was not seen,
    on which it was sent first; -1: no response to it was seen."""
    columns = bucket.columns
    of_lanes = [state.callers.get((lane[0] or "", lane[1] or ""), -1) for lane in columns.lanes]
    found = np.array(of_lanes, np.int32)[bucket.lane]
    sent = bucket.first(Event.SENT)
    for code, (protocol, source, _, _) in enumerate(columns.lanes):
        if source is None:
            numbers = [state.callers.get((protocol or "", chain), -1) for chain in columns.chains]
            messages = np.flatnonzero((bucket.lane == code) & (sent >= 0))
            found[messages] = np.array([*numbers, -1], np.int32)[columns.chain[sent[messages]]]
    return found


def _requests(bucket: Bucket, places: Ints, number: int, lanes: Array, asking: Array, callers: Array) -> pa.Table:
    columns = bucket.columns
    sent = bucket.first(Event.SENT)
    messages = np.flatnonzero((sent >= 0) & asking[bucket.lane])
    messages = messages[columns.kind[sent[messages]] == REQUEST]
    own = own_replies(bucket, callers >= 0)
    at = sent[messages]
    digests, named = digests_of(columns, at, "message_id")
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


def _moved(bucket: Bucket, places: Ints, number: int, lanes: Array, asking: Array, state: Answering) -> pa.Table:
    """Return requests once more, as those of the chains on which their end was shown: who asked had moved there, and
    there comes the answer. Nothing is found of these."""
    columns = bucket.columns
    ended = np.isin(columns.event, _SHOWN_TO_SOURCE) & (columns.alive == 1) & (columns.chain >= 0)
    rows = np.flatnonzero(ended & asking[columns.lane])
    at = bucket.first(Event.SENT)[columns.message[rows]]
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
    digests, named = digests_of(columns, at, "message_id")
    which = np.flatnonzero(named & (callers >= 0))
    rows, at = rows[which], at[which]
    content = {
        "id_0": digests[which, 0],
        "id_1": digests[which, 1],
        "caller": callers[which],
        "lane": lanes[lane[which]],
        "bucket": np.full(len(which), number, np.int32),
        "row": places[rows],
        "index": columns.index[at],
        "indexed": columns.indexed[at],
        "height": np.full(len(which), NO_HEIGHT),
        "time": np.full(len(which), NO_TIME),
        "sent": columns.time[at],
        "limit": np.full(len(which), -1, np.int64),
        "outcome": np.full(len(which), NO_FINDING + HAS_REPLY, np.uint8),
        "magnitude": np.full(len(which), np.nan),
    }
    return pa.table({name: content[name] for name in REQUESTS_SCHEMA.names}).cast(REQUESTS_SCHEMA)


def _responses(bucket: Bucket, places: Ints, number: int, lanes: Array, callers: Array) -> pa.Table:
    columns = bucket.columns
    rows = response_rows(bucket)
    rows = rows[callers[columns.lane[rows]] >= 0]
    digests, named = digests_of(columns, rows, "answers")
    rows, digests = rows[named], digests[named]
    # Of each message and request the first row, by place.
    keys = (columns.message[rows], digests[:, 0], digests[:, 1])
    order = np.lexsort((rows, columns.time[rows], columns.height[rows], *keys[::-1]))
    order = order[groups_of(*(key[order] for key in keys)).starts]
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
        **own_names(columns, rows),
        "covered": _all_covered(bucket, rows),
    }
    return pa.table({name: content[name] for name in RESPONSES_SCHEMA.names}).cast(RESPONSES_SCHEMA)


def with_windows(
    requests: pa.Table, responses: pa.Table, lanes: list[Lane], callers: Mapping[Caller, int], windows: Windows
) -> tuple[pa.Table, pa.Table]:
    """Return records as they are with other windows. ``requests``: of messages that their own source says were sent;
    ``lanes``, ``callers``: what the numbers in them stand for."""
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
        age = age_until(sent, ends)
        outcome[waiting] = waiting_outcome(age, limit[waiting], declared)
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


def _all_covered(bucket: Bucket, rows: Ints) -> npt.NDArray[np.uint8]:
    """Return whether the input has everything that the chains to which responses came ever sent before."""
    columns, windows = bucket.columns, bucket.known.windows
    found = np.zeros(len(rows), np.uint8)
    lane = columns.lane[rows]
    for code in np.unique(lane).tolist():
        places = np.flatnonzero(lane == code)
        found[places] = _covers(windows, columns.lanes[code], columns.height[rows[places]], columns.time[rows[places]])
    return found


def _covers(windows: Windows, lane: Lane, height: Words, time: Ints) -> Bools:
    """Return whether the input has everything that the destination of a lane ever sent before heights and times."""
    spans = windows.of(lane[2], EVERY, Event.SENT.value)
    covered = (height != NO_HEIGHT) & spans.since_genesis(height)
    if spans.all_until is not None:
        covered |= (time != NO_TIME) & (time <= spans.all_until)
    return np.asarray(covered)
