"""Calls of programs whose answers come later, as requests of their own (``docs/protocols/xdm.md``, "Programs").

A call is open from the response that says ``Accepted`` until its answer comes. The two travel in lanes of their own, so
that the answer may come first, while the call's request is still in the outbox. Only who has taken the call can answer
it: so the answer is taken as it comes, and the call has a row that says so until the response comes, of which nothing
is expected any more. A call to a chain to which no channel is left is given up.

Which channels one chain has with another are open, and whether one may still be opened: of what waits for a channel,
and of calls whose answers would come through one (``docs/protocols/xdm.md``, "Channels", "No way left").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import Rows, find_positions, group_rows, stable_order

from causeway.core.frame import Frame, concat
from causeway.core.joins import lookup_rows
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.events import ChainEvent
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.relay.proofs import abandoned_lanes
from causeway.protocols.xdm.state import NOBODY, ChannelState, State, substream
from causeway.protocols.xdm.tables import ENDS, OPEN_CALLS_SCHEMA

OPEN_CALL = ("chain", "sender", "callback")
"""What tells a call of a program from others."""

_NAMED = ("sender", "receiver", "callback")


def add_open_calls(state: State, accepted: Frame) -> State:
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
    found = lookup_rows(calls, asked, OPEN_CALL)
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
    pairs = asked.take(order[group_rows(asked["chain"][order], asked["foreign"][order]).starts])
    pairs = Frame({"source": pairs["chain"], "destination": pairs["foreign"]}, len(pairs))
    lanes = np.flatnonzero(lookup_rows(pairs, outbox.lanes, ENDS) >= 0)
    every = np.full(len(lanes), np.iinfo(np.uint64).max)
    _, rows = outbox.window(lanes, np.zeros(len(lanes), dtype=np.uint64), every)
    of_program = (outbox.column_at("dst_endpoint", rows) == PROGRAMS_ENDPOINT) & (
        outbox.column_at("sender", rows) != NOBODY
    )
    rows = rows[of_program & np.isin(outbox.column_at("callback", rows), asked["callback"])]
    ends = {"chain": outbox.column_at("source", rows), "foreign": outbox.column_at("destination", rows)}
    calls = Frame({**ends, **{name: outbox.column_at(name, rows) for name in _NAMED}}, len(rows))
    found = lookup_rows(calls, asked, ("chain", "foreign", *_NAMED), ordered=False)
    return np.where(found >= 0, rows[found] if len(rows) else -1, -1)


class Openings:
    """What a block's chains know of channels to come.

    ``shown``: the channels (``CHANNELS_SCHEMA``) that others showed at the height before.
    """

    def __init__(self, state: State, shown: Frame, context: Context) -> None:
        self._channels, self._context = state["channels"], context
        self._shown = shown.take(stable_order(shown["chain"], shown["foreign"], shown["channel"]))
        self._never = abandoned_lanes(state["relaying"])

    def open(self, chain: int, foreign: int) -> Rows:
        """Return the rows of the open channels of ``chain`` with ``foreign``, the newest first."""
        own = _between(self._channels, chain, foreign)
        found: Rows = own[self._channels["state"][own] == ChannelState.OPEN][::-1]
        return found

    def can_be_opened(self, chain: int, foreign: int) -> bool:
        """Return whether a channel from ``chain`` to ``foreign`` may still be opened: by what either has asked for, or
        by a call that is planned."""
        own = self._channels.take(_between(self._channels, chain, foreign))
        # Of which channels operators have given up the request to open: both sides asked at once (hazard 9).
        mine = (self._never["source"] == chain) & (self._never["destination"] == foreign)
        asked = _is_asked(own) & ~np.isin(substream(own["channel"], 0), self._never["substream"][mine])
        if asked.any():
            return True
        theirs = self._shown.take(_between(self._shown, foreign, chain))
        theirs = theirs.filter(_is_asked(theirs))
        if not np.isin(theirs["channel"], own["channel"]).all():
            return True
        planned, context = self._context.planned, self._context
        since = _first_tick(foreign, context)
        return planned.initiates(chain, foreign, context.tick + 1) or planned.initiates(foreign, chain, since)

    def cut_off(self, chain: int, foreign: int) -> bool:
        """Return whether nothing can come to ``chain`` from ``foreign`` any more: through none of its channels that are
        open, and none may be opened."""
        own = self._channels.take(self.open(chain, foreign))
        theirs = self._shown.take(_between(self._shown, foreign, chain))
        at = find_positions(theirs["channel"], own["channel"])
        # One that the other has closed on its side alone, and all that it sent before has come.
        ended = np.zeros(len(own), dtype=bool)
        known = at >= 0
        ended[known] = (theirs["state"][at[known]] == ChannelState.CLOSED) & (
            own["next_inbox"][known] >= theirs["next_outbox"][at[known]]
        )
        return bool(ended.all()) and not self.can_be_opened(chain, foreign)


def _between(channels: Frame, chain: int, foreign: int) -> Rows:
    """Return the rows of the channels of ``chain`` with ``foreign``, by their numbers."""
    first, end = np.searchsorted(channels["chain"], (chain, chain + 1))
    inside = channels["foreign"][first:end]
    return np.arange(first + inside.searchsorted(foreign), first + inside.searchsorted(foreign, side="right"))


def depends_on_block(state: State, context: Context) -> bool:
    """Return whether something waits for what another chain was to do in this block, and its chain knows in the next: a
    channel that was to be initiated for the last time, or one that root was to close without a word (D-10)."""
    waiting, planned = state["waiting"], context.planned
    starts = group_rows(waiting["source"], waiting["destination"]).starts
    pairs = set(zip(waiting["source"][starts].tolist(), waiting["destination"][starts].tolist(), strict=True))

    def hangs(chain: int, foreign: int) -> bool:
        now = planned.initiates(foreign, chain, _first_tick(foreign, context))
        return now and not planned.initiates(foreign, chain, context.tick + 1)

    def closed(chain: int, foreign: int) -> bool:
        return forced and planned.closes(foreign, chain, _first_tick(foreign, context), context.tick)

    forced = context.options.force_close == "on"
    calling = pairs_calling(state["open_calls"], context)
    return any(hangs(*pair) for pair in pairs) or any(hangs(*pair) or closed(*pair) for pair in calling)


def awaits_abandoned_chain(state: State, abandoned: Sequence[ChainEvent], context: Context) -> bool:
    """Return whether a call or an answer waits for a channel between two chains of which operators give up a request
    now, or a call for an answer through one: the next block of its chain may give it up. What other chains give up or
    wait for is nothing to it."""
    if not abandoned:
        return False
    ends = {(notice.chain, notice.foreign) for notice in abandoned}
    waiting = state["waiting"]
    if not ends.isdisjoint(zip(waiting["source"].tolist(), waiting["destination"].tolist(), strict=True)):
        return True
    return any(len(open_calls_to(state["open_calls"], *pair, context)) > 0 for pair in sorted(ends))


def _first_tick(chain: int, context: Context) -> int:
    """Return the first tick whose planned calls a chain may be making in this block, as far as others know."""
    return min(context.again.get(chain, ()), default=context.tick)


def _is_asked(channels: Frame) -> npt.NDArray[np.bool_]:
    """Return which channels their chain has asked for without an answer so far."""
    asked = (channels["state"] == ChannelState.INITIATED) & (channels["next_outbox"] > 0)
    return np.asarray(asked & (channels["next_response"] == 0))
