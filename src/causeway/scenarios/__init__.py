"""Scenarios that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path


@contextmanager
def scenario_file(name: str) -> Iterator[Path]:
    """Give the path of a scenario of this package, wherever the package is installed."""
    with resources.as_file(resources.files(__name__).joinpath(f"{name}.toml")) as path:
        yield path
