"""IBC proofs as documents: the JSON form that ``causeway verify`` reads."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from causeway_proofs.errors import InvalidInput
from causeway_proofs.ics23.entries import Entries
from causeway_proofs.tendermint.header import Header
from causeway_proofs.tendermint.trust import HeaderUpdate, TrustedHeader

from causeway.protocols.ibc.client import NO_ROOT
from causeway.protocols.ibc.keys import QueuePurpose
from causeway.proving.ibc.store import ZoneStore, read_zones
from causeway.proving.prover import Document


def existence_document(store: ZoneStore, key: bytes) -> Document:
    """Build the proof (``ics23``) that a key is stored, with its value.

    Args:
        store: Store of the zone.
        key: The key.

    Raises:
        UnknownKey: The key is not stored.
    """
    value, proof = store.proved(key)
    return _store_document(store, "ics23", spec="tendermint", key=key.hex(), value=value.hex(), proof=proof.hex())


def absence_document(store: ZoneStore, key: bytes) -> Document:
    """Build the proof (``ics23``) that a key is not stored.

    Args:
        store: Store of the zone.
        key: The key.

    Raises:
        KnownKey: The key is stored.
    """
    proof: bytes = store.absence_proofs(pa.array([key], pa.binary()))[0].as_py()
    return _store_document(store, "ics23", spec="tendermint", key=key.hex(), value=None, proof=proof.hex())


def run_document(store: ZoneStore, counterparty: str, purpose: QueuePurpose, begin: int, end: int) -> Document:
    """Build the proof (``ics23_range``) of entries ``begin`` to ``end`` - 1 of a queue.

    Args:
        store: Store of the zone.
        counterparty: Name of the other zone.
        purpose: Kind of the queue.
        begin: Index of the first entry.
        end: Index after the last entry.

    Raises:
        InvalidInput: The queue is unknown, or lacks one of the entries.
    """
    entries, proof = store.run(counterparty, purpose, begin, end)
    return _store_document(store, "ics23_range", entries=_entry_rows(entries), proof=proof.hex())


def trust_document(store: ZoneStore) -> Document:
    """Build a trust document of the store's header; at the unsigned height 0, of the root."""
    if store.signed is None:
        return {"kind": "root", "root": store.root.hex()}
    return _header_trust(store, TrustedHeader.of(store.signed.signed_header.header))


def header_document(store: ZoneStore, trusted_height: int | None = None) -> Document:
    """Build an update (``tendermint_update``) from a trusted header to the store's header.

    Height 0 is the root of trust that zones have of each other at genesis: it vouches for the validators
    alone.

    Args:
        store: Store of the zone.
        trusted_height: Height of the trusted header, by default the previous one. Its trust document is
            part of the result.

    Raises:
        InvalidInput: The store's header is unsigned, or ``trusted_height`` is not below it.
        LakeError: ``trusted_height`` is not committed.
    """
    signed = store.signed
    base = store.height - 1 if trusted_height is None else trusted_height
    if signed is None:
        raise InvalidInput(f"height: {store.height}: its header is not signed; headers are from height 1 on")
    if not 0 <= base < store.height:
        raise InvalidInput(f"trusted height: {base}: allowed are 0 to {store.height - 1}")
    previous = store.header_at(base)
    if previous is None:
        validators = signed.trusted_validators
        trusted = TrustedHeader(0, 0, NO_ROOT, validators.hash, validators.hash, NO_ROOT)
    else:
        validators = previous.validators
        trusted = TrustedHeader.of(previous.signed_header.header)
    update = HeaderUpdate.on(base, validators, signed.signed_header, signed.validators)
    header: Header = signed.signed_header.header
    return {
        "kind": "tendermint_update",
        "now": header.time,
        "height": header.height,
        "app_hash": header.app_hash.hex(),
        "header_hash": header.hash.hex(),
        "proof": update.encode().hex(),
        "trust": _header_trust(store, trusted),
    }


def _header_trust(store: ZoneStore, header: TrustedHeader) -> Document:
    period = read_zones(store.opened).options.trusting_ns
    return {
        "kind": "tendermint_trust",
        "chain_id": store.chain,
        "height": header.height,
        "time": header.time,
        "root": header.root.hex(),
        "next_validators_hash": header.next_validators_hash.hex(),
        "validators_hash": header.validators_hash.hex(),
        "header_hash": header.header_hash.hex(),
        "rule": "reference",
        "trusting_period": f"{period}ns",
    }


def _store_document(store: ZoneStore, kind: str, **fields: Any) -> Document:
    return {"kind": kind, "root": store.root.hex(), **fields}


def _entry_rows(entries: Entries) -> list[dict[str, str]]:
    rows = zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    return [{"key": key.hex(), "value": value.hex()} for key, value in rows]
