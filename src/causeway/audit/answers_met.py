"""What answers what: requests and responses of one name, out of whatever buckets they came."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from causeway.audit.answering import HAS_REPLY, REQUESTS_SCHEMA, RESPONSES_SCHEMA
from causeway.audit.arrays import Array, Ints
from causeway.audit.candidates import Group, Met, met_of
from causeway.audit.columns import NO_HEIGHT, NO_TIME, Bools
from causeway.audit.delays import microseconds
from causeway.audit.replies import LATE, OUTCOMES, UNANSWERED, WITHOUT_TIME
from causeway.model.order import groups_of

Records = Mapping[str, Array]

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""So that requests of one name and different chains lie apart."""


def answers_met(requests: pa.Table, responses: pa.Table, limit: int) -> Met:
    """Return what requests (``REQUESTS_SCHEMA``) and responses (``RESPONSES_SCHEMA``) of one part show, which has all
    of each name that it has any of. ``limit``: how many findings of a lane and reason may be named."""
    asked = {name: requests[name].to_numpy() for name in REQUESTS_SCHEMA.names}
    asked |= {"own_0": asked["id_0"], "own_1": asked["id_1"]}
    given = {name: responses[name].to_numpy() for name in RESPONSES_SCHEMA.names}
    number = _names(asked, given)
    of_request, of_response = number[: len(requests)], number[len(requests) :]
    first, later = _first_of_each(given, of_response, int(number.max(initial=-1)) + 1)
    has_request = np.zeros(len(first), dtype=bool)
    has_request[of_request] = True
    unasked = ~has_request[of_response]
    covered = given["covered"] == 1
    groups = [
        Group("exactly_once", "answered_twice", given, np.flatnonzero(later)),
        Group("answers_without_request", "no_request", given, np.flatnonzero(unasked & covered)),
        Group("answers_without_request", "request_not_covered", given, np.flatnonzero(unasked & ~covered)),
        *_replies(asked, given, first[of_request]),
    ]
    return met_of(groups, {"answers_without_request": given["lane"]}, limit)


def _names(asked: Records, given: Records) -> Ints:
    """Return a number for the name of each request, and behind them of each response; equal where the names are."""
    words = [np.concatenate((asked[name], given[name])) for name in ("id_0", "id_1", "caller")]
    mixed = words[0] ^ (words[2].astype(np.uint64) * _SPREAD)
    order = np.argsort(mixed, kind="stable")
    groups = groups_of(*(word[order] for word in words))
    if len(groups) != len(groups_of(mixed[order])):
        # Names that are alike in this word only: whoever made them may have meant them to be.
        order = np.lexsort(words)
        groups = groups_of(*(word[order] for word in words))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = groups.spread(np.arange(len(groups)))
    return number


def _first_of_each(given: Records, number: Ints, names: int) -> tuple[Ints, Bools]:
    """Return of each name its first response by place (-1: none), and which responses are later ones."""
    first = np.full(names, -1, dtype=np.int64)
    first[number] = np.arange(len(number))
    later = np.zeros(len(number), dtype=bool)
    several = np.flatnonzero(np.bincount(number, minlength=names)[number] > 1)
    if len(several):
        keys = [given[name][several] for name in ("height", "time", "lane", "index", "begin", "own_0", "own_1")]
        keys.insert(3, 1 - given["indexed"][several].astype(np.int8))
        order = several[np.lexsort((*keys[::-1], number[several]))]
        starts = groups_of(number[order]).starts
        later[several] = True
        later[order[starts]] = False
        first[number[order[starts]]] = order[starts]
    return first, later


def _replies(asked: Records, given: Records, response: Ints) -> list[Group]:
    """Return the findings about requests. ``response``: the first one to each, -1: none."""
    outcome, has_own = asked["outcome"] & (HAS_REPLY - 1), asked["outcome"] >= HAS_REPLY
    over_lanes = (response >= 0) & (~has_own | _earlier(given, response, asked))
    groups = []
    for code, (_, reason) in OUTCOMES.items():
        which = np.flatnonzero(~over_lanes & (outcome == code))
        sized = code in (LATE, UNANSWERED)
        groups.append(Group("answers", reason, asked, which, asked["magnitude"][which] if sized else None))
    limited = np.flatnonzero(over_lanes & (asked["limit"] >= 0))
    came = response[limited]
    sent, time = asked["sent"][limited], given["time"][came]
    delay, seen = microseconds(sent, time)
    late = seen & (delay > asked["limit"][limited])
    groups.append(Group("answers", OUTCOMES[LATE][1], given, came[late], delay[late].astype(np.float64)))
    groups.append(Group("answers", OUTCOMES[WITHOUT_TIME][1], given, came[~seen]))
    return groups


def _earlier(given: Records, response: Ints, asked: Records) -> Bools:
    """Return which responses come before the reply in the request's own lane, by height if both have one, else by
    time."""
    if not len(given["row"]):
        return np.zeros(len(response), dtype=bool)
    height, time = given["height"][response], given["time"][response]
    heights = (height != NO_HEIGHT) & (asked["height"] != NO_HEIGHT)
    times = (time != NO_TIME) & (asked["time"] != NO_TIME)
    return np.asarray(np.where(heights, height < asked["height"], times & (time < asked["time"])))
