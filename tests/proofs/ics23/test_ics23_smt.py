"""Sparse Merkle trees against roots of the deployed celestiaorg/smt v0.3.0 (SHA-256)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from causeway_proofs.ics23.proof_specs import SMT_SPEC
from causeway_proofs.ics23.verify import verify_membership, verify_non_membership

from tests.oracles.ics23.smt import SmtStore


@pytest.mark.parametrize(
    ("count", "root"),
    [
        (1, "c651cb5b71f99cfb9f72735fbdd6e786b97bf04e8d5f8222a19a05744fcc0384"),
        (2, "2dd7eb119bd0c4bf26ce13a43468444cd396dbb91f4c321eef6e613aef831b01"),
        (20, "ed14f7058f56609b6c54f49a47c7c02c5ab53defb679213ba64876037d7a0b14"),
    ],
)
def test_roots_match_the_deployed_tree(count: int, root: str) -> None:
    keys, values = [bytes([key]) for key in range(count)], [bytes([1, key]) for key in range(count)]
    store = SmtStore(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert store.root.hex() == root
    for key, value in zip(keys, values, strict=True):
        verify_membership(SMT_SPEC, store.root, store.prove(key), key, value)
    for absent in range(count, 256, 9):
        verify_non_membership(SMT_SPEC, store.root, store.prove(bytes([absent])), bytes([absent]))
