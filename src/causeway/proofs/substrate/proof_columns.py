"""Storage proofs as columns: what is verified in bulk, and what is made in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import InvalidInput
from causeway.model.order import Rows
from causeway.proofs.arrays import ends, integers
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate.byte_columns import byte_column, digest_column, ends_of, whole
from causeway.proofs.substrate.node import StateVersion
from causeway.proofs.substrate.proof import ProofReader

Column: TypeAlias = "pa.Array | pa.ChunkedArray | Iterable[bytes]"


@dataclass(frozen=True, slots=True, eq=False)
class StorageProofs:
    """Storage proofs as columns.

    Attributes:
        roots: the root of each proof, 32 bytes where it is none of them that is malformed.
        nodes: encoded nodes, of all proofs; several proofs may use one.
        members: rows of ``nodes``, proof after proof.
        offsets: where the members of each proof start, and last where they end: one more than there are proofs.
        versions: a layout each (``StateVersion``), -1 where a node says itself how its value is stored.

    Raises:
        InvalidInput: the columns are not of these types, not equally long, or a number lies outside of its range.
    """

    roots: pa.LargeBinaryArray
    nodes: pa.LargeBinaryArray
    members: Rows
    offsets: Rows
    versions: npt.NDArray[np.int8]

    def __post_init__(self) -> None:
        roots, nodes = byte_column(self.roots), byte_column(self.nodes)
        members = integers(self.members, "members", np.int64, 0, len(nodes) - 1)
        offsets = ends(self.offsets, "offsets", len(members))
        versions = integers(self.versions, "versions", np.int8, -1, max(StateVersion))
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
        """Return the proofs that have these roots and nodes.

        Args:
            roots: a root each: a matrix of shape (proofs, 32), or byte strings.
            nodes: a list of nodes each: lists of byte strings, or an Arrow column of lists of them. Where its values
                are a dictionary's, proofs share them, and each is compared and hashed once.
            versions: one layout for all proofs, or an array with one each, -1 for none; default: none.

        Raises:
            InvalidInput: the columns are not equally long, hold nulls, or something else than byte strings.
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
        """Return the nodes of one proof."""
        rows = self.members[self.offsets[proof] : self.offsets[proof + 1]]
        nodes: list[bytes] = self.nodes.take(pa.array(rows)).to_pylist()
        return nodes

    def reader(self, proof: int, *, strict: bool = False) -> ProofReader:
        """Return the reader of one proof.

        Raises:
            ProofError: as for ``ProofReader``.
        """
        version = int(self.versions[proof])
        layout = None if version < 0 else StateVersion(version)
        return ProofReader(self.roots[proof].as_py(), self.nodes_of(proof), layout, strict=strict)


def _lists(nodes: pa.Array | pa.ChunkedArray | Sequence[Sequence[bytes]]) -> tuple[pa.LargeBinaryArray, Rows, Rows]:
    """Return the values of lists, the values' rows one list after the other, and where each list's start."""
    if not isinstance(nodes, (pa.Array, pa.ChunkedArray)):
        try:
            lists = [list(given) for given in nodes]
        except TypeError as error:
            raise InvalidInput(f"the nodes of proofs must be a list of byte strings each: {error}") from error
        column = byte_column(node for given in lists for node in given)
        return column, np.arange(len(column), dtype=np.int64), ends_of(np.array([*map(len, lists)], dtype=np.int64))
    nodes = whole(nodes, "nodes")
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
