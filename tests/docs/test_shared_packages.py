"""Shared packages name no protocol: differences come from the registry or the kernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import causeway
from causeway.protocols.registry import protocol_names

PACKAGE = Path(causeway.__file__).parent

SPLIT = ("protocols", "proving", "service")
"""Packages with a subpackage per protocol, which may name it."""

OWN = {"hrmp", "relay_chain"}
"""Further subpackages of one protocol."""

ELSEWHERE = {
    "gossip": "the gossip of one protocol",
}
"""Packages that are not examined, with the reason."""

WORDS = {"zone", "zones", "canister", "canisters", "subnet", "subnets", "cycles", "xnet"}
"""Words of one protocol for a chain, a program, an amount or a delivery mode."""

REGISTRY = "protocols/registry.py"
"""The only module that names them all."""

ALLOWED = {
    "cli/commands/demo.py": "the summary of the demo, whose scenario is of one protocol",
    "cli/commands/verify.py": "the name of a public key that comes with the proofs library",
    "ledger/ingest/row_sections.py": "the names of libraries that read an amount otherwise",
    "scenarios/recorded_traffic.py": "the name that a file of the Cosmos Chain Registry has",
    "scenarios/traffic_settings.py": "the same, in the description of a key",
    "cluster/session.py": "the time zone of Spark",
    "programs/bundled/tokens.py": "the names of the libraries whose bytes are written",
    "programs/bundled/transfer.py": "the same",
}
"""Files that may use such words, with the reason; imports of a protocol package or quoted names are not allowed."""


def is_of_one_protocol(path: Path) -> bool:
    """Return whether a file belongs to the subpackage of a protocol."""
    return len(path.parts) > 2 and path.parts[0] in SPLIT and path.parts[1] in {*protocol_names(), *OWN}


SHARED = sorted(
    path.as_posix()
    for path in (found.relative_to(PACKAGE) for found in PACKAGE.rglob("*.py"))
    if not is_of_one_protocol(path) and path.parts[0] not in ELSEWHERE
)


def imported(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def names_and_texts(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines or uses, and the text of a constant."""
    for field in ("id", "attr", "arg", "name", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def words(text: str) -> set[str]:
    """Return the words of a name or a text in lower case: ``CyclesLeft``, ``cycles_left`` and ``cycles left``."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}


def docstrings(tree: ast.AST) -> set[ast.AST]:
    """Return all texts that are statements: they explain, and may give one protocol as an example."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def find_protocol_names(source: str) -> list[str]:
    """Return all names of protocols in a module: imports of their packages, their quoted names, their words."""
    tree = ast.parse(source)
    explained = docstrings(tree)
    wing = re.compile(rf"causeway\.({'|'.join(SPLIT)})\.({'|'.join(protocol_names())})(\.|:|$)")
    found = []
    for node in ast.walk(tree):
        found += [f"imports {module}" for module in imported(node) if wing.match(module)]
        if node in explained:
            continue
        for text in names_and_texts(node):
            if isinstance(node, ast.Constant) and (text in protocol_names() or wing.match(text)):
                found.append(f"line {node.lineno}: says {text!r}")
            found += [f"says {word}" for word in sorted(words(text) & {*WORDS, *protocol_names()})]
    return found


@pytest.mark.parametrize("path", [path for path in SHARED if path != REGISTRY])
def test_shared_modules_name_no_protocol(path: str) -> None:
    found = find_protocol_names((PACKAGE / path).read_text())
    if path in ALLOWED:
        found = [item for item in found if not item.startswith("says ")]
    assert not found


@pytest.mark.parametrize("path", [*ALLOWED, REGISTRY])
def test_every_exception_exists_and_is_needed(path: str) -> None:
    assert path in SHARED, "the file is gone: so let its name go"
    assert find_protocol_names((PACKAGE / path).read_text()), "it names no protocol any more: so let its name go"


def test_every_package_is_examined_or_excluded_for_a_reason() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(ELSEWHERE) <= packages
    assert {"core", "tick", "network", "programs", "cli", "service", "proving", "protocols"} <= packages
    assert {path.split("/")[0] for path in SHARED if "/" in path} == packages - set(ELSEWHERE)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("from causeway.protocols.ibc.context import Hosts", 2),
        ("def f():\n    from causeway.service.ibc import views", 2),
        ("from causeway.protocols import ibc", 2),
        ("import causeway.protocols.ic.kernel as k", 2),
        ("if protocol == 'ibc':\n    pass", 2),
        ("text = f'only under {name}, or ibc'\nIbcThing = 1", 2),
        ("part = 'causeway.protocols.ic.kernel:IcKernel'", 2),
        ("def f(cycles): return f'{cycles} of a canister'", 3),
        ('"""In a zone of ibc."""\ndef f():\n    """Of a subnet."""', 0),
        ("from causeway.protocols.icmpish import x\nname = 'ibcx'", 0),
        ("from causeway.programs import Balance as Cycles\nraise Balance(f'cycles {x}')", 2),
    ],
)
def test_protocol_names_are_detected(source: str, count: int) -> None:
    assert len(find_protocol_names(source)) == count
