"""What reject codes of cross-domain messaging mean in words that all protocols share."""

from __future__ import annotations

from causeway.model.reject_codes import RejectCode
from causeway.protocols.arrivals import NO_PROGRAM
from causeway.protocols.contents import too_long
from causeway.protocols.execution import by_program
from causeway.protocols.xdm.arrivals import REJECTED
from causeway.protocols.xdm.errors import MessengerError, TransporterError
from causeway.protocols.xdm.ingress import CHAIN_HALTED
from causeway.protocols.xdm.outgoing import (
    FEES_OVERFLOW,
    NO_DESTINATION,
    NO_FUNDS,
    NO_HANDLER,
    NO_OPEN_CHANNEL,
    NOT_ALLOWED,
    TOO_LARGE,
)

_NAMES = {
    NO_OPEN_CHANNEL: RejectCode.UNREACHABLE,
    MessengerError.InvalidChannelState.name: RejectCode.UNREACHABLE,
    MessengerError.MissingChannel.name: RejectCode.UNREACHABLE,
    NOT_ALLOWED: RejectCode.UNREACHABLE,
    NO_FUNDS: RejectCode.NO_FUNDS,
    MessengerError.InsufficientBalance.name: RejectCode.NO_FUNDS,
    MessengerError.BalanceUnderflow.name: RejectCode.NO_FUNDS,
    TransporterError.LowBalance.name: RejectCode.NO_FUNDS,
    TransporterError.LowBalanceOnDomain.name: RejectCode.NO_FUNDS,
    TransporterError.MinimumTransferAmount.name: RejectCode.INVALID,
    TransporterError.InvalidAccountId.name: RejectCode.NOT_FOUND,
    NO_DESTINATION: RejectCode.NOT_FOUND,
    NO_HANDLER: RejectCode.NOT_FOUND,
    NO_PROGRAM: RejectCode.NOT_FOUND,
    CHAIN_HALTED: RejectCode.BUSY,
    TOO_LARGE: RejectCode.TOO_LARGE,
    too_long(): RejectCode.TOO_LARGE,
    FEES_OVERFLOW: RejectCode.OTHER,
}
"""By the name of the error with which a chain rejects a call."""


def portable(code: int, text: bytes) -> RejectCode:
    """Return what a reject code means. ``text``: of the reject, the name of the chain's error; with 0, why a
    message from a user came into no queue."""
    if code not in (0, REJECTED):
        return by_program(code, text)
    return _NAMES.get(text.decode(errors="replace"), RejectCode.OTHER)
