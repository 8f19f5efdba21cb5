"""Certificates taken from a lake as documents: the JSON form that ``causeway verify`` reads."""

from __future__ import annotations

from causeway.proofs.ic.bls import public_key_to_der
from causeway.proofs.ic.principals import principal_to_text
from causeway.proving.ic.state import CertifiedState, Shown
from causeway.proving.prover import Document


def certificate_document(state: CertifiedState, shown: Shown) -> Document:
    """Return a certificate with what it claims (what is at a path, whose state it is, its time), and the key."""
    return {
        "kind": "ic_certificate",
        "subnet_id": principal_to_text(state.subnets.id_of(state.position)),
        "time": shown.time,
        "paths": [{"path": [_label(label) for label in shown.path], "value": shown.value.hex()}],
        "proof": shown.certificate.hex(),
        "trust": trust_document(state),
    }


def trust_document(state: CertifiedState) -> Document:
    """Return the subnet's public key (DER) as something to be trusted."""
    return {
        "kind": "ic_public_key",
        "key": public_key_to_der(state.subnets.key_of(state.position)).hex(),
        "subnet_id": principal_to_text(state.subnets.id_of(state.position)),
    }


def _label(label: bytes) -> str:
    """Return a label as documents write it: the names in a state tree as they are, ids and indices in digits."""
    text = label.decode("ascii") if label.isascii() else ""
    return text if text.replace("_", "").isalpha() else f"0x{label.hex()}"
