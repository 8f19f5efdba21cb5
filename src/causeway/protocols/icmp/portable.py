"""What reject codes of parachains mean in words that all protocols share."""

from __future__ import annotations

from causeway.model.reject_codes import RejectCode
from causeway.protocols.arrivals import NO_PROGRAM
from causeway.protocols.execution import by_program
from causeway.protocols.icmp.errors import CHAIN_HALTED, NO_DESTINATION, NO_HANDLER, REJECTED, TOO_LARGE

_NAMES = {
    NO_DESTINATION.encode(): RejectCode.NOT_FOUND,
    NO_HANDLER.encode(): RejectCode.NOT_FOUND,
    NO_PROGRAM.encode(): RejectCode.NOT_FOUND,
    TOO_LARGE.encode(): RejectCode.TOO_LARGE,
    CHAIN_HALTED.encode(): RejectCode.BUSY,
}
"""By the name of the reason for which a chain rejects a call."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return what a reject code means. ``text``: of the reject; with 0, why a message from a user came into no queue.
    Answers that are too long for a message have the chain's code, and a text of their own."""
    if code == 0:
        return _NAMES.get(text, RejectCode.OTHER)
    return by_program(code, text) if code != REJECTED else _NAMES.get(text, RejectCode.TOO_LARGE)
