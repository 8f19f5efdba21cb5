"""The options of the reference, section 4.1, and of docs/explanation/protocols/ic.md. The default comes first."""

from dataclasses import dataclass, field
from typing import Literal

Switch = Literal["off", "on"]


@dataclass(frozen=True)
class Limit:
    """The figures that are in force when `limits = deployed`."""

    stream_messages: int = 10_000
    stream_bytes: int = 10_485_760
    queue_capacity: int = 500
    slice_messages: int = 0
    max_signals: int = 10_000
    message_bytes: int = 2 * 1024 * 1024
    system_stream_messages: int = 200
    system_slice_messages: int = 100


@dataclass(frozen=True)
class Options:
    """Every option by its name in the reference. `profile = seed` is `Options()`."""

    index_base: int = 1
    signal_form: Literal["explicit", "compact"] = "explicit"
    substreams: Literal["flat", "per_destination", "per_source"] = "flat"
    vsr: Literal["accept_all", "deployed"] = "accept_all"
    sender_mismatch: Literal["drop_accept", "deployed"] = "drop_accept"
    receiver_check: Switch = "on"
    loopback: Literal["stream", "seed_literal"] = "stream"
    dead_destination: Literal["requests_only", "seed_literal"] = "requests_only"
    first_index_rule: Literal["unseen_only", "seed_literal"] = "unseen_only"
    validate_signals: Switch = "on"
    empty_slice: Literal["reject", "allow"] = "reject"
    limits: Literal["none", "deployed"] = "none"
    limit: Limit = field(default_factory=Limit)
    timeouts: Switch = "off"
    best_effort: Switch = "off"
    refunds: Switch = "off"
    migrations: Switch = "off"
    splitting: Switch = "off"
    certification: Literal["bls", "threshold", "off"] = "bls"
    certification_version: str = "V25"
    certification_delay: int = 0
    blocks_ahead: int = 0
    full_hash_every: int = 1
    nodes: int = 4
    payload_bytes: int = 0
    reject_every: int = 0
    messages_per_canister: int = 0
    request_lifetime_seconds: int = 300

    def __post_init__(self) -> None:
        for name in ("best_effort", "refunds"):
            if getattr(self, name) != "off":
                raise ValueError(f"{name} can only be off in this version")
        if self.index_base not in (0, 1):
            raise ValueError("index_base is 0 or 1")

    def requires_full_state_hash(self, number: int) -> bool:
        """Whether the batch that makes height `number` of a subnet requires it: every `full_hash_every`-th does."""
        return number % self.full_hash_every == 0

    @property
    def rejects_exist(self) -> bool:
        """Whether any rule may give a REJECT (D-16: where none can, a REJECT signal received is UnexpectedSignals)."""
        return (
            self.vsr == "deployed"
            or self.sender_mismatch == "deployed"
            or self.migrations == "on"
            or self.reject_every > 0
        )


def deployed_profile() -> Options:
    """`profile = deployed`: the value marked (d) of every option that this version has."""
    return Options(
        index_base=0,
        signal_form="compact",
        vsr="deployed",
        sender_mismatch="deployed",
        limits="deployed",
        timeouts="on",
        migrations="on",
        splitting="on",
        payload_bytes=2_202_009,
    )
