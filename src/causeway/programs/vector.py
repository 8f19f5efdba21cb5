"""The vectorised form of a program: one handler call for all messages of all instances in a round.

The result must be the same as if each message were handled alone, in order. ``batch`` has the message columns:
``kind``, ``sender`` (the peer, or the user), ``receiver`` (the instance), ``callback``, ``amount_high``,
``amount_low``, ``code``, ``deadline``, ``method``, ``payload``; rows of one instance are neighbours, in the order it
consumes them.
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

STATELESS = pa.schema([pa.field("program", pa.uint64(), nullable=False)])


@dataclass(frozen=True)
class Effects:
    """What a vectorised handler asks for.

    ``answers``: a frame (``row`` of the batch, ``code``, ``payload``, and optionally ``accepted_high``,
    ``accepted_low``), at most one a request, ascending by row. ``calls``: a frame (``row``, ``receiver``, ``method``,
    ``payload``, and optionally ``amount_high``, ``amount_low``), ascending by row. ``state``: the state after, rows
    ascending by ``program``. ``certified``: a frame (``row``, ``data``), ascending by row: what the instances let
    their chains certify from then on, at most 32 bytes each (of several rows of one instance the last counts); the
    class must declare it.
    """

    state: Frame
    answers: Frame | None = None
    calls: Frame | None = None
    certified: Frame | None = None


FEW_NAMES = 32
"""Distinct methods up to which a look at each is faster than a call of Arrow."""


class VectorProgram:
    """Base of vectorised programs. ``options`` maps an instance's number to its options from the scenario."""

    schema: ClassVar[pa.Schema] = STATELESS
    """The state's columns, of types that a root can be made of (``ROOTABLE``); the first is ``program``."""
    certifies: ClassVar[bool] = False
    """Whether it sets certified data (``Effects.certified``): it then runs only where chains certify that."""

    def __init__(self, options: Mapping[int, Mapping[str, Any]]) -> None:
        self.options = options

    def initial_state(self, instances: npt.NDArray[np.uint64]) -> Frame:
        """Return the state of new ``instances`` (ascending numbers): zeros and empty texts by default."""
        if self.schema is STATELESS:
            return empty_frame(STATELESS)
        columns = {item.name: _nothing(item.type, len(instances)) for item in self.schema}
        return Frame({**columns, "program": instances}, len(instances))

    def handle(self, batch: Frame, state: Frame) -> Effects:
        """Handle all messages of ``batch``."""
        raise NotImplementedError


ROOTABLE = (
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("bool", "string", "binary", "dictionary<values=string, indices=int32, ordered=0>"),
)
"""Types of the columns of a state. Each value has one representation, so that equal states have equal roots; a float
has not."""


def ensure_rootable(name: str, schema: pa.Schema) -> None:
    """Raise ``InvalidInput`` unless a root can be made of states of ``schema``, which program ``name`` declares."""
    if schema.names[:1] != ["program"] or schema.types[0] != pa.uint64():
        raise InvalidInput(f'program "{name}": the first column of its schema must be program, of type uint64')
    if len(set(schema.names)) < len(schema.names):
        raise InvalidInput(f'program "{name}": two columns of its schema have one name')
    for item in schema:
        if str(item.type) not in ROOTABLE:
            allowed = ", ".join(ROOTABLE)
            raise InvalidInput(f'program "{name}": column {item.name} is of type {item.type}; allowed: {allowed}')


def _nothing(kind: pa.DataType, length: int) -> Any:
    """Return a column of zeros, or of empty text or bytes."""
    if pa.types.is_dictionary(kind):
        return repeat_text("", length)
    if pa.types.is_string(kind):
        return repeat_text("", length).dictionary_decode()
    if pa.types.is_binary(kind):
        return repeat_bytes(b"", length)
    return np.zeros(length, dtype=kind.to_pandas_dtype())


def rows_of(batch: Frame, kind: Kind) -> npt.NDArray[np.int64]:
    """Return the rows of ``batch`` that are messages of ``kind``."""
    return np.flatnonzero(batch["kind"] == kind)


def method_is(batch: Frame, name: str) -> npt.NDArray[np.bool_]:
    """Return which messages ask for method ``name``."""
    method = batch["method"]
    names = method.dictionary
    if len(names) <= FEW_NAMES:
        known = np.array([each == name for each in names.to_pylist()], dtype=np.bool_)
    else:
        known = pc.equal(names, name).to_numpy(zero_copy_only=False)
    asked: npt.NDArray[np.bool_] = known[method.indices.to_numpy(zero_copy_only=False)]
    return asked
