"""Proofs of our stores for @confio/ics23: all are accepted, and no changed one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.ics23.entries import sorted_entries
from causeway_proofs.ics23.simple_store import SimpleStore
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.wire.ibc_merkle_proof_pb2 import MerkleProof

from tests.oracles.ics23.batches import batch_proof, compress
from tests.oracles.ics23.iavl_store import IavlStore
from tests.oracles.ics23.multi_store import MultiStore
from tests.verifiers.conftest import Node

NAME = b"ibc:B:send"
ENTRIES = {NAME + number.to_bytes(8, "big"): b"packet %d" % number for number in range(2, 90, 2)}
ABSENT = [NAME + number.to_bytes(8, "big") for number in (0, 1, 45, 87, 88, 200)]
NOTHING = pa.array([], pa.binary())


def column(values: list[bytes]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def stores() -> dict[str, ProvableStore]:
    content = sorted_entries(column(list(ENTRIES)), column(list(ENTRIES.values())))
    iavl = IavlStore()
    # Several versions and deletions, so that nodes of one path differ in their versions.
    for start in range(0, len(content), 11):
        iavl.commit(content.slice(start, min(start + 11, len(content))), NOTHING)
    extra = column([ABSENT[2], ABSENT[5]])
    iavl.commit(sorted_entries(extra, extra), NOTHING)
    return {"tendermint": SimpleStore.over(content), "iavl": iavl.commit(content.slice(3, 5), extra)}


def claim(spec: str, root: bytes, key: bytes, value: bytes | None, proof: bytes) -> dict[str, str | None]:
    return {
        "spec": spec,
        "root": root.hex(),
        "key": key.hex(),
        "value": None if value is None else value.hex(),
        "proof": proof.hex(),
    }


def claims(spec: str, store: ProvableStore) -> list[dict[str, str | None]]:
    content = store.entries_at(np.arange(len(store)))
    rows = list(zip(content.keys.to_pylist(), content.values.to_pylist(), strict=True))
    assert dict(rows) == ENTRIES
    proofs = store.existence_proofs(np.arange(len(store))).to_pylist()
    made = [claim(spec, store.root, key, value, proof) for (key, value), proof in zip(rows, proofs, strict=True)]
    absent = [key for key in ABSENT if key not in ENTRIES]
    made += [
        claim(spec, store.root, key, None, proof)
        for key, proof in zip(absent, store.absence_proofs(column(absent)).to_pylist(), strict=True)
    ]
    plain = batch_proof(store, [key for key, _ in rows[::7]] + absent)
    for batch in (plain.SerializeToString(), compress(plain).SerializeToString()):
        made += [claim(spec, store.root, key, value, batch) for key, value in rows[::7]]
        made += [claim(spec, store.root, key, None, batch) for key in absent]
    return made


def test_every_proof_is_accepted(node: Node) -> None:
    made = [each for spec, store in stores().items() for each in claims(spec, store)]
    assert node("ics23.mjs", made) == [True] * len(made)


def test_changed_claims_are_refused(node: Node) -> None:
    changed = []
    for spec, store in stores().items():
        for each in claims(spec, store)[::3]:
            value = each["value"]
            changed.append({**each, "root": bytes(32).hex()})
            changed.append({**each, "value": b"other".hex() if value is None else value + "00"})
            if value is not None:
                changed.append({**each, "value": None})
    assert node("ics23.mjs", changed) == [False] * len(changed)


def test_both_steps_of_a_chained_proof_are_accepted(node: Node) -> None:
    parts = stores()
    store = MultiStore({"ibc": parts["iavl"], "bank": parts["tendermint"], "acc": parts["iavl"]})
    key, value = next(iter(ENTRIES.items()))
    made = []
    for spec, name in (("iavl", "ibc"), ("tendermint", "bank")):
        inner, outer = MerkleProof.FromString(store.prove(name, key)).proofs
        made.append(claim(spec, parts[spec].root, key, value, inner.SerializeToString()))
        made.append(claim("tendermint", store.root, name.encode(), parts[spec].root, outer.SerializeToString()))
    assert node("ics23.mjs", made) == [True] * len(made)
