"""Parachains that come and go, and what becomes of their channels (ICMP reference D-3, X-6).

Who is deregistered leaves with a session, as channels close; then its channels and requests are gone with all that is
in them, and deposits go back to those who left them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.protocols.contract import Chains
from causeway.protocols.icmp.calls import Call, CallKind
from causeway.protocols.tabled_state import TabledState


def present(paras: Frame) -> Chains:
    """Return the parachains (``PARAS_SCHEMA``) that are registered and stay so, ascending."""
    return np.asarray(paras["para"][(paras["active"] == 1) & (paras["leaving"] == 0)])


def named(rows: Frame, chains: Chains) -> npt.NDArray[np.bool_]:
    """Return which channels or requests have one of some parachains at an end."""
    return np.isin(rows["sender"], chains) | np.isin(rows["recipient"], chains)


def usable(channels: Frame, paras: Frame) -> Frame:
    """Return the channels; those to whom or from whom a parachain leaves are to be closed, too."""
    out = paras["para"][paras["leaving"] > 0]
    if len(out) == 0:
        return channels
    return channels.with_columns(closing=np.maximum(channels["closing"], named(channels, out).astype(np.uint64)))


def left(state: TabledState, gone: Chains) -> dict[str, Frame]:
    """Return the tables without parachains that leave: they are not registered, and no messages wait for them."""
    paras, digests = state["paras"], state["digests"]
    columns = {name: paras[name].copy() for name in ("active", "leaving")}
    for column in columns.values():
        column[np.isin(paras["para"], gone)] = 0
    return {
        "paras": paras.with_columns(**columns),
        "digests": digests.filter(~np.isin(digests["recipient"], gone)),
    }


def with_calls(state: TabledState, calls: Sequence[Call], number: int) -> TabledState:
    """Return the state after the registrations and deregistrations of the relay block ``number``, in their order; who
    is registered cannot be registered, and who is not, or leaves already, cannot be deregistered.

    Who is registered begins with the watermark number - 1: nothing waits for it (D-3).
    """
    paras = state["paras"]
    columns = {name: paras[name].copy() for name in ("active", "leaving", "watermark")}
    moved = False
    for call in calls:
        (row,) = np.flatnonzero(paras["para"] == np.uint32(call.para))
        comes = call.kind is CallKind.REGISTER
        if comes == bool(columns["active"][row]) or columns["leaving"][row] > 0:
            continue
        moved = True
        if comes:
            columns["active"][row], columns["watermark"][row] = 1, number - 1
        else:
            columns["leaving"][row] = number
    return state.with_tables(paras=paras.with_columns(**columns)) if moved else state
