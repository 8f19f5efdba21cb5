"""``IBCsend``: a program's request becomes a packet in the send queue for its receiver's zone (IBC reference 3.2).

Outcomes for a request: pushed to that send queue; put into the local lane, where its receiver is on the same zone;
refused, and then its program gets a reject at the next block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat, repeated
from causeway.model.ledger import Event, Kind
from causeway.model.order import Rows
from causeway.proofs.tendermint.trust import is_over
from causeway.protocols.checks import Check, refusals
from causeway.protocols.contract import NO_HOST, Hosts
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.ibc.client import newest_times
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.entries import type_codes
from causeway.protocols.ibc.envelope import CALL_BYTES, MAX_METHOD_BYTES
from causeway.protocols.ibc.errors import NAMES, Refusal
from causeway.protocols.ibc.inputs import Code
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_rows
from causeway.protocols.messages import payload_lengths

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Requests:
    """Requests of programs, message columns, and what they are judged by."""

    rows: Frame
    state: State
    context: Context

    @cached_property
    def source(self) -> Hosts:
        """Return the zone of each sender."""
        return self.context.zones.host_of(self.rows["sender"])

    @cached_property
    def destination(self) -> Hosts:
        """Return the zone of each receiver, ``NO_HOST`` for none."""
        return self.context.zones.host_of(self.rows["receiver"])

    @cached_property
    def connection(self) -> Rows:
        """Return the row of each connection, -1 where there is none."""
        counterparty = np.maximum(self.destination, 0).astype(np.uint32)
        found = connection_rows(self.state.connections, self.source.view(np.uint32), counterparty)
        return np.where(self.destination == NO_HOST, -1, found)

    @cached_property
    def types(self) -> npt.NDArray[np.int32]:
        """Return the type of the packet that each becomes."""
        return type_codes(self.rows, self.context.zones)

    def of_connection(self, found: npt.NDArray[Any]) -> Mask:
        """Return what is said of each connection for every request, False where there is none."""
        known = self.connection >= 0
        spread: Mask = np.zeros(len(self.rows), dtype=bool)
        spread[known] = found[self.connection[known]]
        return spread


def _is_connected(requests: Requests) -> Mask:
    return requests.connection >= 0


def _is_open(requests: Requests) -> Mask:
    return ~requests.of_connection(requests.state.connections["frozen"] > 0)


def _is_fresh(requests: Requests) -> Mask:
    # For each row of `connections` whether its newest trusted header is too old to build on.
    over: npt.NDArray[np.bool_] = is_over(
        newest_times(requests.state), np.uint64(requests.context.options.trusting_ns), np.uint64(requests.context.time)
    )
    return ~requests.of_connection(over)


def _is_handled(requests: Requests) -> Mask:
    handled: Mask = requests.context.zones.handled[requests.types, requests.source]
    return handled


def _is_permitted(requests: Requests) -> Mask:
    permitted = np.ones(len(requests.rows), dtype=bool)
    for code, programs in enumerate(requests.context.zones.permitted):
        if programs is not None:
            permitted &= (requests.types != code) | np.isin(requests.rows["sender"], programs)
    return permitted


def _is_short(requests: Requests) -> Mask:
    method = requests.rows["method"]
    lengths = np.array([len(name.encode()) for name in method.dictionary.to_pylist()] or [0], dtype=np.int64)
    method_bytes = lengths[method.indices.to_numpy(zero_copy_only=False)]
    data = CALL_BYTES + method_bytes + payload_lengths(requests.rows).astype(np.int64)
    short: Mask = (method_bytes <= MAX_METHOD_BYTES) & (data <= requests.context.options.max_data_bytes)
    return short


CHECKS: tuple[Check[Refusal, Requests], ...] = (
    Check(Refusal.UnregisteredDestination, "3.2, 1", _is_connected),
    Check(Refusal.ConnectionFrozen, "3.2, 2", _is_open),
    Check(Refusal.ClientExpired, "X-11", _is_fresh),
    Check(Refusal.UnsupportedType, "3.2, 3", _is_handled),
    Check(Refusal.PermissionDenied, "3.2, 4", _is_permitted),
    Check(Refusal.InvalidPacket, "2.4", _is_short),
)


def execute(requests: Requests, refusal: npt.NDArray[np.int64], log: EventLog) -> Frame:
    """Return where each request goes, with its lane: step 5 pushes it there.

    Those refused come back as rejects in the local lane of their zone, in their turn; each leaves an event.
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
    log.add(event_rows(failed, bits, chain=source[refused].view(np.uint32), code=Code.REJECTED, reason=names))
    rejects = failed.with_columns(
        kind=repeated(np.uint8(Kind.RESPONSE), len(failed)),
        sender=failed["receiver"],
        receiver=failed["sender"],
        code=repeated(np.uint8(Code.REJECTED), len(failed)),
        payload=names.dictionary_decode().cast("binary"),
        **{name: column[refused] for name, column in lanes.items()},
    )
    # Back in the order of production, rejects among the packets.
    order = np.concatenate([np.flatnonzero(~refused), np.flatnonzero(refused)])
    both = concat([rows.filter(~refused).select(rejects.names), rejects])
    return both.take(np.argsort(order, kind="stable"))


def send(rows: Frame, state: State, context: Context, log: EventLog) -> Frame:
    """Validate and execute the call for requests (message columns) in the order of production."""
    requests = Requests(rows, state, context)
    # The first `Refusal` of each request, `ACCEPTED` for none and for what stays on its zone.
    refusal = refusals(CHECKS, requests, len(requests.rows), Refusal.ACCEPTED)
    refusal[requests.source == requests.destination] = Refusal.ACCEPTED
    return execute(requests, refusal, log)
