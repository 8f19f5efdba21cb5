"""Where commands may write what a user asks for: not into a lake, and over nothing unasked."""

from __future__ import annotations

from pathlib import Path

from causeway.model.errors import InvalidInput


def outside(option: str, path: Path, lake: str) -> None:
    """Refuse a file inside a lake, which nothing but the lake's own commands writes. Raises ``InvalidInput``.

    ``option``: the one that names the file, for the error. ``lake``: a folder or URI.
    """
    from causeway.pipeline.storage import Storage

    place = Storage(lake)
    if place.is_local and path.resolve().is_relative_to(Path(place.absolute("")).resolve()):
        raise InvalidInput(f"{option} {path}: is inside the lake {lake}; allowed: a file elsewhere")


def unused(option: str, path: Path, *, overwrite: bool) -> None:
    """Refuse to write over what is there, unless that is asked for (``--overwrite``). Raises ``InvalidInput``."""
    if path.exists() and not overwrite:
        raise InvalidInput(f"{option} {path}: exists already; name another file, or add --overwrite")
