"""A page of the explorer as a whole: what stands around its sections on all of them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from causeway.audit.verdict import Verdict
from causeway.report.page import SCRIPT, STYLE
from causeway.report.tables import verdict_class

PAGES = (
    *(("/", "Overview"), ("/network", "Network"), ("/lanes", "Lanes"), ("/findings", "Findings")),
    *(("/height", "Heights"), ("/state", "State")),
)
"""What the bar leads to."""

CSS, JS = "text/css; charset=utf-8", "text/javascript; charset=utf-8"

POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src data:", "connect-src 'self'"),
        *("form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"),
    )
)
"""What a page may load: what this server has, and nothing that stands in the page itself."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Header fields of every answer."""


@dataclass(frozen=True)
class Part:
    """A part of a page. ``ident``: its anchor; ``title``: None: it has none; ``lead``: below the title; ``above``:
    where the page stands among others."""

    ident: str
    title: str | None
    body: Markup
    lead: str | Markup | None = None
    above: Markup | None = None


@dataclass(frozen=True)
class Page:
    """What a page shows. ``current``: which of ``PAGES`` it belongs to; ``status``: of HTTP."""

    title: str
    sections: Sequence[Part]
    current: str = ""
    status: int = 200
    sought: str = ""


@dataclass(frozen=True)
class Status:
    """How far what is shown is. ``serial``: another one, when something is new; ``state``: ``live``, ``behind``,
    ``failed``, or nothing; ``parts``: in words; ``failure``: why nothing new can be read."""

    serial: str
    state: str
    parts: Sequence[str]
    failure: str = ""


@dataclass(frozen=True)
class StaticFile:
    """A file that pages load. ``tag``: changes with its content."""

    content: bytes
    kind: str
    tag: str = field(default="")

    @classmethod
    def of(cls, text: str, kind: str) -> StaticFile:
        """Return a text as a file."""
        content = text.encode()
        return cls(content, kind, hashlib.sha256(content).hexdigest()[:16])


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the files that pages load, by name: the theme and script of the report, and what the explorer adds."""
    own = files("causeway.explorer") / "static"
    return {
        "theme.css": StaticFile.of(STYLE, CSS),
        "page.js": StaticFile.of(SCRIPT, JS),
        "explorer.css": StaticFile.of((own / "explorer.css").read_text(encoding="utf-8"), CSS),
        "explorer.js": StaticFile.of((own / "explorer.js").read_text(encoding="utf-8"), JS),
    }


def rendered(page: Page, lake: str, status: Status, verdict: str | None) -> str:
    """Return a page as HTML. ``lake``: its name; ``verdict``: gives the colour of the sign in the bar."""
    return (
        _environment()
        .get_template("explorer.html")
        .render(
            title=page.title,
            lake=lake,
            icon=_icon(verdict),
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
    """Return the templates of the explorer, which share the sections of the report's."""
    loader = ChoiceLoader(
        [PackageLoader("causeway.explorer", "templates"), PackageLoader("causeway.report", "templates")]
    )
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters["verdict_class"] = verdict_class
    return found


_SIGNS: Mapping[str | None, str] = {
    Verdict.PASSED: "#137a47",
    Verdict.FAILED: "#bd261b",
    Verdict.INCONCLUSIVE: "#b07a10",
    Verdict.NOT_APPLICABLE: "#5a626d",
    None: "#1f57c3",
}


@cache
def _icon(verdict: str | None) -> str:
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" '
        f'fill="{_SIGNS[verdict]}"/><path d="M4 11c2-6 6-6 8 0M2.5 11h11" fill="none" stroke="#fff" stroke-width="1.6" '
        'stroke-linecap="round"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(drawn.encode()).decode()


__all__ = ["HEADERS", "PAGES", "POLICY", "Page", "StaticFile", "Status", "rendered", "static_files"]
