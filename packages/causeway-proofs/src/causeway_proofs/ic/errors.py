"""What can be wrong with encodings, hash trees, witnesses, slices, signatures and certificates (IC reference 2.9, 7).

Names are those of the reference where it gives one. First encodings, witnesses and slices, then hash trees and what
certifies them.
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
    """A value that has no canonical encoding at this certification version: out of range, or not known to it."""


class DecodeError(MalformedProof):
    """Bytes that are not the canonical encoding of the type that they should be of."""


class NotCanonical(DecodeError):
    """Bytes that mean a value which has another encoding: padded integers, unordered keys, defaults written out."""


class NotInColumns(MalformedProof):
    """A message that is canonical and that columns have no row for: an id of another form, or numbers left out."""


def path_text(path: Sequence[bytes]) -> str:
    """Return a path in a labeled tree for people: ``/streams/0x00.../header``."""
    return "/" + "/".join(
        label.decode("ascii")
        if len(label) <= MOST_SHOWN_BYTES and all(32 <= byte < 127 for byte in label)
        else f"0x{hex_text(label)}"
        for label in path
    )


class TreeHashError(ProofError):
    """Root of what can be wrong with a tree, or between a labeled tree and a witness.

    Attributes:
        offending_path: labels from the root to where it is wrong; empty for the root.
    """

    def __init__(self, why: str, offending_path: Sequence[bytes] = ()) -> None:
        self.offending_path = tuple(offending_path)
        super().__init__(f"{type(self).__name__}: {why}, at {path_text(self.offending_path)}")


class InconsistentPartialTree(TreeHashError, NotProven):
    """A leaf of the tree meets no ``Known`` of the witness, or the other way round."""


class NonMinimalWitness(TreeHashError, MalformedProof):
    """A fork of two pruned nodes: one pruned node would have said the same."""


class TooDeepRecursion(TreeHashError, OverLimit):
    """The witness or hash tree is nested more deeply than trees may be."""


class CertifiedSliceError(ProofError):
    """Root of what can be wrong with a certified stream slice; the text begins with the error's name."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{type(self).__name__}: {why}")


class DecodeFailed(CertifiedSliceError, MalformedProof):
    """The slice, or a part of it, is not the canonical encoding of what it should be."""


class InvalidSlice(CertifiedSliceError, MalformedProof):
    """The payload or the witness of a slice has another shape than a slice; the subclass says which."""


class ExtraContents(InvalidSlice):
    """There is more in the payload than one stream's header and messages: padding."""


class MissingStreams(InvalidSlice):
    """There is no ``streams`` under the root."""


class MissingStream(InvalidSlice):
    """There is no stream under ``streams``."""


class MoreThanOneStream(InvalidSlice):
    """There are several streams under ``streams``."""


class MissingHeader(InvalidSlice):
    """The stream has no ``header``."""


class EmptyMessages(InvalidSlice):
    """The stream has ``messages``, and none in it: it should have been left out."""


class NotAStreamIndex(InvalidSlice):
    """A label under ``messages`` is no index of 8 bytes."""


class NotASubTree(InvalidSlice):
    """There is a leaf where the tree should go on."""


class NotALeaf(InvalidSlice):
    """The tree goes on where there should be a leaf."""


class InvalidBounds(InvalidSlice):
    """The header begins behind its end, or the messages are not a gap-free run inside its bounds."""


class WitnessPruningFailed(CertifiedSliceError, NotProven):
    """Payload and witness of a slice do not fit together."""


class InvalidDestination(CertifiedSliceError, NotProven):
    """The slice is of a stream to another subnet.

    Attributes:
        sender, receiver: ids of the subnet that it should come from (empty where nobody said) and it is directed to.
    """

    def __init__(self, why: str, sender: bytes, receiver: bytes) -> None:
        self.sender, self.receiver = sender, receiver
        super().__init__(why)


class RootHashMismatch(CertifiedSliceError, NotProven):
    """Payload and witness of a slice have another root than the certified one."""


class InvalidAppend(CertifiedSliceError, NotProven):
    """A slice cannot be joined to the one before it; the subclass says why."""


class DifferentSubnet(InvalidAppend):
    """The slices are of streams to different subnets."""


class SignalsEndRegresses(InvalidAppend):
    """The later slice has fewer signals than the earlier one."""


class IndexMismatch(InvalidAppend):
    """The messages of the later slice do not follow on those of the earlier one, or its witness covers others."""


class TakeBeforeSliceBegin(CertifiedSliceError, NotProven):
    """Messages are asked for that the slice does not have any more."""


class MalformedHashTree(MalformedProof):
    """The bytes are no hash tree, or not in the one form in which it is written."""


class NotWellFormed(MalformedProof):
    """A hash tree whose labels do not ascend strictly, or with a leaf beside other nodes."""


class InconsistentHashTrees(NotProven):
    """Two pruned hash trees are not of the same tree."""


class PathNotProven(NotProven):
    """The hash tree does not show what the path was said to hold: it is absent, pruned away, or no leaf."""


class MalformedKey(MalformedProof):
    """The bytes are no public key: wrong length, not on the curve, outside the subgroup, the identity."""


class MalformedSignature(MalformedProof):
    """The bytes are no signature: wrong length, not on the curve, outside the subgroup, the identity."""


class InvalidSignature(NotProven):
    """The signature is not one of this message under this key."""


class TooFewShares(NotProven):
    """Fewer signature shares than the threshold."""


class DuplicateShare(NotProven):
    """One signer's share is given twice."""


class InvalidShareIndex(NotProven):
    """A share's index belongs to no signer: signers are numbered from 1."""


class InvalidShare(NotProven):
    """A signer's share is not a signature of the message under that signer's key."""


class MalformedCertificate(MalformedProof):
    """The bytes are no certificate: wrong map, wrong types, unknown or repeated entries, trailing bytes."""


class TooManyDelegations(NotProven):
    """The certificate in a delegation has a delegation of its own."""


class WrongSubnet(NotProven):
    """The certificate is of another subnet than the one asked about."""


class MalformedRanges(MalformedProof):
    """A leaf of canister ranges is no list of pairs of canister ids."""


class CanisterRangesNotProven(NotProven):
    """The delegation does not show which canisters the subnet hosts."""


class CanisterOutOfRange(NotProven):
    """The canister is not one of those that the delegation gives to the subnet."""


class MalformedTime(MalformedProof):
    """The leaf ``time`` is no unsigned 64-bit number in its shortest LEB128 form."""


class CertificateTooOld(NotProven):
    """The certificate's time lies further back than the caller allows."""


class CertificateFromTheFuture(NotProven):
    """The certificate's time lies further ahead than the caller allows."""
