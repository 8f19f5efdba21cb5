"""Elements of pages: SVG, readable figures and names, tables and badges.

All values are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from causeway.audit.findings import NOTED, UNKNOWN, VIOLATED
from causeway.audit.verdict import Verdict
from causeway.core.text import (
    EPOCH,
    count_noun,
    escape_controls,
    format_duration,
    format_number,
    pluralize,
    shorten_name,
)

__all__ = [
    "CELL_KINDS",
    "MAX_NAME",
    "TONES",
    "UNSEEN",
    "KeyFigure",
    "TableCell",
    "TableColumn",
    "element",
    "escape_html",
    "escape_unseen",
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
    "svg_path",
    "table_columns",
    "tone_class",
    "verdict_badge",
    "verdict_class",
    "verdict_shape",
]

TONES = ("a", "b", "c", "d", "e", "f", "good", "bad", "bad-2", "bad-3", "warn", "muted")
"""Names of the theme's colours."""


def tone_class(tone: str) -> str:
    """Return the CSS class of a tone.

    Args:
        tone: one of ``TONES``.

    Returns:
        The class.

    Raises:
        ValueError: the theme does not have it.
    """
    if tone not in TONES:
        raise ValueError(f"tone {tone}: must be one of {', '.join(TONES)}")
    return f"tone-{tone}"


def format_coordinate(value: float) -> str:
    """Format a coordinate to two decimals.

    Args:
        value: the coordinate.

    Returns:
        The text.
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def format_share(value: float) -> str:
    """Format a share of the width in per cent.

    Args:
        value: the share, from 0 to 1.

    Returns:
        The text.
    """
    return f"{format_coordinate(100 * value)}%"


def element(tag: str, content: Iterable[Markup] | Markup | str = "", /, **attributes: object) -> Markup:
    """Render an element of HTML or SVG; attributes, and content that is not ``Markup``, are escaped.

    Args:
        tag: the tag.
        content: the content.
        attributes: attributes by name; a final ``_`` is dropped, others become ``-``, and None is omitted.

    Returns:
        The element.
    """
    named = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), escape_unseen(str(value)))
        for key, value in attributes.items()
        if value is not None
    )
    inner = escape(escape_unseen(content)) if isinstance(content, str) else Markup("").join(content)
    name = Markup(tag)
    return Markup("<{}{}>{}</{}>").format(name, named, inner, name)


def escape_unseen(value: object) -> object:
    """Escape characters that affect the display of other text: controls and direction marks.

    Args:
        value: any object; ``Markup`` stays.

    Returns:
        The text, or the object if it is ``Markup``.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    return text if text.isprintable() else "\n".join(escape_controls(line) for line in text.split("\n"))


def svg_path(points: Iterable[tuple[float, float] | None]) -> str:
    """Return the path through points; None ends a line.

    An isolated point becomes a stroke as long as it is wide.

    Args:
        points: the points.

    Returns:
        The value of the attribute ``d``.
    """
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
    """Return points without neighbours, each followed by None.

    Args:
        points: the points; None separates lines.

    Returns:
        The points.
    """
    around = [None, *points, None]
    found: list[tuple[float, float] | None] = []
    for before, point, after in zip(around, around[1:], around[2:], strict=False):
        if point is not None and before is None and after is None:
            found += [point, None]
    return found


NO_VALUE = "\u2013"
"""Text of a missing figure."""

UNSEEN = "not seen"
"""Text of null in a ledger."""

CUT = "…"
"""Mark of the omitted middle of a long name."""

MAX_NAME = 44
"""Maximum characters of a name; its title has all of it."""

_FIRST_CHAIN = datetime(2009, 1, 3, tzinfo=UTC)
_EXACT_SECONDS = 120
"""Limit from which times are in minutes, hours and days."""

_UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_LAST_SECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH).total_seconds()
_FIRST_SECOND = (datetime.min.replace(tzinfo=UTC) - EPOCH).total_seconds()


def safe_name(text: str, most: int = MAX_NAME) -> str:
    r"""Return a name on one line, with control characters and direction marks escaped.

    The middle of a long name is omitted, and blanks at its ends become ``\x20``.

    Args:
        text: the untrusted name.
        most: maximum number of characters.

    Returns:
        The safe name.
    """
    name = _show_end_blanks(shorten_name(text))
    if len(name) <= most:
        return name
    tail = most // 3
    return f"{name[: most - tail - 1].rstrip(CUT)}{CUT}{name[-tail:].lstrip(CUT)}"


def _show_end_blanks(name: str) -> str:
    """Make blanks at the ends of a name visible."""
    inner = name.strip(" ")
    if not inner:
        return '""' if not name else _BLANK * len(name)
    before = len(name) - len(name.lstrip(" "))
    return f"{_BLANK * before}{inner}{_BLANK * (len(name) - before - len(inner))}"


_BLANK = "\\x20"


def format_name(text: str | None, most: int = MAX_NAME) -> Markup:
    """Render a name with its own text direction, and its full text as title if shortened.

    Args:
        text: the untrusted name, or None.
        most: maximum number of characters.

    Returns:
        HTML.
    """
    if text is None:
        return Markup('<span class="unseen">{}</span>').format(UNSEEN)
    short, whole = safe_name(text, most), shorten_name(text)
    title = Markup(' title="{}"').format(whole) if short != whole else Markup("")
    return Markup('<bdi class="name"{}>{}</bdi>').format(title, short)


def format_count(number: float) -> str:
    """Format a number with thousands separators; fractions have up to three significant digits.

    Args:
        number: the number.

    Returns:
        The text.
    """
    return f"{number:,}" if isinstance(number, int) else format_number(number)


def format_narrow(number: float) -> str:
    """Format a number for narrow space, such as an axis: ``12.5k``.

    Args:
        number: the number.

    Returns:
        The text.
    """
    for size, letter in _UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def group_digits(text: str | None, most: int = 15) -> Markup:
    """Render decimal digits with thousands separators.

    Of more than ``most`` digits only the first, with a power of ten and the full number as title.

    Args:
        text: the digits, or None.
        most: maximum number of digits.

    Returns:
        HTML.
    """
    if text is None:
        return Markup("")
    number = int(text)
    if len(text.lstrip("-")) <= most:
        return Markup('<span class="{}">{}</span>').format("figure" if number else "zero", f"{number:,}")
    head, power = f"{text.lstrip('-')[:5]}", len(text.lstrip("-")) - 1
    sign = "-" if number < 0 else ""
    shortened = Markup("{}{}.{} \u00d7 10<sup>{}</sup>").format(sign, head[0], head[1:], power)
    return Markup('<span class="figure" title="{}">{}</span>').format(f"{number:,}", shortened)


def format_bytes(number: float) -> str:
    """Format a number of bytes.

    Args:
        number: the number.

    Returns:
        The text.
    """
    for size, unit in _BYTES:
        if abs(number) >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:,.0f} bytes"


def format_ticks(number: float) -> str:
    """Format a number of ticks.

    Args:
        number: the number.

    Returns:
        The text.
    """
    return f"{format_count(number)} {'tick' if number == 1 else 'ticks'}"


def format_delay(seconds: float) -> str:
    """Format a delay with its significant digits.

    Args:
        seconds: the delay in seconds.

    Returns:
        The text.
    """
    if abs(seconds) >= _EXACT_SECONDS or not seconds:
        return format_duration(seconds)
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} \u00b5s"


def format_in_unit(number: float | None, unit: str) -> str:
    """Format a figure in its unit.

    Args:
        number: the figure, or None.
        unit: ``count``, ``seconds``, ``ticks``, ``bytes``, ``share``, or any word.

    Returns:
        The text.
    """
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
    """Format a share in per cent; only 1 is 100 %, only 0 is 0 %.

    Args:
        share: the share, from 0 to 1.

    Returns:
        The text.
    """
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "> 99.9 %"
    if text == "0.0" and share > 0:
        return "< 0.1 %"
    return f"{text.removesuffix('.0')} %"


def list_words(words: Sequence[str]) -> str:
    """Join words as in a sentence.

    Args:
        words: the words.

    Returns:
        The text.
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def format_time(time: datetime | str | float | None) -> str:
    """Format a time (datetime, ISO 8601, or seconds since 1970) in UTC to the second.

    Milliseconds are included if not 0. Times near 1970 are the clock of a run, without a date.

    Args:
        time: the time, or None.

    Returns:
        The text.
    """
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
    """Return a time in UTC, clamped to the calendar.

    Args:
        seconds: seconds since 1970.

    Returns:
        The time.
    """
    if seconds >= _LAST_SECOND:
        return datetime.max.replace(tzinfo=UTC)
    return EPOCH + timedelta(seconds=max(seconds, _FIRST_SECOND))


def escape_html(text: object) -> Markup:
    """Render anything on one line, escaped.

    Args:
        text: any object.

    Returns:
        HTML.
    """
    return text if isinstance(text, Markup) else escape(shorten_name(str(text)))


CELL_KINDS = ("text", "number", "name", "time", "code")
"""Content of a column: words, figures, names of the ledger, times, or single digits."""

_CHECK, _CROSS, _DASH = "M3 8.5l3.2 3.2L13 4.8", "M4 4l8 8M12 4l-8 8", "M4 8h8"
_QUESTION = "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.8-1.1 1.6M8 12.4v.2"
_LETTER_I = "M8 7v5.2M8 3.9v.2"

_SHAPES = {
    Verdict.PASSED: _CHECK, Verdict.FAILED: _CROSS, Verdict.INCONCLUSIVE: _QUESTION, Verdict.NOT_APPLICABLE: _DASH,
    VIOLATED: _CROSS, UNKNOWN: _QUESTION, NOTED: _LETTER_I,
}  # fmt: skip
"""The shape of each verdict, distinguishable without colours."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table. ``hint``: explanation of its title."""

    title: str
    kind: str = "text"
    hint: str | None = None


def table_columns(*columns: str | TableColumn) -> list[TableColumn]:
    """Return the columns of a table.

    Args:
        columns: each ``title`` or ``title:kind`` (``CELL_KINDS``), or a column with a hint.

    Returns:
        The columns.
    """
    return [TableColumn(*each.split(":")) if isinstance(each, str) else each for each in columns]


TableCell = str | int | float | Markup | None


def render_table(
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[TableCell]],
    *,
    caption: str,
    more: int = 0,
    idents: Sequence[str | None] | None = None,
    stacked: bool = False,
    tall: bool = False,
    empty: str = "No rows.",
) -> Markup:
    """Render a table that scrolls if it is wider than the page; empty columns are omitted.

    Args:
        columns: titles and kinds (``CELL_KINDS``).
        rows: a cell for each column.
        caption: name of the rows.
        more: number of further rows.
        idents: anchors of the rows.
        stacked: on a phone each row is a block, each cell a line.
        tall: scroll if it is longer than a screen.
        empty: text of a table without rows.

    Returns:
        HTML.
    """
    content = [[_cell_content(column.kind, value) for column, value in zip(columns, row, strict=True)] for row in rows]
    if not content:
        return element("p", empty, class_="empty")
    used = [place for place in range(len(columns)) if not place or any(row[place] for row in content)]
    body = []
    for number, row in enumerate(content):
        cells = [_cell(columns[place], row[place], first=not place) for place in used]
        body.append(element("tr", cells, id=idents[number] if idents is not None else None))
    heads = []
    for column in (columns[place] for place in used):
        mark = {"scope": "col", "class": "number" if column.kind == "number" else None, "title": column.hint}
        heads.append(element("th", column.title, **mark))
    parts = [
        element("caption", caption, class_="quiet"),
        element("thead", element("tr", heads)),
        element("tbody", body),
    ]
    if more > 0:
        note = f"{count_noun(more, 'more row')} not shown"
        parts.append(element("tfoot", element("tr", element("td", note, colspan=len(used)))))
    inner = element("table", parts, class_="stacked" if stacked else None)
    box = {"class": "scroll tall" if tall else "scroll", "tabindex": 0, "role": "region", "aria-label": caption}
    return element("div", inner, **box)


def _cell(column: TableColumn, content: Markup, *, first: bool) -> Markup:
    kind = column.kind if column.kind in ("number", "code", "time") else None
    if first:
        return element("th", content, scope="row", class_=kind)
    empty = "none" if not content else None
    classes = " ".join(each for each in (kind, empty) if each) or None
    return element("td", content, class_=classes, data_label=column.title)


def _cell_content(kind: str, value: TableCell) -> Markup:
    if isinstance(value, Markup):
        return value
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
    """Render a verdict with its shape.

    Args:
        verdict: the verdict.
        text: replaces the word of the verdict.

    Returns:
        HTML.
    """
    return element(
        "span", verdict_shape(verdict) + escape_html(text or verdict), class_=f"badge {verdict_class(verdict)}"
    )


def verdict_class(verdict: str) -> str:
    """Return the CSS class of a verdict.

    Args:
        verdict: the verdict.

    Returns:
        The class.
    """
    return verdict.lower().replace(" ", "-")


def verdict_shape(verdict: str) -> Markup:
    """Render the shape of a verdict.

    Args:
        verdict: the verdict.

    Returns:
        SVG.

    Raises:
        ValueError: the word is no verdict.
    """
    if verdict not in _SHAPES:
        raise ValueError(f"verdict {verdict}: must be one of {', '.join(_SHAPES)}")
    path = element("path", d=_SHAPES[verdict])
    box = {"viewBox": "0 0 16 16", "width": 16, "height": 16, "aria-hidden": "true"}
    return element("svg", path, class_="shape", **box)


@dataclass(frozen=True)
class KeyFigure:
    """A large figure. ``note``: a few words below it; ``verdict``: its colour."""

    title: str
    figure: str | Markup
    note: str | Markup | None = None
    verdict: str | None = None
    href: str | None = None


def render_key_figures(pairs: Sequence[KeyFigure]) -> Markup:
    """Render large figures side by side.

    Args:
        pairs: the figures.

    Returns:
        HTML.
    """
    cells = []
    for each in pairs:
        figure = escape_html(each.figure)
        if each.href is not None:
            figure = element("a", figure, href=each.href)
        parts = [element("dt", each.title), element("dd", figure, class_="figure")]
        if each.note is not None:
            parts.append(element("dd", escape_html(each.note), class_="note"))
        cells.append(element("div", parts, class_=f"fact {verdict_class(each.verdict or '')}".strip()))
    return element("dl", cells, class_="facts")
