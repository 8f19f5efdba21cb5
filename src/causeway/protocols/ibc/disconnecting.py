"""Disconnection (IBC reference X-5): a zone's final packet, and what a connection does from then on.

The zone that ends a connection pushes a packet of the type ``disconnect`` without data; the other zone answers it with
code 0 and an empty result. On both, the connection is ``DISCONNECTING`` from then on: nothing new is sent, packets that
still come are answered with code 1, and the receipts of those on their way are awaited.

Between the columns of programs' messages a final packet, and its receipt, is a row of the kind ``CONTROL``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, repeated, repeated_bytes, repeated_text
from causeway.model.ledger import Kind
from causeway.model.order import groups_of, lane_codes, positions_in, stable_order
from causeway.protocols.ibc.state import DISCONNECTING, SEND, State, connection_positions

Mask = npt.NDArray[np.bool_]


def is_final(messages: Frame) -> Mask:
    """Return which messages are final packets, or the receipts of such."""
    found: Mask = messages["kind"] == np.uint8(Kind.CONTROL)
    return found


def final_packets(chain: npt.NDArray[Any], remote: npt.NDArray[Any]) -> Frame:
    """Return the final packet of each connection (``chain`` ends that with ``remote``), as it is pushed."""
    length = len(chain)
    zero = repeated(np.uint64(0), length)
    numbers = ("sender", "receiver", "callback", "amount_high", "amount_low")
    return Frame(
        {
            "chain": chain.astype(np.uint32),
            "remote": remote.astype(np.uint32),
            "substream": repeated(np.uint64(SEND), length),
            "kind": repeated(np.uint8(Kind.CONTROL), length),
            **dict.fromkeys(numbers, zero),
            "code": repeated(np.uint8(0), length),
            "deadline": repeated(np.uint32(0), length),
            "method": repeated_text("", length),
            "payload": repeated_bytes(b"", length),
            "of_program": repeated(np.bool_(False), length),
        },
        length,
    )


def answered_with_error(packets: Frame, final: Mask, state: State) -> Mask:
    """Return which packets come over a connection that is disconnecting by then.

    It was before this block, or one of the ``final`` packets came before: by ``sequence``, then by index.
    """
    place = connection_positions(state.connections, packets["chain"], packets["remote"])
    late: Mask = state.connections["frozen"][place] == DISCONNECTING
    if not final.any():
        return late
    lanes = lane_codes(packets["chain"], packets["remote"])
    rows = np.flatnonzero(final)
    rows = rows[stable_order(lanes[rows], packets["sequence"][rows].astype(np.uint64), packets["index"][rows])]
    first = rows[groups_of(lanes[rows]).starts]
    of_lane = positions_in(lanes[first], lanes)
    end = first[np.maximum(of_lane, 0)]
    sequence, index = packets["sequence"], packets["index"]
    behind = (sequence > sequence[end]) | ((sequence == sequence[end]) & (index > index[end]))
    late |= (of_lane >= 0) & behind
    return late


def disconnected(state: State, finals: Frame) -> State:
    """Return the state with the connections of final packets (``chain``, ``remote``) disconnecting."""
    if len(finals) == 0:
        return state
    frozen = state.connections["frozen"].copy()
    place = connection_positions(state.connections, finals["chain"], finals["remote"])
    frozen[place] = np.where(frozen[place] == 0, np.uint8(DISCONNECTING), frozen[place])
    return replace(state, connections=state.connections.with_columns(frozen=frozen))


def ended(state: State, own: Frame) -> tuple[State, Frame]:
    """Return the state after our ``own`` final packets, and what is pushed: none where the connection is not open.

    Other messages among ``own`` are pushed in any case.
    """
    final = is_final(own)
    if not final.any():
        return state, own
    place = connection_positions(state.connections, own["chain"], own["remote"])
    own = own.filter(~final | (state.connections["frozen"][place] == 0))
    return disconnected(state, own.filter(is_final(own))), own
