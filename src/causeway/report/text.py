"""Figures, times and names from strangers as a page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from causeway.model.text import EPOCH, about, duration, name_of, unit_of

NOTHING = "\u2013"
"""Where there is no figure."""

NOT_SEEN = "not seen"
"""What null means in a ledger."""

CUT = "…"
"""What stands for the middle of a long name."""

MOST_NAME = 44
"""Characters of a name that are shown; the whole of it is its title."""

_FIRST_CHAIN = datetime(2009, 1, 3, tzinfo=UTC)
_EXACT_SECONDS = 120
"""From here on minutes, hours and days are shown."""

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LAST_SECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH).total_seconds()
_FIRST_SECOND = (datetime.min.replace(tzinfo=UTC) - EPOCH).total_seconds()


def safe_name(text: str, most: int = MOST_NAME) -> str:
    """Return a name on one line, without anything that changes how the rest is shown (controls, marks of direction);
    the middle of a long one is left out, and blanks at its ends are shown as ``\\x20``."""
    name = _seen(name_of(text))
    if len(name) <= most:
        return name
    tail = most // 3
    return f"{name[: most - tail - 1].rstrip(CUT)}{CUT}{name[-tail:].lstrip(CUT)}"


def _seen(name: str) -> str:
    """Return a name of which something is to be seen at both ends."""
    inner = name.strip(" ")
    if not inner:
        return '""' if not name else _BLANK * len(name)
    before = len(name) - len(name.lstrip(" "))
    return f"{_BLANK * before}{inner}{_BLANK * (len(name) - before - len(inner))}"


_BLANK = "\\x20"


def name(text: str | None, most: int = MOST_NAME) -> Markup:
    """Return a name as HTML: a direction of its own, and the whole of it as its title where it is cut."""
    if text is None:
        return Markup('<span class="unseen">{}</span>').format(NOT_SEEN)
    short, whole = safe_name(text, most), name_of(text)
    title = Markup(' title="{}"').format(whole) if short != whole else Markup("")
    return Markup('<bdi class="name"{}>{}</bdi>').format(title, short)


def count(number: float) -> str:
    """Return a number with its thousands apart; one that is not whole with up to three digits that count, of a float
    only digits that it has (``model.text.about``)."""
    return f"{number:,}" if isinstance(number, int) else about(number)


def narrow(number: float) -> str:
    """Return a number in little room, as at an axis: ``12.5k``."""
    for size, letter in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def digits(text: str | None, most: int = 15) -> Markup:
    """Return decimal digits with their thousands apart; of more than ``most`` the first ones and the power of ten, and
    all of them as the title."""
    if text is None:
        return Markup("")
    number = int(text)
    if len(text.lstrip("-")) <= most:
        return Markup('<span class="{}">{}</span>').format("figure" if number else "zero", f"{number:,}")
    head, power = f"{text.lstrip('-')[:5]}", len(text.lstrip("-")) - 1
    sign = "-" if number < 0 else ""
    shown = Markup("{}{}.{} \u00d7 10<sup>{}</sup>").format(sign, head[0], head[1:], power)
    return Markup('<span class="figure" title="{}">{}</span>').format(f"{number:,}", shown)


def byte_size(number: float) -> str:
    """Return a number of bytes for people."""
    for size, unit in _BYTES:
        if abs(number) >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


def ticks(number: float) -> str:
    """Return a number of ticks."""
    return f"{count(number)} {'tick' if number == 1 else 'ticks'}"


def lasting(seconds: float) -> str:
    """Return a delay with the digits that count."""
    if abs(seconds) >= _EXACT_SECONDS or not seconds:
        return duration(seconds)
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} \u00b5s"


def in_unit(number: float | None, unit: str) -> str:
    """Return a figure in its unit: ``count``, ``seconds``, ``ticks``, ``bytes``, ``share``, or any word."""
    if number is None:
        return NOTHING
    known = {"count": count, "seconds": lasting, "ticks": ticks, "bytes": byte_size, "share": percent}
    return known[unit](number) if unit in known else f"{count(number)} {unit_of(number, unit)}"


def percent(share: float) -> str:
    """Return a share as per cent; nothing but all is 100 %, nothing but nothing 0 %."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "> 99.9 %"
    if text == "0.0" and share > 0:
        return "< 0.1 %"
    return f"{text.removesuffix('.0')} %"


def many(number: int, what: str, plural: str | None = None) -> str:
    """Return ``1 lane``, ``3 lanes``."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def time_text(time: datetime | str | float | None) -> str:
    """Return a time (a datetime, ISO 8601, or seconds since 1970) in UTC to the second; milliseconds where there are
    any. What is before there were chains is the clock of a run, which begins with 1970."""
    if time is None:
        return NOTHING
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    moment = time if isinstance(time, datetime) else moment_of(time)
    if EPOCH <= moment < _FIRST_CHAIN:
        return f"t + {duration((moment - EPOCH).total_seconds())}"
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond // 1000:03} UTC" if moment.microsecond else f"{text} UTC"


def moment_of(seconds: float) -> datetime:
    """Return a time in UTC; what no calendar has is its first or last moment."""
    if seconds >= _LAST_SECOND:
        return datetime.max.replace(tzinfo=UTC)
    return EPOCH + timedelta(seconds=max(seconds, _FIRST_SECOND))


def plain(text: object) -> Markup:
    """Return anything as HTML on one line, escaped."""
    return text if isinstance(text, Markup) else escape(name_of(str(text)))


__all__ = [
    "MOST_NAME", "NOT_SEEN", "byte_size", "count", "digits", "duration", "in_unit", "lasting",
    "listed", "many", "moment_of", "name", "narrow", "percent", "plain", "safe_name", "ticks", "time_text",
]  # fmt: skip
