"""The options of the IBC messaging queue (reference, section 4).

They include the options of relay processes (IBC reference 3.5, X-13): timing, fees and shares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ScenarioSection
from causeway.core.text import suggest_known
from causeway.protocols.ibc.keys import valid_identifier
from causeway.protocols.shared.option_values import (
    LARGEST,
    NANOSECONDS,
    ProfiledOptions,
    Texts,
    allow_only,
    option_error,
)

LARGEST_FEE = 2**32
"""Maximum fee; four billion of these fit into an account."""

LARGEST_DEPOSIT = 2**48
"""Maximum genesis balance or deposit; thousands of them fit into an account."""


MOST_BLOCKS = 100_000
"""Maximum blocks that a relayer rests without funds or old entries.

The run produces each of them.
"""


class AccountOptions(ScenarioSection):
    """Accounts of relayers on every zone: their balances at genesis, and what they earn."""

    balance: int = Field(default=0, ge=0, le=LARGEST_DEPOSIT)
    balances: Mapping[str, Annotated[int, Field(ge=0, le=LARGEST_DEPOSIT)]] = Field(default_factory=dict)
    reward: int = Field(default=0, ge=0, le=LARGEST_FEE)
    reward_every: int = Field(default=1, ge=1, le=MOST_BLOCKS)


class SponsoredOptions(ScenarioSection):
    """A public relayer that takes what is left: entries of at least ``min_age`` blocks, on a sponsor's budget."""

    min_age: int = Field(default=10, ge=1, le=MOST_BLOCKS)
    budget: int = Field(default=0, ge=0, le=LARGEST_FEE)
    every: int = Field(default=100, ge=1, le=MOST_BLOCKS)


class RelayerOptions(ScenarioSection):
    """How relayers work (reference 3.5, X-13): when they submit, and how much at once."""

    min_batch: int = Field(default=1, ge=1, le=LARGEST)
    max_wait: int = Field(default=0, ge=0, le=LARGEST)
    max_packets: int = Field(default=0, ge=0, le=LARGEST)
    proofs_per_header: Annotated[
        int, allow_only(0, "a header serves a whole block, which relay.max_packets bounds")
    ] = 0
    proofs: Literal["range", "single"] = "range"
    coordination: Literal["none", "leader", "partition"] = "none"
    header_fee: int = Field(default=100, ge=0, le=LARGEST_FEE)
    proof_fee: int = Field(default=20, ge=0, le=LARGEST_FEE)
    accounts: AccountOptions | None = None
    users: Mapping[str, Texts] = Field(default_factory=dict)
    sponsored: Mapping[str, SponsoredOptions] = Field(default_factory=dict)

    @property
    def patience(self) -> int:
        """Return the maximum blocks that a relayer may rest before funds or old entries come."""
        accounts = (self.accounts.reward_every,) if self.accounts is not None and self.accounts.reward else ()
        paid = [one.every for one in self.sponsored.values() if one.budget]
        return max((*accounts, *paid, *(one.min_age for one in self.sponsored.values())), default=0)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, one in self.sponsored.items():
            if name in self.users:
                raise option_error(
                    f"users.{name}", "it is sponsored, too (allowed: in relay.users or in relay.sponsored)"
                )
            if one.budget and self.accounts is None:
                raise option_error(f"sponsored.{name}.budget", f"{one.budget}: allowed without relay.accounts: 0")
        return self


CALL_TYPE = "call"
"""The packet type of calls whose method is no declared type."""

DISCONNECT_TYPE = "disconnect"
"""The type of a connection's final packet, sent only by the protocol itself (X-5)."""

DEPLOYED: Mapping[str, Any] = {"redundant": "noop", "expiry": "inclusive", "order": "unordered"}
"""The values of ``profile = deployed``: those marked (d) in the reference, if supported."""


class PacketType(ScenarioSection):
    """A declared packet type: the zones whose programs handle it, and the modules that may send it (none: all)."""

    chains: Texts | None = None
    modules: Texts | None = None


class RotationOptions(ScenarioSection):
    """How validator sets change (X-4): every so many blocks (0: never) so many members are replaced."""

    every: int = Field(default=0, ge=0, le=LARGEST)
    replace: int = Field(default=1, ge=1, le=1_000)


class IbcOptions(ProfiledOptions):
    """Options of the IBC messaging queue; ``docs/explanation/protocols/ibc.md`` says what each does."""

    key_codec: Annotated[Literal["plain"], allow_only("plain", "the other cannot be a store's format (D-5)")] = "plain"
    value_codec: Annotated[Literal["plain"], allow_only("plain", "the other has unprovable values (D-5)")] = "plain"
    proof: Annotated[Literal["simple"], allow_only("simple", "the zones' stores are simple trees")] = "simple"
    app_hash_lag: Annotated[Literal[0], allow_only(0, "a header carries the root of its own block")] = 0
    commitment: Annotated[Literal["full"], allow_only("full", "whole packets stay until they are answered")] = "full"
    redundant: Literal["error", "noop"] = "error"
    expiry: Literal["strict", "inclusive"] = "strict"
    order: Literal["ordered", "unordered"] = "ordered"
    timeouts: Literal["off", "on"] = "off"
    timeout_blocks: int = Field(default=0, ge=0, le=LARGEST)
    timeout_seconds: float = Field(default=0.0, ge=0, le=1e9)
    cleanup: Literal["off", "on"] = "off"
    acknowledgements: Literal["asynchronous", "synchronous"] = "asynchronous"
    connections: Annotated[tuple[Annotated[tuple[str, str], Strict(False)], ...], Strict(False)] | None = None
    types: Mapping[str, PacketType] = Field(default_factory=dict)
    max_data_bytes: int = Field(default=262_144, ge=0, le=2**31 - 2**16)
    validators: int = Field(default=4, ge=1, le=1_000)
    rotation: RotationOptions = RotationOptions()
    validator_keys: Mapping[str, Texts] = Field(default_factory=dict)
    trusted_headers: int = Field(default=100, ge=2, le=LARGEST)
    unbonding_seconds: float = Field(default=21 * 86_400.0, gt=0, le=1e9)
    delay_seconds: float = Field(default=0.0, ge=0, le=1e9)
    relay: RelayerOptions = RelayerOptions()
    relayers: Texts = Field(default=("relayer",), min_length=1, max_length=1_000)

    @property
    def limited(self) -> bool:
        """Return True if packets have limits after which they expire."""
        return self.timeouts == "on" and (self.timeout_blocks > 0 or self.timeout_seconds > 0)

    @property
    def timeout_ns(self) -> int:
        """Return the time (ns) from sending to the expiry of a packet; 0 for never."""
        return round(self.timeout_seconds * NANOSECONDS)

    @property
    def unbonding_ns(self) -> int:
        """Return the maximum age (ns) of a trusted header in use."""
        return round(self.unbonding_seconds * NANOSECONDS)

    @property
    def trusting_ns(self) -> int:
        """Return the age (ns) at which a trusted header expires in light clients."""
        return self.unbonding_ns + 1

    @property
    def delay_ns(self) -> int:
        """Return the own time (ns) between adding a header and its first use for proofs (X-11)."""
        return round(self.delay_seconds * NANOSECONDS)

    @property
    def absence(self) -> bool:
        """Return True if packets time out by absence of their receipts: in unordered queues.

        See X-6.
        """
        return self.order == "unordered" and self.limited

    @model_validator(mode="after")
    def _provable(self) -> Self:
        if self.order == "unordered" and self.timeouts == "on" and self.acknowledgements == "asynchronous":
            # A packet with a pending receipt could both time out and be executed.
            text = "timeouts of unordered queues prove that there is no receipt: use acknowledgements = synchronous"
            raise option_error("timeouts", f'"on": {text}')
        return self

    @model_validator(mode="after")
    def _followed(self) -> Self:
        rotation = self.rotation
        if rotation.every and 3 * rotation.replace > self.validators:
            text = f"replace = {rotation.replace} of {self.validators} validators; allowed: a third of them at most"
            raise option_error("rotation", f"{text}, or no light client could follow from one height to the next")
        return self

    @model_validator(mode="after")
    def _fixed(self) -> Self:
        if self.rotation.every and self.validator_keys:
            raise option_error("rotation", "is for validators that are drawn; with validator_keys, leave it out")
        return self

    @model_validator(mode="after")
    def _named(self) -> Self:
        """Check the relayers named by ``relay``, and the options that depend on their shares."""
        relay = self.relay
        balances = relay.accounts.balances if relay.accounts is not None else {}
        named = {"users": relay.users, "sponsored": relay.sponsored, "accounts.balances": balances}
        for key, rows in named.items():
            for name in rows:
                if name not in self.relayers:
                    raise option_error(f"relay.{key}.{name}", suggest_known("relayer", name, self.relayers))
        if not (relay.users or relay.sponsored):
            return self
        allowed = {"relay.coordination": (relay.coordination, "none"), "delay_seconds": (self.delay_seconds, 0)}
        allowed |= {"relay.max_packets": (relay.max_packets, 0)} if relay.users else {}
        for key, (value, only_value) in allowed.items():
            if value != only_value:
                text = f"{value!r} with relay.users or relay.sponsored (allowed: {only_value!r})"
                raise option_error(key, text)
        return self

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of ``profile = deployed``."""
        return DEPLOYED

    @field_validator("types")
    @classmethod
    def _known_names(cls, types: Mapping[str, PacketType]) -> Mapping[str, PacketType]:
        for name in types:
            if not valid_identifier(name) or name in (CALL_TYPE, DISCONNECT_TYPE):
                raise PydanticCustomError(
                    "name",
                    "{text}",
                    {"text": f"{name!r} is no type of its own: 1 to 64 of A-Z a-z 0-9 . _ + - # [ ] < >"},
                )
        return types

    @field_validator("validator_keys")
    @classmethod
    def _public_keys(cls, keys: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        for chain, listed in keys.items():
            good = all(re.fullmatch(r"[0-9a-f]{64}", public) for public in listed)
            if not good or not 0 < len(set(listed)) == len(listed):
                text = "allowed: different public keys of 64 hexadecimal digits (lower case), one at least"
                raise PydanticCustomError("keys", "{text}", {"text": f"{chain}: {text}"})
        return keys

    @field_validator("relayers")
    @classmethod
    def _distinct(cls, relayers: tuple[str, ...]) -> tuple[str, ...]:
        for position, name in enumerate(relayers):
            if not name or not name.isprintable():
                raise PydanticCustomError("name", "{text}", {"text": f"{name!a}: no name of printable characters"})
            if name in relayers[:position]:
                raise PydanticCustomError("distinct", "{text}", {"text": f"two relayers have the name {name!r}"})
        return relayers
