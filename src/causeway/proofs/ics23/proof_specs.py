"""The three proof specs that deployed chains use: what shape a proof must have under each kind of store.

Source: IBC reference 2.6. The messages are shared: copy one before changing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

from causeway.proofs.varints import uvarint
from causeway.proofs.wire.ics23_pb2 import HashOp, InnerSpec, LeafOp, LengthOp, ProofSpec

DEFAULT_MAX_DEPTH = 128
"""Longest path, in inner steps, under a spec whose ``max_depth`` is 0."""

IAVL_SPEC = ProofSpec(
    leaf_spec=LeafOp(hash=HashOp.SHA256, prehash_value=HashOp.SHA256, length=LengthOp.VAR_PROTO, prefix=b"\x00"),
    inner_spec=InnerSpec(
        child_order=[0, 1], child_size=33, min_prefix_length=4, max_prefix_length=12, hash=HashOp.SHA256
    ),
    max_depth=DEFAULT_MAX_DEPTH,
)
"""IAVL+ trees: a child is a length byte and a hash, a prefix begins with height, size and version."""

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
"""The specs by the names that test vectors and the command line use."""


class StoreForm(Enum):
    """The form that a store's proofs usually have, where its spec allows it."""

    SIMPLE = auto()
    IAVL = auto()
    SPARSE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class SpecRules:
    """A proof spec, read once: its fields as plain values, and what follows from them.

    Attributes:
        leaf_hash, prehash_key, prehash_value, length, leaf_prefix: what a leaf operation must be.
        inner_hash, child_order, child_size, min_prefix_length, max_prefix_length, empty_child: what an inner step must
            be.
        max_depth: longest path; negative where the spec allows none at all, as the reference reads it.
        min_depth: shortest path; 0 where the spec sets no bound.
        prehash_key_before_comparison: neighbours are ordered by the prehashed key.
        longest_prefix: bytes of an inner prefix with all siblings but the child on its left.
        fault: what is wrong with the spec's inner part, empty where nothing is.
        has_leaf, has_inner: whether the spec has these parts.
        is_iavl, is_tendermint: whether the stricter rules of these stores apply.
        form: the usual form of proofs that satisfy the spec.
        encoded_leaf: the spec's leaf operation in protobuf, its length in front.
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
    """Return whether two specs describe the same kind of store.

    Leaf prefix, depths, empty child and the order of children are not compared, as in the reference: a spec that is
    IAVL's but for these gets IAVL's strict rules.
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


def rules_of(spec: ProofSpec) -> SpecRules:
    """Return what ``spec`` demands of a proof."""
    return _rules_of_bytes(spec.SerializeToString(deterministic=True))


@lru_cache(maxsize=64)
def _rules_of_bytes(encoded: bytes) -> SpecRules:
    spec = ProofSpec.FromString(encoded)
    leaf, inner = spec.leaf_spec, spec.inner_spec
    if inner.child_size <= 0:
        fault = "spec.InnerSpec.ChildSize must be >= 1"
    elif inner.max_prefix_length >= inner.min_prefix_length + inner.child_size:
        # A longer prefix could pass for one that has a sibling in it: absence could be forged.
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
    """Return the form of proofs under a spec that demands what a deployed one does, but for depths and empty child."""
    for deployed, form in (
        (TENDERMINT_SPEC, StoreForm.SIMPLE),
        (IAVL_SPEC, StoreForm.IAVL),
        (SMT_SPEC, StoreForm.SPARSE),
    ):
        if spec_equals(spec, deployed) and spec.leaf_spec.prefix == deployed.leaf_spec.prefix:
            return form
    return StoreForm.OTHER
