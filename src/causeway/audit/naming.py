"""Names of rows as numbers that mean the same in every run: digests of texts, and what they begin with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from causeway.audit.arrays import Ints, Words
from causeway.audit.columns import Bools, Columns
from causeway.ledger.limbs import slices_of
from causeway.proofs.hashing import HashFunction, digest_slices


def digests_of(columns: Columns, rows: Ints, name: str) -> tuple[Words, Bools]:
    """Return half of the SHA-256 of the texts of rows in a column, as two words each, and which rows have one."""
    texts = _taken(columns, rows, name)
    named = np.asarray(texts.is_valid()) if texts.null_count else np.ones(len(rows), bool)
    data, offsets = slices_of(texts)
    digests = digest_slices(HashFunction.SHA256, data, offsets[:-1], offsets[1:])
    words = np.ascontiguousarray(digests[:, :16]).view("<u8").astype(np.uint64, copy=False)
    return words.reshape(-1, 2), named


def own_names(columns: Columns, rows: Ints) -> dict[str, Words]:
    """Return what tells messages without index apart, of rows of them: ``begin``, the first eight bytes of their
    ``message_id`` as a number of the same order, and its digest ``own_0``, ``own_1``; 0 for those with an index."""
    begin, own = np.zeros(len(rows), np.uint64), np.zeros((len(rows), 2), np.uint64)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _taken(columns, rows[unindexed], "message_id").to_pylist()
        content = b"".join((text or "").encode()[:8].ljust(8, b"\0") for text in texts)
        begin[unindexed] = np.frombuffer(content, ">u8")
        own[unindexed] = digests_of(columns, rows[unindexed], "message_id")[0]
    return {"begin": begin, "own_0": np.ascontiguousarray(own[:, 0]), "own_1": np.ascontiguousarray(own[:, 1])}


def first_words(columns: Columns, rows: Ints) -> tuple[Words, Words]:
    """Return the first sixteen bytes of the ``message_id`` of rows without index as two numbers, which together have
    its order; 0 for rows with an index."""
    octets = np.zeros((len(rows), 16), np.uint8)
    unindexed = np.flatnonzero(columns.indexed[rows] == 0)
    if len(unindexed):
        texts = _taken(columns, rows[unindexed], "message_id")
        data, offsets = slices_of(texts)
        for place in range(16):
            at = offsets[:-1] + place
            inside = np.flatnonzero(at < offsets[1:])
            octets[unindexed[inside], place] = data[at[inside]]
    words = octets.view(">u8").astype(np.uint64)
    return np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])


def _taken(columns: Columns, rows: Ints, name: str) -> pa.Array:
    texts = columns.rows.take((name,), rows)[name].combine_chunks()
    return pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) else texts
