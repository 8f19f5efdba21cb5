"""What can be wrong with a hash tree, a signature or a certificate, each with a name of its own.

A tree that is nested too deeply has the name that the reference gives it, in ``errors``: ``TooDeepRecursion``.
"""

from __future__ import annotations

from causeway.proofs.errors import MalformedProof, ProofRefused


class MalformedHashTree(MalformedProof):
    """The bytes are no hash tree, or not in the one form in which it is written."""


class NotWellFormed(MalformedProof):
    """A hash tree whose labels do not ascend strictly, or with a leaf beside other nodes."""


class InconsistentHashTrees(ProofRefused):
    """Two pruned hash trees are not of the same tree."""


class PathNotProven(ProofRefused):
    """The hash tree does not show what the path was said to hold: it is absent, pruned away, or no leaf."""


class MalformedKey(MalformedProof):
    """The bytes are no public key: wrong length, not on the curve, outside the subgroup, the identity."""


class MalformedSignature(MalformedProof):
    """The bytes are no signature: wrong length, not on the curve, outside the subgroup, the identity."""


class InvalidSignature(ProofRefused):
    """The signature is not one of this message under this key."""


class TooFewShares(ProofRefused):
    """Fewer signature shares than the threshold."""


class DuplicateShare(ProofRefused):
    """One signer's share is given twice."""


class InvalidShareIndex(ProofRefused):
    """A share's index is none of a signer: signers are numbered from 1."""


class InvalidShare(ProofRefused):
    """A signer's share is not a signature of the message under that signer's key."""


class MalformedCertificate(MalformedProof):
    """The bytes are no certificate: wrong map, wrong types, unknown or repeated entries, trailing bytes."""


class TooManyDelegations(ProofRefused):
    """The certificate in a delegation has a delegation of its own."""


class WrongSubnet(ProofRefused):
    """The certificate is of another subnet than the one asked about."""


class MalformedRanges(MalformedProof):
    """A leaf of canister ranges is no list of pairs of canister ids."""


class CanisterRangesNotProven(ProofRefused):
    """The delegation does not show which canisters the subnet hosts."""


class CanisterOutOfRange(ProofRefused):
    """The canister is not one of those that the delegation gives to the subnet."""


class MalformedTime(MalformedProof):
    """The leaf ``time`` is no unsigned 64-bit number in its shortest LEB128 form."""


class CertificateTooOld(ProofRefused):
    """The certificate's time lies further back than the caller allows."""


class CertificateFromTheFuture(ProofRefused):
    """The certificate's time lies further ahead than the caller allows."""
