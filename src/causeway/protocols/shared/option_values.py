"""What options of protocols may be, whatever the protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from causeway_proofs.errors import InvalidInput
from pydantic import BeforeValidator, Strict, model_validator
from pydantic_core import PydanticCustomError

from causeway.config.section import ScenarioSection

NANOSECONDS = 1_000_000_000
"""In a second."""

LARGEST = 2**62
"""No number of an option is above this, so that sums and doubles of them fit a signed word."""

MAX_TICK_NS = 2**62
"""No tick is longer."""


Texts = Annotated[tuple[str, ...], Strict(False)]
"""A list of texts: files have lists, options that do not change have tuples."""


class ProfiledOptions(ScenarioSection):
    """Options of a protocol that has two sets of defaults: ``seed``, and ``deployed``."""

    profile: Literal["seed", "deployed"] = "seed"

    @classmethod
    @abstractmethod
    def deployed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults that ``profile = deployed`` changes, where the options ``given`` are."""

    @model_validator(mode="before")
    @classmethod
    def _with_profile(cls, data: Any) -> Any:
        """Take the defaults of the profile; keys that are given win."""
        if isinstance(data, Mapping) and data.get("profile") == "deployed":
            return {**cls.deployed(data), **data}
        return data


def option_error(key: str, text: str) -> PydanticCustomError:
    """Return the error about the option ``key``, which does not go together with others."""
    return PydanticCustomError("wrong_key", "{text}", {"key": key, "text": text})


def allow_only(value: Any, why: str) -> BeforeValidator:
    """Return a validator of an option that has one value in this version, and says why when asked for another."""
    shown = f'"{value}"' if isinstance(value, str) else repr(value)

    def check(given: object) -> object:
        if given != value or type(given) is not type(value):
            raise PydanticCustomError("only", "{text}", {"text": f"only {shown} in this version: {why}"})
        return given

    return BeforeValidator(check)


def check_tick(tick_ns: int) -> None:
    """Check how long a tick is; ``InvalidInput`` for a length that is not allowed."""
    if not 0 < tick_ns <= MAX_TICK_NS:
        raise InvalidInput(f"seconds_per_tick: {tick_ns} nanoseconds a tick; allowed: 1 to {MAX_TICK_NS}")
