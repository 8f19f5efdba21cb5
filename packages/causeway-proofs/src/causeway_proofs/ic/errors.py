"""Errors of the Internet Computer's encodings, trees and signatures (IC reference 2.9, 7).

Names are those of the reference where it gives one. Encodings, witnesses and slices come first, then hash trees and
their certification.
"""

from __future__ import annotations

from collections.abc import Sequence

from causeway_proofs.errors import (
    MOST_SHOWN_BYTES,
    CausewayError,
    MalformedProof,
    NotProven,
    OverLimit,
    ProofError,
    hex_text,
)


class EncodeError(CausewayError):
    """A value has no canonical encoding at this version: out of range, or unknown to it."""


class DecodeError(MalformedProof):
    """The bytes are not the canonical encoding of the expected type."""


class NotCanonical(DecodeError):
    """Padded integers, unordered keys or explicit defaults in an encoding."""


class NotInColumns(MalformedProof):
    """A canonical message without a row form: an id of another format, or missing numbers."""


def path_text(path: Sequence[bytes]) -> str:
    """Format a path in a labeled tree: ``/streams/0x00.../header``."""
    return "/" + "/".join(
        label.decode("ascii")
        if 0 < len(label) <= MOST_SHOWN_BYTES and all(32 <= byte < 127 for byte in label)
        else f"0x{hex_text(label)}"
        for label in path
    )


class TreeHashError(ProofError):
    """Base class of errors in a tree, or between a labeled tree and a witness.

    Attributes:
        offending_path: labels from the root to the fault; empty for the root.
    """

    def __init__(self, why: str, offending_path: Sequence[bytes] = ()) -> None:
        self.offending_path = tuple(offending_path)
        super().__init__(f"{type(self).__name__}: {why}, at {path_text(self.offending_path)}")


class InconsistentPartialTree(TreeHashError, NotProven):
    """A leaf of the tree matches no ``Known`` of the witness, or the other way round."""


class NonMinimalWitness(TreeHashError, MalformedProof):
    """A fork of two pruned nodes, equivalent to a single pruned node."""


class TooDeepRecursion(TreeHashError, OverLimit):
    """The witness or hash tree exceeds the nesting limit."""


class CertifiedSliceError(ProofError):
    """Base class of errors in a certified stream slice; the text begins with the error's name."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{type(self).__name__}: {why}")


class DecodeFailed(CertifiedSliceError, MalformedProof):
    """The slice, or a part of it, is not a canonical encoding."""


class InvalidSlice(CertifiedSliceError, MalformedProof):
    """Payload or witness do not have the shape of a slice; the subclass names the fault."""


class ExtraContents(InvalidSlice):
    """The payload holds more than one stream's header and messages: padding."""


class MissingStreams(InvalidSlice):
    """The root has no child ``streams``."""


class MissingStream(InvalidSlice):
    """``streams`` is empty."""


class MoreThanOneStream(InvalidSlice):
    """``streams`` holds several streams."""


class MissingHeader(InvalidSlice):
    """The stream has no ``header``."""


class EmptyMessages(InvalidSlice):
    """``messages`` is present but empty; it should be absent."""


class NotAStreamIndex(InvalidSlice):
    """A label under ``messages`` is not an 8-byte index."""


class NotASubTree(InvalidSlice):
    """A leaf stands in place of a subtree."""


class NotALeaf(InvalidSlice):
    """A subtree stands in place of a leaf."""


class InvalidBounds(InvalidSlice):
    """The header's begin exceeds its end, or the messages are not a run inside its bounds."""


class WitnessPruningFailed(CertifiedSliceError, NotProven):
    """Payload and witness of a slice do not match."""


class InvalidDestination(CertifiedSliceError, NotProven):
    """The slice is of a stream to another subnet.

    Attributes:
        sender: expected sending subnet, empty if unknown.
        receiver: subnet that the stream leads to.
    """

    def __init__(self, why: str, sender: bytes, receiver: bytes) -> None:
        self.sender, self.receiver = sender, receiver
        super().__init__(why)


class RootHashMismatch(CertifiedSliceError, NotProven):
    """Payload and witness of a slice have another root than the certified one."""


class InvalidAppend(CertifiedSliceError, NotProven):
    """A slice cannot follow its predecessor; the subclass names the fault."""


class DifferentSubnet(InvalidAppend):
    """The slices are of streams to different subnets."""


class SignalsEndRegresses(InvalidAppend):
    """The later slice has fewer signals than the earlier one."""


class IndexMismatch(InvalidAppend):
    """A slice's messages do not follow the earlier ones, or its witness covers others."""


class TakeBeforeSliceBegin(CertifiedSliceError, NotProven):
    """The requested messages precede the slice."""


class MalformedHashTree(MalformedProof):
    """The bytes are not a hash tree in its single valid encoding."""


class NotWellFormed(MalformedProof):
    """A hash tree whose labels do not strictly ascend, or with a leaf beside other nodes."""


class InconsistentHashTrees(NotProven):
    """Two pruned hash trees are not of one tree."""


class PathNotProven(NotProven):
    """The hash tree does not show the claimed content of a path: absent, pruned, or not a leaf."""


class MalformedKey(MalformedProof):
    """Not a public key: wrong length, off the curve, outside the subgroup, the identity."""


class MalformedSignature(MalformedProof):
    """Not a signature: wrong length, off the curve, outside the subgroup, the identity."""


class InvalidSignature(NotProven):
    """The signature does not verify for this message and key."""


class TooFewShares(NotProven):
    """Fewer signature shares than the threshold."""


class DuplicateShare(NotProven):
    """One signer's share is duplicated."""


class InvalidShareIndex(NotProven):
    """A share's index is not a signer's; signers are numbered from 1."""


class InvalidShare(NotProven):
    """A signer's share does not verify under that signer's key."""


class MalformedCertificate(MalformedProof):
    """Not a certificate: wrong map or types, unknown or duplicated entries, trailing bytes."""


class TooManyDelegations(NotProven):
    """The certificate in a delegation has its own delegation."""


class WrongSubnet(NotProven):
    """The certificate is of another subnet than the requested one."""


class MalformedRanges(MalformedProof):
    """A leaf of canister ranges is not a list of pairs of canister ids."""


class CanisterRangesNotProven(NotProven):
    """The delegation does not show the subnet's canister ranges."""


class CanisterOutOfRange(NotProven):
    """The delegation does not assign the canister to the subnet."""


class MalformedTime(MalformedProof):
    """The leaf ``time`` is not an unsigned 64-bit number in its shortest LEB128 form."""


class CertificateTooOld(NotProven):
    """The certificate's time is further in the past than allowed."""


class CertificateFromTheFuture(NotProven):
    """The certificate's time is further in the future than allowed."""
