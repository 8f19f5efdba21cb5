"""Fault kinds of a network of subnets: of carriers, block makers, nodes, batches, subnets."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from causeway_proofs.ic.messages import StreamRejectCode
from pydantic import Field, model_validator

from causeway.config.faults import FaultRule
from causeway.config.section import U64, U64_MAX, Amount, ProgramReference, TickNumber
from causeway.core.vocabulary import Kind
from causeway.protocols.shared.faults import (
    DropSection,
    FaultSection,
    ForgeSection,
    HaltSection,
    NetworkNames,
    OfferSection,
)

STALE = "stale"
ALTER = "alter"
BLOCK_MAKER = "block_maker"
NODE = "node"
BATCH = "batch"
"""The fault kinds of this protocol, besides the common ones."""

PART, DOES, NODES, SUBSTREAM = "part", "does", "nodes", "substream"
"""Arguments: altered part, behaviour, node numbers, program of the altered substream."""

PAYLOAD, SIBLING, SIGNATURE, DESTINATION, HEIGHT, HEADER = (
    "payload",
    "sibling",
    "signature",
    "destination",
    "height",
    "header",
)
"""The parts of a slice that a carrier may alter."""

REORDER, FOREIGN, OVERSIZED, ALTERED = "reorder", "foreign", "oversized", "altered"
"""Behaviours of a block maker, besides a gap, a replay and stale slices."""

FALSE_SHARE, NO_SHARE, DOWN, SLOW, LYING = "false_share", "no_share", "down", "slow", "lying"
"""Behaviours of a node, besides serving stale slices."""

AGAIN, AHEAD = "again", "ahead"
"""Faults of batches."""

AGE = "age"
"""An argument of a stale offer: its age in heights."""

MAX_AGE = 1000
"""Maximum heights whose headers a carrier keeps."""


class CallForgeSection(ForgeSection):
    """``kind = "forge"``: a subnet puts a request or a response into its stream that no program has made."""

    message: Literal["request", "response"] = Field(
        "request", description="What it is. A response is from `sender`, who would have been called, to the caller."
    )
    callback: U64 = Field(0, description="Number of the call that it makes or answers, counted by the caller from 0.")
    amount: Amount = Field(
        0, description="Cycles attached (request) or refunded (response); digits in quotes from 2**63 on."
    )
    code: int = Field(
        0,
        ge=0,
        le=max(StreamRejectCode),
        description="Of a response: 0 for data, else the reject code, and `text` is that of the reject.",
    )
    deadline: int = Field(
        0, ge=0, le=2**32 - 1, description="When the call expires, in seconds; 0 for a guaranteed response."
    )

    @model_validator(mode="after")
    def _rejects_are_responses(self) -> Self:
        if self.code and self.message == "request":
            raise ValueError(f'code = {self.code}: a request has none; allowed with message = "response"')
        if self.code and self.hex is not None:
            raise ValueError(f"hex: with code = {self.code} it is a reject, which says why as text")
        return self

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        fault = super().fault(names, key)
        kind = Kind.REQUEST if self.message == "request" else Kind.RESPONSE
        rest = {name: getattr(self, name) for name in ("callback", "amount", "code", "deadline")}
        return replace(fault, args={**fault.args, "kind": int(kind), **rest})


class StaleSection(OfferSection):
    """``kind = "stale"``: a carrier offers what was certified at an older height, instead of the newest."""

    kind: Literal["stale"] = Field(..., description="This fault.")  # type: ignore[assignment]
    age: int = Field(1, ge=1, le=MAX_AGE, description="By how many heights it is older than the newest.")

    def _args(self) -> dict[str, Any]:
        return {AGE: self.age}


class AlterSection(OfferSection):
    """``kind = "alter"``: a carrier alters what it offers.

    Payload: a bit of the first message. Sibling: a digest of what is not shown. Signature: a bit of it. Destination:
    the subnet that it is for. Height: it is said to be one higher. Header: it signals one message more.
    """

    kind: Literal["alter"] = Field(..., description="This fault.")  # type: ignore[assignment]
    part: Literal["payload", "sibling", "signature", "destination", "height", "header"] = Field(
        ..., description="What is altered of the slice."
    )
    substream: ProgramReference | None = Field(
        None, description="The program, by name or number, whose substream is altered alone; without it, all are."
    )

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        fault = super().fault(names, key)
        if self.substream is None:
            return fault
        number = names.program(self.substream, f"{key}.substream")
        return replace(fault, args={**fault.args, SUBSTREAM: number})

    def _args(self) -> dict[str, Any]:
        return {PART: self.part}


class _PartySection(FaultSection):
    """What somebody does to one subnet at some ticks."""

    kind: str
    does: str
    chain: str = Field(..., description="Name of the subnet.")
    tick: TickNumber = Field(..., description="When it is done first.")
    until: TickNumber | None = Field(None, description="The last tick of it; without it, `tick` alone.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names; its destination is the subnet."""
        return FaultRule(self.kind, None, names.chain(self.chain, f"{key}.chain"), *self.span, {DOES: self.does})


class BlockMakerSection(_PartySection):
    """``kind = "block_maker"``: a subnet's block maker proposes what is false; the next one is honest.

    Gap: slices from one index too high on. Replay: from the streams' first messages on. Reorder: the first two messages
    of a slice exchanged. Foreign: slices for another subnet. Oversized: all that there is, whatever the limits. Stale:
    slices of an older height from their first messages on. Altered: a bit of the first message.
    """

    kind: Literal["block_maker"] = Field(..., description="This fault.")
    does: Literal["gap", "replay", "reorder", "foreign", "oversized", "stale", "altered"] = Field(
        ..., description="What it does to the slices."
    )
    chain: str = Field(..., description="Name of the subnet whose block maker it is.")


class NodeSection(FaultSection):
    """``kind = "node"``: nodes of a subnet are faulty.

    False_share: they give a share of a signature that is none. No_share: they give none. Down: they serve nothing.
    Slow: they serve too late. Stale: they serve what was certified at an older height. Lying: they serve what was
    altered.
    """

    kind: Literal["node"] = Field(..., description="This fault.")
    does: Literal["false_share", "no_share", "down", "slow", "stale", "lying"] = Field(
        ..., description="What the nodes do."
    )
    chain: str = Field(..., description="Name of the subnet.")
    nodes: Annotated[list[Annotated[int, Field(ge=0, le=U64_MAX)]], Field(min_length=1)] = Field(
        ..., description="The numbers of the nodes."
    )
    from_tick: TickNumber = Field(0, alias="from", description="First tick of the fault.")
    until: TickNumber | None = Field(None, description="Last tick of the fault; without it, it lasts for ever.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        args = {DOES: self.does, NODES: sorted({*self.nodes})}
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, *self.span, args)


class BatchSection(_PartySection):
    """``kind = "batch"``: a batch that is not the next one is delivered to a subnet, which ignores it.

    Again: the batch of the round, a second time. Ahead: the one after it, before it.
    """

    kind: Literal["batch"] = Field(..., description="This fault.")
    does: Literal["again", "ahead"] = Field(..., description="Which batch it is.")


FAULT_KINDS: tuple[type[FaultSection], ...] = (
    CallForgeSection,
    DropSection,
    OfferSection,
    StaleSection,
    AlterSection,
    BlockMakerSection,
    NodeSection,
    BatchSection,
    HaltSection,
)
"""The fault sections of this protocol."""
