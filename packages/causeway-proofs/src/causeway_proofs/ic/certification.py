"""Certifying a state and verifying that it is certified: from a leaf to the root key (IC reference 2.9).

Nothing here has a clock: whoever wants certificates to be fresh gives the time and how old they may be.

Delegations: the root subnet certifies the other subnets' keys and canisters (IC reference 2.9, 7).

One level only: the certificate in a delegation is signed by the root subnet itself.

Signatures on state roots, many at once, and each of them once in a process (IC reference 2.9).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any

from causeway_proofs.errors import InvalidInput, ProofError
from causeway_proofs.ic.bls import (
    PUBLIC_KEY_BYTES,
    is_each_signed,
    key_point,
    public_key_from_der,
    public_key_to_der,
    signature_point,
)
from causeway_proofs.ic.certificate import (
    CANISTER_RANGES,
    SUBNET,
    TIME,
    Certificate,
    Delegation,
    Range,
    certification_message,
    decode_certificate,
    encode_certificate,
    encode_ranges,
    range_pieces,
    read_time,
    require_in_ranges,
    tree_root,
    verify_state_root,
)
from causeway_proofs.ic.errors import CertificateFromTheFuture, CertificateTooOld, TooManyDelegations, WrongSubnet
from causeway_proofs.ic.hash_tree import HashTree, NestedTree, Path, build_tree, digest, require_well_formed
from causeway_proofs.ic.lookup import (
    Lookup,
    LookupStatus,
    lookup_path,
    path_steps,
    prune,
    require_absent,
    require_value,
)
from causeway_proofs.ic.primitives import encode_leb128
from causeway_proofs.steps import Step

PUBLIC_KEY = b"public_key"

Signer = Callable[[bytes], bytes]
"""Makes the signature of a message, 48 bytes: ``SecretKey.sign``, or one that gathers shares."""

RANGES_A_PIECE = 5
"""How many ranges a leaf of the newer form holds unless told otherwise."""


@dataclass(frozen=True, slots=True)
class VerifiedDelegation:
    """What a delegation says, verified.

    Attributes:
        subnet_id: whose key it is.
        public_key: the subnet's key, 96 bytes.
        tree: the delegation's tree, for the canister ranges.
        root_digest: of that tree, as the root subnet signed it.
        time: when it was certified, in nanoseconds since 1970; None when the tree does not show it.
    """

    subnet_id: bytes
    public_key: bytes
    tree: HashTree
    root_digest: bytes
    time: int | None


class RangesForm(Enum):
    """Where a delegation shows the canister ranges."""

    NONE = "none"
    """Nowhere: enough for statements about the subnet itself."""
    SUBNET = "subnet"
    """``subnet / <subnet id> / canister_ranges``, as before V21."""
    PIECES = "pieces"
    """``canister_ranges / <subnet id> / <first canister id>``, from V21 on."""


@dataclass(frozen=True, slots=True)
class SubnetRecord:
    """What the root subnet certifies of a subnet: its key (96 bytes) and the ranges of its canisters."""

    public_key: bytes
    ranges: tuple[Range, ...]


def verify_delegation(delegation: Delegation, root_key: bytes) -> VerifiedDelegation:
    """Return what ``delegation`` says, when the root subnet with the key ``root_key`` (96 bytes) has signed it.

    Raises:
        MalformedProof: its certificate is malformed; the subclass says why.
        TooManyDelegations: its certificate has a delegation itself.
        InvalidSignature: the root subnet has not signed it.
        PathNotProven: it does not show the subnet's key.
        MalformedKey, MalformedTime: what it shows there is malformed.
    """
    certificate = decode_certificate(delegation.certificate)
    if certificate.delegation is not None:
        raise TooManyDelegations("the certificate in the delegation has a delegation of its own: one level is allowed")
    root = tree_root(certificate)
    verify_state_root(root, certificate.signature, root_key)
    tree = certificate.tree
    key = public_key_from_der(require_value(tree, [SUBNET, delegation.subnet_id, PUBLIC_KEY]))
    time = read_time(tree) if lookup_path(tree, [TIME]).status is LookupStatus.FOUND else None
    return VerifiedDelegation(delegation.subnet_id, key, tree, root, time)


def delegate(
    subnets: Mapping[bytes, SubnetRecord],
    subnet_id: bytes,
    time: int,
    sign: Signer,
    *,
    form: RangesForm = RangesForm.PIECES,
    canister_id: bytes | None = None,
    ranges_a_piece: int = RANGES_A_PIECE,
) -> Delegation:
    """Return the root subnet's delegation to ``subnet_id``.

    Args:
        subnets: all subnets that the root subnet knows, by id.
        subnet_id: the one to delegate to.
        time: nanoseconds since 1970.
        sign: signs for the root subnet.
        form: where the ranges are shown; the tree has them in both places.
        canister_id: with it, of the newer form only the piece that has this canister is shown. Deployed clients
            want exactly that: of several pieces they may look into the wrong one.
        ranges_a_piece: how many ranges each piece has.

    Raises:
        InvalidInput: ``subnet_id`` is not among ``subnets``, or ``canister_id`` is below all its pieces.
    """
    if subnet_id not in subnets:
        raise InvalidInput(f"subnet {subnet_id.hex()} is not among the {len(subnets)} subnets of the root")
    pieces = {subnet: range_pieces(record.ranges, ranges_a_piece) for subnet, record in subnets.items()}
    tree = build_tree(
        {
            SUBNET: {
                subnet: {
                    PUBLIC_KEY: public_key_to_der(record.public_key),
                    CANISTER_RANGES: encode_ranges(record.ranges),
                }
                for subnet, record in subnets.items()
            },
            CANISTER_RANGES: pieces,
            TIME: encode_leb128(time),
        }
    )
    paths: list[Path] = [(TIME,), (SUBNET, subnet_id, PUBLIC_KEY)]
    if form is RangesForm.SUBNET:
        paths.append((SUBNET, subnet_id, CANISTER_RANGES))
    elif form is RangesForm.PIECES and canister_id is None:
        paths.append((CANISTER_RANGES, subnet_id))
    elif form is RangesForm.PIECES:
        below = [first for first in pieces[subnet_id] if canister_id is not None and first <= canister_id]
        if not below:
            raise InvalidInput(f"no ranges of subnet {subnet_id.hex()} begin at or below canister {canister_id!r}")
        paths.append((CANISTER_RANGES, subnet_id, max(below)))
    signature = sign(certification_message(digest(tree)))
    return Delegation(subnet_id, encode_certificate(Certificate(prune(tree, paths), signature)))


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
    root = tree_root(certificate)
    delegation = verify_delegation(certificate.delegation, root_key) if certificate.delegation else None
    signer = delegation.subnet_id if delegation else root_subnet_id or derive_root_subnet(root_key)
    verify_state_root(root, certificate.signature, delegation.public_key if delegation else root_key)
    if subnet_id is not None and subnet_id != signer:
        raise WrongSubnet(f"subnet {signer.hex()} has signed, not {subnet_id.hex()}")
    canister_range = None
    if delegation and canister_id is not None:
        canister_range = require_in_ranges(delegation.tree, delegation.subnet_id, canister_id)
    time = read_time(certificate.tree)
    if freshness is not None:
        freshness.require(time, freshness.max_age, "the certificate")
        if delegation and freshness.max_delegation_age is not None:
            freshness.require(read_time(delegation.tree), freshness.max_delegation_age, "the delegation")
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
    read_time(tree)
    return Certificate(tree, sign(certification_message(digest(tree))), delegation)


def state_tree(contents: NestedTree, time: int) -> HashTree:
    """Return the tree of a state with ``contents`` at ``time`` (nanoseconds since 1970).

    Raises:
        InvalidInput: ``contents`` has a time already.
    """
    if TIME in contents:
        raise InvalidInput("the contents of a state tree have a label 'time' already")
    return build_tree({**contents, TIME: encode_leb128(time)})


def derive_root_subnet(root_key: bytes) -> bytes:
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


MOST_KEPT = 1 << 14
"""Signatures that are remembered as verified: a few megabytes, some hundred heights of a large network."""

Signed = tuple[bytes, bytes, bytes]
"""A root, a signature, a public key."""


class VerifiedRoots:
    """Roots with signatures and keys that were found to hold, the ones seen last; safe to share among threads.

    Args:
        most: how many are kept.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._known: OrderedDict[Signed, None] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, signed: Signed) -> bool:
        with self._lock:
            if signed not in self._known:
                return False
            self._known.move_to_end(signed)
            return True

    def add(self, signed: Signed) -> None:
        """Remember ``signed``, and forget what was not seen for longest when there are too many."""
        with self._lock:
            self._known[signed] = None
            self._known.move_to_end(signed)
            if len(self._known) > self._most:
                self._known.popitem(last=False)


_VERIFIED = VerifiedRoots()


def verify_certifications(
    roots: Sequence[bytes],
    signatures: Sequence[bytes],
    public_keys: Sequence[bytes],
    verified: VerifiedRoots = _VERIFIED,
) -> list[ProofError | None]:
    """Return of each root what is wrong with its signature under its key, None where it certifies the state.

    What is not known to hold is verified in one product of pairings; only if that fails, one by one, so that each error
    is the one that ``bls.verify`` raises: ``MalformedKey``, ``MalformedSignature``, ``InvalidSignature``.

    Args:
        roots: of states, 32 bytes each.
        signatures: 48 bytes each when they are signatures.
        public_keys: 96 bytes each when they are keys.
        verified: what is known to hold; what is found to hold is added.
    """
    given: list[Signed] = list(zip(roots, signatures, public_keys, strict=True))
    errors: dict[Signed, ProofError | None] = dict.fromkeys(given)
    points: dict[Signed, Any] = {}
    for signed in errors:
        if signed in verified:
            continue
        _, signature, key = signed
        try:
            key_point(key)
            points[signed] = signature_point(signature)
        except ProofError as error:
            errors[signed] = error
    all_hold = len(points) > 1 and _hold_together(points)
    for signed in points:
        try:
            if not all_hold:
                verify_state_root(*signed)
        except ProofError as error:
            errors[signed] = error
        else:
            verified.add(signed)
    return [errors[signed] for signed in given]


def _hold_together(points: dict[Signed, Any]) -> bool:
    messages = [certification_message(root) for root, _, _ in points]
    return is_each_signed(list(points.values()), messages, [key for _, _, key in points])
