"""``prepare``: what arrived goes into its inbox in the order of nonces (XDM reference 3.4, steps 9 to 12; 3.5; D-3).

What comes before its predecessors is kept, its proof verified, until its turn (``inbox = stored``), or refused as
``Future`` (``pool``; the ``pool`` may still have it wait). What a request's kind is due for is judged in its turn, in a
pool as it comes, too: one that is not is dropped, and its nonce is not used up. A channel is opened and closed by few
requests, so channels with such a request are gone through one by one, all others at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame
from causeway.model.joins import lookup
from causeway.model.order import groups_of, stable_order
from causeway.protocols.messages import LANE
from causeway.protocols.xdm.errors import OK, Validity
from causeway.protocols.xdm.prechecks import request_errors
from causeway.protocols.xdm.state import (
    Asked,
    ChannelState,
    State,
    channel_of,
    channel_rows,
    channel_states,
    is_response,
    next_nonces,
)
from causeway.protocols.xdm.tables import EARLY_SCHEMA
from causeway.protocols.xdm.validate import Envelopes, kind_is_due
from causeway.protocols.xdm.wire import Bodies, decode_bodies

_KEYS = ("destination", "source", "substream", "index")


@dataclass(frozen=True)
class Accepted:
    """Messages whose turn it is, by destination, lane and nonce, and the channels that they changed.

    ``rows``: lane, ``index`` and ``tag``; ``bodies``: what was proved. ``state``: of each request's channel
    (``ChannelState``) when its turn came, -1 where there was none. ``early``: what waits (``EARLY_SCHEMA``).
    ``refused``: rows (lane, ``index``) and why (``Validity``).
    """

    rows: Frame
    bodies: Bodies
    state: npt.NDArray[np.int64]
    early: Frame
    refused: list[tuple[Frame, npt.NDArray[np.int64]]] = field(default_factory=list)


def prepare(state: State, found: Envelopes, verdicts: npt.NDArray[np.int64], stored: bool) -> Accepted:
    """Return what is accepted of the envelopes that were valid, and of what had waited."""
    valid = np.flatnonzero(verdicts == Validity.VALID)
    bad = np.flatnonzero(verdicts != Validity.VALID)
    refused = [(found.rows.take(bad).select([*LANE, "index"]), verdicts[bad])] if len(bad) else []
    fresh = (
        found.rows.select([*LANE, "index", "tag"])
        .take(valid)
        .with_columns(body=found.raw.take(pa.array(valid)).cast(pa.binary()))
    )
    waiting = state["early"]
    messages = concat([waiting, fresh.select(EARLY_SCHEMA.names)])
    if len(messages) == 0:
        return Accepted(
            messages, decode_bodies(pa.array([], pa.large_binary())), np.empty(0, dtype=np.int64), waiting, refused
        )
    order = stable_order(*(messages[key] for key in _KEYS))
    messages = messages.take(order)
    again = np.zeros(len(messages), dtype=bool)
    again[1:] = True
    for key in _KEYS:
        again[1:] &= messages[key][1:] == messages[key][:-1]
    copies, messages = messages.filter(again), messages.filter(~again)
    bodies = decode_bodies(messages["body"].cast(pa.large_binary()))
    channels = state["channels"]
    known = channel_rows(channels, messages["destination"], messages["source"], channel_of(messages["substream"]))
    response = is_response(messages["substream"])
    expected, states = next_nonces(channels, known, response), channel_states(channels, known)
    groups = groups_of(*(messages[key] for key in _KEYS[:3]))
    due = messages["index"] == expected + groups.ranks().astype(np.uint64)
    stale = messages["index"] < expected
    if stale.any():
        # Their lane has gone on since they were kept; what is behind them may be due.
        ranks = np.cumsum(~stale) - groups.spread(np.cumsum(~stale)[groups.starts] - (~stale)[groups.starts])
        due = ~stale & (messages["index"] + np.uint64(1) == expected + ranks.astype(np.uint64))
    dropped = np.zeros(len(messages), dtype=bool)
    special = ~response & ((bodies.asked != Asked.ENDPOINT) | (states < ChannelState.OPEN))
    if special.any():
        errors = request_errors(messages, bodies, states, state["allowlist"], found.context)
        for group in np.unique(np.repeat(np.arange(len(groups)), groups.counts)[special]).tolist():
            start = int(groups.starts[group])
            _in_turn(start, start + int(groups.counts[group]), bodies, errors, states, due, dropped)
    if dropped.any():
        rows = messages.filter(dropped)
        same = lookup(rows, copies, _KEYS) >= 0  # a nonce is not used up, so each copy is refused for what it is
        refused.append(_told(rows, Validity.InvalidCall))
        refused.append(_told(copies.filter(same), Validity.InvalidCall))
        copies = copies.filter(~same)
    if len(copies):
        refused.append(_told(copies, Validity.INVALID_NONCE))
    accepted = due & ~dropped
    rest = messages.filter(~accepted & ~dropped & ~stale)
    if not stored and len(rest):
        refused.append(_told(rest, Validity.Future))
        rest = empty_frame(EARLY_SCHEMA)
    taken = np.flatnonzero(accepted)
    early = rest.select(EARLY_SCHEMA.names) if len(rest) or len(waiting) else waiting
    return Accepted(
        messages.select([*LANE, "index", "tag"]).take(taken), bodies_at(bodies, taken), states[taken], early, refused
    )


def _told(rows: Frame, code: Validity) -> tuple[Frame, npt.NDArray[np.int64]]:
    return rows.select([*LANE, "index"]), np.full(len(rows), code, dtype=np.int64)


def _in_turn(
    start: int,
    stop: int,
    bodies: Bodies,
    errors: npt.NDArray[np.uint8],
    states: npt.NDArray[np.int64],
    due: npt.NDArray[np.bool_],
    dropped: npt.NDArray[np.bool_],
) -> None:
    """Go through the requests of one channel, whose states change: from the first that is not due on, none is.

    ``errors``: why a request to open or close does not change its channel, ``OK`` where it does.
    """
    state = int(states[start])
    for row in range(start, stop):
        if not due[row]:
            return
        asked = int(bodies.asked[row])
        states[row] = state
        if not kind_is_due(bodies.asked[row : row + 1], states[row : row + 1])[0]:
            dropped[row] = True
            due[row + 1 : stop] = False
            return
        if asked == Asked.CHANNEL_OPEN:
            state = ChannelState.OPEN if errors[row] == OK else ChannelState.INITIATED
        elif asked == Asked.CHANNEL_CLOSE and errors[row] == OK:
            state = ChannelState.CLOSED


def bodies_at(bodies: Bodies, rows: npt.NDArray[np.int64]) -> Bodies:
    """Return some rows of bodies."""
    columns = {name: column[rows] for name, column in vars(bodies).items() if isinstance(column, np.ndarray)}
    return Bodies(**columns, payload=bodies.payload.take(pa.array(rows)))
