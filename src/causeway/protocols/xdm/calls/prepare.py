"""``prepare``: what arrived goes into its inbox in the order of nonces (XDM reference 3.4, steps 9 to 12; 3.5; D-3).

What comes before its predecessors is kept, its proof verified, until its turn (``inbox = stored``), or refused as
``Future`` (``pool``; the ``pool`` may still have it wait). What a request's kind is due for is judged in its turn, in a
pool as it comes, too: one that is not is dropped, and its nonce is not used up. A channel is opened and closed by few
requests, so channels with such a request are gone through one by one, all others at once.

What a request whose turn it is is refused for before anybody handles it (XDM reference 3.4, step 14; D-9).

The pool of a destination: what it takes for one and the same transaction (XDM reference D-8, hazard 17), and what
waits there for its predecessors (D-3).

Where nothing early is stored (``inbox = pool``), an early message waits as the transaction that carries it: its proof
is judged again in every block, for at most ``LONGEVITY`` blocks. What waits is the carriers': no root commits to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.calls.allowlists import is_allowed
from causeway.protocols.xdm.chains import PROGRAMS_ENDPOINT, TRANSPORTER_ENDPOINT
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.errors import OK, MessageValidity, MessengerError, messenger_error_number
from causeway.protocols.xdm.relay.carriers import first_delivery, late_tables, sort_rows
from causeway.protocols.xdm.state import (
    ChannelState,
    RequestKind,
    State,
    channel_rows,
    channel_states,
    is_response,
    lane_channels,
    next_nonces,
)
from causeway.protocols.xdm.tables import BASE, EARLY_SCHEMA, INDEXED, LATE_BASES_SCHEMA, LATE_NODES_SCHEMA, LATE_SCHEMA
from causeway.protocols.xdm.validate import DeliveredEnvelopes, JudgedEnvelopes, kind_is_due
from causeway.protocols.xdm.wire import DecodedBodies, decode_bodies, request_tags

ENDPOINTS = (TRANSPORTER_ENDPOINT, PROGRAMS_ENDPOINT)
"""Endpoints that somebody handles."""


def request_errors(
    rows: Frame, bodies: DecodedBodies, states: npt.NDArray[np.int64], allowlist: Frame, context: Context
) -> npt.NDArray[np.uint8]:
    """Return the error of each request's response, ``OK`` where there is none so far.

    ``rows``: ``source``, ``destination`` and ``tag``; ``states``: of the channels (``ChannelState``).
    """
    options, asked = context.options, bodies.asked
    of_endpoint = asked == RequestKind.ENDPOINT
    error = np.full(len(rows), OK, dtype=np.uint8)
    unlisted = np.zeros(len(rows), dtype=bool)
    if options.allowlist == "on":
        unlisted = ~is_allowed(allowlist, rows["destination"], rows["source"])
    wrong = np.zeros(len(rows), dtype=bool)
    if options.trust_tag == "on":
        wrong = rows["tag"] != request_tags(asked, bodies.dst_endpoint)
    # The first of those that apply stays.
    error[of_endpoint & unlisted] = messenger_error_number(MessengerError.ChainNotAllowed)
    error[of_endpoint & (states != ChannelState.OPEN)] = messenger_error_number(MessengerError.InvalidChannelState)
    error[wrong] = messenger_error_number(MessengerError.WeightTagNotMatch)
    error[of_endpoint & ~np.isin(bodies.dst_endpoint, ENDPOINTS)] = messenger_error_number(
        MessengerError.NoMessageHandler
    )
    error[(asked == RequestKind.CHANNEL_OPEN) & unlisted] = messenger_error_number(MessengerError.ChainNotAllowed)
    return error


_KEYS = ("destination", "source", "substream", "index")


@dataclass(frozen=True)
class AcceptedMessages:
    """Messages whose turn it is, by destination, lane and nonce, and the channels that they changed.

    ``rows``: lane, ``index`` and ``tag``; ``bodies``: what was proved. ``state``: of each request's channel
    (``ChannelState``) when its turn came, -1 where there was none. ``early``: what waits (``EARLY_SCHEMA``).
    ``refused``: rows (lane, ``index``) and why (``Validity``).
    """

    rows: Frame
    bodies: DecodedBodies
    state: npt.NDArray[np.int64]
    early: Frame
    refused: list[tuple[Frame, npt.NDArray[np.int64]]] = field(default_factory=list)


def prepare(state: State, found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64], stored: bool) -> AcceptedMessages:
    """Return what is accepted of the envelopes that were valid, and of what had waited."""
    valid = np.flatnonzero(verdicts == MessageValidity.VALID)
    bad = np.flatnonzero(verdicts != MessageValidity.VALID)
    refused = [(found.rows.take(bad).select([*LANE, "index"]), verdicts[bad])] if len(bad) else []
    fresh = (
        found.rows.select([*LANE, "index", "tag"])
        .take(valid)
        .with_columns(body=found.raw.take(pa.array(valid)).cast(pa.binary()))
    )
    waiting = state["early"]
    messages = concat([waiting, fresh.select(EARLY_SCHEMA.names)])
    if len(messages) == 0:
        return AcceptedMessages(
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
    known = channel_rows(channels, messages["destination"], messages["source"], lane_channels(messages["substream"]))
    response = is_response(messages["substream"])
    expected, states = next_nonces(channels, known, response), channel_states(channels, known)
    groups = group_rows(*(messages[key] for key in _KEYS[:3]))
    due = messages["index"] == expected + groups.ranks().astype(np.uint64)
    stale = messages["index"] < expected
    if stale.any():
        # Their lane has gone on since they were kept; what is behind them may be due.
        ranks = np.cumsum(~stale) - groups.spread(np.cumsum(~stale)[groups.starts] - (~stale)[groups.starts])
        due = ~stale & (messages["index"] + np.uint64(1) == expected + ranks.astype(np.uint64))
    dropped = np.zeros(len(messages), dtype=bool)
    special = ~response & ((bodies.asked != RequestKind.ENDPOINT) | (states < ChannelState.OPEN))
    if special.any():
        errors = request_errors(messages, bodies, states, state["allowlist"], found.context)
        for group in np.unique(np.repeat(np.arange(len(groups)), groups.counts)[special]).tolist():
            start = int(groups.starts[group])
            _in_turn(start, start + int(groups.counts[group]), bodies, errors, states, due, dropped)
    if dropped.any():
        rows = messages.filter(dropped)
        same = lookup_rows(rows, copies, _KEYS) >= 0  # a nonce is not used up, so each copy is refused for what it is
        refused.append(_told(rows, MessageValidity.InvalidCall))
        refused.append(_told(copies.filter(same), MessageValidity.InvalidCall))
        copies = copies.filter(~same)
    if len(copies):
        refused.append(_told(copies, MessageValidity.INVALID_NONCE))
    accepted = due & ~dropped
    rest = messages.filter(~accepted & ~dropped & ~stale)
    if not stored and len(rest):
        refused.append(_told(rest, MessageValidity.Future))
        rest = empty_frame(EARLY_SCHEMA)
    taken = np.flatnonzero(accepted)
    early = rest.select(EARLY_SCHEMA.names) if len(rest) or len(waiting) else waiting
    return AcceptedMessages(
        messages.select([*LANE, "index", "tag"]).take(taken), take_bodies(bodies, taken), states[taken], early, refused
    )


def _told(rows: Frame, code: MessageValidity) -> tuple[Frame, npt.NDArray[np.int64]]:
    return rows.select([*LANE, "index"]), np.full(len(rows), code, dtype=np.int64)


def _in_turn(
    start: int,
    stop: int,
    bodies: DecodedBodies,
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
        if asked == RequestKind.CHANNEL_OPEN:
            state = ChannelState.OPEN if errors[row] == OK else ChannelState.INITIATED
        elif asked == RequestKind.CHANNEL_CLOSE and errors[row] == OK:
            state = ChannelState.CLOSED


def take_bodies(bodies: DecodedBodies, rows: npt.NDArray[np.int64]) -> DecodedBodies:
    """Return some rows of bodies."""
    columns = {name: column[rows] for name, column in vars(bodies).items() if isinstance(column, np.ndarray)}
    return DecodedBodies(**columns, payload=bodies.payload.take(pa.array(rows)))


LONGEVITY = 10
"""Blocks after which a message that still waits for its predecessors is dropped."""

_TAG = ("destination", "substream", "index")


def deduplicate(found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the verdicts on envelopes after the pool.

    ``pool_tag = without_src``: of valid messages with the same channel and nonce that come from different chains in one
    block only the first chain's is kept; the others are ``AlreadyImported`` until their operators bring them again.
    """
    rows = found.rows
    if found.context.options.pool_tag == "with_src":
        return verdicts
    valid = np.flatnonzero(verdicts == MessageValidity.VALID)
    order = valid[stable_order(*(rows[key][valid] for key in (*_TAG, "source")))]
    groups = group_rows(*(rows[key][order] for key in _TAG))
    other = rows["source"][order] != groups.spread(rows["source"][order][groups.starts])
    verdicts = verdicts.copy()
    verdicts[order[other]] = MessageValidity.AlreadyImported
    return verdicts


def hold_early_messages(
    state: State, now: AcceptedMessages, brought: DeliveredEnvelopes, verdicts: npt.NDArray[np.int64], context: Context
) -> tuple[State, AcceptedMessages]:
    """Return the state in which early messages wait in the pool, and what was accepted and refused without them.

    ``verdicts``: on each envelope that was brought, before the order of nonces was looked at.
    """
    early = [place for place, (_, codes) in enumerate(now.refused) if (codes == MessageValidity.Future).any()]
    rows = brought.envelopes
    fresh = (verdicts == MessageValidity.VALID) & (context.number - first_delivery(rows["base"]) < LONGEVITY)
    if not early or not fresh.any():
        return state, now
    (place,) = early
    told, codes = now.refused[place]
    some = np.flatnonzero(fresh)
    some = some[stable_order(*(rows[name][some] for name in INDEXED))]
    some = some[group_rows(*(rows[name][some] for name in INDEXED)).starts]
    candidates = rows.take(some)
    stays = candidates.filter(lookup_rows(sort_rows(told, INDEXED), candidates, INDEXED) >= 0)
    gone = lookup_rows(candidates, told, INDEXED) < 0
    refused = [*now.refused]
    refused[place] = (told.filter(gone), codes[gone])
    due = np.full(len(stays), context.number + 1, dtype=np.uint64)
    late = concat([state["late"], stays.with_columns(due=due).select(LATE_SCHEMA.names)])
    nodes = concat([state["late_nodes"], _missing(state["late_nodes"], brought.nodes.select(LATE_NODES_SCHEMA.names))])
    bases = concat([state["late_bases"], _missing(state["late_bases"], brought.bases.select(LATE_BASES_SCHEMA.names))])
    return state.with_tables(**late_tables(late, nodes, bases)), replace(now, refused=refused)


def _missing(known: Frame, rows: Frame) -> Frame:
    """Return the rows of nodes or bases that are not known."""
    keys = (*BASE, "number") if "number" in rows else BASE
    return rows.filter(lookup_rows(known, rows, keys) < 0)
