"""Fault kinds of a network of domains: halts, forks, faulty carriers and operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from causeway.config.faults import FaultRule
from causeway.protocols.shared.faults import EVERY as ANY
from causeway.protocols.shared.faults import DropSection, FaultSection, HaltSection, NetworkNames
from causeway.protocols.shared.limits import MOST_BLOCKS, PlannedTick

ABSENT = "absent"
FRAUD = "fraud"
BUNDLE = "bundle"
DELAY = "delay"
REORDER = "reorder"
WHAT = "what"
EVERY = "every"
BLOCKS = "blocks"
OF = "of"
AMOUNT = "amount"
CHANCE = "chance"
FOUND_AFTER = "found_after"
REORG = "reorg"
DEPTH = "depth"
MOST = "most"
OPERATOR = "operator"
"""Names of fault kinds and of their arguments."""

MOST_KEPT = 100_000
"""Maximum delay of a delivery, in blocks."""

_EVERY = Field(1, ge=1, le=2**32, description="The fault affects one of this many delivered messages.")


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
    """``kind = "reorder"``: the last of every so many consecutive messages of a lane comes first.

    The others follow, a block later each.
    """

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


class BundleSection(HaltSection):
    """``kind = "bundle"``: an operator of a domain bundles all messages unchecked, one of them altered."""

    kind: Literal["bundle"] = Field(..., description="This fault.")  # type: ignore[assignment]
    chain: str = Field(..., description="Name of the domain.")
    what: Literal["base", "node", "nonce"] = Field("base", description="What is altered, as by `tamper`.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault, its names resolved."""
        return replace(super().fault(names, key), args={WHAT: self.what})


class FraudSection(FaultSection):
    """``kind = "fraud"``: a bad operator of a domain submits a receipt that is false, and others that build on it.

    A message that nobody sent is in the storage that it says, and is brought under it; or the storage is another
    otherwise; or value left that did not; or an
    invalid bundle is called valid, or the other way round.
    """

    kind: Literal["fraud"] = Field(..., description="This fault.")
    tick: PlannedTick = Field(..., description="The tick of the block whose receipt is false.")
    until: PlannedTick | None = Field(None, description="The last tick of such blocks; without it, `tick` alone.")
    chain: str = Field(..., description="Name of the domain.")
    what: Literal["message", "root", "transfers", "bundle"] = Field("message", description="What is false.")
    destination: str = Field(ANY, description='Name of the chain that is robbed, `"*"` for the consensus chain.')
    amount: int = Field(1_000, ge=1, le=2**63 - 1, description="What the message or the transfer brings.")
    chance: float = Field(1.0, gt=0, le=1, description="In how many of these ticks it happens.")
    found_after: int = Field(
        1,
        ge=1,
        le=MOST_BLOCKS,
        description="Blocks from its acceptance to the fraud proof; at most the challenge period.",
    )
    found: bool = Field(True, description="Whether a fraud proof ever comes.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault, its names resolved."""
        chain = names.chain(self.chain, f"{key}.chain")
        robbed = None if self.destination == ANY else names.chain(self.destination, f"{key}.destination")
        if robbed == chain:
            raise names.fail(f"{key}.destination", f'"{self.destination}": must differ from chain')
        found = {FOUND_AFTER: self.found_after} if self.found else {}
        args = {WHAT: self.what, AMOUNT: self.amount, CHANCE: self.chance, **found}
        return FaultRule(self.kind, chain, robbed, *self.span, args)


class AbsentSection(HaltSection):
    """``kind = "absent"``: an operator of a domain submits no receipts, of each block or of some, drawn one by one.

    An operator of the consensus chain is the author of no block. At least one operator of each chain is never absent.
    """

    kind: Literal["absent"] = Field(..., description="This fault.")  # type: ignore[assignment]
    operator: int = Field(0, ge=0, le=999, description="The operator, counted from 0.")
    chance: float = Field(1.0, gt=0, le=1, description="In how many of the blocks it is absent.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault, its names resolved."""
        return replace(super().fault(names, key), args={OPERATOR: self.operator, CHANCE: self.chance})


class ReorgSection(FaultSection):
    """``kind = "reorg"``: another fork of the consensus chain becomes the best one.

    The network goes back to the block where the two part: in one tick, or, with ``chance``, in some of those that are
    run.
    """

    kind: Literal["reorg"] = Field(..., description="This fault.")
    tick: PlannedTick | None = Field(None, description="The tick of it.")
    depth: int | None = Field(
        None, ge=1, le=MOST_BLOCKS, description="By how many blocks; less than the archiving depth."
    )
    chance: float | None = Field(None, gt=0, le=0.5, description="In how many of the ticks that are run it happens.")
    from_tick: PlannedTick = Field(0, alias="from", description="With `chance`: its first tick.")
    until: PlannedTick | None = Field(None, description="With `chance`: its last tick; without it, it lasts for ever.")
    most: int | None = Field(
        None,
        ge=1,
        le=MOST_BLOCKS,
        description="With `chance`: by how many blocks at most; less than the archiving depth.",
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        of_one, of_some = (self.tick, self.depth), (self.chance, self.most)
        planned = None not in of_one and of_some == (None, None) and (self.from_tick, self.until) == (0, None)
        drawn = None not in of_some and of_one == (None, None)
        if not (planned or drawn):
            raise ValueError("give tick and depth, or chance and most (with from and until)")
        return self

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault."""
        if self.tick is not None:
            return FaultRule(self.kind, None, None, self.tick, self.tick, {DEPTH: self.depth})
        return FaultRule(self.kind, None, None, *self.span, {CHANCE: self.chance, MOST: self.most})


FAULT_KINDS: tuple[type[FaultSection], ...] = (
    HaltSection,
    CarrierDropSection,
    CarrierDelaySection,
    CarrierReorderSection,
    CarrierReplaySection,
    CarrierTamperSection,
    BundleSection,
    AbsentSection,
    FraudSection,
    ReorgSection,
)
