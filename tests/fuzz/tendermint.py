"""Decoders and verifiers of Tendermint headers, light client states and packet payloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from causeway_proofs.errors import ProofError
from causeway_proofs.ibc.commitments import packet_commitment_key_v2, parse_packet_key_v2
from causeway_proofs.tendermint.building import create_validators, make_header, sign_header
from causeway_proofs.tendermint.commit import check_commit_is_of_header, decode_signed_header, verify_commit
from causeway_proofs.tendermint.header import SECOND
from causeway_proofs.tendermint.light_client import (
    ClientState,
    LightClient,
    decode_client_state,
    decode_consensus_state,
    encode_client_state,
    encode_consensus_state,
)
from causeway_proofs.tendermint.rpc import signed_header_from_json, validators_from_json
from causeway_proofs.tendermint.trust import (
    DEPLOYED_RULE,
    HeaderUpdate,
    Misbehaviour,
    TrustedHeader,
    TrustOptions,
    decode_header_update,
    decode_misbehaviour,
)
from causeway_proofs.tendermint.validators import SigningKey, decode_validator_set

CHAIN = "zone-1"
START = 1_700_000_000 * SECOND
NOW = START + 100 * SECOND

_OLD, _OLD_KEYS = create_validators({SigningKey.from_name(f"old {number}"): 10 for number in range(3)})
_NEW, _NEW_KEYS = create_validators({SigningKey.from_name(f"old {number}"): 10 for number in (0, 1, 7)})
_FIRST = make_header(CHAIN, 1, START, b"1" * 32, _OLD)
_TRUSTED = TrustedHeader.of(_FIRST)
_SIGNED = [
    sign_header(make_header(CHAIN, 3, START + SECOND, root * 32, _NEW), _NEW, _NEW_KEYS) for root in (b"2", b"3")
]
_UPDATES = [HeaderUpdate.on(1, _OLD, signed, _NEW) for signed in _SIGNED]
_STATE = ClientState(CHAIN, 1, 3, 100 * SECOND, 200 * SECOND, SECOND, (0, 0), (1, 1))


def _client() -> LightClient:
    return LightClient(TrustOptions(CHAIN, 1_000 * SECOND, SECOND, DEPLOYED_RULE), [_TRUSTED])


def update(data: bytes) -> None:
    """An update from a stranger either holds or leaves the client as it was."""
    client = _client()
    try:
        client.update(decode_header_update(data), NOW)
    except ProofError:
        assert client.heights == (1,) and not client.frozen
    else:
        # Priorities and the proposer are in no hash; the header is the signed one.
        assert client.latest.header_hash in [each.signed_header.header.hash for each in _UPDATES]


def misbehaviour(data: bytes) -> None:
    with suppress(ProofError):
        _client().submit_misbehaviour(decode_misbehaviour(data), NOW)


def signed_header(data: bytes) -> None:
    with suppress(ProofError):
        signed = decode_signed_header(data)
        assert signed.encode() == data
        verify_commit(signed, CHAIN, _NEW)


def validator_set(data: bytes) -> None:
    with suppress(ProofError):
        assert len(decode_validator_set(data).hash) == 32


def client_state(data: bytes) -> None:
    with suppress(ProofError):
        assert encode_client_state(decode_client_state(data)) == data


def consensus_state(data: bytes) -> None:
    with suppress(ProofError):
        assert encode_consensus_state(decode_consensus_state(data, 1)) == data


def header_in_json(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        # Not ours: the caller parses text.
        return
    with suppress(ProofError):
        check_commit_is_of_header(signed_header_from_json(value))
    with suppress(ProofError):
        validators_from_json(value)


def packet_key(data: bytes) -> None:
    with suppress(ProofError):
        parse_packet_key_v2(data)


_JSON = {
    "header": {
        "version": {"block": "11", "app": "1"},
        "chain_id": CHAIN,
        "height": "3",
        "time": "2023-11-14T22:13:22.5Z",
        "last_block_id": {"hash": "AA" * 32, "parts": {"total": 1, "hash": "BB" * 32}},
        "last_commit_hash": "CC" * 32,
        "data_hash": "",
        "validators_hash": "DD" * 32,
        "next_validators_hash": "DD" * 32,
        "consensus_hash": "EE" * 32,
        "app_hash": "FF" * 32,
        "last_results_hash": "",
        "evidence_hash": "",
        "proposer_address": "AB" * 20,
    },
    "commit": {
        "height": "3",
        "round": 0,
        "block_id": {"hash": "AA" * 32, "parts": {"total": 1, "hash": "BB" * 32}},
        "signatures": [
            {
                "block_id_flag": 2,
                "validator_address": "AB" * 20,
                "timestamp": "2023-11-14T22:13:22Z",
                "signature": "A" * 86 + "==",
            },
            {"block_id_flag": 1, "validator_address": "", "timestamp": "0001-01-01T00:00:00Z", "signature": None},
        ],
    },
}

TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "update": (update, [each.encode() for each in _UPDATES]),
    "misbehaviour": (misbehaviour, [Misbehaviour(_UPDATES[0], _UPDATES[1]).encode()]),
    "signed_header": (signed_header, [each.encode() for each in _SIGNED]),
    "validator_set": (validator_set, [_OLD.encode(), _NEW.encode()]),
    "client_state": (client_state, [encode_client_state(_STATE)]),
    "consensus_state": (consensus_state, [encode_consensus_state(_TRUSTED)]),
    "header_in_json": (header_in_json, [json.dumps(_JSON).encode()]),
    "packet_key": (packet_key, [packet_commitment_key_v2("07-tendermint-0", 1)]),
}
