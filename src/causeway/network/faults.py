"""What goes wrong in a scenario: the sections ``[[faults]]`` of the file, one class a kind."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from causeway.network.settings import ContentSection, ProgramReference, Section, Tick

EVERY = "*"


class ForgeSection(ContentSection):
    """``kind = "forge"``: a chain puts a message into its output whose sender it does not own."""

    kind: Literal["forge"] = Field(..., description="This fault.")
    tick: Tick = Field(..., description="The round that puts it there.")
    chain: str = Field(..., description="Name of the faulty chain.")
    sender: ProgramReference = Field(..., description="The alleged sender: a program's name or number.")
    receiver: ProgramReference = Field(..., description="The receiver: a program's name or number.")


class _SpanSection(Section):
    from_tick: Tick = Field(0, alias="from", description="First tick of the fault.")
    until: Tick | None = Field(None, description="Last tick of the fault; without it, it lasts for ever.")

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.until is not None and self.until < self.from_tick:
            raise ValueError(f"until = {self.until} must not be below from = {self.from_tick}")
        return self


class DropSection(_SpanSection):
    """``kind = "drop"``: what one chain offers another is not carried."""

    kind: Literal["drop"] = Field(..., description="This fault.")
    source: str = Field(EVERY, description='Name of the offering chain, `"*"` for every one.')
    destination: str = Field(EVERY, description='Name of the fetching chain, `"*"` for every one.')
    relayer: str | None = Field(None, description="Under `ibc`: the relayer that does it; without it, all do.")


class SliceSection(Section):
    """``kind = "replay" | "gap" | "tamper" | "stale" | "foreign"``: a carrier or relayer offers what is false.

    Replay: what was taken before, again. Gap: what starts one index too high. Tamper: a root or proof that was altered.
    Under ``ibc`` also, stale: proofs for the header before; foreign: another chain's proofs.
    """

    kind: Literal["replay", "gap", "tamper", "stale", "foreign"] = Field(..., description="This fault.")
    source: str = Field(EVERY, description='Name of the chain whose messages they are, `"*"` for every one.')
    destination: str = Field(EVERY, description='Name of the chain they are offered to, `"*"` for every one.')
    tick: Tick = Field(..., description="When it is offered first.")
    until: Tick | None = Field(None, description="The last tick of it; without it, `tick` alone.")
    relayer: str | None = Field(None, description="Under `ibc`: the relayer that does it; without it, all do.")

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.until is not None and self.until < self.tick:
            raise ValueError(f"until = {self.until} must not be below tick = {self.tick}")
        return self


class ForkSection(Section):
    """``kind = "fork"``: under `ibc`, the validators of a chain sign two headers for one height."""

    kind: Literal["fork"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain.")
    tick: Tick = Field(..., description="The round in which the others see both.")


class DisconnectSection(Section):
    """``kind = "disconnect"``: under `ibc`, a chain ends a connection with a final packet."""

    kind: Literal["disconnect"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain that ends it.")
    remote: str = Field(..., description="Name of the chain at the other end.")
    tick: Tick = Field(..., description="The round whose last packet to the other chain is the final one.")


class HaltSection(_SpanSection):
    """``kind = "halt"``: a chain runs no rounds."""

    kind: Literal["halt"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain.")


FaultSection = Annotated[
    ForgeSection | DropSection | SliceSection | HaltSection | ForkSection | DisconnectSection,
    Field(discriminator="kind"),
]
