"""The options of tickets: prices, odds, credit, and the rules of accounts on the relay chain."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from causeway.model.section import Section
from causeway.protocols.option_values import wrong

Units = Annotated[int, Field(ge=0, le=2**40)]


class TicketOptions(Section):
    """``[tickets]``: payment for delivered bodies. Amounts are in units of payment, times in ms."""

    mode: Literal["off", "on"] = Field("off", description="`on`: who receives a body pays who delivered it.")
    price: int = Field(8, ge=1, le=2**32, description="Expected payment for a body.")
    odds: int = Field(
        64, ge=1, le=2**24, description="One ticket in so many wins, a power of two; the prize is `price` times `odds`."
    )
    cost: Units = Field(5, description="What it costs a selfish node to forward a body.")
    fee: Units = Field(32, description="What a claim costs on the relay chain.")
    credit: int = Field(
        4, ge=1, le=2**16, description="Deliveries to a peer that may be unpaid; each ticket of the peer adds one."
    )
    credit_limit: int = Field(32, ge=1, le=2**16, description="Deliveries to a peer that may ever be unpaid.")
    patience: int = Field(
        3_000,
        ge=1,
        le=3_600_000,
        description="After so long a request goes to the next peer; at least six times the latency of a link.",
    )
    lifetime: int = Field(8, ge=2, le=2**20, description="Relay blocks in which a ticket can be claimed.")
    deposit: Units = Field(100_000, description="What a node deposits; prizes are paid from it.")
    bond: Units = Field(10_000, description="What a node loses when its deposit does not pay a prize.")
    checked: float = Field(
        1.0, ge=0, le=1, description="The share of tickets of which the simulation signs and verifies the signature."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.odds & (self.odds - 1):
            raise wrong("odds", f"{self.odds}: must be a power of two")
        if self.credit > self.credit_limit:
            raise wrong("credit", f"{self.credit}: must be at most credit_limit = {self.credit_limit}")
        return self

    @property
    def prize(self) -> int:
        """What a winning ticket pays."""
        return self.price * self.odds

    @property
    def slack(self) -> int:
        """By how many relay blocks the block of a ticket may differ from the payee's newest one."""
        return self.lifetime // 2

    @property
    def pays(self) -> bool:
        """Whether delivering a body earns more than it costs, fees of claims included."""
        return self.mode == "on" and self.prize - self.fee > self.cost * self.odds
