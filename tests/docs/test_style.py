"""The English of the code base: excluded words, sizes of packages and files, docstrings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "src" / "causeway", ROOT / "packages" / "causeway-proofs" / "src" / "causeway_proofs")

WORDS = {
    r"(?:this|shared|each) room|rooms": "package",
    r"wings?": "protocol package",
    r"taken apart": "parsed",
    r"cut apart": "split",
    r"put together": "merged",
    r"turned round": "reversed",
    r"unshown": "unattributed",
    r"in hand": "pending",
    r"what (?:is|are|was|were) (?:said|told|kept|gone)": "the noun",
}
"""Words without meaning to an engineer of the field, as patterns, with their replacements."""

MAX_FILES, MAX_LINES = 25, 700


def modules() -> list[Path]:
    """Return the modules of both distributions, without generated ones."""
    return [path for root in SOURCES for path in sorted(root.rglob("*.py")) if not path.name.endswith("_pb2.py")]


def pages() -> list[Path]:
    """Return the pages of the documentation, and those of the front."""
    return [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("packages/*/README.md")]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield comments and docstrings of a module, or the lines of a page, with their line numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(
            re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.S).split("\n"), 1
        )
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from enumerate(node.value.value.split("\n"), node.lineno)


def find_words(path: Path) -> list[str]:
    """Return file, line, word and replacement of each word of the list in a file."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}: write {better!r}"
        for line, text in prose(path)
        for word, better in WORDS.items()
        for match in re.finditer(rf"\b{word}\b", re.sub(r"`[^`]*`", "", text), re.IGNORECASE)
    ]


def test_words_are_those_of_the_field() -> None:
    found = [item for path in [*modules(), *pages()] for item in find_words(path)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("root", SOURCES, ids=lambda root: root.name)
def test_packages_and_files_are_small(root: Path) -> None:
    folders = {path.parent for path in root.rglob("*.py")}
    large = {str(folder): count for folder in folders if (count := len(list(folder.glob("*.py")))) > MAX_FILES}
    long = {
        str(path): lines
        for path in root.rglob("*.py")
        if not path.name.endswith("_pb2.py") and (lines := path.read_text().count("\n")) > MAX_LINES
    }
    assert not large and not long
