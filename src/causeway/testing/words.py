"""The words that networks in memory take, as types: a type checker finds one that there is not."""

from __future__ import annotations

from typing import Literal, TypeAlias

from causeway.protocols.registry import ProtocolName

FaultKind: TypeAlias = Literal[
    "absent",
    "alter",
    "batch",
    "block_maker",
    "bundle",
    "candidate",
    "delay",
    "deposit",
    "disconnect",
    "drop",
    "foreign",
    "forge",
    "fork",
    "fraud",
    "gap",
    "halt",
    "node",
    "recover",
    "reorder",
    "reorg",
    "replay",
    "stale",
    "tamper",
]
"""Kinds of faults of all protocols together; each has some of them."""

MessageKind: TypeAlias = Literal["ingress", "request", "response"]

MessageStatus: TypeAlias = Literal["waiting", "executed", "failed", "lost", "refused", "answered", "rejected"]

RejectName: TypeAlias = Literal[
    "NOT_FOUND",
    "REFUSED",
    "FAILED",
    "TIMED_OUT",
    "NO_FUNDS",
    "UNREACHABLE",
    "BUSY",
    "TOO_LARGE",
    "INVALID",
    "OTHER",
]
"""Names of ``RejectCode``."""

__all__ = ["FaultKind", "MessageKind", "MessageStatus", "ProtocolName", "RejectName"]
