"""Site hook: take files outside docs/ that pages link to (examples, tests, README) into the site as they stand."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def _outside(page: str, link: str) -> str | None:
    """Return the path in the repository that a link leads to, or None for a link within docs/."""
    path = normpath(str(PurePosixPath("docs", page).parent / link))
    return None if path.startswith(("docs/", "..")) or not (ROOT / path).is_file() else path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every linked file outside docs/ under repository/."""
    linked = set()
    for page in files.documentation_pages():
        for link, _ in _LINK.findall(page.content_string):
            if (path := _outside(page.src_uri, link)) is not None:
                linked.add(path)
    for path in sorted(linked):
        files.append(File.generated(config, f"repository/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at the copies under repository/."""
    source = page.file.src_uri

    def to_copy(match: re.Match[str]) -> str:
        path = _outside(source, match.group(1))
        if path is None:
            return match.group(0)
        return f"]({relpath(f'repository/{path}.txt', str(PurePosixPath(source).parent))})"

    return _LINK.sub(to_copy, markdown)
