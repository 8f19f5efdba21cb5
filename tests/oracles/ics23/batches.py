"""Batches of proofs made of proofs: plain, compressed, and one from the other."""

from __future__ import annotations

from collections.abc import Iterable

from causeway_proofs.errors import MalformedProof, OverLimit
from causeway_proofs.ics23.batch import batch_entries, entry_paths
from causeway_proofs.ics23.existence import Absence, Existence
from causeway_proofs.ics23.store_proofs import ProvableStore
from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.wire.ics23_pb2 import (
    BatchEntry,
    BatchProof,
    CommitmentProof,
    CompressedBatchEntry,
    CompressedBatchProof,
    CompressedExistenceProof,
    CompressedNonExistenceProof,
    ExistenceProof,
    NonExistenceProof,
)


def batch_proof(store: ProvableStore, keys: Iterable[bytes]) -> CommitmentProof:
    """Return one batch with the proof of each of ``keys``, of existence or absence, in their order."""
    proofs = [CommitmentProof.FromString(store.prove(key)) for key in keys]
    entries = [
        BatchEntry(exist=proof.exist) if proof.HasField("exist") else BatchEntry(nonexist=proof.nonexist)
        for proof in proofs
    ]
    return CommitmentProof(batch=BatchProof(entries=entries))


def is_compressed(proof: CommitmentProof) -> bool:
    """Return whether a proof is a compressed batch."""
    return proof.HasField("compressed")


def compress(proof: CommitmentProof) -> CommitmentProof:
    """Return a batch in its compressed form, and any other proof as it is.

    Raises:
        MalformedProof: the batch has an empty entry.
    """
    if not proof.HasField("batch"):
        return proof
    indices: dict[tuple[int, bytes, bytes], int] = {}
    compressed = CompressedBatchProof()

    def existence(of: ExistenceProof) -> CompressedExistenceProof:
        path = []
        for step in of.path:
            known = (step.hash, step.prefix, step.suffix)
            if known not in indices:
                indices[known] = len(indices)
                compressed.lookup_inners.append(step)
            path.append(indices[known])
        leaf = of.leaf if of.HasField("leaf") else None
        return CompressedExistenceProof(key=of.key, value=of.value, leaf=leaf, path=path)

    for entry in proof.batch.entries:
        kind = entry.WhichOneof("proof")
        if kind == "exist":
            compressed.entries.append(CompressedBatchEntry(exist=existence(entry.exist)))
        elif kind == "nonexist":
            of = entry.nonexist
            absence = CompressedNonExistenceProof(
                key=of.key,
                left=existence(of.left) if of.HasField("left") else None,
                right=existence(of.right) if of.HasField("right") else None,
            )
            compressed.entries.append(CompressedBatchEntry(nonexist=absence))
        else:
            raise MalformedProof("batch proof has empty entry")
    return CommitmentProof(compressed=compressed)


def decompress(proof: CommitmentProof, limit: int = MAX_PROOF_BYTES) -> CommitmentProof:
    """Return a compressed batch in its plain form, and any other proof as it is.

    Verification does not need this: it shares the steps. A plain batch can be many times longer.

    Raises:
        OverLimit: the steps of the plain form would have more than ``limit`` bytes.
        MalformedProof: an index or a shared step is wrong, or an entry is empty.
    """
    if not is_compressed(proof):
        return proof
    entries = batch_entries(proof)
    lengths = {id(step): step.ByteSize() for entry in entries for path in entry_paths(entry) for step in path}
    length = sum(lengths[id(step)] for entry in entries for path in entry_paths(entry) for step in path)
    if length > limit:
        raise OverLimit(f"the steps of the batch have {length} bytes in plain form, at most {limit} are written")
    return CommitmentProof(batch=BatchProof(entries=[_batch_entry(entry) for entry in entries]))


def combine_proofs(proofs: Iterable[CommitmentProof]) -> CommitmentProof:
    """Return one compressed batch with all that ``proofs``, single ones or batches, prove; entries keep their order.

    Raises:
        MalformedProof: one carries no proof.
        OverLimit: see ``decompress``.
    """
    entries: list[BatchEntry] = []
    for proof in proofs:
        entries.extend(_batch_entry(entry) for entry in batch_entries(proof))
    return compress(CommitmentProof(batch=BatchProof(entries=entries)))


def _batch_entry(entry: Existence | Absence) -> BatchEntry:
    if isinstance(entry, Existence):
        return BatchEntry(exist=_message(entry))
    return BatchEntry(
        nonexist=NonExistenceProof(
            key=entry.key,
            left=_message(entry.left) if entry.left is not None else None,
            right=_message(entry.right) if entry.right is not None else None,
        )
    )


def _message(proof: Existence) -> ExistenceProof:
    return ExistenceProof(key=proof.key, value=proof.value, leaf=proof.leaf, path=proof.path)
