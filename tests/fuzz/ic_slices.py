"""Column slices and stream paths under arbitrary bytes: verdicts equal those of single slices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from causeway_proofs.errors import MalformedProof, ProofError
from causeway_proofs.hashing import Digests
from causeway_proofs.ic.digest_columns import indexed_digests, leaf_digests
from causeway_proofs.ic.primitives import CertificationVersion
from causeway_proofs.ic.slice import decode_certified_stream_slice, encode_certified_stream_slice
from causeway_proofs.ic.slice_columns import decode_path, path_root, slice_roots
from causeway_proofs.ic.stream_header import StreamHeader
from causeway_proofs.ic.stream_tree import StreamTree

from tests.fuzz.ic_encodings import HEADER, MESSAGES, SLICE
from tests.oracles.ic.faults import slice_error
from tests.oracles.ic.paths import encode_path
from tests.oracles.ic.slice_forms import SliceRow, from_certified_slice, to_certified_slice

NEWEST = max(CertificationVersion)
HONEST = from_certified_slice(SLICE)
STREAM = StreamTree(HEADER, 5, MESSAGES[:3])
PATHS = [HONEST.path, encode_path([], []), encode_path([(0, bytes(32)), (1, b"\1" * 32)], [(1, bytes(32))])]


def _verified(row: SliceRow, header: StreamHeader) -> tuple[bytes, int]:
    """Return the root of a slice and its error; an honest one on either side is verified."""
    own = SLICE.payload.header
    rows, headers = [HONEST, row, HONEST], [own, header, own]
    begins, ends = (np.array([getattr(one, name) for one in headers], np.uint64) for name in ("begin", "end"))
    roots = np.zeros((3, 32), dtype=np.uint8)
    faults = np.zeros(3, dtype=np.uint8)
    # Ids of one length each are verified together.
    for picked in ([0, 1, 2],) if len(row.destination) == len(HONEST.destination) else ([0, 2], [1]):
        some = [rows[at] for at in picked]
        roots[picked], faults[picked] = slice_roots(
            pa.array([one.header for one in some], pa.binary()),
            [one.destination for one in some],
            np.concatenate([_leaves(one) for one in some]),
            np.array([len(one.messages) for one in some]),
            np.array([one.begin for one in some], np.uint64) - begins[picked],
            (ends - begins)[picked],
            pa.array([one.siblings for one in some], pa.binary()),
            pa.array([one.path for one in some], pa.binary()),
        )
    assert roots[0].tobytes() == roots[2].tobytes() == SLICE.certification.root_hash and not faults[[0, 2]].any()
    return roots[1].tobytes(), int(faults[1])


def _leaves(row: SliceRow) -> Digests:
    indexes = np.arange(len(row.messages), dtype=np.uint64) + np.uint64(row.begin)
    return indexed_digests(indexes, leaf_digests(pa.array(row.messages, pa.binary())))


def both_forms(data: bytes) -> None:
    """A slice converted to a row equals the slice of that row, and has the same root."""
    try:
        found = decode_certified_stream_slice(data, NEWEST)
        row = from_certified_slice(found)
    except ProofError:
        return
    made = to_certified_slice(row, found.certification, NEWEST)
    assert encode_certified_stream_slice(made) == data
    assert _verified(row, found.payload.header) == (found.root_digest(), 0)


def path(data: bytes) -> None:
    """A path leads to the same root in both forms, or is refused for the same reason."""
    stream = SLICE.payload.header
    row = SliceRow(HONEST.destination, HONEST.header, HONEST.begin, HONEST.messages, HONEST.siblings, data)
    root, fault = _verified(row, stream)
    try:
        expected, error = path_root(decode_path(data), HONEST.destination, STREAM.root), ""
    except MalformedProof as refused:
        expected, error = bytes(32), f"WitnessPruningFailed: {refused}"
    assert root == expected and error == (str(slice_error(fault)) if fault else "")
    assert (root == SLICE.certification.root_hash) == (data == HONEST.path)


TARGETS: dict[str, tuple[Callable[[bytes], None], list[bytes]]] = {
    "ic_slice_forms": (both_forms, [encode_certified_stream_slice(SLICE)]),
    "ic_stream_path": (path, PATHS),
}
