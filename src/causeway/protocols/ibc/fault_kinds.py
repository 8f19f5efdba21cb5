"""Fault kinds of a network of zones: single relayers misbehave, zones fork, disconnect."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from causeway.config.faults import FaultRule
from causeway.config.section import TickNumber
from causeway.protocols.ibc.options import LARGEST_DEPOSIT
from causeway.protocols.shared.faults import (
    DropSection,
    FaultSection,
    ForgeSection,
    HaltSection,
    NetworkNames,
    OfferSection,
)

STALE = "stale"
FOREIGN = "foreign"
FORK = "fork"
DISCONNECT = "disconnect"
RECOVER = "recover"
DEPOSIT = "deposit"


class RelayerDropSection(DropSection):
    """``kind = "drop"``: relayers do not carry what one chain offers another."""

    relayer: str | None = Field(None, description="The relayer that does it; without it, all do.")

    def _args(self) -> dict[str, Any]:
        return {} if self.relayer is None else {"relayer": self.relayer}


class RelayerOfferSection(OfferSection):
    """``kind = "replay" | "gap" | "tamper" | "stale" | "foreign"``: a relayer submits what is false.

    Replay: accepted entries again. Gap: what starts one index too high. Tamper: a proof that was altered. Stale:
    proofs for the header before. Foreign: another chain's proofs.
    """

    kind: Literal["replay", "gap", "tamper", "stale", "foreign"] = Field(..., description="This fault.")  # type: ignore[assignment]
    relayer: str | None = Field(None, description="The relayer that does it; without it, all do.")

    def _args(self) -> dict[str, Any]:
        return {} if self.relayer is None else {"relayer": self.relayer}


class ForkSection(FaultSection):
    """``kind = "fork"``: the validators of a chain sign two headers for one height.

    Relayers see both and show them to the chains that are connected with it, which freezes the connections.
    """

    kind: Literal["fork"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain.")
    tick: TickNumber = Field(..., description="The round in which the others see both.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, self.tick, self.tick)


class DisconnectSection(FaultSection):
    """``kind = "disconnect"``: a chain ends a connection with a final packet."""

    once: ClassVar[bool] = True

    kind: Literal["disconnect"] = Field(..., description="This fault.")
    chain: str = Field(..., description="Name of the chain that ends it.")
    counterparty: str = Field(..., description="Name of the chain at the other end.")
    tick: TickNumber = Field(..., description="The round whose last packet to the other chain is the final one.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        return _decision(self, names, key)


class RecoverSection(FaultSection):
    """``kind = "recover"``: a chain goes on with a connection that is frozen, or whose client has expired.

    It is no fault, but planned in the same way: a decision of the chain itself. From then on it trusts the
    counterparty's header of the height before, and no other. The queues stay.
    """

    kind: Literal["recover"] = Field(..., description="This decision.")
    chain: str = Field(..., description="Name of the chain that decides it.")
    counterparty: str = Field(..., description="Name of the chain at the other end.")
    tick: TickNumber = Field(..., description="The round in which it goes on.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        return _decision(self, names, key)


class DepositSection(FaultSection):
    """``kind = "deposit"``: somebody pays into the account of a relayer on a chain.

    It is no fault, but planned in the same way. A relayer that has stopped for lack of funds continues with it in the
    same round. Only with ``options.relay.accounts``; a chain that is halted takes no deposit.
    """

    kind: Literal["deposit"] = Field(..., description="This payment.")
    chain: str = Field(..., description="Name of the chain that has the account.")
    relayer: str = Field(..., description="The relayer whose account it is.")
    tick: TickNumber = Field(..., description="The round of the payment.")
    amount: int = Field(..., ge=1, le=LARGEST_DEPOSIT, description="How much is paid.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        args = {"relayer": self.relayer, "amount": self.amount}
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, self.tick, self.tick, args)


def _decision(section: DisconnectSection | RecoverSection, names: NetworkNames, key: str) -> FaultRule:
    """Return the decision of a chain about a connection."""
    source = names.chain(section.chain, f"{key}.chain")
    destination = names.chain(section.counterparty, f"{key}.counterparty")
    if source == destination:
        raise names.fail(f"{key}.counterparty", f'"{section.counterparty}": must differ from chain')
    return FaultRule(section.kind, source, destination, section.tick, section.tick)


FAULT_KINDS: tuple[type[FaultSection], ...] = (
    ForgeSection,
    RelayerDropSection,
    RelayerOfferSection,
    HaltSection,
    ForkSection,
    DisconnectSection,
    RecoverSection,
    DepositSection,
)
