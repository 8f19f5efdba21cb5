"""Proof and trust documents under arbitrary bytes: every error is bad input or a false proof."""

from __future__ import annotations

import json
from collections.abc import Callable

from causeway_proofs.documents.trust import parse_trust_object
from causeway_proofs.documents.validation import parse_object
from causeway_proofs.documents.verification import build_document, verify_document
from causeway_proofs.errors import InvalidInput

from tests.support.common.proof_documents import documents

_DOCUMENTS = documents()
_WITH_PROOF = [name for name, found in _DOCUMENTS.items() if isinstance(found.get("proof"), str)]


def document(data: bytes) -> None:
    try:
        reading = build_document(parse_object(data, "file"), "file")
        verdict = verify_document(reading, self_consistent=True)
    except InvalidInput:
        return
    json.dumps(verdict.as_json())


def document_with_proof(data: bytes) -> None:
    """The first byte tells the document, the others are its proof."""
    if not data:
        return
    name = _WITH_PROOF[data[0] % len(_WITH_PROOF)]
    try:
        verdict = verify_document(
            build_document({**_DOCUMENTS[name], "proof": data[1:]}, name), strict=True, self_consistent=True
        )
    except InvalidInput:
        return
    assert verdict.valid == (data[1:] == _proof(name))
    json.dumps(verdict.as_json())


def _proof(name: str) -> bytes:
    return bytes.fromhex(_DOCUMENTS[name]["proof"])


def trust(data: bytes) -> None:
    try:
        found = parse_trust_object(parse_object(data, "file"), "file")
    except InvalidInput:
        return
    assert found.subject and found.target is not None


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "document": (document, [json.dumps(found).encode() for found in _DOCUMENTS.values()]),
    "document_with_proof": (
        document_with_proof,
        [bytes([place]) + _proof(name) for place, name in enumerate(_WITH_PROOF)],
    ),
    "trust_document": (
        trust,
        [json.dumps(_DOCUMENTS[name]["trust"]).encode() for name in ("mmr", "ic_certificate", "tendermint_update")],
    ),
}
