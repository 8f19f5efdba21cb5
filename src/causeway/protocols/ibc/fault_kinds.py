"""The kinds of faults in a network of zones: relayers misbehave one by one, zones fork and disconnect."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from causeway.model.faults import Fault
from causeway.model.section import TickNumber
from causeway.protocols.faults import DropSection, FaultSection, ForgeSection, HaltSection, Names, OfferSection

STALE = "stale"
FOREIGN = "foreign"
FORK = "fork"
DISCONNECT = "disconnect"


class RelayerDropSection(DropSection):
    """``kind = "drop"``: relayers do not carry what one chain offers another."""

    relayer: str | None = Field(None, description="The relayer that does it; without it, all do.")

    def _args(self) -> dict[str, Any]:
        return {} if self.relayer is None else {"relayer": self.relayer}


class RelayerOfferSection(OfferSection):
    """``kind = "replay" | "gap" | "tamper" | "stale" | "foreign"``: a relayer submits what is false.

    Replay: what was taken before, again. Gap: what starts one index too high. Tamper: a proof that was altered. Stale:
    proofs for the header before. Foreign: another chain's proofs.
    """

    kind: Literal["replay", "gap", "tamper", "stale", "foreign"] = Field(..., description="This fault.")  # type: ignore[assignment]
    relayer: str | None = Field(None, description="The relayer that does it; without it, all do.")

    def _args(self) -> dict[str, Any]:
        return {} if self.relayer is None else {"relayer": self.relayer}


class ForkSection(FaultSection):
    """``kind = "fork"``: the validators of a chain sign two headers for one height."""

    kind: Literal["fork"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain.")
    tick: TickNumber = Field(..., description="The round in which the others see both.")

    def fault(self, names: Names, key: str) -> Fault:
        """Return the fault, its names resolved."""
        return Fault(self.kind, names.chain(self.chain, f"{key}.chain"), None, self.tick, self.tick)


class DisconnectSection(FaultSection):
    """``kind = "disconnect"``: a chain ends a connection with a final packet."""

    once: ClassVar[bool] = True

    kind: Literal["disconnect"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain that ends it.")
    counterparty: str = Field(..., description="Name of the chain at the other end.")
    tick: TickNumber = Field(..., description="The round whose last packet to the other chain is the final one.")

    def fault(self, names: Names, key: str) -> Fault:
        """Return the fault, its names resolved."""
        source = names.chain(self.chain, f"{key}.chain")
        destination = names.chain(self.counterparty, f"{key}.counterparty")
        if source == destination:
            raise names.fail(f"{key}.counterparty", f'"{self.counterparty}": must differ from chain')
        return Fault(self.kind, source, destination, self.tick, self.tick)


FAULT_KINDS: tuple[type[FaultSection], ...] = (
    ForgeSection,
    RelayerDropSection,
    RelayerOfferSection,
    HaltSection,
    ForkSection,
    DisconnectSection,
)
