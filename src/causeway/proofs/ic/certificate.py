"""Certificates: a pruned state tree, the signature of its root, and who gave the signer's key (IC reference 2.9, 7).

A certificate is a CBOR map of ``tree``, ``signature`` and, unless the root subnet signed, ``delegation``: a map of
``subnet_id`` and ``certificate``, another certificate in a byte string. The self-describing tag in front may be missing
and ``delegation`` may be null: both are found in deployed certificates. The entries may come in any order, since the
specification gives none and encoders differ; no other entry is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from causeway.proofs.ic import bls
from causeway.proofs.ic.cbor_reader import MAP, SELF_DESCRIBED, CborReader, cbor_bytes, cbor_head, cbor_text
from causeway.proofs.ic.digests import domain
from causeway.proofs.ic.errors import MalformedCertificate
from causeway.proofs.ic.hash_tree import HashTree, digest
from causeway.proofs.ic.hash_tree_cbor import encode_tree, read_tree
from causeway.proofs.ic.leb128 import decode_leb128
from causeway.proofs.ic.lookup import require_value
from causeway.proofs.ic.ranges import MAX_ID_BYTES
from causeway.proofs.limits import MAX_PROOF_BYTES, require_length

STATE_ROOT_DOMAIN = domain("ic-state-root")
TIME = b"time"

_TREE, _SIGNATURE, _DELEGATION = "tree", "signature", "delegation"
_SUBNET_ID, _CERTIFICATE = "subnet_id", "certificate"


@dataclass(frozen=True, slots=True)
class Delegation:
    """The root subnet's word for another subnet's key: ``certificate`` is the encoded certificate that holds it."""

    subnet_id: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate as it was read, nothing verified yet.

    Attributes:
        tree: the state tree, pruned, well formed.
        signature: of the tree's root, 48 bytes when it is one.
        delegation: where the signer's key is from; None for the root subnet.
    """

    tree: HashTree
    signature: bytes
    delegation: Delegation | None = None


def certification_message(root: bytes) -> bytes:
    """Return what a subnet signs to certify the state with the digest ``root``."""
    return STATE_ROOT_DOMAIN + root


def verify_state_root(root: bytes, signature: bytes, public_key: bytes) -> None:
    """Return when ``signature`` certifies the state with the digest ``root`` under ``public_key`` (96 bytes).

    Raises:
        MalformedSignature, MalformedKey, InvalidSignature: as of ``bls.verify``.
    """
    bls.verify(signature, certification_message(root), public_key)


def time_of(tree: HashTree) -> int:
    """Return the time in the leaf ``time`` of a state tree, in nanoseconds since 1970.

    Raises:
        PathNotProven: there is no such leaf.
        MalformedTime: it is no LEB128 number of 64 bits.
    """
    return decode_leb128(require_value(tree, [TIME]))


def encode_certificate(certificate: Certificate, *, self_described: bool = True) -> bytes:
    """Return ``certificate`` as the deployed system writes it: entries in its order, absent ones left out."""
    entries = [
        cbor_text(_TREE) + encode_tree(certificate.tree),
        cbor_text(_SIGNATURE) + cbor_bytes(certificate.signature),
    ]
    if certificate.delegation is not None:
        entries.append(
            cbor_text(_DELEGATION)
            + cbor_head(MAP, 2)
            + cbor_text(_SUBNET_ID)
            + cbor_bytes(certificate.delegation.subnet_id)
            + cbor_text(_CERTIFICATE)
            + cbor_bytes(certificate.delegation.certificate)
        )
    body = cbor_head(MAP, len(entries)) + b"".join(entries)
    return SELF_DESCRIBED + body if self_described else body


def decode_certificate(data: bytes, max_bytes: int = MAX_PROOF_BYTES) -> Certificate:
    """Return the certificate that ``data`` is; its signature and delegation are still to be verified.

    Raises:
        OverLimit: ``data`` is longer than ``max_bytes``, or its tree has too many nodes, or (``TooDeepRecursion``) is
            nested too deeply.
        MalformedCertificate: it is no certificate, or not in the shortest CBOR.
        NotWellFormed: its tree is one that no state has.
    """
    require_length(data, "the certificate", max_bytes)
    reader = CborReader(bytes(data), "the certificate", MalformedCertificate)
    reader.skip_self_description()
    tree: HashTree | None = None
    signature: bytes | None = None
    delegation: Delegation | None = None
    for name in _entries(reader, (_TREE, _SIGNATURE, _DELEGATION)):
        if name == _TREE:
            tree = read_tree(reader)
        elif name == _SIGNATURE:
            signature = reader.byte_string()
        elif not reader.null():
            delegation = _read_delegation(reader)
    reader.end()
    if tree is None or signature is None:
        raise reader.wrong("lacks its tree or its signature")
    return Certificate(tree, signature, delegation)


def root_of(certificate: Certificate) -> bytes:
    """Return the digest of the certificate's tree, 32 bytes."""
    return digest(certificate.tree)


def _read_delegation(reader: CborReader) -> Delegation:
    fields = {name: reader.byte_string() for name in _entries(reader, (_SUBNET_ID, _CERTIFICATE))}
    if len(fields) != 2:
        raise reader.wrong("has a delegation without subnet_id or certificate")
    if len(fields[_SUBNET_ID]) > MAX_ID_BYTES:
        raise reader.wrong(f"has a subnet_id of {len(fields[_SUBNET_ID])} bytes, ids have at most {MAX_ID_BYTES}")
    return Delegation(fields[_SUBNET_ID], fields[_CERTIFICATE])


def _entries(reader: CborReader, known: tuple[str, ...]) -> Iterator[str]:
    """Read a map's keys, each of ``known`` at most once; whoever asks for the next has read the value of the last."""
    seen: set[str] = set()
    for _ in range(reader.head(MAP)):
        name = reader.text()
        if name not in known or name in seen:
            raise reader.wrong(f"has an entry {name[:32]!r} that is unknown or repeated: {', '.join(known)} are read")
        seen.add(name)
        yield name
