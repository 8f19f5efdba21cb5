"""Match replies sent on separate lanes to open requests.

A message answers a request if it names the request's ``message_id`` in ``answers``, is a response, reject or refund of
the same protocol, and arrived (``received``, ``answered``) at the source chain of the request. Of several answers the
first counts, by height, then time.

Requests and answers may be in different buckets. So a first pass collects the names of open requests as digests, a
second one the answers that name them, and a third computes outcomes with these answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import group_rows, stable_order

from causeway.analysis.figures.positions import NO_TICK, EventPositions, no_positions
from causeway.audit.arrays import Array, Codes, Ints, Words, encode_names, order_preserving_times
from causeway.audit.bucket import BucketMessages, text_digests
from causeway.audit.checks.replies import IS_RESPONSE, response_rows
from causeway.audit.columns import Bools, RowColumns, event_code
from causeway.ledger.encodings import NameCodes, rank_names
from causeway.ledger.outcomes import MessageState
from causeway.ledger.schema import LedgerEvent

_NAME = pa.dictionary(pa.int32(), pa.string())

REPLIES_SCHEMA = pa.schema(
    [
        *(("id_0", pa.uint64()), ("id_1", pa.uint64()), ("protocol", _NAME), ("caller", _NAME)),
        *(("kind", pa.int8()), ("code", pa.int64()), ("height", pa.uint64()), ("tick", pa.uint64())),
        *(("time", pa.int64()), ("lost", pa.bool_()), ("detail", _NAME)),
    ]
)
"""An answer that arrived, or is ``lost``: dropped, with the cause as ``detail``.

``id_0``, ``id_1``: half of the SHA-256 of the name of its request.
"""

_WHO = ("protocol", "caller")

OPEN_SCHEMA = pa.schema([REPLIES_SCHEMA.field(name) for name in ("id_0", "id_1", "protocol", "caller")])
"""A request without an answer on its own lane."""


@dataclass(frozen=True)
class ReplyOutcomes:
    """The answers on other lanes of some messages.

    ``chains``: names of the codes in ``places``. ``lost``: mask of dropped answers; their other columns are undefined.
    ``causes``: names of causes; ``cause``: cause of each dropped answer, as a position in ``causes`` (-1: none
    recorded).
    """

    places: EventPositions
    kind: npt.NDArray[np.int8]
    has_code: Bools
    code: Ints
    lost: Bools
    chains: list[str]
    causes: list[str]
    cause: Codes

    def at(self, chosen: Array) -> ReplyOutcomes:
        """Return the answers of some messages, by number."""
        arrays = (self.kind[chosen], self.has_code[chosen], self.code[chosen], self.lost[chosen])
        return ReplyOutcomes(self.places.at(chosen), *arrays, self.chains, self.causes, self.cause[chosen])


class CrossLaneReplies:
    """Answers by request. ``rows``: of ``REPLIES_SCHEMA``, unique and sorted by ``id_0``."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows.combine_chunks()
        self._id_0, self._id_1 = self.rows["id_0"].to_numpy(), self.rows["id_1"].to_numpy()
        self._names = NameCodes()
        self._codes = [self._names.codes(self.rows[name]) for name in _WHO]

    def of(self, columns: RowColumns, base: Ints, open_: Ints) -> ReplyOutcomes | None:
        """Return the answers of messages; None without any.

        ``base``: the naming row of each message; ``open_``: the numbers of the open requests.
        """
        if not len(self._id_0) or not len(open_):
            return None
        requests, named = _request_keys(columns, base[open_])
        row = self._rows_of(requests)
        hits = np.flatnonzero(row >= 0)
        if not len(hits):
            return None
        return _replied(self.rows.take(pa.array(row[hits])), open_[named[hits]], len(base), [*columns.chains])

    def _rows_of(self, requests: pa.Table) -> Ints:
        """Return the row of the answer to each request; -1 without one."""
        id_0, id_1 = requests["id_0"].to_numpy(), requests["id_1"].to_numpy()
        known = NameCodes(self._names.known())
        wanted_codes = [known.codes(requests[name]) for name in _WHO]
        first = np.searchsorted(self._id_0, id_0)
        found = np.full(len(id_0), -1, np.int64)
        step, waiting = 0, np.arange(len(id_0))
        while len(waiting):  # answers to others may begin with the same digits
            at = first[waiting] + step
            waiting, at = waiting[at < len(self._id_0)], at[at < len(self._id_0)]
            alike = self._id_0[at] == id_0[waiting]
            waiting, at = waiting[alike], at[alike]
            hit = self._id_1[at] == id_1[waiting]
            for own, other in zip(self._codes, wanted_codes, strict=True):
                hit &= own[at] == other[waiting]
            found[waiting[hit]] = at[hit]
            waiting, step = waiting[~hit], step + 1
        return found


AnswerSource = CrossLaneReplies | Callable[[], CrossLaneReplies]
"""Answers on other lanes, or a function that finds them when a request is open."""


def _request_keys(columns: RowColumns, rows: Ints) -> tuple[pa.Table, Ints]:
    """Return the keys (``OPEN_SCHEMA``) of requests with a name and a known asking chain.

    The second value is the position of each of them.
    """
    digests, named = text_digests(columns, rows, "message_id")
    # The asking chain is the source of the lane or, if unknown, the chain of the sending event.
    sources = [lane[1] for lane in columns.lanes]
    chains = [*columns.chains, None]
    asking = [
        chains[chain] if (source := sources[lane]) is None else source
        for lane, chain in zip(columns.lane[rows].tolist(), columns.chain[rows].tolist(), strict=True)
    ]
    callers = pa.array(asking, pa.string())
    which = np.flatnonzero(named & np.asarray(callers.is_valid()))
    protocols = columns.lane_names["protocol"].take(pa.array(columns.lane[rows[which]]))
    words = [pa.array(np.ascontiguousarray(digests[which, word])) for word in range(2)]
    name_columns = [names.dictionary_encode() for names in (protocols, callers.take(pa.array(which)))]
    return pa.table([*words, *name_columns], OPEN_SCHEMA), which


def find_open_requests(columns: RowColumns, base: Ints, open_: Ints) -> pa.Table:
    """Return the open requests of a run.

    Args:
        columns: the rows of the run.
        base: the naming row of each message.
        open_: the numbers of the open requests.

    Returns:
        Rows of ``OPEN_SCHEMA``.
    """
    return _request_keys(columns, base[open_])[0]


def naming_responses(bucket: BucketMessages) -> Ints:
    """Return the rows of received or dropped responses that name their request.

    Args:
        bucket: a run of the bucket.

    Returns:
        Row numbers.
    """
    rows = np.concatenate((response_rows(bucket), find_lost_responses(bucket)))
    if not len(rows):
        return rows
    named = bucket.columns.rows.take(("answers",), rows)["answers"].is_valid()
    found: Ints = rows[np.asarray(named)]
    return found


def find_lost_responses(bucket: BucketMessages) -> Ints:
    """Return the rows of responses, rejects and refunds dropped unreceived, except forged ones.

    Args:
        bucket: a run of the bucket.

    Returns:
        Row numbers.
    """
    columns, dropped = bucket.columns, bucket.first(LedgerEvent.DROPPED)
    lost = np.isin(bucket.messages.state, (MessageState.DROPPED, MessageState.DISCARDED)) & ~bucket.forged
    rows = dropped[lost & (dropped >= 0)].astype(np.int64)
    found: Ints = rows[IS_RESPONSE[columns.kind[rows]]]
    return found


def find_replies(bucket: BucketMessages, request_digests: Words) -> pa.Table:
    """Return the answers of a run, each request once.

    Args:
        bucket: a run of the bucket.
        request_digests: ``id_0`` of the requests, ascending.

    Returns:
        Rows of ``REPLIES_SCHEMA``.
    """
    columns, rows = bucket.columns, naming_responses(bucket)
    lost = columns.event[rows] == event_code(LedgerEvent.DROPPED)
    digests, _ = text_digests(columns, rows, "answers")
    likely = np.isin(digests[:, 0], request_digests)
    rows, digests, lost = rows[likely], digests[likely], lost[likely]
    lanes = pa.array(columns.lane[rows])
    values = columns.rows.take(("code", "tick"), rows)
    # Only a lost answer passes its reason on to its request.
    detail = columns.rows.take(("detail",), rows)["detail"] if lost.any() else pa.nulls(len(rows), _NAME)
    content = {
        "id_0": pa.array(np.ascontiguousarray(digests[:, 0])),
        "id_1": pa.array(np.ascontiguousarray(digests[:, 1])),
        "protocol": columns.lane_names["protocol"].take(lanes).dictionary_encode(),
        "caller": columns.lane_names["destination"].take(lanes).dictionary_encode(),
        "kind": pa.array(columns.kind[rows].astype(np.int8)),
        "code": values["code"],
        "height": pa.array(columns.height[rows]),
        "tick": values["tick"].fill_null(int(NO_TICK)),
        "time": pa.array(columns.time[rows]),
        "lost": pa.array(lost),
        "detail": pc.if_else(pa.array(lost), detail.cast(pa.string()), None).dictionary_encode(),
    }
    return first_replies(pa.table([content[name] for name in REPLIES_SCHEMA.names], REPLIES_SCHEMA))


def first_replies(rows: pa.Table) -> pa.Table:
    """Return the first answer to each request by height, then time; lost answers count last.

    Ties in both are broken by the content of the answer.

    Args:
        rows: rows of ``REPLIES_SCHEMA``.

    Returns:
        One row a request.
    """
    rows = rows.filter(pc.is_valid(rows["caller"])).unify_dictionaries().combine_chunks()
    if not rows.num_rows:
        return rows
    keys = [rows["id_0"].to_numpy(), rows["id_1"].to_numpy()]
    keys += [rank_names(rows[name]).astype(np.uint64) for name in ("protocol", "caller")]
    code = rows["code"]
    order = stable_order(
        *keys,
        rows["lost"].to_numpy().astype(np.uint64),
        *(rows["height"].to_numpy(), order_preserving_times(rows["time"].to_numpy()), rows["tick"].to_numpy()),
        rows["kind"].to_numpy().astype(np.uint64),
        *(np.asarray(code.is_null()).astype(np.uint64), order_preserving_times(code.fill_null(0).to_numpy())),
        rank_names(rows["detail"]).astype(np.uint64),
    )
    return rows.take(pa.array(order[group_rows(*(key[order] for key in keys)).starts]))


def _replied(own: pa.Table, hits: Ints, count: int, chains: list[str]) -> ReplyOutcomes:
    lost = np.zeros(count, bool)
    dropped = own["lost"].to_numpy()
    lost[hits[dropped]] = True
    causes, cause = NameCodes(), np.full(count, -1, np.int32)
    cause[hits] = encode_names(own["detail"], causes)
    own, hits = own.filter(pa.array(~dropped)), hits[~dropped]
    found = no_positions(count)
    codes = {name: code for code, name in enumerate(chains)}
    for name in own["caller"].to_pylist():
        if codes.setdefault(name, len(chains)) == len(chains):
            chains.append(name)
    found.happened[hits] = True
    found.chain[hits] = [codes[name] for name in own["caller"].to_pylist()]
    found.height[hits], found.tick[hits] = own["height"].to_numpy(), own["tick"].to_numpy()
    found.time[hits] = own["time"].to_numpy()
    kinds, has_code, code = np.full(count, -1, np.int8), np.zeros(count, bool), np.zeros(count, np.int64)
    kinds[hits], has_code[hits] = own["kind"].to_numpy(), np.asarray(own["code"].is_valid())
    code[hits] = own["code"].fill_null(0).to_numpy()
    return ReplyOutcomes(found, kinds, has_code, code, lost, chains, causes.known(), cause)


__all__ = [
    "OPEN_SCHEMA",
    "REPLIES_SCHEMA",
    "AnswerSource",
    "CrossLaneReplies",
    "ReplyOutcomes",
    "find_open_requests",
    "find_replies",
    "first_replies",
    "naming_responses",
]  # fmt: skip
