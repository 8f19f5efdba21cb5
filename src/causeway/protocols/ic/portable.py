"""What reject codes of the Internet Computer mean in words that all protocols share."""

from __future__ import annotations

from collections.abc import Mapping

from causeway.model.reject_codes import RejectCode as Portable
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.ic.messages import TIMED_OUT
from causeway.protocols.ic.post_process import SAYS_OVERSIZED

_CODES: Mapping[int, Portable] = {
    RejectCode.SysFatal: Portable.OTHER,
    RejectCode.SysTransient: Portable.BUSY,
    RejectCode.DestinationInvalid: Portable.NOT_FOUND,
    RejectCode.CanisterReject: Portable.REFUSED,
    RejectCode.CanisterError: Portable.FAILED,
    RejectCode.SysUnknown: Portable.OTHER,
}


def portable(code: int, text: bytes) -> Portable:
    """Return what a reject code other than 0 means. ``text``: of the reject; a time-out is a transient error, a message
    that is too large one of its canister, of which the text of the error begins otherwise."""
    if code == RejectCode.SysTransient and text == TIMED_OUT.encode():
        return Portable.TIMED_OUT
    if code == RejectCode.CanisterError and SAYS_OVERSIZED.fullmatch(text):
        return Portable.TOO_LARGE
    return _CODES.get(code, Portable.OTHER)
