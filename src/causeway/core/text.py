"""Values and texts that others wrote, made fit for one line of an error or a terminal.

JSON of which nobody knows who wrote it.

Durations as a user writes them.
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
"""Up to so many names are all listed, of more the first ones."""

_MAX_COMPARED = 100_000
"""So many names are compared with one that is not among them."""

_LONG_HEX = re.compile(rf"[0-9a-f]{{{_HEAD + _TAIL + 4},}}")


def shorten_hex(digits: str) -> str:
    """Return hexadecimal digits, the middle of long ones left out."""
    return digits if len(digits) <= _HEAD + _TAIL else f"{digits[:_HEAD]}…{digits[-_TAIL:]}"


def to_one_line(text: str) -> str:
    """Return a text on one line: long digests shortened, nothing in it that a terminal would act on."""
    return escape_controls(_LONG_HEX.sub(lambda found: shorten_hex(found[0]), text))


def shorten_name(text: str) -> str:
    """Return a name as ``readable`` does, the middle of a very long one left out."""
    name = to_one_line(text)
    return name if len(name) <= _NAME_CHARACTERS else f"{name[: _NAME_CHARACTERS - 21]}…{name[-20:]}"


def truncate_text(text: str, most: int = 200) -> str:
    """Return a text as ``readable`` does, cut after some characters: then how long it is follows."""
    start = to_one_line(text[: most + 1])
    return start if len(text) <= most else f"{start[:most]}... {len(text):,} characters"


def is_text(text: str) -> bool:
    """Return whether a text has a form in UTF-8: half of a surrogate pair has none."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def escape_controls(text: str) -> str:
    """Return a text on one line, with nothing in it that a terminal would act on."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def to_utc(time: str | datetime) -> datetime:
    """Return a time, or what ISO 8601 has of one, in UTC; one without a zone is of it. Raises ``ValueError`` for what
    is no time, ``OverflowError`` for one that is not within the years 1 to 9999 there."""
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def format_duration(seconds: float) -> str:
    """Return a time for people: ``2.4 s``, ``18.0 min``, ``3.1 h``, ``12.0 days``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    if seconds < 120:
        return f"{seconds:,.3f}".rstrip("0").rstrip(".") + " s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def format_number(number: float) -> str:
    """Return a number with its thousands apart; one that is too large to have all its digits as ``about 1.84 x 10^19``,
    one that is not whole with up to three digits that count."""
    if abs(number) >= _ALL_DIGITS:
        power = math.floor(math.log10(abs(number)))
        return f"about {number / 10.0**power:.4g} x 10^{power}"
    if number == int(number):
        return f"{int(number):,}"
    return f"{number:,.0f}" if abs(number) >= _NARROW else f"{number:,.3g}"


_ALL_DIGITS = 2.0**53
_NARROW = 1_000


def format_value(value: object) -> str:
    """Return a value as it would stand in a scenario file, cut to one short line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def suggest_known(kind: str, value: object, known: Collection[str]) -> str:
    """Return the end of an error line about a name that is not among ``known``."""
    near = difflib.get_close_matches(str(value), known, n=1) if len(known) <= _MAX_COMPARED else []
    if near:
        return f"{format_value(value)}: no such {kind}; did you mean {near[0]}?"
    listed = list(known) if len(known) <= _ALL_LISTED else [*list(known)[:_LISTED_NAMES], "..."]
    return f"{format_value(value)}: no such {kind}; there are {len(known)}: {', '.join(listed) or 'none'}"


def pluralize(count: float, unit: str) -> str:
    """Return a unit in the plural, such as ``messages``, as it stands behind a count: in the singular behind 1."""
    return unit.removesuffix("s") if count == 1 else unit


def was_or_were(count: int) -> str:
    """Return the verb that stands behind a count."""
    return "was" if count == 1 else "were"


def format_moment(time: datetime | None, *, seconds: bool = True) -> str:
    """Return a UTC time as ``0001-02-03 04:05:06``, or without its seconds: a year has four digits. None: a time before
    or after all of these."""
    if time is None:
        return "in no year from 1 to 9999"
    return time.replace(tzinfo=None).isoformat(" ", "seconds" if seconds else "minutes")


def format_lane_or_none(lane: Sequence[str | None]) -> str:
    """Return the names of a lane as ``lane_text`` does, or that its messages are in no lane."""
    return format_lane(lane) or (f"in no lane ({lane[0]})" if lane[0] else "in no lane")


def format_lane(lane: Sequence[str | None]) -> str | None:
    """Return the names of a lane (protocol, source, destination, lane) as a person reads them."""
    _, source, destination, name = lane
    if source is None and destination is None:
        return name
    ends = f"{source or '?'} -> {destination or '?'}"
    return ends if name is None or name == ends.replace(" ", "") else f"{ends} {name}"


def load_json(text: str | bytes) -> Any:
    """Return the value that a text in JSON is. Raises ``ValueError``: it is none, or is nested too deeply to be
    read."""
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
