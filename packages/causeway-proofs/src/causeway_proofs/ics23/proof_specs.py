"""Define the proof specs of deployed stores, and the single operations of ICS-23 proofs.

- The three deployed specs: the required shape of a proof under each kind of store. The messages are shared: copy one
  before changing it.
- ``SpecRules``: a spec parsed once into plain values and derived bounds.
- Operations and checks: hashing, length prefixes, leaf and inner operations. Error texts are those of the deployed Go
  implementation.

Reference:
    IBC reference 2.6.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from hashlib import sha256

from Crypto.Hash import RIPEMD160 as _RIPEMD160
from Crypto.Hash import SHA512 as _SHA512
from Crypto.Hash import keccak as _keccak

from causeway_proofs.errors import MOST_SHOWN_BYTES, NotProven
from causeway_proofs.ics23.errors import EmptyOperand, SpecMismatch, UnsupportedOperation
from causeway_proofs.varints import uvarint
from causeway_proofs.wire.ics23_pb2 import HashOp, InnerOp, InnerSpec, LeafOp, LengthOp, ProofSpec

DEFAULT_MAX_DEPTH = 128
"""Longest path, in inner steps, under a spec whose ``max_depth`` is 0."""

IAVL_SPEC = ProofSpec(
    leaf_spec=LeafOp(hash=HashOp.SHA256, prehash_value=HashOp.SHA256, length=LengthOp.VAR_PROTO, prefix=b"\x00"),
    inner_spec=InnerSpec(
        child_order=[0, 1], child_size=33, min_prefix_length=4, max_prefix_length=12, hash=HashOp.SHA256
    ),
    max_depth=DEFAULT_MAX_DEPTH,
)
"""IAVL+ trees: a child is a length byte and a hash; height, size and version come first."""

TENDERMINT_SPEC = ProofSpec(
    leaf_spec=LeafOp(hash=HashOp.SHA256, prehash_value=HashOp.SHA256, length=LengthOp.VAR_PROTO, prefix=b"\x00"),
    inner_spec=InnerSpec(
        child_order=[0, 1], child_size=32, min_prefix_length=1, max_prefix_length=1, hash=HashOp.SHA256
    ),
    max_depth=DEFAULT_MAX_DEPTH,
)
"""The simple Merkle tree of RFC 6962 over sorted keys."""

SMT_SPEC = ProofSpec(
    leaf_spec=LeafOp(
        hash=HashOp.SHA256,
        prehash_key=HashOp.SHA256,
        prehash_value=HashOp.SHA256,
        length=LengthOp.NO_PREFIX,
        prefix=b"\x00",
    ),
    inner_spec=InnerSpec(
        child_order=[0, 1],
        child_size=32,
        min_prefix_length=1,
        max_prefix_length=1,
        empty_child=bytes(32),
        hash=HashOp.SHA256,
    ),
    max_depth=256,
    prehash_key_before_comparison=True,
)
"""Sparse Merkle trees: the path is the hash of the key, an absent sibling is 32 zero bytes."""

PROOF_SPECS = {"iavl": IAVL_SPEC, "tendermint": TENDERMINT_SPEC, "smt": SMT_SPEC}
"""The specs by their names in test vectors and on the command line."""


class StoreForm(Enum):
    """Usual form of a store's proofs, if its spec allows one."""

    SIMPLE = auto()
    IAVL = auto()
    SPARSE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class SpecRules:
    """A parsed proof spec: its fields as plain values, and derived bounds.

    Attributes:
        leaf_hash, prehash_key, prehash_value, length, leaf_prefix: required fields of a leaf operation.
        inner_hash, child_order, child_size, min_prefix_length, max_prefix_length, empty_child: required fields of an
            inner step.
        max_depth: longest path; negative if the spec allows none, as the reference reads it.
        min_depth: shortest path; 0 without a bound.
        prehash_key_before_comparison: order neighbors by the prehashed key.
        longest_prefix: bytes of an inner prefix with all siblings on the child's left.
        fault: the fault of the spec's inner part, or empty.
        has_leaf, has_inner: presence of these parts in the spec.
        is_iavl, is_tendermint: apply the stricter rules of these stores.
        form: the usual form of proofs under the spec.
        encoded_leaf: the spec's leaf operation in protobuf, with its length prefix.
    """

    leaf_hash: HashOp
    prehash_key: HashOp
    prehash_value: HashOp
    length: LengthOp
    leaf_prefix: bytes
    inner_hash: HashOp
    child_order: tuple[int, ...]
    child_size: int
    min_prefix_length: int
    max_prefix_length: int
    empty_child: bytes
    max_depth: int
    min_depth: int
    prehash_key_before_comparison: bool
    longest_prefix: int
    fault: str
    has_leaf: bool
    has_inner: bool
    is_iavl: bool
    is_tendermint: bool
    form: StoreForm
    encoded_leaf: bytes


def spec_equals(one: ProofSpec, other: ProofSpec) -> bool:
    """Return True if two specs describe the same kind of store.

    As in the reference, leaf prefix, depths, empty child and child order are not compared. A spec that differs from
    IAVL's only in these gets IAVL's strict rules.

    Args:
        one: a spec.
        other: another spec.

    Returns:
        True if the compared fields are equal.
    """
    return _kind(one) == _kind(other)


def _kind(spec: ProofSpec) -> tuple[bool, bool, tuple[int, ...]]:
    leaf, inner = spec.leaf_spec, spec.inner_spec
    return (
        spec.HasField("leaf_spec"),
        spec.HasField("inner_spec"),
        (
            leaf.hash,
            leaf.prehash_key,
            leaf.prehash_value,
            leaf.length,
            inner.hash,
            inner.min_prefix_length,
            inner.max_prefix_length,
            inner.child_size,
            len(inner.child_order),
        ),
    )


def spec_rules(spec: ProofSpec) -> SpecRules:
    """Parse ``spec`` into rules."""
    return _rules_of_bytes(spec.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def _rules_of_bytes(encoded: bytes) -> SpecRules:
    spec = ProofSpec.FromString(encoded)
    leaf, inner = spec.leaf_spec, spec.inner_spec
    if inner.child_size <= 0:
        fault = "spec.InnerSpec.ChildSize must be >= 1"
    elif inner.max_prefix_length >= inner.min_prefix_length + inner.child_size:
        # A longer prefix could pass for one with a sibling in it, which would allow forged absence.
        fault = "spec.InnerSpec.MaxPrefixLength must be < spec.InnerSpec.MinPrefixLength + spec.InnerSpec.ChildSize"
    else:
        fault = ""
    return SpecRules(
        leaf_hash=leaf.hash,
        prehash_key=leaf.prehash_key,
        prehash_value=leaf.prehash_value,
        length=leaf.length,
        leaf_prefix=leaf.prefix,
        inner_hash=inner.hash,
        child_order=tuple(inner.child_order),
        child_size=inner.child_size,
        min_prefix_length=inner.min_prefix_length,
        max_prefix_length=inner.max_prefix_length,
        empty_child=inner.empty_child,
        max_depth=spec.max_depth or DEFAULT_MAX_DEPTH,
        min_depth=max(spec.min_depth, 0),
        prehash_key_before_comparison=spec.prehash_key_before_comparison,
        longest_prefix=inner.max_prefix_length + (len(inner.child_order) - 1) * inner.child_size,
        fault=fault,
        has_leaf=spec.HasField("leaf_spec"),
        has_inner=spec.HasField("inner_spec"),
        is_iavl=spec_equals(spec, IAVL_SPEC),
        is_tendermint=spec_equals(spec, TENDERMINT_SPEC),
        form=_form_of(spec),
        encoded_leaf=uvarint(leaf.ByteSize()) + leaf.SerializeToString(deterministic=True),
    )


def _form_of(spec: ProofSpec) -> StoreForm:
    """Return the proof form of a spec equal to a deployed one but for depths and empty child."""
    for deployed, form in (
        (TENDERMINT_SPEC, StoreForm.SIMPLE),
        (IAVL_SPEC, StoreForm.IAVL),
        (SMT_SPEC, StoreForm.SPARSE),
    ):
        if spec_equals(spec, deployed) and spec.leaf_spec.prefix == deployed.leaf_spec.prefix:
            return form
    return StoreForm.OTHER


# Looked up once, because attribute access on a generated enum is slow.
_NO_HASH, _SHA256 = HashOp.NO_HASH, HashOp.SHA256

TENDERMINT_INNER_PREFIX = b"\x01"
IAVL_REMAINDERS = (1, 34)
"""Bytes of an IAVL inner prefix after its numbers: length byte, perhaps left child and one."""

LOW_EVEN = b"[" + b"".join(b"\\x%02x" % low for low in range(0x00, 0x80, 2)) + b"]"
"""Pattern of a non-negative one-byte signed varint: zigzag, so even."""

_HIGH_EVEN = b"[" + b"".join(b"\\x%02x" % low for low in range(0x80, 0x100, 2)) + b"]"
NUMBER = b"(?:" + LOW_EVEN + b"|" + _HIGH_EVEN + rb"[\x80-\xff]{0,7}[\x00-\x7f])"
"""Pattern of a non-negative varint of one to nine bytes, which fits 64 bits."""

_IAVL_INNER = re.compile(LOW_EVEN + NUMBER + rb"{2}.(?:.{33})?", re.DOTALL).fullmatch
"""Pattern of an inner prefix with a one-byte height, the usual case."""

_MAX_VARINT_BYTES = 10
_UINT64_BITS = 64


_HASHES: dict[HashOp, Callable[[bytes], bytes]] = {
    HashOp.SHA256: lambda data: sha256(data).digest(),
    HashOp.SHA512: lambda data: hashlib.sha512(data).digest(),
    HashOp.KECCAK256: lambda data: _keccak.new(digest_bits=256, data=data).digest(),
    HashOp.RIPEMD160: lambda data: _RIPEMD160.new(data).digest(),
    HashOp.BITCOIN: lambda data: _RIPEMD160.new(sha256(data).digest()).digest(),
    HashOp.SHA512_256: lambda data: _SHA512.new(data, truncate="256").digest(),
    HashOp.BLAKE2B_512: lambda data: hashlib.blake2b(data).digest(),
    HashOp.BLAKE2S_256: lambda data: hashlib.blake2s(data).digest(),
}

_REQUIRED_BYTES = {LengthOp.REQUIRE_32_BYTES: 32, LengthOp.REQUIRE_64_BYTES: 64}
_LENGTHS: dict[LengthOp, Callable[[int], bytes]] = {
    LengthOp.VAR_PROTO: uvarint,
    LengthOp.FIXED32_BIG: lambda length: length.to_bytes(4, "big"),
    LengthOp.FIXED32_LITTLE: lambda length: length.to_bytes(4, "little"),
    LengthOp.FIXED64_BIG: lambda length: length.to_bytes(8, "big"),
    LengthOp.FIXED64_LITTLE: lambda length: length.to_bytes(8, "little"),
    **dict.fromkeys((LengthOp.NO_PREFIX, *_REQUIRED_BYTES), lambda length: b""),
}
"""The prefix of data by its length."""


def do_hash(hash_op: HashOp, preimage: bytes) -> bytes:
    """Return the hash of ``preimage``.

    Raises:
        UnsupportedOperation: ``hash_op`` is ``NO_HASH``, or not defined.
    """
    function = _HASHES.get(hash_op)
    if function is None:
        raise UnsupportedOperation(f"unsupported hashop: {hash_op}")
    return function(preimage)


def do_hash_or_noop(hash_op: HashOp, preimage: bytes) -> bytes:
    """Return the hash of ``preimage``, or ``preimage`` itself for ``NO_HASH``."""
    return preimage if hash_op == _NO_HASH else do_hash(hash_op, preimage)


def do_length(length_op: LengthOp, data: bytes) -> bytes:
    """Prefix ``data`` with its length in the form of ``length_op``.

    Raises:
        UnsupportedOperation: ``length_op`` is undefined (VAR_RLP is, in every deployed implementation).
        SpecMismatch: ``length_op`` requires another length.
    """
    if length_op in _REQUIRED_BYTES and len(data) != _REQUIRED_BYTES[length_op]:
        raise SpecMismatch(f"data was {len(data)} bytes, not {_REQUIRED_BYTES[length_op]}")
    prefix = _LENGTHS.get(length_op)
    if prefix is None:
        raise UnsupportedOperation(f"unsupported lengthop: {length_op}")
    return prefix(len(data)) + data


def apply_leaf(leaf: LeafOp, key: bytes, value: bytes) -> bytes:
    """Return the hash of a leaf: over prefix, then key and value, each prehashed with length.

    Raises:
        EmptyOperand: key or value is empty.
        UnsupportedOperation, SpecMismatch: see ``do_hash`` and ``do_length``.
    """
    if not key:
        raise EmptyOperand("leaf op needs key")
    if not value:
        raise EmptyOperand("leaf op needs value")
    length = leaf.length
    try:
        prepared_key = do_length(length, do_hash_or_noop(leaf.prehash_key, key))
    except NotProven as error:
        raise type(error)(f"prehash key, {error}") from None
    try:
        prepared_value = do_length(length, do_hash_or_noop(leaf.prehash_value, value))
    except NotProven as error:
        raise type(error)(f"prehash value, {error}") from None
    return do_hash(leaf.hash, leaf.prefix + prepared_key + prepared_value)


def apply_inner(inner: InnerOp, child: bytes) -> bytes:
    """Return the hash of a child's parent: hash(prefix || child || suffix).

    Raises:
        EmptyOperand: the child is empty.
        UnsupportedOperation: see ``do_hash``.
    """
    if not child:
        raise EmptyOperand("inner op needs child value")
    preimage = inner.prefix + child + inner.suffix
    hash_op = inner.hash
    return sha256(preimage).digest() if hash_op == _SHA256 else do_hash(hash_op, preimage)


def check_leaf_against_spec(leaf: LeafOp, rules: SpecRules) -> None:
    """Check a leaf operation against the spec; its prefix may extend the spec's.

    Raises:
        SpecMismatch: a field differs.
    """
    if not rules.has_leaf:
        raise SpecMismatch("spec.LeafSpec must be non-nil")
    prefix = leaf.prefix
    if rules.is_iavl:
        validate_iavl_ops(leaf.hash, prefix, 0)
    for name, found, wanted in (
        ("HashOp", leaf.hash, rules.leaf_hash),
        ("PrehashKey", leaf.prehash_key, rules.prehash_key),
        ("PrehashValue", leaf.prehash_value, rules.prehash_value),
        ("LengthOp", leaf.length, rules.length),
    ):
        if found != wanted:
            raise SpecMismatch(f"unexpected {name}: {found}")
    if not prefix.startswith(rules.leaf_prefix):
        raise SpecMismatch(f"leaf Prefix doesn't start with {rules.leaf_prefix.hex().upper()}")


def check_inner_against_spec(inner: InnerOp, rules: SpecRules, layer: int) -> None:
    """Check the shape of an inner step against the spec; ``layer`` counts from 1 above the leaf.

    Raises:
        SpecMismatch: the shape differs, or the spec is unusable.
    """
    if not rules.has_inner:
        raise SpecMismatch("spec.InnerSpec must be non-nil")
    if not rules.has_leaf:
        raise SpecMismatch("spec.LeafSpec must be non-nil")
    prefix, suffix = inner.prefix, inner.suffix
    if inner.hash != rules.inner_hash:
        raise SpecMismatch(f"unexpected HashOp: {inner.hash}")
    if rules.is_iavl:
        validate_iavl_ops(inner.hash, prefix, layer)
    elif rules.is_tendermint:
        validate_tendermint_ops(prefix, suffix)
    if prefix.startswith(rules.leaf_prefix):
        raise SpecMismatch(f"inner Prefix starts with {rules.leaf_prefix.hex().upper()}")
    if len(prefix) < rules.min_prefix_length:
        raise SpecMismatch(f"innerOp prefix too short ({len(prefix)})")
    if len(prefix) > rules.longest_prefix:
        raise SpecMismatch(f"innerOp prefix too long ({len(prefix)})")
    if rules.fault:
        raise SpecMismatch(rules.fault)
    if len(suffix) % rules.child_size != 0:
        raise SpecMismatch("InnerOp suffix malformed")


def validate_tendermint_ops(prefix: bytes, suffix: bytes) -> None:
    """Check a Tendermint inner prefix: 01, and nothing more with a right sibling.

    Raises:
        SpecMismatch: the prefix differs.
    """
    if not prefix:
        raise SpecMismatch("inner op prefix must not be empty")
    if suffix and prefix != TENDERMINT_INNER_PREFIX:
        raise SpecMismatch(f"expected inner op prefix: [1], got: {_decimal_bytes(prefix)}")
    if prefix[0] != TENDERMINT_INNER_PREFIX[0]:
        raise SpecMismatch(f"expected inner op prefix to begin with: [1], got: {_decimal_bytes(prefix[:1])}")


def validate_iavl_ops(hash_op: HashOp, prefix: bytes, layer: int) -> None:
    """Check an IAVL node prefix: height, size, version (zigzag varints), remainder.

    ``layer`` is 0 for a leaf (height 0, size 1, no remainder) and counts from 1 for inner nodes, with a height of at
    least ``layer``.

    Raises:
        SpecMismatch: the prefix has another form, or an inner node is not hashed with SHA-256.
    """
    if layer and hash_op == _SHA256 and _IAVL_INNER(prefix) and prefix[0] >= 2 * layer:
        return
    height, position = _read_varint(prefix, 0, "height")
    if height < 0 or height < layer:
        raise SpecMismatch(
            f"IAVL height ({height}) must be non-negative and greater than or equal to the layer number ({layer})"
        )
    size, position = _read_varint(prefix, position, "size")
    if size < 0:
        raise SpecMismatch("IAVL size must be non-negative")
    version, position = _read_varint(prefix, position, "version")
    if version < 0:
        raise SpecMismatch("IAVL version must be non-negative")
    remainder = len(prefix) - position
    if layer == 0:
        if remainder != 0:
            raise SpecMismatch(f"expected remaining prefix length to be 0, got: {remainder}")
        if height != 0:
            raise SpecMismatch(f"expected leaf node height to be 0, got: {height}")
        if size != 1:
            raise SpecMismatch(f"expected leaf node size to be 1, got: {size}")
    else:
        if remainder not in IAVL_REMAINDERS:
            raise SpecMismatch(f"remainder of prefix must be of length 1 or 34, got: {remainder}")
        if hash_op != _SHA256:
            raise SpecMismatch("IAVL hash op must be SHA256")


def _read_varint(data: bytes, position: int, noun: str) -> tuple[int, int]:
    """Read the zigzag varint of ``data`` at ``position``; return it and the next position."""
    number = 0
    for index in range(_MAX_VARINT_BYTES):
        if position >= len(data):
            reason = "unexpected EOF" if index else "EOF"
            raise SpecMismatch(f"failed to read IAVL {noun} varint: {reason}")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if number >> _UINT64_BITS:
                break
            return number >> 1 ^ -(number & 1), position
    raise SpecMismatch(f"failed to read IAVL {noun} varint: binary: varint overflows a 64-bit integer")


def _decimal_bytes(data: bytes) -> str:
    """Format bytes as Go does, decimal in brackets; truncate long ones."""
    more = f" ... {len(data)} bytes" if len(data) > MOST_SHOWN_BYTES else ""
    return "[" + " ".join(str(byte) for byte in data[:MOST_SHOWN_BYTES]) + more + "]"
