"""The fault kinds of every protocol: the sections ``[[faults]]`` of a scenario.

A protocol with other kinds, or further keys, declares its own sections
(``protocols.registry.ProtocolInfo.fault_kinds``).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from causeway_proofs.errors import InvalidInput
from pydantic import Field, model_validator

from causeway.config.faults import FaultRule
from causeway.config.section import U64_MAX, ContentSection, ProgramReference, ScenarioSection, TickNumber

EVERY = "*"


class NetworkNames(Protocol):
    """Names of a network's chains and programs.

    A failed look-up is an ``InvalidInput`` with the key.
    """

    def chain(self, name: str, key: str) -> int:
        """Return the number of the chain ``name``."""

    def program(self, reference: int | str, key: str) -> int:
        """Return the number of a program from its name or number."""

    def fail(self, key: str, text: str) -> InvalidInput:
        """Return the error for ``key``."""


class FaultSection(ScenarioSection):
    """One section ``[[faults]]``. ``once``: at most one of the kind from one chain to another."""

    once: ClassVar[bool] = False

    @property
    def span(self) -> tuple[int, int]:
        """Return the first and the last tick.

        Without ``until`` a fault ``from`` a tick on lasts for ever, one of a ``tick`` for this tick alone.
        """
        lasting, until = hasattr(self, "from_tick"), getattr(self, "until", None)
        first: int = getattr(self, "from_tick" if lasting else "tick", 0)
        return first, (U64_MAX if lasting else first) if until is None else until

    @model_validator(mode="after")
    def _validate_span(self) -> Self:
        first, last = self.span
        if last < first:
            key = "from" if hasattr(self, "from_tick") else "tick"
            raise ValueError(f"until = {last} must not be below {key} = {first}")
        return self

    @abstractmethod
    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names.

        Args:
            names: The network's names.
            key: The key of the section, for errors.

        Raises:
            InvalidInput: A name is unknown.
        """


class ForgeSection(FaultSection, ContentSection):
    """``kind = "forge"``: a chain puts a message into its output whose sender it does not own."""

    kind: Literal["forge"] = Field(..., description="This fault.")
    tick: TickNumber = Field(..., description="The round that puts it there.")
    chain: str = Field(..., description="Name of the faulty chain.")
    sender: ProgramReference = Field(..., description="The alleged sender: a program's name or number.")
    receiver: ProgramReference = Field(..., description="The receiver: a program's name or number.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        args = {
            "sender": names.program(self.sender, f"{key}.sender"),
            "receiver": names.program(self.receiver, f"{key}.receiver"),
            "payload": self.content.hex(),
        }
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, self.tick, self.tick, args)


class HaltSection(FaultSection):
    """``kind = "halt"``: a chain runs no rounds."""

    kind: Literal["halt"] = Field(..., description="This fault.")
    from_tick: TickNumber = Field(0, alias="from", description="First tick of the fault.")
    until: TickNumber | None = Field(None, description="Last tick of the fault; without it, it lasts for ever.")
    chain: str = Field(..., description="Name of the chain.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, *self.span)


class _PairSection(FaultSection):
    """A fault between two chains."""

    if TYPE_CHECKING:
        kind: str
        source: str
        destination: str

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault with resolved names."""
        source, destination = (
            None if name == EVERY else names.chain(name, f"{key}.{end}")
            for end, name in (("source", self.source), ("destination", self.destination))
        )
        if source == destination and source is not None:
            raise names.fail(f"{key}.destination", f'"{self.destination}": must differ from source')
        return FaultRule(self.kind, source, destination, *self.span, self._args())

    def _args(self) -> dict[str, Any]:
        return {}


class DropSection(_PairSection):
    """``kind = "drop"``: what one chain offers another is not carried."""

    kind: Literal["drop"] = Field(..., description="This fault.")
    from_tick: TickNumber = Field(0, alias="from", description="First tick of the fault.")
    until: TickNumber | None = Field(None, description="Last tick of the fault; without it, it lasts for ever.")
    source: str = Field(EVERY, description='Name of the offering chain, `"*"` for every one.')
    destination: str = Field(EVERY, description='Name of the fetching chain, `"*"` for every one.')


class OfferSection(_PairSection):
    """``kind = "replay" | "gap" | "tamper"``: a carrier offers what is false.

    Replay: accepted entries again. Gap: what starts one index too high. Tamper: a root or proof that was altered.
    """

    kind: Literal["replay", "gap", "tamper"] = Field(..., description="This fault.")
    source: str = Field(EVERY, description='Name of the chain whose messages they are, `"*"` for every one.')
    destination: str = Field(EVERY, description='Name of the chain they are offered to, `"*"` for every one.')
    tick: TickNumber = Field(..., description="When it is offered first.")
    until: TickNumber | None = Field(None, description="The last tick of it; without it, `tick` alone.")


FAULT_KINDS: tuple[type[FaultSection], ...] = (ForgeSection, DropSection, OfferSection, HaltSection)
"""The fault sections of every protocol."""
