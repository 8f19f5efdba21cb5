"""The options of relay processes (IBC reference 3.5, X-13): when they submit, what they pay, what they carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from causeway.model.section import Section
from causeway.protocols.option_values import LARGEST, Texts, only, wrong

LARGEST_FEE = 2**32
"""Four billion of these fit into an account."""

LARGEST_DEPOSIT = 2**48
"""Largest balance at genesis and largest deposit; thousands of them fit into an account."""


MOST_BLOCKS = 100_000
"""A relayer that has no money, or no old entries, rests for at most so many blocks; the run makes each of them."""


class AccountOptions(Section):
    """Accounts of relayers on every zone: their balances at genesis, and what they earn."""

    balance: int = Field(default=0, ge=0, le=LARGEST_DEPOSIT)
    balances: Mapping[str, Annotated[int, Field(ge=0, le=LARGEST_DEPOSIT)]] = Field(default_factory=dict)
    reward: int = Field(default=0, ge=0, le=LARGEST_FEE)
    reward_every: int = Field(default=1, ge=1, le=MOST_BLOCKS)


class SponsoredOptions(Section):
    """A public relayer that takes what is left: entries of at least ``min_age`` blocks, on a sponsor's budget."""

    min_age: int = Field(default=10, ge=1, le=MOST_BLOCKS)
    budget: int = Field(default=0, ge=0, le=LARGEST_FEE)
    every: int = Field(default=100, ge=1, le=MOST_BLOCKS)


class RelayOptions(Section):
    """How relayers work (reference 3.5, X-13): when they submit, and how much at once."""

    min_batch: int = Field(default=1, ge=1, le=LARGEST)
    max_wait: int = Field(default=0, ge=0, le=LARGEST)
    max_packets: int = Field(default=0, ge=0, le=LARGEST)
    proofs_per_header: Annotated[int, only(0, "a header serves a whole block, which relay.max_packets bounds")] = 0
    proofs: Literal["range", "single"] = "range"
    coordination: Literal["none", "leader", "partition"] = "none"
    header_fee: int = Field(default=100, ge=0, le=LARGEST_FEE)
    proof_fee: int = Field(default=20, ge=0, le=LARGEST_FEE)
    accounts: AccountOptions | None = None
    users: Mapping[str, Texts] = Field(default_factory=dict)
    sponsored: Mapping[str, SponsoredOptions] = Field(default_factory=dict)

    @property
    def patience(self) -> int:
        """Return the longest time in blocks that a relayer with money coming may rest."""
        accounts = (self.accounts.reward_every,) if self.accounts is not None and self.accounts.reward else ()
        paid = [one.every for one in self.sponsored.values() if one.budget]
        return max((*accounts, *paid, *(one.min_age for one in self.sponsored.values())), default=0)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, one in self.sponsored.items():
            if name in self.users:
                raise wrong(f"users.{name}", "it is sponsored, too (allowed: in relay.users or in relay.sponsored)")
            if one.budget and self.accounts is None:
                raise wrong(f"sponsored.{name}.budget", f"{one.budget}: allowed without relay.accounts: 0")
        return self
