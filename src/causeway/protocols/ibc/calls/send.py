"""``IBCsend``: turn a program's request into a packet in a send queue.

See IBC reference 3.2.

A request is pushed to that send queue; or to the local lane, for a receiver on the same zone; or refused, and its
program gets a reject at the next block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import Rows
from causeway_proofs.tendermint.trust import is_period_over

from causeway.core.frame import Frame, concat, repeat_value
from causeway.core.vocabulary import Event, Kind
from causeway.protocols.contract import NO_HOST, Hosts
from causeway.protocols.ibc.client import newest_times
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.packets import CALL_BYTES, MAX_METHOD_BYTES
from causeway.protocols.ibc.program_inputs import ReceiptCode
from causeway.protocols.ibc.queue_entries import type_codes
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_rows
from causeway.protocols.shared.checks import Check, first_refusals
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.messages import method_lengths, payload_lengths

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SendRequests:
    """Requests of programs (message columns), with the context of their checks."""

    rows: Frame
    state: State
    context: Context

    @cached_property
    def source(self) -> Hosts:
        """Return the zone of each sender."""
        return self.context.zones.host_of(self.rows["sender"])

    @cached_property
    def destination(self) -> Hosts:
        """Return the zone of each receiver, or ``NO_HOST``."""
        return self.context.zones.host_of(self.rows["receiver"])

    @cached_property
    def connection(self) -> Rows:
        """Return the row of each connection, or -1."""
        counterparty = np.maximum(self.destination, 0).astype(np.uint32)
        found = connection_rows(self.state.connections, self.source.view(np.uint32), counterparty)
        return np.where(self.destination == NO_HOST, -1, found)

    @cached_property
    def types(self) -> npt.NDArray[np.int32]:
        """Return the packet type of each request."""
        return type_codes(self.rows, self.context.zones)

    def connection_flags(self, found: npt.NDArray[Any]) -> Mask:
        """Spread a flag of each connection to its requests, False without a connection."""
        known = self.connection >= 0
        spread: Mask = np.zeros(len(self.rows), dtype=bool)
        spread[known] = found[self.connection[known]]
        return spread


def _is_connected(requests: SendRequests) -> Mask:
    return requests.connection >= 0


def _is_open(requests: SendRequests) -> Mask:
    return ~requests.connection_flags(requests.state.connections["frozen"] > 0)


def _is_fresh(requests: SendRequests) -> Mask:
    # Mask of the connections whose newest trusted header has expired.
    over: npt.NDArray[np.bool_] = is_period_over(
        newest_times(requests.state), np.uint64(requests.context.options.trusting_ns), np.uint64(requests.context.time)
    )
    return ~requests.connection_flags(over)


def _is_handled(requests: SendRequests) -> Mask:
    handled: Mask = requests.context.zones.handled[requests.types, requests.source]
    return handled


def _is_permitted(requests: SendRequests) -> Mask:
    permitted = np.ones(len(requests.rows), dtype=bool)
    for code, programs in enumerate(requests.context.zones.permitted):
        if programs is not None:
            permitted &= (requests.types != code) | np.isin(requests.rows["sender"], programs)
    return permitted


def _is_short(requests: SendRequests) -> Mask:
    method_bytes = method_lengths(requests.rows).astype(np.int64)
    data = CALL_BYTES + method_bytes + payload_lengths(requests.rows).astype(np.int64)
    short: Mask = (method_bytes <= MAX_METHOD_BYTES) & (data <= requests.context.options.max_data_bytes)
    return short


CHECKS: tuple[Check[Refusal, SendRequests], ...] = (
    Check(Refusal.UnregisteredDestination, "3.2, 1", _is_connected),
    Check(Refusal.ConnectionFrozen, "3.2, 2", _is_open),
    Check(Refusal.ClientExpired, "X-11", _is_fresh),
    Check(Refusal.UnsupportedType, "3.2, 3", _is_handled),
    Check(Refusal.PermissionDenied, "3.2, 4", _is_permitted),
    Check(Refusal.InvalidPacket, "2.4", _is_short),
)


def execute(requests: SendRequests, refusal: npt.NDArray[np.int64], log: EventLog) -> Frame:
    """Return each request with its lane; step 5 pushes it there.

    A refused request becomes a reject in the local lane of its zone, in its turn, and leaves an event.
    """
    source, refused = requests.source, refusal != Refusal.ACCEPTED
    lanes: dict[str, Any] = {
        "source": source.view(np.uint32),
        "destination": np.where(refused, source, requests.destination).astype(np.uint32),
        "substream": np.where(refused, RECEIPT, SEND).astype(np.uint64),
    }
    rows = requests.rows.with_columns(**lanes)
    if not refused.any():
        return rows
    failed = requests.rows.filter(refused)
    names = names_column(NAMES, refusal[refused])
    bits = np.full(len(failed), int(Event.SENT | Event.REJECTED), dtype=np.uint16)
    log.add(event_rows(failed, bits, chain=source[refused].view(np.uint32), code=ReceiptCode.REJECTED, reason=names))
    rejects = failed.with_columns(
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(failed)),
        sender=failed["receiver"],
        receiver=failed["sender"],
        code=repeat_value(np.uint8(ReceiptCode.REJECTED), len(failed)),
        payload=names.dictionary_decode().cast("binary"),
        **{name: column[refused] for name, column in lanes.items()},
    )
    # Restore the order of production, with rejects among the packets.
    order = np.concatenate([np.flatnonzero(~refused), np.flatnonzero(refused)])
    both = concat([rows.filter(~refused).select(rejects.names), rejects])
    return both.take(np.argsort(order, kind="stable"))


def send(rows: Frame, state: State, context: Context, log: EventLog) -> Frame:
    """Validate and execute the call for requests (message columns) in the order of production."""
    requests = SendRequests(rows, state, context)
    # Local requests pass without checks.
    refusal = first_refusals(CHECKS, requests, len(requests.rows), Refusal.ACCEPTED)
    refusal[requests.source == requests.destination] = Refusal.ACCEPTED
    return execute(requests, refusal, log)
