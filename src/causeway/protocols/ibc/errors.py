"""The refusals of the protocol by name, with the exact texts of the paper.

See IBC reference 3.6, 5.
"""

from __future__ import annotations

from enum import IntEnum

from causeway_proofs.errors import CausewayError


class Refusal(IntEnum):
    """The reason of a call without effect; 0 is none. The order has no meaning."""

    ACCEPTED = 0
    UnregisteredDestination = 1
    UnregisteredSender = 2
    AlreadyRegistered = 3
    InvalidChainId = 4
    ConnectionFrozen = 5
    UnsupportedType = 6
    PermissionDenied = 7
    MustBeSend = 8
    MustBeReceipt = 9
    WrongChain = 10
    OnlyMessageProofs = 11
    OutOfOrder = 12
    MissingHeader = 13
    InvalidProof = 14
    InvalidPacket = 15
    MalformedKey = 16
    AdvanceBackwards = 17
    InvalidHeader = 18
    NeedIntermediateHeader = 19
    HandlerFault = 20
    NotATailProof = 21
    ReceiptExists = 22
    TimeoutNotReached = 23
    MustBeSendQueue = 24
    NotAHeadProof = 25
    CleanupBackwards = 26
    NoOp = 27
    ClientExpired = 28
    DelayNotElapsed = 29
    TimeoutElapsed = 30
    InvalidMisbehaviour = 31
    CallNotOffered = 32


TEXTS = {
    Refusal.UnregisteredSender: "unregistered sender",
    Refusal.MustBeSend: "must be a send",
    Refusal.MustBeReceipt: "must be a recipient",  # the paper's own spelling
    Refusal.WrongChain: "sent to a different chain",
    Refusal.OnlyMessageProofs: "only accepts message proofs",
    Refusal.OutOfOrder: "out of order",
    Refusal.MissingHeader: "must submit header for height {height}",
    Refusal.InvalidProof: "invalid merkle proof",
    Refusal.NotATailProof: "must be a tail proof",
    Refusal.ReceiptExists: "receipt exists, no timeout proof",
    Refusal.TimeoutNotReached: "message timeout not yet reached",
    Refusal.CleanupBackwards: "cleanup must go forward",
}
"""The texts that the paper gives (IBC reference 3.3, 3.4, 5)."""

NAMES = [refusal.name for refusal in Refusal]


class IbcError(CausewayError):
    """A refused call of the protocol; nothing changed.

    Attributes:
        refusal: The refusal; its name is the error's name.
    """

    def __init__(self, refusal: Refusal, detail: str = "", **values: object) -> None:
        text = TEXTS.get(refusal, refusal.name).format(**values)
        super().__init__(f"{text}: {detail}" if detail else text)
        self.refusal = refusal

    @property
    def name(self) -> str:
        """Return the name of the refusal."""
        return self.refusal.name
