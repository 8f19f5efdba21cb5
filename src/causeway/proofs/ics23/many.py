"""Many existence proofs under one root, verified column by column.

Where proofs are canonical encodings under one of the deployed specs, they are read where they lie, and the nodes of one
level of the tree are hashed together, each distinct one once. Whatever is of any other form, or does not hold, goes
through ``verify_membership``, one by one: verdicts and errors are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.compiled_files import is_prepared
from causeway.model.errors import InvalidInput
from causeway.proofs.arrays import byte_column
from causeway.proofs.errors import ProofError
from causeway.proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_slices, engines
from causeway.proofs.ics23.proof_specs import SpecRules, StoreForm, rules_of
from causeway.proofs.ics23.verify import verify_membership
from causeway.proofs.limits import MAX_MESSAGE_BYTES
from causeway.proofs.wire.ics23_pb2 import ProofSpec

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Column: TypeAlias = "pa.BinaryArray | Sequence[bytes]"

PIECE = 1 << 12
"""Proofs are verified in pieces of this many, so that a level's preimages stay in the cache."""

FEW = 64
"""Up to this many proofs at once are verified one by one, which takes no longer."""

ENOUGH = 1 << 14
"""Proofs verified one by one in about the time that loading compiled loops takes: some tenths of a second."""

ENOUGH_TO_COMPILE = 20 * ENOUGH
"""The same for compiling them, on a machine where that was never done."""

DEEPEST = 256
"""Most steps of a proof that is verified in columns: as many as deployed specs allow."""

SHORTEST_STEP = 7
LONGEST_PREIMAGE = 155
"""Of a step of up to 127 bytes: prefix, hash and suffix."""

SPARE_BYTES = 64
"""Bytes behind what they write that the loops may overwrite."""

TABLE_SLOTS = 4
"""Slots for each proof in the table of a level's preimages."""

SHA256 = HashFunction.SHA256

_LOOPS = "causeway.proofs.ics23.many_loops"
_spent = 0


def verify_many(spec: ProofSpec, root: bytes, keys: Column, values: Column, proofs: Column) -> dict[int, ProofError]:
    """Check, for every row, that its value is stored under its key in the tree of ``root``.

    Args:
        spec: the store's proof spec.
        root: the root of all proofs.
        keys: what is looked up, a row each.
        values: what is claimed to be stored there.
        proofs: an encoded CommitmentProof each.

    Returns:
        By row, the error that ``verify_membership`` raises for it. A row that is not in it holds.

    Raises:
        InvalidInput: the columns are not equally long, or one has nulls or something else than byte strings.
    """
    columns = [byte_column(column) for column in (keys, values, proofs)]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise InvalidInput(f"keys, values and proofs must be equally many, not {sorted(lengths)} rows")
    rules = rules_of(spec)
    refused: dict[int, ProofError] = {}
    columnar = _worth_columns(len(columns[0]))
    for start in range(0, len(columns[0]), PIECE):
        piece = [column.slice(start, PIECE) for column in columns]
        holds = hold_in_columns(rules, root, *piece) if columnar else np.zeros(len(piece[0]), dtype=np.bool_)
        for row in np.flatnonzero(~holds).tolist():
            key, value, proof = (column[row].as_py() for column in piece)
            try:
                verify_membership(spec, root, proof, key, value)
            except ProofError as error:
                refused[start + row] = error
    return refused


def prepare() -> None:
    """Load what many proofs are verified with now, so that no later call waits for that."""
    from causeway.proofs.ics23 import many_loops  # noqa: F401

    engines.prepare()


def _worth_columns(count: int) -> bool:
    """Return whether so many proofs are better verified by the loops, which are then loaded if they were not."""
    global _spent
    if count <= FEW:
        return False
    if _LOOPS not in sys.modules:
        _spent += count
        if _spent < (ENOUGH if is_prepared() else ENOUGH_TO_COMPILE):
            return False
        prepare()
    return True


def hold_in_columns(rules: SpecRules, root: bytes, keys: pa.Array, values: pa.Array, proofs: pa.Array) -> Flags:
    """Return which rows hold; false where that takes a look at the message.

    The columns are of type large_binary, without nulls and equally long; a row that is true passes
    ``verify_membership``.

    Raises:
        InvalidInput: the offsets of a column do not lie inside of its data.
    """
    # Late: a process that verifies few proofs does without the loops.
    from causeway.proofs.ics23.many_loops import read_proofs

    count = len(proofs)
    if rules.form is StoreForm.OTHER or rules.max_depth < 0 or len(root) != DIGEST_BYTES or not count:
        return np.zeros(count, dtype=np.bool_)
    encoded, claimed_keys, claimed_values = _Bytes.of(proofs), _Bytes.of(keys), _Bytes.of(values)
    room = int(encoded.stops[-1] - encoded.starts[0]) // SHORTEST_STEP + count + 1
    key_at, leaf_at, depths, first_steps = np.empty((4, count), dtype=np.int64)
    read = _Read(encoded, key_at, leaf_at, depths, first_steps, np.empty(room, dtype=np.int64))
    read_proofs(
        *encoded,
        *claimed_keys,
        *claimed_values,
        np.frombuffer(rules.encoded_leaf, dtype=np.uint8)[1 : -1 - len(rules.leaf_prefix)],
        rules.form is StoreForm.IAVL,
        rules.is_tendermint,
        np.array([rules.min_prefix_length, rules.longest_prefix, rules.child_size], dtype=np.int64),
        MAX_MESSAGE_BYTES,
        min(rules.max_depth, DEEPEST),
        *read[1:],
    )
    read.depths[read.depths < rules.min_depth] = -1
    readable = read.depths >= 0
    if not readable.any():
        return readable
    leaves = _leaves(rules, read, np.flatnonzero(readable), claimed_keys, claimed_values)
    holds: Flags = readable & (_climb(read, leaves) == np.frombuffer(root, dtype=np.uint8)).all(axis=1)
    return holds


class _Bytes(NamedTuple):
    """A column: its bytes, and where each row begins and ends in them."""

    data: Bytes
    starts: Positions
    stops: Positions

    @classmethod
    def of(cls, column: pa.Array) -> _Bytes:
        _, offsets_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
        if offsets[0] < 0 or offsets[-1] > len(data) or (offsets[1:] < offsets[:-1]).any():
            raise InvalidInput(f"the offsets of a column must ascend within its {len(data)} bytes")
        return cls(data, offsets[:-1], offsets[1:])


class _Read(NamedTuple):
    """Proofs that ``read_proofs`` has read; its arguments say what the arrays hold."""

    proofs: _Bytes
    key_at: Positions
    leaves: Positions
    depths: Positions
    first_steps: Positions
    steps: Positions


def _leaves(rules: SpecRules, read: _Read, rows: Positions, keys: _Bytes, values: _Bytes) -> Digests:
    """Return the hashes of the leaves of ``rows``, and zeros for all others, shape (n, 32)."""
    from causeway.proofs.ics23.many_loops import write_leaves

    value_hashes = key_hashes = digest_slices(SHA256, values.data, values.starts[rows], values.stops[rows])
    hashed = rules.form is StoreForm.SPARSE
    if hashed:
        key_hashes = digest_slices(SHA256, keys.data, keys.starts[rows], keys.stops[rows])
        lengths = np.full(len(rows), 2 * DIGEST_BYTES)
    else:
        lengths = (keys.stops - keys.starts)[rows]
        lengths = lengths + 1 + (lengths >= 1 << 7) + (lengths >= 1 << 14) + 1 + DIGEST_BYTES
    data = read.proofs.data
    ends = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(lengths + data[read.leaves[rows] - 1], out=ends[1:])
    preimages = np.empty(int(ends[-1]) + SPARE_BYTES, dtype=np.uint8)
    write_leaves(data, rows, read.key_at, read.leaves, key_hashes, value_hashes, hashed, ends, preimages)
    hashes = np.zeros((len(read.depths), DIGEST_BYTES), dtype=np.uint8)
    hashes[rows] = digest_slices(SHA256, preimages, ends[:-1], ends[1:])
    return hashes


def _climb(read: _Read, leaves: Digests) -> Digests:
    """Return the root that each proof leads to, its leaf where it has no steps, shape (n, 32)."""
    from causeway.proofs.ics23.many_loops import write_nodes

    count = len(leaves)
    preimages = np.empty(count * LONGEST_PREIMAGE + SPARE_BYTES, dtype=np.uint8)
    table = np.empty(1 << (TABLE_SLOTS * count - 1).bit_length(), dtype=np.int64)
    ends, owners = np.zeros(count + 1, dtype=np.int64), np.empty(count, dtype=np.int64)
    below, nodes, leaders = leaves, np.full(count, -1), np.full(count, -1)
    for level in range(int(read.depths.max()), 0, -1):
        distinct = write_nodes(
            read.proofs.data, read.proofs.stops, read.steps, read.first_steps, read.depths, level, leaves, below,
            nodes, leaders, owners, table, ends[1:], preimages,
        )  # fmt: skip
        below = digest_slices(SHA256, preimages, ends[:distinct], ends[1 : distinct + 1])
    last = np.where(leaders < 0, np.arange(count), leaders)
    # Who leads another may be led by a third: no more often than there are levels.
    while (leaders[last] >= 0).any():
        last = last[last]
    nodes = nodes[last]
    return np.where((nodes < 0)[:, None], leaves[last], below[nodes])
