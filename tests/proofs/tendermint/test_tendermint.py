"""Public vectors of Tendermint light clients: a real header update, and unsigned headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from causeway_proofs.errors import MalformedProof, NotProven, ProofError
from causeway_proofs.tendermint.commit import check_commit_is_of_header, verify_commit
from causeway_proofs.tendermint.errors import ClientExpired, ConnectionFrozen, InvalidHeader, NoTrustedHeader
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.light_client import (
    ClientState,
    ClientStatus,
    LightClient,
    UpdateOutcome,
    decode_client_state,
    decode_consensus_state,
    encode_client_state,
    encode_consensus_state,
)
from causeway_proofs.tendermint.rpc import signed_header_from_json
from causeway_proofs.tendermint.trust import (
    DEPLOYED_RULE,
    REFERENCE_RULE,
    HeaderUpdate,
    TrustedHeader,
    TrustOptions,
    UpdateValidity,
    check_validity,
    decode_header_update,
)

from tests.vectors import load_vectors


@dataclass
class RealUpdate:
    client_state_bytes: bytes
    consensus_state_bytes: bytes
    bytes: bytes
    new_height: int
    trusted_height: int

    @property
    def client_state(self) -> ClientState:
        return decode_client_state(self.client_state_bytes)

    @property
    def trusted(self) -> TrustedHeader:
        return decode_consensus_state(self.consensus_state_bytes, self.trusted_height)

    @property
    def update(self) -> HeaderUpdate:
        return decode_header_update(self.bytes)

    @property
    def client(self) -> LightClient:
        return LightClient.from_states(self.client_state, self.trusted)

    @property
    def now(self) -> int:
        return self.update.signed_header.header.time + SECOND


@pytest.fixture(scope="module")
def real() -> RealUpdate:
    vector = load_vectors("ibc_light_client")["update"]
    return RealUpdate(
        bytes.fromhex(vector["client_state"]),
        bytes.fromhex(vector["consensus_state"]),
        bytes.fromhex(vector["header"]),
        vector["height"],
        vector["trusted_height"],
    )


def test_states_and_update_round_trip_to_the_same_bytes(real: RealUpdate) -> None:
    assert encode_client_state(real.client_state) == real.client_state_bytes
    assert encode_consensus_state(real.trusted) == real.consensus_state_bytes
    assert real.update.encode() == real.bytes


def test_four_parts_of_the_update_hold_separately(real: RealUpdate) -> None:
    update, header = real.update, real.update.signed_header.header
    assert update.height == real.new_height and update.trusted_height == real.trusted_height
    assert header.hash == update.signed_header.commit.block_id.hash
    assert header.validators_hash == update.validators.hash
    assert real.trusted.next_validators_hash == update.trusted_validators.hash
    verify_commit(update.signed_header, real.client_state.chain_id, update.validators)


def test_real_update_is_accepted(real: RealUpdate) -> None:
    client = real.client
    updated = client.update(real.update, real.now)
    assert updated.outcome is UpdateOutcome.ADDED
    assert [step.operation for step in updated.steps] == ["trusted", "header", "validators", "power", "signature"]
    assert client.heights == (real.trusted_height, real.new_height)
    assert client.root(real.new_height, real.now) == real.update.signed_header.header.app_hash
    assert client.update(real.update, real.now).outcome is UpdateOutcome.KNOWN


@pytest.mark.parametrize("rule", [REFERENCE_RULE, DEPLOYED_RULE])
def test_real_update_is_valid_by_either_rule(real: RealUpdate, rule: Any) -> None:
    options = TrustOptions(real.client_state.chain_id, real.client_state.trusting_period, 0, rule)
    assert check_validity(real.trusted, real.update, options, real.now) is UpdateValidity.TRUE


def test_any_flipped_bit_of_the_real_update_is_refused(real: RealUpdate) -> None:
    client, now = real.client, real.now
    for position in range(len(real.bytes) * 8):
        flipped = bytearray(real.bytes)
        flipped[position // 8] ^= 1 << position % 8
        with pytest.raises(ProofError):
            client.update(decode_header_update(bytes(flipped)), now)
    assert client.heights == (real.trusted_height,) and not client.frozen


def test_truncated_or_extended_real_update_is_malformed(real: RealUpdate) -> None:
    for length in range(len(real.bytes)):
        with pytest.raises(MalformedProof):
            decode_header_update(real.bytes[:length])
    for tail in (b"\x00", b"\x22\x00", b"\x2a\x00", real.bytes):
        with pytest.raises(MalformedProof):
            decode_header_update(real.bytes + tail)


def update_too_late(real: RealUpdate) -> None:
    real.client.update(real.update, real.trusted.time + real.client_state.trusting_period)


def update_too_early(real: RealUpdate) -> None:
    real.client.update(real.update, real.update.signed_header.header.time - real.client_state.max_clock_drift)


def other_chain(real: RealUpdate) -> None:
    options = TrustOptions("simd-3", real.client_state.trusting_period, SECOND, DEPLOYED_RULE)
    LightClient(options, [real.trusted]).update(real.update, real.now)


def other_height(real: RealUpdate) -> None:
    trusted = decode_consensus_state(real.consensus_state_bytes, real.trusted_height - 1)
    LightClient.from_states(real.client_state, trusted).update(real.update, real.now)


def frozen(real: RealUpdate) -> None:
    client = real.client
    client.frozen = True
    assert client.status(real.now) is ClientStatus.FROZEN
    client.update(real.update, real.now)


@pytest.mark.parametrize(
    ("attempt", "error"),
    [
        (update_too_late, ClientExpired),
        (update_too_early, InvalidHeader),
        (other_chain, InvalidHeader),
        (other_height, NoTrustedHeader),
        (frozen, ConnectionFrozen),
    ],
)
def test_real_update_is_refused_outside_its_conditions(
    real: RealUpdate, attempt: Callable[[RealUpdate], None], error: type[NotProven]
) -> None:
    with pytest.raises(error):
        attempt(real)


def test_update_is_accepted_just_inside_its_time_bounds(real: RealUpdate) -> None:
    real.client.update(real.update, real.trusted.time + real.client_state.trusting_period - 1)
    real.client.update(real.update, real.update.signed_header.header.time - real.client_state.max_clock_drift + 1)


@pytest.mark.parametrize("name", ["valid", "expired"])
def test_unsigned_headers_are_hashed_and_refused(name: str) -> None:
    vectors = load_vectors("ibc_light_client")
    case = next(case for case in vectors["unsigned_headers"] if case["case"] == name)
    header = {**vectors["unsigned_header"], "time": case["time"]}
    signed = signed_header_from_json({"header": header, "commit": vectors["foreign_commit"]})
    assert signed.header.hash.hex() == case["hash"]
    with pytest.raises(InvalidHeader, match="commit signs"):
        check_commit_is_of_header(signed)
