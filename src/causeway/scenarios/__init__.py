"""Scenarios: the bundled files, their validation, traffic and faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path


@contextmanager
def scenario_file(name: str) -> Iterator[Path]:
    """Yield the path of a bundled scenario.

    Args:
        name: Name of the scenario.
    """
    with resources.as_file(resources.files(__name__).joinpath(f"{name}.toml")) as path:
        yield path
