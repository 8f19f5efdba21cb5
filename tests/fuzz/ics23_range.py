"""Range proofs of simple stores under arbitrary bytes."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from causeway_proofs.errors import ProofError
from causeway_proofs.ics23.simple_store import SimpleStore, verify_range_proof

_KEYS = [b"ibc:B:send" + number.to_bytes(8, "big") for number in range(13)]
_STORE = SimpleStore.of(pa.array(_KEYS, pa.binary()), pa.array([key[-2:] for key in _KEYS], pa.binary()))


def range_proof(data: bytes) -> None:
    try:
        run = verify_range_proof(_STORE.root, data)
    except ProofError:
        return
    first = _KEYS.index(run.entries.keys[0].as_py())
    assert data == _STORE.range_proof(first, first + len(run.entries) - 1)


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "ics23_range_proof": (
        range_proof,
        [_STORE.range_proof(first, last) for first, last in ((0, 12), (0, 0), (12, 12), (3, 9), (8, 12), (4, 7))],
    ),
}
