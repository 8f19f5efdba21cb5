"""What a served lake of any protocol answers, as strict schemas: whoever reads it believes nothing about its form.

Numbers are whole and bounded (no text, no 1.0, no NaN), texts and lists have a longest length, bytes are hexadecimal.
Unknown members are ignored, so that a newer lake can say more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

Model = TypeVar("Model", bound="Answer")

MAX_NAME_CHARACTERS = 128
MAX_TEXT_CHARACTERS = 10_000
MAX_FAULTS = 10_000
MAX_CHAINS = 10_000

Height = Annotated[int, Field(strict=True, ge=0, le=2**63 - 1)]
"""A height, a tick, a count, or a time in nanoseconds."""
Index = Annotated[int, Field(strict=True, ge=0, le=2**64 - 1)]
Name = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=MAX_NAME_CHARACTERS, pattern=r"\A[ -~]+\z")
]
"""A name of a chain, a protocol, an error: printable ASCII, so that it may be shown."""
Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_TEXT_CHARACTERS)]


def hexadecimal_of(most: int) -> Callable[[Any], Any]:
    """Return a validator that turns hexadecimal digits into at most ``most`` bytes."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError("must be a text of hexadecimal digits")
        if len(value) > 2 * most:
            raise ValueError(f"has {len(value)} digits; at most {2 * most} are read")
        if not value.isascii() or not (value.isalnum() or not value):
            raise ValueError("must be hexadecimal digits")
        return bytes.fromhex(value)

    return read


Digest = Annotated[bytes, BeforeValidator(hexadecimal_of(32)), Field(min_length=32)]


class Answer(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class ProtocolAnswer(Answer):
    """What of ``/v1/status`` every protocol has."""

    protocol: Name


class IdentityAnswer(Answer):
    """What of ``/v1/status`` is part of all that is signed for a lake."""

    lake: Annotated[Name, Field(max_length=64)]


class ChainAnswer(Answer):
    """A chain of the network, and whether another lake runs it (``/v1/status``)."""

    name: Name
    external: bool


ChainAnswers = Annotated[list[ChainAnswer], Field(max_length=MAX_CHAINS)]


class SenderAnswer(Answer):
    """The last nonce of a sender."""

    nonce: Annotated[int, Field(strict=True, ge=0, le=2**63 - 2)]


class TakenAnswer(Answer):
    """The name of a message, and the height of the block that has it, None as long as none has."""

    hash: Annotated[str, StringConstraints(strict=True, pattern=r"\A[0-9a-f]{64}\z")]
    height: Height | None


class FaultAnswer(Answer):
    """What a block refused of what a sender asked for, or a program failed on."""

    program: Text
    what: Name
    why: Text
    count: Height
    where: Text = ""


class OutcomeAnswer(Answer):
    """What a block refused of a message's effects."""

    faults: Annotated[list[FaultAnswer], Field(max_length=MAX_FAULTS)]


class ErrorAnswer(Answer):
    """Why a request was refused."""

    error: Text = ""
    text: Text = ""


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
