"""The errors of section 3.11 that this oracle can meet. An error's name is its class name."""


class SpecError(Exception):
    """Base of all errors that the reference names."""

    @property
    def name(self) -> str:
        return type(self).__name__


class NotInQueue(SpecError):
    """`ensure values ⊆ q.elements` failed (2.3)."""


class IndexOverflow(SpecError):
    """A natural number of the state left 64 bits (2.1)."""


class ContradictoryIndices(SpecError):
    """Two expected indices share a prefix (3.7)."""


class StateRemoved(SpecError):
    """The state manager already has a later state (2.8)."""


class StateNotCommittedYet(SpecError):
    """The state manager has not that state yet (2.8)."""


class InvariantViolation(SpecError):
    """A hard invariant is false: the round stops."""


class SliceError(SpecError):
    """Base of what `validate_xnet_payload` may answer (3.9)."""


class PayloadTooLarge(SliceError):
    """size_of(payload) > size_limit."""


class LoopbackSlice(SliceError):
    """Step 1."""


class UnknownSubnet(SliceError):
    """Step 2."""


class InvalidStream(SliceError):
    """Steps 3 and 11."""


class InvalidStreamBounds(SliceError):
    """Step 4."""


class UnexpectedMessages(SliceError):
    """Steps 5 and 8."""


class EmptySlice(SliceError):
    """Step 6."""


class InvalidSliceBounds(SliceError):
    """Step 7."""


class SliceAboveMessageLimit(SliceError):
    """Step 9."""


class TooManySignals(SliceError):
    """Step 10."""


class UnexpectedSignals(SliceError):
    """Step 12."""
