"""Trusted roots, keys and headers, from a document, another file, or a known name."""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from causeway_proofs.documents.validation import (
    JsonObject,
    format_value,
    looks_like_json,
    parse_object,
    read_bytes,
    unwrap_rpc_result,
    validate_model,
)
from causeway_proofs.documents.values import (
    Bytes,
    Digest,
    DocumentSection,
    Duration,
    Number,
    PrincipalId,
    Text,
    Time,
    parse_digest,
)
from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.ic.bls import DER_PREFIX, PUBLIC_KEY_BYTES, key_point, public_key_from_der
from causeway_proofs.ic.certification import derive_root_subnet
from causeway_proofs.ic.primitives import principal_to_text
from causeway_proofs.tendermint.light_client import ClientState, decode_client_state, decode_consensus_state
from causeway_proofs.tendermint.rpc import header_from_json
from causeway_proofs.tendermint.trust import (
    MAX_CLOCK_DRIFT,
    REFERENCE_RULE,
    TRUSTING_PERIOD,
    TrustedHeader,
    TrustOptions,
    TrustRule,
    deployed_rule,
)

MAX_TRUST_BYTES = 1 << 20

IC_MAINNET = "ic-mainnet"
"""Name of the Internet Computer's root key."""

IC_MAINNET_KEY = bytes.fromhex(
    "814c0e6ec71fab583b08bd81373c255c3c371b2e84863c98a4f1e08b74235d14fb5d9c0cd546d9685f913a0c0b2cc534"
    "1583bf4b4392e467db96d65b9bb4cb717112f8472e0d5a4d14505ffd7484b01291091c5f87b98883463f98091a0baaae"
)
"""Public key of the Internet Computer's root subnet, 96 bytes, built into every client."""

_PEM = re.compile(rb"-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]*)-----END PUBLIC KEY-----\s*", re.ASCII)
_LEVEL = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})", re.ASCII)


class Trust(DocumentSection, ABC):
    """A trusted value.

    Attributes:
        kind: name of its form.
        wanted: short description of the input.
    """

    kind: str
    wanted: ClassVar[str]
    """Short description of the input."""

    @property
    @abstractmethod
    def subject(self) -> str:
        """Return a short description of the trusted value."""

    @property
    @abstractmethod
    def target(self) -> bytes:
        """Return the digest or key at the end of a proof's path."""


class RootTrust(Trust):
    """A trusted root of a tree, trie, mountain range or queue.

    Attributes:
        root: 32 bytes.
        leaf_count: number of leaves of the mountain range, if known: a root does not bind it.
    """

    kind: Literal["root"]
    root: Digest
    leaf_count: Number | None = None
    wanted: ClassVar[str] = 'a root, {"kind": "root", "root": ...}'

    @property
    def subject(self) -> str:
        """Return a short description of the root."""
        return f"root {self.root.hex()}"

    @property
    def target(self) -> bytes:
        """Return the root."""
        return self.root


class IcmpHead(Trust):
    """A trusted header of a relay block, of a network with egress queues.

    Attributes:
        hash: the trusted hash of the header.
        parent: hash of the parent block.
        number: number of the block.
        root: root of its state.
        included: root of the list of parachain heads that it included.
        leaf: number of its leaf.
    """

    kind: Literal["icmp_head"]
    hash: Digest
    parent: Digest
    number: Annotated[Number, Field(le=2**32 - 1)]
    root: Digest
    included: Digest
    leaf: Annotated[Number, Field(le=255)] = 0
    wanted: ClassVar[str] = 'a header of the relay chain, {"kind": "icmp_head", "hash": ...}'

    @model_validator(mode="after")
    def _validate_hash(self) -> IcmpHead:
        # Import lazily: other kinds do not need it.
        from causeway_proofs.substrate.parachains import block_hash, relay_rest

        found = block_hash(self.parent, self.number, self.root, relay_rest(self.included, self.leaf))
        if found != self.hash:
            raise InvalidInput(f"hash: {self.hash.hex()}: the header of these fields has the hash {found.hex()}")
        return self

    @property
    def subject(self) -> str:
        """Return a short description of the header."""
        return f"root {self.root.hex()} of the state after relay block {self.number}, head {self.hash.hex()}"

    @property
    def target(self) -> bytes:
        """Return the state root."""
        return self.root


class IcPublicKey(Trust):
    """A subnet's trusted public key.

    Attributes:
        key: 96 bytes, or 133 in DER.
        subnet_id: the subnet, if not derived from the key.
    """

    kind: Literal["ic_public_key"]
    key: Bytes
    subnet_id: PrincipalId | None = None
    wanted: ClassVar[str] = 'a key, {"kind": "ic_public_key", "key": ...}, a DER or PEM file, or ic-mainnet'

    @model_validator(mode="after")
    def _validate_key(self) -> IcPublicKey:
        key_point(self.raw)
        return self

    @property
    def raw(self) -> bytes:
        """Return the key, 96 bytes."""
        return self.key if len(self.key) == PUBLIC_KEY_BYTES else public_key_from_der(self.key)

    @property
    def owner(self) -> bytes:
        """Return the id of the key's subnet."""
        return derive_root_subnet(self.raw) if self.subnet_id is None else self.subnet_id

    @property
    def subject(self) -> str:
        """Return a short description of the key."""
        if self.raw == IC_MAINNET_KEY:
            return "root key of the Internet Computer"
        return f"key {self.raw.hex()[:16]}... of subnet {principal_to_text(self.owner)}"

    @property
    def target(self) -> bytes:
        """Return the key, 96 bytes."""
        return self.raw


class TendermintTrust(Trust):
    """A trusted header of a Tendermint chain, in one of three forms, with trust options.

    The forms: ``consensus_state`` (protobuf) with ``height``; ``header`` (the JSON of a node's RPC); or ``height``,
    ``time``, ``root``, ``next_validators_hash`` and, if known, ``validators_hash`` and ``header_hash``.

    ``client_state`` (protobuf) provides chain id, periods and trust level. Otherwise ``rule`` is ``deployed`` (more
    than 2/3 of the header's validators and more than ``trust_level`` of the trusted ones) or ``reference`` (IBC
    reference X-4).
    """

    kind: Literal["tendermint_trust"]
    chain_id: Text | None = None
    height: Number | None = None
    time: Time | None = None
    root: Bytes | None = None
    next_validators_hash: Digest | None = None
    validators_hash: Digest | None = None
    header_hash: Digest | None = None
    consensus_state: Bytes | None = None
    client_state: Bytes | None = None
    header: dict[str, Any] | None = None
    rule: Literal["deployed", "reference"] | None = None
    trust_level: Text | None = None
    trusting_period: Duration | None = None
    max_clock_drift: Duration | None = None
    wanted: ClassVar[str] = 'a trusted header, {"kind": "tendermint_trust", ...}, or a node\'s answer to /commit'

    @model_validator(mode="after")
    def _validate_completeness(self) -> TendermintTrust:
        if self.client_state is not None:
            self._require_absent(
                "client_state", "chain_id", "rule", "trust_level", "trusting_period", "max_clock_drift"
            )
        if self.header is not None and self.chain_id is not None:
            named = header_from_json(self.header).chain_id
            if named != self.chain_id:
                raise InvalidInput(
                    f"chain_id: is {format_value(self.chain_id)}, the header is of {format_value(named)}"
                )
        # Build both now, so that their faults are reported as faults of the document.
        _ = self.trusted, self.options
        return self

    @property
    def trusted(self) -> TrustedHeader:
        """Return the trusted header.

        Returns:
            The header.

        Raises:
            InvalidInput: a field is missing, or two forms are mixed.
            MalformedProof: the header or the consensus state is malformed.
        """
        own = ("time", "root", "next_validators_hash", "validators_hash", "header_hash")
        if self.header is not None:
            self._require_absent("header", "height", "consensus_state", *own)
            return TrustedHeader.of(header_from_json(self.header))
        if self.consensus_state is not None:
            self._require_absent("consensus_state", *own)
            return decode_consensus_state(self.consensus_state, self._required("height"))
        return TrustedHeader(
            self._required("height"),
            self._required("time"),
            self._required("root"),
            self._required("next_validators_hash"),
            self.validators_hash or b"",
            self.header_hash or b"",
        )

    @property
    def options(self) -> TrustOptions:
        """Return the options of a light client that trusts this header.

        Returns:
            The options.

        Raises:
            InvalidInput: the chain is not named, or a setting is not allowed.
            MalformedProof: the client state is malformed.
        """
        if self.client_state is not None:
            return self._client_state().options
        chain_id = self.chain_id
        if chain_id is None and self.header is not None:
            chain_id = header_from_json(self.header).chain_id
        if not chain_id:
            raise InvalidInput("chain_id: missing, and there is no client_state or header that has it")
        return TrustOptions(
            chain_id,
            TRUSTING_PERIOD if self.trusting_period is None else self.trusting_period,
            MAX_CLOCK_DRIFT if self.max_clock_drift is None else self.max_clock_drift,
            self._rule(),
        )

    @property
    def subject(self) -> str:
        """Return a short description of the header."""
        return f"header {self.trusted.height} of {format_value(self.options.chain_id)[1:-1]}"

    @property
    def target(self) -> bytes:
        """Return the root in the header."""
        return self.trusted.root

    def _client_state(self) -> ClientState:
        assert self.client_state is not None
        state = decode_client_state(self.client_state)
        if state.frozen != (0, 0):
            raise InvalidInput(f"client_state: is frozen at height {state.frozen[0]}-{state.frozen[1]}")
        return state

    def _rule(self) -> TrustRule:
        if self.rule == "reference":
            self._require_absent("rule reference", "trust_level")
            return REFERENCE_RULE
        if self.trust_level is None:
            return deployed_rule()
        level = _LEVEL.fullmatch(self.trust_level)
        if level is None:
            raise InvalidInput(f"trust_level: {format_value(self.trust_level)}: must be a fraction from 1/3 to 1/1")
        return deployed_rule(int(level[1]), int(level[2]))

    def _required(self, name: str) -> Any:
        value = getattr(self, name)
        if value is None:
            raise InvalidInput(f"{name}: missing")
        return value

    def _require_absent(self, beside: str, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise InvalidInput(f"{name}: does not go together with {beside}")


TRUST_KINDS: dict[str, type[Trust]] = {
    "root": RootTrust,
    "icmp_head": IcmpHead,
    "ic_public_key": IcPublicKey,
    "tendermint_trust": TendermintTrust,
}


def parse_trust_object(value: object, where: str) -> Trust:
    """Parse a trust from a JSON object.

    The answer of a node's RPC to ``/commit`` is a trusted header, too.

    Args:
        value: the JSON object.
        where: origin, for messages.

    Returns:
        The trust.

    Raises:
        InvalidInput: it is not a trust; one line names the fault.
    """
    if value == IC_MAINNET:
        return IcPublicKey(kind="ic_public_key", key=IC_MAINNET_KEY)
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: {format_value(value)}: must be a JSON object with a kind")
    if "kind" not in value:
        signed = unwrap_rpc_result(value).get("signed_header")
        if isinstance(signed, dict) and isinstance(signed.get("header"), dict):
            header = signed["header"]
            _require_committed(signed.get("commit"), header, where)
            value = {"kind": "tendermint_trust", "header": header}
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in TRUST_KINDS:
        found_kind = "missing" if kind is None else format_value(kind)
        raise InvalidInput(
            f"{where}: kind: {found_kind}: must be one of {', '.join(TRUST_KINDS)}, or it is a node's answer to /commit"
        )
    return validate_model(TRUST_KINDS[kind], value, where)


def _require_committed(commit: object, header: JsonObject, where: str) -> None:
    """Reject a header with a commit of another header. Raises ``InvalidInput``."""
    block = commit.get("block_id") if isinstance(commit, dict) else None
    named = block.get("hash") if isinstance(block, dict) else None
    if named is None:
        return
    try:
        found = header_from_json(header).hash.hex()
    except MalformedProof as error:
        raise InvalidInput(f"{where}: {error}") from None
    if str(named).lower() != found:
        raise InvalidInput(f"{where}: commit: block_id: hash: {format_value(named)}: the header's is {found}")


def read_trust(name: str) -> Trust:
    """Read a trust by name: ``ic-mainnet``, a file, or a root in hexadecimal digits.

    A file holds a trust document, a key in DER or PEM, or a root in hexadecimal digits.

    Args:
        name: the name.

    Returns:
        The trust.

    Raises:
        InvalidInput: the name denotes no trust.
    """
    if name == IC_MAINNET:
        return parse_trust_object(name, name)
    if not _is_there(name):
        try:
            return RootTrust(kind="root", root=parse_digest(name))
        except ValueError:
            raise InvalidInput(
                f"{format_value(name)[1:-1]}: no such file, and neither {IC_MAINNET} "
                "nor a root of 64 hexadecimal digits"
            ) from None
    return parse_trust(read_bytes(Path(name), MAX_TRUST_BYTES), name)


def parse_trust(data: bytes, name: str) -> Trust:
    """Parse a trust from bytes: a trust document, a key in DER or PEM, or a root.

    Args:
        data: the content.
        name: origin, for messages.

    Returns:
        The trust.

    Raises:
        InvalidInput: ``data`` is none of these, or exceeds ``MAX_TRUST_BYTES``.
    """
    if len(data) > MAX_TRUST_BYTES:
        raise InvalidInput(f"{name}: is longer than {MAX_TRUST_BYTES} bytes, more are not read")
    if looks_like_json(data):
        return parse_trust_object(parse_object(data, name), name)
    key = _key_of(data)
    if key is not None:
        return parse_trust_object({"kind": "ic_public_key", "key": key}, name)
    try:
        return RootTrust(kind="root", root=parse_digest(data.decode("ascii").strip()))
    except ValueError:
        raise InvalidInput(
            f"{name}: must be a trust document (JSON), a public key (DER, PEM), or a root (64 hexadecimal digits)"
        ) from None


def _is_there(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):
        # Too long for a file name, or with a NUL in it.
        return False


def _key_of(data: bytes) -> bytes | None:
    """Return the key in a file, in DER, or None."""
    pem = _PEM.fullmatch(data.strip())
    if pem is not None:
        try:
            return base64.b64decode(b"".join(pem[1].split()), validate=True)
        except ValueError:
            return None
    return data if data.startswith(DER_PREFIX[:4]) else None
