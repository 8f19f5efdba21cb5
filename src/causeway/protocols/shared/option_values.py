"""Common types, limits and errors of protocol options."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from causeway_proofs.errors import InvalidInput
from pydantic import BeforeValidator, Strict, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ScenarioSection

NANOSECONDS = 1_000_000_000
"""Nanoseconds in a second."""

LARGEST = 2**62
"""Maximum number in an option: sums of two fit a signed 64-bit word."""

MAX_TICK_NS = 2**62
"""Maximum length of a tick."""


Texts = Annotated[tuple[str, ...], Strict(False)]
"""A list of texts: a list in files, a tuple in immutable options."""


class ProfiledOptions(ScenarioSection):
    """Options of a protocol with two sets of defaults: ``seed`` and ``deployed``."""

    profile: Literal["seed", "deployed"] = "seed"

    @classmethod
    @abstractmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults that ``profile = deployed`` changes, besides the ``given`` options."""

    @model_validator(mode="before")
    @classmethod
    def _with_profile(cls, data: Any) -> Any:
        """Apply the defaults of the profile below the given keys."""
        if isinstance(data, Mapping) and data.get("profile") == "deployed":
            return {**cls.deployed(data), **data}
        return data


def option_error(key: str, text: str) -> PydanticCustomError:
    """Return the error about an option that conflicts with others.

    Args:
        key: The key of the option.
        text: The error text.
    """
    return PydanticCustomError("wrong_key", "{text}", {"key": key, "text": text})


def allow_only(value: Any, why: str) -> BeforeValidator:
    """Return a validator for an option with one value in this version.

    Args:
        value: The value.
        why: The reason, shown for any other value.
    """
    text = f'"{value}"' if isinstance(value, str) else repr(value)

    def check(given: object) -> object:
        if given != value or type(given) is not type(value):
            raise PydanticCustomError("only", "{text}", {"text": f"only {text} in this version: {why}"})
        return given

    return BeforeValidator(check)


def check_tick(tick_ns: int) -> None:
    """Check the length of a tick.

    Raises:
        InvalidInput: The length is out of range.
    """
    if not 0 < tick_ns <= MAX_TICK_NS:
        raise InvalidInput(f"seconds_per_tick: {tick_ns} nanoseconds a tick; allowed: 1 to {MAX_TICK_NS}")
