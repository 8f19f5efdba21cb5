"""The three proof specs that deployed chains use: what shape a proof must have under each kind of store.

Source: specs/ibc.md 2.6. The messages are shared: copy one before changing it.
"""

from __future__ import annotations

from causeway.commitments.wire.ics23_pb2 import HashOp, InnerSpec, LeafOp, LengthOp, ProofSpec

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
