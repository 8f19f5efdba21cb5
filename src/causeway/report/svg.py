"""Pieces of SVG: numbers as short as they can be, elements with escaped values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from causeway.model.text import escaped

TONES = ("a", "b", "c", "d", "e", "f", "good", "bad", "bad-2", "bad-3", "warn", "muted")
"""Names of the colours that the theme defines."""


def tone_class(tone: str) -> str:
    """Return the class of a tone. Raises ``ValueError`` for one that the theme does not have."""
    if tone not in TONES:
        raise ValueError(f"tone {tone}: must be one of {', '.join(TONES)}")
    return f"tone-{tone}"


def number(value: float) -> str:
    """Return a coordinate, to a hundredth."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def share(value: float) -> str:
    """Return a share of the width as per cent."""
    return f"{number(100 * value)}%"


def element(tag: str, attributes: Mapping[str, object], content: Iterable[Markup] | Markup | str = "") -> Markup:
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
    return text if text.isprintable() else "\n".join(escaped(line) for line in text.split("\n"))


def path(points: Iterable[tuple[float, float] | None]) -> str:
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
            run.append(f"{number(point[0])} {number(point[1])}")
    end()
    return "".join(parts)


def alone(points: Sequence[tuple[float, float] | None]) -> list[tuple[float, float] | None]:
    """Return points that no line leads to or from, with None behind each."""
    around = [None, *points, None]
    found: list[tuple[float, float] | None] = []
    for before, point, after in zip(around, around[1:], around[2:], strict=False):
        if point is not None and before is None and after is None:
            found += [point, None]
    return found


__all__ = ["TONES", "alone", "element", "number", "path", "share", "tone_class"]
