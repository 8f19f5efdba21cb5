"""What codes of receipts mean in words that all protocols share."""

from __future__ import annotations

from collections.abc import Mapping

from causeway.model.reject_codes import RejectCode
from causeway.protocols.ibc.answers import TOO_LONG
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.inputs import CHAIN_HALTED, Code

_CODES: Mapping[int, RejectCode] = {
    Code.UNKNOWN_TYPE: RejectCode.INVALID,
    Code.TIMEOUT: RejectCode.TIMED_OUT,
    Code.HANDLER_FAILED: RejectCode.FAILED,
    Code.PERMISSION: RejectCode.INVALID,
    Code.NO_PROGRAM: RejectCode.NOT_FOUND,
    Code.MALFORMED: RejectCode.INVALID,
}

_REFUSALS = {
    CHAIN_HALTED.encode(): RejectCode.BUSY,
    Refusal.UnregisteredDestination.name.encode(): RejectCode.NOT_FOUND,
    Refusal.ConnectionFrozen.name.encode(): RejectCode.UNREACHABLE,
    Refusal.ClientExpired.name.encode(): RejectCode.UNREACHABLE,
    Refusal.UnsupportedType.name.encode(): RejectCode.INVALID,
    Refusal.PermissionDenied.name.encode(): RejectCode.INVALID,
    Refusal.InvalidPacket.name.encode(): RejectCode.TOO_LARGE,
}
"""Why a call is not sent, by the text of the reject: its code is that of a program that says no."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return what a code other than 0 means; codes from ``REJECTED`` on, but for the named ones, are programs' own."""
    if code == Code.HANDLER_FAILED and text == TOO_LONG:
        return RejectCode.TOO_LARGE
    if code == Code.REJECTED and text in _REFUSALS:
        return _REFUSALS[text]
    return _CODES.get(code, RejectCode.REFUSED)
