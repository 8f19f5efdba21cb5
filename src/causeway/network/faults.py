"""What goes wrong in a scenario: the sections of the file, and the same with names resolved to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from causeway.network.settings import ContentSection, Cycles, ProgramReference, Section, Tick

U64Array = npt.NDArray[np.uint64]
EVERY = "*"


class ForgeSection(ContentSection):
    """``kind = "forge"``: a chain puts a request into its output whose sender it does not own."""

    kind: Literal["forge"] = Field(..., description="This fault.")
    tick: Tick = Field(..., description="The round that puts it there.")
    chain: str = Field(..., description="Name of the faulty chain.")
    sender: ProgramReference = Field(..., description="The alleged sender: a program's name or number.")
    receiver: ProgramReference = Field(..., description="The receiver: a program's name or number.")
    method: str = Field("forged", description="The method asked for.")
    cycles: Cycles = Field(0, description="The cycles it claims to carry.")


class _SpanSection(Section):
    from_tick: Tick = Field(0, alias="from", description="First tick of the fault.")
    until: Tick | None = Field(None, description="First tick after the fault; without it, it lasts for ever.")

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.until is not None and self.until <= self.from_tick:
            raise ValueError(f"until = {self.until} must be greater than from = {self.from_tick}")
        return self


class DropSection(_SpanSection):
    """``kind = "drop"``: what one chain offers another is not carried."""

    kind: Literal["drop"] = Field(..., description="This fault.")
    source: str = Field(EVERY, description='Name of the offering chain, `"*"` for every one.')
    destination: str = Field(EVERY, description='Name of the fetching chain, `"*"` for every one.')


class SliceSection(Section):
    """``kind = "replay" | "gap" | "tamper"``: a carrier offers a false slice of a stream at one tick.

    Replay: an old slice again. Gap: a slice that starts one index too high. Tamper: a slice whose root was altered.
    """

    kind: Literal["replay", "gap", "tamper"] = Field(..., description="This fault.")
    source: str = Field(..., description="Name of the chain whose stream it is.")
    destination: str = Field(..., description="Name of the chain it is offered to.")
    tick: Tick = Field(..., description="When it is offered.")


class HaltSection(_SpanSection):
    """``kind = "halt"``: a chain runs no rounds."""

    kind: Literal["halt"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain.")


FaultSection = Annotated[ForgeSection | DropSection | SliceSection | HaltSection, Field(discriminator="kind")]


@dataclass(frozen=True)
class Forge:
    """A request that ``chain`` puts into its output at ``tick`` although it does not own ``sender``."""

    tick: int
    chain: int
    sender: int
    receiver: int
    method: str
    payload: bytes
    cycles: int


@dataclass(frozen=True)
class Drop:
    """Nothing goes from ``source`` to ``destination`` (None: any) in ticks ``first <= tick < end`` (None: for ever)."""

    source: int | None
    destination: int | None
    first: int
    end: int | None


@dataclass(frozen=True)
class FalseSlice:
    """A carrier offers ``destination`` a false slice of the stream from ``source`` at ``tick``."""

    kind: Literal["replay", "gap", "tamper"]
    source: int
    destination: int
    tick: int


@dataclass(frozen=True)
class Halt:
    """``chain`` runs no round in ticks ``first <= tick < end`` (None: for ever)."""

    chain: int
    first: int
    end: int | None


@dataclass(frozen=True)
class Faults:
    """All faults of a scenario, chains and programs as numbers."""

    forges: tuple[Forge, ...] = ()
    drops: tuple[Drop, ...] = ()
    false_slices: tuple[FalseSlice, ...] = ()
    halts: tuple[Halt, ...] = ()

    def forges_at(self, tick: int) -> list[Forge]:
        """Return the forgeries of ``tick``, in the order of the file."""
        return [forge for forge in self.forges if forge.tick == tick]

    def false_slices_at(self, tick: int) -> list[FalseSlice]:
        """Return the false slices offered at ``tick``, in the order of the file."""
        return [false for false in self.false_slices if false.tick == tick]

    def halted_at(self, tick: int) -> U64Array:
        """Return the numbers of the chains that run no round at ``tick``, ascending."""
        chains = {halt.chain for halt in self.halts if _within(tick, halt.first, halt.end)}
        return np.array(sorted(chains), dtype=np.uint64)

    def dropped_at(self, tick: int, sources: U64Array, destinations: U64Array) -> npt.NDArray[np.bool_]:
        """Return, for n pairs of chains, whether what the first offers the second is not carried at ``tick``."""
        dropped = np.zeros(len(sources), dtype=np.bool_)
        for drop in self.drops:
            if _within(tick, drop.first, drop.end):
                hit = np.ones(len(sources), dtype=np.bool_)
                if drop.source is not None:
                    hit &= sources == np.uint64(drop.source)
                if drop.destination is not None:
                    hit &= destinations == np.uint64(drop.destination)
                dropped |= hit
        return dropped

    def last_tick(self) -> int | None:
        """Return the last tick at which a fault begins, acts or ends; None when there is none.

        A run that has nothing left to do goes on until then: a fault may still set something in motion, and what a
        halted chain or a cut lane holds back moves again when the fault ends.
        """
        ticks = [forge.tick for forge in self.forges] + [false.tick for false in self.false_slices]
        spans: Sequence[Drop | Halt] = (*self.drops, *self.halts)
        ticks += [span.first if span.end is None else span.end for span in spans]
        return max(ticks, default=None)


def _within(tick: int, first: int, end: int | None) -> bool:
    return first <= tick and (end is None or tick < end)
