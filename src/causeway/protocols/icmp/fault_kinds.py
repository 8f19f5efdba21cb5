"""The kinds of faults in a network of parachains."""

from __future__ import annotations

from causeway.protocols.faults import FaultSection, HaltSection

FAULT_KINDS: tuple[type[FaultSection], ...] = (HaltSection,)
"""The sections of a scenario, one a kind."""
