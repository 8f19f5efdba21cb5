"""Verify many storage proofs at once, in columns, with the verdicts of ``ProofReader``.

Proofs of one state share most nodes. Each distinct node is hashed once over all proofs; the nodes of a proof and those
visited by its keys are counted for each proof.

Reference:
    XDM reference 2.4, ICMP reference 2.3.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from causeway_proofs.arrays import integer_array, part_ends
from causeway_proofs.distinct import distinct_slices
from causeway_proofs.errors import InvalidInput, MalformedProof, NotProven, OverLimit, ProofError
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, digest_slices
from causeway_proofs.limits import MAX_PROOF_BYTES, MAX_PROOF_NODES
from causeway_proofs.order import Rows
from causeway_proofs.substrate.byte_columns import (
    Bytes,
    byte_column,
    column_data,
    column_from_buffers,
    column_offsets,
    contiguous_column,
    digest_column,
    offsets_from_lengths,
)
from causeway_proofs.substrate.errors import InvalidProof, MissingValue, UnusedNodesInTheProof
from causeway_proofs.substrate.node import EMPTY_ROOT, StateVersion
from causeway_proofs.substrate.proof import ProofReader, require_entry, require_value

Column: TypeAlias = "pa.Array | pa.ChunkedArray | Iterable[bytes]"


@dataclass(frozen=True, slots=True, eq=False)
class StorageProofs:
    """Storage proofs as columns.

    Attributes:
        roots: root of each proof, 32 bytes unless malformed.
        nodes: distinct encoded nodes of all proofs; proofs may share them.
        members: rows of ``nodes``, proof after proof.
        offsets: start of each proof's members and, last, the end, shape (proofs + 1,).
        versions: layout of each proof (``StateVersion``), -1 if each node states how its value is stored.

    Raises:
        InvalidInput: types or lengths differ, or a number is out of range.
    """

    roots: pa.LargeBinaryArray
    nodes: pa.LargeBinaryArray
    members: Rows
    offsets: Rows
    versions: npt.NDArray[np.int8]

    def __post_init__(self) -> None:
        roots, nodes = byte_column(self.roots), byte_column(self.nodes)
        members = integer_array(self.members, "members", np.int64, 0, len(nodes) - 1)
        offsets = part_ends(self.offsets, "offsets", len(members))
        versions = integer_array(self.versions, "versions", np.int8, -1, max(StateVersion))
        if not len(roots) == len(versions) == len(offsets) - 1:
            raise InvalidInput(
                f"{len(roots)} roots and {len(versions)} versions are given for {len(offsets) - 1} lists of nodes, one "
                "each is wanted"
            )
        columns = {"roots": roots, "nodes": nodes, "members": members, "offsets": offsets, "versions": versions}
        for name, column in columns.items():
            object.__setattr__(self, name, column)

    @classmethod
    def of(
        cls,
        roots: Digests | Column,
        nodes: pa.Array | pa.ChunkedArray | Sequence[Sequence[bytes]],
        versions: StateVersion | npt.NDArray[np.int8] | None = None,
    ) -> StorageProofs:
        """Build proofs from their roots and nodes.

        Args:
            roots: root of each proof: shape (proofs, 32), or byte strings.
            nodes: nodes of each proof: lists of byte strings, or an Arrow column of lists. Proofs share the values of a
                dictionary column, and each is compared and hashed once.
            versions: one layout for all proofs, or an array with one each, -1 for none; default: none.

        Returns:
            The proofs.

        Raises:
            InvalidInput: lengths differ, or a value is null or not a byte string.
        """
        if isinstance(roots, np.ndarray):
            roots = digest_column(roots)
        root_column = byte_column(roots)
        node_column, members, offsets = _lists(nodes)
        if versions is None or isinstance(versions, int):
            versions = np.full(len(root_column), -1 if versions is None else versions)
        return cls(root_column, node_column, members, offsets, versions)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def nodes_of(self, proof: int) -> list[bytes]:
        """Return the nodes of one proof.

        Args:
            proof: its number.

        Returns:
            The encoded nodes.
        """
        rows = self.members[self.offsets[proof] : self.offsets[proof + 1]]
        nodes: list[bytes] = self.nodes.take(pa.array(rows)).to_pylist()
        return nodes

    def reader(self, proof: int, *, strict: bool = False) -> ProofReader:
        """Return a reader of one proof.

        Args:
            proof: its number.
            strict: reject duplicated nodes.

        Returns:
            The reader.

        Raises:
            ProofError: as for ``ProofReader``.
        """
        version = int(self.versions[proof])
        layout = None if version < 0 else StateVersion(version)
        return ProofReader(self.roots[proof].as_py(), self.nodes_of(proof), layout, strict=strict)


def _lists(nodes: pa.Array | pa.ChunkedArray | Sequence[Sequence[bytes]]) -> tuple[pa.LargeBinaryArray, Rows, Rows]:
    """Return the distinct values of lists, the lists as rows of these, and their starts."""
    if not isinstance(nodes, (pa.Array, pa.ChunkedArray)):
        try:
            lists = [list(given) for given in nodes]
        except TypeError as error:
            raise InvalidInput(f"the nodes of proofs must be a list of byte strings each: {error}") from error
        column = byte_column(node for given in lists for node in given)
        return (
            column,
            np.arange(len(column), dtype=np.int64),
            offsets_from_lengths(np.array([*map(len, lists)], dtype=np.int64)),
        )
    nodes = contiguous_column(nodes, "nodes")
    if not (pa.types.is_list(nodes.type) or pa.types.is_large_list(nodes.type)):
        raise InvalidInput(f"the nodes of proofs are a column of {nodes.type}, lists of byte strings are wanted")
    if nodes.null_count:
        raise InvalidInput("a column of nodes holds a null, only lists of byte strings are allowed")
    offsets = nodes.offsets.to_numpy().astype(np.int64)
    values = nodes.values[offsets[0] : offsets[-1]]
    offsets = offsets - offsets[0]
    if isinstance(values, pa.DictionaryArray):
        if values.indices.null_count:
            raise InvalidInput("a column of nodes holds a null, only lists of byte strings are allowed")
        return byte_column(values.dictionary), values.indices.to_numpy().astype(np.int64), offsets
    return byte_column(values), np.arange(len(values), dtype=np.int64), offsets


class KeyStatus(IntEnum):
    """Result of reading a key; the first three are those of ``ReadStatus``."""

    VALUE = 0
    ABSENT = 1
    INCOMPLETE = 2
    INVALID = 3
    """A node on the path is malformed: ``InvalidProof``."""
    OVER_LIMIT = 4
    """The key is too long: ``OverLimit``."""
    UNREAD = 5
    """The whole proof is rejected before any key is read."""


class StorageVerdict(IntEnum):
    """Verdict on a proof: valid, or the error raised for a single proof."""

    HOLDS = 0
    MALFORMED_PROOF = 1
    OVER_LIMIT = 2
    UNUSED_NODES = 3
    INVALID_PROOF = 4
    MISSING_VALUE = 5
    NOT_PROVEN = 6

    @property
    def error(self) -> type[ProofError] | None:
        """Return the error's type, or None for a valid proof."""
        return _ERRORS.get(self)


_ERRORS: dict[StorageVerdict, type[ProofError]] = {
    StorageVerdict.MALFORMED_PROOF: MalformedProof,
    StorageVerdict.OVER_LIMIT: OverLimit,
    StorageVerdict.UNUSED_NODES: UnusedNodesInTheProof,
    StorageVerdict.INVALID_PROOF: InvalidProof,
    StorageVerdict.MISSING_VALUE: MissingValue,
    StorageVerdict.NOT_PROVEN: NotProven,
}

Codes = npt.NDArray[np.int8]

_OF_STATUS = np.zeros(len(KeyStatus), dtype=np.int8)
_OF_STATUS[[KeyStatus.INCOMPLETE, KeyStatus.INVALID]] = StorageVerdict.INVALID_PROOF
_OF_STATUS[KeyStatus.OVER_LIMIT] = StorageVerdict.OVER_LIMIT


@dataclass(frozen=True, slots=True, eq=False)
class StorageReads:
    """Results of reading keys from storage proofs.

    Attributes:
        proofs: the proofs.
        keys: the keys.
        proof_of_key: proof number of each key.
        status: result of each key (``KeyStatus``).
        starts: start of each key's value in ``column_data(proofs.nodes)``, 0 for none: the very bytes that were hashed.
        stops: end of each key's value.
        opened: verdict on each proof before any key is read (``StorageVerdict``).
        unused: nodes of each proof visited by none of its keys; 0 for an unread proof.
        repeated: duplicated nodes of each proof; 0 for a proof over a limit.
        strict: True if a proof with a duplicated node is rejected.
        order: rows of the keys, proof after proof.
        key_offsets: start of each proof's rows in ``order`` and, last, the end.
    """

    proofs: StorageProofs
    keys: pa.LargeBinaryArray
    proof_of_key: Rows
    status: npt.NDArray[np.uint8]
    starts: Rows
    stops: Rows
    opened: Codes
    unused: Rows
    repeated: Rows
    strict: bool
    order: Rows
    key_offsets: Rows

    def value(self, key: int) -> bytes | None:
        """Return the value of one key, or None.

        Args:
            key: row of the key.

        Returns:
            The value, or None.
        """
        if self.status[key] != KeyStatus.VALUE:
            return None
        return column_data(self.proofs.nodes)[self.starts[key] : self.stops[key]].tobytes()

    def values(self) -> pa.LargeBinaryArray:
        """Return all values as a byte column of their own, null for keys without one."""
        from causeway_proofs.substrate.proof_loops import gather_slices

        offsets = offsets_from_lengths(self.stops - self.starts)
        data = np.empty(offsets[-1], dtype=np.uint8)
        gather_slices(column_data(self.proofs.nodes), self.starts, self.stops, offsets, data)
        return column_from_buffers(data, offsets, self.status == KeyStatus.VALUE)


@dataclass(frozen=True, slots=True, eq=False)
class StorageVerdicts:
    """Verdicts on storage proofs with claims.

    Attributes:
        reads: results of reading the keys.
        codes: verdict on each proof (``StorageVerdict``).
        claims: mask of claimed values and the values; None if any value is accepted.
    """

    reads: StorageReads
    codes: Codes
    claims: tuple[npt.NDArray[np.bool_], pa.LargeBinaryArray] | None

    @property
    def refused(self) -> Rows:
        """Return the numbers of invalid proofs."""
        return np.flatnonzero(self.codes)

    def error(self, proof: int) -> ProofError | None:
        """Return the error of one proof, as raised for a single proof, or None for a valid one.

        The proof is read again to build the error, so call this for reported proofs only.

        Args:
            proof: number of the proof.

        Returns:
            The error, or None.
        """
        if self.codes[proof] == StorageVerdict.HOLDS:
            return None
        try:
            reads = self.reads
            reader = reads.proofs.reader(proof, strict=reads.strict)
            for row in reads.order[reads.key_offsets[proof] : reads.key_offsets[proof + 1]].tolist():
                key = reads.keys[row].as_py()
                if self.claims is None:
                    require_value(reader, key)
                else:
                    claimed, values = self.claims
                    require_entry(reader, key, values[row].as_py() if claimed[row] else None)
            reader.require_all_used()
        except ProofError as error:
            return error
        raise AssertionError(f"proof {proof} is refused in columns and holds alone")


def read_storage_proofs(
    proofs: StorageProofs, keys: Column, proof_of_key: Rows | None = None, *, strict: bool = False
) -> StorageReads:
    """Read keys from proofs; nodes unused by any key are counted, and allowed.

    Args:
        proofs: the proofs.
        keys: the keys.
        proof_of_key: proof number of each key, in any order; default: one key a proof.
        strict: reject a proof with a duplicated node; default: count such nodes.

    Returns:
        The results.

    Raises:
        InvalidInput: a key is not a byte string, or a proof number is out of range.
    """
    from causeway_proofs.substrate import proof_loops

    key_column = byte_column(keys)
    proof_of_key = _proof_of_key(proofs, len(key_column), proof_of_key)
    order, key_offsets = _by_proof(proof_of_key, len(proofs))
    opened, roots = _opened(proofs)
    data = column_data(proofs.nodes)
    starts, stops = _slices_of_nodes(proofs, opened)
    numbers, firsts = distinct_slices(data, starts, stops)
    starts, stops = starts[firsts], stops[firsts]
    digests = digest_slices(HashFunction.BLAKE2B_256, data, starts, stops).reshape(-1)
    table, same = _rows(1 << max(4, (2 * len(firsts)).bit_length())), np.empty(len(firsts), dtype=np.int64)
    proof_loops.index_digests(digests, _SECRET, table, same)

    count = len(key_column)
    key_starts, key_stops = column_offsets(key_column)[:-1][order], column_offsets(key_column)[1:][order]
    status = np.full(count, KeyStatus.UNREAD, dtype=np.uint8)
    value_starts, value_stops = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    repeated, unused = np.zeros(len(proofs), dtype=np.int64), np.zeros(len(proofs), dtype=np.int64)
    proof_loops.read_keys(
        data, starts, stops, digests, _SECRET, table,
        _EMPTY_ROOT, roots, (opened == StorageVerdict.HOLDS).view(np.uint8),
        (proofs.versions == StateVersion.V0).view(np.uint8), proofs.offsets, same[numbers[proofs.members]],
        column_data(key_column), key_starts, key_stops, key_offsets,
        status, value_starts, value_stops, repeated, unused, _rows(len(firsts)), _rows(len(firsts)),
    )  # fmt: skip
    if strict and repeated.any():
        refused = np.repeat(repeated > 0, np.diff(key_offsets))
        status[refused], value_starts[refused], value_stops[refused] = KeyStatus.UNREAD, 0, 0
        opened[repeated > 0], unused[repeated > 0] = StorageVerdict.UNUSED_NODES, 0
    back = np.empty(count, dtype=np.int64)
    back[order] = np.arange(count)
    return StorageReads(
        proofs, key_column, proof_of_key, status[back], value_starts[back], value_stops[back], opened, unused,
        repeated, strict, order, key_offsets,
    )  # fmt: skip


def read_values(
    proofs: StorageProofs, keys: Column, proof_of_key: Rows | None = None, *, strict: bool = False
) -> StorageVerdicts:
    """Read the value under each key, from proofs of nothing else: ``read_value`` by columns.

    Valid proofs have a value under each of their keys (``StorageVerdicts.reads``) and no unused node; with ``strict``
    no duplicated one, either.

    Args:
        proofs: the proofs.
        keys: the keys.
        proof_of_key: as for ``read_storage_proofs``.
        strict: as for ``read_storage_proofs``.

    Returns:
        The verdicts.

    Raises:
        InvalidInput: as for ``read_storage_proofs``.
    """
    reads = read_storage_proofs(proofs, keys, proof_of_key, strict=strict)
    verdicts = _OF_STATUS[reads.status]
    verdicts[reads.status == KeyStatus.ABSENT] = StorageVerdict.MISSING_VALUE
    return StorageVerdicts(reads, _codes(reads, verdicts), None)


def verify_storage_proofs(
    proofs: StorageProofs,
    keys: Column,
    values: pa.Array | pa.ChunkedArray | Sequence[bytes | None],
    proof_of_key: Rows | None = None,
    *,
    strict: bool = False,
) -> StorageVerdicts:
    """Verify that proofs show exactly these entries: ``verify_storage_proof`` by columns.

    Args:
        proofs: the proofs.
        keys: the keys.
        values: claimed value of each key, null for an absent key.
        proof_of_key: as for ``read_storage_proofs``.
        strict: as for ``read_storage_proofs``.

    Returns:
        The verdicts.

    Raises:
        InvalidInput: as for ``read_storage_proofs``, or keys and values differ in number.
    """
    from causeway_proofs.substrate.proof_loops import compare_slices

    claimed, expected = _claims(values)
    reads = read_storage_proofs(proofs, keys, proof_of_key, strict=strict)
    if len(expected) != len(reads.keys):
        raise InvalidInput(f"{len(expected)} values are claimed for {len(reads.keys)} keys, one each is wanted")
    offsets, same = column_offsets(expected), np.empty(len(expected), dtype=np.uint8)
    compare_slices(
        column_data(reads.proofs.nodes),
        reads.starts,
        reads.stops,
        column_data(expected),
        offsets[:-1],
        offsets[1:],
        same,
    )
    verdicts = _OF_STATUS[reads.status]
    verdicts[(reads.status == KeyStatus.ABSENT) & claimed] = StorageVerdict.MISSING_VALUE
    verdicts[(reads.status == KeyStatus.VALUE) & ~(claimed & (same == 1))] = StorageVerdict.NOT_PROVEN
    return StorageVerdicts(reads, _codes(reads, verdicts), (claimed, expected))


def _claims(
    values: pa.Array | pa.ChunkedArray | Sequence[bytes | None],
) -> tuple[npt.NDArray[np.bool_], pa.LargeBinaryArray]:
    """Return the mask of non-null values, and all values, nulls as empty."""
    column = byte_column(values, nulls=True)
    return pc.is_valid(column).to_numpy(zero_copy_only=False), column


def _codes(reads: StorageReads, verdicts: Codes) -> Codes:
    """Return the verdict on each proof: as a whole, by its first failing key, or by its nodes."""
    codes = np.where(reads.unused > 0, np.int8(StorageVerdict.UNUSED_NODES), np.int8(StorageVerdict.HOLDS))
    failing = np.flatnonzero(verdicts)
    proofs, first = np.unique(reads.proof_of_key[failing], return_index=True)
    codes[proofs] = verdicts[failing[first]]
    return np.where(reads.opened != StorageVerdict.HOLDS, reads.opened, codes)


def _opened(proofs: StorageProofs) -> tuple[Codes, Bytes]:
    """Return the verdict on each proof by size and root alone, and the concatenated roots."""
    counts = np.diff(proofs.offsets)
    total = offsets_from_lengths(np.diff(column_offsets(proofs.nodes))[proofs.members])
    sizes = total[proofs.offsets[1:]] - total[proofs.offsets[:-1]]
    opened = np.zeros(len(proofs), dtype=np.int8)
    opened[(counts > MAX_PROOF_NODES) | (sizes > MAX_PROOF_BYTES)] = StorageVerdict.OVER_LIMIT
    offsets = column_offsets(proofs.roots)
    right = np.diff(offsets) == DIGEST_BYTES
    opened[~right] = StorageVerdict.MALFORMED_PROOF
    roots = np.zeros((len(proofs), DIGEST_BYTES), dtype=np.uint8)
    roots[right] = column_data(proofs.roots)[offsets[:-1][right, None] + np.arange(DIGEST_BYTES)]
    return opened, roots.reshape(-1)


def _slices_of_nodes(proofs: StorageProofs, opened: Codes) -> tuple[Rows, Rows]:
    """Return the starts and stops of nodes; nodes used by rejected proofs only are empty slices."""
    offsets = column_offsets(proofs.nodes)
    if not opened.any():
        return offsets[:-1], offsets[1:]
    read = np.zeros(len(proofs.nodes), dtype=np.bool_)
    read[proofs.members[np.repeat(opened == StorageVerdict.HOLDS, np.diff(proofs.offsets))]] = True
    return offsets[:-1], np.where(read, offsets[1:], offsets[:-1])


def _proof_of_key(proofs: StorageProofs, keys: int, proof_of_key: Rows | None) -> Rows:
    if proof_of_key is None:
        if keys != len(proofs):
            raise InvalidInput(f"{keys} keys are given for {len(proofs)} proofs; without numbers, one each is wanted")
        return np.arange(keys, dtype=np.int64)
    numbers = integer_array(proof_of_key, "the numbers of keys' proofs", np.int64, 0, len(proofs) - 1)
    if len(numbers) != keys:
        raise InvalidInput(f"{len(numbers)} numbers of proofs are given for {keys} keys, one each is wanted")
    return numbers


def _by_proof(proof_of_key: Rows, proofs: int) -> tuple[Rows, Rows]:
    """Return the order of keys by proof, and the start of each proof's keys in it."""
    order = np.arange(len(proof_of_key), dtype=np.int64)
    if bool((np.diff(proof_of_key) < 0).any()):
        order = np.argsort(proof_of_key, kind="stable")
    return order, offsets_from_lengths(np.bincount(proof_of_key, minlength=proofs))


def _rows(count: int) -> Rows:
    return np.full(count, -1, dtype=np.int64)


_EMPTY_ROOT = np.frombuffer(EMPTY_ROOT, dtype=np.uint8)
_SECRET = np.frombuffer(secrets.token_bytes(DIGEST_BYTES), dtype=np.uint64) | np.uint64(1)
"""Random hash table key of this process, against chosen collisions."""
