"""What reject codes of the Internet Computer mean in words that all protocols share."""

from __future__ import annotations

from collections.abc import Mapping

from causeway.model.reject_codes import RejectCode as Portable
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.ic.messages import TIMED_OUT

_CODES: Mapping[int, Portable] = {
    RejectCode.SysFatal: Portable.OTHER,
    RejectCode.SysTransient: Portable.BUSY,
    RejectCode.DestinationInvalid: Portable.NOT_FOUND,
    RejectCode.CanisterReject: Portable.REFUSED,
    RejectCode.CanisterError: Portable.FAILED,
    RejectCode.SysUnknown: Portable.OTHER,
}


def portable(code: int, text: bytes) -> Portable:
    """Return what a reject code other than 0 means. ``text``: of the reject; a time-out is a transient error."""
    if code == RejectCode.SysTransient and text == TIMED_OUT.encode():
        return Portable.TIMED_OUT
    return _CODES.get(code, Portable.OTHER)
