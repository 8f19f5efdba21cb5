"""Text for errors and terminals: untrusted values, numbers and times on one line.

``load_json`` parses untrusted JSON. ``parse_duration`` reads durations of users.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

__all__ = ["parse_duration"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEAD = 16
_TAIL = 4
_SHOWN_CHARACTERS = 60
_NAME_CHARACTERS = 120
_LISTED_NAMES = 8
_ALL_LISTED = 24
"""Maximum number of names that are all listed; of more, only the first."""

_MAX_COMPARED = 100_000
"""Maximum number of names compared with an unknown one."""

_LONG_HEX = re.compile(rf"[0-9a-f]{{{_HEAD + _TAIL + 4},}}")


def shorten_hex(digits: str) -> str:
    """Shorten long hexadecimal digits in the middle.

    Args:
        digits: The digits.
    """
    return digits if len(digits) <= _HEAD + _TAIL else f"{digits[:_HEAD]}…{digits[-_TAIL:]}"


def to_one_line(text: str) -> str:
    """Escape a text for one line of a terminal, with long digests shortened.

    Args:
        text: The text, from any source.
    """
    return escape_controls(_LONG_HEX.sub(lambda found: shorten_hex(found[0]), text))


def shorten_name(text: str) -> str:
    """Escape a name as ``to_one_line``, shortened in the middle if very long.

    Args:
        text: The name.
    """
    name = to_one_line(text)
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 21]}…{name[-20:]}"


def truncate_text(text: str, most: int = 200) -> str:
    """Truncate a text, with its length appended, and escape it as ``to_one_line``.

    Args:
        text: The text.
        most: Maximum number of characters.
    """
    start = to_one_line(text[: most + 1])
    return start if len(text) <= most else f"{start[:most]}... {len(text):,} characters"


def is_text(text: str) -> bool:
    """Return True if a text can be encoded in UTF-8: half of a surrogate pair cannot.

    Args:
        text: The text.
    """
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_controls(text: str) -> str:
    """Escape the control characters of a text, for one line of a terminal.

    Args:
        text: The text, from any source.
    """
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def to_utc(time: str | datetime) -> datetime:
    """Convert a time to UTC; without a zone it is in UTC.

    Args:
        time: The time, or its ISO 8601 text.

    Raises:
        ValueError: The text is no time.
        OverflowError: The time is outside the years 1 to 9999.
    """
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def format_duration(seconds: float) -> str:
    """Format a duration for people: ``2.4 s``, ``18.0 min``, ``3.1 h``, ``12.0 days``.

    Args:
        seconds: The duration in seconds.
    """
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 120:
        return f"{seconds:,.3f}".rstrip("0").rstrip(".") + " s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def format_number(number: float) -> str:
    """Format a number with thousands separators.

    A very large one becomes ``about 1.84 x 10^19``; a fraction has up to three significant digits.

    Args:
        number: The number.
    """
    if abs(number) >= _ALL_DIGITS:
        power = math.floor(math.log10(abs(number)))
        return f"about {number / 10.0**power:.4g} x 10^{power}"
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.0f}" if abs(number) >= _NARROW else f"{number:,.3g}"


_ALL_DIGITS = 2.0**53
_NARROW = 1_000


def format_value(value: object) -> str:
    """Format a value as in a scenario file, truncated to one short line.

    Args:
        value: The value.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def suggest_known(kind: str, value: object, known: Collection[str]) -> str:
    """Return the end of an error about an unknown name.

    Args:
        kind: Kind of the name, such as ``chain``.
        value: The unknown name.
        known: Known names.

    Returns:
        A suggestion of a similar name, or the known names.
    """
    near = difflib.get_close_matches(str(value), known, n=1) if len(known) <= _MAX_COMPARED else []
    if near:
        return f"{format_value(value)}: no such {kind}; did you mean {near[0]}?"
    listed = list(known) if len(known) <= _ALL_LISTED else [*list(known)[:_LISTED_NAMES], "..."]
    return f"{format_value(value)}: no such {kind}; there are {len(known)}: {', '.join(listed) or 'none'}"


def pluralize(count: float, unit: str) -> str:
    """Return a unit in the number of its count.

    Args:
        count: The count.
        unit: The plural, such as ``messages``.
    """
    return unit.removesuffix("s") if count == 1 else unit


def count_noun(count: int, noun: str) -> str:
    """Format a count with its noun, in the plural unless it is one.

    Args:
        count: The number.
        noun: Noun in the singular.
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def was_or_were(count: int) -> str:
    """Return the verb for a count.

    Args:
        count: The count.
    """
    return "was" if count == 1 else "were"


def format_moment(time: datetime | None, *, seconds: bool = True) -> str:
    """Format a UTC time as ``0001-02-03 04:05:06``.

    Args:
        time: The time; None: out of range.
        seconds: Show the seconds.
    """
    if time is None:
        return "in no year from 1 to 9999"
    return time.replace(tzinfo=None).isoformat(" ", "seconds" if seconds else "minutes")


def format_lane_or_none(lane: Sequence[str | None]) -> str:
    """Format a lane as ``format_lane``, or state that there is none.

    Args:
        lane: Protocol, source, destination and lane.
    """
    return format_lane(lane) or (f"in no lane ({lane[0]})" if lane[0] else "in no lane")


def format_lane(lane: Sequence[str | None]) -> str | None:
    """Format a lane for people.

    Args:
        lane: Protocol, source, destination and lane.

    Returns:
        The text, or None without a lane.
    """
    _, source, destination, name = lane
    if source is None and destination is None:
        return name
    ends = f"{source or '?'} -> {destination or '?'}"
    return ends if name is None or name == ends.replace(" ", "") else f"{ends} {name}"


def load_json(text: str | bytes) -> Any:
    """Parse JSON from an untrusted source.

    Args:
        text: The JSON text.

    Raises:
        ValueError: It is invalid, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?(ms|s|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float | None:
    """Read a duration such as ``90s``, ``1500ms``, ``5min``, ``2h`` or ``2d``.

    Args:
        text: A number and its unit.

    Returns:
        Seconds, or None if the text is no duration.
    """
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _SECONDS[found[2]]
