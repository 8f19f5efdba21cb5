"""The rule by which a trusted header makes another one trusted (IBC reference X-4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from causeway.model.errors import InvalidInput
from causeway.proofs.steps import Step
from causeway.proofs.tendermint.commit import (
    MORE_THAN_TWO_THIRDS,
    Threshold,
    check_signed_header,
    require_power,
    signed_power,
    verify_signatures,
)
from causeway.proofs.tendermint.encoding import SECOND
from causeway.proofs.tendermint.errors import ClientExpired, InvalidHeader, NeedIntermediateHeader
from causeway.proofs.tendermint.header import Header, revision_of
from causeway.proofs.tendermint.update import HeaderUpdate


class Validity(Enum):
    """What ``valid(T, U)`` says: U is the chain's, it is not, or a header between has to be seen first."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class Anchor(Enum):
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
    anchor: Anchor


REFERENCE_RULE = TrustRule(
    same=MORE_THAN_TWO_THIRDS,
    new=Threshold(2, 3, at_least=True),
    trusted=Threshold(2, 3, at_least=True),
    anchor=Anchor.CURRENT,
)
"""X-4: more than 2/3 of an unchanged set; at least 2/3 of a new set and at least 2/3 of the trusted one."""


def deployed_rule(numerator: int = 1, denominator: int = 3) -> TrustRule:
    """Return the rule of deployed clients: more than 2/3 of the header's own validators, and a trust level.

    Raises:
        InvalidInput: the trust level is not one of 1/3 to 1.
    """
    if denominator < 1 or not denominator <= 3 * numerator <= 3 * denominator:
        raise InvalidInput(f"trust level is {numerator}/{denominator}, 1/3 to 1 is allowed")
    return TrustRule(MORE_THAN_TWO_THIRDS, MORE_THAN_TWO_THIRDS, Threshold(numerator, denominator), Anchor.NEXT)


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
        return revision_of(self.chain_id)


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

    def anchor(self, rule: TrustRule) -> Anchor:
        """Return whose signatures this header vouches for: as the rule says; the next ones' if only they are known."""
        return rule.anchor if self.validators_hash else Anchor.NEXT

    def anchor_hash(self, rule: TrustRule) -> bytes:
        """Return the hash of the validators whose signatures this header vouches for."""
        return self.validators_hash if self.anchor(rule) is Anchor.CURRENT else self.next_validators_hash

    def agrees_with(self, other: TrustedHeader) -> bool:
        """Return whether both are of one header, as far as what is kept of them can say."""
        if self.header_hash and other.header_hash:
            return self.header_hash == other.header_hash
        return (self.time, self.root, self.next_validators_hash) == (other.time, other.root, other.next_validators_hash)


def time_left(time: Any, period: Any, now: Any) -> Any:
    """Return for how long a header of a time is trusted from ``now`` on; 0 or less: no more."""
    return time + period - now


def is_over(time: Any, period: Any, now: Any) -> Any:
    """Return whether a header of a time is older than a period, in which it is trusted, at ``now``: numbers or columns.

    As deployed: over at the very instant.
    """
    return time + period <= now


def require_fresh(trusted: TrustedHeader, options: TrustOptions, now: int) -> None:
    """Refuse a trusted header whose trusting period is over at ``now``.

    Raises:
        ClientExpired: it is.
    """
    if is_over(trusted.time, options.trusting_period, now):
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
