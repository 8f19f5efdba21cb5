"""The frame of a page of the explorer: navigation, status, security headers, and forms.

Forms only link to other pages; they change nothing.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup, escape

from causeway.explorer.addresses import page_address
from causeway.report.elements import element
from causeway.report.page import SCRIPT, STYLE, template_environment, verdict_icon

__all__ = [
    "HEADERS",
    "PAGES",
    "POLICY",
    "ExplorerPage",
    "LiveStatus",
    "StaticFile",
    "choice_box",
    "empty_part",
    "number_box",
    "page_links",
    "render_explorer_page",
    "render_form",
    "render_piece",
    "static_files",
    "turn_link",
]

PAGES = (
    *(("/", "Overview"), ("/network", "Network"), ("/lanes", "Lanes"), ("/findings", "Findings")),
    *(("/height", "Heights"), ("/state", "State")),
)
"""The links of the navigation bar."""

CSS, JS = "text/css; charset=utf-8", "text/javascript; charset=utf-8"

POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src data:", "connect-src 'self'"),
        *("form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"),
    )
)
"""The content security policy: only files of this server, no inline content."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""HTTP headers of every answer."""


@dataclass(frozen=True)
class PagePart:
    """A part of a page.

    ``ident``: its anchor. ``title``: None: no title. ``lead``: text below the title. ``above``: breadcrumbs.
    """

    ident: str
    title: str | None
    body: Markup
    lead: str | Markup | None = None
    above: Markup | None = None


@dataclass(frozen=True)
class ExplorerPage:
    """The content of a page. ``current``: its entry in ``PAGES``. ``status``: HTTP status."""

    title: str
    sections: Sequence[PagePart]
    current: str = ""
    status: int = 200
    sought: str = ""


@dataclass(frozen=True)
class LiveStatus:
    """The freshness of a page.

    ``serial``: changes with every update. ``state``: ``live``, ``behind``, ``failed`` or empty. ``parts``: in words.
    ``failure``: reason of a failed update.
    """

    serial: str
    state: str
    parts: Sequence[str]
    failure: str = ""


@dataclass(frozen=True)
class StaticFile:
    """A static file. ``tag``: changes with its content."""

    content: bytes
    kind: str
    tag: str = field(default="")

    @classmethod
    def of(cls, text: str, kind: str) -> StaticFile:
        """Create a file from text."""
        content = text.encode()
        return cls(content, kind, hashlib.sha256(content).hexdigest()[:16])


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the static files by name: those of the report, and those of the explorer."""
    own = files("causeway.explorer") / "static"
    return {
        "theme.css": StaticFile.of(STYLE, CSS),
        "page.js": StaticFile.of(SCRIPT, JS),
        "explorer.css": StaticFile.of((own / "explorer.css").read_text(encoding="utf-8"), CSS),
        "explorer.js": StaticFile.of((own / "explorer.js").read_text(encoding="utf-8"), JS),
    }


def render_explorer_page(page: ExplorerPage, lake: str, status: LiveStatus, verdict: str | None) -> str:
    """Render a page as an HTML document.

    Args:
        page: the page.
        lake: name of the lake.
        status: the freshness.
        verdict: the colour of the icon in the bar.

    Returns:
        An HTML document.
    """
    return (
        _environment()
        .get_template("explorer.html")
        .render(
            title=page.title,
            lake=lake,
            icon=verdict_icon(verdict, "M4 11c2-6 6-6 8 0M2.5 11h11", 1.6),
            files={name: f"/static/{name}?v={file.tag}" for name, file in static_files().items()},
            status=status,
            verdict=verdict,
            pages=PAGES,
            current=page.current,
            sought=page.sought,
            sections=page.sections,
        )
    )


@cache
def _environment() -> Environment:
    """Return the templates of the explorer, with those of the report's sections."""
    loaders = [PackageLoader(package, "templates") for package in ("causeway.explorer", "causeway.report")]
    return template_environment().overlay(loader=ChoiceLoader(loaders))


def render_piece(template: str, **content: object) -> Markup:
    """Render a template of the explorer or the report as an element of a page.

    Args:
        template: name of the template.
        content: values of the template.

    Returns:
        HTML.
    """
    return Markup(_environment().get_template(template).render(**content))


def empty_part(ident: str, title: str, note: str, above: Markup | None = None) -> PagePart:
    """Return a part of a page that has nothing to show.

    Args:
        ident: its anchor.
        title: its title.
        note: the reason.
        above: breadcrumbs.

    Returns:
        The part.
    """
    return PagePart(ident, title, element("p", note, class_="empty"), above=above)


def turn_link(word: str, href: str | None) -> Markup:
    """Render a link to a neighbouring page; without an address the word alone.

    Args:
        word: text of the link.
        href: the address, or None.

    Returns:
        HTML.
    """
    return element("span", word, class_="off") if href is None else element("a", word, href=href)


def page_links(path: str, values: Mapping[str, object], page: int, last: int) -> Markup:
    """Render links to the pages before and after one; nothing if there is only one.

    Args:
        path: the path of the page.
        values: its query parameters.
        page: number of the page, from 0.
        last: number of the last page.

    Returns:
        HTML.
    """
    if last <= 0:
        return Markup("")
    before, after = (
        turn_link(word, page_address(path, {**values, "page": number}) if 0 <= number <= last else None)
        for word, number in (("Before", page - 1), ("Next", page + 1))
    )
    return element("div", [before, element("span", f"page {page + 1:,} of {last + 1:,}"), after], class_="turn")


def render_form(action: str, fields: Sequence[Markup], given: Mapping[str, str | None], button: str = "Go") -> Markup:
    """Render a form.

    Args:
        action: the address.
        fields: the inputs.
        given: further parameters; None is omitted.
        button: text of the button.

    Returns:
        HTML.
    """
    hidden = [_hidden(name, value) for name, value in given.items() if value is not None]
    return element("form", [*hidden, *fields, element("button", button, type="submit")], action=action)


def number_box(name: str, label: str, value: int | None = None) -> Markup:
    """Render an input of an integer.

    Args:
        name: name of the parameter.
        label: the label.
        value: the initial value, or None.

    Returns:
        HTML.
    """
    field = Markup("") if value is None else Markup(' value="{}"').format(value)
    return Markup(
        '<input class="short" name="{}" inputmode="numeric" maxlength="20" autocomplete="off" aria-label="{}" '
        'placeholder="{}"{}>'
    ).format(name, label, label.lower(), field)


def choice_box(name: str, label: str, words: Sequence[str], chosen: str | None) -> Markup:
    """Render a selection of one word.

    Args:
        name: name of the parameter.
        label: the label.
        words: the options.
        chosen: the selected one, or None.

    Returns:
        HTML.
    """
    options = [element("option", each, value=each, selected="selected" if each == chosen else None) for each in words]
    return element("select", options, name=name, aria_label=label)


def _hidden(name: str, value: str) -> Markup:
    """Render a hidden input; characters that affect text direction are numeric references."""
    content = Markup("").join(
        Markup(f"&#{ord(each)};") if unicodedata.category(each) in _UNSEEN and ord(each) not in _C1 else escape(each)
        for each in value
    )
    return Markup('<input type="hidden" name="{}" value="{}">').format(name, content)


_UNSEEN = ("Cc", "Cf", "Zl", "Zp")
_C1 = range(0x80, 0xA0)  # numeric references to these are remapped in HTML
