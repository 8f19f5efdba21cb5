"""What options of protocols may be, whatever the protocol."""

from __future__ import annotations

from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

LARGEST = 2**62
"""No number of an option is above this, so that sums and doubles of them fit a signed word."""


def only(value: Any, why: str) -> BeforeValidator:
    """Return a validator of an option that has one value in this version, and says why when asked for another."""
    shown = f'"{value}"' if isinstance(value, str) else repr(value)

    def check(given: object) -> object:
        if given != value:
            raise PydanticCustomError("only", "{text}", {"text": f"only {shown} in this version: {why}"})
        return given

    return BeforeValidator(check)
