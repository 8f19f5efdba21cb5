"""Certifying a state and verifying that it is certified: from a leaf to the root key (IC reference 2.9).

Nothing here has a clock: whoever wants certificates to be fresh gives the time and how old they may be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from causeway.model.errors import InvalidInput
from causeway.proofs.ic.bls import PUBLIC_KEY_BYTES, public_key_from_der, public_key_to_der
from causeway.proofs.ic.certificate import (
    TIME,
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    root_of,
    time_of,
    verify_state_root,
)
from causeway.proofs.ic.delegation import Signer, VerifiedDelegation, verify_delegation
from causeway.proofs.ic.errors import CertificateFromTheFuture, CertificateTooOld, WrongSubnet
from causeway.proofs.ic.hash_tree import HashTree, LabeledTree, build_tree, digest, require_well_formed
from causeway.proofs.ic.leb128 import encode_leb128
from causeway.proofs.ic.lookup import Lookup, lookup_path, path_steps, require_absent, require_value
from causeway.proofs.ic.ranges import Range, require_in_ranges
from causeway.proofs.steps import Step

_SELF_AUTHENTICATING = b"\x02"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old a certificate may be; all times in nanoseconds.

    Attributes:
        now: the caller's time, since 1970.
        max_age: how far the certificate's time may lie back.
        max_ahead: how far it may lie ahead.
        max_delegation_age: how far the delegation's time may lie back; None for any.
    """

    now: int
    max_age: int
    max_ahead: int = 0
    max_delegation_age: int | None = None

    def require(self, time: int, max_age: int, what: str) -> None:
        """Return when ``time``, that of ``what``, is neither too old nor too far ahead.

        Raises:
            CertificateTooOld: it lies further back than ``max_age``.
            CertificateFromTheFuture: it lies further ahead than ``max_ahead``.
        """
        if time < self.now - max_age:
            raise CertificateTooOld(f"{what} is of {time}, {self.now - time} ns ago: at most {max_age} are allowed")
        if time > self.now + self.max_ahead:
            raise CertificateFromTheFuture(
                f"{what} is of {time}, {time - self.now} ns ahead: at most {self.max_ahead} are allowed"
            )


@dataclass(frozen=True, slots=True)
class VerifiedCertificate:
    """A certificate that holds.

    Attributes:
        tree: what it shows of the state.
        root_digest: of the whole state.
        time: when it was certified, in nanoseconds since 1970.
        subnet_id: the subnet that certified it; None for the root subnet.
        delegation: where the subnet's key is from; None for the root subnet.
        canister_range: the subnet's range with the canister asked about; None when none was, or for the root subnet.
        steps: from the state's root to the root key.
    """

    tree: HashTree
    root_digest: bytes
    time: int
    subnet_id: bytes | None
    delegation: VerifiedDelegation | None
    canister_range: Range | None
    steps: tuple[Step, ...]

    def lookup(self, path: Sequence[bytes]) -> Lookup:
        """Return what the state shows of the leaf at ``path``."""
        return lookup_path(self.tree, path)

    def value(self, path: Sequence[bytes]) -> bytes:
        """Return the leaf at ``path``; raise ``PathNotProven`` when it is not shown."""
        return require_value(self.tree, path)

    def require_absent(self, path: Sequence[bytes]) -> None:
        """Return when the state shows that there is nothing at ``path``; raise ``PathNotProven`` when not."""
        require_absent(self.tree, path)

    def explain(self, path: Sequence[bytes]) -> tuple[Step, ...]:
        """Return every step from what is shown at ``path`` to the root key; raise ``PathNotProven`` if nothing is."""
        return path_steps(self.tree, path) + self.steps


def verify_certificate(
    data: bytes,
    root_key: bytes,
    *,
    canister_id: bytes | None = None,
    subnet_id: bytes | None = None,
    root_subnet_id: bytes | None = None,
    freshness: Freshness | None = None,
) -> VerifiedCertificate:
    """Return what the certificate ``data`` shows, when its chain of signatures ends at ``root_key``.

    Args:
        data: the encoded certificate.
        root_key: the root subnet's public key, 96 bytes, or 133 in DER.
        canister_id: the canister that the statement is about: a delegation must give it to the signer.
        subnet_id: the subnet that the statement is about: it must be the signer.
        root_subnet_id: the id of the root subnet, where it is not the one that follows from the key.
        freshness: how old the certificate may be; without it, any age will do.

    Raises:
        MalformedProof: ``data`` or a part of it is not what it should be; the subclass says why.
        TooManyDelegations: the delegation's certificate has a delegation itself.
        InvalidSignature: one of the signatures is not of this tree under this key.
        PathNotProven: the delegation does not show the signer's key, or the tree its time, or the delegation its
            time where its age is limited.
        CanisterRangesNotProven: the delegation does not show which canisters the signer has.
        CanisterOutOfRange: the signer does not host the canister.
        WrongSubnet: another subnet signed.
        CertificateTooOld, CertificateFromTheFuture: the time is not within ``freshness``.
    """
    root_key = public_key_from_der(root_key) if len(root_key) != PUBLIC_KEY_BYTES else bytes(root_key)
    certificate = decode_certificate(data)
    root = root_of(certificate)
    delegation = verify_delegation(certificate.delegation, root_key) if certificate.delegation else None
    signer = delegation.subnet_id if delegation else root_subnet_id or root_subnet_of(root_key)
    verify_state_root(root, certificate.signature, delegation.public_key if delegation else root_key)
    if subnet_id is not None and subnet_id != signer:
        raise WrongSubnet(f"subnet {signer.hex()} has signed, not {subnet_id.hex()}")
    canister_range = None
    if delegation and canister_id is not None:
        canister_range = require_in_ranges(delegation.tree, delegation.subnet_id, canister_id)
    time = time_of(certificate.tree)
    if freshness is not None:
        freshness.require(time, freshness.max_age, "the certificate")
        if delegation and freshness.max_delegation_age is not None:
            freshness.require(time_of(delegation.tree), freshness.max_delegation_age, "the delegation")
    return VerifiedCertificate(
        certificate.tree,
        root,
        time,
        delegation.subnet_id if delegation else None,
        delegation,
        canister_range,
        _steps(root, certificate.signature, delegation, canister_range, root_key),
    )


def certify(tree: HashTree, sign: Signer, delegation: Delegation | None = None) -> Certificate:
    """Return the certificate of ``tree``, well formed, pruned or not.

    ``sign`` signs for the subnet; ``delegation`` is the root subnet's to it, None for the root subnet itself.

    Raises:
        TooDeepRecursion, NotWellFormed: nobody would read it.
        PathNotProven, MalformedTime: the tree does not show its time.
    """
    require_well_formed(tree)
    time_of(tree)
    return Certificate(tree, sign(certification_message(digest(tree))), delegation)


def state_tree(contents: LabeledTree, time: int) -> HashTree:
    """Return the tree of a state with ``contents`` at ``time`` (nanoseconds since 1970).

    Raises:
        InvalidInput: ``contents`` has a time already.
    """
    if TIME in contents:
        raise InvalidInput("the contents of a state tree have a label 'time' already")
    return build_tree({**contents, TIME: encode_leb128(time)})


def root_subnet_of(root_key: bytes) -> bytes:
    """Return the id of the root subnet with the key ``root_key`` (96 bytes): the hash of the key in DER, 29 bytes."""
    return hashlib.sha224(public_key_to_der(root_key)).digest() + _SELF_AUTHENTICATING


def _steps(
    root: bytes, signature: bytes, delegation: VerifiedDelegation | None, canister_range: Range | None, root_key: bytes
) -> tuple[Step, ...]:
    steps = [Step("root", "the state tree", root)]
    if delegation is not None:
        name = delegation.subnet_id.hex()
        steps += (
            Step("signature", f"of the state tree under the key of subnet {name}", signature),
            Step("delegation", f"the key of subnet {name} in the root subnet's tree", delegation.public_key),
        )
        if canister_range is not None:
            first, last = canister_range
            steps.append(Step("range", f"the canister is one of {first.hex()} to {last.hex()} of subnet {name}"))
        steps.append(Step("root", "the root subnet's tree", delegation.root_digest))
    signed = "the root subnet's tree" if delegation else "the state tree"
    steps.append(Step("signature", f"of {signed} under the root key", root_key))
    return tuple(steps)
