"""Merkle mountain ranges: messages hashed into leaves, leaves into mountains, proofs of leaves."""

from __future__ import annotations

from benchmarks.proofs.queues import Queue, changed_at_a_time, measure_queue
from benchmarks.proofs.timing import OURS, Row, compared, take_turns, timed
from benchmarks.proofs.workload import MANY, ONE_BY_ONE, payloads, some_of
from causeway.proofs.keccak import keccak256_each
from causeway.proofs.mmr.mountain_range import MountainRange, leaf_hash
from causeway.proofs.mmr.proof import LeafProof, prove_leaves, verify_leaf_proof


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure a range of ``size`` leaves."""
    changed = changed_at_a_time(size)
    messages = payloads(size + changed)

    def build(count: int) -> MountainRange:
        mountains = MountainRange()
        mountains.extend(keccak256_each(messages[:count]))
        return mountains

    def append(mountains: MountainRange) -> MountainRange:
        mountains.extend(keccak256_each(messages[size:]))
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
            "verify",
            of_many,
            "leaves",
            {OURS: (timed(lambda: verify_leaf_proof(joint, many_leaves, root, size)), len(many))},
            repeats,
        ),
    ]
