"""The sections of a scenario file: what each key is called, means and may be.

Every section refuses keys it does not know. Numbers are exact: a float never stands for a whole number.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

U64_MAX = 2**64 - 1
BALANCE_LIMIT = 10**38
CYCLES_LIMIT = 2**128

NOTHING_INSTALLED = "none"
"""The program of an instance that is mapped to a chain without anything installed there."""


def _amount(limit: int, limit_text: str) -> BeforeValidator:
    """Return a validator of a whole number, given as a number or as decimal digits, from 0 up to below ``limit``."""

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


def _name_check(forbidden: str) -> AfterValidator:
    def check(value: str) -> str:
        if not value or re.search(rf"[\s{forbidden}]", value):
            raise ValueError(f"must be a name without spaces and without any of {' '.join(forbidden)}")
        return value

    return AfterValidator(check)


def _name_or_number(value: object) -> int | str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= U64_MAX:
        return value
    raise ValueError("must be the name of a program, or a program number from 0 to 2**64 - 1")


def _json_table(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("must hold text, finite numbers, booleans, lists and tables only") from None
    return value


U64 = Annotated[int, Field(ge=0, le=U64_MAX)]
Tick = Annotated[int, Field(ge=0, le=2**63 - 1)]
Positive = Annotated[int, Field(ge=1, le=U64_MAX)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Balance = Annotated[int, _amount(BALANCE_LIMIT, "10**38 - 1")]
Cycles = Annotated[int, _amount(CYCLES_LIMIT, "2**128 - 1")]
ChainName = Annotated[str, _name_check("/>#")]
ProgramName = Annotated[str, _name_check(">#")]
ProgramReference = Annotated[int | str, BeforeValidator(_name_or_number)]
JsonTable = Annotated[dict[str, Any], AfterValidator(_json_table)]
Hex = Annotated[str, Field(pattern=r"^([0-9a-fA-F]{2})*$")]


class Section(BaseModel):
    """One table of the file. Keys that it does not know are refused, with the nearest one it knows."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
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
        """Return the keys of the section as they stand in the file."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class NetworkSection(Section):
    """``[network]``: which protocol runs, for how long, and where."""

    protocol: str = Field("ic", description="The messaging protocol.")
    seed: U64 = Field(0, description="All randomness is drawn from it; the same seed gives the same run.")
    ticks: Positive | None = Field(
        None, description="Ticks to run at most; without it the run ends when nothing is left to do."
    )
    seconds_per_tick: Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)] = Field(
        1.0, description="Time that passes on every chain from one tick to the next, in seconds."
    )
    executor: Literal["spark", "in_process"] = Field(
        "spark", description="What runs the rounds: a Spark session, or the calling process (for small networks)."
    )
    master: str = Field("local[*]", min_length=1, description="The Spark master.")
    partitions: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="Tasks a tick is cut into; 0 = chosen from cores and chains. Never changes a result."
    )
    lake: str | None = Field(None, min_length=1, description="Folder or URI of the lake.")


class TransportSection(Section):
    """``[transport]``: how reliably chains fetch what others offer."""

    skip: Probability = Field(
        0.0,
        description="Probability that a chain does not fetch from a given other chain at a tick (a slow block maker).",
    )


class ChainSection(Section):
    """``[[chains]]``: one chain, or a group of ``count`` chains named ``prefix`` and a number from 0."""

    name: ChainName | None = Field(None, description="Name of a single chain.")
    count: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(None, description="Size of a group of chains.")
    prefix: ChainName = Field("chain-", description="Beginning of the names of a group.")
    number: U64 | None = Field(
        None, description="Number of the (first) chain; without it, one more than the chain before, from 0."
    )
    external: bool = Field(
        False,
        description="Under `ibc`: another lake runs this chain; relay processes carry what goes there and comes back.",
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.name is None) == (self.count is None):
            raise ValueError("give either name (one chain) or count (a group)")
        return self


class ProgramSection(Section):
    """``[[programs]]``: one program instance, or ``per_chain`` instances on one or every chain."""

    name: ProgramName | None = Field(None, description="Name of a single instance.")
    per_chain: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Instances on each chain, named prefix, chain's name, `-` and a number from 0."
    )
    prefix: ProgramName = Field("program-", description="Beginning of the names of a group.")
    chain: str | None = Field(
        None,
        description="Name of its chain. Without it: an instance with a name is on no chain, a group is on every chain.",
    )
    program: str = Field(
        ...,
        min_length=1,
        description='A registered program, `"module:Class"`, or `"none"` (mapped to the chain, nothing installed).',
    )
    options: JsonTable = Field(default_factory=dict, description="Options for the program.")
    balance: Balance = Field(0, description="Value it starts with, below 10**38; digits in quotes from 2**63 on.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.name is None) == (self.per_chain is None):
            raise ValueError("give either name (one instance) or per_chain (a group)")
        return self


class MoveSection(Section):
    """``[[moves]]``: from a tick on, a program is on another chain."""

    tick: Tick = Field(..., description="In force before the round of this tick.")
    program: str = Field(..., description="Name of the program instance.")
    chain: str | None = Field(None, description="Name of its chain from then on; without it, it is on no chain.")


class ContentSection(Section):
    """What a message carries, as text or as hexadecimal digits."""

    text: str | None = Field(None, description="The payload as text (UTF-8).")
    hex: Hex | None = Field(None, description="The payload as hexadecimal digits, two a byte.")

    @model_validator(mode="after")
    def _one_payload(self) -> Self:
        if self.text is not None and self.hex is not None:
            raise ValueError("give text or hex, not both")
        return self

    @property
    def content(self) -> bytes:
        """Return the payload's bytes; empty when none is given."""
        if self.hex is not None:
            return bytes.fromhex(self.hex)
        return (self.text or "").encode()
