"""Arrays and columns that a caller gives, before a loop takes them: loops trust types, shapes and ranges."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import DIGEST_BYTES, Digests

Number = TypeVar("Number", bound=np.generic)

LARGE_BINARY = pa.large_binary()


def integer_array(
    values: Any, what: str, dtype: type[Number], least: int | None = None, most: int | None = None
) -> npt.NDArray[Number]:
    """Return a list of integers as a contiguous array of ``dtype``; copied only if it is none.

    Args:
        values: an array of any integers, or a list of them.
        what: names them in errors.
        least, most: bounds; default: those of ``dtype``.

    Raises:
        InvalidInput: there is something else than integers, more than one dimension, or a number out of bounds.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{what} must be integers, one behind the other: {error}") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidInput(
            f"{what} must be integers, one behind the other, not {array.dtype} in the shape {array.shape}"
        )
    bounds: Any = np.iinfo(dtype)
    least, most = bounds.min if least is None else least, bounds.max if most is None else most
    if array.size and not least <= int(array.min()) <= int(array.max()) <= most:
        raise InvalidInput(f"{what} must be from {least} to {most}, not {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, dtype=dtype)


def part_ends(values: Any, what: str, most: int) -> npt.NDArray[np.int64]:
    """Return where the parts of a list of ``most`` start and, last, where the last one ends, ascending.

    Raises:
        InvalidInput: there is none, they do not ascend, or are no integers from 0 to ``most``.
    """
    offsets = integer_array(values, what, np.int64, 0, most)
    if not len(offsets) or bool((offsets[1:] < offsets[:-1]).any()):
        raise InvalidInput(f"{what} must ascend from 0 to at most {most}, and be one more than the lists")
    return offsets


def require_digests(digests: Digests, what: str) -> None:
    """Return when an array has a digest a row: uint8, shape (n, 32).

    Raises:
        InvalidInput: it is something else.
    """
    if not isinstance(digests, np.ndarray):
        raise InvalidInput(f"{what} are {type(digests).__name__}, an array of uint8 in (n, {DIGEST_BYTES}) is wanted")
    if digests.ndim != 2 or digests.shape[1] != DIGEST_BYTES or digests.dtype != np.uint8:
        raise InvalidInput(
            f"{what} are {digests.dtype} in the shape {digests.shape}, uint8 in (n, {DIGEST_BYTES}) is wanted"
        )


def byte_column(
    values: pa.Array | pa.ChunkedArray | Iterable[bytes | None], *, nulls: bool = False
) -> pa.LargeBinaryArray:
    """Return ``values`` as one column of bytes with 64-bit offsets.

    Raises:
        InvalidInput: a value is no byte string, or null unless ``nulls`` are allowed.
    """
    values = (
        contiguous_column(values, "keys or values") if isinstance(values, (pa.Array, pa.ChunkedArray)) else list(values)
    )
    # Text would be read as its bytes in UTF-8, which is wrong where it is hexadecimal.
    if _is_text(values):
        raise InvalidInput("a column of keys or values holds text, only byte strings are allowed")
    try:
        column = values if isinstance(values, pa.Array) else pa.array(values, LARGE_BINARY)
        column = column.cast(LARGE_BINARY)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInput(f"a column of keys or values holds something else than byte strings: {error}") from error
    if column.null_count and not nulls:
        raise InvalidInput("a column of keys or values holds a null, only byte strings are allowed")
    return column


def contiguous_column(column: pa.Array | pa.ChunkedArray, what: str) -> pa.Array:
    """Return a column in one piece, its buffers validated: what reads them trusts its offsets.

    Raises:
        InvalidInput: they do not ascend within the column's bytes, as those of a file that somebody else wrote may.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"a column of {what} is damaged: {error}") from error
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_text(values: pa.Array | list[bytes]) -> bool:
    if isinstance(values, list):
        return any(issubclass(kind, str) for kind in set(map(type, values)))
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
