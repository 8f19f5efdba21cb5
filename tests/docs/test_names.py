"""Dotted names of the code in docstrings, comments and pages exist: a module or an attribute of it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "src", *sorted(ROOT.glob("packages/*/src")), ROOT)
PACKAGES = ("causeway", "causeway_proofs", "tests", "benchmarks")
"""Packages in ``FOLDERS``."""

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

DOTTED = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?"
IN_SOURCE = re.compile(rf"``{DOTTED}``")
IN_PAGE = re.compile(rf"(?<!`)`{DOTTED}`(?!`)")

FILES = {
    *(
        "arrow",
        "css",
        "csv",
        "html",
        "js",
        "json",
        "md",
        "parquet",
        "proto",
        "py",
        "sh",
        "thrift",
        "toml",
        "txt",
        "yml",
    ),
}
"""Suffixes of files: links and paths have tests of their own."""

FOREIGN = re.compile(
    r"spark\.|ibc\.(core|lightclients)\.|tendermint\.(types|crypto)\.|messaging\.xnet\.|transporter\.transfer$"
    r"|causeway\.(ibc\.Transaction|range_proof\.RangeProof)$|ledger\.head$|fallback\.requested$|network\.protocol$"
)
"""Names of other systems, Protobuf types, files and keys."""

FIELDS = {
    *("columns", "connections", "gossip", "headers", "links", "options", "programs", "relay", "tickets"),
    *("topology", "traffic"),
}
"""Sections of scenarios, tables and structures whose names modules have too: a name in one is that of a field."""

OBJECTS = {
    *("batch", "call", "context", "envelope", "kernel", "lake", "proof", "request", "run", "state", "tickets", "world"),
}
"""Variables of the texts whose names modules have too: a name of one is that of a member of a class."""


@cache
def modules() -> dict[str, Path]:
    """Return the file of each module by its dotted name."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for package in PACKAGES:
            for path in sorted((folder / package).rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def modules_by_last_part() -> dict[str, list[str]]:
    found = defaultdict(list)
    for module in modules():
        found[module.rpartition(".")[2]].append(module)
    return found


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def bound_names(body: Iterable[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that statements bind, those in ``if``, ``try`` and ``with`` too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((each.asname or each.name.partition(".")[0], node) for each in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node
        else:
            yield from bound_names(ast.iter_child_nodes(node))


@cache
def module_names(module: str) -> dict[str, ast.AST]:
    """Return the names of a module, those of its stub included (packages that import lazily)."""
    path = modules()[module]
    files = [path, path.with_suffix(".pyi")]
    return dict(bound_names(node for file in files if file.exists() for node in ast.parse(source(file)).body))


@cache
def members() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of annotated fields of all classes, and those of fields, methods and attributes."""
    field = re.compile(r"^    (\w+): ", re.MULTILINE)
    other = re.compile(r"^    (?:async )?def (\w+)|\bself\.(\w+)(?:, [^=\n]+)? =", re.MULTILINE)
    fields: set[str] = set()
    others: set[str] = set()
    for path in modules().values():
        fields.update(field.findall(source(path)))
        others.update(name for pair in other.findall(source(path)) for name in pair)
    return frozenset(fields), frozenset(fields | others)


def is_class_member(node: ast.AST, member: str) -> bool:
    """Return whether a class has a member of its own; one with bases may inherit any that a class of ours has."""
    if not isinstance(node, ast.ClassDef):
        return member in members()[1]  # An imported class, or a value.
    own = {name for name, _ in bound_names(node.body)}
    stored = (child for child in ast.walk(node) if isinstance(child, ast.Attribute))
    return member in own or any(child.attr == member for child in stored) or bool(node.bases)


def is_in_module(module: str, parts: list[str]) -> bool:
    """Return whether a module has a submodule, an attribute, or a class with a member."""
    if not parts:
        return True
    if f"{module}.{parts[0]}" in modules():
        return is_in_module(f"{module}.{parts[0]}", parts[1:])
    node = module_names(module).get(parts[0])
    return node is not None and (len(parts) == 1 or is_class_member(node, parts[1]))


def exists(name: str) -> bool:
    """Return whether a dotted name exists, or is not one of the code."""
    first, *parts = name.split(".")
    if first not in modules_by_last_part() or parts[-1] in FILES or FOREIGN.match(name):
        return True
    if any(is_in_module(module, parts) for module in modules_by_last_part()[first]):
        return True
    fields, every = members()
    return (first in FIELDS and parts[-1] in fields) or (first in OBJECTS and parts[-1] in every)


def missing_names(path: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return place and text of each dotted name that does not exist."""
    text = source(path)
    return [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[1]}"
        for match in pattern.finditer(text)
        if not exists(match[1])
    ]


def test_names_in_docstrings_exist() -> None:
    paths = [path for path in modules().values() if path != Path(__file__).resolve()]
    missing = [name for path in paths for name in missing_names(path, IN_SOURCE)]
    assert not missing, "\n" + "\n".join(missing)


def test_names_on_pages_exist() -> None:
    missing = [name for page in PAGES for name in missing_names(page, IN_PAGE)]
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("causeway.report.page.render_page", True),
        ("page.PageSection.ident", True),
        ("page.PageSection.anchor", False),
        ("report.tables", False),
        ("schema.LedgerEvent", True),
        ("schema.Event", False),
        ("causeway.Network", True),
        ("causeway.Net", False),
        ("options.TRUST_OUT", False),
        ("network.carriers", False),
        ("numpy.int64", True),
    ],
)
def test_missing_modules_attributes_and_members_are_found(name: str, expected: bool) -> None:
    assert exists(name) is expected
