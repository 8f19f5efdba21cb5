"""Public names and imports of the proofs library: independent of the engine."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import causeway_proofs as library
import pytest

FOLDER = Path(library.__file__).parent
SHARED = {"distinct", "hashing", "wire"}
"""Packages that all families depend on."""

FAMILIES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py") if path.parent.name not in SHARED)
HEAVY = ("numpy", "pyarrow", "pydantic", "google.protobuf", "cryptography", "pyspark")


def loaded_by(statement: str) -> set[str]:
    """Return the modules loaded by a fresh Python for a statement."""
    told = subprocess.run(
        [sys.executable, "-c", f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(told.stdout))


def test_library_docstring_names_every_family() -> None:
    assert library.__doc__ is not None
    for family in FAMILIES:
        assert f"``{family}``" in library.__doc__


@pytest.mark.parametrize("name", ["", *FAMILIES])
def test_public_names_exist_and_shadow_no_module(name: str) -> None:
    module = importlib.import_module(".".join(["causeway_proofs", name]).rstrip("."))
    files = {path.stem for path in (FOLDER / name).glob("*.py")}
    for public in module.__all__:
        value = getattr(module, public)
        assert public not in files or value.__name__ == f"{module.__name__}.{public}"
    face = Path(module.__file__ or "")
    stub = face.with_suffix(".pyi")
    statements = ast.parse((stub if stub.exists() else face).read_text()).body
    imported = {
        alias.asname or alias.name
        for node in statements
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    declared = next(node.value for node in statements if isinstance(node, ast.Assign))
    assert set(module.__all__) == imported == set(ast.literal_eval(declared))


def test_document_kind_loads_no_other_family() -> None:
    loaded = loaded_by("from causeway_proofs.documents import KINDS; KINDS['ics23']")
    assert "causeway_proofs.ics23.verify" in loaded
    others = ("pandas", "datafusion", "causeway_proofs.substrate", "causeway_proofs.mmr.proof")
    assert not loaded & set(others)


def test_package_import_is_cheap() -> None:
    loaded = loaded_by("import causeway_proofs")
    assert not loaded.intersection(HEAVY)
    assert not [name for name in loaded if name.startswith(tuple(f"causeway_proofs.{family}" for family in FAMILIES))]


def test_all_families_together_import_no_engine_module() -> None:
    loaded = loaded_by(f"from causeway_proofs import {', '.join(FAMILIES)}")
    assert not {name for name in loaded if name == "causeway" or name.startswith("causeway.")}
    assert not loaded.intersection({"pyspark", "pandas"})
