"""``prepare``: order delivered messages by nonce and check the requests in turn.

With ``inbox = stored`` early messages wait in the state, with verified proofs. With ``inbox = pool`` they are refused
as ``Future``, and the pool may retry them. A request of an inadmissible kind is dropped in its turn without consuming
its nonce. Few requests open or close channels, so their channels are processed one by one, all others at once.

The pool holds an early message as its transaction for at most ``LONGEVITY`` blocks and verifies its proof again in
every block (D-3). It also merges transactions with equal tags (D-8, hazard 17). Its messages belong to the carriers; no
root commits to them.

Reference: XDM, section 3.4, steps 9 to 12 and 14, and section 3.5; D-9.
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
from causeway.protocols.xdm.errors import MESSENGER_ERRORS, OK, MessageValidity, MessengerError
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
"""Endpoints with a handler."""


def request_errors(
    rows: Frame, bodies: DecodedBodies, states: npt.NDArray[np.int64], allowlist: Frame, context: Context
) -> npt.NDArray[np.uint8]:
    """Return the error of each request's response, or ``OK``.

    Args:
        rows: ``source``, ``destination`` and ``tag`` of each request.
        bodies: Content of each request.
        states: ``ChannelState`` of each request's channel.
        allowlist: ``ALLOWLIST_SCHEMA``.
        context: Context of the block.
    """
    options, kinds = context.options, bodies.asked
    of_endpoint = kinds == RequestKind.ENDPOINT
    error = np.full(len(rows), OK, dtype=np.uint8)
    not_allowed = np.zeros(len(rows), dtype=bool)
    if options.allowlist == "on":
        not_allowed = ~is_allowed(allowlist, rows["destination"], rows["source"])
    wrong_tag = np.zeros(len(rows), dtype=bool)
    if options.trust_tag == "on":
        wrong_tag = rows["tag"] != request_tags(kinds, bodies.dst_endpoint)
    # Assigned in reverse order of precedence.
    error[of_endpoint & not_allowed] = MESSENGER_ERRORS + MessengerError.ChainNotAllowed
    error[of_endpoint & (states != ChannelState.OPEN)] = MESSENGER_ERRORS + MessengerError.InvalidChannelState
    error[wrong_tag] = MESSENGER_ERRORS + MessengerError.WeightTagNotMatch
    error[of_endpoint & ~np.isin(bodies.dst_endpoint, ENDPOINTS)] = MESSENGER_ERRORS + MessengerError.NoMessageHandler
    error[(kinds == RequestKind.CHANNEL_OPEN) & not_allowed] = MESSENGER_ERRORS + MessengerError.ChainNotAllowed
    return error


_KEYS = ("destination", "source", "substream", "index")


@dataclass(frozen=True)
class AcceptedMessages:
    """Messages in turn, by destination, lane and nonce.

    Attributes:
        rows: Lane, ``index`` and ``tag``.
        bodies: Proved content.
        state: ``ChannelState`` of each request's channel at its turn, -1 without one.
        early: Messages that wait (``EARLY_SCHEMA``).
        refused: Refused rows (lane, ``index``) with their errors (``MessageValidity``).
    """

    rows: Frame
    bodies: DecodedBodies
    state: npt.NDArray[np.int64]
    early: Frame
    refused: list[tuple[Frame, npt.NDArray[np.int64]]] = field(default_factory=list)


def prepare(state: State, found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64], stored: bool) -> AcceptedMessages:
    """Select the messages in turn among valid envelopes and waiting messages.

    Args:
        state: State before the messages.
        found: Envelopes with their proved content.
        verdicts: ``MessageValidity`` of each envelope.
        stored: Store early messages instead of refusing them.
    """
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
    is_copy = np.zeros(len(messages), dtype=bool)
    is_copy[1:] = True
    for key in _KEYS:
        is_copy[1:] &= messages[key][1:] == messages[key][:-1]
    copies, messages = messages.filter(is_copy), messages.filter(~is_copy)
    bodies = decode_bodies(messages["body"].cast(pa.large_binary()))
    channels = state["channels"]
    known = channel_rows(channels, messages["destination"], messages["source"], lane_channels(messages["substream"]))
    response = is_response(messages["substream"])
    expected, states = next_nonces(channels, known, response), channel_states(channels, known)
    groups = group_rows(*(messages[key] for key in _KEYS[:3]))
    due = messages["index"] == expected + groups.ranks().astype(np.uint64)
    stale = messages["index"] < expected
    if stale.any():
        # The lane advanced past stored messages; their successors may be due.
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
        same = lookup_rows(rows, copies, _KEYS) >= 0  # the nonce is not consumed, so copies fail alike
        refused.append(_refusal(rows, MessageValidity.InvalidCall))
        refused.append(_refusal(copies.filter(same), MessageValidity.InvalidCall))
        copies = copies.filter(~same)
    if len(copies):
        refused.append(_refusal(copies, MessageValidity.INVALID_NONCE))
    accepted = due & ~dropped
    rest = messages.filter(~accepted & ~dropped & ~stale)
    if not stored and len(rest):
        refused.append(_refusal(rest, MessageValidity.Future))
        rest = empty_frame(EARLY_SCHEMA)
    accepted_rows = np.flatnonzero(accepted)
    early = rest.select(EARLY_SCHEMA.names) if len(rest) or len(waiting) else waiting
    return AcceptedMessages(
        messages.select([*LANE, "index", "tag"]).take(accepted_rows),
        take_bodies(bodies, accepted_rows),
        states[accepted_rows],
        early,
        refused,
    )


def _refusal(rows: Frame, code: MessageValidity) -> tuple[Frame, npt.NDArray[np.int64]]:
    """Return a refusal of rows with one error."""
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
    """Process the requests of one channel, up to the first that is not due.

    Each request may change the state of the channel. ``errors`` are those of requests to open or close the channel,
    ``OK`` for a change.
    """
    state = int(states[start])
    for row in range(start, stop):
        if not due[row]:
            return
        kind = int(bodies.asked[row])
        states[row] = state
        if not kind_is_due(bodies.asked[row : row + 1], states[row : row + 1])[0]:
            dropped[row] = True
            due[row + 1 : stop] = False
            return
        if kind == RequestKind.CHANNEL_OPEN:
            state = ChannelState.OPEN if errors[row] == OK else ChannelState.INITIATED
        elif kind == RequestKind.CHANNEL_CLOSE and errors[row] == OK:
            state = ChannelState.CLOSED


def take_bodies(bodies: DecodedBodies, rows: npt.NDArray[np.int64]) -> DecodedBodies:
    """Return rows of bodies."""
    columns = {name: column[rows] for name, column in vars(bodies).items() if isinstance(column, np.ndarray)}
    return DecodedBodies(**columns, payload=bodies.payload.take(pa.array(rows)))


LONGEVITY = 10
"""Blocks until a message that waits for its predecessors is dropped."""

_TAG = ("destination", "substream", "index")


def deduplicate(found: JudgedEnvelopes, verdicts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the verdicts after deduplication by the pool.

    With ``pool_tag = without_src``, messages with equal channel and nonce collide. The first source stays; the others
    are ``AlreadyImported`` until their operators resubmit them.
    """
    rows = found.rows
    valid = np.flatnonzero(verdicts == MessageValidity.VALID)
    order = valid[stable_order(*(rows[key][valid] for key in (*_TAG, "source")))]
    groups = group_rows(*(rows[key][order] for key in _TAG))
    other = rows["source"][order] != groups.spread(rows["source"][order][groups.starts])
    verdicts = verdicts.copy()
    verdicts[order[other]] = MessageValidity.AlreadyImported
    return verdicts


def hold_early_messages(
    state: State,
    now: AcceptedMessages,
    delivered: DeliveredEnvelopes,
    verdicts: npt.NDArray[np.int64],
    context: Context,
) -> tuple[State, AcceptedMessages]:
    """Move early messages into the pool.

    Args:
        state: State before the messages.
        now: Accepted and refused messages.
        delivered: Envelopes of the block.
        verdicts: ``MessageValidity`` of each envelope before the check of nonces.
        context: Context of the block.

    Returns:
        The state with the messages in the pool, and the messages without their refusals.
    """
    early = [position for position, (_, codes) in enumerate(now.refused) if (codes == MessageValidity.Future).any()]
    rows = delivered.envelopes
    fresh = (verdicts == MessageValidity.VALID) & (context.number - first_delivery(rows["base"]) < LONGEVITY)
    if not early or not fresh.any():
        return state, now
    (position,) = early
    future, codes = now.refused[position]
    chosen = np.flatnonzero(fresh)
    chosen = chosen[stable_order(*(rows[name][chosen] for name in INDEXED))]
    chosen = chosen[group_rows(*(rows[name][chosen] for name in INDEXED)).starts]
    candidates = rows.take(chosen)
    pooled = candidates.filter(lookup_rows(sort_rows(future, INDEXED), candidates, INDEXED) >= 0)
    expired = lookup_rows(candidates, future, INDEXED) < 0
    refused = [*now.refused]
    refused[position] = (future.filter(expired), codes[expired])
    due = np.full(len(pooled), context.number + 1, dtype=np.uint64)
    late = concat([state["late"], pooled.with_columns(due=due).select(LATE_SCHEMA.names)])
    nodes = concat(
        [state["late_nodes"], _missing(state["late_nodes"], delivered.nodes.select(LATE_NODES_SCHEMA.names))]
    )
    bases = concat(
        [state["late_bases"], _missing(state["late_bases"], delivered.bases.select(LATE_BASES_SCHEMA.names))]
    )
    return state.with_tables(**late_tables(late, nodes, bases)), replace(now, refused=refused)


def _missing(known: Frame, rows: Frame) -> Frame:
    """Return the nodes or bases that are not known."""
    keys = (*BASE, "number") if "number" in rows else BASE
    return rows.filter(lookup_rows(known, rows, keys) < 0)
