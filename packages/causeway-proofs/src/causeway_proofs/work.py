"""Count this process's hashes and proof bytes, the measure to compare protocols by.

Counters only grow; take the difference of two snapshots (``work_since``). No protocol rule reads them. A hash is one
digest of SHA-256, BLAKE2b or Keccak-256 of any length; hashes inside signatures are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

SHA256, BLAKE2B_256, KECCAK_256 = "sha256", "blake2b-256", "keccak-256"
"""Counters of hashes by function."""

PROOF_BYTES = "proof_bytes"
"""Counter of proof bytes: nodes, digests, signed headers, certifications, roots."""

NAMES = (SHA256, BLAKE2B_256, KECCAK_256, PROOF_BYTES)

HASHES = NAMES[:3]
"""Names of the hash counters."""

done: dict[str, int] = dict.fromkeys(NAMES, 0)
"""Counters since the start of the process, by name."""


def snapshot() -> Mapping[str, int]:
    """Return a copy of the counters."""
    return dict(done)


def work_since(before: Mapping[str, int]) -> dict[str, int]:
    """Return the nonzero differences from a snapshot.

    Args:
        before: an earlier snapshot.

    Returns:
        The work since then, by counter.
    """
    found = {name: count - before[name] for name, count in done.items()}
    return {name: count for name, count in found.items() if count}


def merge_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counters, by name.

    Args:
        parts: counters of several processes or periods.

    Returns:
        The sums.
    """
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return found


def count_proof_bytes(count: int) -> None:
    """Add ``count`` verified proof bytes."""
    done[PROOF_BYTES] += count


def count_proof_column(column: pa.Array) -> None:
    """Add the bytes of all values of a column as verified proof bytes."""
    done[PROOF_BYTES] += pc.sum(pc.binary_length(column)).as_py() or 0
