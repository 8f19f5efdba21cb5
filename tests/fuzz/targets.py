"""All fuzz targets: those of every module of this folder with ``TARGETS``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

Target = tuple[Callable[[bytes], None], list[bytes]]
"""A function that passes only exceptions that are genuine errors, and the seeds to start from."""

OWN = {"run", "targets", "mutations"}
"""Modules of this folder that fuzz, as opposed to fuzzed ones."""


def all_targets() -> dict[str, Target]:
    """Return every target by its name, in order.

    Raises:
        ValueError: two modules have targets of the same name.
    """
    found: dict[str, Target] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name in OWN or module.name.startswith("test_"):
            continue
        for name, target in importlib.import_module(f"tests.fuzz.{module.name}").TARGETS.items():
            if name in found:
                raise ValueError(
                    f"two fuzz targets are called {name}; the second one is in tests/fuzz/{module.name}.py"
                )
            found[name] = target
    return dict(sorted(found.items()))
