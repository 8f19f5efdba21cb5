"""Certificates: a pruned state tree, the signature of its root, and who gave the signer's key (IC reference 2.9, 7).

A certificate is a CBOR map of ``tree``, ``signature`` and, unless the root subnet signed, ``delegation``: a map of
``subnet_id`` and ``certificate``, another certificate in a byte string. The self-describing tag in front may be missing
and ``delegation`` may be null: both are found in deployed certificates. The entries may come in any order, since the
specification gives none and encoders differ; no other entry is read.

Which canisters a subnet hosts, as a delegation shows it (IC reference 2.9 and 7, certificates.json).

A leaf of ranges is a CBOR list of pairs of canister ids, both ends included. It stands at
``subnet / <subnet id> / canister_ranges``, or, from certification version V21 on, in pieces at
``canister_ranges / <subnet id> / <first canister id of the piece>``.
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
"""The first and the last canister id, both included; ids are compared as bytes."""


def encode_ranges(ranges: Iterable[Range]) -> bytes:
    """Return a leaf of ``ranges``, with the self-describing tag that deployed leaves carry."""
    pairs = [cbor_head(ARRAY, 2) + cbor_bytes(first) + cbor_bytes(last) for first, last in ranges]
    return SELF_DESCRIBED + cbor_head(ARRAY, len(pairs)) + b"".join(pairs)


def decode_ranges(data: bytes) -> tuple[Range, ...]:
    """Return the ranges that the leaf ``data`` lists, with or without the self-describing tag.

    Raises:
        MalformedRanges: it lists something else, an id of more than 29 bytes or a range that ends before its beginning.
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
    """Return the ranges of ``subnet_id`` that a delegation's ``tree`` shows, ascending; None when it shows none.

    Pieces that are pruned away are missing from the result: it says where canisters are, not where they are not. Where
    the tree has pieces of the newer form, the older leaf is not read, as deployed clients do.

    Raises:
        MalformedRanges: a leaf is no list of ranges.
    """
    pieces = lookup_subtree(tree, [CANISTER_RANGES, subnet_id]).subtree
    if pieces is not None:
        shown = [value for path, value in leaves(pieces) if len(path) == 1]
        if shown:
            return tuple(sorted(entry for value in shown for entry in decode_ranges(value)))
    older = lookup_path(tree, [SUBNET, subnet_id, CANISTER_RANGES])
    return tuple(sorted(decode_ranges(older.value))) if older.status is LookupStatus.FOUND else None


def require_in_ranges(tree: HashTree, subnet_id: bytes, canister_id: bytes) -> Range:
    """Return the range of ``subnet_id`` in a delegation's ``tree`` that has ``canister_id``.

    Raises:
        CanisterRangesNotProven: the tree shows no ranges of the subnet.
        CanisterOutOfRange: none of those shown has the canister.
        MalformedRanges: a leaf is no list of ranges.
    """
    ranges = canister_ranges(tree, subnet_id)
    if ranges is None:
        raise CanisterRangesNotProven(f"the delegation shows no canister ranges of subnet {subnet_id.hex()}")
    for first, last in ranges:
        if first <= canister_id <= last:
            return first, last
    raise CanisterOutOfRange(f"canister {canister_id.hex()} is in none of the ranges shown of subnet {subnet_id.hex()}")


def range_pieces(ranges: Sequence[Range], size: int) -> Mapping[bytes, bytes]:
    """Return the subtree ``canister_ranges / <subnet id>``: leaves of up to ``size`` ranges under their first id."""
    ordered = sorted(ranges)
    return {ordered[start][0]: encode_ranges(ordered[start : start + size]) for start in range(0, len(ordered), size)}


STATE_ROOT_DOMAIN = domain_separator("ic-state-root")
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


def read_time(tree: HashTree) -> int:
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
    """Read a map's keys, each of ``known`` at most once; whoever asks for the next has read the value of the last."""
    seen: set[str] = set()
    for _ in range(reader.head(MAP)):
        name = reader.text()
        if name not in known or name in seen:
            raise reader.wrong(f"has an entry {name[:32]!r} that is unknown or repeated: {', '.join(known)} are read")
        seen.add(name)
        yield name
