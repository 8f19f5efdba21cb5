"""Names as codes: what a pass over columns compares, and what it turns back into names at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int32]

NOT_SEEN = -1
"""The code of null."""


class Names:
    """The names of one pass, numbered in the order in which they were first seen. ``names``: those known before."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._code_of: dict[str, int] = {}
        for name in names:
            self.code(name)

    def __len__(self) -> int:
        return len(self._code_of)

    def code(self, name: str | None) -> int:
        """Return the code of a name, a new one if need be; ``NOT_SEEN`` of None."""
        return NOT_SEEN if name is None else self._code_of.setdefault(name, len(self._code_of))

    def known(self) -> list[str]:
        """Return the names by their codes."""
        return [*self._code_of]

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """Return the code of each row of a column of texts or dictionaries, ``NOT_SEEN`` where it is null.

        Only what stands in a dictionary is looked at name by name; entries that no row uses get no code.
        """
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found = [self._of_chunk(chunk) for chunk in chunks]
        return found[0] if len(found) == 1 else np.concatenate([np.zeros(0, dtype=np.int32), *found])

    def column(self, codes: Codes) -> pa.DictionaryArray:
        """Return codes as a column of names."""
        missing = codes < 0
        indices = pa.array(codes, mask=missing if missing.any() else None)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.known(), pa.string()))

    def _of_chunk(self, chunk: pa.Array) -> Codes:
        if not pa.types.is_dictionary(chunk.type):
            chunk = chunk.dictionary_encode()
        if not len(chunk):
            return np.zeros(0, dtype=np.int32)
        places, entries = _places(chunk)
        table = np.full(len(chunk.dictionary) + 1, NOT_SEEN, dtype=np.int32)
        table[entries] = self._all(chunk.dictionary.take(pa.array(entries)).to_pylist())
        found: Codes = table[places]
        return found

    def _all(self, names: Sequence[str | None]) -> list[int]:
        return [self.code(name) for name in names]


def drop_unused_names(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return a dictionary column without the entries of its dictionary that no row uses."""
    places, entries = _places(column)
    if len(entries) == len(column.dictionary):
        return column
    renumbered = np.full(len(column.dictionary) + 1, NOT_SEEN, dtype=np.int32)
    renumbered[entries] = np.arange(len(entries), dtype=np.int32)
    rows = renumbered[places]
    names = column.dictionary.take(pa.array(entries))
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=rows < 0), names)


def _places(column: pa.DictionaryArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the entry of its dictionary that each row uses, -1 for null, and which entries are used, ascending."""
    indices = column.indices.fill_null(NOT_SEEN) if column.indices.null_count else column.indices
    places = indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    used = np.zeros(len(column.dictionary) + 1, dtype=bool)
    used[places] = True
    return places, np.flatnonzero(used[:-1])


def name_ranks(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """Return where each row's name stands among all of the column by its UTF-8 bytes, from 1; 0: null."""
    if pa.types.is_dictionary(column.type):  # it may hold a name twice, or one that no row has
        names = Names()
        codes, known = names.codes(column), pa.array(names.known(), pa.string())
    else:
        rows = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], column.type)
        encoded = rows.dictionary_encode().unify_dictionaries().combine_chunks()
        codes, known = encoded.indices.fill_null(NOT_SEEN).to_numpy(zero_copy_only=False), encoded.dictionary
    ranks = np.zeros(len(known) + 1, dtype=np.uint32)
    ranks[pc.sort_indices(known).to_numpy()] = np.arange(1, len(known) + 1)
    found: npt.NDArray[np.uint32] = ranks[codes]  # the last one, 0, is that of NOT_SEEN
    return found


__all__ = ["NOT_SEEN", "Codes", "Names", "drop_unused_names", "name_ranks"]
