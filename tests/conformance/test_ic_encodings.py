"""The canonical encodings against those of the deployed system."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from causeway.proofs.ic.columns import encode_stream_messages
from causeway.proofs.ic.decoded_messages import decode_stream_messages
from causeway.proofs.ic.errors import DecodeError, NotInColumns
from causeway.proofs.ic.header_columns import decode_stream_headers
from causeway.proofs.ic.messages import (
    Data,
    Payload,
    Refund,
    RejectCode,
    RejectContext,
    Request,
    RequestMetadata,
    Response,
    decode_payload,
    decode_stream_message,
    encode_stream_message,
)
from causeway.proofs.ic.metadata import (
    SubnetMetrics,
    SystemMetadata,
    decode_subnet_metrics,
    decode_system_metadata,
    encode_subnet_metrics,
    encode_system_metadata,
)
from causeway.proofs.ic.stream_header import (
    RejectReason,
    RejectSignal,
    StreamFlags,
    StreamHeader,
    decode_stream_header,
    encode_stream_header,
)
from causeway.proofs.ic.versions import CertificationVersion


@pytest.fixture(scope="module")
def vectors(shared_folder: Path) -> dict[str, Any]:
    path = shared_folder / "vectors" / "ic" / "canonical_cbor.json"
    if not path.is_file():
        pytest.skip(f"no vectors at {path}")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def request(value: dict[str, Any]) -> Request:
    return Request(
        receiver=bytes.fromhex(value["receiver"]),
        sender=bytes.fromhex(value["sender"]),
        sender_reply_callback=value["sender_reply_callback"],
        cycles_payment=int(value["cycles_payment"]),
        method_name=value["method_name"],
        method_payload=bytes.fromhex(value["method_payload"]),
        metadata=RequestMetadata(**value["metadata"]),
        deadline=value["deadline_secs"],
    )


def response(value: dict[str, Any]) -> Response:
    given = value["payload"]
    payload: Payload
    if "data" in given:
        payload = Data(bytes.fromhex(given["data"]))
    else:
        reject = given["reject"]
        payload = RejectContext(RejectCode[reject["code_name"]], reject["message"])
        assert payload.code == reject["code"]
    return Response(
        originator=bytes.fromhex(value["originator"]),
        respondent=bytes.fromhex(value["respondent"]),
        originator_reply_callback=value["originator_reply_callback"],
        cycles_refund=int(value["cycles_refund"]),
        payload=payload,
        deadline=value["deadline_secs"],
    )


def header(value: dict[str, Any]) -> StreamHeader:
    signals = tuple(RejectSignal(index, RejectReason[reason]) for reason, index in value["reject_signals"])
    return StreamHeader(value["begin"], value["end"], value["signals_end"], signals, flags=StreamFlags(value["flags"]))


def metrics(value: dict[str, Any]) -> SubnetMetrics:
    return SubnetMetrics(**{**value, "consumed_cycles_total": int(value["consumed_cycles_total"])})


def built(kind: str, value: dict[str, Any]) -> Any:
    match kind:
        case "StreamHeader":
            return header(value)
        case "SubnetMetrics":
            return metrics(value)
        case "SystemMetadata":
            return SystemMetadata(bytes.fromhex(value["prev_state_hash"]))
        case "StreamMessage/Request":
            return request(value)
        case "StreamMessage/Refund":
            return Refund(bytes.fromhex(value["recipient"]), int(value["amount"]))
        case _:
            assert kind.startswith("StreamMessage/Response")
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
        "StreamHeader": decode_stream_header,
        "SubnetMetrics": lambda data, version: decode_subnet_metrics(data),
        "SystemMetadata": lambda data, version: decode_system_metadata(data),
        "StreamMessage": decode_stream_message,
        "Payload": lambda data, version: decode_payload(data),
    }
    return decoders[kind.split("/")[0]]


def versions(case: dict[str, Any]) -> list[CertificationVersion]:
    span = case["certification_versions"]
    last = span["max"] if span["max"] is not None else max(CertificationVersion)
    return [version for version in CertificationVersion if span["min"] <= version <= last]


def test_values_have_the_encodings_of_the_deployed_system(vectors: dict[str, Any]) -> None:
    checked = 0
    for case in vectors["encodings"]:
        value, encoded = built(case["kind"], case["value"]), bytes.fromhex(case["cbor_hex"])
        for version in versions(case):
            assert encode(value, version) == encoded, (case["name"], version)
            assert decoder(case["kind"])(encoded, version) == value, (case["name"], version)
            checked += 1
    assert checked >= 14


def test_from_version_23_on_cycles_are_in_another_field(vectors: dict[str, Any]) -> None:
    """An encoding of one side of the change is none of the other."""
    for case in vectors["encodings"]:
        if case["kind"].split("/")[-1] not in ("Request", "data", "reject"):
            continue
        before = case["certification_versions"]["max"] == 22
        for version in CertificationVersion:
            if (version <= 22) != before:
                with pytest.raises(DecodeError):
                    decode_stream_message(bytes.fromhex(case["cbor_hex"]), version)


def test_broken_encodings_are_refused_with_the_deployed_words(vectors: dict[str, Any]) -> None:
    for case in vectors["negatives"]:
        for version in (CertificationVersion.V23, CertificationVersion.V25, CertificationVersion.V26):
            with pytest.raises(DecodeError) as refused:
                decoder(case["type"])(bytes.fromhex(case["cbor_hex"]), version)
            assert case["error_contains"] in str(refused.value), case["mutation"]


def test_columns_have_the_values_and_the_words_of_the_deployed_system(vectors: dict[str, Any]) -> None:
    """The decoders by columns, of all vectors of one type and version together."""
    decoders: dict[str, Any] = {"StreamHeader": decode_stream_headers, "StreamMessage": decode_stream_messages}
    accepted = 0
    for version in CertificationVersion:
        for kind, decode in decoders.items():
            good = [
                case
                for case in vectors["encodings"]
                if case["kind"].split("/")[0] == kind and version in versions(case)
            ]
            bad = [case for case in vectors["negatives"] if case["type"] == kind and version >= 23]
            found = decode(pa.array([bytes.fromhex(case["cbor_hex"]) for case in good + bad], pa.binary()), version)
            for row, case in enumerate(bad, len(good)):
                assert case["error_contains"] in str(found.errors[row]), case["mutation"]
            for row, case in enumerate(good):
                error = found.errors.get(row)
                assert error is None or isinstance(error, NotInColumns), (case["name"], error)
                accepted += error is None
                if kind == "StreamHeader":
                    value = case["value"]
                    assert (found.begin[row], found.end[row]) == (value["begin"], value["end"])
                    reasons = [RejectReason(reason).name for reason in found.reject_reason[found.reject_row == row]]
                    indexes = found.reject_index[found.reject_row == row].tolist()
                    assert sorted(zip(reasons, indexes, strict=True)) == sorted(map(tuple, value["reject_signals"]))
                elif error is None:
                    columns = {name: column[row : row + 1] for name, column in found.columns.items()}
                    assert encode_stream_messages(columns, version).to_pylist() == [bytes.fromhex(case["cbor_hex"])]
    assert accepted >= 14
