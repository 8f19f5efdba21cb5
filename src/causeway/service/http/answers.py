"""Answers of a served lake, each declared once: the OpenAPI document describes them, and clients validate them.

Whoever reads an answer trusts nothing about its form: numbers are whole and bounded (no text, no 1.0, no NaN), texts
and lists have a longest length, bytes are hexadecimal. A client ignores unknown members, so that a newer lake can say
more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import core_schema

Model = TypeVar("Model", bound="Answer")

MAX_NAME_CHARACTERS = 128
MAX_TEXT_CHARACTERS = 10_000
MAX_FAULTS = 10_000
MAX_CHAINS = 10_000

Height = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
"""A height, a tick, a count, or a time in nanoseconds."""
Index = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[ -~]+$")]
"""A name of a chain, a protocol, an error: printable ASCII, so that it may be shown."""
Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT_CHARACTERS)]
DigestText = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Hex:
    """Annotation of bytes that are hexadecimal digits in JSON: ``least`` to ``most`` bytes."""

    most: int
    least: int = 0

    def read(self, value: Any) -> bytes:
        """Return the bytes of digits. Raises ``ValueError``."""
        if not isinstance(value, str):
            raise ValueError("must be a text of hexadecimal digits")
        if len(value) > 2 * self.most:
            raise ValueError(f"has {len(value)} digits; at most {2 * self.most} are read")
        if not value.isascii() or not (value.isalnum() or not value):
            raise ValueError("must be hexadecimal digits")
        return bytes.fromhex(value)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            self.read, core_schema.bytes_schema(min_length=self.least or None)
        )

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        digits = {"minLength": 2 * self.least, "maxLength": 2 * self.most}
        return {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$", **digits}


Digest = Annotated[bytes, Hex(32, 32)]


class Answer(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False}
    )


class StatusAnswer(Answer):
    """What the network is, and how far it has come (``/v1/status``); each protocol adds to it."""

    protocol: Name
    lake: Annotated[Name, Field(max_length=64, description="The lake's identity, part of all that is signed for it.")]
    height: Height
    tick: Height
    time: Height
    tick_ns: Height


class ChainAnswer(Answer):
    """A chain of the network."""

    name: Name
    external: bool = Field(..., description="Another lake runs it.")


ChainAnswers = Annotated[list[ChainAnswer], Field(max_length=MAX_CHAINS)]


class HealthAnswer(Answer):
    """How a server is."""

    height: Height
    waiting: Height
    waiting_bytes: Height


class SenderAnswer(Answer):
    """What a lake knows of a sender."""

    sender: DigestText
    number: Index = Field(..., description="The number under which programs know the sender.")
    carrier: Index = Field(..., description="The number under which the sender's transactions are accounted.")
    nonce: Annotated[int, Field(strict=True, ge=0, le=2**63 - 2)] = Field(
        ..., description="The last nonce; the next one must be above it."
    )


class TakenAnswer(Answer):
    """What became of a message: its name, and the height of the block that has it, null as long as none has."""

    hash: DigestText
    state: Literal["waiting", "in_block", "redundant"]
    height: Height | None


class FaultAnswer(Answer):
    """What a block refused of what a sender asked for or carried, or a program failed on."""

    program: Text = Field(..., description="Its name; empty for what was carried.")
    what: Literal["refused", "failed"]
    why: Text = Field(..., description="The refusal's name, or the program's error.")
    count: Height
    where: Text = Field(..., description="On which chain, and of what was carried which item.")


class OutcomeAnswer(Answer):
    """What of a message's effects its block refused; whoever asked the same program in it is told the same."""

    hash: DigestText
    height: Height
    faults: Annotated[list[FaultAnswer], Field(max_length=MAX_FAULTS)]


class ErrorAnswer(Answer):
    """What a request is refused with: the error's stable name, and one line for a person."""

    error: Text
    text: Text


def read_answer(model: type[Model], content: bytes | bytearray) -> Model:
    """Return the answer that JSON holds.

    Raises:
        ValueError: it is none; the text says which member, and why, in one line.
    """
    try:
        return model.model_validate_json(bytes(content))
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def first_fault(error: ValidationError) -> str:
    """Return the first thing that is wrong with an answer, in one line that quotes nothing of it."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part)[:MAX_NAME_CHARACTERS] for part in fault["loc"][:8])
    return f"{where}: {fault['msg']}"[:300] if where else fault["msg"][:300]
