"""Certify states and verify certificates, from a leaf to the root key (IC reference 2.9).

- Certificates: the verifier has no clock; for freshness, pass the time and a maximal age.
- Delegations: the root subnet certifies the other subnets' keys and canisters (IC reference 7). One level only: the
  root subnet itself signs the certificate in a delegation.
- Signatures on state roots: many are verified at once, and each once a process.
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
"""Signs a message with 48 bytes: ``SecretKey.sign``, or a combiner of shares."""

RANGES_A_PIECE = 5
"""Default number of ranges in a leaf of the newer form."""


@dataclass(frozen=True, slots=True)
class VerifiedDelegation:
    """Content of a verified delegation.

    Attributes:
        subnet_id: the subnet.
        public_key: the subnet's key, 96 bytes.
        tree: the delegation's tree, with the canister ranges.
        root_digest: digest of that tree, signed by the root subnet.
        time: certification time in nanoseconds since 1970, or None if the tree does not show it.
    """

    subnet_id: bytes
    public_key: bytes
    tree: HashTree
    root_digest: bytes
    time: int | None


class RangesForm(Enum):
    """Location of the canister ranges in a delegation."""

    NONE = "none"
    """None: enough for statements about the subnet itself."""
    SUBNET = "subnet"
    """``subnet / <subnet id> / canister_ranges``, as before V21."""
    PIECES = "pieces"
    """``canister_ranges / <subnet id> / <first canister id>``, from V21 on."""


@dataclass(frozen=True, slots=True)
class SubnetRecord:
    """A subnet's record in the root subnet's state.

    Attributes:
        public_key: key of the subnet, 96 bytes.
        ranges: ranges of its canisters.
    """

    public_key: bytes
    ranges: tuple[Range, ...]


def verify_delegation(delegation: Delegation, root_key: bytes) -> VerifiedDelegation:
    """Verify a delegation's signature by the root subnet, and return its content.

    Args:
        delegation: the delegation.
        root_key: key of the root subnet, 96 bytes.

    Returns:
        The content.

    Raises:
        MalformedProof: its certificate is malformed; the subclass names the fault.
        TooManyDelegations: its certificate has its own delegation.
        InvalidSignature: the root subnet has not signed it.
        PathNotProven: it does not show the subnet's key.
        MalformedKey, MalformedTime: the shown key or time is malformed.
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
    """Build the root subnet's delegation to ``subnet_id``.

    Args:
        subnets: records of all subnets by id.
        subnet_id: the subnet to delegate to.
        time: nanoseconds since 1970.
        sign: signs for the root subnet.
        form: location of the shown ranges; the unpruned tree has both.
        canister_id: of the newer form, show only the piece with this canister, as deployed clients require: of several
            pieces they may read the wrong one.
        ranges_a_piece: ranges of each piece.

    Returns:
        The delegation.

    Raises:
        InvalidInput: ``subnet_id`` is not in ``subnets``, or ``canister_id`` is below all its pieces.
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
    """Limits of a certificate's age; all times in nanoseconds.

    Attributes:
        now: the caller's time since 1970.
        max_age: most time since the certificate's time.
        max_ahead: most time until the certificate's time.
        max_delegation_age: most time since the delegation's time, or None for any.
    """

    now: int
    max_age: int
    max_ahead: int = 0
    max_delegation_age: int | None = None

    def require(self, time: int, max_age: int, noun: str) -> None:
        """Require that ``time`` is neither too old nor too far ahead.

        Args:
            time: nanoseconds since 1970.
            max_age: most time since ``time``, in nanoseconds.
            noun: noun for the time's owner in errors.

        Raises:
            CertificateTooOld: ``time`` is older than ``max_age``.
            CertificateFromTheFuture: ``time`` is more than ``max_ahead`` in the future.
        """
        if time < self.now - max_age:
            raise CertificateTooOld(f"{noun} is of {time}, {self.now - time} ns ago: at most {max_age} are allowed")
        if time > self.now + self.max_ahead:
            raise CertificateFromTheFuture(
                f"{noun} is of {time}, {time - self.now} ns ahead: at most {self.max_ahead} are allowed"
            )


@dataclass(frozen=True, slots=True)
class VerifiedCertificate:
    """A verified certificate.

    Attributes:
        tree: the shown part of the state.
        root_digest: digest of the whole state.
        time: certification time, in nanoseconds since 1970.
        subnet_id: the certifying subnet; None for the root subnet.
        delegation: source of the subnet's key; None for the root subnet.
        canister_range: the subnet's range with the requested canister; None without one, or for the root subnet.
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
        """Look up the leaf at ``path``.

        Args:
            path: labels from the root.

        Returns:
            The result.
        """
        return lookup_path(self.tree, path)

    def value(self, path: Sequence[bytes]) -> bytes:
        """Return the leaf at ``path``.

        Args:
            path: labels from the root.

        Returns:
            The leaf's content.

        Raises:
            PathNotProven: the leaf is not shown.
        """
        return require_value(self.tree, path)

    def require_absent(self, path: Sequence[bytes]) -> None:
        """Require that the state shows the absence of ``path``.

        Args:
            path: labels from the root.

        Raises:
            PathNotProven: the absence is not shown.
        """
        require_absent(self.tree, path)

    def explain(self, path: Sequence[bytes]) -> tuple[Step, ...]:
        """Return every step from the content of ``path`` to the root key.

        Args:
            path: labels from the root.

        Returns:
            The steps.

        Raises:
            PathNotProven: neither content nor absence is shown.
        """
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
    """Verify a certificate's chain of signatures up to ``root_key``, and return its content.

    Args:
        data: the encoded certificate.
        root_key: the root subnet's public key, 96 bytes, or 133 in DER.
        canister_id: subject of the statement; a delegation must assign it to the signer.
        subnet_id: subject of the statement; it must be the signer.
        root_subnet_id: id of the root subnet, if not derived from the key.
        freshness: limits of the certificate's age; default: any age.

    Returns:
        The verified certificate.

    Raises:
        MalformedProof: ``data`` or a part of it is malformed; the subclass names the fault.
        TooManyDelegations: the delegation's certificate has its own delegation.
        InvalidSignature: a signature does not verify.
        PathNotProven: the delegation does not show the signer's key, the tree its time, or the delegation its limited
            time.
        CanisterRangesNotProven: the delegation does not show the signer's canisters.
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
    """Sign a state tree and return its certificate.

    Args:
        tree: well formed, pruned or not.
        sign: signs for the subnet.
        delegation: the root subnet's delegation to the subnet; None for the root subnet itself.

    Returns:
        The certificate.

    Raises:
        TooDeepRecursion, NotWellFormed: no verifier would accept the tree.
        PathNotProven, MalformedTime: the tree does not show its time.
    """
    require_well_formed(tree)
    read_time(tree)
    return Certificate(tree, sign(certification_message(digest(tree))), delegation)


def state_tree(contents: NestedTree, time: int) -> HashTree:
    """Build the tree of a state.

    Args:
        contents: nested maps without the time.
        time: nanoseconds since 1970.

    Returns:
        The tree.

    Raises:
        InvalidInput: ``contents`` already has a time.
    """
    if TIME in contents:
        raise InvalidInput("the contents of a state tree have a label 'time' already")
    return build_tree({**contents, TIME: encode_leb128(time)})


def derive_root_subnet(root_key: bytes) -> bytes:
    """Return the root subnet's id, 29 bytes: the hash of ``root_key`` (96 bytes) in DER."""
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


MAX_CACHED_ROOTS = 1 << 14
"""Most cached verified signatures: a few megabytes, some hundred heights of a large network."""

Signed = tuple[bytes, bytes, bytes]
"""A root, its signature, and the public key."""


class VerifiedRoots:
    """LRU cache of verified roots with signatures and keys; thread-safe.

    Args:
        most: capacity.
    """

    def __init__(self, most: int = MAX_CACHED_ROOTS) -> None:
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
        """Add ``signed``, evicting the least recently used entry if full."""
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
    """Verify the signature of each root under its key.

    Unverified signatures are verified in one product of pairings. If that fails, each is verified individually for its
    error: ``MalformedKey``, ``MalformedSignature`` or ``InvalidSignature``.

    Args:
        roots: state roots, 32 bytes each.
        signatures: 48 bytes each if valid.
        public_keys: 96 bytes each if valid.
        verified: cache of valid signatures, updated.

    Returns:
        The error of each signature, None for a valid one.
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
    all_hold = len(points) > 1 and _verify_batch(points)
    for signed in points:
        try:
            if not all_hold:
                verify_state_root(*signed)
        except ProofError as error:
            errors[signed] = error
        else:
            verified.add(signed)
    return [errors[signed] for signed in given]


def _verify_batch(points: dict[Signed, Any]) -> bool:
    messages = [certification_message(root) for root, _, _ in points]
    return is_each_signed(list(points.values()), messages, [key for _, _, key in points])
