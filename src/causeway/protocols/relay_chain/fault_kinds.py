"""Fault kinds of parachain networks: halts, missing bodies, relay forks, malicious collators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from causeway_proofs.errors import InvalidInput
from pydantic import Field, model_validator

from causeway.config.faults import FaultRule
from causeway.protocols.relay_chain.state import MAX_CHAIN_HEADS, MOST_ANCESTORS
from causeway.protocols.shared.faults import DropSection, FaultSection, HaltSection, NetworkNames
from causeway.protocols.shared.limits import PlannedTick

FORK = "fork"
LEAVES = "leaves"
KEPT = "kept"
FOLLOWERS = "followers"
OF = "of"
ELDER = "elder"
CANDIDATE = "candidate"
WHAT = "what"
DUPLICATE = "duplicate"
"""Names of fault kinds, of their arguments, and of a candidate's flaw."""

EGRESS_ONLY = ("root", "no_root", "self", "empty", "watermark_hash", "duplicate")
HRMP_ONLY = ("no_messages", "many", "oversized", "total_size", "capacity", "calls", "call_bytes")
"""Flaws of a candidate that occur with one kind of channels only."""

WATERMARKS = ("watermark_back", "watermark_hash")
"""Flaws in a candidate's watermark."""


class RelayForkSection(FaultSection):
    """``kind = "fork"``: a leaf of the relay chain forks into several branches for some ticks.

    Each branch routes the posts of the parachains that follow it; then one branch is kept, and the parachains that
    followed another go back.

    Forks may overlap and nest: with one of its leaves, what has parted from it since is kept, or lost.
    """

    kind: Literal["fork"] = Field(..., description="This fault.")
    tick: PlannedTick = Field(..., description="The first tick in which the relay chain makes several blocks.")
    until: PlannedTick = Field(..., description="The last tick in which it does.")
    leaves: int = Field(2, ge=2, le=MAX_CHAIN_HEADS, description="How many: its branches.")
    kept: int = Field(0, ge=0, lt=MAX_CHAIN_HEADS, description="Which branch is kept, from 0.")
    of: int | None = Field(
        None,
        ge=0,
        lt=MAX_CHAIN_HEADS,
        description="Which leaf parts, where there are several; without it, the one with the lowest number. Branch 0 "
        "goes on as this leaf, the others have the lowest numbers that are free.",
    )
    elder: list[int] = Field(
        default_factory=list,
        max_length=MAX_CHAIN_HEADS,
        description="Branches that make no block after their first, as long as the fork lasts: with one of them kept, "
        "the relay chain goes back to an elder leaf.",
    )
    followers: Mapping[str, int] = Field(
        default_factory=dict, description="Which branch parachains follow, by name; that of those not named is drawn."
    )

    @model_validator(mode="after")
    def _validate_branches(self) -> Self:
        named = {f"followers.{name}": leaf for name, leaf in self.followers.items()}
        named |= {f"elder.{row}": leaf for row, leaf in enumerate(self.elder)}
        for name, leaf in {"kept": self.kept, **named}.items():
            if not 0 <= leaf < self.leaves:
                raise ValueError(f"{name} = {leaf}: allowed: 0 to {self.leaves - 1}, one of the branches")
        if self.until - self.tick >= MOST_ANCESTORS:
            raise ValueError(f"until = {self.until}: allowed: at most {MOST_ANCESTORS} ticks from {self.tick} on")
        return self

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault, its names resolved."""
        followers = {str(names.chain(name, f"{key}.followers.{name}")): leaf for name, leaf in self.followers.items()}
        args: dict[str, Any] = {LEAVES: self.leaves, KEPT: self.kept, FOLLOWERS: followers}
        args |= {} if self.of is None else {OF: self.of}
        args |= {ELDER: sorted({*self.elder})} if self.elder else {}
        return FaultRule(self.kind, None, None, *self.span, args)


class CandidateSection(FaultSection):
    """``kind = "candidate"``: a malicious collator puts a candidate of its own beside each honest one of a parachain.

    Validators refuse what they can tell: a queue left out of a block (``partial``), a block left out (``skipped``),
    another sender, an altered body, a watermark ahead of the list, a wrong or missing egress root. The others come to
    the relay chain with the signatures of dishonest validators: another parent, egress that is unsorted, to itself,
    of an empty queue or to an unknown parachain, a watermark that falls or is on no ancestor, the receipt twice.

    With ``channels = "hrmp"`` only: a watermark on a block without messages (``no_messages``), too ``many`` messages,
    one that is ``oversized`` or for which its channel has no bytes (``total_size``) or no place (``capacity``), too
    many ``calls`` or ``call_bytes``. Without it only: ``root``, ``no_root``, ``self``, ``empty``, ``watermark_hash``,
    ``duplicate``.
    """

    kind: Literal["candidate"] = Field(..., description="This fault.")
    tick: PlannedTick = Field(..., description="Its first tick.")
    until: PlannedTick | None = Field(None, description="Its last tick; without it, `tick` alone.")
    chain: str = Field(..., description="Name of the parachain.")
    what: Literal[
        "partial",
        "skipped",
        "sender",
        "body",
        "ahead",
        "root",
        "no_root",
        "parent",
        "unsorted",
        "self",
        "empty",
        "unknown",
        "watermark_back",
        "watermark_hash",
        "duplicate",
        "no_messages",
        "many",
        "oversized",
        "total_size",
        "capacity",
        "calls",
        "call_bytes",
    ] = Field(..., description="What is wrong with it.")

    def fault(self, names: NetworkNames, key: str) -> FaultRule:
        """Return the fault, its names resolved."""
        return FaultRule(self.kind, names.chain(self.chain, f"{key}.chain"), None, *self.span, {WHAT: self.what})


def check_candidate_fault(fault: FaultRule, row: int, relay: int, channels: str) -> None:
    """Check that a candidate fault concerns a parachain and a flaw of its channels.

    Args:
        fault: Fault of the scenario.
        row: Row of the fault in the scenario.
        relay: Number of the relay chain.
        channels: Option ``channels``.

    Raises:
        InvalidInput: It does not fit.
    """
    if fault.source == relay:
        raise InvalidInput(f"faults[{row}].chain: it is the relay chain; allowed: a parachain")
    flaw = fault.args[WHAT]
    if flaw in (EGRESS_ONLY if channels == "hrmp" else HRMP_ONLY):
        raise InvalidInput(f'faults[{row}].{WHAT}: "{flaw}": it does nothing with channels = "{channels}"')


FAULT_KINDS: tuple[type[FaultSection], ...] = (HaltSection, DropSection, RelayForkSection, CandidateSection)
"""Scenario sections of the fault kinds."""
