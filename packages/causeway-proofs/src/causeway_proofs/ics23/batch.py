"""Verify several claims with one message, a plain or compressed batch.

A compressed batch stores each distinct inner step once. As in deployed verifiers, the first entry that matches a claim
is verified and the rest of the batch is ignored; ``find_remarks`` lists oddities that no encoder writes.

Reference:
    IBC reference 2.6, and the reference's compression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from causeway_proofs.errors import MalformedProof, NotProven, OverLimit, hex_text
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ics23.errors import KeyOutOfRange, NoProofForKey
from causeway_proofs.ics23.existence import (
    Absence,
    Existence,
    key_for_comparison,
    read_absence,
    read_existence,
    require_between,
    require_neighbors,
    verify_existence,
    verify_neighbor_proofs,
    verify_non_existence,
)
from causeway_proofs.ics23.proof_specs import SpecRules, spec_rules
from causeway_proofs.protobuf import describe_encoding, parse
from causeway_proofs.wire.ics23_pb2 import (
    CommitmentProof,
    CompressedBatchProof,
    CompressedExistenceProof,
    InnerOp,
    ProofSpec,
)

Proof = bytes | CommitmentProof
"""An encoded proof, or a decoded or locally built message."""


def decode_proof(proof: Proof) -> CommitmentProof:
    """Decode ``proof`` unless it is a message already.

    A caller that trusts the source of a longer batch may decode it with its own limit and pass the message.

    Raises:
        OverLimit: the bytes exceed ``MAX_MESSAGE_BYTES``.
        MalformedProof: the bytes are not an encoding of a CommitmentProof.
    """
    return parse(CommitmentProof, proof, "proof") if isinstance(proof, bytes) else proof


def batch_verify_membership(spec: ProofSpec, root: bytes, proof: Proof, items: Mapping[bytes, bytes]) -> None:
    """Verify that one message proves every key of ``items`` with its value.

    Further entries of the message are not verified.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message.
        items: the claimed value of each key.

    Raises:
        NoProofForKey: the message has no existence proof for a key.
        NotProven: the first existence proof for a key does not hold (see ``verify_existence``).
        MalformedProof: the bytes are not a proof, or an index is out of range.
    """
    BatchClaims(spec_rules(spec), root, decode_proof(proof)).require_membership(items)


def batch_verify_non_membership(spec: ProofSpec, root: bytes, proof: Proof, keys: Iterable[bytes]) -> None:
    """Verify that one message proves the absence of all ``keys``.

    Further entries of the message are not verified.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message.
        keys: the absent keys.

    Raises:
        NoProofForKey: no non-existence proof encloses a key.
        NotProven: the first enclosing proof does not hold (see ``verify_non_existence``).
        MalformedProof: the bytes are not a proof, or an index is out of range.
    """
    BatchClaims(spec_rules(spec), root, decode_proof(proof)).require_non_membership(keys)


def find_remarks(spec: ProofSpec, root: bytes, proof: Proof, claims: Mapping[bytes, bytes | None]) -> list[str]:
    """Return one line for each oddity of a proof that shows ``claims``.

    Deployed verifiers accept these oddities, but no deployed encoder writes them.

    Args:
        spec: the store's proof spec.
        root: the trusted root.
        proof: a CommitmentProof, encoded or as a message.
        claims: the claimed value of each key, None for an absent key.

    Returns:
        The remarks.
    """
    message = decode_proof(proof)
    encoding = describe_encoding(message, proof, "proof") if isinstance(proof, bytes) else []
    return [*encoding, *BatchClaims(spec_rules(spec), root, message).remarks(claims)]


MAX_HASHED_BYTES = 64 << 20
"""Most step bytes hashed for one message: a compressed batch of 1 MiB can demand terabytes."""


class BatchClaims:
    """The claims of a message under a root, each verified on demand.

    Verification raises ``OverLimit`` once the hashed steps exceed ``MAX_HASHED_BYTES``.

    Raises:
        MalformedProof: the message carries no proof, or an index is out of range.
    """

    def __init__(self, rules: SpecRules, root: bytes, message: CommitmentProof) -> None:
        self._rules, self._root, self._message = rules, root, message
        self._entries = batch_entries(message)
        self._hashed = 0
        self._present: dict[bytes, Existence] = {}
        self._absent: list[Absence] = []
        for entry in self._entries:
            if isinstance(entry, Existence):
                self._present.setdefault(entry.key, entry)
            else:
                self._absent.append(entry)

    def require_membership(self, items: Mapping[bytes, bytes]) -> None:
        """Verify that every key is proven with its value (see ``batch_verify_membership``)."""
        for key, value in items.items():
            existence = self.existence(key)
            self._spend(existence)
            verify_existence(existence, self._rules, self._root, key, value)

    def require_non_membership(self, keys: Iterable[bytes]) -> None:
        """Verify that every key is proven absent (see ``batch_verify_non_membership``)."""
        proven: set[int] = set()
        for key, absence in self.absences(keys).items():
            # The lookup by key guarantees that the neighbors enclose it.
            if id(absence) not in proven:
                self._spend(absence)
                verify_non_existence(absence, self._rules, self._root, key)
                proven.add(id(absence))

    def existence(self, key: bytes) -> Existence:
        """Return the first existence proof for a key, unverified.

        Raises:
            NoProofForKey: the message has none.
        """
        if key not in self._present:
            raise NoProofForKey(f"the proof has no existence of key {hex_text(key)}")
        return self._present[key]

    def absences(self, keys: Iterable[bytes]) -> dict[bytes, Absence]:
        """Return for each key the first non-existence proof that encloses it, unverified.

        The key named by such a proof is ignored, as in deployed verifiers.

        Raises:
            NoProofForKey: no proof encloses a key.
        """
        # Sweep over keys and gap starts in ascending order. A heap holds the open gaps, the first in the
        # message on top: unverified gaps may overlap.
        begins = sorted((self._place(gap.left), number) for number, gap in enumerate(self._absent))
        found: dict[bytes, Absence] = {}
        opened: list[int] = []
        passed = 0
        for place, key in sorted((key_for_comparison(self._rules, key), key) for key in keys):
            while passed < len(begins) and begins[passed][0] < (True, place):
                heappush(opened, begins[passed][1])
                passed += 1
            while opened and not self._ends_after(self._absent[opened[0]], place):
                heappop(opened)
            if not opened:
                raise NoProofForKey(f"the proof has no non-existence of key {hex_text(key)}")
            found[key] = self._absent[opened[0]]
        return found

    def remarks(self, claims: Mapping[bytes, bytes | None]) -> tuple[str, ...]:
        """Return one line for each oddity of a message that shows ``claims``."""
        lines = _remarks_on_steps(self._message)
        again = sum(isinstance(entry, Existence) and self._present[entry.key] is not entry for entry in self._entries)
        if again:
            lines.append(f"entries for a key that an earlier one is for: {again}")
        absences = self.absences(key for key, value in claims.items() if value is None)
        for key, absence in absences.items():
            if absence.key not in (b"", key, key_for_comparison(self._rules, key)):
                lines.append(f"the absence of key {hex_text(key)} names key {hex_text(absence.key)}")
        claimed_ids = {id(absence) for absence in absences.values()}
        faults = []
        for number, entry in enumerate(self._entries):
            try:
                fault = None if id(entry) in claimed_ids else self._fault(entry)
            except OverLimit as error:
                lines.append(f"{error}: entries that nobody asks about are not verified from number {number} on")
                break
            if fault is not None:
                faults.append(f"the first number {number}: {fault}")
        if faults:
            lines.append(f"entries that nobody asks about and that do not hold: {len(faults)}, {faults[0]}")
        return tuple(lines)

    def _spend(self, entry: Existence | Absence) -> None:
        """Count the bytes hashed to verify an entry. Raises ``OverLimit``."""
        for path in entry_paths(entry):
            if len(path) <= self._rules.max_depth:  # a longer one is refused before it is hashed
                self._hashed += sum(len(step.prefix) + len(step.suffix) + DIGEST_BYTES for step in path)
        if self._hashed > MAX_HASHED_BYTES:
            raise OverLimit(f"the steps that are verified have more than {MAX_HASHED_BYTES} bytes")

    def _fault(self, entry: Existence | Absence) -> str | None:
        self._spend(entry)
        try:
            if isinstance(entry, Existence):
                verify_existence(entry, self._rules, self._root, entry.key, entry.value)
            else:
                verify_neighbor_proofs(entry, self._rules, self._root)
                require_neighbors(entry, self._rules)
                self._require_name_between(entry)
        except NotProven as error:
            return f"{error.name}: {error}"
        return None

    def _require_name_between(self, entry: Absence) -> None:
        if entry.key:
            try:
                require_between(entry, self._rules, key_for_comparison(self._rules, entry.key))
            except KeyOutOfRange:
                # Stores sorted by key hash name the hash.
                require_between(entry, self._rules, entry.key)

    def _place(self, left: Existence | None) -> tuple[bool, bytes]:
        """Return the sort key of a gap's start; the first gap of a store sorts before all keys."""
        return (False, b"") if left is None else (True, key_for_comparison(self._rules, left.key))

    def _ends_after(self, gap: Absence, place: bytes) -> bool:
        return gap.right is None or place < key_for_comparison(self._rules, gap.right.key)


def _remarks_on_steps(message: CommitmentProof) -> list[str]:
    """Return oddities of a message's entry list and of a compressed batch's shared steps."""
    kind = message.WhichOneof("proof")
    if kind == "batch":
        empty = sum(entry.WhichOneof("proof") is None for entry in message.batch.entries)
        return [f"empty entries: {empty}"] if empty else []
    if kind != "compressed":
        return []
    lookup = message.compressed.lookup_inners
    used: set[int] = set()
    for entry in message.compressed.entries:
        for proof in (entry.exist, entry.nonexist.left, entry.nonexist.right):
            used.update(proof.path)
    twice = len(lookup) - len({(step.hash, step.prefix, step.suffix) for step in lookup})
    unused = len(lookup) - len(used)
    lines = [f"steps of lookup_inners that stand there twice: {twice}"] if twice else []
    return [*lines, f"steps of lookup_inners that no path uses: {unused}"] if unused else lines


def batch_entries(message: CommitmentProof) -> list[Existence | Absence]:
    """Return all claims of a message; steps of a compressed batch are shared, not copied.

    Raises:
        MalformedProof: the message or an entry carries no proof, or a path index is out of range.
    """
    kind = message.WhichOneof("proof")
    if kind == "exist":
        return [read_existence(message.exist)]
    if kind == "nonexist":
        return [read_absence(message.nonexist)]
    if kind == "batch":
        return [
            read_existence(entry.exist) if entry.HasField("exist") else read_absence(entry.nonexist)
            for entry in message.batch.entries
            if entry.WhichOneof("proof") is not None
        ]
    if kind == "compressed":
        return _compressed_entries(message.compressed)
    raise MalformedProof("the message carries no proof")


def _compressed_entries(batch: CompressedBatchProof) -> list[Existence | Absence]:
    lookup = list(batch.lookup_inners)

    def existence(proof: CompressedExistenceProof) -> Existence:
        indices = list(proof.path)
        if indices and not 0 <= min(indices) <= max(indices) < len(lookup):
            raise MalformedProof(f"path has an index outside the {len(lookup)} steps of lookup_inners")
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
    return entries


def entry_paths(entry: Existence | Absence) -> list[Sequence[InnerOp]]:
    """Return the path of an entry, or the paths of an absent key's neighbors."""
    if isinstance(entry, Existence):
        return [entry.path]
    return [neighbor.path for neighbor in (entry.left, entry.right) if neighbor is not None]
