"""Causeway routes messages between chains and proves that they arrived.

``import causeway as cw``: ``cw.Network`` runs a scenario, ``cw.Program`` and ``cw.VectorProgram`` are what programs
subclass, ``cw.Trial`` tests one of them alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.network.network import Network
    from causeway.programs import Effects, Program, Reject, VectorProgram
    from causeway.programs.trial import Trial

__version__ = "0.1.0"

_HOMES = {
    "Network": "causeway.network.network",
    "Program": "causeway.programs",
    "VectorProgram": "causeway.programs",
    "Effects": "causeway.programs",
    "Reject": "causeway.programs",
    "Trial": "causeway.programs.trial",
}

__all__ = ["Effects", "Network", "Program", "Reject", "Trial", "VectorProgram", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: a program's unit test needs no Spark."""
    if name not in _HOMES:
        raise AttributeError(f"module causeway has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
