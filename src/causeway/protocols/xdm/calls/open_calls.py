"""Open calls: programs' calls with answers in separate requests.

A call is open from the response ``Accepted`` until its answer. The two travel in separate lanes, so the answer may
arrive first, while the request is still in the outbox. Only the callee can answer, so the answer is accepted at once.
The call then keeps an ``answered`` row until the response. A call to a chain without a usable channel is given up.

``Openings`` tells the open channels of a pair of chains, and the possibility of a new one ("Programs",
"Channels", "No way left" in ``docs/explanation/protocols/xdm.md``).
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
"""Key of an open call."""

_NAMED = ("sender", "receiver", "callback")


def add_open_calls(state: State, accepted: Frame) -> State:
    """Return the state with accepted requests (``OUTBOX_SCHEMA``) as open calls."""
    return _with_rows(state, state["open_calls"], accepted, answered=False)


def take_late_answers(state: State, messages: Frame, rows: Frame, at: Rows) -> tuple[Rows, State, Rows]:
    """Match late answers with open calls or requests without a response.

    Args:
        state: State before the answers.
        messages: Contents of requests.
        rows: Lanes and indices of these requests.
        at: Rows of ``messages`` that are late answers.

    Returns:
        The matched rows, the state without the calls that they end, and the unmatched rows. The first of two answers in
        a block counts.
    """
    ends = {"chain": rows["destination"][at], "foreign": rows["source"][at]}
    named = {"sender": messages["receiver"][at], "receiver": messages["sender"][at]}
    keys = Frame({**ends, **named, "callback": messages["callback"][at]}, len(at))
    calls, outbox = state["open_calls"], LaneTable.of(state["outbox"])
    found = lookup_rows(calls, keys, OPEN_CALL)
    unknown = found < 0
    if len(calls):
        waits = (calls["receiver"][found] == keys["receiver"]) & (calls["answered"][found] == 0)
        found = np.where(unknown | waits, found, -1)
    request = np.full(len(at), -1, dtype=np.int64)
    if unknown.any():
        request[unknown] = _requests_of(outbox, keys.filter(unknown))
    # Row numbers of the outbox follow those of the open calls.
    targets = np.where(request >= 0, len(calls) + request, found)
    is_first = np.zeros(len(at), dtype=bool)
    is_first[np.unique(targets, return_index=True)[1]] = True
    known = is_first & (targets >= 0)
    keep = np.ones(len(calls), dtype=bool)
    keep[found[known & (found >= 0)]] = False
    early = outbox.rows_at(request[known & (request >= 0)])
    state = _with_rows(state, calls.filter(keep), early, answered=True)
    return at[known], state, at[~known]


def open_calls_to(calls: Frame, chain: int, foreign: int, context: Context) -> Rows:
    """Return the rows of ``calls`` on ``chain`` that wait for programs on ``foreign``."""
    first, end = np.searchsorted(calls["chain"], (chain, chain + 1))
    host = context.network.host_of(calls["receiver"][first:end])
    rows: Rows = first + np.flatnonzero((host == foreign) & (calls["answered"][first:end] == 0))
    return rows


def pairs_calling(calls: Frame, context: Context) -> list[tuple[int, int]]:
    """Return the pairs (caller, callee) of chains with waiting calls."""
    unanswered = calls["answered"] == 0
    chains, hosts = calls["chain"][unanswered], context.network.host_of(calls["receiver"][unanswered])
    pairs = np.unique(np.stack([chains.astype(np.int64), hosts.astype(np.int64)], axis=1), axis=0)
    return [(chain, foreign) for chain, foreign in pairs.tolist()]


def _with_rows(state: State, calls: Frame, requests: Frame, *, answered: bool) -> State:
    """Return the state with open calls and those of requests (``OUTBOX_SCHEMA``)."""
    if len(requests):
        answered_column = np.full(len(requests), answered, dtype=np.uint8)
        added = requests.with_columns(chain=requests["source"], answered=answered_column).select(
            OPEN_CALLS_SCHEMA.names
        )
        calls = concat([calls, added])
        calls = calls.take(stable_order(*(calls[name] for name in OPEN_CALL)))
    return state.with_tables(open_calls=calls)


def _requests_of(outbox: LaneTable, call_keys: Frame) -> Rows:
    """Return the row of each call in the outbox, -1 without one.

    ``call_keys`` has ``chain``, ``foreign``, ``sender``, ``receiver``, ``callback`` of each.
    """
    order = stable_order(call_keys["chain"], call_keys["foreign"])
    pairs = call_keys.take(order[group_rows(call_keys["chain"][order], call_keys["foreign"][order]).starts])
    pairs = Frame({"source": pairs["chain"], "destination": pairs["foreign"]}, len(pairs))
    lanes = np.flatnonzero(lookup_rows(pairs, outbox.lanes, ENDS) >= 0)
    every = np.full(len(lanes), np.iinfo(np.uint64).max)
    _, rows = outbox.window(lanes, np.zeros(len(lanes), dtype=np.uint64), every)
    of_program = (outbox.column_at("dst_endpoint", rows) == PROGRAMS_ENDPOINT) & (
        outbox.column_at("sender", rows) != NOBODY
    )
    rows = rows[of_program & np.isin(outbox.column_at("callback", rows), call_keys["callback"])]
    ends = {"chain": outbox.column_at("source", rows), "foreign": outbox.column_at("destination", rows)}
    calls = Frame({**ends, **{name: outbox.column_at(name, rows) for name in _NAMED}}, len(rows))
    found = lookup_rows(calls, call_keys, ("chain", "foreign", *_NAMED), ordered=False)
    return np.where(found >= 0, rows[found] if len(rows) else -1, -1)


class Openings:
    """Open channels of a block's chains, and the possibility of new ones.

    ``published`` are the channels of other chains at the previous height (``CHANNELS_SCHEMA``).
    """

    def __init__(self, state: State, published: Frame, context: Context) -> None:
        self._channels, self._context = state["channels"], context
        self._shown = published.take(stable_order(published["chain"], published["foreign"], published["channel"]))
        # Lanes with an open request that operators abandoned.
        self._never = abandoned_lanes(state["relaying"])

    def open(self, chain: int, foreign: int) -> Rows:
        """Return the rows of the open channels of ``chain`` with ``foreign``, latest first."""
        own = _between(self._channels, chain, foreign)
        found: Rows = own[self._channels["state"][own] == ChannelState.OPEN][::-1]
        return found

    def can_be_opened(self, chain: int, foreign: int) -> bool:
        """Return True if a channel from ``chain`` to ``foreign`` may still open.

        Either end has requested it, or a call is planned.
        """
        own = self._channels.take(_between(self._channels, chain, foreign))
        # Operators abandon an open request if both ends requested at once (hazard 9).
        abandoned = (self._never["source"] == chain) & (self._never["destination"] == foreign)
        requested = _is_requested(own) & ~np.isin(substream(own["channel"], 0), self._never["substream"][abandoned])
        if requested.any():
            return True
        peer_channels = self._shown.take(_between(self._shown, foreign, chain))
        peer_channels = peer_channels.filter(_is_requested(peer_channels))
        if not np.isin(peer_channels["channel"], own["channel"]).all():
            return True
        planned, context = self._context.planned, self._context
        since = _first_tick(foreign, context)
        return planned.initiates(chain, foreign, context.tick + 1) or planned.initiates(foreign, chain, since)

    def cut_off(self, chain: int, foreign: int) -> bool:
        """Return True if no message from ``foreign`` can reach ``chain`` any more."""
        own = self._channels.take(self.open(chain, foreign))
        peer_channels = self._shown.take(_between(self._shown, foreign, chain))
        at = find_positions(peer_channels["channel"], own["channel"])
        # A channel ends if its peer closed without a request and every earlier message has arrived.
        ended = np.zeros(len(own), dtype=bool)
        known = at >= 0
        ended[known] = (peer_channels["state"][at[known]] == ChannelState.CLOSED) & (
            own["next_inbox"][known] >= peer_channels["next_outbox"][at[known]]
        )
        return bool(ended.all()) and not self.can_be_opened(chain, foreign)


def _between(channels: Frame, chain: int, foreign: int) -> Rows:
    """Return the rows of the channels of ``chain`` with ``foreign``, by number."""
    first, end = np.searchsorted(channels["chain"], (chain, chain + 1))
    inside = channels["foreign"][first:end]
    return np.arange(first + inside.searchsorted(foreign), first + inside.searchsorted(foreign, side="right"))


def depends_on_block(state: State, context: Context) -> bool:
    """Return True if pending messages depend on a call of another chain in this block.

    The call is the last planned initiation of a channel, or root's close without a request (D-10). Their chain learns
    of it in the next block.
    """
    waiting, planned = state["waiting"], context.planned
    starts = group_rows(waiting["source"], waiting["destination"]).starts
    pairs = set(zip(waiting["source"][starts].tolist(), waiting["destination"][starts].tolist(), strict=True))

    def initiates_last(chain: int, foreign: int) -> bool:
        now = planned.initiates(foreign, chain, _first_tick(foreign, context))
        return now and not planned.initiates(foreign, chain, context.tick + 1)

    def closes_silently(chain: int, foreign: int) -> bool:
        return forced and planned.closes(foreign, chain, _first_tick(foreign, context), context.tick)

    forced = context.options.force_close == "on"
    calling = pairs_calling(state["open_calls"], context)
    return any(initiates_last(*pair) for pair in pairs) or any(
        initiates_last(*pair) or closes_silently(*pair) for pair in calling
    )


def awaits_abandoned_chain(state: State, abandoned: Sequence[ChainEvent], context: Context) -> bool:
    """Return True if pending messages depend on a request abandoned now.

    They are calls or answers that wait for a channel of the two chains, or calls that wait for an answer. The next
    block may give them up.
    """
    if not abandoned:
        return False
    ends = {(notice.chain, notice.foreign) for notice in abandoned}
    waiting = state["waiting"]
    if not ends.isdisjoint(zip(waiting["source"].tolist(), waiting["destination"].tolist(), strict=True)):
        return True
    return any(len(open_calls_to(state["open_calls"], *pair, context)) > 0 for pair in sorted(ends))


def _first_tick(chain: int, context: Context) -> int:
    """Return the first tick of the planned calls that a chain may execute in this block."""
    return min(context.again.get(chain, ()), default=context.tick)


def _is_requested(channels: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of channels with an unanswered open request."""
    requested = (channels["state"] == ChannelState.INITIATED) & (channels["next_outbox"] > 0)
    return np.asarray(requested & (channels["next_response"] == 0))
