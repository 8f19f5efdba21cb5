"""What reject codes of parachains mean in words that all protocols share."""

from __future__ import annotations

from causeway.model.reject_codes import RejectCode
from causeway.protocols.execution import by_program
from causeway.protocols.icmp.errors import NO_DESTINATION, NO_HANDLER, REJECTED, TOO_LARGE

_NAMES = {
    NO_DESTINATION.encode(): RejectCode.NOT_FOUND,
    NO_HANDLER.encode(): RejectCode.NOT_FOUND,
    TOO_LARGE.encode(): RejectCode.TOO_LARGE,
}
"""By the name of the reason for which a chain rejects a call."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return what a reject code other than 0 means. ``text``: of the reject. Answers that are too long for a message
    have the chain's code, and a text of their own."""
    return by_program(code, text) if code != REJECTED else _NAMES.get(text, RejectCode.TOO_LARGE)
