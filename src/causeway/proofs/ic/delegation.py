"""Delegations: the root subnet certifies the other subnets' keys and canisters (IC reference 2.9, 7).

One level only: the certificate in a delegation is signed by the root subnet itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from causeway.model.errors import InvalidInput
from causeway.proofs.ic.bls import public_key_from_der, public_key_to_der
from causeway.proofs.ic.certificate import (
    TIME,
    Certificate,
    Delegation,
    certification_message,
    decode_certificate,
    encode_certificate,
    root_of,
    time_of,
    verify_state_root,
)
from causeway.proofs.ic.errors import TooManyDelegations
from causeway.proofs.ic.hash_tree import HashTree, Path, build_tree, digest
from causeway.proofs.ic.leb128 import encode_leb128
from causeway.proofs.ic.lookup import Status, lookup_path, require_value
from causeway.proofs.ic.pruning import prune
from causeway.proofs.ic.ranges import CANISTER_RANGES, SUBNET, Range, encode_ranges, range_pieces

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
    root = root_of(certificate)
    verify_state_root(root, certificate.signature, root_key)
    tree = certificate.tree
    key = public_key_from_der(require_value(tree, [SUBNET, delegation.subnet_id, PUBLIC_KEY]))
    time = time_of(tree) if lookup_path(tree, [TIME]).status is Status.FOUND else None
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
