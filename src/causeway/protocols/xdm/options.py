"""The options of cross-domain messaging: names, values and defaults of the reference, 4.1 and 2.7."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ProgramReference, ScenarioSection
from causeway.protocols.shared.block_numbers import MOST_BLOCKS, PlannedTick
from causeway.protocols.shared.option_values import LARGEST, ProfiledOptions, Texts, allow_only, option_error
from causeway.protocols.xdm.state import MAX_NONCE

PROVED_AND_BROUGHT = 2
"""Roots that are remembered beside those of blocks that are not final: that of the final one while operators prove
under it, and while what they proved is brought."""

MOST_ROOTS = 2**20
"""Of so many blocks at most the roots are remembered."""

MOST_CALLS = 100_000
"""A scenario plans at most so many calls of a kind."""

DEPLOYED: Mapping[str, Any] = {
    "fee_model": "v1",
    "initiate_by": "signed",
    "close_by": "owner_or_root",
    "inbox": "pool",
    "allowlist": "on",
    "pool_tag": "without_src",
    "trust_tag": "on",
}
"""What ``profile = deployed`` changes: the column "other (deployed)" of 4.1, as far as it is about runs."""


ROOT = "root"
"""Who is meant by ``by = "root"``: the governance of a chain, which has an account beside those of programs."""

DomainNumber = Annotated[int, Field(ge=0, le=2**32 - 2)]


class ChannelCallOptions(ScenarioSection):
    """A call that opens or closes a channel: at ``tick`` on ``chain``, with ``foreign``, by root or by a program.

    ``max_outgoing``, ``fee_model``, ``relay_fee``: of an ``initiate``, by default those of the options; ``channel``: of
    a ``close`` the number of the channel.
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
            given = getattr(self, name)
            if self.do == "close" and given is not None:
                raise option_error(name, f'{given}: allowed: none with do = "close"')
        return self


class AllowlistCallOptions(ScenarioSection):
    """A call that changes which chains ``chain`` exchanges messages with: at ``tick``, ``foreign`` is added or removed.

    ``foreign``: a chain's name, or the number of a domain, registered or not; ``by``: root or a program; ``at``: where
    the call is made, by default on the consensus chain.
    """

    tick: PlannedTick
    chain: str
    foreign: str | DomainNumber
    do: Literal["add", "remove"] = "add"
    by: ProgramReference = ROOT
    at: str | None = None


class ChainWeights(ScenarioSection):
    """The weights of messages and responses that one chain knows, where they are not those of all others."""

    message: int | None = Field(default=None, ge=0, le=LARGEST)
    response: int | None = Field(default=None, ge=0, le=LARGEST)


class XdmOptions(ProfiledOptions):
    """Options of cross-domain messaging; ``docs/protocols/xdm.md`` says what each does. Distances are in blocks of the
    consensus chain, amounts in units of the asset."""

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
    archiving_depth: int = Field(default=100, ge=1, le=MOST_ROOTS - PROVED_AND_BROUGHT)
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
        if self.mmr_roots < self.archiving_depth + PROVED_AND_BROUGHT:
            raise option_error(
                "mmr_roots",
                f"{self.mmr_roots}: a block is final after archiving_depth = {self.archiving_depth} blocks, what is "
                "proved under it comes in the block after, and nothing is proved under a root that is forgotten; "
                f"allowed: at least {self.archiving_depth + PROVED_AND_BROUGHT}",
            )
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what ``profile = deployed`` changes."""
        return DEPLOYED
