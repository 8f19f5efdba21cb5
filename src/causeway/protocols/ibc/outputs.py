"""What the programs of a block produced: packets to send, receipts, and messages within a zone (IBC reference 3.2).

Outcomes for a request: pushed to the send queue of its receiver's zone; put into the local lane; refused, and then its
program gets a reject at the next block. For an answer: pushed as the receipt of its packet; put into the local lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import Event, Kind
from causeway.model.order import Rows, groups_of, stable_order
from causeway.programs.outputs import HANDLER_FAILED
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.client import expired_clients
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import type_codes
from causeway.protocols.ibc.envelope import CALL_BYTES, MAX_METHOD_BYTES
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.inputs import Code
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_positions
from causeway.protocols.ibc.zones import NO_HOST
from causeway.protocols.messages import payload_lengths

NO_SLOT = -1
SLOT_GONE = "SlotNotOpen"
"""Why an answer is dropped: a cleanup has passed the place of its receipt."""


def send(requests: Frame, state: State, context: Context, log: EventLog) -> Frame:
    """Return where each request goes (``IBCsend``, 3.2), with ``chain``, ``remote``, ``substream``.

    Requests that cannot be sent come back as rejects in the local lane of their zone; each leaves an event.
    """
    zones = context.zones
    chain = zones.host_of(requests["sender"])
    remote = zones.host_of(requests["receiver"])
    refusal = _refusals(requests, chain, remote, state, context)
    refused = refusal != Refusal.ACCEPTED
    lanes: dict[str, Any] = {
        "chain": chain.view(np.uint32),
        "remote": np.where(refused, chain, remote).astype(np.uint32),
        "substream": np.where(refused, RECEIPT, SEND).astype(np.uint64),
    }
    rows = requests.with_columns(**lanes)
    if not refused.any():
        return rows
    failed = requests.filter(refused)
    names = names_column(NAMES, refusal[refused])
    bits = np.full(len(failed), int(Event.SENT | Event.REJECTED), dtype=np.uint16)
    log.add(event_rows(failed, bits, chain=chain[refused].view(np.uint32), code=Code.REJECTED, reason=names))
    rejects = failed.with_columns(
        kind=repeated(np.uint8(Kind.RESPONSE), len(failed)),
        sender=failed["receiver"],
        receiver=failed["sender"],
        code=repeated(np.uint8(Code.REJECTED), len(failed)),
        payload=names.dictionary_decode().cast("binary"),
        **{name: column[refused] for name, column in lanes.items()},
    )
    # Back in the order of production, rejects among the packets.
    place = np.concatenate([np.flatnonzero(~refused), np.flatnonzero(refused)])
    both = concat([rows.filter(~refused).select(rejects.names), rejects])
    return both.take(np.argsort(place, kind="stable"))


def _refusals(requests: Frame, chain: np.ndarray, remote: np.ndarray, state: State, context: Context) -> np.ndarray:
    """Return the ``Refusal`` of each request, in the order of the checks of 3.2 (X-11: ``ClientExpired`` comes after
    ``ConnectionFrozen``)."""
    zones, options = context.zones, context.options
    apart = chain != remote
    place = connection_positions(state.connections, chain.view(np.uint32), np.maximum(remote, 0).astype(np.uint32))
    registered = (remote != NO_HOST) & (place >= 0)
    frozen = np.zeros(len(requests), dtype=bool)
    frozen[registered] = state.connections["frozen"][place[registered]] > 0
    expired = np.zeros(len(requests), dtype=bool)
    expired[registered] = expired_clients(state, context)[place[registered]]
    types = type_codes(requests, zones)
    names = requests["method"].dictionary.to_pylist()
    lengths = np.array([len(name.encode()) for name in names] or [0], dtype=np.int64)
    method_bytes = lengths[requests["method"].indices.to_numpy(zero_copy_only=False)]
    data = CALL_BYTES + method_bytes + payload_lengths(requests).astype(np.int64)
    refusal = np.full(len(requests), Refusal.ACCEPTED, dtype=np.int64)
    refusal[(method_bytes > MAX_METHOD_BYTES) | (data > options.max_data_bytes)] = Refusal.InvalidPacket
    for code, permitted in enumerate(zones.permitted):
        if permitted is not None:
            refusal[(types == code) & ~np.isin(requests["sender"], permitted)] = Refusal.PermissionDenied
    refusal[~zones.handled[types, chain]] = Refusal.UnsupportedType
    refusal[expired] = Refusal.ClientExpired
    refusal[frozen] = Refusal.ConnectionFrozen
    refusal[~registered] = Refusal.UnregisteredDestination
    refusal[~apart] = Refusal.ACCEPTED
    return refusal


def answers_by_slot(responses: Frame, waiting: Frame, context: Context, log: EventLog) -> tuple[Frame, Frame]:
    """Return responses to packets with the lane and index of their slots, and the slots that are still unanswered.

    ``waiting``: slots (``SLOTS_SCHEMA``) of all packets that programs have or had before them; ``sender`` called
    ``receiver``. An answer whose slot is gone, because a cleanup passed it, is dropped with an event.
    """
    asked, given = len(waiting), len(responses)
    if given == 0:
        return responses.with_columns(
            **{name: waiting[name][:0] for name in ("chain", "remote")},
            substream=np.empty(0, dtype=np.uint64),
            index=np.empty(0, dtype=np.uint64),
        ), waiting
    own = (responses["receiver"], responses["sender"], responses["callback"])
    theirs = (waiting["sender"], waiting["receiver"], waiting["callback"])
    if asked == given and all(np.array_equal(one, other) for one, other in zip(own, theirs, strict=True)):
        slot: Rows = np.arange(asked)
    else:
        keys = [np.concatenate([other, one]) for one, other in zip(own, theirs, strict=True)]
        order = stable_order(*keys)
        groups = groups_of(*(key[order] for key in keys))
        is_slot = order < asked
        # In a group the slots come first: its k-th answer is to its k-th slot.
        slots_in = np.add.reduceat(is_slot.astype(np.int64), groups.starts)
        answer = np.flatnonzero(~is_slot)
        late = groups.ranks()[answer] >= 2 * groups.spread(slots_in)[answer]
        slot = np.full(given, NO_SLOT, dtype=np.int64)
        slot[order[answer] - asked] = np.where(late, NO_SLOT, order[answer - groups.spread(slots_in)[answer]])
        nowhere = slot == NO_SLOT
        if nowhere.any():
            _log_nowhere(responses.filter(nowhere), context, log)
            responses, slot = responses.filter(~nowhere), slot[~nowhere]
    taken = waiting.select(["chain", "remote", "index"]).take(slot)
    open_still = np.ones(asked, dtype=bool)
    open_still[slot] = False
    receipts = responses.with_columns(
        chain=taken["chain"], remote=taken["remote"], substream=np.uint64(RECEIPT), index=taken["index"]
    )
    return receipts, waiting.filter(open_still)


def _log_nowhere(responses: Frame, context: Context, log: EventLog) -> None:
    chain = context.zones.host_of(responses["sender"]).view(np.uint32)
    log.add(event_rows(responses, Event.DROPPED, chain=chain, code=responses["code"], reason=SLOT_GONE))


def receipt_codes(codes: np.ndarray) -> np.ndarray:
    """Return the codes that receipts carry for the codes with which programs answer."""
    table = np.maximum(np.arange(256), Code.REJECTED)
    table[[0, HANDLER_FAILED]] = Code.SUCCESS, Code.HANDLER_FAILED
    table[4] = Code.REJECTED
    found: np.ndarray = table.astype(np.uint8)[codes]
    return found
