"""The options of the Internet Computer protocol: names, values and defaults of the reference, section 4.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from causeway.protocols.option_values import LARGEST, only

_ENCODED = "the streams of a run are not certified"

DEPLOYED: Mapping[str, Any] = {
    "index_base": 0,
    "vsr": "deployed",
    "sender_mismatch": "deployed",
    "limits": "deployed",
    "timeouts": "on",
    "migrations": "on",
}
"""What ``profile = deployed`` changes: the values marked (d) in the reference, as far as they exist here."""


class Limits(BaseModel):
    """The numbers behind ``limits = deployed`` (IC reference X-4 to X-7)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream_messages: int = Field(default=10_000, ge=1, le=LARGEST)
    stream_bytes: int = Field(default=10 * 1024 * 1024, ge=1, le=LARGEST)
    queue_capacity: int = Field(default=500, ge=1, le=LARGEST)
    slice_messages: int = Field(default=0, ge=0, le=LARGEST)
    max_signals: int = Field(default=10_000, ge=1, le=LARGEST)
    message_bytes: int = Field(default=2 * 1024 * 1024, ge=1, le=LARGEST)


class IcOptions(BaseModel):
    """Options of the Internet Computer protocol; ``docs/protocols/ic.md`` says what each does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: Literal["seed", "deployed"] = "seed"
    index_base: Literal[0, 1] = 1
    signal_form: Annotated[Literal["explicit"], only("explicit", _ENCODED)] = "explicit"
    substreams: Literal["flat", "per_destination"] = "flat"
    vsr: Literal["accept_all", "deployed"] = "accept_all"
    reject_every: int = Field(default=0, ge=0, le=LARGEST)
    sender_mismatch: Literal["drop_accept", "deployed"] = "drop_accept"
    receiver_check: Literal["on", "off"] = "on"
    loopback: Literal["stream", "seed_literal"] = "stream"
    dead_destination: Literal["requests_only", "seed_literal"] = "requests_only"
    first_index_rule: Annotated[Literal["unseen_only"], only("unseen_only", "the other shows a flaw")] = "unseen_only"
    validate_signals: Literal["on", "off"] = "on"
    empty_slice: Literal["reject", "allow"] = "reject"
    limits: Literal["none", "deployed"] = "none"
    limit: Limits = Limits()
    timeouts: Literal["off", "on"] = "off"
    request_lifetime_seconds: int = Field(default=300, ge=0, le=LARGEST // 10**9)
    best_effort: Annotated[Literal["off"], only("off", "all calls are guaranteed")] = "off"
    refunds: Annotated[Literal["off"], only("off", "they come with best_effort")] = "off"
    migrations: Literal["off", "on"] = "off"
    certification_version: Annotated[Literal["V25"], only("V25", _ENCODED)] = "V25"
    messages_per_canister: int = Field(default=0, ge=0, le=LARGEST)

    @model_validator(mode="before")
    @classmethod
    def _with_profile(cls, data: Any) -> Any:
        """Take the defaults of the profile; keys that are given win."""
        if isinstance(data, Mapping) and data.get("profile") == "deployed":
            return {**DEPLOYED, **data}
        return data

    @property
    def rejects_exist(self) -> bool:
        """Whether any rule may give a REJECT; where none can, a REJECT signal is ``UnexpectedSignals`` (D-16)."""
        return (
            self.vsr == "deployed"
            or self.sender_mismatch == "deployed"
            or self.migrations == "on"
            or self.reject_every > 0
        )
