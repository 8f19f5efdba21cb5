"""Encode and decode certificates and the canister ranges in them (IC reference 2.9, 7).

A certificate is a CBOR map of ``tree``, ``signature`` and, unless the root subnet signed, ``delegation``: a map of
``subnet_id`` and ``certificate``, another certificate in a byte string. The self-describing tag may be missing and
``delegation`` may be null, as in deployed certificates. Entries come in any order, since the specification gives none
and encoders differ; other entries are rejected.

**Canister ranges** in a delegation (certificates.json): a leaf of ranges is a CBOR list of pairs of canister ids, both
ends included. It stands at ``subnet / <subnet id> / canister_ranges`` or, from certification version V21 on, in pieces
at ``canister_ranges / <subnet id> / <first canister id of the piece>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from causeway_proofs.ic import bls
from causeway_proofs.ic.cbor_reader import ARRAY, MAP, SELF_DESCRIBED, CborReader, cbor_bytes, cbor_head, cbor_text
from causeway_proofs.ic.errors import CanisterOutOfRange, CanisterRangesNotProven, MalformedCertificate, MalformedRanges
from causeway_proofs.ic.hash_tree import HashTree, digest, domain_separator, encode_tree, leaves, read_tree
from causeway_proofs.ic.lookup import LookupStatus, lookup_path, lookup_subtree, require_value
from causeway_proofs.ic.primitives import decode_leb128
from causeway_proofs.limits import MAX_PROOF_BYTES, require_length

MAX_ID_BYTES = 29
"""Longest id of a canister or subnet."""

CANISTER_RANGES = b"canister_ranges"
SUBNET = b"subnet"

Range: TypeAlias = tuple[bytes, bytes]
"""First and last canister id, both included; ids compare as bytes."""


def encode_ranges(ranges: Iterable[Range]) -> bytes:
    """Encode a leaf of ``ranges`` with the self-describing tag, as deployed leaves.

    Args:
        ranges: the ranges.

    Returns:
        The leaf.
    """
    pairs = [cbor_head(ARRAY, 2) + cbor_bytes(first) + cbor_bytes(last) for first, last in ranges]
    return SELF_DESCRIBED + cbor_head(ARRAY, len(pairs)) + b"".join(pairs)


def decode_ranges(data: bytes) -> tuple[Range, ...]:
    """Decode a leaf of ranges, with or without the self-describing tag.

    Args:
        data: the leaf.

    Returns:
        The ranges.

    Raises:
        MalformedRanges: ``data`` is not a list of ranges, an id exceeds 29 bytes, or a range is reversed.
    """
    reader = CborReader(data, "the leaf of canister ranges", MalformedRanges)
    reader.skip_self_description()
    ranges = []
    for _ in range(reader.head(ARRAY)):
        if reader.head(ARRAY) != 2:
            raise reader.wrong("has a range that is not a pair")
        first, last = reader.byte_string(), reader.byte_string()
        if max(len(first), len(last)) > MAX_ID_BYTES or first > last:
            raise reader.wrong(f"has a range from {first[:32].hex()} to {last[:32].hex()}")
        ranges.append((first, last))
    reader.end()
    return tuple(ranges)


def canister_ranges(tree: HashTree, subnet_id: bytes) -> tuple[Range, ...] | None:
    """Return the ranges of a subnet shown by a delegation's tree.

    Pruned pieces are missing from the result, so it proves presence of canisters, not absence. If the tree has pieces
    of the newer form, the older leaf is ignored, as in deployed clients.

    Args:
        tree: the delegation's tree.
        subnet_id: the subnet.

    Returns:
        The ranges, ascending, or None if the tree shows none.

    Raises:
        MalformedRanges: a leaf is not a list of ranges.
    """
    pieces = lookup_subtree(tree, [CANISTER_RANGES, subnet_id]).subtree
    if pieces is not None:
        pieces_shown = [value for path, value in leaves(pieces) if len(path) == 1]
        if pieces_shown:
            return tuple(sorted(entry for value in pieces_shown for entry in decode_ranges(value)))
    older = lookup_path(tree, [SUBNET, subnet_id, CANISTER_RANGES])
    return tuple(sorted(decode_ranges(older.value))) if older.status is LookupStatus.FOUND else None


def require_in_ranges(tree: HashTree, subnet_id: bytes, canister_id: bytes) -> Range:
    """Return the range of ``subnet_id`` with ``canister_id`` in a delegation's ``tree``.

    Raises:
        CanisterRangesNotProven: the tree shows no ranges of the subnet.
        CanisterOutOfRange: no shown range contains the canister.
        MalformedRanges: a leaf is not a list of ranges.
    """
    ranges = canister_ranges(tree, subnet_id)
    if ranges is None:
        raise CanisterRangesNotProven(f"the delegation shows no canister ranges of subnet {subnet_id.hex()}")
    for first, last in ranges:
        if first <= canister_id <= last:
            return first, last
    raise CanisterOutOfRange(f"canister {canister_id.hex()} is in none of the ranges shown of subnet {subnet_id.hex()}")


def range_pieces(ranges: Sequence[Range], size: int) -> Mapping[bytes, bytes]:
    """Build ``canister_ranges / <subnet id>``: up to ``size`` ranges under their first id."""
    ordered = sorted(ranges)
    return {ordered[start][0]: encode_ranges(ordered[start : start + size]) for start in range(0, len(ordered), size)}


STATE_ROOT_DOMAIN = domain_separator("ic-state-root")
TIME = b"time"

_TREE, _SIGNATURE, _DELEGATION = "tree", "signature", "delegation"
_SUBNET_ID, _CERTIFICATE = "subnet_id", "certificate"


@dataclass(frozen=True, slots=True)
class Delegation:
    """The root subnet's certification of another subnet's key.

    Attributes:
        subnet_id: the other subnet.
        certificate: the encoded certificate with its key.
    """

    subnet_id: bytes
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Certificate:
    """A decoded, unverified certificate.

    Attributes:
        tree: the pruned state tree, well formed.
        signature: of the tree's root; 48 bytes if valid.
        delegation: the source of the signer's key; None for the root subnet.
    """

    tree: HashTree
    signature: bytes
    delegation: Delegation | None = None


def certification_message(root: bytes) -> bytes:
    """Return the message that a subnet signs to certify a state.

    Args:
        root: digest of the state, 32 bytes.

    Returns:
        The signed message.
    """
    return STATE_ROOT_DOMAIN + root


def verify_state_root(root: bytes, signature: bytes, public_key: bytes) -> None:
    """Verify that ``signature`` certifies the state with the digest ``root``.

    Args:
        root: digest of the state, 32 bytes.
        signature: 48 bytes.
        public_key: 96 bytes.

    Raises:
        MalformedSignature, MalformedKey, InvalidSignature: as ``bls.verify``.
    """
    bls.verify(signature, certification_message(root), public_key)


def read_time(tree: HashTree) -> int:
    """Return the time in the leaf ``time`` of a state tree, in nanoseconds since 1970.

    Raises:
        PathNotProven: the tree does not show the leaf.
        MalformedTime: the leaf is not a 64-bit LEB128 number.
    """
    return decode_leb128(require_value(tree, [TIME]))


def encode_certificate(certificate: Certificate, *, self_described: bool = True) -> bytes:
    """Encode a certificate with the deployed order of entries, absent ones omitted.

    Args:
        certificate: the certificate.
        self_described: prepend the self-describing tag.

    Returns:
        The encoding.
    """
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
    """Decode a certificate without verifying its signature or delegation.

    Args:
        data: the encoding.
        max_bytes: most bytes.

    Returns:
        The certificate.

    Raises:
        OverLimit: ``data`` exceeds ``max_bytes``, or its tree has too many nodes or (``TooDeepRecursion``) levels.
        MalformedCertificate: ``data`` is not a certificate, or not in the shortest CBOR.
        NotWellFormed: its tree is impossible in a state.
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


def tree_root(certificate: Certificate) -> bytes:
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
    """Yield a map's keys, each of ``known`` at most once.

    The consumer reads each value before the next key.
    """
    present: set[str] = set()
    for _ in range(reader.head(MAP)):
        name = reader.text()
        if name not in known or name in present:
            raise reader.wrong(f"has an entry {name[:32]!r} that is unknown or repeated: {', '.join(known)} are read")
        present.add(name)
        yield name
