"""A self-contained HTML document that loads nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.core.text import count_noun
from causeway.report.elements import (
    escape_html,
    escape_unseen,
    format_coordinate,
    format_count,
    format_in_unit,
    format_name,
    format_share,
    format_time,
    group_digits,
    safe_name,
    tone_class,
    verdict_class,
    verdict_shape,
)

GENERATOR = "Causeway report"
"""Generator tag of these documents."""

_TEMPLATES = "templates"


def _content(file: str) -> str:
    return (files("causeway.report") / _TEMPLATES / file).read_text(encoding="utf-8")


STYLE = _content("theme.css")
"""The theme: colours as variables, light and dark; classes of all elements."""

SCRIPT = _content("page.js")
"""Tips of charts, colour scheme switch and table filters. A page is complete without it."""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


POLICY = "; ".join(
    (
        *("default-src 'none'", f"style-src {_digest(STYLE)}", f"script-src {_digest(SCRIPT)}", "img-src data:"),
        *("base-uri 'none'", "form-action 'none'"),
    )
)
"""The content security policy: only the style and the script of the page, by digest."""


@dataclass(frozen=True)
class PageSection:
    """A part of a page.

    ``ident``: its anchor. ``title``: None: no title and no entry in the navigation. ``lead``: a sentence below the
    title.
    """

    ident: str
    title: str | None
    body: Markup
    lead: str | None = None


def render_page(
    title: str, sections: Sequence[PageSection], *, verdict: str | None = None, foot: Sequence[str] = ()
) -> str:
    """Render an HTML document with inline style and script.

    Args:
        title: of the document; may contain a name of a ledger.
        sections: in order.
        verdict: colour of the icon in the bar and in the tab.
        foot: lines at the end.

    Returns:
        The text.
    """
    return render_template(
        "page.html",
        title=title,
        sections=sections,
        verdict=verdict,
        foot=foot,
        policy=POLICY,
        style=Markup(STYLE),
        script=Markup(SCRIPT),
        icon=verdict_icon(verdict),
        made_by=GENERATOR,
    )


def render_template(template: str, **content: Any) -> str:
    """Render a template of this package; values that are not ``Markup`` are escaped.

    Args:
        template: name of the template.
        content: values of the template.

    Returns:
        The text.
    """
    return template_environment().get_template(template).render(**content)


def render_piece(template: str, **content: Any) -> Markup:
    """Render a template as an element of a page.

    Args:
        template: name of the template.
        content: values of the template.

    Returns:
        HTML.
    """
    return Markup(render_template(template, **content))


class _JoinedLines(Extension):
    """Join the lines of the templates of elements: blanks between elements are visible."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source of a template."""
        return re.sub(r"\n\s*", "", source) if name is not None and name.startswith("elements/") else source


@cache
def template_environment() -> Environment:
    """Return the templates of this package, with autoescape."""
    found = Environment(
        loader=PackageLoader("causeway.report", _TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escape_unseen,
        extensions=[_JoinedLines],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "coordinate": format_coordinate, "count": format_count, "digits": group_digits, "in_unit": format_in_unit,
        "line": escape_html, "many": count_noun, "name": format_name, "shape": verdict_shape, "share": format_share,
        "short": safe_name, "time": format_time, "tone": tone_class, "verdict_class": verdict_class,
    }  # fmt: skip
    return found


_SIGNS: dict[str | None, tuple[str, str]] = {
    Verdict.PASSED: ("#137a47", "M4 8.5l2.8 2.8L12 5.2"),
    Verdict.FAILED: ("#bd261b", "M5 5l6 6M11 5l-6 6"),
    Verdict.INCONCLUSIVE: ("#b07a10", "M8 4v5M8 11.4v.2"),
    Verdict.NOT_APPLICABLE: ("#5a626d", "M4 8h8"),
    None: ("#1f57c3", "M4 8h8"),
}


def verdict_icon(verdict: str | None, sign: str | None = None, width: float = 2) -> str:
    """Return the icon of a page as an address.

    Args:
        verdict: its colour; None: no verdict.
        sign: path of the sign, or None for that of the verdict.
        width: of the lines of the sign.

    Returns:
        A ``data:`` address.
    """
    colour, own = _SIGNS[verdict]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" '
        f'fill="{colour}"/><path d="{sign or own}" fill="none" stroke="#fff" stroke-width="{width}" '
        f'stroke-linecap="round"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


__all__ = [
    "GENERATOR",
    "POLICY",
    "SCRIPT",
    "STYLE",
    "PageSection",
    "render_page",
    "render_piece",
    "render_template",
    "template_environment",
    "verdict_icon",
]
