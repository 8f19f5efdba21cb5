"""Encodings that no kernel writes alone: parts of messages, cycles, and leaves about a subnet (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway_proofs.ic.errors import DecodeError
from causeway_proofs.ic.messages import (
    Payload,
    RejectContext,
    StreamRefund,
    StreamRequest,
    StreamResponse,
    _payload_item,
    _read_payload,
    _read_refund,
    _read_reject,
    _read_request,
    _read_response,
    _refund_item,
    _reject_item,
    _request_item,
    _response_item,
)
from causeway_proofs.ic.packed_cbor import (
    Fields,
    cycles_item,
    funds_item,
    read_cycles,
    read_funds,
    read_item,
    require_same,
    require_unsigned,
    write_item,
)
from causeway_proofs.ic.primitives import CURRENT, CertificationVersion
from causeway_proofs.ic.state_columns import SystemMetadata, encode_system_metadata

SUBNET_METRICS = ("num_canisters", "canister_state_bytes", "consumed_cycles_total", "update_transactions_total")


SYSTEM_METADATA = ("deprecated_id_counter", "prev_state_hash")


@dataclass(frozen=True, slots=True)
class SubnetMetrics:
    """What a subnet did so far: canisters, bytes of their state, cycles used (below 2^128), transactions."""

    num_canisters: int
    canister_state_bytes: int
    consumed_cycles_total: int
    update_transactions_total: int


def encode_subnet_metrics(metrics: SubnetMetrics) -> bytes:
    """Return the canonical encoding of ``metrics``, the same at all certification versions.

    Raises:
        EncodeError: a number is out of range.
    """
    return write_item(
        {
            0: require_unsigned(metrics.num_canisters, "SubnetMetrics: num_canisters"),
            1: require_unsigned(metrics.canister_state_bytes, "SubnetMetrics: canister_state_bytes"),
            2: cycles_item(metrics.consumed_cycles_total, "SubnetMetrics: consumed_cycles_total", always_high=True),
            3: require_unsigned(metrics.update_transactions_total, "SubnetMetrics: update_transactions_total"),
        }
    )


def decode_subnet_metrics(data: bytes) -> SubnetMetrics:
    """Return the metrics that ``data`` is the canonical encoding of.

    Raises:
        OverLimit: ``data`` is too long.
        DecodeError: it is no such encoding.
    """
    fields = Fields(read_item(data, "SubnetMetrics"), "SubnetMetrics", SUBNET_METRICS)
    metrics = SubnetMetrics(
        fields.unsigned("num_canisters"),
        fields.unsigned("canister_state_bytes"),
        read_cycles(fields.item("consumed_cycles_total")),
        fields.unsigned("update_transactions_total"),
    )
    require_same(data, encode_subnet_metrics(metrics), "SubnetMetrics")
    return metrics


def decode_system_metadata(data: bytes) -> SystemMetadata:
    """Return the metadata that ``data`` is the canonical encoding of.

    Raises:
        OverLimit: ``data`` is too long.
        DecodeError: it is no such encoding.
    """
    fields = Fields(read_item(data, "SystemMetadata"), "SystemMetadata", SYSTEM_METADATA)
    if "deprecated_id_counter" in fields:
        raise DecodeError("SystemMetadata: field `deprecated_id_counter` is populated")
    digest = bytes(fields.numbers("prev_state_hash", 8)) if "prev_state_hash" in fields else None
    metadata = SystemMetadata(digest)
    require_same(data, encode_system_metadata(metadata), "SystemMetadata")
    return metadata


def encode_cycles(amount: int) -> bytes:
    """Return the encoding of an amount of cycles (0 to 2^128 - 1).

    Raises:
        EncodeError: it is out of range.
    """
    return write_item(cycles_item(amount, "Cycles"))


def decode_cycles(data: bytes) -> int:
    """Return the amount of cycles that ``data`` encodes.

    Raises:
        DecodeError: it is no canonical encoding of any.
    """
    amount = read_cycles(read_item(data, "Cycles"))
    require_same(data, encode_cycles(amount), "Cycles")
    return amount


def encode_funds(amount: int) -> bytes:
    """Return the encoding of an amount of cycles as messages carried it up to certification version 22.

    Raises:
        EncodeError: it is out of range.
    """
    return write_item(funds_item(amount, "Funds"))


def decode_funds(data: bytes) -> int:
    """Return the amount of cycles in the form of messages up to certification version 22.

    Raises:
        DecodeError: it is no canonical encoding of any.
    """
    amount = read_funds(read_item(data, "Funds"))
    require_same(data, encode_funds(amount), "Funds")
    return amount


def encode_request(request: StreamRequest, version: CertificationVersion = CURRENT) -> bytes:
    """Return the encoding of the struct ``Request`` alone; errors as of ``encode_stream_message``."""
    return write_item(_request_item(request, version))


def decode_request(data: bytes, version: CertificationVersion = CURRENT) -> StreamRequest:
    """Return the struct ``Request`` that ``data`` encodes; errors as of ``decode_stream_message``."""
    request = _read_request(read_item(data, "Request"), version)
    require_same(data, encode_request(request, version), "Request")
    return request


def encode_response(response: StreamResponse, version: CertificationVersion = CURRENT) -> bytes:
    """Return the encoding of the struct ``Response`` alone; errors as of ``encode_stream_message``."""
    return write_item(_response_item(response, version))


def decode_response(data: bytes, version: CertificationVersion = CURRENT) -> StreamResponse:
    """Return the struct ``Response`` that ``data`` encodes; errors as of ``decode_stream_message``."""
    response = _read_response(read_item(data, "Response"), version)
    require_same(data, encode_response(response, version), "Response")
    return response


def encode_refund(refund: StreamRefund) -> bytes:
    """Return the encoding of the struct ``Refund`` alone; errors as of ``encode_stream_message``."""
    return write_item(_refund_item(refund))


def decode_refund(data: bytes) -> StreamRefund:
    """Return the struct ``Refund`` that ``data`` encodes; errors as of ``decode_stream_message``."""
    refund = _read_refund(read_item(data, "Refund"))
    require_same(data, encode_refund(refund), "Refund")
    return refund


def encode_payload(payload: Payload) -> bytes:
    """Return the encoding of the struct ``Payload`` alone; errors as of ``encode_stream_message``."""
    return write_item(_payload_item(payload))


def decode_payload(data: bytes) -> Payload:
    """Return the struct ``Payload`` that ``data`` encodes; errors as of ``decode_stream_message``."""
    payload = _read_payload(read_item(data, "Payload"))
    require_same(data, encode_payload(payload), "Payload")
    return payload


def encode_reject_context(context: RejectContext) -> bytes:
    """Return the encoding of the struct ``RejectContext`` alone; errors as of ``encode_stream_message``."""
    return write_item(_reject_item(context))


def decode_reject_context(data: bytes) -> RejectContext:
    """Return the struct ``RejectContext`` that ``data`` encodes; errors as of ``decode_stream_message``."""
    context = _read_reject(read_item(data, "RejectContext"))
    require_same(data, encode_reject_context(context), "RejectContext")
    return context
