"""Proofs taken from a lake as documents: the JSON form that ``causeway verify`` reads."""

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
    """Return the proof (``ics23``) that a key is stored, with its value.

    Raises:
        UnknownKey: it is not there.
    """
    value, proof = store.proved(key)
    return _of_store(store, "ics23", spec="tendermint", key=key.hex(), value=value.hex(), proof=proof.hex())


def absence_document(store: ZoneStore, key: bytes) -> Document:
    """Return the proof (``ics23``) that nothing is stored under a key.

    Raises:
        KnownKey: something is.
    """
    proof: bytes = store.absence_proofs(pa.array([key], pa.binary()))[0].as_py()
    return _of_store(store, "ics23", spec="tendermint", key=key.hex(), value=None, proof=proof.hex())


def run_document(store: ZoneStore, counterparty: str, purpose: QueuePurpose, begin: int, end: int) -> Document:
    """Return the proof (``ics23_range``) of entries ``begin`` to ``end`` - 1 of a queue; errors: ``ZoneStore.run``."""
    entries, proof = store.run(counterparty, purpose, begin, end)
    return _of_store(store, "ics23_range", entries=_listed(entries), proof=proof.hex())


def trust_document(store: ZoneStore) -> Document:
    """Return the store's header as something to be trusted; at height 0, which nobody signs, the root alone."""
    if store.signed is None:
        return {"kind": "root", "root": store.root.hex()}
    return _trusted(store, TrustedHeader.of(store.signed.signed_header.header))


def header_document(store: ZoneStore, trusted_height: int | None = None) -> Document:
    """Return the store's signed header (``tendermint_update``) as one that a trusted header vouches for.

    ``trusted_height``: the trusted header's, by default the one before; its trust document is in the document. Height 0
    is the root of trust that zones have of each other at genesis: it vouches for the validators alone.

    Raises:
        InvalidInput: nobody signs the store's header, or ``trusted_height`` is not below it.
        LakeError: ``trusted_height`` is not committed.
    """
    signed = store.signed
    base = store.height - 1 if trusted_height is None else trusted_height
    if signed is None:
        raise InvalidInput(f"height: {store.height}: its header is not signed; headers are from height 1 on")
    if not 0 <= base < store.height:
        raise InvalidInput(f"trusted height: {base}: allowed are 0 to {store.height - 1}")
    before = store.header_at(base)
    if before is None:
        own = signed.trusted_validators
        trusted = TrustedHeader(0, 0, NO_ROOT, own.hash, own.hash, NO_ROOT)
    else:
        own = before.validators
        trusted = TrustedHeader.of(before.signed_header.header)
    update = HeaderUpdate.on(base, own, signed.signed_header, signed.validators)
    header: Header = signed.signed_header.header
    return {
        "kind": "tendermint_update",
        "now": header.time,
        "height": header.height,
        "app_hash": header.app_hash.hex(),
        "header_hash": header.hash.hex(),
        "proof": update.encode().hex(),
        "trust": _trusted(store, trusted),
    }


def _trusted(store: ZoneStore, header: TrustedHeader) -> Document:
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


def _of_store(store: ZoneStore, kind: str, **fields: Any) -> Document:
    return {"kind": kind, "root": store.root.hex(), **fields}


def _listed(entries: Entries) -> list[dict[str, str]]:
    rows = zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    return [{"key": key.hex(), "value": value.hex()} for key, value in rows]
