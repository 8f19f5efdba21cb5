"""The light client of a remote chain: trust set, updates, misbehaviour (X-3, X-4, X-11).

No clock and no network: callers pass ``now``, and fetch the headers that the client names by height. Client and
consensus states convert to and from the protobuf forms that deployed chains store.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from operator import attrgetter

from causeway_proofs.errors import InvalidInput, MalformedProof
from causeway_proofs.protobuf import parse_canonical
from causeway_proofs.steps import Step
from causeway_proofs.tendermint import header
from causeway_proofs.tendermint.commit import verify_signatures
from causeway_proofs.tendermint.errors import (
    ConnectionFrozen,
    DelayNotElapsed,
    InvalidHeader,
    InvalidMisbehaviour,
    NeedIntermediateHeader,
    NoTrustedHeader,
)
from causeway_proofs.tendermint.header import (
    HASH_BYTES,
    MAX_APP_HASH_BYTES,
    MAX_CHAIN_ID_BYTES,
    bytes_field,
    message_field,
    number_field,
    parse_revision,
    require_parts,
    require_size,
)
from causeway_proofs.tendermint.trust import (
    HeaderUpdate,
    Misbehaviour,
    SignatureCheck,
    TrustAnchor,
    TrustedHeader,
    TrustOptions,
    deployed_rule,
    is_period_over,
    require_fresh,
    verify_finality,
    verify_header,
)
from causeway_proofs.wire import ibc_client_pb2
from causeway_proofs.wire import ibc_tendermint_pb2 as wire


@dataclass(frozen=True)
class ClientState:
    """A light client's settings (``ibc.lightclients.tendermint.v1.ClientState``).

    Attributes:
        chain_id: the remote chain.
        trust_numerator, trust_denominator: the trust level.
        trusting_period, unbonding_period, max_clock_drift: nanoseconds.
        frozen: (revision, height), (0, 0) unless frozen.
        latest: latest trusted (revision, height).
        proof_specs: encoded ICS-23 specs, innermost store first.
        upgrade_path: store path of upgrades.
        allow_update_after_expiry, allow_update_after_misbehaviour: obsolete flags, ignored.
    """

    chain_id: str
    trust_numerator: int
    trust_denominator: int
    trusting_period: int
    unbonding_period: int
    max_clock_drift: int
    frozen: tuple[int, int]
    latest: tuple[int, int]
    proof_specs: tuple[bytes, ...] = ()
    upgrade_path: tuple[str, ...] = ()
    allow_update_after_expiry: bool = False
    allow_update_after_misbehaviour: bool = False

    @property
    def options(self) -> TrustOptions:
        """Return the light client's options, with the deployed rule at this trust level."""
        rule = deployed_rule(self.trust_numerator, self.trust_denominator)
        return TrustOptions(self.chain_id, self.trusting_period, self.max_clock_drift, rule)


def decode_client_state(data: bytes) -> ClientState:
    """Decode the canonical protobuf form of a client state.

    Args:
        data: the encoding.

    Returns:
        The client state.

    Raises:
        MalformedProof: ``data`` is not one, not canonical, or has invalid values: a trust level outside of 1/3 to 1, a
            trusting period of 0 or not below the unbonding period, a latest height of another revision.
    """
    message = parse_canonical(wire.ClientState, data, "client state")
    durations = ("trusting_period", "unbonding_period", "max_clock_drift")
    require_parts(message, "a client state", "trust_level", *durations, "frozen_height", "latest_height")
    length = len(message.chain_id.encode())
    if not 1 <= length <= MAX_CHAIN_ID_BYTES:
        raise MalformedProof(f"chain_id of a client state has {length} bytes, 1..{MAX_CHAIN_ID_BYTES} are allowed")
    state = ClientState(
        chain_id=message.chain_id,
        trust_numerator=message.trust_level.numerator,
        trust_denominator=message.trust_level.denominator,
        trusting_period=header.duration_from_proto(message.trusting_period, "trusting_period of a client state"),
        unbonding_period=header.duration_from_proto(message.unbonding_period, "unbonding_period of a client state"),
        max_clock_drift=header.duration_from_proto(message.max_clock_drift, "max_clock_drift of a client state"),
        frozen=_height_of(message.frozen_height),
        latest=_height_of(message.latest_height),
        proof_specs=tuple(spec.SerializeToString(deterministic=True) for spec in message.proof_specs),
        upgrade_path=tuple(message.upgrade_path),
        allow_update_after_expiry=message.allow_update_after_expiry,
        allow_update_after_misbehaviour=message.allow_update_after_misbehaviour,
    )
    try:
        deployed_rule(state.trust_numerator, state.trust_denominator)
    except InvalidInput as error:
        raise MalformedProof(f"client state: {error}") from error
    if not 0 < state.trusting_period < state.unbonding_period:
        raise MalformedProof(
            f"trusting_period of a client state is {state.trusting_period} ns, more than 0 and less than the"
            f" unbonding_period of {state.unbonding_period} is allowed"
        )
    if state.latest[0] != parse_revision(state.chain_id):
        raise MalformedProof(f"latest_height of a client state is of revision {state.latest[0]} of {state.chain_id!r}")
    return state


def encode_client_state(state: ClientState) -> bytes:
    """Encode a client state in protobuf.

    Args:
        state: the client state.

    Returns:
        The encoding.
    """
    durations = (state.trusting_period, state.unbonding_period, state.max_clock_drift)
    level = number_field(1, state.trust_numerator) + number_field(2, state.trust_denominator)
    return b"".join(
        (
            bytes_field(1, state.chain_id.encode()),
            message_field(2, level),
            *[message_field(3 + position, header.timestamp(value)) for position, value in enumerate(durations)],
            message_field(6, _encoded_height(state.frozen)),
            message_field(7, _encoded_height(state.latest)),
            *[message_field(8, spec) for spec in state.proof_specs],
            *[message_field(9, part.encode()) for part in state.upgrade_path],
            number_field(10, state.allow_update_after_expiry),
            number_field(11, state.allow_update_after_misbehaviour),
        )
    )


def decode_consensus_state(data: bytes, height: int) -> TrustedHeader:
    """Decode a ``ibc.lightclients.tendermint.v1.ConsensusState`` of a trusted height.

    Args:
        data: the encoding.
        height: the trusted height.

    Returns:
        The trusted header.

    Raises:
        MalformedProof: ``data`` is not one, or not canonical.
    """
    message = parse_canonical(wire.ConsensusState, data, "consensus state")
    require_parts(message, "a consensus state", "timestamp", "root")
    require_size(message.next_validators_hash, "next_validators_hash of a consensus state", HASH_BYTES)
    if not 1 <= len(message.root.hash) <= MAX_APP_HASH_BYTES:
        raise MalformedProof(
            f"root of a consensus state has {len(message.root.hash)} bytes, 1..{MAX_APP_HASH_BYTES} are allowed"
        )
    time = header.time_from_proto(message.timestamp, "timestamp of a consensus state")
    return TrustedHeader(height, time, message.root.hash, message.next_validators_hash)


def encode_consensus_state(trusted: TrustedHeader) -> bytes:
    """Encode the consensus state of a trusted header in protobuf.

    Args:
        trusted: the trusted header.

    Returns:
        The encoding.
    """
    return b"".join(
        (
            message_field(1, header.timestamp(trusted.time)),
            message_field(2, bytes_field(1, trusted.root)),
            bytes_field(3, trusted.next_validators_hash),
        )
    )


def _height_of(message: ibc_client_pb2.Height) -> tuple[int, int]:
    return message.revision_number, message.revision_height


def _encoded_height(height: tuple[int, int]) -> bytes:
    return number_field(1, height[0]) + number_field(2, height[1])


NO_HEIGHT = 2**64
"""Height above all heights."""

_height = attrgetter("height")


class ClientStatus(Enum):
    """Usability of a client (X-11): active, expired, or frozen until governance decides."""

    ACTIVE = "active"
    EXPIRED = "expired"
    FROZEN = "frozen"


class UpdateOutcome(Enum):
    """Effect of an accepted update: header added, known already, or client frozen."""

    ADDED = "added"
    KNOWN = "known"
    FROZEN = "frozen"


@dataclass(frozen=True)
class UpdateResult:
    """An accepted update.

    Attributes:
        outcome: its effect.
        steps: the verification steps.
    """

    outcome: UpdateOutcome
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class WantedHeader:
    """A header for a relay to fetch.

    Attributes:
        height: height of the header.
        trusted_height: trusted height that the update builds on.
        validators_height: height of the validators to send as trusted ones: see ``TrustAnchor``.
    """

    height: int
    trusted_height: int
    validators_height: int


class TrustSet:
    """The trusted headers of one chain by height; subclasses may store them elsewhere.

    Args:
        headers: the initial headers.
    """

    __slots__ = ("_headers",)

    def __init__(self, headers: Iterable[TrustedHeader] = ()) -> None:
        self._headers = sorted({header.height: header for header in headers}.values(), key=_height)

    def __bool__(self) -> bool:
        return bool(self._headers)

    @property
    def heights(self) -> tuple[int, ...]:
        """Return the heights, ascending."""
        return tuple(header.height for header in self._headers)

    def get(self, height: int) -> TrustedHeader | None:
        """Return the header of a height, or None.

        Args:
            height: the height.

        Returns:
            The header, or None.
        """
        row = bisect_left(self._headers, height, key=_height)
        return self._headers[row] if row < len(self._headers) and self._headers[row].height == height else None

    def below(self, height: int) -> TrustedHeader | None:
        """Return the header of the greatest height below ``height``, or None.

        Args:
            height: exclusive bound.

        Returns:
            The header, or None.
        """
        row = bisect_left(self._headers, height, key=_height)
        return self._headers[row - 1] if row else None

    def above(self, height: int) -> TrustedHeader | None:
        """Return the header of the least height above ``height``, or None.

        Args:
            height: exclusive bound.

        Returns:
            The header, or None.
        """
        row = bisect_right(self._headers, height, key=_height)
        return self._headers[row] if row < len(self._headers) else None

    def add(self, header: TrustedHeader) -> None:
        """Add a header, replacing any of the same height.

        Args:
            header: the header.
        """
        row = bisect_left(self._headers, header.height, key=_height)
        here = row < len(self._headers) and self._headers[row].height == header.height
        self._headers[row : row + here] = [header]


class LightClient:
    """The trust set T of a remote chain. A call that raises leaves it unchanged.

    Args:
        options: the remote chain, the periods and the rule.
        trusted: initial trusted headers (the root of trust), at least one; or the trust set itself.
        frozen: initial state.
    """

    __slots__ = ("_trusted", "frozen", "options")

    def __init__(
        self, options: TrustOptions, trusted: Iterable[TrustedHeader] | TrustSet, frozen: bool = False
    ) -> None:
        self.options = options
        self.frozen = frozen
        self._trusted = trusted if isinstance(trusted, TrustSet) else TrustSet(trusted)
        if not self._trusted:
            raise InvalidInput("a light client has no header to trust, one at least is needed")

    @classmethod
    def from_states(cls, client_state: ClientState, trusted: TrustedHeader) -> LightClient:
        """Build a client from the states that a deployed chain stores.

        Args:
            client_state: the client state.
            trusted: the decoded consensus state.

        Returns:
            The client.
        """
        return cls(client_state.options, [trusted], frozen=client_state.frozen != (0, 0))

    def copy(self) -> LightClient:
        """Return an independent client with the same trust set."""
        headers = [self.trusted(height) for height in self.heights]
        return LightClient(self.options, headers, self.frozen)

    @property
    def heights(self) -> tuple[int, ...]:
        """Return the trusted heights, ascending."""
        return self._trusted.heights

    @property
    def latest(self) -> TrustedHeader:
        """Return the trusted header of the greatest height."""
        return self.trusted_below(NO_HEIGHT)

    def trusts(self, height: int) -> bool:
        """Return True if the client trusts a header of ``height``.

        Args:
            height: height of the remote chain.

        Returns:
            True if a header of that height is trusted.
        """
        return self._trusted.get(height) is not None

    def trusted(self, height: int) -> TrustedHeader:
        """Return the trusted header of a height.

        Args:
            height: height of the remote chain.

        Returns:
            The header.

        Raises:
            NoTrustedHeader: no header of that height is trusted.
        """
        found = self._trusted.get(height)
        if found is None:
            raise NoTrustedHeader(f"no header of {self.options.chain_id} is trusted for height {height}")
        return found

    def trusted_below(self, height: int) -> TrustedHeader:
        """Return the trusted header of the greatest height below ``height``, the base of an update.

        Args:
            height: exclusive bound.

        Returns:
            The header.

        Raises:
            NoTrustedHeader: no header below is trusted.
        """
        found = self._trusted.below(height)
        if found is None:
            raise NoTrustedHeader(f"no header of {self.options.chain_id} is trusted below height {height}")
        return found

    def wanted(self, height: int) -> WantedHeader:
        """Return the header to fetch for an update to ``height``.

        Args:
            height: target height.

        Returns:
            The header's heights.

        Raises:
            NoTrustedHeader: no header below is trusted.
        """
        base = self.trusted_below(height)
        next_one = base.anchor(self.options.rule) is TrustAnchor.NEXT
        return WantedHeader(height, base.height, base.height + next_one)

    def status(self, now: int) -> ClientStatus:
        """Return the client's status at ``now``.

        Args:
            now: nanoseconds since 1970.

        Returns:
            The status.
        """
        if self.frozen:
            return ClientStatus.FROZEN
        over = is_period_over(self.latest.time, self.options.trusting_period, now)
        return ClientStatus.EXPIRED if over else ClientStatus.ACTIVE

    def require_active(self, now: int) -> None:
        """Require that the client is active at ``now``.

        Args:
            now: nanoseconds since 1970.

        Raises:
            ConnectionFrozen, ClientExpired: the client is frozen or expired.
        """
        self._require_not_frozen()
        require_fresh(self.latest, self.options, now)

    def root(self, height: int, now: int, delay: int = 0, block_height: int = 0, block_delay: int = 0) -> bytes:
        """Return the root for proofs of ``height``.

        Args:
            height: height of the remote chain.
            now: time of the proof's use, nanoseconds since 1970.
            delay: minimal time since the header was added, nanoseconds (X-11).
            block_height: local height of the proof's use.
            block_delay: minimal number of local blocks since the header was added.

        Returns:
            The root.

        Raises:
            ConnectionFrozen, ClientExpired: the client is frozen or expired.
            NoTrustedHeader: no header of that height is trusted.
            DelayNotElapsed: the header was added too recently.
        """
        self.require_active(now)
        header = self.trusted(height)
        if delay and now < header.added_time + delay:
            raise DelayNotElapsed(
                f"header {height} was added {now - header.added_time} ns ago, {delay} must have passed"
            )
        if block_delay and block_height < header.added_height + block_delay:
            raise DelayNotElapsed(
                f"header {height} was added {block_height - header.added_height} blocks ago, {block_delay} must have"
                " passed"
            )
        return header.root

    def valid(self, update: HeaderUpdate, now: int, signatures: SignatureCheck = verify_signatures) -> tuple[Step, ...]:
        """Verify the header of ``update`` without changing the client: ``valid(T, U)``.

        Args:
            update: the header, its validators and its base.
            now: nanoseconds since 1970.
            signatures: verifier of the commit's signatures (see ``verify_header``).

        Returns:
            The steps.

        Raises:
            ConnectionFrozen: the client is frozen.
            NoTrustedHeader: the base height is not trusted.
            ClientExpired: the base is too old.
            InvalidHeader, NeedIntermediateHeader: as ``verify_header``.
        """
        self._require_not_frozen()
        return verify_header(self.trusted(update.trusted_height), update, self.options, now, signatures)

    def update(self, update: HeaderUpdate, now: int, block_height: int = 0) -> UpdateResult:
        """Verify and add the header of ``update``: ``updateHeader`` (IBC reference 3.1).

        Two different valid headers of one height freeze the client, as does a header whose time is not between those of
        its neighbors in the trust set. This is an outcome, not an error.

        Args:
            update: the header, its validators and its base.
            now: local time, nanoseconds since 1970.
            block_height: local height.

        Returns:
            Outcome and steps.

        Raises:
            ConnectionFrozen, NoTrustedHeader, ClientExpired, InvalidHeader, NeedIntermediateHeader: as ``valid``.
        """
        steps = self.valid(update, now)
        return UpdateResult(self.trust(TrustedHeader.of(update.signed_header.header, now, block_height)), steps)

    def trust(self, found: TrustedHeader) -> UpdateOutcome:
        """Add a header verified by ``valid``.

        Args:
            found: the header.

        Returns:
            The outcome, as of ``update``.
        """
        known = self._trusted.get(found.height)
        if known is not None and known.agrees_with(found):
            if not known.header_hash:
                # Known from a consensus state only: add its validators hash and header hash.
                self._trusted.add(replace(found, added_time=known.added_time, added_height=known.added_height))
            return UpdateOutcome.KNOWN
        if known is not None or not self._is_in_time(found):
            self.freeze()
            return UpdateOutcome.FROZEN
        self._trusted.add(found)
        return UpdateOutcome.ADDED

    def freeze(self) -> None:
        """Freeze the client: nothing builds on its trust set any more (X-3)."""
        self.frozen = True

    def submit_misbehaviour(self, misbehaviour: Misbehaviour, now: int) -> tuple[Step, ...]:
        """Freeze the client if the chain signed two contradicting headers (X-3).

        Headers contradict each other if they have one height and differ, or if the higher one is not later.

        Args:
            misbehaviour: the two headers.
            now: nanoseconds since 1970.

        Returns:
            The steps.

        Raises:
            ConnectionFrozen: the client is frozen already.
            InvalidMisbehaviour: the headers do not contradict each other, or the lower one comes first.
            NoTrustedHeader, ClientExpired, InvalidHeader, NeedIntermediateHeader: a header cannot be verified.
        """
        self._require_not_frozen()
        first, second = misbehaviour.header_1.signed_header.header, misbehaviour.header_2.signed_header.header
        if first.height < second.height:
            raise InvalidMisbehaviour(
                f"first header has height {first.height}, at least the second one's, {second.height}, is allowed"
            )
        if first.height == second.height and first.hash == second.hash:
            raise InvalidMisbehaviour(f"both headers of height {first.height} are the same")
        if first.height > second.height and first.time > second.time:
            raise InvalidMisbehaviour(
                f"headers {first.height} and {second.height} are in the order of their times, no contradiction"
            )
        steps: list[Step] = []
        for update in (misbehaviour.header_1, misbehaviour.header_2):
            base = self.trusted(update.trusted_height)
            require_fresh(base, self.options, now)
            if update.height <= base.height:
                raise InvalidHeader(f"header has height {update.height}, the trusted one {base.height}")
            steps.extend(verify_finality(base, update, self.options))
        self.freeze()
        return tuple(steps)

    def prune(self, now: int) -> tuple[int, ...]:
        """Remove headers that are too old to build on, except the latest.

        Args:
            now: nanoseconds since 1970.

        Returns:
            The removed heights.
        """
        *older, _ = self.heights
        expired = [
            height for height in older if is_period_over(self.trusted(height).time, self.options.trusting_period, now)
        ]
        if expired:
            self._trusted = TrustSet(map(self.trusted, set(self.heights).difference(expired)))
        return tuple(expired)

    def _is_in_time(self, found: TrustedHeader) -> bool:
        below, above = self._trusted.below(found.height), self._trusted.above(found.height)
        return (below is None or below.time < found.time) and (above is None or found.time < above.time)

    def _require_not_frozen(self) -> None:
        if self.frozen:
            raise ConnectionFrozen(f"the light client of {self.options.chain_id} is frozen")


def bisect_headers(client: LightClient, target: int, now: int) -> Generator[WantedHeader, HeaderUpdate, int]:
    """Update ``client`` to height ``target``, through intermediate headers if needed.

    The generator yields a header to fetch and receives the update to it::

        steps = bisect_headers(client, target, now)
        wanted = next(steps)
        ... wanted = steps.send(fetch(wanted)) ... until StopIteration

    Args:
        client: the client.
        target: height to trust.
        now: nanoseconds since 1970.

    Yields:
        The header to fetch.

    Returns:
        The number of updates.

    Raises:
        InvalidHeader: an update is not to the requested height, or invalid.
        NoTrustedHeader, ClientExpired, ConnectionFrozen: as ``LightClient.update``.
    """
    tried = 0
    pending = [target]
    while pending:
        height = pending[-1]
        if client.trusts(height):
            pending.pop()
            continue
        update = yield client.wanted(height)
        tried += 1
        if update.height != height:
            raise InvalidHeader(f"update is to height {update.height}, the one to height {height} is wanted")
        try:
            updated = client.update(update, now)
        except NeedIntermediateHeader as need:
            pending.append(need.height)
            continue
        if updated.outcome is UpdateOutcome.FROZEN:
            raise ConnectionFrozen(f"header {height} of {client.options.chain_id} froze its light client")
        pending.pop()
    return tried
