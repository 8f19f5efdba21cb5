"""From recorded traffic of any kind to rows of the ledger: mappings, readers, and the quarantine for broken rows.

Nothing here knows Spark.

The mappings that are built in, by name.
"""

from __future__ import annotations

from importlib.abc import Traversable
from importlib.resources import files

__all__ = ["mapping_names", "mappings_folder"]


def mappings_folder() -> Traversable:
    """Return where they are: ``NAME.toml`` each."""
    return files("causeway.ledger.ingest") / "mappings"


def mapping_names() -> list[str]:
    """Return their names."""
    return sorted(
        found.name.removesuffix(".toml") for found in mappings_folder().iterdir() if found.name.endswith(".toml")
    )
