"""Ingest of recorded traffic: mappings, readers, and the quarantine of broken records.

``mappings`` has the built-in mappings, found by name.
"""

from __future__ import annotations

from importlib.abc import Traversable
from importlib.resources import files

__all__ = ["mapping_names", "mappings_folder"]


def mappings_folder() -> Traversable:
    """Return the folder of the built-in mappings, one ``NAME.toml`` each.

    Returns:
        The folder.
    """
    return files("causeway.ledger.ingest") / "mappings"


def mapping_names() -> list[str]:
    """Return the names of the built-in mappings.

    Returns:
        The names, ascending.
    """
    return sorted(
        entry.name.removesuffix(".toml") for entry in mappings_folder().iterdir() if entry.name.endswith(".toml")
    )
