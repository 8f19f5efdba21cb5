"""Validate arrays and columns before compiled loops, which trust types, shapes and ranges."""

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
    values: Any, noun: str, dtype: type[Number], least: int | None = None, most: int | None = None
) -> npt.NDArray[Number]:
    """Convert a list of integers to a contiguous array of ``dtype``, copying only if needed.

    Args:
        values: an array of any integer type, or a list.
        noun: noun for the values in errors.
        dtype: the target type.
        least: smallest allowed value; default: that of ``dtype``.
        most: largest allowed value; default: that of ``dtype``.

    Returns:
        The array, shape (n,).

    Raises:
        InvalidInput: a value is not an integer or out of bounds, or there is more than one dimension.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{noun} must be integers, one behind the other: {error}") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidInput(
            f"{noun} must be integers, one behind the other, not {array.dtype} in the shape {array.shape}"
        )
    bounds: Any = np.iinfo(dtype)
    least, most = bounds.min if least is None else least, bounds.max if most is None else most
    if array.size and not least <= int(array.min()) <= int(array.max()) <= most:
        raise InvalidInput(f"{noun} must be from {least} to {most}, not {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, dtype=dtype)


def part_ends(values: Any, noun: str, most: int) -> npt.NDArray[np.int64]:
    """Validate the ascending part boundaries of a list of ``most`` elements.

    Raises:
        InvalidInput: the array is empty, does not ascend, or holds other values than integers from 0 to ``most``.
    """
    offsets = integer_array(values, noun, np.int64, 0, most)
    if not len(offsets) or bool((offsets[1:] < offsets[:-1]).any()):
        raise InvalidInput(f"{noun} must ascend from 0 to at most {most}, and be one more than the lists")
    return offsets


def require_digests(digests: Digests, noun: str) -> None:
    """Require an array with one digest a row: uint8, shape (n, 32).

    Raises:
        InvalidInput: dtype or shape differs.
    """
    if not isinstance(digests, np.ndarray):
        raise InvalidInput(f"{noun} are {type(digests).__name__}, an array of uint8 in (n, {DIGEST_BYTES}) is wanted")
    if digests.ndim != 2 or digests.shape[1] != DIGEST_BYTES or digests.dtype != np.uint8:
        raise InvalidInput(
            f"{noun} are {digests.dtype} in the shape {digests.shape}, uint8 in (n, {DIGEST_BYTES}) is wanted"
        )


def byte_column(
    values: pa.Array | pa.ChunkedArray | Iterable[bytes | None], *, nulls: bool = False
) -> pa.LargeBinaryArray:
    """Convert ``values`` to one byte column with 64-bit offsets.

    Args:
        values: byte strings, or an Arrow column of them.
        nulls: allow nulls.

    Returns:
        The column.

    Raises:
        InvalidInput: a value is not a byte string, or null without ``nulls``.
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


def contiguous_column(column: pa.Array | pa.ChunkedArray, noun: str) -> pa.Array:
    """Combine a column into one chunk and validate its buffers, whose offsets readers trust.

    Args:
        column: the column.
        noun: noun for the column in errors.

    Returns:
        The column in one chunk.

    Raises:
        InvalidInput: offsets do not ascend within the column's bytes, as in a corrupted file.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"a column of {noun} is damaged: {error}") from error
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _is_text(values: pa.Array | list[bytes]) -> bool:
    if isinstance(values, list):
        return any(issubclass(kind, str) for kind in set(map(type, values)))
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
