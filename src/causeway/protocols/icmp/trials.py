"""Faults of collators and validators, as trials of several protocols name them."""

from __future__ import annotations

from causeway.protocols.icmp.fault_kinds import CANDIDATE, DUPLICATE
from causeway.protocols.trials import ALTERED, DUPLICATED, FORGED, OUT_OF_TURN, Between, Keys, usual

_WHAT = {DUPLICATED: DUPLICATE, OUT_OF_TURN: "skipped", ALTERED: "body", FORGED: "sender"}


def trial(name: str, between: Between) -> Keys | None:
    """Return the fault of a name in ``protocols.trials.TRIES``. Bodies are what is asked for: so it is the candidate of
    the parachain that receives in which something is wrong, beside the honest one."""
    if name in _WHAT:
        return {"kind": CANDIDATE, "chain": between.destination, "what": _WHAT[name], **between.ticks}
    return usual(name, between)
