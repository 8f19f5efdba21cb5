"""Options of cross-domain messaging with their defaults.

Reference: XDM, sections 2.7 and 4.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ProgramReference, ScenarioSection
from causeway.protocols.shared.limits import MOST_BLOCKS, PlannedTick
from causeway.protocols.shared.option_values import LARGEST, ProfiledOptions, Texts, allow_only, option_error
from causeway.protocols.xdm.state import MAX_NONCE

EXTRA_ROOTS = 2
"""Roots in memory besides those of blocks before finality.

One for the latest final block under proof, one for the delivery of its proofs.
"""

MOST_ROOTS = 2**20
"""Maximum number of roots in memory."""

MOST_CALLS = 100_000
"""Maximum number of planned calls of a kind."""

DEPLOYED: Mapping[str, Any] = {
    "fee_model": "v1",
    "initiate_by": "signed",
    "close_by": "owner_or_root",
    "inbox": "pool",
    "allowlist": "on",
    "pool_tag": "without_src",
    "trust_tag": "on",
}
"""Values of ``profile = deployed``: the run-time part of column "other (deployed)" of 4.1."""


ROOT = "root"
"""Value of ``by`` for a chain's governance; it has an account besides those of programs."""

DomainNumber = Annotated[int, Field(ge=0, le=2**32 - 2)]


class ChannelCallOptions(ScenarioSection):
    """A planned call that opens or closes a channel of ``chain`` with ``foreign``.

    Attributes:
        tick: Tick of the call.
        chain: Chain of the call.
        foreign: Other end of the channel.
        do: Kind of the call.
        by: Caller: root or a program.
        channel: Number of the channel to close.
        max_outgoing: Capacity for ``initiate``, by default that of the options.
        fee_model: Fee model for ``initiate``, by default that of the options.
        relay_fee: Relay fee for ``initiate``, by default that of the options.
    """

    tick: PlannedTick
    chain: str
    foreign: str
    do: Literal["initiate", "close"] = "initiate"
    by: ProgramReference = ROOT
    channel: int = Field(default=0, ge=0, le=LARGEST)
    max_outgoing: int | None = Field(default=None, ge=0, le=2**32 - 1)
    fee_model: Literal["v0", "v1"] | None = None
    relay_fee: int | None = Field(default=None, ge=0, le=LARGEST)

    @model_validator(mode="after")
    def _opens(self) -> Self:
        for name in ("max_outgoing", "fee_model", "relay_fee"):
            value = getattr(self, name)
            if self.do == "close" and value is not None:
                raise option_error(name, f'{value}: allowed: none with do = "close"')
        return self


class AllowlistCallOptions(ScenarioSection):
    """A planned call that adds or removes ``foreign`` on the allow list of ``chain``.

    Attributes:
        tick: Tick of the call.
        chain: Owner of the allow list.
        foreign: Name of a chain, or number of a domain, registered or not.
        do: Kind of the call.
        by: Caller: root or a program.
        at: Chain of the call, by default the consensus chain.
    """

    tick: PlannedTick
    chain: str
    foreign: str | DomainNumber
    do: Literal["add", "remove"] = "add"
    by: ProgramReference = ROOT
    at: str | None = None


class ChainWeights(ScenarioSection):
    """Weights of messages and responses on one chain, in place of the defaults."""

    message: int | None = Field(default=None, ge=0, le=LARGEST)
    response: int | None = Field(default=None, ge=0, le=LARGEST)


class XdmOptions(ProfiledOptions):
    """Options of cross-domain messaging; ``docs/explanation/protocols/xdm.md`` describes each.

    Distances are in blocks of the consensus chain, amounts in units of the asset.
    """

    fee_model: Literal["v0", "v1"] = "v0"
    v0_mint: Literal["collected", "recomputed"] = "collected"
    initiate_by: Literal["root", "signed"] = "root"
    close_by: Literal["root", "owner_or_root"] = "root"
    inbox: Literal["stored", "pool"] = "stored"
    allowlist: Literal["off", "on"] = "off"
    strict_envelope: Literal["on", "off"] = "on"
    pool_tag: Literal["with_src", "without_src"] = "with_src"
    trust_tag: Literal["off", "on"] = "off"
    force_close: Literal["off", "on"] = "off"
    flush_ack: Annotated[Literal["off"], allow_only("off", "the reference names it and gives it no form")] = "off"
    archiving_depth: int = Field(default=100, ge=1, le=MOST_ROOTS - EXTRA_ROOTS)
    challenge_period: int = Field(default=14_400, ge=1, le=MOST_BLOCKS)
    max_outgoing_messages: int = Field(default=10_000, ge=1, le=2**32 - 1)
    max_messages: int = Field(default=MAX_NONCE + 1, ge=3, le=MAX_NONCE + 1)
    max_future_nonces: int = Field(default=256, ge=0, le=2**20)
    mmr_roots: int = Field(default=1_024, ge=1, le=MOST_ROOTS)
    channels_per_block: int = Field(default=15, ge=1, le=LARGEST)
    resubmit_after: int = Field(default=15, ge=1, le=MOST_BLOCKS)
    channel_reserve_fee: int = Field(default=100, ge=0, le=LARGEST)
    reserve_portion_percent: int = Field(default=20, ge=0, le=100)
    relay_fee: int = Field(default=1, ge=0, le=LARGEST)
    fee_multiplier: int = Field(default=5, ge=0, le=LARGEST)
    weight_per_unit: int = Field(default=10_000_000, ge=1, le=LARGEST)
    message_weight: int = Field(default=11_000_000, ge=0, le=LARGEST)
    response_weight: int = Field(default=15_480_000, ge=0, le=LARGEST)
    weights: Mapping[str, ChainWeights] = Field(default_factory=dict)
    calls_wait: Literal["on", "off"] = "on"
    minimum_transfer: int = Field(default=1, ge=0, le=LARGEST)
    endowment: int = Field(default=1_000_000_000, ge=0, le=LARGEST)
    root_balance: int = Field(default=1_000_000_000, ge=0, le=LARGEST)
    operators: int = Field(default=4, ge=1, le=1_000)
    channels: Literal["open", "initiate"] = "open"
    channel_calls: Annotated[tuple[ChannelCallOptions, ...], Strict(False)] = Field(default=(), max_length=MOST_CALLS)
    allowlist_calls: Annotated[tuple[AllowlistCallOptions, ...], Strict(False)] = Field(
        default=(), max_length=MOST_CALLS
    )
    domain_owners: Mapping[str, ProgramReference] = Field(default_factory=dict)
    validator_keys: Mapping[str, Texts] = Field(default_factory=dict)

    @field_validator("validator_keys")
    @classmethod
    def _public_keys(cls, keys: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        for chain, listed in keys.items():
            if len(listed) != 1 or not re.fullmatch(r"[0-9a-f]{64}", listed[0]):
                text = "allowed: one public key of 64 hexadecimal digits (lower case), who signs for the chain"
                raise PydanticCustomError("keys", "{text}", {"text": f"{chain}: {text}"})
        return keys

    @model_validator(mode="after")
    def _final_blocks_are_known(self) -> Self:
        if self.mmr_roots < self.archiving_depth + EXTRA_ROOTS:
            raise option_error(
                "mmr_roots",
                f"{self.mmr_roots}: a block is final after archiving_depth = {self.archiving_depth} blocks, what is "
                "proved under it comes in the block after, and nothing is proved under a root that is forgotten; "
                f"allowed: at least {self.archiving_depth + EXTRA_ROOTS}",
            )
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of ``profile = deployed``."""
        return DEPLOYED
