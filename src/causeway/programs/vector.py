"""Vectorized programs: one handler call for all messages of all instances in a round.

The result must equal handling each message alone, in order. ``batch`` has the message columns ``kind``, ``sender`` (the
peer, or the user), ``receiver`` (the instance), ``callback``, ``amount_high``, ``amount_low``, ``code``, ``deadline``,
``method``, ``payload``. Rows of an instance are adjacent, in order of consumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame, empty_frame, repeat_bytes, repeat_text
from causeway.core.vocabulary import Kind
from causeway.protocols.contract import UINT64, table_schema

STATELESS = table_schema(program=UINT64)
"""Schema of programs without state."""


@dataclass(frozen=True)
class Effects:
    """The effects of a vectorized handler.

    Attributes:
        state: New state, ascending by ``program``.
        answers: Frame of ``row`` of the batch, ``code``, ``payload``, and optionally ``accepted_high`` and
            ``accepted_low``; at most one a request, ascending by row.
        calls: Frame of ``row``, ``receiver``, ``method``, ``payload``, and optionally ``amount_high`` and
            ``amount_low``, ascending by row.
        certified: Frame of ``row`` and ``data``, ascending by row: data that instances certify, at most 32 bytes each;
            the last row of an instance counts. The class must declare ``certifies``.
    """

    state: Frame
    answers: Frame | None = None
    calls: Frame | None = None
    certified: Frame | None = None


FEW_NAMES = 32
"""Number of distinct methods up to which a Python loop is faster than Arrow."""


class VectorProgram:
    """Base class of vectorized programs.

    Attributes:
        options: Options of the scenario by instance number.
    """

    schema: ClassVar[pa.Schema] = STATELESS
    """Columns of the state, of types in ``ROOTABLE``; the first is ``program``."""
    certifies: ClassVar[bool] = False
    """True for a program that sets certified data; it then needs chains that certify it."""

    def __init__(self, options: Mapping[int, Mapping[str, Any]]) -> None:
        self.options = options

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return the state of new instances, by default zeros and empty text.

        Args:
            instances: Program numbers, ascending.
        """
        if self.schema is STATELESS:
            return empty_frame(STATELESS)
        columns = {item.name: _zeros(item.type, len(instances)) for item in self.schema}
        return Frame({**columns, "program": instances}, len(instances))

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Handle all messages of a round.

        Args:
            batch: The messages.
            state: State of the instances, ascending by ``program``.

        Returns:
            The effects.
        """
        raise NotImplementedError


ROOTABLE = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("bool", "string", "binary", "dictionary<values=string, indices=int32, ordered=0>"),
)
"""Types of state columns.

Each value has one encoding, so that equal states have equal roots; floats do not.
"""


def ensure_rootable(name: str, schema: pa.Schema) -> None:
    """Raise ``InvalidInput`` unless states of a program's schema have a root."""
    if schema.names[:1] != ["program"] or schema.types[0] != pa.uint64():
        raise InvalidInput(f'program "{name}": the first column of its schema must be program, of type uint64')
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInput(f'program "{name}": two columns of its schema have one name')
    for item in schema:
        if str(item.type) not in ROOTABLE:
            allowed = ", ".join(ROOTABLE)
            raise InvalidInput(f'program "{name}": column {item.name} is of type {item.type}; allowed: {allowed}')


def _zeros(kind: pa.DataType, length: int) -> Any:
    """Return a column of zeros, or of empty text or bytes."""
    if pa.types.is_dictionary(kind):
        return repeat_text("", length)
    if pa.types.is_string(kind):
        return repeat_text("", length).dictionary_decode()
    if pa.types.is_binary(kind):
        return repeat_bytes(b"", length)
    return np.zeros(length, dtype=kind.to_pandas_dtype())


def rows_of(batch: Frame, kind: Kind) -> npt.NDArray[np.int64]:
    """Return the rows of messages of a kind.

    Args:
        batch: Messages.
        kind: The kind.

    Returns:
        int64 array of rows.
    """
    return np.flatnonzero(batch["kind"] == kind)


def method_is(batch: Frame, name: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the messages to a method.

    Args:
        batch: Messages.
        name: Name of the method.
    """
    method = batch["method"]
    names = method.dictionary
    if len(names) <= FEW_NAMES:
        known = np.array([each == name for each in names.to_pylist()], dtype=np.bool_)
    else:
        known = pc.equal(names, name).to_numpy(zero_copy_only=False)
    mask: npt.NDArray[np.bool_] = known[method.indices.to_numpy(zero_copy_only=False)]
    return mask
