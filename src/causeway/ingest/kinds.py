"""The mappings that are built in, by name."""

from __future__ import annotations

from importlib.abc import Traversable
from importlib.resources import files


def folder() -> Traversable:
    """Return where they are: ``NAME.toml`` each."""
    return files("causeway.ingest") / "mappings"


def kinds() -> list[str]:
    """Return their names."""
    return sorted(found.name.removesuffix(".toml") for found in folder().iterdir() if found.name.endswith(".toml"))


__all__ = ["folder", "kinds"]
