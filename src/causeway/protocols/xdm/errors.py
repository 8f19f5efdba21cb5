"""Errors of calls and responses, by name and number.

Reference: XDM, section 3.11, X-3.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MESSENGER_PALLET = 60
TRANSPORTER_PALLET = 61
"""Module numbers of the deployed runtimes."""

_MODULE = 3
_OTHER = 0
"""Variants of DispatchError."""


class MessengerError(IntEnum):
    """Errors of the messenger, with the deployed numbers."""

    InvalidChain = 0
    MissingChannel = 1
    InvalidChannelState = 2
    NoOpenChannel = 3
    NoMessageHandler = 4
    OutboxFull = 5
    InvalidMessagePayload = 6
    InvalidMessageDestination = 7
    MessageVerification = 8
    MissingMessage = 9
    WeightTagNotMatch = 10
    BalanceOverflow = 11
    BalanceUnderflow = 12
    InvalidAllowedChain = 13
    OperationNotAllowed = 14
    NotDomainOwner = 15
    ChainNotAllowed = 16
    InsufficientBalance = 17
    BalanceHold = 18
    ChannelOwner = 19
    BalanceUnlock = 20
    InvalidChannelReserveFee = 21
    InvalidMaxOutgoingMessages = 22
    MessageCountOverflow = 23
    MessageCountUnderflow = 24
    FailedToNoteTransferIn = 25
    FailedToNoteTransferOut = 26
    Overflow = 27


class CallFailed(Exception):
    """A failed call without effect; ``name`` is the error's name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class TransporterError(IntEnum):
    """Errors of the transporter."""

    LowBalance = 0
    FailedToEncode = 1
    InvalidPayload = 2
    InvalidTransferRequest = 3
    UnexpectedMessage = 4
    InvalidAccountId = 5
    LowBalanceOnDomain = 6
    BalanceOverflow = 7
    BalanceUnderflow = 8
    MissingTransferRequest = 9
    MinimumTransferAmount = 10


class MessageValidity(IntEnum):
    """Refusal of a delivered message before its call; 0 for a valid one.

    ``AlreadyImported``: the pool holds a message with the same tag. ``InvalidBundle``: a valid message in an invalid
    bundle.
    """

    VALID = 0
    BadProof = 1
    InvalidCall = 2
    Stale = 3
    Future = 4
    CannotLookup = 5
    AlreadyImported = 6
    InvalidBundle = 7
    INVALID_NONCE = 201
    XDM_NONCE_OVERFLOW = 202
    INVALID_CHANNEL = 203
    IN_FUTURE_NONCE = 204
    INVALID_RESPONSE_NONCE = 205


OK = 0
HANDLER_FAULT = 1
MESSENGER_ERRORS, TRANSPORTER_ERRORS = 10, 60
"""Stored numbers of responses' errors: these plus the error's own number."""

ERROR_NAMES: dict[int, str] = {
    OK: "",
    HANDLER_FAULT: "HandlerFault",
    **{MESSENGER_ERRORS + error: error.name for error in MessengerError},
    **{TRANSPORTER_ERRORS + error: error.name for error in TransporterError},
}
"""Names of responses' errors by stored number, empty for none."""

ERROR_TEXTS = pa.array([ERROR_NAMES.get(code, "").encode() for code in range(max(ERROR_NAMES) + 1)], pa.binary())
"""The names as bytes, at their stored numbers."""


def dispatch_errors(
    codes: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Convert stored numbers to DispatchError: variant, module, number in the module.

    Args:
        codes: Stored numbers other than ``OK``.
    """
    messenger = (codes >= MESSENGER_ERRORS) & (codes < TRANSPORTER_ERRORS)
    transporter = codes >= TRANSPORTER_ERRORS
    variant = np.where(messenger | transporter, _MODULE, _OTHER).astype(np.uint8)
    module = np.where(transporter, TRANSPORTER_PALLET, MESSENGER_PALLET).astype(np.uint8)
    number = np.where(transporter, codes - TRANSPORTER_ERRORS, codes - MESSENGER_ERRORS).astype(np.uint8)
    return variant, module, number


def error_codes(variant: pa.UInt8Array, module: pa.UInt8Array, number: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Convert DispatchErrors to stored numbers; unknown ones become ``HANDLER_FAULT``.

    Args:
        variant: Variants of DispatchError.
        module: Module numbers.
        number: Error numbers in their modules.
    """
    kinds = variant.fill_null(_OTHER).to_numpy(zero_copy_only=False)
    modules = module.fill_null(0).to_numpy(zero_copy_only=False)
    found = np.full(len(kinds), HANDLER_FAULT, dtype=np.uint8)
    for pallet, base, errors in (
        (MESSENGER_PALLET, MESSENGER_ERRORS, MessengerError),
        (TRANSPORTER_PALLET, TRANSPORTER_ERRORS, TransporterError),
    ):
        known = (kinds == _MODULE) & (modules == pallet) & (number <= max(errors))
        found[known] = base + number[known]
    return found
