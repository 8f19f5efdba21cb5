"""Which channels one chain has with another are open, and whether one may still be opened: of what waits for a channel,
and of calls whose answers would come through one (``docs/protocols/xdm.md``, "Channels", "No way left")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.order import U64, Rows, groups_of
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.notices import Notice
from causeway.protocols.xdm.open_calls import open_calls_to
from causeway.protocols.xdm.relay import given_up
from causeway.protocols.xdm.state import ChannelState, State, substream


class Openings:
    """What a block's chains know of channels to come.

    ``shown``: the channels (``CHANNELS_SCHEMA``) that others showed at the height before.
    """

    def __init__(self, state: State, shown: Frame, context: Context) -> None:
        self._channels, self._shown, self._context = state["channels"], shown, context
        self._never = given_up(state["relaying"])

    def open(self, chain: int, foreign: int) -> Rows:
        """Return the rows of the open channels of ``chain`` with ``foreign``, the newest first."""
        own = self._between(chain, foreign)
        found: Rows = own[self._channels["state"][own] == ChannelState.OPEN][::-1]
        return found

    def may_come(self, chain: int, foreign: int) -> bool:
        """Return whether a channel from ``chain`` to ``foreign`` may still be opened: by what either has asked for, or
        by a call that is planned."""
        rows = self._between(chain, foreign)
        own = self._channels.take(rows)
        asked = _is_asked(own) & ~_is_given_up(chain, foreign, own["channel"], self._never)
        if asked.any():
            return True
        theirs = self._shown.filter((self._shown["chain"] == foreign) & (self._shown["foreign"] == chain))
        theirs = theirs.filter(_is_asked(theirs))
        if not np.isin(theirs["channel"], own["channel"]).all():
            return True
        planned, context = self._context.planned, self._context
        since = _first_tick(foreign, context)
        return planned.initiates(chain, foreign, context.tick + 1) or planned.initiates(foreign, chain, since)

    def cut_off(self) -> list[tuple[int, int]]:
        """Return the pairs of chains between which there were channels, none is open, and none may come."""
        return [pair for pair in _without_open(self._channels) if not self.may_come(*pair)]

    def _between(self, chain: int, foreign: int) -> Rows:
        first, end = np.searchsorted(self._channels["chain"], (chain, chain + 1))
        inside = self._channels["foreign"][first:end]
        return np.arange(first + inside.searchsorted(foreign), first + inside.searchsorted(foreign, side="right"))


def _without_open(channels: Frame) -> Iterator[tuple[int, int]]:
    """Return the pairs of chains of ``channels`` none of which is open."""
    if len(channels) == 0:
        return
    starts = groups_of(channels["chain"], channels["foreign"]).starts
    is_open = np.add.reduceat((channels["state"] == ChannelState.OPEN).astype(np.int64), starts) > 0
    without = starts[~is_open]
    yield from zip(channels["chain"][without].tolist(), channels["foreign"][without].tolist(), strict=True)


def hangs_on_this_block(state: State, context: Context) -> bool:
    """Return whether something waits for a channel that another chain was to initiate in this block for the last time:
    what came of that its chain knows in the next."""
    waiting, planned = state["waiting"], context.planned
    starts = groups_of(waiting["source"], waiting["destination"]).starts
    pairs = set(zip(waiting["source"][starts].tolist(), waiting["destination"][starts].tolist(), strict=True))

    def hangs(chain: int, foreign: int) -> bool:
        now = planned.initiates(foreign, chain, _first_tick(foreign, context))
        return now and not planned.initiates(foreign, chain, context.tick + 1)

    calls = state["open_calls"]
    return any(hangs(*pair) for pair in pairs) or (
        len(calls) > 0
        and any(
            hangs(*pair) and len(open_calls_to(calls, *pair, context)) > 0 for pair in _without_open(state["channels"])
        )
    )


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


def _is_given_up(chain: int, foreign: int, channels: U64, never: Frame) -> npt.NDArray[np.bool_]:
    """Return of which channels operators have given up the request to open: both sides asked at once (hazard 9)."""
    mine = (never["source"] == chain) & (never["destination"] == foreign)
    return np.isin(substream(channels, 0), never["substream"][mine])


def _is_asked(channels: Frame) -> npt.NDArray[np.bool_]:
    """Return which channels their chain has asked for without an answer so far."""
    asked = (channels["state"] == ChannelState.INITIATED) & (channels["next_outbox"] > 0)
    return np.asarray(asked & (channels["next_response"] == 0))
