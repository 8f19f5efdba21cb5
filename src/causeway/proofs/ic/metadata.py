"""Leaves about a subnet: its metrics, and the link to the state before (IC reference 2.9)."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.proofs.ic.cbor import write_item


@dataclass(frozen=True, slots=True)
class SystemMetadata:
    """The hash of the state before; None in the first."""

    prev_state_hash: bytes | None = None


def encode_system_metadata(metadata: SystemMetadata) -> bytes:
    """Return the canonical encoding of ``metadata``: the hash as an array of numbers, not as a byte string.

    A leaf up to certification version 23; a subtree of leaves from 24 on.
    """
    return write_item({} if metadata.prev_state_hash is None else {1: list(metadata.prev_state_hash)})
