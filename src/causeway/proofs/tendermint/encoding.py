"""Pieces of canonical protobuf that are hashed and signed; written directly, since they are written for every vote.

Times are nanoseconds since 1970-01-01T00:00:00Z, negative before it.
"""

from __future__ import annotations

from typing import Protocol

from causeway.proofs.errors import MalformedProof
from causeway.proofs.varints import uvarint

SECOND = 10**9

MIN_TIME = -62_135_596_800 * SECOND
"""The first instant of year 1, which deployed encoders write where there is no time."""

MAX_TIME = 253_402_300_800 * SECOND - 1
"""The last nanosecond of year 9999, where the range of protobuf's Timestamp ends."""

NO_TIME = MIN_TIME

MAX_HEIGHT = 2**63 - 1


class SecondsAndNanos(Protocol):
    """What protobuf's Timestamp and Duration have in common."""

    seconds: int
    nanos: int


def number_field(number: int, value: int) -> bytes:
    """Return a varint field; nothing for 0. A negative ``value`` is a signed 64-bit integer."""
    return uvarint(number << 3) + uvarint(value % 2**64) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a bytes or text field; nothing for an empty one."""
    return message_field(number, value) if value else b""


def message_field(number: int, encoded: bytes) -> bytes:
    """Return the field of a message that is always written, also when it is empty."""
    return uvarint(number << 3 | 2) + uvarint(len(encoded)) + encoded


def sfixed64_field(number: int, value: int) -> bytes:
    """Return an sfixed64 field; nothing for 0."""
    return uvarint(number << 3 | 1) + value.to_bytes(8, "little", signed=True) if value else b""


def timestamp(time: int) -> bytes:
    """Return the protobuf Timestamp of a time in nanoseconds."""
    seconds, nanos = divmod(time, SECOND)
    return number_field(1, seconds) + number_field(2, nanos)


def time_of(message: SecondsAndNanos, what: str) -> int:
    """Return the time in nanoseconds that a Timestamp holds.

    Raises:
        MalformedProof: the nanoseconds are no fraction of a second, or the year is not one of 1 to 9999.
    """
    if not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{what} has {message.nanos} nanoseconds beside its seconds, 0..999999999 are allowed")
    time = message.seconds * SECOND + message.nanos
    if not MIN_TIME <= time <= MAX_TIME:
        raise MalformedProof(f"{what} is {message.seconds} seconds from 1970, outside of the years 1 to 9999")
    return time


def duration_of(message: SecondsAndNanos, what: str) -> int:
    """Return the nanoseconds of a Duration.

    Raises:
        MalformedProof: it is negative, or the nanoseconds are no fraction of a second.
    """
    if message.seconds < 0 or not 0 <= message.nanos < SECOND:
        raise MalformedProof(f"{what} of {message.seconds} s and {message.nanos} ns is no duration of 0 or more")
    return message.seconds * SECOND + message.nanos
