"""Signed headers and validators in the JSON of nodes."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from causeway_proofs.errors import MalformedProof
from causeway_proofs.tendermint.building import sign_header
from causeway_proofs.tendermint.commit import SignedHeader
from causeway_proofs.tendermint.header import BlockId
from causeway_proofs.tendermint.rpc import signed_header_from_json, validators_from_json
from causeway_proofs.tendermint.validators import ValidatorSet

from tests.support.common.tendermint_chain import steady


def when(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def as_json(signed: SignedHeader, validators: ValidatorSet) -> tuple[Any, Any]:
    header, commit = signed.header, signed.commit

    def hexadecimal(value: bytes) -> str:
        return value.hex().upper()

    def block_id(value: BlockId) -> Any:
        parts = {"total": value.part_count, "hash": hexadecimal(value.parts_hash)}
        return {"hash": hexadecimal(value.hash), "parts": parts}

    names = ["last_commit_hash", "data_hash", "validators_hash", "next_validators_hash", "consensus_hash", "app_hash"]
    names += ["last_results_hash", "evidence_hash", "proposer_address"]
    return {
        "header": {
            "version": {"block": "11"},
            "chain_id": header.chain_id,
            "height": str(header.height),
            "time": when(header.time),
            "last_block_id": block_id(header.last_block_id),
            **{name: hexadecimal(getattr(header, name)) for name in names},
        },
        "commit": {
            "height": str(commit.height),
            "round": commit.round,
            "block_id": block_id(commit.block_id),
            "signatures": [
                {
                    "block_id_flag": int(entry.flag),
                    "validator_address": hexadecimal(entry.validator_address),
                    "timestamp": when(entry.timestamp) if entry.signature else "0001-01-01T00:00:00Z",
                    "signature": base64.b64encode(entry.signature).decode() if entry.signature else None,
                }
                for entry in commit.signatures
            ],
        },
    }, [
        {
            "address": hexadecimal(each.address),
            "pub_key": {
                "type": "tendermint/PubKeyEd25519",
                "value": base64.b64encode(each.public_key.data).decode(),
            },
            "voting_power": str(each.power),
            "proposer_priority": "-3",
        }
        for each in validators.validators
    ]


def test_json_of_a_node_is_read() -> None:
    chain = steady(2)
    signed = sign_header(chain.header(2), chain.sets[1], dict(list(chain.keys.items())[:3]))
    in_json, validators = as_json(signed, chain.sets[1])
    assert signed_header_from_json(json.loads(json.dumps(in_json))) == signed
    assert validators_from_json(validators).hash == chain.sets[1].hash


def test_base64_has_one_form() -> None:
    chain = steady(2)
    in_json, _ = as_json(chain.signed[1], chain.sets[1])
    entry = in_json["commit"]["signatures"][0]
    right = entry["signature"]
    # The last letter before the padding holds four unused bits.
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".index(right[-3])
    entry["signature"] = right[:-3] + "BRhx"["AQgw".index(right[-3])] + "=="
    assert last % 16 == 0 and base64.b64decode(entry["signature"]) == base64.b64decode(right)
    with pytest.raises(MalformedProof, match="canonical"):
        signed_header_from_json(in_json)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("header",), None),
        (("header", "version"), []),
        (("header", "height"), "020"),
        (("header", "height"), True),
        (("header", "height"), 2**63),
        (("header", "height"), "9" * 50_000),
        (("header", "time"), "2023-11-14T22:13:22+01:00"),
        (("header", "time"), "2023-13-14T22:13:22Z"),
        (("header", "chain_id"), "\ud800"),
        *((("header", "app_hash"), value) for value in ("0", "0g", "a b", " 00", "0x00", "\u0660\u0660", 0, ["00"])),
        (("header", "validators_hash"), None),
        (("commit", "signatures"), {}),
        (("commit", "signatures"), ["signature"]),
        (("commit", "block_id", "parts", "total"), -1),
    ],
)
def test_json_of_no_signed_header_is_refused(path: tuple[str, ...], value: Any) -> None:
    chain = steady(2)
    in_json, _ = as_json(chain.signed[1], chain.sets[1])
    place = in_json
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(MalformedProof):
        signed_header_from_json(in_json)
