"""The errors of 3.6. An error's name is its class name; `text` is the seed's wording where the seed has one."""

from typing import ClassVar


class SpecError(Exception):
    """Base of all errors that the reference names."""

    text: ClassVar[str] = ""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(self.text or detail or type(self).__name__)

    @property
    def name(self) -> str:
        return type(self).__name__


class UnregisteredDestination(SpecError):
    """IBCsend 1."""


class UnregisteredSender(SpecError):
    """Step 1 of every call with a proof."""

    text = "unregistered sender"


class AlreadyRegistered(SpecError):
    """registerChain."""


class InvalidChainId(SpecError):
    """registerChain."""


class ConnectionFrozen(SpecError):
    """X-3, X-5."""


class UnsupportedType(SpecError):
    """IBCsend 3."""


class PermissionDenied(SpecError):
    """IBCsend 4."""


class MustBeSend(SpecError):
    """IBCreceive 2."""

    text = "must be a send"


class MustBeReceipt(SpecError):
    """IBCreceipt 2, IBCtimeout 2."""

    text = "must be a recipient"


class WrongChain(SpecError):
    """Step 3 of every call with a proof."""

    text = "sent to a different chain"


class OnlyMessageProofs(SpecError):
    """IBCreceive 4 (D-3), IBCreceipt 6."""

    text = "only accepts message proofs"


class OutOfOrder(SpecError):
    """IBCreceive 5 (D-1), IBCreceipt 7 (D-2)."""

    text = "out of order"

    def __init__(self, expected: int | None = None, got: int | None = None) -> None:
        super().__init__()
        self.expected, self.got = expected, got


class MissingHeader(SpecError):
    """The proof's height is not in the trust set."""

    def __init__(self, height: int) -> None:
        super().__init__(f"must submit header for height {height}")
        self.height = height


class InvalidProof(SpecError):
    """The proof does not lead to the trusted root."""

    text = "invalid merkle proof"


class InvalidPacket(SpecError):
    """A value that does not decode, or data over the configured maximum at send (hazard 32)."""


class MalformedKey(SpecError):
    """2.3."""


class AdvanceBackwards(SpecError):
    """2.2."""


class InvalidHeader(SpecError):
    """valid(T, U) = false."""


class NeedIntermediateHeader(SpecError):
    """valid(T, U) = unknown."""


class HandlerFault(SpecError):
    """commit or rollback raised: the whole call reverts."""


class NotATailProof(SpecError):
    """IBCtimeout 6."""

    text = "must be a tail proof"


class ReceiptExists(SpecError):
    """IBCtimeout 7."""

    text = "receipt exists, no timeout proof"


class TimeoutNotReached(SpecError):
    """IBCtimeout 8."""

    text = "message timeout not yet reached"


class MustBeSendQueue(SpecError):
    """IBCcleanup 2."""


class NotAHeadProof(SpecError):
    """IBCcleanup 4."""


class CleanupBackwards(SpecError):
    """IBCcleanup 7."""

    text = "cleanup must go forward"


class NoOp(SpecError):
    """X-10. Never raised: the name under which a redundant success stands in the log."""


class ClientExpired(SpecError):
    """X-4, X-11: the trusted header is older than the unbonding period."""


class DelayNotElapsed(SpecError):
    """X-11: the header was added less than `delay` ago."""


class TimeoutElapsed(SpecError):
    """X-6: in unordered queues a packet that is past its limits is refused. A receipt would hide that it never came."""


class InvalidMisbehaviour(SpecError):
    """X-3: two headers that do not contradict each other. This oracle's own name."""


class SlotNotOpen(SpecError):
    """X-9: the receipt slot is written, cleaned up or was never allocated. This oracle's own name."""


class CallNotOffered(SpecError):
    """A time-out or cleanup where the option is off. This oracle's own name."""


class NotClosable(SpecError):
    """X-5: receipts are outstanding. This oracle's own name."""
