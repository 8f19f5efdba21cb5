"""Which channels one chain has with another are open, and whether one may still be opened: of what waits for a channel,
and of calls whose answers would come through one (``docs/protocols/xdm.md``, "Channels", "No way left")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.order import Rows, groups_of, positions_in, stable_order
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.open_calls import open_calls_to, pairs_calling
from causeway.protocols.xdm.relay import given_up
from causeway.protocols.xdm.state import ChannelState, State, substream


class Openings:
    """What a block's chains know of channels to come.

    ``shown``: the channels (``CHANNELS_SCHEMA``) that others showed at the height before.
    """

    def __init__(self, state: State, shown: Frame, context: Context) -> None:
        self._channels, self._context = state["channels"], context
        self._shown = shown.take(stable_order(shown["chain"], shown["foreign"], shown["channel"]))
        self._never = given_up(state["relaying"])

    def open(self, chain: int, foreign: int) -> Rows:
        """Return the rows of the open channels of ``chain`` with ``foreign``, the newest first."""
        own = _between(self._channels, chain, foreign)
        found: Rows = own[self._channels["state"][own] == ChannelState.OPEN][::-1]
        return found

    def may_come(self, chain: int, foreign: int) -> bool:
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
        at = positions_in(theirs["channel"], own["channel"])
        # One that the other has closed on its side alone, and all that it sent before has come.
        ended = np.zeros(len(own), dtype=bool)
        known = at >= 0
        ended[known] = (theirs["state"][at[known]] == ChannelState.CLOSED) & (
            own["next_inbox"][known] >= theirs["next_outbox"][at[known]]
        )
        return bool(ended.all()) and not self.may_come(chain, foreign)


def _between(channels: Frame, chain: int, foreign: int) -> Rows:
    """Return the rows of the channels of ``chain`` with ``foreign``, by their numbers."""
    first, end = np.searchsorted(channels["chain"], (chain, chain + 1))
    inside = channels["foreign"][first:end]
    return np.arange(first + inside.searchsorted(foreign), first + inside.searchsorted(foreign, side="right"))


def hangs_on_this_block(state: State, context: Context) -> bool:
    """Return whether something waits for what another chain was to do in this block, and its chain knows in the next: a
    channel that was to be initiated for the last time, or one that root was to close without a word (D-10)."""
    waiting, planned = state["waiting"], context.planned
    starts = groups_of(waiting["source"], waiting["destination"]).starts
    pairs = set(zip(waiting["source"][starts].tolist(), waiting["destination"][starts].tolist(), strict=True))

    def hangs(chain: int, foreign: int) -> bool:
        now = planned.initiates(foreign, chain, _first_tick(foreign, context))
        return now and not planned.initiates(foreign, chain, context.tick + 1)

    def closed(chain: int, foreign: int) -> bool:
        return forced and planned.closes(foreign, chain, _first_tick(foreign, context), context.tick)

    forced = context.options.force_close == "on"
    calling = pairs_calling(state["open_calls"], context)
    return any(hangs(*pair) for pair in pairs) or any(hangs(*pair) or closed(*pair) for pair in calling)


def waits_for_abandoned(state: State, abandoned: Sequence[Notice], context: Context) -> bool:
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
