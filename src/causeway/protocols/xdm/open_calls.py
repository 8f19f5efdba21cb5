"""Calls of programs whose answers come later, as requests of their own (``docs/protocols/xdm.md``, "Programs").

A call is open from the response that says ``Accepted`` until its answer comes. The two travel in lanes of their own, so
that the answer may come first, while the call's request is still in the outbox. Only who has taken the call can answer
it: so the answer is taken as it comes, and the call has a row that says so until the response comes, of which nothing
is expected any more. A call to a chain to which no channel is left is given up.
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat
from causeway.model.joins import lookup
from causeway.model.order import Rows, groups_of, stable_order
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.endpoints import PROGRAMS_ENDPOINT
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import NOBODY, State
from causeway.protocols.xdm.tables import ENDS, OPEN_CALLS_SCHEMA

OPEN_CALL = ("chain", "sender", "callback")
"""What tells a call of a program from others."""

_NAMED = ("sender", "receiver", "callback")


def with_open_calls(state: State, accepted: Frame) -> State:
    """Return the state in which requests (``OUTBOX_SCHEMA``) that were accepted wait for their answers."""
    return state if len(accepted) == 0 else _with_rows(state, state["open_calls"], accepted, answered=False)


def take_late_answers(state: State, messages: Frame, rows: Frame, at: Rows) -> tuple[Rows, State, Rows]:
    """Return which late answers somebody waits for, the state without what they end, and which nobody does.

    ``messages``: contents, with ``rows``, the requests that they came in; ``at``: which of them are late answers. Each
    is for the call of that number by its receiver to its sender, if it is open, or its request without a response. Of
    two in a block the first counts.
    """
    if len(at) == 0:
        return at, state, at
    ends = {"chain": rows["destination"][at], "foreign": rows["source"][at]}
    named = {"sender": messages["receiver"][at], "receiver": messages["sender"][at]}
    asked = Frame({**ends, **named, "callback": messages["callback"][at]}, len(at))
    calls, outbox = state["open_calls"], LaneTable.of(state["outbox"])
    found = lookup(calls, asked, OPEN_CALL)
    unknown = found < 0
    if len(calls):
        waits = (calls["receiver"][found] == asked["receiver"]) & (calls["answered"][found] == 0)
        found = np.where(unknown | waits, found, -1)
    request = np.full(len(at), -1, dtype=np.int64)
    if unknown.any():
        request[unknown] = _requests_of(outbox, asked.filter(unknown))
    # Rows of the outbox are numbered behind the open calls.
    which = np.where(request >= 0, len(calls) + request, found)
    first = np.zeros(len(at), dtype=bool)
    first[np.unique(which, return_index=True)[1]] = True
    known = first & (which >= 0)
    keep = np.ones(len(calls), dtype=bool)
    keep[found[known & (found >= 0)]] = False
    early = outbox.rows_at(request[known & (request >= 0)])
    state = _with_rows(state, calls.filter(keep), early, answered=True)
    return at[known], state, at[~known]


def open_calls_to(calls: Frame, chain: int, foreign: int, context: Context) -> Rows:
    """Return which of ``calls`` (``OPEN_CALLS_SCHEMA``) wait on ``chain`` for answers of programs on ``foreign``."""
    first, end = np.searchsorted(calls["chain"], (chain, chain + 1))
    host = context.network.host_of(calls["receiver"][first:end])
    rows: Rows = first + np.flatnonzero((host == foreign) & (calls["answered"][first:end] == 0))
    return rows


def pairs_calling(calls: Frame, context: Context) -> list[tuple[int, int]]:
    """Return the pairs of chains (the caller's first) between which some of ``calls`` (``OPEN_CALLS_SCHEMA``) wait for
    answers."""
    some = calls["answered"] == 0
    chains, hosts = calls["chain"][some], context.network.host_of(calls["receiver"][some])
    pairs = np.unique(np.stack([chains.astype(np.int64), hosts.astype(np.int64)], axis=1), axis=0)
    return [(chain, foreign) for chain, foreign in pairs.tolist()]


def _with_rows(state: State, calls: Frame, requests: Frame, *, answered: bool) -> State:
    """Return the state with these open calls, and those of requests (``OUTBOX_SCHEMA``)."""
    if len(requests):
        said = np.full(len(requests), answered, dtype=np.uint8)
        added = requests.with_columns(chain=requests["source"], answered=said).select(OPEN_CALLS_SCHEMA.names)
        calls = concat([calls, added])
        calls = calls.take(stable_order(*(calls[name] for name in OPEN_CALL)))
    return state.with_tables(open_calls=calls)


def _requests_of(outbox: LaneTable, asked: Frame) -> Rows:
    """Return the row of each call (``chain``, ``foreign``, ``sender``, ``receiver``, ``callback``) in the outbox, -1
    where there is none."""
    order = stable_order(asked["chain"], asked["foreign"])
    pairs = asked.take(order[groups_of(asked["chain"][order], asked["foreign"][order]).starts])
    pairs = Frame({"source": pairs["chain"], "destination": pairs["foreign"]}, len(pairs))
    lanes = np.flatnonzero(lookup(pairs, outbox.lanes, ENDS) >= 0)
    every = np.full(len(lanes), np.iinfo(np.uint64).max)
    _, rows = outbox.window(lanes, np.zeros(len(lanes), dtype=np.uint64), every)
    of_program = (outbox.column_at("dst_endpoint", rows) == PROGRAMS_ENDPOINT) & (
        outbox.column_at("sender", rows) != NOBODY
    )
    rows = rows[of_program & np.isin(outbox.column_at("callback", rows), asked["callback"])]
    ends = {"chain": outbox.column_at("source", rows), "foreign": outbox.column_at("destination", rows)}
    calls = Frame({**ends, **{name: outbox.column_at(name, rows) for name in _NAMED}}, len(rows))
    found = lookup(calls, asked, ("chain", "foreign", *_NAMED), ordered=False)
    return np.where(found >= 0, rows[found] if len(rows) else -1, -1)
