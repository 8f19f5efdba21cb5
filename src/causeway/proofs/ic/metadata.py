"""Leaves about a subnet: its metrics, and the link to the state before (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.proofs.ic.cbor import Fields, read_item, require_same, require_unsigned, write_item
from causeway.proofs.ic.cycles import cycles_item, read_cycles
from causeway.proofs.ic.errors import DecodeError

SUBNET_METRICS = ("num_canisters", "canister_state_bytes", "consumed_cycles_total", "update_transactions_total")
SYSTEM_METADATA = ("deprecated_id_counter", "prev_state_hash")


@dataclass(frozen=True, slots=True)
class SubnetMetrics:
    """What a subnet did so far: canisters, bytes of their state, cycles used (below 2^128), transactions."""

    num_canisters: int
    canister_state_bytes: int
    consumed_cycles_total: int
    update_transactions_total: int


@dataclass(frozen=True, slots=True)
class SystemMetadata:
    """The hash of the state before; None in the first."""

    prev_state_hash: bytes | None = None


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


def encode_system_metadata(metadata: SystemMetadata) -> bytes:
    """Return the canonical encoding of ``metadata``: the hash as an array of numbers, not as a byte string.

    A leaf up to certification version 23; a subtree of leaves from 24 on.
    """
    return write_item({} if metadata.prev_state_hash is None else {1: list(metadata.prev_state_hash)})


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
