"""The canonical encodings against those of the deployed system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from causeway_proofs.ic.errors import DecodeError, NotInColumns
from causeway_proofs.ic.messages import (
    Data,
    Payload,
    RejectContext,
    RequestMetadata,
    StreamRefund,
    StreamRejectCode,
    StreamRequest,
    StreamResponse,
    decode_stream_message,
    encode_stream_message,
)
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.state_columns import SystemMetadata, encode_system_metadata
from causeway_proofs.ic.stream_columns import decode_stream_headers, decode_stream_messages, encode_stream_messages
from causeway_proofs.ic.stream_header import (
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)

from tests.oracles.ic.encodings import (
    SubnetMetrics,
    decode_payload,
    decode_subnet_metrics,
    decode_system_metadata,
    encode_subnet_metrics,
)
from tests.vectors import load_vectors

MESSAGES = ("request", "response", "refund")
"""Kinds of messages in a stream."""


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    loaded: dict[str, Any] = load_vectors("ic_encodings")
    return loaded


def request(value: dict[str, Any]) -> StreamRequest:
    return StreamRequest(
        receiver=bytes.fromhex(value["receiver"]),
        sender=bytes.fromhex(value["sender"]),
        sender_reply_callback=value["callback"],
        cycles_payment=int(value["cycles"]),
        method_name=value["method"],
        method_payload=bytes.fromhex(value["payload"]),
        metadata=RequestMetadata(*value["call_tree"]),
        deadline=value["deadline"],
    )


def response(value: dict[str, Any]) -> StreamResponse:
    payload: Payload
    if "data" in value:
        payload = Data(bytes.fromhex(value["data"]))
    else:
        code, name, message = value["reject"]
        payload = RejectContext(StreamRejectCode[name], message)
        assert payload.code == code
    return StreamResponse(
        originator=bytes.fromhex(value["originator"]),
        respondent=bytes.fromhex(value["respondent"]),
        originator_reply_callback=value["callback"],
        cycles_refund=int(value["cycles"]),
        payload=payload,
        deadline=value["deadline"],
    )


def header(value: dict[str, Any]) -> StreamHeader:
    signals = tuple(RejectSignal(index, RejectReason[reason]) for index, reason in value["rejects"])
    return StreamHeader(value["begin"], value["end"], value["signals_end"], signals, flags=StreamFlags(value["flags"]))


def metrics(value: dict[str, Any]) -> SubnetMetrics:
    return SubnetMetrics(
        num_canisters=value["canisters"],
        canister_state_bytes=value["state_bytes"],
        consumed_cycles_total=int(value["cycles"]),
        update_transactions_total=value["transactions"],
    )


def built(kind: str, value: dict[str, Any]) -> Any:
    match kind:
        case "stream_header":
            return header(value)
        case "subnet_metrics":
            return metrics(value)
        case "system_metadata":
            return SystemMetadata(bytes.fromhex(value["previous_hash"]))
        case "request":
            return request(value)
        case "refund":
            return StreamRefund(bytes.fromhex(value["recipient"]), int(value["cycles"]))
        case _:
            assert kind == "response"
            return response(value)


def encode(value: Any, version: CertificationVersion) -> bytes:
    match value:
        case StreamHeader():
            return encode_stream_header(value, version)
        case SubnetMetrics():
            return encode_subnet_metrics(value)
        case SystemMetadata():
            return encode_system_metadata(value)
        case _:
            return encode_stream_message(value, version)


def decoder(kind: str) -> Callable[[bytes, CertificationVersion], Any]:
    decoders: dict[str, Callable[[bytes, CertificationVersion], Any]] = {
        "stream_header": decode_stream_header,
        "subnet_metrics": lambda data, version: decode_subnet_metrics(data),
        "system_metadata": lambda data, version: decode_system_metadata(data),
        "message": decode_stream_message,
        "payload": lambda data, version: decode_payload(data),
    }
    return decoders["message" if kind in MESSAGES else kind]


def versions(case: dict[str, Any]) -> list[CertificationVersion]:
    first, last = case["versions"]
    return [version for version in CertificationVersion if first <= version and (last is None or version <= last)]


def test_values_have_the_encodings_of_the_deployed_system(vectors: dict[str, Any]) -> None:
    checked = 0
    for case in vectors["encodings"]:
        value, encoded = built(case["kind"], case["value"]), bytes.fromhex(case["cbor"])
        for version in versions(case):
            assert encode(value, version) == encoded, (case["name"], version)
            assert decoder(case["kind"])(encoded, version) == value, (case["name"], version)
            checked += 1
    assert checked >= 14


def test_cycles_use_another_field_from_version_23_on(vectors: dict[str, Any]) -> None:
    """An encoding of one side of the change is none of the other."""
    for case in vectors["encodings"]:
        if case["kind"] not in ("request", "response"):
            continue
        before = case["versions"][1] == 22
        for version in CertificationVersion:
            if (version <= 22) != before:
                with pytest.raises(DecodeError):
                    decode_stream_message(bytes.fromhex(case["cbor"]), version)


def test_malformed_encodings_are_refused_with_the_deployed_texts(vectors: dict[str, Any]) -> None:
    for case in vectors["malformed"]:
        for version in (CertificationVersion.V23, CertificationVersion.V25, CertificationVersion.V26):
            with pytest.raises(DecodeError) as refused:
                decoder(case["kind"])(bytes.fromhex(case["cbor"]), version)
            assert case["error"] in str(refused.value), case["change"]


def test_columns_have_the_values_and_texts_of_the_deployed_system(vectors: dict[str, Any]) -> None:
    """The decoders by columns, of all vectors of one type and version together."""
    decoders: dict[str, Any] = {"stream_header": decode_stream_headers, "message": decode_stream_messages}
    accepted = 0
    for version in CertificationVersion:
        for kind, decode in decoders.items():
            good = [
                case
                for case in vectors["encodings"]
                if ("message" if case["kind"] in MESSAGES else case["kind"]) == kind and version in versions(case)
            ]
            bad = [case for case in vectors["malformed"] if case["kind"] == kind and version >= 23]
            found = decode(pa.array([bytes.fromhex(case["cbor"]) for case in good + bad], pa.binary()), version)
            for row, case in enumerate(bad, len(good)):
                assert case["error"] in str(found.errors[row]), case["change"]
            for row, case in enumerate(good):
                error = found.errors.get(row)
                assert error is None or isinstance(error, NotInColumns), (case["name"], error)
                accepted += error is None
                if kind == "stream_header":
                    value = case["value"]
                    assert (found.begin[row], found.end[row]) == (value["begin"], value["end"])
                    reasons = [RejectReason(reason).name for reason in found.reject_reason[found.reject_row == row]]
                    indexes = found.reject_index[found.reject_row == row].tolist()
                    assert sorted(zip(indexes, reasons, strict=True)) == sorted(map(tuple, value["rejects"]))
                elif error is None:
                    columns = {name: column[row : row + 1] for name, column in found.columns.items()}
                    assert encode_stream_messages(columns, version).to_pylist() == [bytes.fromhex(case["cbor"])]
    assert accepted >= 14
