"""Disconnection (IBC reference X-5): a zone's final packet and its effects.

The zone that ends a connection pushes a packet of the type ``disconnect`` without data; the other zone answers with
code 0 and an empty result. From then on the connection is ``DISCONNECTING`` on both: no new packets are sent, later
packets are answered with code 1, and pending receipts are awaited.

Among the columns of messages, a final packet or its receipt is a row of the kind ``CONTROL``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import find_positions, group_rows, stable_order

from causeway.core.frame import Frame
from causeway.core.joins import encode_keys
from causeway.core.vocabulary import Kind
from causeway.protocols.ibc.state import DISCONNECTING, SEND, State, connection_rows, lanes_of
from causeway.protocols.shared.messages import LANE, blank_messages

Mask = npt.NDArray[np.bool_]


def is_final(messages: Frame) -> Mask:
    """Return a mask of final packets and their receipts."""
    found: Mask = messages["kind"] == np.uint8(Kind.CONTROL)
    return found


def final_packets(source: npt.NDArray[Any], destination: npt.NDArray[Any]) -> Frame:
    """Return the final packet of each connection that ``source`` ends with ``destination``."""
    lanes = lanes_of(source, destination, SEND)
    return blank_messages(
        len(lanes), kind=Kind.CONTROL, **{name: lanes[name] for name in LANE}, of_program=np.bool_(False)
    )


def is_error_answered(packets: Frame, final: Mask, state: State) -> Mask:
    """Return a mask of packets over a disconnecting connection.

    It was disconnecting before this block, or a ``final`` packet precedes them by ``sequence`` and index.
    """
    connection = connection_rows(state.connections, packets["destination"], packets["source"])
    late: Mask = (state.connections["frozen"][connection] & DISCONNECTING) > 0
    if not final.any():
        return late
    (lanes,) = encode_keys(LANE, packets)
    rows = np.flatnonzero(final)
    rows = rows[stable_order(lanes[rows], packets["sequence"][rows].astype(np.uint64), packets["index"][rows])]
    first = rows[group_rows(lanes[rows]).starts]
    of_lane = find_positions(lanes[first], lanes)
    end = first[np.maximum(of_lane, 0)]
    sequence, index = packets["sequence"], packets["index"]
    behind = (sequence > sequence[end]) | ((sequence == sequence[end]) & (index > index[end]))
    late |= (of_lane >= 0) & behind
    return late


def disconnect(state: State, chain: npt.NDArray[Any], counterparty: npt.NDArray[Any]) -> State:
    """Mark open connections as disconnecting."""
    if len(chain) == 0:
        return state
    frozen = state.connections["frozen"].copy()
    rows = connection_rows(state.connections, chain, counterparty)
    frozen[rows] = np.where(frozen[rows] == 0, np.uint8(DISCONNECTING), frozen[rows])
    return replace(state, connections=state.connections.with_columns(frozen=frozen))


def end_connections(state: State, own: Frame) -> tuple[State, Frame]:
    """Apply our ``own`` final packets; return the state and the messages to push.

    A final packet is dropped if its connection is not open; other messages are always pushed.
    """
    final = is_final(own)
    if not final.any():
        return state, own
    rows = connection_rows(state.connections, own["source"], own["destination"])
    own = own.filter(~final | (state.connections["frozen"][rows] == 0))
    finals = own.filter(is_final(own))
    return disconnect(state, finals["source"], finals["destination"]), own
