"""Errors by their names and numbers (XDM reference 3.11, X-3): what calls refuse with, and what responses carry."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MESSENGER_PALLET = 60
TRANSPORTER_PALLET = 61
"""The numbers of the modules in the deployed runtimes."""

_MODULE = 3
_OTHER = 0
"""Variants of DispatchError."""


class MessengerError(IntEnum):
    """What calls of the messenger fail with, by the deployed numbers."""

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
    """A call that fails and leaves everything as it was; ``name``: of its error."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class TransporterError(IntEnum):
    """What the transporter fails with."""

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
    """Why a relayed message is refused before it is called; 0: it is not.

    ``AlreadyImported``: the pool takes it for another one that it has; ``InvalidBundle``: it is valid, and its bundle
    is not."""

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
_MESSENGER, _TRANSPORTER = 10, 60


def messenger_error_number(error: MessengerError) -> int:
    """Return the number under which a response's error is kept."""
    return _MESSENGER + int(error)


def transporter_error_number(error: TransporterError) -> int:
    """Return the number under which a response's error is kept."""
    return _TRANSPORTER + int(error)


def dispatch_errors(
    codes: npt.NDArray[np.uint8],
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Return kept numbers, none of them ``OK``, as DispatchError: its variant, the module and the module's number."""
    messenger = (codes >= _MESSENGER) & (codes < _TRANSPORTER)
    transporter = codes >= _TRANSPORTER
    variant = np.where(messenger | transporter, _MODULE, _OTHER).astype(np.uint8)
    module = np.where(transporter, TRANSPORTER_PALLET, MESSENGER_PALLET).astype(np.uint8)
    number = np.where(transporter, codes - _TRANSPORTER, codes - _MESSENGER).astype(np.uint8)
    return variant, module, number


def error_codes(variant: pa.UInt8Array, module: pa.UInt8Array, number: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return DispatchErrors as numbers; those that this house does not make are ``HANDLER_FAULT``."""
    kinds = variant.fill_null(_OTHER).to_numpy(zero_copy_only=False)
    modules = module.fill_null(0).to_numpy(zero_copy_only=False)
    found = np.full(len(kinds), HANDLER_FAULT, dtype=np.uint8)
    for pallet, base, errors in (
        (MESSENGER_PALLET, _MESSENGER, MessengerError),
        (TRANSPORTER_PALLET, _TRANSPORTER, TransporterError),
    ):
        known = (kinds == _MODULE) & (modules == pallet) & (number <= max(errors))
        found[known] = base + number[known]
    return found


def error_name(code: int) -> str:
    """Return the name of a response's error, empty for none."""
    if code == OK:
        return ""
    if code >= _TRANSPORTER:
        return TransporterError(code - _TRANSPORTER).name
    return MessengerError(code - _MESSENGER).name if code >= _MESSENGER else "HandlerFault"


def error_texts(codes: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the names of responses' errors as bytes, empty for none."""
    values, which = np.unique(codes, return_inverse=True)
    return pa.array([error_name(int(code)).encode() for code in values], pa.binary()).take(pa.array(which))
