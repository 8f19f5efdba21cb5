"""Faults of operators and carriers, as trials of several protocols name them."""

from __future__ import annotations

from causeway.protocols.interference import REPLAY, TAMPER
from causeway.protocols.trials import ALTERED, DUPLICATED, FORGED, OUT_OF_TURN, Between, Keys, usual
from causeway.protocols.xdm.fault_kinds import FRAUD, REORDER


def trial(name: str, between: Between) -> Keys | None:
    """Return the fault of a name in ``protocols.trials.TRIES``. A message is made up by a receipt that is false."""
    if name == DUPLICATED:
        return {"kind": REPLAY, **between.ends, **between.span}
    if name == OUT_OF_TURN:
        return {"kind": REORDER, **between.ends, **between.span, "of": 2}
    if name == ALTERED:
        return {"kind": TAMPER, **between.ends, **between.span}
    if name == FORGED:
        return {"kind": FRAUD, "chain": between.source, "destination": between.destination, "tick": between.sent}
    return usual(name, between)
