"""Storage proofs in columns beside the same proofs one by one: many keys of one proof, and many proofs of one state."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from causeway_proofs.hashing import DIGEST_BYTES, binary_rows, columns
from causeway_proofs.substrate.proof import read_value, verify_storage_proof
from causeway_proofs.substrate.proof_columns import StorageProofs, read_values, verify_storage_proofs
from causeway_proofs.substrate.trie import Trie, prove

from benchmarks.proofs.timing import OURS, Row, compared, require_same, timed
from benchmarks.proofs.workload import MANY, ONE_BY_ONE, payloads, random_rows, some_of

BY_ONE = "one by one"

MOST_ENTRIES = 100_000


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure proofs out of a state of ``size`` entries, at most 100,000."""
    columns.load_engines()
    entries = min(size, MOST_ENTRIES)
    keys = binary_rows(random_rows(entries, DIGEST_BYTES, seed=3))
    values = payloads(entries)
    trie = Trie.build(keys, values)
    rows = some_of(0, entries, MANY)
    some_keys, some_values = keys.take(pa.array(rows)), values.take(pa.array(rows))
    plain = dict(zip(some_keys.to_pylist(), some_values.to_pylist(), strict=True))
    joint = prove(trie, plain)
    root = np.frombuffer(trie.root, dtype=np.uint8).reshape(1, DIGEST_BYTES)
    of_one, numbers = StorageProofs.of(root, pa.array([joint], pa.list_(pa.binary()))), np.zeros(len(rows), np.int64)

    def of_one_in_columns() -> None:
        require_same(
            verify_storage_proofs(of_one, some_keys, some_values, numbers).codes.tolist(), [0], "a proof of many keys"
        )

    each = [prove(trie, [key]) for key in plain]
    of_many = StorageProofs.of(np.repeat(root, len(rows), axis=0), pa.array(each, pa.list_(pa.binary())))
    few = min(ONE_BY_ONE, len(rows))

    def of_many_in_columns() -> None:
        require_same(bool(read_values(of_many, some_keys).codes.any()), False, "proofs of one key each")

    def of_many_one_by_one() -> None:
        for key, nodes in zip(list(plain)[:few], each[:few], strict=True):
            read_value(trie.root, nodes, key)

    return [
        compared(
            "verify",
            f"one proof of {len(rows):,} keys",
            "keys",
            {
                OURS: (timed(of_one_in_columns), len(rows)),
                BY_ONE: (timed(lambda: verify_storage_proof(trie.root, joint, plain)), len(rows)),
            },
            repeats,
        ),
        compared(
            "verify",
            f"{len(rows):,} proofs of one key each",
            "proofs",
            {
                OURS: (timed(of_many_in_columns), len(rows)),
                BY_ONE: (timed(of_many_one_by_one), few),
            },
            repeats,
        ),
    ]
