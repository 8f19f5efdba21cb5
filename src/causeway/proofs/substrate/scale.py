"""SCALE one value at a time: only the one encoding that a value is written with is read.

SCALE leaves room for several encodings of one value (padded compact integers, option bytes other than 1, sets and
maps out of order). A message that may be rewritten without becoming another one cannot be told from a tampered one.
Whole columns of the same types go through ``scale_columns``; compiled loops follow the same rules there, which take
tenths of a second to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from causeway.proofs.limits import MAX_PROOF_BYTES, require_length
from causeway.proofs.substrate import scale_steps_loops as wrong
from causeway.proofs.substrate.scale_codecs import Codec, Fault, codec_of
from causeway.proofs.substrate.scale_faults import decoding_error
from causeway.proofs.substrate.scale_shapes import shape_of


class ScaleTypes:
    """Named types, in the notation of ``scale_shapes``.

    Args:
        definitions: what ``struct`` and ``enum`` return, or another name of a type, by the name.
    """

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions: Mapping[str, Any] = dict(definitions)
        self._codecs: dict[str, Codec] = {}

    def encode(self, type_name: str, value: Any) -> bytes:
        """Return the encoding of ``value``: what ``decode`` returns for it.

        Args:
            type_name: one of the definitions, or a type in their notation.
            value: a value of the type; structs have all of its fields and no others.

        Raises:
            InvalidInput: ``value`` is not of the type, or its encoding could not be read again: a list has too many
                elements, or a set or map does not ascend. Or the type is not known.
        """
        return self._codec(type_name)[1](value)

    def decode(self, type_name: str, data: bytes, what: str, limit: int = MAX_PROOF_BYTES) -> Any:
        """Return the value that ``data`` is the canonical encoding of.

        Args:
            type_name: one of the definitions, or a type in their notation.
            data: the encoding, to its last byte.
            what: what it is, for messages, such as "a cross-domain message".
            limit: most bytes that are read.

        Raises:
            OverLimit: ``data`` is longer than ``limit`` bytes, or a list has too many elements.
            FailedToDecode: it is no encoding of the type, or not the canonical one; the text says so of ``what``.
            InvalidInput: the type is not known.
        """
        require_length(data, what, limit)
        data = bytes(data)
        try:
            value, end = self._codec(type_name)[0](data, 0)
            if end < len(data):
                raise Fault(wrong.TRAILING, end, "the end")
        except Fault as fault:
            raise decoding_error(what, fault.code, fault.at, len(data), fault.path, fault.most) from None
        return value

    def _codec(self, type_name: str) -> Codec:
        if type_name not in self._codecs:
            shape = shape_of(self.definitions, type_name)
            self._codecs[type_name] = codec_of(shape, type_name)
        return self._codecs[type_name]


def struct(*fields: tuple[str, str]) -> dict[str, Any]:
    """Return the definition of a struct from the names and types of its fields."""
    return {"type": "struct", "type_mapping": [list(field) for field in fields]}


def enum(*variants: tuple[str, str] | str) -> dict[str, Any]:
    """Return the definition of an enum: a variant is a name with a type, or a name alone."""
    return {
        "type": "enum",
        "type_mapping": [[variant, "Null"] if isinstance(variant, str) else list(variant) for variant in variants],
    }
