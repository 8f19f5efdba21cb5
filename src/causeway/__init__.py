"""Causeway routes messages between chains and proves that they arrived.

``import causeway as cw``: ``cw.Program`` and ``cw.VectorProgram`` are what programs subclass, ``cw.Trial`` tests one of
them alone, ``cw.Network`` is a network of chains for tests, or runs a scenario. ``cw.open`` reads a ledger or a lake.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the unit test of a program needs no Spark."""
    if name == "__version__":
        from importlib.metadata import version

        return version("causeway")
    return _public_name(name)
