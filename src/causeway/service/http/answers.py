"""Answers of a served lake, for the OpenAPI document and for validation by clients.

Readers do not trust the form of an answer: numbers are integers within bounds (no text, no 1.0, no NaN),
texts and lists have a maximum length, bytes are hexadecimal. Clients ignore unknown members, so newer lakes
can add some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import core_schema

Model = TypeVar("Model", bound="AnswerModel")

MAX_NAME_CHARACTERS = 128
MAX_TEXT_CHARACTERS = 10_000
MAX_FAULTS = 10_000
MAX_CHAINS = 10_000

Height = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
"""Height, tick, count, or time in ns."""
Index = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"^[ -~]+$")]
"""Name of a chain, a protocol or an error: printable ASCII."""
Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT_CHARACTERS)]
DigestText = Annotated[str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class Hex:
    """Annotation of bytes encoded as hexadecimal digits in JSON: ``least`` to ``most`` bytes."""

    most: int
    least: int = 0

    def read(self, value: Any) -> bytes:
        """Decode digits.

        Raises:
            ValueError: The value is no text of hexadecimal digits, or too long.
        """
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


class AnswerModel(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False}
    )


class StatusAnswer(AnswerModel):
    """Identity and progress of the network (``/v1/status``); each protocol adds to it."""

    protocol: Name
    lake: Annotated[Name, Field(max_length=64, description="The lake's identity, part of all that is signed for it.")]
    height: Height
    tick: Height
    time: Height
    tick_ns: Height


class ChainAnswer(AnswerModel):
    """A chain of the network."""

    name: Name
    external: bool = Field(..., description="Another lake runs it.")


ChainAnswers = Annotated[list[ChainAnswer], Field(max_length=MAX_CHAINS)]


class HealthAnswer(AnswerModel):
    """Health of a server."""

    height: Height
    waiting: Height
    waiting_bytes: Height


class SenderAnswer(AnswerModel):
    """Known values of a sender."""

    sender: DigestText
    number: Index = Field(..., description="The number under which programs know the sender.")
    carrier: Index = Field(..., description="The number under which the sender's transactions are accounted.")
    nonce: Annotated[int, Field(strict=True, ge=0, le=2**63 - 2)] = Field(
        ..., description="The last nonce; the next one must be above it."
    )


class MessageStateAnswer(AnswerModel):
    """State of a message: its name, and the height of its block, null while it is pending."""

    hash: DigestText
    state: Literal["waiting", "in_block", "redundant"]
    height: Height | None


class FaultAnswer(AnswerModel):
    """A refused request, call or transaction, or a failure of a program."""

    program: Text = Field(..., description="Its name; empty for what was carried.")
    what: Literal["refused", "failed"]
    why: Text = Field(..., description="The refusal's name, or the program's error.")
    count: Height
    where: Text = Field(..., description="On which chain, and of what was carried which item.")


class OutcomeAnswer(AnswerModel):
    """Faults of a message in its block, with those of other messages to the same program."""

    hash: DigestText
    height: Height
    faults: Annotated[list[FaultAnswer], Field(max_length=MAX_FAULTS)]


class ErrorAnswer(AnswerModel):
    """Error of a request: its stable name, and one line of text."""

    error: Text
    text: Text


def read_answer(model: type[Model], content: bytes | bytearray) -> Model:
    """Parse and validate an answer.

    Args:
        model: Schema of the answer.
        content: JSON text.

    Raises:
        ValueError: The answer is invalid; the text names the member and the reason in one line.
    """
    try:
        return model.model_validate_json(bytes(content))
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def first_fault(error: ValidationError) -> str:
    """Format the first validation error in one line without quoting the input."""
    fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
    location = ".".join(str(part)[:MAX_NAME_CHARACTERS] for part in fault["loc"][:8])
    return f"{location}: {fault['msg']}"[:300] if location else fault["msg"][:300]
