"""The options of the Internet Computer protocol (reference, section 4.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from causeway_proofs.ic.primitives import CertificationVersion
from pydantic import AfterValidator, Field, Strict, model_validator

from causeway.config.section import LAST_TICK, ScenarioSection
from causeway.config.topology import MAX_NODES
from causeway.protocols.shared.option_values import LARGEST, ProfiledOptions, allow_only, option_error

MAX_AHEAD = 100
"""Maximum heights that certification lags, or blocks run ahead."""

DEPLOYED_PAYLOAD_BYTES = (2 << 20) * 21 // 20
"""Maximum XNet payload of deployed subnets: 2 MiB and a margin of 5 percent (X-5)."""

DEPLOYED: Mapping[str, Any] = {
    "index_base": 0,
    "signal_form": "compact",
    "vsr": "deployed",
    "sender_mismatch": "deployed",
    "limits": "deployed",
    "timeouts": "on",
    "migrations": "on",
    "splitting": "on",
    "payload_bytes": DEPLOYED_PAYLOAD_BYTES,
}
"""The values of ``profile = deployed``: those marked (d) in the reference, if supported."""


class StreamLimits(ScenarioSection):
    """The numbers behind ``limits = deployed`` (IC reference X-4 to X-7)."""

    stream_messages: int = Field(default=10_000, ge=1, le=LARGEST)
    stream_bytes: int = Field(default=10 * 1024 * 1024, ge=1, le=LARGEST)
    queue_capacity: int = Field(default=500, ge=1, le=LARGEST)
    slice_messages: int = Field(default=0, ge=0, le=LARGEST)
    max_signals: int = Field(default=10_000, ge=1, le=LARGEST)
    message_bytes: int = Field(default=2 * 1024 * 1024, ge=1, le=LARGEST)
    system_stream_messages: int = Field(default=200, ge=1, le=LARGEST)
    system_slice_messages: int = Field(default=100, ge=1, le=LARGEST)


def listen_address(text: str) -> tuple[str, int]:
    """Parse the address of a listener (``HOST:PORT``) into host and port.

    Raises:
        ValueError: The address is malformed.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ValueError("no address to listen at; write it as HOST:PORT")
    return host, int(port)


def _check_listen_address(text: str) -> str:
    listen_address(text)
    return text


ListenAddress = Annotated[str, AfterValidator(_check_listen_address)]


PublicKeyDigits = Annotated[str, Field(pattern=r"^[0-9a-f]{192}$")]
"""A subnet's public key: 96 bytes in hexadecimal digits."""


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,252})|[0-9A-Fa-f:.]{2,45}")
"""A host name, an IPv4 address, or an IPv6 address without brackets."""


def _check_node_address(text: str) -> str:
    try:
        found = urlsplit(text)
        # urlsplit drops tabs and line ends.
        printed = re.fullmatch("[!-~]+", text) is not None
        host = found.hostname or ""
        is_address = printed and found.scheme in ("http", "https") and _HOST.fullmatch(host) and found.port != 0
    except ValueError:  # a port that is none, or half a pair of brackets
        is_address = False
    if not is_address or "@" in found.netloc or found.path.strip("/") or found.query or found.fragment:
        raise ValueError("no address of a node; write it as http://HOST:PORT")
    return text


NodeAddress = Annotated[str, AfterValidator(_check_node_address)]


class EndpointVersion(ScenarioSection):
    """Where the nodes of a subnet serve from the registry version of a tick on."""

    tick: int = Field(..., ge=1, le=LAST_TICK)
    endpoints: Annotated[tuple[NodeAddress, ...], Strict(False)] = Field(min_length=1, max_length=MAX_NODES)


class RemoteSubnet(ScenarioSection):
    """A subnet that another deployment runs: its public key, and where its nodes serve streams.

    ``endpoints``: in the first version of the registry; ``versions``: in later ones, by tick.
    """

    public_key: PublicKeyDigits
    endpoints: Annotated[tuple[NodeAddress, ...], Strict(False)] = Field(default=(), max_length=MAX_NODES)
    versions: Annotated[tuple[EndpointVersion, ...], Strict(False)] = ()

    @model_validator(mode="after")
    def _ticks_ascend(self) -> Self:
        for place, (previous, version) in enumerate(pairwise(self.versions), 1):
            if version.tick <= previous.tick:
                text = f"{version.tick}: must be above {previous.tick}, that of the version before"
                raise option_error(f"versions[{place}].tick", text)
        return self

    def endpoints_at(self, tick: int) -> tuple[str, ...]:
        """Return the node addresses in the registry version of ``tick``."""
        versions = [version.endpoints for version in self.versions if version.tick <= tick]
        return versions[-1] if versions else self.endpoints


class IcOptions(ProfiledOptions):
    """Options of the Internet Computer protocol; ``docs/explanation/protocols/ic.md`` says what each does."""

    index_base: int = Field(default=1, ge=0, le=1)
    signal_form: Literal["explicit", "compact"] = "explicit"
    substreams: Literal["flat", "per_destination", "per_source"] = "flat"
    vsr: Literal["accept_all", "deployed"] = "accept_all"
    reject_every: int = Field(default=0, ge=0, le=LARGEST)
    sender_mismatch: Literal["drop_accept", "deployed"] = "drop_accept"
    receiver_check: Literal["on", "off"] = "on"
    loopback: Literal["stream", "seed_literal"] = "stream"
    dead_destination: Literal["requests_only", "seed_literal"] = "requests_only"
    first_index_rule: Annotated[Literal["unseen_only"], allow_only("unseen_only", "the other shows a flaw")] = (
        "unseen_only"
    )
    validate_signals: Literal["on", "off"] = "on"
    empty_slice: Literal["reject", "allow"] = "reject"
    limits: Literal["none", "deployed"] = "none"
    limit: StreamLimits = StreamLimits()
    timeouts: Literal["off", "on"] = "off"
    request_lifetime_seconds: int = Field(default=300, ge=0, le=LARGEST // 10**9)
    best_effort: Annotated[Literal["off"], allow_only("off", "all calls are guaranteed")] = "off"
    refunds: Annotated[Literal["off"], allow_only("off", "they come with best_effort")] = "off"
    migrations: Literal["off", "on"] = "off"
    splitting: Literal["off", "on"] = "off"
    certification: Literal["bls", "threshold", "off"] = "bls"
    certification_version: Literal["V19", "V20", "V21", "V22", "V23", "V24", "V25"] = "V25"
    certification_delay: int = Field(default=0, ge=0, le=MAX_AHEAD)
    blocks_ahead: int = Field(default=0, ge=0, le=MAX_AHEAD)
    full_hash_every: int = Field(default=1, ge=1, le=LARGEST)
    nodes: int = Field(default=4, ge=1, le=MAX_NODES)
    payload_bytes: int = Field(default=0, ge=0, le=LARGEST)
    messages_per_canister: int = Field(default=0, ge=0, le=LARGEST)
    remote: Mapping[str, RemoteSubnet] = Field(default_factory=dict)
    listen: Mapping[str, Annotated[tuple[ListenAddress, ...], Strict(False)]] = Field(default_factory=dict)
    chain_keys: Mapping[str, PublicKeyDigits] = Field(default_factory=dict)

    @classmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of ``profile = deployed``; without certificates payloads have no size."""
        left_out = {"payload_bytes"} if given.get("certification") == "off" else set()
        return {name: value for name, value in DEPLOYED.items() if name not in left_out}

    @model_validator(mode="after")
    def _what_needs_certificates(self) -> Self:
        for name in ("remote", "listen"):
            if not self.flat and getattr(self, name):
                text = f'allowed with options.{name}: "flat": lakes exchange one stream between two subnets'
                raise option_error("substreams", f'"{self.substreams}": {text}')
        for name in ("payload_bytes", "blocks_ahead"):
            if self.certification == "off" and (value := getattr(self, name)):
                raise option_error(name, f'{value}: allowed with certification = "off": 0')
        return self

    @cached_property
    def version(self) -> CertificationVersion:
        """Return the version of the encodings."""
        return CertificationVersion[self.certification_version]

    @cached_property
    def certified(self) -> bool:
        """Return True if subnets certify their states, and slices are verified."""
        return self.certification != "off"

    @cached_property
    def flat(self) -> bool:
        """Return True if a stream is one queue of messages, without substreams."""
        return self.substreams == "flat"

    @cached_property
    def rejects_exist(self) -> bool:
        """Return True if any rule may give a REJECT.

        Otherwise REJECT signals are ``UnexpectedSignals`` (D-16).
        """
        return (
            self.vsr == "deployed"
            or self.sender_mismatch == "deployed"
            or self.migrations == "on"
            or self.reject_every > 0
        )


def remark(options: Mapping[str, Any]) -> str | None:
    """Return the remark for a summary of a run with these options, or None."""
    if IcOptions.model_validate(options).certified:
        return None
    return 'Nothing was certified (certification = "off"): subnets believed what others in the lake offered.'
