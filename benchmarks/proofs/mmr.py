"""Merkle mountain ranges: messages hashed into leaves, leaves into mountains, proofs of leaves."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.proofs.queues import Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Row, compared, require_same, take_turns, timed
from benchmarks.proofs.workload import IN_BULK, MANY, ONE_BY_ONE, payloads, some_of
from causeway.proofs.hashing import HashFunction, digest_values, engines
from causeway.proofs.mmr.many import prove_each_leaf, verify_leaf_proofs
from causeway.proofs.mmr.mountain_range import MountainRange, leaf_hash
from causeway.proofs.mmr.proof import LeafProof, prove_leaves, verify_leaf_proof

BY_ONE = "one by one"


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure a range of ``size`` leaves."""
    engines.prepare()
    changed = changed_at_a_time(size)
    messages = payloads(size + changed)

    def build(count: int) -> MountainRange:
        mountains = MountainRange()
        mountains.extend(digest_values(HashFunction.KECCAK_256, messages[:count]))
        return mountains

    def append(mountains: MountainRange) -> MountainRange:
        mountains.extend(digest_values(HashFunction.KECCAK_256, messages[size:]))
        return mountains

    def cut(mountains: MountainRange) -> MountainRange:
        mountains.truncate(size)
        return mountains

    def one_by_one(count: int) -> bytes:
        mountains = MountainRange()
        for message in messages[:count].to_pylist():
            mountains.append(leaf_hash(message))
        return mountains.root()

    queue = measure_queue(
        Queue(
            "mountain range", build, MountainRange.root, append, cut, "cut off at the end",
            ("leaf by leaf", one_by_one),
        ),
        size,
        -(-repeats // 2),
    )  # fmt: skip
    mountains, root = queue.state, queue.state.root()
    positions = some_of(0, size, ONE_BY_ONE).tolist()
    leaves = {position: leaf_hash(messages[position].as_py()) for position in positions}
    proofs = {position: prove_leaves(mountains, [position]) for position in positions}

    def prove() -> list[LeafProof]:
        return [prove_leaves(mountains, [position]) for position in positions]

    def verify() -> None:
        for position, proof in proofs.items():
            verify_leaf_proof(proof, [leaves[position]], root, size)

    bulk = some_of(0, size, IN_BULK)
    bulk_leaves = digest_values(HashFunction.KECCAK_256, messages.take(pa.array(bulk)))
    bulk_proofs = prove_each_leaf(mountains, bulk)

    def verify_in_columns() -> None:
        found = verify_leaf_proofs(bulk_proofs, bulk_leaves, root, size)
        require_same(len(found.refused), 0, "leaf proofs in columns")

    many = some_of(0, size, MANY).tolist()
    many_leaves = [leaf_hash(messages[position].as_py()) for position in many]
    joint = prove_leaves(mountains, many)
    proving = take_turns({OURS: timed(prove)}, repeats)[OURS]
    of_many = f"one proof of {len(many):,} leaves"
    return [
        *queue.rows,
        queue.against_rebuild("one leaf", proving, len(positions)),
        compared(
            "prove", of_many, "leaves", {OURS: (timed(lambda: prove_leaves(mountains, many)), len(many))}, repeats
        ),
        compared("verify", "one leaf", "proofs", {OURS: (timed(verify), len(positions))}, repeats),
        compared(
            "prove",
            f"{len(bulk):,} proofs of one leaf each",
            "proofs",
            {
                OURS: (timed(lambda: prove_each_leaf(mountains, bulk)), len(bulk)),
                BY_ONE: (timed(prove), len(positions)),
            },
            repeats,
        ),
        compared(
            "verify",
            f"{len(bulk):,} proofs of one leaf each",
            "proofs",
            {OURS: (timed(verify_in_columns), len(bulk)), BY_ONE: (timed(verify), len(positions))},
            repeats,
        ),
        compared(
            "verify",
            of_many,
            "leaves",
            {OURS: (timed(lambda: verify_leaf_proof(joint, many_leaves, root, size)), len(many))},
            repeats,
        ),
    ]
