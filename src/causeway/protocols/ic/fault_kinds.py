"""The kinds of faults in a network of subnets: carriers offer what is older, byzantine subnets answer calls."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from causeway.model.faults import Fault
from causeway.model.ledger import Kind
from causeway.model.section import U64, Amount
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.faults import DropSection, FaultSection, ForgeSection, HaltSection, Names, OfferSection

STALE = "stale"

AGE = "age"
"""In the arguments of a stale offer: by how many heights it is older than the newest."""

MAX_AGE = 1000
"""A carrier keeps the headers of so many heights at most."""


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
        le=max(RejectCode),
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

    def fault(self, names: Names, key: str) -> Fault:
        """Return the fault, its names resolved."""
        fault = super().fault(names, key)
        kind = Kind.REQUEST if self.message == "request" else Kind.RESPONSE
        rest = {name: getattr(self, name) for name in ("callback", "amount", "code", "deadline")}
        return Fault(fault.kind, fault.source, None, fault.first, fault.last, {**fault.args, "kind": int(kind), **rest})


class StaleSection(OfferSection):
    """``kind = "stale"``: a carrier offers what was certified at an older height, instead of the newest."""

    kind: Literal["stale"] = Field(..., description="This fault.")  # type: ignore[assignment]
    age: int = Field(1, ge=1, le=MAX_AGE, description="By how many heights it is older than the newest.")

    def _args(self) -> dict[str, Any]:
        return {AGE: self.age}


FAULT_KINDS: tuple[type[FaultSection], ...] = (CallForgeSection, DropSection, OfferSection, StaleSection, HaltSection)
"""The sections of the kinds of this protocol."""
