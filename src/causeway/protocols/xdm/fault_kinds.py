"""The kinds of faults in a network of domains: chains that make no blocks, and carriers that misbehave."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from causeway.protocols.faults import DropSection, FaultSection, HaltSection

DELAY = "delay"
REORDER = "reorder"
WHAT = "what"
EVERY = "every"
BLOCKS = "blocks"
OF = "of"
"""What faults are called, and their arguments."""

MOST_KEPT = 100_000
"""Carriers keep what they bring late for at most so many blocks."""

_EVERY = Field(1, ge=1, le=2**32, description="Of so many messages that are brought, it happens to one.")


class CarrierDropSection(DropSection):
    """``kind = "drop"``: what operators of one chain prove does not come to the other, each message or every n-th."""

    every: int = _EVERY

    def _args(self) -> dict[str, Any]:
        return {EVERY: self.every}


class CarrierDelaySection(DropSection):
    """``kind = "delay"``: what operators of one chain prove comes to the other some blocks later."""

    kind: Literal["delay"] = Field(..., description="This fault.")  # type: ignore[assignment]
    blocks: int = Field(1, ge=1, le=MOST_KEPT, description="How many blocks later.")
    every: int = _EVERY

    def _args(self) -> dict[str, Any]:
        return {BLOCKS: self.blocks, EVERY: self.every}


class CarrierReorderSection(DropSection):
    """``kind = "reorder"``: of every so many consecutive messages of a lane the last comes first, then, a block later
    each, the others."""

    kind: Literal["reorder"] = Field(..., description="This fault.")  # type: ignore[assignment]
    of: int = Field(3, ge=2, le=1_000, description="How many messages change their order with each other.")

    def _args(self) -> dict[str, Any]:
        return {OF: self.of}


class CarrierReplaySection(DropSection):
    """``kind = "replay"``: what is brought comes again some blocks later, or in the same block."""

    kind: Literal["replay"] = Field(..., description="This fault.")  # type: ignore[assignment]
    blocks: int = Field(1, ge=0, le=MOST_KEPT, description="How many blocks later; 0: in the same block.")
    every: int = _EVERY

    def _args(self) -> dict[str, Any]:
        return {BLOCKS: self.blocks, EVERY: self.every}


class CarrierTamperSection(DropSection):
    """``kind = "tamper"``: carriers alter what they bring.

    A node of the storage proof; the weight tag, the nonce or the source of the envelope; what the proof is based on.
    """

    kind: Literal["tamper"] = Field(..., description="This fault.")  # type: ignore[assignment]
    what: Literal["node", "tag", "nonce", "source", "base"] = Field("node", description="What is altered.")
    every: int = _EVERY

    def _args(self) -> dict[str, Any]:
        return {WHAT: self.what, EVERY: self.every}


FAULT_KINDS: tuple[type[FaultSection], ...] = (
    HaltSection,
    CarrierDropSection,
    CarrierDelaySection,
    CarrierReorderSection,
    CarrierReplaySection,
    CarrierTamperSection,
)
