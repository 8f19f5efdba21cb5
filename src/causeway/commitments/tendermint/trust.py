"""The rule by which a trusted header makes another one trusted (IBC reference X-4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from causeway.commitments.steps import Step
from causeway.commitments.tendermint.commit import (
    MORE_THAN_TWO_THIRDS,
    Threshold,
    check_signed_header,
    require_power,
    signed_power,
    verify_signatures,
)
from causeway.commitments.tendermint.errors import ClientExpired, InvalidHeader, NeedIntermediateHeader
from causeway.commitments.tendermint.header import revision_of
from causeway.commitments.tendermint.update import HeaderUpdate
from causeway.model.errors import InvalidInput


class Validity(Enum):
    """What ``valid(T, U)`` says: U is the chain's, it is not, or a header between has to be seen first."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class TrustRule:
    """How much power must have signed a header.

    Attributes:
        same: of the validators, when they are those that the trusted header names as the next ones.
        new: of the header's own validators, when they are others.
        trusted: of the validators that the trusted header names, when the header's own are others.
    """

    same: Threshold
    new: Threshold
    trusted: Threshold


REFERENCE_RULE = TrustRule(
    same=MORE_THAN_TWO_THIRDS, new=Threshold(2, 3, at_least=True), trusted=Threshold(2, 3, at_least=True)
)
"""X-4: more than 2/3 of an unchanged set; at least 2/3 of a new set and at least 2/3 of the trusted one."""


def deployed_rule(numerator: int = 1, denominator: int = 3) -> TrustRule:
    """Return the rule of deployed clients: more than 2/3 of the header's own validators, and a trust level.

    Raises:
        InvalidInput: the trust level is not one of 1/3 to 1.
    """
    if denominator < 1 or not denominator <= 3 * numerator <= 3 * denominator:
        raise InvalidInput(f"trust level is {numerator}/{denominator}, 1/3 to 1 is allowed")
    return TrustRule(MORE_THAN_TWO_THIRDS, MORE_THAN_TWO_THIRDS, Threshold(numerator, denominator))


DEPLOYED_RULE = deployed_rule()


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
    trusting_period: int
    max_clock_drift: int
    rule: TrustRule = REFERENCE_RULE

    def __post_init__(self) -> None:
        if self.trusting_period <= 0:
            raise InvalidInput(f"trusting_period is {self.trusting_period} ns, more than 0 is allowed")
        if self.max_clock_drift < 0:
            raise InvalidInput(f"max_clock_drift is {self.max_clock_drift} ns, 0 or more is allowed")

    @property
    def revision(self) -> int:
        """Return the revision that the chain id ends with, 0 where it has none."""
        return revision_of(self.chain_id)


@dataclass(frozen=True)
class TrustedHeader:
    """What is kept of a trusted header H_h: enough to trust others by it, and to check proofs against its root.

    Attributes:
        height, time: the header's; time in nanoseconds since 1970.
        root: its app hash, the root that proofs lead to.
        next_validators_hash: of the validators that sign the next height: the consensus rules C_h.
        header_hash: empty for one that was trusted from the start without its header.
        added_time, added_height: of the chain that runs the client, when this header was added.
    """

    height: int
    time: int
    root: bytes
    next_validators_hash: bytes
    header_hash: bytes = b""
    added_time: int = field(default=0, compare=False)
    added_height: int = field(default=0, compare=False)

    def agrees_with(self, other: TrustedHeader) -> bool:
        """Return whether both are of one header, as far as what is kept of them can say."""
        if self.header_hash and other.header_hash:
            return self.header_hash == other.header_hash
        return (self.time, self.root, self.next_validators_hash) == (other.time, other.root, other.next_validators_hash)


def require_fresh(trusted: TrustedHeader, options: TrustOptions, now: int) -> None:
    """Refuse a trusted header whose trusting period is over at ``now``.

    Raises:
        ClientExpired: it is.
    """
    # As deployed: over at the very instant.
    if trusted.time + options.trusting_period <= now:
        raise ClientExpired(
            f"trusted header {trusted.height} is {now - trusted.time} ns old, less than {options.trusting_period} is"
            " allowed"
        )


def verify_header(trusted: TrustedHeader, update: HeaderUpdate, options: TrustOptions, now: int) -> tuple[Step, ...]:
    """Verify the header of ``update`` by a trusted one below it, at the time ``now``; return the steps taken.

    Raises:
        ClientExpired: the trusted header is too old.
        NeedIntermediateHeader: too little of the trusted validators' power signed (``unknown``); the next height to try
            is in it. Never for the height that follows the trusted one.
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
    return verify_finality(trusted, update, options)


def verify_finality(trusted: TrustedHeader, update: HeaderUpdate, options: TrustOptions) -> tuple[Step, ...]:
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
    if believed.hash != trusted.next_validators_hash:
        raise InvalidHeader(
            f"trusted validators hash to {believed.hash.hex()}, trusted header {trusted.height} names"
            f" {trusted.next_validators_hash.hex()}"
        )
    check_signed_header(signed, options.chain_id, validators)
    steps = [
        Step("trusted", f"height {trusted.height}, next validators", trusted.next_validators_hash),
        Step("header", f"{header.chain_id} at height {header.height}", header.hash),
        Step("validators", f"{len(validators)} validators", validators.hash),
    ]
    unchanged = header.validators_hash == trusted.next_validators_hash
    if header.height == trusted.height + 1 and not unchanged:
        raise InvalidHeader(f"validators of header {header.height} are not those that the trusted header before names")
    # Whose power is said to have signed costs nothing to find out, and goes before the signatures.
    steps.append(require_power(signed.commit, validators, rule.same if unchanged else rule.new))
    if not unchanged:
        power = signed_power(signed.commit, validators, counted=believed)
        if not rule.trusted.is_met(power, believed.total_power):
            raise NeedIntermediateHeader(
                f"{power} of {believed.total_power} of the power trusted at height {trusted.height} signed header"
                f" {header.height}, {rule.trusted} is needed",
                trusted.height,
                (trusted.height + header.height) // 2,
            )
        steps.append(
            Step("overlap", f"{power} of {believed.total_power} of the trusted power, {rule.trusted} is needed")
        )
    steps.append(verify_signatures(signed.commit, options.chain_id, validators, first=believed))
    return tuple(steps)


def valid(trusted: TrustedHeader, update: HeaderUpdate, options: TrustOptions, now: int) -> Validity:
    """Return ``valid(T, U)`` of X-4, for callers that want the word; ``verify_header`` says the reason, too.

    Raises:
        ClientExpired: the trusted header is too old to say anything.
    """
    try:
        verify_header(trusted, update, options, now)
    except NeedIntermediateHeader:
        return Validity.UNKNOWN
    except InvalidHeader:
        return Validity.FALSE
    return Validity.TRUE
