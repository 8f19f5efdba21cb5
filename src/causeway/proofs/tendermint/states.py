"""What deployed chains keep of a light client: its client state, and a consensus state for each trusted height."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.model.errors import InvalidInput
from causeway.proofs.errors import MalformedProof
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.tendermint import encoding
from causeway.proofs.tendermint.encoding import bytes_field, message_field, number_field
from causeway.proofs.tendermint.header import (
    HASH_BYTES,
    MAX_APP_HASH_BYTES,
    MAX_CHAIN_ID_BYTES,
    require_parts,
    require_size,
    revision_of,
)
from causeway.proofs.tendermint.trust import TrustedHeader, TrustOptions, deployed_rule
from causeway.proofs.wire import ibc_client_pb2
from causeway.proofs.wire import ibc_tendermint_pb2 as wire


@dataclass(frozen=True)
class ClientState:
    """A light client's settings (``ibc.lightclients.tendermint.v1.ClientState``); durations in nanoseconds.

    ``frozen`` and ``latest`` are (revision, height); the former is (0, 0) unless the client is frozen.
    ``proof_specs`` are the encoded ICS-23 specs, the innermost store's first. The two flags are of old chains;
    nothing here goes by them.
    """

    chain_id: str
    trust_numerator: int
    trust_denominator: int
    trusting_period: int
    unbonding_period: int
    max_clock_drift: int
    frozen: tuple[int, int]
    latest: tuple[int, int]
    proof_specs: tuple[bytes, ...] = ()
    upgrade_path: tuple[str, ...] = ()
    allow_update_after_expiry: bool = False
    allow_update_after_misbehaviour: bool = False

    @property
    def options(self) -> TrustOptions:
        """Return the options of the light client, with the deployed rule at this trust level."""
        rule = deployed_rule(self.trust_numerator, self.trust_denominator)
        return TrustOptions(self.chain_id, self.trusting_period, self.max_clock_drift, rule)


def decode_client_state(data: bytes) -> ClientState:
    """Return the client state of its protobuf form.

    Raises:
        MalformedProof: it is not one, not in the canonical encoding, or its values are not allowed: a trust level
            outside of 1/3 to 1, a trusting period of 0 or not below the unbonding period, a latest height of another
            revision.
    """
    message = parse_canonical(wire.ClientState, data, "client state")
    durations = ("trusting_period", "unbonding_period", "max_clock_drift")
    require_parts(message, "a client state", "trust_level", *durations, "frozen_height", "latest_height")
    length = len(message.chain_id.encode())
    if not 1 <= length <= MAX_CHAIN_ID_BYTES:
        raise MalformedProof(f"chain_id of a client state has {length} bytes, 1..{MAX_CHAIN_ID_BYTES} are allowed")
    state = ClientState(
        chain_id=message.chain_id,
        trust_numerator=message.trust_level.numerator,
        trust_denominator=message.trust_level.denominator,
        trusting_period=encoding.duration_of(message.trusting_period, "trusting_period of a client state"),
        unbonding_period=encoding.duration_of(message.unbonding_period, "unbonding_period of a client state"),
        max_clock_drift=encoding.duration_of(message.max_clock_drift, "max_clock_drift of a client state"),
        frozen=_height_of(message.frozen_height),
        latest=_height_of(message.latest_height),
        proof_specs=tuple(spec.SerializeToString(deterministic=True) for spec in message.proof_specs),
        upgrade_path=tuple(message.upgrade_path),
        allow_update_after_expiry=message.allow_update_after_expiry,
        allow_update_after_misbehaviour=message.allow_update_after_misbehaviour,
    )
    try:
        deployed_rule(state.trust_numerator, state.trust_denominator)
    except InvalidInput as error:
        raise MalformedProof(f"client state: {error}") from error
    if not 0 < state.trusting_period < state.unbonding_period:
        raise MalformedProof(
            f"trusting_period of a client state is {state.trusting_period} ns, more than 0 and less than the"
            f" unbonding_period of {state.unbonding_period} is allowed"
        )
    if state.latest[0] != revision_of(state.chain_id):
        raise MalformedProof(f"latest_height of a client state is of revision {state.latest[0]} of {state.chain_id!r}")
    return state


def encode_client_state(state: ClientState) -> bytes:
    """Return the protobuf form of a client state."""
    durations = (state.trusting_period, state.unbonding_period, state.max_clock_drift)
    level = number_field(1, state.trust_numerator) + number_field(2, state.trust_denominator)
    return b"".join(
        (
            bytes_field(1, state.chain_id.encode()),
            message_field(2, level),
            *[message_field(3 + position, encoding.timestamp(value)) for position, value in enumerate(durations)],
            message_field(6, _encoded_height(state.frozen)),
            message_field(7, _encoded_height(state.latest)),
            *[message_field(8, spec) for spec in state.proof_specs],
            *[message_field(9, part.encode()) for part in state.upgrade_path],
            number_field(10, state.allow_update_after_expiry),
            number_field(11, state.allow_update_after_misbehaviour),
        )
    )


def decode_consensus_state(data: bytes, height: int) -> TrustedHeader:
    """Return what a consensus state (``ibc.lightclients.tendermint.v1.ConsensusState``) says of a trusted height.

    Raises:
        MalformedProof: it is not one, or not in the canonical encoding.
    """
    message = parse_canonical(wire.ConsensusState, data, "consensus state")
    require_parts(message, "a consensus state", "timestamp", "root")
    require_size(message.next_validators_hash, "next_validators_hash of a consensus state", HASH_BYTES)
    if not 1 <= len(message.root.hash) <= MAX_APP_HASH_BYTES:
        raise MalformedProof(
            f"root of a consensus state has {len(message.root.hash)} bytes, 1..{MAX_APP_HASH_BYTES} are allowed"
        )
    time = encoding.time_of(message.timestamp, "timestamp of a consensus state")
    return TrustedHeader(height, time, message.root.hash, message.next_validators_hash)


def encode_consensus_state(trusted: TrustedHeader) -> bytes:
    """Return the consensus state of a trusted header in protobuf form."""
    return b"".join(
        (
            message_field(1, encoding.timestamp(trusted.time)),
            message_field(2, bytes_field(1, trusted.root)),
            bytes_field(3, trusted.next_validators_hash),
        )
    )


def _height_of(message: ibc_client_pb2.Height) -> tuple[int, int]:
    return message.revision_number, message.revision_height


def _encoded_height(height: tuple[int, int]) -> bytes:
    return number_field(1, height[0]) + number_field(2, height[1])
