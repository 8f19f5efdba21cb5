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


class GetStateFailed(SpecError):
    """There is no state at the reference height (3.8)."""


class NoStreamForSubnet(SpecError):
    """No stream to that subnet is in the certified state (2.8)."""


class InvalidSliceBegin(SpecError):
    """A slice was asked for from outside of [stream_begin, stream_end] (2.8)."""


class InvalidSliceIndices(SpecError):
    """A slice was asked for whose witness begins behind its messages (2.8)."""


class DecodeError(SpecError):
    """Base of what `decode_certified_stream` may find (2.8, 2.9)."""


class SerializationError(DecodeError):
    """Bytes or trees that are no slice: the header, a message, the payload, the witness, the root."""


class InvalidDestination(DecodeError):
    """A slice of another subnet's stream."""


class InvalidSignature(DecodeError):
    """The certification is not the remote subnet's."""


class PoolError(SpecError):
    """Base of what the slice pool may answer (X-15)."""


class InvalidAppend(PoolError):
    """What is to be appended does not go on where the pooled slice ends. `cause`: DifferentSubnet,
    SignalsEndRegresses or IndexMismatch."""

    @property
    def cause(self) -> str:
        return str(self.args[0])


class TakeBeforeSliceBegin(PoolError):
    """The pooled slice begins behind what is expected."""


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
