"""Pieces of SVG: numbers as short as they can be, elements with escaped values.

Figures, times and names from strangers as a page shows them.

Tables, badges and figures as HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.core.text import EPOCH, escape_controls, format_duration, format_number, pluralize, shorten_name

__all__ = [
    "CELL_KINDS",
    "MAX_NAME",
    "TONES",
    "UNSEEN",
    "KeyFigure",
    "LinkCell",
    "TableCell",
    "TableColumn",
    "count_words",
    "escape_html",
    "format_bytes",
    "format_coordinate",
    "format_count",
    "format_delay",
    "format_duration",
    "format_in_unit",
    "format_name",
    "format_narrow",
    "format_percent",
    "format_share",
    "format_ticks",
    "format_time",
    "group_digits",
    "isolated_points",
    "list_words",
    "parse_moment",
    "render_key_figures",
    "render_table",
    "safe_name",
    "svg_element",
    "svg_path",
    "tone_class",
    "verdict_badge",
    "verdict_class",
    "verdict_shape",
]

TONES = ("a", "b", "c", "d", "e", "f", "good", "bad", "bad-2", "bad-3", "warn", "muted")
"""Names of the colours that the theme defines."""


def tone_class(tone: str) -> str:
    """Return the class of a tone. Raises ``ValueError`` for one that the theme does not have."""
    if tone not in TONES:
        raise ValueError(f"tone {tone}: must be one of {', '.join(TONES)}")
    return f"tone-{tone}"


def format_coordinate(value: float) -> str:
    """Return a coordinate, to a hundredth."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def format_share(value: float) -> str:
    """Return a share of the width as per cent."""
    return f"{format_coordinate(100 * value)}%"


def svg_element(tag: str, attributes: Mapping[str, object], content: Iterable[Markup] | Markup | str = "") -> Markup:
    """Return an element; ``_`` in names of attributes is ``-``, and those that are None are left out. What is not
    ``Markup`` is escaped."""
    named = Markup("").join(
        Markup(' {}="{}"').format(key.replace("_", "-"), _neutral(str(value)))
        for key, value in attributes.items()
        if value is not None
    )
    if isinstance(content, Markup):
        inner = content
    else:
        inner = escape(_neutral(content)) if isinstance(content, str) else Markup("").join(content)
    name = Markup(tag)
    return Markup("<{}{}>{}</{}>").format(name, named, inner, name)


def _neutral(text: str) -> str:
    """Return a text in which nothing changes how the rest is shown: controls and marks of direction as escapes."""
    return text if text.isprintable() else "\n".join(escape_controls(line) for line in text.split("\n"))


def svg_path(points: Iterable[tuple[float, float] | None]) -> str:
    """Return the path through points; None ends a line, and the next point begins another one. A point alone is a
    stroke that is only as long as it is wide."""
    parts: list[str] = []
    run: list[str] = []

    def end() -> None:
        if run:
            parts.append("M" + "L".join(run) + ("h.01" if len(run) == 1 else ""))
            run.clear()

    for point in points:
        if point is None:
            end()
        else:
            run.append(f"{format_coordinate(point[0])} {format_coordinate(point[1])}")
    end()
    return "".join(parts)


def isolated_points(points: Sequence[tuple[float, float] | None]) -> list[tuple[float, float] | None]:
    """Return points that no line leads to or from, with None behind each."""
    around = [None, *points, None]
    found: list[tuple[float, float] | None] = []
    for before, point, after in zip(around, around[1:], around[2:], strict=False):
        if point is not None and before is None and after is None:
            found += [point, None]
    return found


NO_VALUE = "\u2013"
"""Where there is no figure."""

UNSEEN = "not seen"
"""What null means in a ledger."""

CUT = "…"
"""What stands for the middle of a long name."""

MAX_NAME = 44
"""Characters of a name that are shown; the whole of it is its title."""

_FIRST_CHAIN = datetime(2009, 1, 3, tzinfo=UTC)
_EXACT_SECONDS = 120
"""From here on minutes, hours and days are shown."""

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LAST_SECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH).total_seconds()
_FIRST_SECOND = (datetime.min.replace(tzinfo=UTC) - EPOCH).total_seconds()


def safe_name(text: str, most: int = MAX_NAME) -> str:
    """Return a name on one line, without anything that changes how the rest is shown (controls, marks of direction);
    the middle of a long one is left out, and blanks at its ends are shown as ``\\x20``."""
    name = _seen(shorten_name(text))
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


def format_name(text: str | None, most: int = MAX_NAME) -> Markup:
    """Return a name as HTML: a direction of its own, and the whole of it as its title where it is cut."""
    if text is None:
        return Markup('<span class="unseen">{}</span>').format(UNSEEN)
    short, whole = safe_name(text, most), shorten_name(text)
    title = Markup(' title="{}"').format(whole) if short != whole else Markup("")
    return Markup('<bdi class="name"{}>{}</bdi>').format(title, short)


def format_count(number: float) -> str:
    """Return a number with its thousands apart; one that is not whole with up to three digits that count, of a float
    only digits that it has (``model.text.about``)."""
    return f"{number:,}" if isinstance(number, int) else format_number(number)


def format_narrow(number: float) -> str:
    """Return a number in little room, as at an axis: ``12.5k``."""
    for size, letter in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def group_digits(text: str | None, most: int = 15) -> Markup:
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


def format_bytes(number: float) -> str:
    """Return a number of bytes for people."""
    for size, unit in _BYTES:
        if abs(number) >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


def format_ticks(number: float) -> str:
    """Return a number of ticks."""
    return f"{format_count(number)} {'tick' if number == 1 else 'ticks'}"


def format_delay(seconds: float) -> str:
    """Return a delay with the digits that count."""
    if abs(seconds) >= _EXACT_SECONDS or not seconds:
        return format_duration(seconds)
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} \u00b5s"


def format_in_unit(number: float | None, unit: str) -> str:
    """Return a figure in its unit: ``count``, ``seconds``, ``ticks``, ``bytes``, ``share``, or any word."""
    if number is None:
        return NO_VALUE
    known = {
        "count": format_count,
        "seconds": format_delay,
        "ticks": format_ticks,
        "bytes": format_bytes,
        "share": format_percent,
    }
    return known[unit](number) if unit in known else f"{format_count(number)} {pluralize(number, unit)}"


def format_percent(share: float) -> str:
    """Return a share as per cent; nothing but all is 100 %, nothing but nothing 0 %."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "> 99.9 %"
    if text == "0.0" and share > 0:
        return "< 0.1 %"
    return f"{text.removesuffix('.0')} %"


def count_words(number: int, what: str, plural: str | None = None) -> str:
    """Return ``1 lane``, ``3 lanes``."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def list_words(words: Sequence[str]) -> str:
    """Return words as a sentence lists them."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def format_time(time: datetime | str | float | None) -> str:
    """Return a time (a datetime, ISO 8601, or seconds since 1970) in UTC to the second; milliseconds where there are
    any. What is before there were chains is the clock of a run, which begins with 1970."""
    if time is None:
        return NO_VALUE
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    moment = time if isinstance(time, datetime) else parse_moment(time)
    if EPOCH <= moment < _FIRST_CHAIN:
        return f"t + {format_duration((moment - EPOCH).total_seconds())}"
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    return f"{text}.{moment.microsecond // 1000:03} UTC" if moment.microsecond else f"{text} UTC"


def parse_moment(seconds: float) -> datetime:
    """Return a time in UTC; what no calendar has is its first or last moment."""
    if seconds >= _LAST_SECOND:
        return datetime.max.replace(tzinfo=UTC)
    return EPOCH + timedelta(seconds=max(seconds, _FIRST_SECOND))


def escape_html(text: object) -> Markup:
    """Return anything as HTML on one line, escaped."""
    return text if isinstance(text, Markup) else escape(shorten_name(str(text)))


CELL_KINDS = ("text", "number", "name", "time", "code")
"""What a column holds: words, figures, names from the ledger, times, or digits that are read one by one."""

_CHECK, _CROSS, _DASH = "M3 8.5l3.2 3.2L13 4.8", "M4 4l8 8M12 4l-8 8", "M4 8h8"
_QUESTION = "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.8-1.1 1.6M8 12.4v.2"
_LETTER_I = "M8 7v5.2M8 3.9v.2"

_SHAPES = {
    Verdict.PASSED: _CHECK, Verdict.FAILED: _CROSS, Verdict.INCONCLUSIVE: _QUESTION, Verdict.NOT_APPLICABLE: _DASH,
    VIOLATED: _CROSS, UNKNOWN: _QUESTION, NOTED: _LETTER_I,
}  # fmt: skip
"""The shape of each verdict, of checks and of findings: it is recognised without colours."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table. ``hint``: what its title means, in a sentence."""

    title: str
    kind: str = "text"
    hint: str | None = None


@dataclass(frozen=True)
class LinkCell:
    """A cell that leads to another place of the page."""

    text: str
    href: str


TableCell = str | int | float | Markup | LinkCell | None


def render_table(
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[TableCell]],
    *,
    caption: str,
    more: int = 0,
    idents: Sequence[str | None] | None = None,
    stacked: bool = False,
    tall: bool = False,
    visible: bool = False,
    empty: str = "No rows.",
) -> Markup:
    """Return a table that scrolls on its own where it is wider than the page; columns without any value are left out.

    Args:
        columns: titles and kinds (``KINDS``).
        rows: a cell for each column.
        caption: what the rows are.
        more: so many rows are not shown.
        idents: of each row the anchor that others link to.
        stacked: on a phone each row is a block, each cell a line.
        tall: it scrolls on its own where it is longer than a screen.
        visible: whether the caption is shown, or only read aloud.
        empty: shown where there are no rows.
    """
    shown = [[_shown(column.kind, value) for column, value in zip(columns, row, strict=True)] for row in rows]
    if not shown:
        return svg_element("p", {"class": "empty"}, empty)
    kept = [place for place in range(len(columns)) if not place or any(row[place] for row in shown)]
    body = []
    for number, row in enumerate(shown):
        cells = [_cell(columns[place], row[place], first=not place) for place in kept]
        body.append(svg_element("tr", {"id": idents[number] if idents is not None else None}, cells))
    heads = []
    for column in (columns[place] for place in kept):
        mark = {"scope": "col", "class": "number" if column.kind == "number" else None, "title": column.hint}
        heads.append(svg_element("th", mark, column.title))
    parts = [
        svg_element("caption", {"class": None if visible else "quiet"}, caption),
        svg_element("thead", {}, svg_element("tr", {}, heads)),
        svg_element("tbody", {}, body),
    ]
    if more > 0:
        said = f"{count_words(more, 'more row')} not shown"
        parts.append(svg_element("tfoot", {}, svg_element("tr", {}, svg_element("td", {"colspan": len(kept)}, said))))
    inner = svg_element("table", {"class": "stacked" if stacked else None}, parts)
    box = {"class": "scroll tall" if tall else "scroll", "tabindex": 0, "role": "region", "aria-label": caption}
    return svg_element("div", box, inner)


def _cell(column: TableColumn, shown: Markup, *, first: bool) -> Markup:
    kind = column.kind if column.kind in ("number", "code", "time") else None
    if first:
        return svg_element("th", {"scope": "row", "class": kind}, shown)
    empty = "none" if not shown else None
    classes = " ".join(each for each in (kind, empty) if each) or None
    return svg_element("td", {"class": classes, "data-label": column.title}, shown)


def _shown(kind: str, value: TableCell) -> Markup:
    if isinstance(value, Markup):
        return value
    if isinstance(value, LinkCell):
        return svg_element("a", {"href": value.href}, format_name(value.text))
    if value is None:
        return Markup("")
    if kind == "number" and not isinstance(value, str):
        return escape_html(format_count(value))
    if kind == "time":
        return escape_html(format_time(value))
    if kind in ("name", "code"):
        return format_name(str(value))
    return escape_html(value)


def verdict_badge(verdict: str, text: str | None = None) -> Markup:
    """Return a verdict with its shape. ``text``: instead of its word."""
    return svg_element(
        "span", {"class": f"badge {verdict_class(verdict)}"}, verdict_shape(verdict) + escape_html(text or verdict)
    )


def verdict_class(verdict: str) -> str:
    """Return the CSS class of a verdict, which gives its colours."""
    return verdict.lower().replace(" ", "-")


def verdict_shape(verdict: str) -> Markup:
    """Return the shape of a verdict. Raises ``ValueError`` for a word that is none."""
    if verdict not in _SHAPES:
        raise ValueError(f"verdict {verdict}: must be one of {', '.join(_SHAPES)}")
    drawn = svg_element("path", {"d": _SHAPES[verdict]})
    box = {"viewBox": "0 0 16 16", "width": 16, "height": 16, "aria-hidden": "true"}
    return svg_element("svg", {"class": "shape", **box}, drawn)


@dataclass(frozen=True)
class KeyFigure:
    """A figure that is shown large. ``note``: a few words below it; ``verdict``: gives its colour."""

    title: str
    figure: str | Markup
    note: str | Markup | None = None
    verdict: str | None = None
    href: str | None = None


def render_key_figures(pairs: Sequence[KeyFigure]) -> Markup:
    """Return large figures side by side."""
    cells = []
    for each in pairs:
        figure = escape_html(each.figure)
        if each.href is not None:
            figure = svg_element("a", {"href": each.href}, figure)
        parts = [svg_element("dt", {}, each.title), svg_element("dd", {"class": "figure"}, figure)]
        if each.note is not None:
            parts.append(svg_element("dd", {"class": "note"}, escape_html(each.note)))
        cells.append(svg_element("div", {"class": f"fact {verdict_class(each.verdict or '')}".strip()}, parts))
    return svg_element("dl", {"class": "facts"}, cells)
