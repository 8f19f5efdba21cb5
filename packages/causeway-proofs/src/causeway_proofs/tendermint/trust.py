"""Verify headers by a trusted header; messages of relayers (IBC reference X-4).

Relayers submit a header to trust (``HeaderUpdate``), or two contradicting headers (``Misbehaviour``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from causeway_proofs.errors import InvalidInput
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.steps import Step
from causeway_proofs.tendermint.commit import (
    MAX_SIGNED_HEADER_BYTES,
    MORE_THAN_TWO_THIRDS,
    SignedHeader,
    Threshold,
    check_signed_header,
    require_power,
    signed_header_from_proto,
    signed_power,
    verify_signatures,
)
from causeway_proofs.tendermint.errors import ClientExpired, InvalidHeader, NeedIntermediateHeader
from causeway_proofs.tendermint.header import (
    SECOND,
    Header,
    bytes_field,
    message_field,
    number_field,
    parse_revision,
    require_parts,
)
from causeway_proofs.tendermint.validators import MAX_VALIDATOR_SET_BYTES, ValidatorSet, validator_set_from_proto
from causeway_proofs.wire import ibc_tendermint_pb2 as wire

MAX_HEADER_UPDATE_BYTES = MAX_SIGNED_HEADER_BYTES + 2 * MAX_VALIDATOR_SET_BYTES
"""Longest header update: 10,000 validators twice and their commit take 2.4 to 2.8 MB."""

MAX_MISBEHAVIOUR_BYTES = 2 * MAX_HEADER_UPDATE_BYTES


@dataclass(frozen=True)
class HeaderUpdate:
    """A header U with everything to verify it (``ibc.lightclients.tendermint.v1.Header``).

    Attributes:
        signed_header: the header and its commit.
        validators: the validators named by the header.
        trusted_height: height of the trusted header that it builds on.
        trusted_validators: validators that the trusted header vouches for: those of the next height on deployed chains,
            its own under the reference rule (``TrustAnchor``).
        trusted_revision: revision of ``trusted_height``.
    """

    signed_header: SignedHeader
    validators: ValidatorSet
    trusted_height: int
    trusted_validators: ValidatorSet
    trusted_revision: int

    @classmethod
    def on(
        cls,
        trusted_height: int,
        trusted_validators: ValidatorSet,
        signed_header: SignedHeader,
        validators: ValidatorSet,
    ) -> HeaderUpdate:
        """Build the update to ``signed_header`` from a trusted height of the same revision.

        Args:
            trusted_height: height of the trusted header.
            trusted_validators: validators that it vouches for.
            signed_header: the header and its commit.
            validators: validators of the header.

        Returns:
            The update.
        """
        revision = parse_revision(signed_header.header.chain_id)
        return cls(signed_header, validators, trusted_height, trusted_validators, revision)

    @property
    def height(self) -> int:
        """Return the height of the header."""
        return self.signed_header.header.height

    def encode(self) -> bytes:
        """Return the protobuf form."""
        height = number_field(1, self.trusted_revision) + number_field(2, self.trusted_height)
        return b"".join(
            (
                message_field(1, self.signed_header.encode()),
                message_field(2, self.validators.encode()),
                message_field(3, height),
                message_field(4, self.trusted_validators.encode()),
            )
        )


@dataclass(frozen=True)
class Misbehaviour:
    """Two contradicting headers of one chain (X-3), the higher or equal one first."""

    header_1: HeaderUpdate
    header_2: HeaderUpdate
    client_id: str = ""

    def encode(self) -> bytes:
        """Return the protobuf form (``ibc.lightclients.tendermint.v1.Misbehaviour``)."""
        return b"".join(
            (
                bytes_field(1, self.client_id.encode()),
                message_field(2, self.header_1.encode()),
                message_field(3, self.header_2.encode()),
            )
        )


def header_update_from_proto(message: wire.Header) -> HeaderUpdate:
    """Convert a protobuf message to an update.

    Raises:
        MalformedProof: a part is missing or malformed.
    """
    require_parts(message, "a header update", "signed_header", "validator_set", "trusted_height", "trusted_validators")
    return HeaderUpdate(
        signed_header=signed_header_from_proto(message.signed_header),
        validators=validator_set_from_proto(message.validator_set),
        trusted_height=message.trusted_height.revision_height,
        trusted_validators=validator_set_from_proto(message.trusted_validators),
        trusted_revision=message.trusted_height.revision_number,
    )


def decode_header_update(data: bytes) -> HeaderUpdate:
    """Decode the canonical protobuf form of an update.

    Args:
        data: the encoding.

    Returns:
        The update.

    Raises:
        OverLimit: ``data`` exceeds ``MAX_HEADER_UPDATE_BYTES``, or 10,000 validators or votes.
        MalformedProof: ``data`` is not an update, or not canonical.
    """
    return header_update_from_proto(parse_canonical(wire.Header, data, "header update", MAX_HEADER_UPDATE_BYTES))


def decode_misbehaviour(data: bytes) -> Misbehaviour:
    """Decode the canonical protobuf form of two contradicting headers.

    Args:
        data: the encoding.

    Returns:
        The headers.

    Raises:
        OverLimit: ``data`` exceeds ``MAX_MISBEHAVIOUR_BYTES``, or 10,000 validators or votes.
        MalformedProof: ``data`` is not misbehaviour, or not canonical.
    """
    message = parse_canonical(wire.Misbehaviour, data, "misbehaviour", MAX_MISBEHAVIOUR_BYTES)
    require_parts(message, "misbehaviour", "header_1", "header_2")
    return Misbehaviour(
        header_update_from_proto(message.header_1), header_update_from_proto(message.header_2), message.client_id
    )


class UpdateValidity(Enum):
    """Result of ``valid(T, U)``: true, false, or unknown without an intermediate header."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class TrustAnchor(Enum):
    """Validators that a trusted header vouches for: its own, or the next ones that it names."""

    CURRENT = "current"
    NEXT = "next"


@dataclass(frozen=True)
class TrustRule:
    """Power that must have signed a header.

    Attributes:
        same: share of the validators, if they are the trusted ones.
        new: share of the header's own validators, if they differ.
        trusted: share of the trusted validators, if the header's own differ.
        anchor: the trusted validators. With the current ones, no step, not even to the next height, replaces a set
            without its consent. With the next ones, an announced change may have any size.
    """

    same: Threshold
    new: Threshold
    trusted: Threshold
    anchor: TrustAnchor


REFERENCE_RULE = TrustRule(
    same=MORE_THAN_TWO_THIRDS,
    new=Threshold(2, 3, at_least=True),
    trusted=Threshold(2, 3, at_least=True),
    anchor=TrustAnchor.CURRENT,
)
"""X-4: more than 2/3 of an unchanged set; else at least 2/3 of the new and the trusted set."""


def deployed_rule(numerator: int = 1, denominator: int = 3) -> TrustRule:
    """Return the rule of deployed clients: over 2/3 of the own validators, and a trust level.

    Args:
        numerator: numerator of the trust level.
        denominator: denominator of the trust level.

    Returns:
        The rule.

    Raises:
        InvalidInput: the trust level is outside of 1/3 to 1.
    """
    if denominator < 1 or not denominator <= 3 * numerator <= 3 * denominator:
        raise InvalidInput(f"trust level is {numerator}/{denominator}, 1/3 to 1 is allowed")
    return TrustRule(MORE_THAN_TWO_THIRDS, MORE_THAN_TWO_THIRDS, Threshold(numerator, denominator), TrustAnchor.NEXT)


DEPLOYED_RULE = deployed_rule()

TRUSTING_PERIOD = 14 * 86_400 * SECOND
"""Relayers' usual period for an unbonding period of three weeks (X-4)."""

MAX_CLOCK_DRIFT = 5 * SECOND


@dataclass(frozen=True)
class TrustOptions:
    """Settings of a light client; durations in nanoseconds.

    Attributes:
        chain_id: the remote chain.
        trusting_period: time for which a header is trusted after its own. At most the unbonding period P of X-4, in
            which validators can be slashed for their signatures; deployed clients use two thirds of it.
        max_clock_drift: most time of a header ahead of now.
        rule: the required power.
    """

    chain_id: str
    trusting_period: int = TRUSTING_PERIOD
    max_clock_drift: int = MAX_CLOCK_DRIFT
    rule: TrustRule = REFERENCE_RULE

    def __post_init__(self) -> None:
        if self.trusting_period <= 0:
            raise InvalidInput(f"trusting_period is {self.trusting_period} ns, more than 0 is allowed")
        if self.max_clock_drift < 0:
            raise InvalidInput(f"max_clock_drift is {self.max_clock_drift} ns, 0 or more is allowed")

    @property
    def revision(self) -> int:
        """Return the revision at the end of the chain id, 0 without one."""
        return parse_revision(self.chain_id)


@dataclass(frozen=True)
class TrustedHeader:
    """The retained part of a trusted header H_h, to verify other headers and proofs.

    Attributes:
        height: height of the header.
        time: its time, nanoseconds since 1970.
        root: its app hash, the root of proofs.
        next_validators_hash: hash of the next height's validators.
        validators_hash: hash of this height's validators, the consensus rules C_h; empty if only a deployed consensus
            state is known, which lacks it.
        header_hash: hash of the header; empty in that case, too.
        added_time: local time at which the header was added.
        added_height: local height at which the header was added.
    """

    height: int
    time: int
    root: bytes
    next_validators_hash: bytes
    validators_hash: bytes = b""
    header_hash: bytes = b""
    added_time: int = field(default=0, compare=False)
    added_height: int = field(default=0, compare=False)

    @classmethod
    def of(cls, header: Header, added_time: int = 0, added_height: int = 0) -> TrustedHeader:
        """Build the retained part of ``header``.

        Args:
            header: the header.
            added_time: local time, nanoseconds since 1970.
            added_height: local height.

        Returns:
            The trusted header.
        """
        return cls(
            height=header.height,
            time=header.time,
            root=header.app_hash,
            next_validators_hash=header.next_validators_hash,
            validators_hash=header.validators_hash,
            header_hash=header.hash,
            added_time=added_time,
            added_height=added_height,
        )

    def anchor(self, rule: TrustRule) -> TrustAnchor:
        """Return the validators that this header vouches for.

        They are the rule's, or the next ones if only these are known.

        Args:
            rule: the rule.

        Returns:
            The anchor.
        """
        return rule.anchor if self.validators_hash else TrustAnchor.NEXT

    def anchor_hash(self, rule: TrustRule) -> bytes:
        """Return the hash of the validators that this header vouches for.

        Args:
            rule: the rule.

        Returns:
            The hash, 32 bytes.
        """
        return self.validators_hash if self.anchor(rule) is TrustAnchor.CURRENT else self.next_validators_hash

    def agrees_with(self, other: TrustedHeader) -> bool:
        """Return True if both are of one header, as far as their retained parts tell.

        Args:
            other: another trusted header.

        Returns:
            True if all known fields agree.
        """
        if self.header_hash and other.header_hash:
            return self.header_hash == other.header_hash
        return (self.time, self.root, self.next_validators_hash) == (other.time, other.root, other.next_validators_hash)


def time_left(time: Any, period: Any, now: Any) -> Any:
    """Return the remaining trust time of a header at ``now``; 0 or less: expired."""
    return time + period - now


def is_period_over(time: Any, period: Any, now: Any) -> Any:
    """Return True if a header is past its trusting period at ``now``.

    Arguments are numbers or columns.

    As deployed, it ends at the very instant.

    Args:
        time: time of the header, nanoseconds since 1970.
        period: trusting period, nanoseconds.
        now: nanoseconds since 1970.

    Returns:
        A boolean, or a column of them.
    """
    return time + period <= now


def require_fresh(trusted: TrustedHeader, options: TrustOptions, now: int) -> None:
    """Require that a trusted header's trusting period is not over at ``now``.

    Raises:
        ClientExpired: the period is over.
    """
    if is_period_over(trusted.time, options.trusting_period, now):
        raise ClientExpired(
            f"trusted header {trusted.height} is {now - trusted.time} ns old, less than {options.trusting_period} is"
            " allowed"
        )


SignatureCheck = Callable[..., Step]
"""``verify_signatures``, or a caching wrapper of it."""


def verify_header(
    trusted: TrustedHeader,
    update: HeaderUpdate,
    options: TrustOptions,
    now: int,
    signatures: SignatureCheck = verify_signatures,
) -> tuple[Step, ...]:
    """Verify the header of ``update`` by a trusted one below it, at the time ``now``.

    Args:
        trusted: the trusted header.
        update: the header and its validators.
        options: chain, periods and rule.
        now: nanoseconds since 1970.
        signatures: verifier of the commit's signatures; many clients of one chain share a commit.

    Returns:
        The steps.

    Raises:
        ClientExpired: the trusted header is too old.
        NeedIntermediateHeader: too little of the trusted validators' power signed (``unknown``); the error has the next
            height to try. For the height after the trusted one this is an ``InvalidHeader``.
        InvalidHeader: another check failed (``false``).
    """
    require_fresh(trusted, options, now)
    header = update.signed_header.header
    if header.height <= trusted.height:
        raise InvalidHeader(f"header has height {header.height}, the trusted one {trusted.height}")
    if header.time <= trusted.time:
        raise InvalidHeader(f"time of header {header.height} is not after that of the trusted one, {trusted.height}")
    if header.time >= now + options.max_clock_drift:
        raise InvalidHeader(
            f"time of header {header.height} is {header.time - now} ns ahead, less than {options.max_clock_drift} is"
            " allowed"
        )
    return verify_finality(trusted, update, options, signatures)


def verify_finality(
    trusted: TrustedHeader,
    update: HeaderUpdate,
    options: TrustOptions,
    signatures: SignatureCheck = verify_signatures,
) -> tuple[Step, ...]:
    """Perform the checks of ``verify_header`` that need no clock.

    Args:
        trusted: the trusted header.
        update: the header and its validators.
        options: chain and rule.
        signatures: verifier of the commit's signatures.

    Returns:
        The steps.

    Raises:
        NeedIntermediateHeader, InvalidHeader: as ``verify_header``.
    """
    signed, validators, believed = update.signed_header, update.validators, update.trusted_validators
    header, rule = signed.header, options.rule
    if (update.trusted_revision, update.trusted_height) != (options.revision, trusted.height):
        raise InvalidHeader(
            f"header builds on height {update.trusted_revision}-{update.trusted_height}, the trusted one is"
            f" {options.revision}-{trusted.height}"
        )
    anchor = trusted.anchor(rule).value
    anchor_hash = trusted.anchor_hash(rule)
    if believed.hash != anchor_hash:
        raise InvalidHeader(
            f"trusted validators hash to {believed.hash.hex()}, the {anchor} ones of trusted header {trusted.height} to"
            f" {anchor_hash.hex()}"
        )
    check_signed_header(signed, options.chain_id, validators)
    adjacent = header.height == trusted.height + 1
    if adjacent and header.validators_hash != trusted.next_validators_hash:
        raise InvalidHeader(f"validators of header {header.height} are not those that the trusted header before names")
    steps = [
        Step("trusted", f"height {trusted.height}, {anchor} validators", anchor_hash),
        Step("header", f"{header.chain_id} at height {header.height}", header.hash),
        Step("validators", f"{len(validators)} validators", validators.hash),
    ]
    unchanged = header.validators_hash == anchor_hash
    # The stated power is cheap to check, so check it before the signatures.
    steps.append(require_power(signed.commit, validators, rule.same if unchanged else rule.new))
    # Deployed clients apply the trust level to a header that skips heights even if its validators are the trusted
    # ones: a level above 2/3 is stricter than the set's own rule.
    if not unchanged or not adjacent:
        power, total = signed_power(signed.commit, validators, counted=believed), believed.total_power
        share = f"{power} of {total} of the power trusted at height {trusted.height} signed, {rule.trusted} is needed"
        if not rule.trusted.is_met(power, total):
            if adjacent:
                raise InvalidHeader(f"header {header.height}: {share}, and there is no height between")
            between = (trusted.height + header.height) // 2
            raise NeedIntermediateHeader(f"header {header.height}: {share}", trusted.height, between)
        if not unchanged:
            steps.append(Step("overlap", share))
    steps.append(signatures(signed.commit, options.chain_id, validators, first=believed))
    return tuple(steps)


def check_validity(trusted: TrustedHeader, update: HeaderUpdate, options: TrustOptions, now: int) -> UpdateValidity:
    """Return ``valid(T, U)`` of X-4; ``verify_header`` also gives the reason.

    Raises:
        ClientExpired: the trusted header is too old.
    """
    try:
        verify_header(trusted, update, options, now)
    except NeedIntermediateHeader:
        return UpdateValidity.UNKNOWN
    except InvalidHeader:
        return UpdateValidity.FALSE
    return UpdateValidity.TRUE
