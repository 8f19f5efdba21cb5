"""Causeway routes messages between chains and proves that they arrived.

``import causeway as cw``: ``cw.Program`` and ``cw.VectorProgram`` are what programs subclass, ``cw.Trial`` tests one of
them alone, ``cw.Network`` is a network of chains for tests, or runs a scenario. ``cw.open`` reads a ledger or a lake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.model.errors import CausewayError, InvalidInput
    from causeway.model.frame import Frame
    from causeway.model.ledger import Kind
    from causeway.model.reject_codes import RejectCode
    from causeway.network.ledgers import OpenedLedger
    from causeway.network.ledgers import open_place as open
    from causeway.network.network import Network as LakeNetwork
    from causeway.network.rows import Rows
    from causeway.programs import Effects, Program, Reject, VectorProgram
    from causeway.programs.naming import UnknownProgram, ref
    from causeway.programs.scalar import (
        Answer,
        BalanceOverflow,
        Call,
        Context,
        ExceedsAttached,
        Ingress,
        InsufficientFunds,
        NoOpenRequest,
        Reply,
        Request,
    )
    from causeway.programs.token_supply import Supply as TokenSupply
    from causeway.programs.token_supply import books_of as token_books
    from causeway.programs.token_supply import supply as token_supply
    from causeway.programs.trial import HandlerFailed, Trial
    from causeway.programs.vector import method_is, rows_of
    from causeway.testing.deploys import Deploy
    from causeway.testing.errors import NoAnswer, NotDeterministic, Rejected, Undone
    from causeway.testing.faults import Fault
    from causeway.testing.handles import Asked, Result, Sent
    from causeway.testing.making import ForkNetwork, MakeNetwork
    from causeway.testing.network import Network, Snapshot
    from causeway.testing.tables import Messages
    from causeway.testing.tables import Row as MessageRow
    from causeway.testing.words import FaultKind, MessageKind, MessageStatus, ProtocolName, RejectName

__version__ = "0.1.0"

_HOMES = {
    "causeway.model.errors": ("CausewayError", "InvalidInput"),
    "causeway.model.frame": ("Frame",),
    "causeway.model.ledger": ("Kind",),
    "causeway.model.reject_codes": ("RejectCode",),
    "causeway.network.network": ("LakeNetwork",),
    "causeway.programs": ("Effects", "Program", "Reject", "VectorProgram"),
    "causeway.programs.naming": ("UnknownProgram", "ref"),
    "causeway.programs.scalar": (
        *("Answer", "Call", "Context", "BalanceOverflow", "ExceedsAttached", "Ingress", "InsufficientFunds"),
        *("NoOpenRequest", "Reply", "Request"),
    ),
    "causeway.programs.token_supply": ("TokenSupply", "token_books", "token_supply"),
    "causeway.programs.trial": ("HandlerFailed", "Trial"),
    "causeway.programs.vector": ("method_is", "rows_of"),
    "causeway.network.ledgers": ("OpenedLedger", "open"),
    "causeway.network.rows": ("Rows",),
    "causeway.testing.deploys": ("Deploy",),
    "causeway.testing.errors": ("NoAnswer", "NotDeterministic", "Rejected", "Undone"),
    "causeway.testing.faults": ("Fault",),
    "causeway.testing.handles": ("Asked", "Result", "Sent"),
    "causeway.testing.making": ("ForkNetwork", "MakeNetwork"),
    "causeway.testing.network": ("Network", "Snapshot"),
    "causeway.testing.tables": ("MessageRow", "Messages"),
    "causeway.testing.words": ("FaultKind", "MessageKind", "MessageStatus", "ProtocolName", "RejectName"),
}
"""Where the public names are, by module."""

_CALLED = {
    "LakeNetwork": "Network",
    "MessageRow": "Row",
    "TokenSupply": "Supply",
    "open": "open_place",
    "token_books": "books_of",
    "token_supply": "supply",
}
"""Public names that are others in their modules, where they would hide what Python has, or another of these."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Answer",
    "Asked",
    "BalanceOverflow",
    "Call",
    "CausewayError",
    "Context",
    "Deploy",
    "Effects",
    "ExceedsAttached",
    "Fault",
    "FaultKind",
    "ForkNetwork",
    "Frame",
    "HandlerFailed",
    "Ingress",
    "InsufficientFunds",
    "InvalidInput",
    "Kind",
    "LakeNetwork",
    "MakeNetwork",
    "MessageKind",
    "MessageRow",
    "MessageStatus",
    "Messages",
    "Network",
    "NoAnswer",
    "NoOpenRequest",
    "NotDeterministic",
    "OpenedLedger",
    "Program",
    "ProtocolName",
    "Reject",
    "RejectCode",
    "RejectName",
    "Rejected",
    "Reply",
    "Request",
    "Result",
    "Rows",
    "Sent",
    "Snapshot",
    "TokenSupply",
    "Trial",
    "Undone",
    "UnknownProgram",
    "VectorProgram",
    "__version__",
    "method_is",
    "open",
    "ref",
    "rows_of",
    "token_books",
    "token_supply",
]


def __dir__() -> list[str]:
    """Return the public names, for shells and notebooks that complete them."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used: a program's unit test needs no Spark."""
    if name not in _MODULES:
        raise AttributeError(f"module causeway has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), _CALLED.get(name, name))
