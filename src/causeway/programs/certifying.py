"""What a program may let its chain certify: a few bytes, mostly the digest of what it keeps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.frame import Frame, empty_frame
from causeway.protocols.execution import CERTIFIED_DATA_SCHEMA, MAX_CERTIFIED_DATA_BYTES


class CertifiedDataTooLong(ValueError):
    """A program's certified data has more than 32 bytes."""


class CertifiedDataNotDeclared(TypeError):
    """A program sets certified data, and its class does not declare ``certifies = True``."""


def ensure_certifiable(data: Any, declared: bool) -> None:
    """Return when ``data`` may be certified for a program that has ``declared`` that it certifies data.

    Raises:
        CertifiedDataNotDeclared: it has not.
        TypeError: ``data`` is no bytes.
        CertifiedDataTooLong: it has more than 32 bytes.
    """
    _require(declared)
    if not isinstance(data, bytes):
        raise TypeError(f"certified data is {type(data).__name__}, allowed: bytes")
    if len(data) > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(len(data))


def ensure_all_certifiable(data: pa.BinaryArray, declared: bool) -> None:
    """Return when every one of ``data`` (not empty) may be certified; errors as of ``ensure_certifiable``."""
    _require(declared)
    longest = pc.max(pc.binary_length(data)).as_py()
    if longest > MAX_CERTIFIED_DATA_BYTES:
        raise _too_long(longest)


def certified_rows(given: list[tuple[int, bytes]]) -> Frame:
    """Return programs with what they set as certified data, in that order (``CERTIFIED_DATA_SCHEMA``)."""
    if not given:
        return empty_frame(CERTIFIED_DATA_SCHEMA)
    numbers, data = zip(*given, strict=True)
    columns = {"program": pa.array(numbers, pa.uint64()).to_numpy(), "data": pa.array(data, pa.binary())}
    return Frame(columns, len(given))


def _require(declared: bool) -> None:
    if not declared:
        raise CertifiedDataNotDeclared("the class of a program that sets certified data declares certifies = True")


def _too_long(length: int) -> CertifiedDataTooLong:
    return CertifiedDataTooLong(f"certified data has {length} bytes, at most {MAX_CERTIFIED_DATA_BYTES} are allowed")
