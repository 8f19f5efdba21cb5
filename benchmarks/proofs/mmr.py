"""Merkle mountain ranges: messages hashed into leaves, leaves into mountains, proofs of leaves."""

from __future__ import annotations

import pyarrow as pa
from causeway_proofs.hashing import HashFunction, columns, digest_values
from causeway_proofs.mmr.columns import LeafProofs, verify_leaf_proofs
from causeway_proofs.mmr.mountain_range import leaf_hash
from causeway_proofs.mmr.peaks import RangeState, RangeWindow
from causeway_proofs.mmr.proof import LeafProof, verify_leaf_proof

from benchmarks.proofs.queues import Queue, measure_queue
from benchmarks.proofs.timing import OURS, Row, compared, require_same, take_turns, timed
from benchmarks.proofs.workload import IN_BULK, ONE_BY_ONE, payloads, some_of

BY_ONE = "one by one"


def measure(size: int, repeats: int, node: str | None) -> list[Row]:
    """Measure a range of ``size`` leaves."""
    columns.load_engines()
    messages = payloads(size)

    def build(count: int) -> RangeWindow:
        return RangeWindow(RangeState(), digest_values(HashFunction.KECCAK_256, messages[:count]))

    def one_by_one(count: int) -> bytes:
        state = RangeState()
        for message in messages[:count].to_pylist():
            state = state.append(leaf_hash(message))
        return state.root

    range_ = Queue("mountain range", build, RangeWindow.root, plain=("leaf by leaf", one_by_one))
    queue = measure_queue(range_, size, -(-repeats // 2))
    mountains, root = queue.state, queue.state.root()
    positions = some_of(0, size, ONE_BY_ONE).tolist()
    leaves = {position: leaf_hash(messages[position].as_py()) for position in positions}
    proofs = {position: mountains.prove(position) for position in positions}

    def prove() -> list[LeafProof]:
        return [mountains.prove(position) for position in positions]

    def verify() -> None:
        for position, proof in proofs.items():
            verify_leaf_proof(proof, [leaves[position]], root, size)

    bulk = some_of(0, size, IN_BULK)
    bulk_leaves = digest_values(HashFunction.KECCAK_256, messages.take(pa.array(bulk)))
    bulk_proofs = LeafProofs.of([mountains.prove(position) for position in bulk.tolist()])

    def verify_in_columns() -> None:
        found = verify_leaf_proofs(bulk_proofs, bulk_leaves, root, size)
        require_same(len(found.refused), 0, "leaf proofs in columns")

    in_columns = f"{len(bulk):,} proofs of one leaf each"
    by_one = (timed(verify), len(positions))
    proving = take_turns({OURS: timed(prove)}, repeats)[OURS]
    return [
        *queue.rows,
        queue.against_rebuild("one leaf", proving, len(positions)),
        compared("verify", "one leaf", "proofs", {OURS: by_one}, repeats),
        compared(
            "verify", in_columns, "proofs", {OURS: (timed(verify_in_columns), len(bulk)), BY_ONE: by_one}, repeats
        ),
    ]
