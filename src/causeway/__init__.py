"""Causeway routes messages between chains and proves their delivery.

``import causeway as cw``: programs subclass ``cw.Program`` or ``cw.VectorProgram``. ``cw.Trial`` tests one program
alone. ``cw.Network`` is a network of chains for tests, and runs scenarios. ``cw.open`` reads a ledger or a lake.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

_public_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the unit test of a program needs no Spark."""
    if name == "__version__":
        from importlib.metadata import version

        return version("causeway")
    return _public_name(name)
