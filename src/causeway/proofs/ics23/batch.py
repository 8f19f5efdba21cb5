"""Several proofs in one message, plain or compressed: a compressed batch keeps each distinct inner step once.

Every entry of a batch is verified, asked about or not, and every shared step must be used: nothing in the message may
be changed without notice. Source: specs/ibc.md 2.6 and the reference's compression.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from causeway.proofs.errors import MalformedProof, OverLimit, hex_text
from causeway.proofs.ics23.errors import KeyOutOfRange, NoProofForKey, ValueMismatch
from causeway.proofs.ics23.existence import Existence, existence_of, verify_existence
from causeway.proofs.ics23.non_existence import (
    Absence,
    absence_of,
    key_for_comparison,
    require_between,
    require_neighbors,
    verify_neighbor_proofs,
)
from causeway.proofs.ics23.proof_specs import SpecRules, rules_of
from causeway.proofs.limits import MAX_PROOF_BYTES
from causeway.proofs.protobuf import parse_canonical
from causeway.proofs.wire.ics23_pb2 import (
    BatchEntry,
    BatchProof,
    CommitmentProof,
    CompressedBatchEntry,
    CompressedBatchProof,
    CompressedExistenceProof,
    CompressedNonExistenceProof,
    ExistenceProof,
    InnerOp,
    NonExistenceProof,
    ProofSpec,
)

Proof = bytes | CommitmentProof
"""A proof as it came, or one that was decoded or built in this process."""


def message_of(proof: Proof) -> CommitmentProof:
    """Return the message that ``proof`` is, decoded from its canonical encoding where it is bytes.

    Who trusts the source of a longer batch may decode it with a limit of his own, and give the message.

    Raises:
        OverLimit: the bytes are more than ``MAX_MESSAGE_BYTES``.
        MalformedProof: the bytes are no such encoding.
    """
    return parse_canonical(CommitmentProof, proof, "proof") if isinstance(proof, bytes) else proof


def batch_verify_membership(spec: ProofSpec, root: bytes, proof: Proof, items: Mapping[bytes, bytes]) -> None:
    """Check that one message proves every key of ``items`` with its value; it may prove more.

    Raises:
        NoProofForKey: it has no existence proof for a key.
        ValueMismatch: a key is stored with another value.
        ProofRefused: an entry of it does not hold, asked about or not.
        MalformedProof: its bytes are not a proof, or its indices are out of range.
    """
    VerifiedBatch(rules_of(spec), root, message_of(proof)).require_membership(items)


def batch_verify_non_membership(spec: ProofSpec, root: bytes, proof: Proof, keys: Iterable[bytes]) -> None:
    """Check that one message proves that none of ``keys`` is stored; it may prove more.

    Raises:
        NoProofForKey: it has no non-existence proof for a key.
        KeyOutOfRange: it names a key that does not lie between the neighbours it shows.
        ProofRefused: an entry of it does not hold, asked about or not.
        MalformedProof: its bytes are not a proof, or its indices are out of range.
    """
    VerifiedBatch(rules_of(spec), root, message_of(proof)).require_non_membership(keys)


class VerifiedBatch:
    """What a message proves under a root; making one verifies every entry.

    Attributes:
        present: the existence proofs, by key; of several for one key the first.
        absent: the non-existence proofs that name a key, by that name; of several the first.
        gaps: the non-existence proofs that name none, in the order of their positions.

    Raises:
        ProofRefused: an entry does not hold.
        MalformedProof: the message carries no proof, or its indices are out of range.
    """

    def __init__(self, rules: SpecRules, root: bytes, message: CommitmentProof) -> None:
        self.rules = rules
        self.present: dict[bytes, Existence] = {}
        self.absent: dict[bytes, Absence] = {}
        self.gaps: list[Absence] = []
        for entry in entries_of(message):
            if isinstance(entry, Existence):
                verify_existence(entry, rules, root, entry.key, entry.value)
                self.present.setdefault(entry.key, entry)
            else:
                verify_neighbor_proofs(entry, rules, root)
                require_neighbors(entry, rules)
                if entry.key:
                    _require_name_between(entry, rules)
                    self.absent.setdefault(entry.key, entry)
                else:
                    self.gaps.append(entry)
        self.gaps.sort(key=self._start)
        self._starts = [self._start(gap) for gap in self.gaps]

    def require_membership(self, items: Mapping[bytes, bytes]) -> None:
        """Check that every key of ``items`` is proven with its value (see ``batch_verify_membership``)."""
        for key, value in items.items():
            if self.existence(key).value != value:
                raise ValueMismatch("provided value doesn't match proof")

    def require_non_membership(self, keys: Iterable[bytes]) -> None:
        """Check that every key is proven to be absent (see ``batch_verify_non_membership``)."""
        for key in keys:
            require_between(self.absence(key), self.rules, key_for_comparison(self.rules, key))

    def existence(self, key: bytes) -> Existence:
        """Return the existence proof for a key.

        Raises:
            NoProofForKey: there is none.
        """
        if key not in self.present:
            raise NoProofForKey(f"the batch has no existence proof for key {hex_text(key)}")
        return self.present[key]

    def absence(self, key: bytes) -> Absence:
        """Return the non-existence proof for a key: one that names it, or one that names none and encloses it.

        Raises:
            NoProofForKey: there is none.
        """
        position = key_for_comparison(self.rules, key)
        for name in (key, position):
            if name in self.absent:
                return self.absent[name]
        # Gaps between neighbours of one tree do not overlap.
        before = bisect_right(self._starts, position)
        if not before:
            raise NoProofForKey(f"the batch has no non-existence proof for key {hex_text(key)}")
        return self.gaps[before - 1]

    def _start(self, gap: Absence) -> bytes:
        return key_for_comparison(self.rules, gap.left.key) if gap.left is not None else b""


def require_name(proof: Absence, rules: SpecRules, key: bytes) -> None:
    """Check that a non-existence proof names ``key``, itself or as it is compared.

    The deployed verifiers do not read the name. Left unread, it could be changed without notice.

    Raises:
        NoProofForKey: it names another.
    """
    if proof.key != key and proof.key != key_for_comparison(rules, key):
        raise NoProofForKey(f"the proof names key {hex_text(proof.key)}, not {hex_text(key)}")


def _require_name_between(entry: Absence, rules: SpecRules) -> None:
    try:
        require_between(entry, rules, key_for_comparison(rules, entry.key))
    except KeyOutOfRange:
        # Stores that order keys by their hash name the hash.
        require_between(entry, rules, entry.key)


def entries_of(message: CommitmentProof) -> list[Existence | Absence]:
    """Return all that a message claims; steps of a compressed batch are shared, not copied.

    Raises:
        MalformedProof: it carries no proof, an entry of it none, or an index or a shared step is wrong.
    """
    kind = message.WhichOneof("proof")
    if kind == "exist":
        return [existence_of(message.exist)]
    if kind == "nonexist":
        return [absence_of(message.nonexist)]
    if kind == "batch":
        return [_entry_of(entry) for entry in message.batch.entries]
    if kind == "compressed":
        return _compressed_entries(message.compressed)
    raise MalformedProof("the message carries no proof")


def _entry_of(entry: BatchEntry) -> Existence | Absence:
    kind = entry.WhichOneof("proof")
    if kind == "exist":
        return existence_of(entry.exist)
    if kind == "nonexist":
        return absence_of(entry.nonexist)
    raise MalformedProof("batch proof has empty entry")


def _compressed_entries(batch: CompressedBatchProof) -> list[Existence | Absence]:
    lookup = list(batch.lookup_inners)
    distinct = {(step.hash, step.prefix, step.suffix) for step in lookup}
    if len(distinct) != len(lookup):
        raise MalformedProof("lookup_inners has a step twice")
    used: set[int] = set()

    def existence(proof: CompressedExistenceProof) -> Existence:
        indices = list(proof.path)
        if indices and not 0 <= min(indices) <= max(indices) < len(lookup):
            raise MalformedProof(f"path has an index outside the {len(lookup)} steps of lookup_inners")
        used.update(indices)
        leaf = proof.leaf if proof.HasField("leaf") else None
        return Existence(proof.key, proof.value, leaf, [lookup[index] for index in indices])

    entries: list[Existence | Absence] = []
    for entry in batch.entries:
        kind = entry.WhichOneof("proof")
        if kind == "exist":
            entries.append(existence(entry.exist))
        elif kind == "nonexist":
            proof = entry.nonexist
            left = existence(proof.left) if proof.HasField("left") else None
            right = existence(proof.right) if proof.HasField("right") else None
            entries.append(Absence(proof.key, left, right))
        else:
            raise MalformedProof("batch proof has empty entry")
    if len(used) != len(lookup):
        raise MalformedProof("lookup_inners has a step that no path uses")
    return entries


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
    entries = _compressed_entries(proof.compressed)
    lengths = {id(step): step.ByteSize() for entry in entries for path in _paths(entry) for step in path}
    length = sum(lengths[id(step)] for entry in entries for path in _paths(entry) for step in path)
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
        entries.extend(_batch_entry(entry) for entry in entries_of(proof))
    return compress(CommitmentProof(batch=BatchProof(entries=entries)))


def _paths(entry: Existence | Absence) -> list[Sequence[InnerOp]]:
    if isinstance(entry, Existence):
        return [entry.path]
    return [neighbor.path for neighbor in (entry.left, entry.right) if neighbor is not None]


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
