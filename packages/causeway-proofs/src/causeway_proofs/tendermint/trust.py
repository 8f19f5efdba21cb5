"""The rule by which a trusted header makes another one trusted (IBC reference X-4).

What a relayer submits to a light client: a header to be trusted, or two that contradict each other.
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
from causeway_proofs.tendermint.header import (
    SECOND,
    ClientExpired,
    Header,
    InvalidHeader,
    NeedIntermediateHeader,
    bytes_field,
    message_field,
    number_field,
    parse_revision,
    require_parts,
)
from causeway_proofs.tendermint.validators import MAX_VALIDATOR_SET_BYTES, ValidatorSet, validator_set_from_proto
from causeway_proofs.wire import ibc_tendermint_pb2 as wire

MAX_HEADER_UPDATE_BYTES = MAX_SIGNED_HEADER_BYTES + 2 * MAX_VALIDATOR_SET_BYTES
"""Longest header update in protobuf form: 10,000 validators each twice, and their commit, take 2.4 to 2.8 MB."""

MAX_MISBEHAVIOUR_BYTES = 2 * MAX_HEADER_UPDATE_BYTES


@dataclass(frozen=True)
class HeaderUpdate:
    """A header U with all that it takes to verify it (``ibc.lightclients.tendermint.v1.Header``).

    Attributes:
        signed_header, validators: the header, its commit, and the validators that it names.
        trusted_height: the height of the trusted header that it builds on.
        trusted_validators: the validators that the trusted header vouches for: those of the next height on deployed
            chains, those of its own by the rule of the reference (``trust.Anchor``).
        trusted_revision: the revision of ``trusted_height``.
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
        """Return the update to ``signed_header`` from a trusted height of the same revision of its chain."""
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
    """Two headers that one chain must not have signed both (X-3), the higher or equal one first."""

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
    """Return the update that a protobuf message holds.

    Raises:
        MalformedProof: a part is missing, or malformed.
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
    """Return the update of its protobuf form.

    Raises:
        OverLimit: it is longer than ``MAX_HEADER_UPDATE_BYTES``, or has more than 10,000 validators or votes.
        MalformedProof: it is not one, or not in the canonical encoding.
    """
    return header_update_from_proto(parse_canonical(wire.Header, data, "header update", MAX_HEADER_UPDATE_BYTES))


def decode_misbehaviour(data: bytes) -> Misbehaviour:
    """Return the two headers of their protobuf form.

    Raises:
        OverLimit: it is longer than ``MAX_MISBEHAVIOUR_BYTES``, or has more than 10,000 validators or votes.
        MalformedProof: it is not one, or not in the canonical encoding.
    """
    message = parse_canonical(wire.Misbehaviour, data, "misbehaviour", MAX_MISBEHAVIOUR_BYTES)
    require_parts(message, "misbehaviour", "header_1", "header_2")
    return Misbehaviour(
        header_update_from_proto(message.header_1), header_update_from_proto(message.header_2), message.client_id
    )


class UpdateValidity(Enum):
    """What ``valid(T, U)`` says: U is the chain's, it is not, or a header between has to be seen first."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class TrustAnchor(Enum):
    """Whose signatures a trusted header vouches for: of its own validators, or of those that it names as the next."""

    CURRENT = "current"
    NEXT = "next"


@dataclass(frozen=True)
class TrustRule:
    """How much power must have signed a header.

    Attributes:
        same: of the validators, when they are the trusted ones.
        new: of the header's own validators, when they are others.
        trusted: of the trusted validators, when the header's own are others.
        anchor: who the trusted validators are. From the current ones, no step, not even to the next height, can replace
            a set without its consent; from the next ones, a change that was announced is of any size.
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
"""X-4: more than 2/3 of an unchanged set; at least 2/3 of a new set and at least 2/3 of the trusted one."""


def deployed_rule(numerator: int = 1, denominator: int = 3) -> TrustRule:
    """Return the rule of deployed clients: more than 2/3 of the header's own validators, and a trust level.

    Raises:
        InvalidInput: the trust level is not one of 1/3 to 1.
    """
    if denominator < 1 or not denominator <= 3 * numerator <= 3 * denominator:
        raise InvalidInput(f"trust level is {numerator}/{denominator}, 1/3 to 1 is allowed")
    return TrustRule(MORE_THAN_TWO_THIRDS, MORE_THAN_TWO_THIRDS, Threshold(numerator, denominator), TrustAnchor.NEXT)


DEPLOYED_RULE = deployed_rule()

TRUSTING_PERIOD = 14 * 86_400 * SECOND
"""What relays take of an unbonding period of three weeks (X-4)."""

MAX_CLOCK_DRIFT = 5 * SECOND


@dataclass(frozen=True)
class TrustOptions:
    """What a light client is set up with; durations in nanoseconds.

    Attributes:
        chain_id: the remote chain.
        trusting_period: how long a header is trusted after its time. At most the unbonding period P of X-4, the time in
            which validators can be held to account for what they signed; deployed clients take two thirds of it.
        max_clock_drift: how far a header's time may lie ahead of now.
        rule: how much power must have signed.
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
        """Return the revision that the chain id ends with, 0 where it has none."""
        return parse_revision(self.chain_id)


@dataclass(frozen=True)
class TrustedHeader:
    """What is kept of a trusted header H_h: enough to trust others by it, and to check proofs against its root.

    Attributes:
        height, time: the header's; time in nanoseconds since 1970.
        root: its app hash, the root that proofs lead to.
        next_validators_hash: of the validators that sign the next height.
        validators_hash: of the validators that sign this height, the consensus rules C_h; empty where only a deployed
            consensus state is known, which does not have it.
        header_hash: empty there, too.
        added_time, added_height: of the chain that runs the client, when this header was added.
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
        """Return what is kept of ``header``."""
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
        """Return whose signatures this header vouches for: as the rule says; the next ones' if only they are known."""
        return rule.anchor if self.validators_hash else TrustAnchor.NEXT

    def anchor_hash(self, rule: TrustRule) -> bytes:
        """Return the hash of the validators whose signatures this header vouches for."""
        return self.validators_hash if self.anchor(rule) is TrustAnchor.CURRENT else self.next_validators_hash

    def agrees_with(self, other: TrustedHeader) -> bool:
        """Return whether both are of one header, as far as what is kept of them can say."""
        if self.header_hash and other.header_hash:
            return self.header_hash == other.header_hash
        return (self.time, self.root, self.next_validators_hash) == (other.time, other.root, other.next_validators_hash)


def time_left(time: Any, period: Any, now: Any) -> Any:
    """Return for how long a header of a time is trusted from ``now`` on; 0 or less: no more."""
    return time + period - now


def is_period_over(time: Any, period: Any, now: Any) -> Any:
    """Return whether a header of a time is older than a period, in which it is trusted, at ``now``: numbers or columns.

    As deployed: over at the very instant.
    """
    return time + period <= now


def require_fresh(trusted: TrustedHeader, options: TrustOptions, now: int) -> None:
    """Refuse a trusted header whose trusting period is over at ``now``.

    Raises:
        ClientExpired: it is.
    """
    if is_period_over(trusted.time, options.trusting_period, now):
        raise ClientExpired(
            f"trusted header {trusted.height} is {now - trusted.time} ns old, less than {options.trusting_period} is"
            " allowed"
        )


SignatureCheck = Callable[..., Step]
"""``verify_signatures``, or a function like it that remembers the commits that it has verified."""


def verify_header(
    trusted: TrustedHeader,
    update: HeaderUpdate,
    options: TrustOptions,
    now: int,
    signatures: SignatureCheck = verify_signatures,
) -> tuple[Step, ...]:
    """Verify the header of ``update`` by a trusted one below it, at the time ``now``; return the steps taken.

    ``signatures``: verifies those of the commit; many clients of one chain see the same commit.

    Raises:
        ClientExpired: the trusted header is too old.
        NeedIntermediateHeader: too little of the trusted validators' power signed (``unknown``); the next height to try
            is in it. For the height that follows the trusted one this, too, is an ``InvalidHeader``.
        InvalidHeader: anything else does not hold (``false``).
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
    """Verify all of ``verify_header`` that does not look at a clock.

    Raises:
        NeedIntermediateHeader, InvalidHeader: see ``verify_header``.
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
    # Whose power is said to have signed costs nothing to find out, and goes before the signatures.
    steps.append(require_power(signed.commit, validators, rule.same if unchanged else rule.new))
    # Deployed clients hold a header that skips heights to their trust level even when its validators are the trusted
    # ones: a level of more than 2/3 asks for more than the set's own rule.
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
    """Return ``valid(T, U)`` of X-4, for callers that want the word; ``verify_header`` says the reason, too.

    Raises:
        ClientExpired: the trusted header is too old to say anything.
    """
    try:
        verify_header(trusted, update, options, now)
    except NeedIntermediateHeader:
        return UpdateValidity.UNKNOWN
    except InvalidHeader:
        return UpdateValidity.FALSE
    return UpdateValidity.TRUE
