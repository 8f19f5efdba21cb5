"""The options of the Internet Computer protocol: names, values and defaults of the reference, section 4.1."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LARGEST = 2**62
"""No number of an option is above this, so that sums and doubles of them fit a signed word."""


class Limits(BaseModel):
    """The numbers behind ``limits = deployed`` (IC reference X-4 to X-6)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    stream_messages: int = Field(default=10_000, ge=1, le=LARGEST)
    stream_bytes: int = Field(default=10 * 1024 * 1024, ge=1, le=LARGEST)
    queue_capacity: int = Field(default=500, ge=1, le=LARGEST)
    slice_messages: int = Field(default=0, ge=0, le=LARGEST)
    max_signals: int = Field(default=10_000, ge=1, le=LARGEST)


class IcOptions(BaseModel):
    """Options of the Internet Computer protocol; ``docs/protocols/ic.md`` says what each does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    index_base: Literal[0, 1] = 1
    signal_form: Literal["explicit", "compact"] = "explicit"
    substreams: Literal["flat", "per_destination"] = "flat"
    vsr: Literal["accept_all", "deployed"] = "accept_all"
    reject_every: int = Field(default=0, ge=0, le=LARGEST)
    sender_mismatch: Literal["drop_accept", "deployed"] = "drop_accept"
    receiver_check: Literal["on", "off"] = "on"
    loopback: Literal["stream", "seed_literal"] = "stream"
    dead_destination: Literal["requests_only", "seed_literal"] = "requests_only"
    first_index_rule: Literal["unseen_only", "seed_literal"] = "unseen_only"
    validate_signals: Literal["on", "off"] = "on"
    empty_slice: Literal["reject", "allow"] = "reject"
    limits: Literal["none", "deployed"] = "none"
    limit: Limits = Limits()
    timeouts: Literal["off", "on"] = "off"
    request_lifetime_seconds: int = Field(default=300, ge=0, le=LARGEST // 10**9)
    best_effort: Literal["off"] = "off"
    refunds: Literal["off"] = "off"
    migrations: Literal["off", "on"] = "off"
    certification_version: Literal["V19", "V20", "V21", "V22", "V23", "V24", "V25"] = "V25"
    messages_per_canister: int = Field(default=0, ge=0, le=LARGEST)

    @property
    def rejects_exist(self) -> bool:
        """Whether any rule may give a REJECT; where none can, a REJECT signal is ``UnexpectedSignals`` (D-16)."""
        return (
            self.vsr == "deployed"
            or self.sender_mismatch == "deployed"
            or self.migrations == "on"
            or self.reject_every > 0
        )
