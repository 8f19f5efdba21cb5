"""What this process did of the work by which protocols are compared: hashes computed, and bytes of proofs looked at.

Counts only grow; who wants those of a piece of work takes the difference (``since``). No rule reads them. A hash is one
digest of SHA-256, BLAKE2b or Keccak-256, whatever the length of what is hashed; hashes inside of signatures are not
among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

SHA256, BLAKE2B_256, KECCAK_256 = "sha256", "blake2b-256", "keccak-256"
"""Hashes by these functions."""

PROOF_BYTES = "proof_bytes"
"""Bytes that came with messages to prove them: nodes and digests, signed headers, certifications, roots."""

NAMES = (SHA256, BLAKE2B_256, KECCAK_256, PROOF_BYTES)

HASHES = NAMES[:3]
"""The counts that are of hashes."""

done: dict[str, int] = dict.fromkeys(NAMES, 0)
"""What was done since the process began, by name."""


def snapshot() -> Mapping[str, int]:
    """Return what was done so far."""
    return dict(done)


def work_since(before: Mapping[str, int]) -> dict[str, int]:
    """Return what was done since a snapshot; what was not done is left out."""
    found = {name: count - before[name] for name, count in done.items()}
    return {name: count for name, count in found.items() if count}


def merge_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts, by name."""
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def count_proof_bytes(count: int) -> None:
    """Count so many bytes of proofs that were looked at."""
    done[PROOF_BYTES] += count


def count_proof_column(column: pa.Array) -> None:
    """Count the bytes of all values of a column as bytes of proofs that were looked at."""
    done[PROOF_BYTES] += pc.sum(pc.binary_length(column)).as_py() or 0
