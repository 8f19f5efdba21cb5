"""Public vectors of packet commitments, acknowledgements and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from causeway.model.order import groups_of
from causeway.proofs.ibc import abi, columns, keys
from causeway.proofs.ibc.packets import (
    UNIVERSAL_ERROR_ACKNOWLEDGEMENT,
    PacketV2,
    Payload,
    commit_acknowledgement_v1,
    commit_acknowledgement_v2,
    commit_packet_v1,
    commit_packet_v2,
)

TEXTS = ("source_port", "destination_port", "version", "encoding")


@pytest.fixture(scope="module")
def vectors(shared_folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared_folder / "vectors/ibc/commitments.json").read_text())
    return found


def packet_v2(case: dict[str, Any]) -> PacketV2:
    payloads = [
        Payload(value=bytes.fromhex(entry["value_hex"]), **{name: entry[name] for name in TEXTS})
        for entry in case["payloads"]
    ]
    return PacketV2(
        case["sequence"],
        case["source_client"],
        case["destination_client"],
        case["timeout_timestamp_s"],
        tuple(payloads),
    )


def packet_v1(case: dict[str, Any]) -> tuple[int, int, int, bytes]:
    height = case["timeout_height"]
    return (
        case["timeout_timestamp_ns"],
        height["revision_number"],
        height["revision_height"],
        bytes.fromhex(case["data_hex"]),
    )


def commit_one(case: dict[str, Any]) -> bytes:
    value = case["input"]
    match case["version"], case["kind"]:
        case 1, "packet":
            return commit_packet_v1(*packet_v1(value))
        case 1, "acknowledgement":
            return commit_acknowledgement_v1(bytes.fromhex(value["acknowledgement_hex"]))
        case 2, "packet":
            return commit_packet_v2(packet_v2(value))
        case _:
            return commit_acknowledgement_v2([bytes.fromhex(each) for each in value["app_acknowledgements_hex"]])


def commit_columns(case: dict[str, Any]) -> bytes:
    """The same by the functions that take columns, with one row."""
    value = case["input"]
    match case["version"], case["kind"]:
        case 1, "packet":
            *numbers, data = packet_v1(value)
            time, revision, height = (np.array([number], dtype=np.uint64) for number in numbers)
            return columns.commit_packets_v1(time, revision, height, pa.array([data], pa.binary())).tobytes()
        case 1, "acknowledgement":
            given = pa.array([bytes.fromhex(value["acknowledgement_hex"])], pa.binary())
            return columns.commit_acknowledgements_v1(given).tobytes()
        case 2, "packet":
            packet = packet_v2(value)
            texts = {name: pa.array([getattr(payload, name) for payload in packet.payloads]) for name in TEXTS}
            values = pa.array([payload.value for payload in packet.payloads], pa.binary())
            return columns.commit_packets_v2(
                pa.array([packet.destination_client]),
                np.array([packet.timeout_timestamp], dtype=np.uint64),
                columns.hash_payloads(value=values, **texts),
                groups_of(np.zeros(len(values))),
            ).tobytes()
        case _:
            given = pa.array([bytes.fromhex(each) for each in value["app_acknowledgements_hex"]], pa.binary())
            return columns.commit_acknowledgements_v2(given, groups_of(np.zeros(len(given)))).tobytes()


def test_every_commitment(vectors: dict[str, Any]) -> None:
    assert len(vectors["commitments"]) >= 6
    for case in vectors["commitments"]:
        assert commit_one(case).hex() == case["commitment"], case["name"]
        assert commit_columns(case).hex() == case["commitment"], case["name"]


def test_every_key(vectors: dict[str, Any]) -> None:
    makers = {
        "v2_commitment": keys.packet_commitment_key_v2,
        "v2_receipt": keys.packet_receipt_key_v2,
        "v2_acknowledgement": keys.packet_acknowledgement_key_v2,
    }
    assert len(vectors["keys"]) >= 3
    for case in vectors["keys"]:
        client, sequence = case["input"]["client_id"], case["input"]["sequence"]
        key = makers[case["name"]](client, sequence)
        assert key.hex() == case["key_hex"]
        parsed = keys.parse_packet_key_v2(key)
        assert (parsed.client, parsed.sequence) == (client, sequence)


def test_the_error_acknowledgement(vectors: dict[str, Any]) -> None:
    case = next(case for case in vectors["commitments"] if case["name"] == "v2_error_acknowledgement")
    assert case["input"]["app_acknowledgements_hex"] == [UNIVERSAL_ERROR_ACKNOWLEDGEMENT.hex()]


def test_the_abi_payload_is_the_transfer_of_the_json_one(vectors: dict[str, Any]) -> None:
    packets = {case["name"]: case["input"] for case in vectors["commitments"] if case["kind"] == "packet"}
    (in_json,) = packets["v2_packet_json"]["payloads"]
    (in_abi,) = packets["v2_packet_abi"]["payloads"]
    transfer = json.loads(bytes.fromhex(in_json["value_hex"]))
    value = (
        transfer["denom"],
        transfer["sender"],
        transfer["receiver"],
        int(transfer["amount"]),
        transfer["memo"],
    )
    data = bytes.fromhex(in_abi["value_hex"])
    assert abi.encode(abi.FUNGIBLE_TOKEN_PACKET_DATA, value) == data
    assert abi.decode(abi.FUNGIBLE_TOKEN_PACKET_DATA, data) == value
