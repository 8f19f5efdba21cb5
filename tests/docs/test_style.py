"""The English of the code base: excluded words, names, docstrings, sizes of packages and files."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT / "src" / "causeway", ROOT / "packages" / "causeway-proofs" / "src" / "causeway_proofs")

WORDS = {
    r"(?:this|shared|each|whose|one) room|rooms|wings?|furniture": "package",
    r"(?:take|takes|took|taken|taking) in|bring(?:s|ing)? in|carr(?:y|ies|ied) over": "ingest, deliver, import",
    r"(?:taken|cuts?) apart": "parsed, split",
    r"put(?:s|ting)? together": "merge",
    r"turned round": "reversed, byte-swapped",
    r"unshown": "uncovered",
    r"in hand": "pending",
    r"what (?:becomes|became) of": "outcome",
    r"what (?:is|are|was|were) (?:said|told|kept|gone|asked|taken)": "the noun",
    r"looks? at|looked at|looking at|a look": "inspect, scan, pass",
    r"crowds?": "high-volume lanes",
    r"others' rows|own rows": "remote, local",
}
"""Words without meaning to an engineer of the field, as patterns, with their replacements."""

ANY_WORD = re.compile("|".join(rf"\b(?:{word})\b" for word in WORDS), re.IGNORECASE)

DIALECT = {
    "taken",
    "said",
    "brought",
    "gone",
    "looked",
    "told",
    "kept",
    "held",
    "begun",
    "came",
    "who",
    "whom",
    "whose",
}
"""Words that are no part of the name of a function or class."""

DEFINED = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)

API_ERRORS = {"NumberTaken"}
"""Names of errors that clients of served lakes compare."""

SHARED_NAMES = {"State", "Context", "Options", "Kernel"}
"""Public class names that each protocol uses once."""

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
    if not ANY_WORD.search(path.read_text(encoding="utf-8")):  # few files have any, even in names and code
        return []
    return [
        f"{path.relative_to(ROOT)}:{line}: {match[0]!r}: write {better!r}"
        for line, text in prose(path)
        for word, better in WORDS.items()
        for match in re.finditer(rf"\b(?:{word})\b", re.sub(r"`[^`]*`", "", text), re.IGNORECASE)
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


def exported_names(tree: ast.Module) -> set[str]:
    """Return the names in a module's ``__all__``."""
    return {
        item.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "__all__" for x in node.targets)
        for item in getattr(node.value, "elts", [])
        if isinstance(item, ast.Constant) and isinstance(item.value, str)
    }


@cache
def parsed_modules() -> list[tuple[str, ast.Module]]:
    """Return the path and the syntax tree of each module."""
    return [(str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))) for path in modules()]


def test_exported_functions_document_their_arguments() -> None:
    found = [
        f"{path}:{node.lineno}: {node.name} has no Args"
        for path, tree in parsed_modules()
        for exported in [exported_names(tree)]
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name in exported
        and not path.startswith("src/causeway/cli/commands/")  # the docstring of a command is its help
        and (node.args.args or node.args.kwonlyargs or node.args.posonlyargs)
        and "Args:" not in (ast.get_docstring(node) or "")
    ]
    assert not found, "\n".join(found)


def test_public_class_name_has_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path, tree in parsed_modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in SHARED_NAMES:
                places.setdefault(node.name, []).append(path)
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_names_of_functions_and_classes_are_verbs_and_nouns() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules()
        for name in DEFINED.findall(path.read_text(encoding="utf-8"))
        if name not in API_ERRORS and DIALECT & {word.lower() for word in re.findall(r"[a-z]+|[A-Z][a-z]*", name)}
    ]
    assert not found, "\n".join(found)
