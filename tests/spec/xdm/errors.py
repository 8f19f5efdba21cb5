"""The errors of 3.11, X-1 and X-3 by name, and how they travel in a response (DispatchError).

Decisions. The reference numbers the messenger's errors and no others, and gives no pallet index: the messenger is
module 60 and the transporter 61, as deployed; the transporter's errors are numbered as deployed. A handler that
panics answers Other (index 0), one over its weight Exhausted (index 10). Engines are compared by name.
"""

from dataclasses import dataclass

# fmt: off
MESSENGER = (
    "InvalidChain", "MissingChannel", "InvalidChannelState", "NoOpenChannel", "NoMessageHandler", "OutboxFull",
    "InvalidMessagePayload", "InvalidMessageDestination", "MessageVerification", "MissingMessage",
    "WeightTagNotMatch", "BalanceOverflow", "BalanceUnderflow", "InvalidAllowedChain", "OperationNotAllowed",
    "NotDomainOwner", "ChainNotAllowed", "InsufficientBalance", "BalanceHold", "ChannelOwner", "BalanceUnlock",
    "InvalidChannelReserveFee", "InvalidMaxOutgoingMessages", "MessageCountOverflow", "MessageCountUnderflow",
    "FailedToNoteTransferIn", "FailedToNoteTransferOut",
)
TRANSPORTER = (
    "LowBalance", "FailedToEncode", "InvalidPayload", "InvalidTransferRequest", "UnexpectedMessage", "InvalidAccountId",
    "LowBalanceOnDomain", "BalanceOverflow", "BalanceUnderflow", "MissingTransferRequest", "MinimumTransferAmount",
    "InvalidDomainTransfers",
)
# fmt: on
MESSENGER_MODULE, TRANSPORTER_MODULE = 60, 61
PLAIN = {"Other": 0, "BadOrigin": 2, "Exhausted": 10}
ARITHMETIC = ("Underflow", "Overflow", "DivisionByZero")
FIELDS = {3: 5, 7: 1, 8: 1, 9: 1, 14: 1}
"""How many bytes follow the index of a DispatchError; the others have none. The last index is 14."""


class XdmError(Exception):
    """A named refusal: the call changes nothing."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class DispatchError:
    """The error of a response: index, then fields (2.1)."""

    index: int
    fields: bytes = b""


def custom(number: int) -> XdmError:
    """Custom(n) of 3.4: 201 INVALID_NONCE, 202 XDM_NONCE_OVERFLOW, 203 INVALID_CHANNEL, 204 IN_FUTURE_NONCE; 205, which
    has no name, is a nonce that cannot be advanced."""
    return XdmError(f"Custom({number})")


def dispatch(name: str) -> DispatchError:
    """The error of that name as it is encoded."""
    if name in MESSENGER:
        return DispatchError(3, bytes([MESSENGER_MODULE, MESSENGER.index(name), 0, 0, 0]))
    if name in TRANSPORTER:
        return DispatchError(3, bytes([TRANSPORTER_MODULE, TRANSPORTER.index(name), 0, 0, 0]))
    if name in ARITHMETIC:
        return DispatchError(8, bytes([ARITHMETIC.index(name)]))
    if name == "FundsUnavailable":
        return DispatchError(7, b"\0")
    return DispatchError(PLAIN.get(name, 0))


def name_of(error: DispatchError) -> str:
    """The name of a decoded error; of one that this oracle does not know, its numbers."""
    if error.index == 3:
        names = {MESSENGER_MODULE: MESSENGER, TRANSPORTER_MODULE: TRANSPORTER}.get(error.fields[0], ())
        if error.fields[1] < len(names):
            return names[error.fields[1]]
    if error.index == 8 and error.fields[0] < 3:
        return ARITHMETIC[error.fields[0]]
    if error == DispatchError(7, b"\0"):
        return "FundsUnavailable"
    known = {number: name for name, number in PLAIN.items()}
    return known.get(error.index, f"DispatchError({error.index}, {error.fields.hex()})")
