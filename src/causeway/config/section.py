"""Base of scenario sections, and value types shared by several packages.

Sections reject unknown keys. Numbers are exact: a float never stands for a whole number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

U64_MAX = 2**64 - 1
BALANCE_LIMIT = 10**38
AMOUNT_LIMIT = 2**128


def _name_or_number(value: object) -> int | str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX:
        return value
    raise ValueError("must be the name of a program, or a program number from 0 to 2**64 - 1")


def _amount(limit: int, limit_text: str) -> BeforeValidator:
    """Create a validator for whole numbers below ``limit``, given as a number or decimal digits."""

    def parse(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,40}", value):
            number = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        else:
            raise ValueError(f"must be a whole number or a string of decimal digits, from 0 to {limit_text}")
        if not 0 <= number < limit:
            raise ValueError(f"must be from 0 to {limit_text}")
        return number

    return BeforeValidator(parse)


U64 = Annotated[int, Field(ge=0, le=U64_MAX)]
LAST_TICK = 2**63 - 1
TickNumber = Annotated[int, Field(ge=0, le=LAST_TICK)]
ProgramReference = Annotated[
    int | str,
    BeforeValidator(_name_or_number),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": U64_MAX}, {"type": "string", "minLength": 1}]}
    ),
]
Balance = Annotated[int, _amount(BALANCE_LIMIT, "10**38 - 1")]
Amount = Annotated[int, _amount(AMOUNT_LIMIT, "2**128 - 1")]
Hex = Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2})*$")]


class ScenarioSection(BaseModel):
    """One table of the file. Keys that it does not know are refused, with the nearest one it knows."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _validate_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = cls.keys()
            for key in data:
                if key not in known:
                    near = difflib.get_close_matches(str(key), known, n=1)
                    hint = f"did you mean {near[0]}? " if near else ""
                    text = f"unknown key; {hint}Keys here: {', '.join(known)}"
                    raise PydanticCustomError("unknown_key", "{text}", {"text": text, "key": key})
        return data

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys of the section as in the file."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class ContentSection(ScenarioSection):
    """What a message carries, as text or as hexadecimal digits."""

    text: str | None = Field(None, description="The payload as text (UTF-8).")
    hex: Hex | None = Field(None, description="The payload as hexadecimal digits, two a byte.")

    @model_validator(mode="after")
    def _validate_payload(self) -> Self:
        if self.text is not None and self.hex is not None:
            raise ValueError("give text or hex, not both")
        return self

    @property
    def content(self) -> bytes:
        """Payload in bytes; empty if none is given."""
        if self.hex is not None:
            return bytes.fromhex(self.hex)
        return (self.text or "").encode()
