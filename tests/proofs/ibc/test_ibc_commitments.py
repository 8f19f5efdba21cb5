"""Public vectors of packet commitments, acknowledgements and keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.ibc import commitments
from causeway_proofs.ibc.commitments import (
    UNIVERSAL_ERROR_ACKNOWLEDGEMENT,
    PacketV2,
    Payload,
    commit_acknowledgement_v1,
    commit_acknowledgement_v2,
    commit_packet_v1,
    commit_packet_v2,
)
from causeway_proofs.order import group_rows

from tests.vectors import decode_all, load_vectors

TEXTS = ("source_port", "destination_port", "version", "encoding")


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = load_vectors("ibc_commitments")
    return found


def packet_v2(case: dict[str, Any]) -> PacketV2:
    payloads = [
        Payload(value=bytes.fromhex(entry["value"]), **{name: entry[name] for name in TEXTS})
        for entry in case["payloads"]
    ]
    return PacketV2(case["sequence"], case["source"], case["destination"], case["timeout_seconds"], tuple(payloads))


def packet_v1(case: dict[str, Any]) -> tuple[int, int, int, bytes]:
    revision, height = case["timeout_height"]
    return case["timeout_nanoseconds"], revision, height, bytes.fromhex(case["data"])


def commit_packet(case: dict[str, Any]) -> bytes:
    return commit_packet_v1(*packet_v1(case)) if case["version"] == 1 else commit_packet_v2(packet_v2(case))


def commit_packet_columns(case: dict[str, Any]) -> bytes:
    """Commit to one packet with the functions that take columns."""
    if case["version"] == 1:
        *numbers, data = packet_v1(case)
        time, revision, height = (np.array([number], dtype=np.uint64) for number in numbers)
        return commitments.commit_packets_v1(time, revision, height, pa.array([data], pa.binary())).tobytes()
    packet = packet_v2(case)
    texts = {name: pa.array([getattr(payload, name) for payload in packet.payloads]) for name in TEXTS}
    values = pa.array([payload.value for payload in packet.payloads], pa.binary())
    return commitments.commit_packets_v2(
        pa.array([packet.destination_client]),
        np.array([packet.timeout_timestamp], dtype=np.uint64),
        commitments.hash_payloads(value=values, **texts),
        group_rows(np.zeros(len(values))),
    ).tobytes()


def commit_acknowledgement(case: dict[str, Any]) -> bytes:
    given = decode_all(case["acknowledgements"])
    return commit_acknowledgement_v1(*given) if case["version"] == 1 else commit_acknowledgement_v2(given)


def commit_acknowledgement_columns(case: dict[str, Any]) -> bytes:
    """Commit to the acknowledgements of one packet with the functions that take columns."""
    given = pa.array(decode_all(case["acknowledgements"]), pa.binary())
    if case["version"] == 1:
        return commitments.commit_acknowledgements_v1(given).tobytes()
    return commitments.commit_acknowledgements_v2(given, group_rows(np.zeros(len(given)))).tobytes()


def test_every_commitment(vectors: dict[str, Any]) -> None:
    assert len(vectors["packets"]) + len(vectors["acknowledgements"]) == 6
    for case in vectors["packets"]:
        assert commit_packet(case).hex() == commit_packet_columns(case).hex() == case["commitment"], case["case"]
    for case in vectors["acknowledgements"]:
        found = commit_acknowledgement(case).hex()
        assert found == commit_acknowledgement_columns(case).hex() == case["commitment"], case["case"]


def test_every_key(vectors: dict[str, Any]) -> None:
    makers = {
        "commitment": commitments.packet_commitment_key_v2,
        "receipt": commitments.packet_receipt_key_v2,
        "acknowledgement": commitments.packet_acknowledgement_key_v2,
    }
    assert len(vectors["keys"]) == 3
    for case in vectors["keys"]:
        client, sequence = case["client"], case["sequence"]
        key = makers[case["kind"]](client, sequence)
        assert key.hex() == case["key"]
        parsed = commitments.parse_packet_key_v2(key)
        assert (parsed.client, parsed.sequence) == (client, sequence)


def test_error_acknowledgement(vectors: dict[str, Any]) -> None:
    case = next(case for case in vectors["acknowledgements"] if case["case"] == "v2_error_acknowledgement")
    assert case["acknowledgements"] == [UNIVERSAL_ERROR_ACKNOWLEDGEMENT.hex()]
