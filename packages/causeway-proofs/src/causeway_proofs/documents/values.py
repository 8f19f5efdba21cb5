"""Parse values of documents: bytes, labels, ids, numbers, times and durations.

Bytes are hexadecimal digits, with or without ``0x``; the prefixes ``base64:``, ``text:`` (UTF-8) and ``principal:``
mark other forms. Labels are plain text unless they have a prefix, ``0x`` among them. So no value has two readings.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from causeway_proofs.errors import ProofError
from causeway_proofs.hashing import DIGEST_BYTES
from causeway_proofs.ic.primitives import ID_RULE, MAX_PRINCIPAL_BYTES, principal_from_text
from causeway_proofs.tendermint.rpc import time_from_text

U64_MAX = 2**64 - 1

_DIGITS = re.compile(r"0|[1-9][0-9]{0,29}", re.ASCII)
_DURATION = re.compile(r"([1-9][0-9]{0,18})(ns|s|m|h|d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS = {"ns": 1, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}

_BYTES_RULE = "must be hexadecimal digits, two a byte, or begin with base64:, text: or principal:"
_LABEL_RULE = "must be text, or begin with 0x, base64:, text: or principal:"


Item = TypeVar("Item")

Listed = Annotated[list[Item], Field(fail_fast=True)]
"""A list that reports only its first fault: a long one may have a fault in every entry."""


class DocumentSection(BaseModel):
    """A JSON object of a document with exactly the declared fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def parse_bytes(value: object) -> bytes:
    """Parse a text to bytes; bytes from a binary file are returned as they are.

    Raises:
        ValueError: the text is in none of the forms.
    """
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError(_BYTES_RULE)
    prefixed = _prefixed(value)
    if prefixed is not None:
        return prefixed
    try:
        # Rejects spaces, unlike bytes.fromhex, without the memory of a regular expression.
        return binascii.unhexlify(value.removeprefix("0x"))
    except ValueError:
        raise ValueError(_BYTES_RULE) from None


def parse_label(value: object) -> bytes:
    """Parse a label: plain text unless it has a prefix.

    Raises:
        ValueError: the content does not match its prefix.
    """
    if not isinstance(value, str):
        raise ValueError(_LABEL_RULE)
    if value.startswith("0x"):
        return parse_bytes(value)
    prefixed = _prefixed(value)
    return _utf8(value) if prefixed is None else prefixed


def parse_principal(value: object) -> bytes:
    """Parse the id of a canister or subnet from its text or hexadecimal digits.

    Raises:
        ValueError: it is not an id.
    """
    if not isinstance(value, str):
        raise ValueError(ID_RULE)
    found = principal_from_text(value) if "-" in value else parse_bytes(value)
    if len(found) > MAX_PRINCIPAL_BYTES:
        raise ValueError(ID_RULE)
    return found


def parse_number(value: object) -> int:
    """Parse a 64-bit number from a JSON number or decimal digits.

    Raises:
        ValueError: it is not such a number.
    """
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= U64_MAX:
        raise ValueError("must be a whole number from 0 to 2**64 - 1")
    return value


def parse_time(value: object) -> int:
    """Parse nanoseconds since 1970 from a number or a time in UTC.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        try:
            time = time_from_text(value, "it")
        except ProofError:
            raise ValueError("must be nanoseconds since 1970, or a time in UTC as 2019-11-02T15:04:10Z") from None
        if time >= 0:
            return time
        raise ValueError("must not be before 1970")
    return parse_number(value)


def format_time(time: int) -> str:
    """Format nanoseconds since 1970 as a time in UTC."""
    seconds, rest = divmod(time, 10**9)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


def parse_duration(value: object) -> int:
    """Parse nanoseconds from a number, or a whole number with a unit: ns, s, m, h or d.

    Raises:
        ValueError: it is neither.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return parse_number(int(match[1]) * _NANOSECONDS[match[2]])
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise ValueError("must be nanoseconds, or a whole number and a unit: 90s, 5m, 2h, 14d")
    return parse_number(value)


def parse_text(value: str) -> str:
    """Return a valid text unchanged.

    Raises:
        ValueError: it contains unpaired surrogates, which only JSON can represent.
    """
    _utf8(value)
    return value


def parse_digest(value: object) -> bytes:
    """Parse 32 bytes as ``parse_bytes``.

    Raises:
        ValueError: the length is wrong.
    """
    found = parse_bytes(value)
    if len(found) != DIGEST_BYTES:
        raise ValueError(f"has {len(found)} bytes, must have {DIGEST_BYTES}")
    return found


def _prefixed(value: str) -> bytes | None:
    """Return the bytes of a text with a prefix, or None without one."""
    prefix, separator, rest = value.partition(":")
    if not separator:
        return None
    if prefix == "base64":
        return _base64(rest)
    if prefix == "text":
        return _utf8(rest)
    return principal_from_text(rest) if prefix == "principal" else None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("is not base64 behind base64:") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("is no text in Unicode") from None


Text = Annotated[str, AfterValidator(parse_text)]
Bytes = Annotated[bytes, BeforeValidator(parse_bytes)]
Digest = Annotated[bytes, BeforeValidator(parse_digest)]
Label = Annotated[bytes, BeforeValidator(parse_label)]
PrincipalId = Annotated[bytes, BeforeValidator(parse_principal)]
Number = Annotated[int, BeforeValidator(parse_number)]
Time = Annotated[int, BeforeValidator(parse_time)]
Duration = Annotated[int, BeforeValidator(parse_duration)]
