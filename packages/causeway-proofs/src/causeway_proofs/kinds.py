"""Message kinds shared by all protocols."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """Kind of a message."""

    INGRESS = 0
    REQUEST = 1
    RESPONSE = 2
    REFUND = 3
    CONTROL = 4
