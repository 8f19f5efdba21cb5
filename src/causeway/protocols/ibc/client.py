"""Light clients in bulk: certification of zones and trust in the headers of others.

``causeway_proofs.tendermint`` implements the light client itself. This module adds:

- a cache of verified headers and of a network's own headers, decoded once for all zones. Unverified headers are not
  cached, so invalid submissions occupy memory for one block at most;
- the trust sets of many connections as rows of one trust table (IBC reference X-4);
- the validators of zones by height, and their keys (IBC reference 2.5, X-4).

Without ``rotation`` a zone has one validator set forever. With it, some seats change hands every few blocks, in a
cyclic order drawn from the network's seed. The set of a height follows from the height alone.

Simulated keys derive from the seed, so they are secret to nobody. For zones that are served, or that another lake runs,
the options list the public keys (``validator_keys``) and files hold the secret ones.

Reference:
    IBC reference 3.1, X-3, X-4.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from causeway_proofs.errors import InvalidInput, NotProven
from causeway_proofs.hashing import DIGEST_BYTES, Digests
from causeway_proofs.order import U64, group_rows, stable_order
from causeway_proofs.steps import Step
from causeway_proofs.tendermint.building import SignedSeries, create_validators
from causeway_proofs.tendermint.commit import Commit, verify_signatures
from causeway_proofs.tendermint.errors import (
    ClientExpired,
    ConnectionFrozen,
    InvalidHeader,
    InvalidMisbehaviour,
    NeedIntermediateHeader,
    NoTrustedHeader,
)
from causeway_proofs.tendermint.light_client import ClientStatus, LightClient, TrustSet
from causeway_proofs.tendermint.trust import (
    HeaderUpdate,
    Misbehaviour,
    SignatureCheck,
    TrustedHeader,
    TrustOptions,
    decode_header_update,
    is_period_over,
)
from causeway_proofs.tendermint.validators import PublicKey, SigningKey, Validator, ValidatorSet

from causeway.core.frame import Frame, concat
from causeway.core.joins import encode_keys
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.leaves import find_row
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.state import (
    CONNECTION,
    FROZEN,
    TRUST_SCHEMA,
    State,
    connection_key,
    connection_keys,
    connection_rows,
    is_frozen,
)
from causeway.protocols.shared.secrets import Secrets

KEPT_BYTES = 2 << 20
"""Bytes of cached headers: about 1,700 headers of four validators.

Decoded they take 15 times as much.
"""

LAST_BYTES = 64 << 10
"""Maximum size of the last header read, which is cached unverified for all steps of a call."""

Value = TypeVar("Value")

_updates: LRUCache[bytes, tuple[HeaderUpdate, int]] = LRUCache(KEPT_BYTES, getsizeof=lambda kept: kept[1])
_signatures: LRUCache[bytes, tuple[tuple[str, Step], int]] = LRUCache(KEPT_BYTES, getsizeof=lambda kept: kept[1])
_lock = threading.Lock()
_last: list[tuple[bytes, HeaderUpdate]] = []


def _get(cache: LRUCache[bytes, tuple[Value, int]], certification: bytes) -> Value | None:
    with _lock:
        found = cache.get(certification)
    return None if found is None else found[0]


def _put(cache: LRUCache[bytes, tuple[Value, int]], certification: bytes, value: Value) -> None:
    with _lock:
        cache[certification] = value, min(len(certification), KEPT_BYTES)


def read_header(certification: bytes) -> HeaderUpdate:
    """Decode a submitted header without verifying it.

    Raises:
        ProofError: The bytes are no header.
    """
    known = _get(_updates, certification)
    if known is not None:
        return known
    for last, update in tuple(_last):
        if last == certification:
            return update
    found = decode_header_update(certification)
    _last[:] = [(certification, found)] if len(certification) <= LAST_BYTES else []
    return found


def read_own_header(certification: bytes) -> HeaderUpdate:
    """Decode and cache a header of a zone of this network."""
    found = read_header(certification)
    _put(_updates, certification, found)
    return found


def cache_header(certification: bytes, update: HeaderUpdate) -> None:
    """Cache a header that a light client has verified."""
    _put(_updates, certification, update)


def cached_signature_check(certification: bytes) -> SignatureCheck:
    """Return a signature check that verifies a header once for all zones."""

    def check(commit: Commit, chain_id: str, own: ValidatorSet, first: ValidatorSet | None = None) -> Step:
        known = _get(_signatures, certification)
        if known is not None and known[0] == chain_id:
            return known[1]
        step = verify_signatures(commit, chain_id, own, first=first)
        _put(_signatures, certification, (chain_id, step))
        return step

    return check


_HASHES = ("next_validators_hash", "validators_hash", "header_hash")
"""Columns of hashes, in the order of ``TrustedHeader``."""


class TrustTable:
    """The headers of a trust table. Equal headers of different connections are one object."""

    def __init__(self, trust: Frame) -> None:
        self.heights: U64 = trust["height"]
        self._columns = [trust[name] for name in ("time", "root", *_HASHES, "added_time", "added")]
        self._of_row: dict[int, TrustedHeader] = {}
        self._same: dict[tuple[Any, ...], TrustedHeader] = {}

    def header(self, row: int) -> TrustedHeader:
        """Return the header of a row."""
        found = self._of_row.get(row)
        if found is None:
            time, root, following, own, header, added_time, added = self._columns
            hashes = following[row].tobytes(), own[row].tobytes(), header[row].tobytes()
            times = added_time.item(row), added.item(row)
            values = self.heights.item(row), time.item(row), root[row].tobytes(), *hashes, *times
            found = self._same.get(values)
            if found is None:
                found = self._same[values] = TrustedHeader(*values)
            self._of_row[row] = found
        return found


class TrustRows(TrustSet):
    """The trusted headers of a connection.

    These are rows ``start`` to ``stop`` - 1 of a trust table, and added ones.
    """

    __slots__ = ("_last", "_start", "_stop", "_table")

    def __init__(self, table: TrustTable, start: int, stop: int) -> None:
        super().__init__()
        self._table, self._start, self._stop = table, start, stop
        self._last: int = table.heights.item(stop - 1)

    def __bool__(self) -> bool:
        return self._stop > self._start or super().__bool__()

    @property
    def added(self) -> list[TrustedHeader]:
        """Return the added headers, ascending by height."""
        return self._headers

    @property
    def heights(self) -> tuple[int, ...]:
        """Return the heights, ascending."""
        return tuple(sorted({*super().heights, *self._table.heights[self._start : self._stop].tolist()}))

    def get(self, height: int) -> TrustedHeader | None:
        """Return the header of a height, or None."""
        if self._headers and self._headers[-1].height == height:  # mostly
            return self._headers[-1]
        found = super().get(height)
        if found is not None or height > self._last:
            return found
        own = self._table.header(self._row(height))
        return own if own.height == height else None

    def below(self, height: int) -> TrustedHeader | None:
        """Return the newest header below ``height``, or None."""
        row = self._row(height)
        own = self._table.header(row - 1) if row > self._start else None
        found = super().below(height) if self._headers else None
        return own if found is None or (own is not None and own.height > found.height) else found

    def above(self, height: int) -> TrustedHeader | None:
        """Return the oldest header above ``height``, or None."""
        row = self._row(height + 1)
        own = self._table.header(row) if row < self._stop else None
        found = super().above(height) if self._headers else None
        return own if found is None or (own is not None and own.height < found.height) else found

    def _row(self, height: int) -> int:
        """Return the first row with a height of at least ``height``."""
        if self._last <= height:  # mostly
            return self._stop - (self._last == height)
        heights = self._table.heights[self._start : self._stop]
        return self._start + int(np.searchsorted(heights, np.uint64(height)))


POWER = 10
"""Voting power of each validator of a zone."""

Members = tuple[ValidatorSet, dict[bytes, SigningKey]]
"""A validator set, and the signing keys of its validators by address."""


@lru_cache(maxsize=4096)
def _members(seed: int, chain_id: str, seats: tuple[int, ...]) -> Members:
    """Create the validator set of ``seats``: for each seat, its number of changes so far."""
    names = [f"{seat}" if not changes else f"{seat}/{changes}" for seat, changes in enumerate(seats)]
    return create_validators({SigningKey.from_name(f"causeway/{seed}/{chain_id}/{name}"): POWER for name in names})


@lru_cache(maxsize=4096)
def _turns(seed: int, chain_id: str, count: int) -> tuple[int, ...]:
    """Return the rank of each seat in the zone's random order of changes."""
    draws = [sha256(f"causeway/{seed}/{chain_id}/seats/{seat}".encode()).digest() for seat in range(count)]
    order = sorted(range(count), key=draws.__getitem__)
    return tuple(sorted(range(count), key=order.__getitem__))


def seats_at(seed: int, chain_id: str, height: int, options: IbcOptions) -> tuple[int, ...]:
    """Return the number of changes of each seat of a zone's set up to the block of a height."""
    count, rotation = options.validators, options.rotation
    if not rotation.every:
        return (0,) * count
    changes = height // rotation.every * rotation.replace
    return tuple((changes - turn + count - 1) // count for turn in _turns(seed, chain_id, count))


def validators_at(seed: int, chain_id: str, height: int, options: IbcOptions) -> Members:
    """Return the validators that sign a zone's block of a height, and their keys."""
    return _members(seed, chain_id, seats_at(seed, chain_id, height, options))


@lru_cache(maxsize=4096)
def listed_validators(listed: tuple[str, ...], secrets: Secrets) -> Members:
    """Return the set of the listed public keys, with the available secret keys."""
    publics = [bytes.fromhex(public) for public in listed]
    validators = ValidatorSet.of(Validator(PublicKey(public), POWER) for public in publics)
    keys = [SigningKey(secrets.seeds[public]) for public in publics if public in secrets.seeds]
    return validators, {key.public_key.address: key for key in keys}


def require_keys(chain_id: str, options: IbcOptions, secrets: Secrets) -> None:
    """Check that more than two thirds of a zone's listed validators can sign.

    Raises:
        InvalidInput: Too few secret keys are available.
    """
    listed = options.validator_keys.get(chain_id)
    if listed is not None:
        here = sum(bytes.fromhex(public) in secrets.seeds for public in listed)
        if 3 * here <= 2 * len(listed):
            text = f"{chain_id}: secret keys of {here} of its {len(listed)} validators are here, more than two thirds"
            text = f"{text} must be: causeway serve --validator-key {chain_id}=FILE"
            raise InvalidInput(f"options.validator_keys: {text}")


def validators_of_zone(chain: int, height: int, context: Context) -> Members:
    """Return the validators that sign the block of a height of the zone at a position."""
    listed = context.options.validator_keys.get(context.zones.names[chain])
    if listed is not None:
        return listed_validators(listed, context.secrets)
    return validators_at(context.seed, context.zones.names[chain], height, context.options)


def series_of_zone(chain: int, height: int, context: Context) -> SignedSeries:
    """Return the series of signed headers that contains a height of the zone at a position."""
    name, options = context.zones.names[chain], context.options
    if name in options.validator_keys:
        return _listed_series(name, options.validator_keys[name], context.secrets)
    seats = (seats_at(context.seed, name, at, options) for at in (max(height - 1, 0), height, height + 1))
    return _series(context.seed, name, *seats)


@lru_cache(maxsize=4096)
def _series(
    seed: int, chain_id: str, before: tuple[int, ...], now: tuple[int, ...], following: tuple[int, ...]
) -> SignedSeries:
    own, keys = _members(seed, chain_id, now)
    trusted, after = (_members(seed, chain_id, seats)[0] for seats in (before, following))
    return SignedSeries(chain_id, own, after, trusted, keys)


@lru_cache(maxsize=4096)
def _listed_series(chain_id: str, listed: tuple[str, ...], secrets: Secrets) -> SignedSeries:
    own, keys = listed_validators(listed, secrets)
    return SignedSeries(chain_id, own, own, own, keys)


def needs_header_between(chain: int, trusted: int, height: int, context: Context) -> bool:
    """Return True if too few signers of block ``trusted`` signed block ``height`` (X-4).

    All members sign with equal power. Consecutive heights never need a header between them.
    """
    before, after = (
        seats_at(context.seed, context.zones.names[chain], at, context.options) for at in (trusted, height)
    )
    if height <= trusted + 1 or before == after:
        return False
    unchanged = sum(one == other for one, other in zip(before, after, strict=True))
    return 3 * unchanged < 2 * len(before)


def headers_between(chain: int, trusted: int, height: int, context: Context) -> list[int]:
    """Return the heights of headers that bisection to ``height`` may need, ascending."""
    if not needs_header_between(chain, trusted, height, context):
        return []
    middle = (trusted + height) // 2
    parts = headers_between(chain, trusted, middle, context), headers_between(chain, middle, height, context)
    return [*parts[0], middle, *parts[1]]


NO_ROOT = bytes(DIGEST_BYTES)
"""The root of the root of trust: it vouches for validators; nothing is proved at height 0."""


def genesis_trust(chains: Any, context: Context) -> Frame:
    """Return the trust sets of ``chains`` at genesis: the counterparties' roots of trust."""
    chain, counterparty = context.zones.connections
    mine = np.isin(chain, chains)
    chain, counterparty = chain[mine], counterparty[mine]
    remotes = np.unique(counterparty)
    of_row = np.searchsorted(remotes, counterparty)
    current, following = (
        _digests(validators_of_zone(remote, height, context)[0].hash for remote in remotes.tolist())
        for height in (0, 1)
    )
    nothing = np.zeros((len(chain), DIGEST_BYTES), dtype=np.uint8)
    zero = np.zeros(len(chain), dtype=np.uint64)
    return Frame(
        {
            "chain": chain,
            "counterparty": counterparty,
            "height": zero,
            "time": zero,
            "added": zero,
            "added_time": zero,
            "root": nothing,
            "validators_hash": current[of_row],
            "next_validators_hash": following[of_row],
            "header_hash": nothing,
        },
        len(chain),
    )


def certify(roots: Digests, context: Context) -> pa.BinaryArray:
    """Sign the headers of ``context.chains`` for ``roots``.

    Each is returned with its validators, encoded.
    """
    return pa.array(
        [
            _signed(chain, context.height, context.time, root.tobytes(), context)
            for chain, root in zip(context.chains.tolist(), roots, strict=True)
        ],
        pa.binary(),
    )


def _signed(chain: int, height: int, time: int, root: bytes, context: Context) -> bytes:
    return series_of_zone(chain, height, context).update(height, time, root)


def conflicting_header(certification: bytes, chain: int, context: Context) -> bytes:
    """Sign a second header of the same zone and height with another root, as on a fork."""
    first = read_own_header(certification).signed_header.header
    root = bytes([first.app_hash[0] ^ 1]) + first.app_hash[1:]
    return _signed(chain, first.height, first.time, root, context)


def build_evidence(first: bytes, second: bytes) -> bytes:
    """Encode the evidence that a zone has signed two headers (X-3)."""
    return Misbehaviour(read_header(first), read_header(second)).encode()


def trust_row(chain: int, counterparty: int, header: bytes, context: Context) -> Frame:
    """Return the trust table row of a header that a zone decided to trust in this block."""
    found = TrustedHeader.of(read_header(header).signed_header.header, context.time, context.height)
    return _rows({(chain, counterparty): [found]})


def header_times(headers: Frame) -> dict[int, int]:
    """Return the time (ns) of each zone's signed header, by position."""
    signed = zip(headers["chain"].tolist(), headers["certification"].to_pylist(), strict=True)
    return {chain: read_own_header(data).signed_header.header.time for chain, data in signed if data}


def newest_times(state: State) -> U64:
    """Return the time (ns) of the newest trusted header of each row of ``connections``."""
    connections, trust = state.connections, state.trust
    keys, wanted = encode_keys(CONNECTION, trust, connections)
    newest = np.searchsorted(keys, wanted, side="right") - 1
    times: U64 = trust["time"][newest]
    return times


class Clients:
    """The light clients of a block's zones: one trust set per connection."""

    def __init__(self, state: State, context: Context) -> None:
        self._context = context
        self._trust = state.trust
        self._connections = state.connections
        frozen = state.connections.filter(is_frozen(state.connections))
        self._frozen_before = frozenset(zip(*(frozen[name].tolist() for name in CONNECTION), strict=True))
        self._frozen = set(self._frozen_before)
        # Each connection's rows of the trust table lie together.
        self._lanes = connection_keys(state.trust)
        self._trusts: dict[tuple[int, int], TrustRows] = {}
        self._options: dict[int, TrustOptions] = {}
        self._headers = TrustTable(state.trust)
        self._offered: dict[tuple[int, int, bytes], tuple[TrustedHeader, TrustedHeader | Refusal]] = {}
        self._period, self._delay = context.options.trusting_ns, context.options.delay_ns

    def root(self, chain: int, counterparty: int, height: int) -> bytes | None:
        """Return the root of the trusted header of a height, or None."""
        found = self._trusted((chain, counterparty)).get(height)
        return None if found is None else found.root

    def time(self, chain: int, counterparty: int, height: int) -> int:
        """Return the time (ns) of the trusted header of a height, or 0."""
        found = self._trusted((chain, counterparty)).get(height)
        return 0 if found is None else found.time

    def expired(self, chain: int, counterparty: int, height: int) -> bool:
        """Return True if the trusted header of a height is too old to use (X-4)."""
        found = self._trusted((chain, counterparty)).get(height)
        return found is not None and bool(is_period_over(found.time, self._period, self._context.time))

    def delayed(self, chain: int, counterparty: int, height: int) -> bool:
        """Return True if the trusted header of a height was added too recently to use (X-11)."""
        if not self._delay:
            return False
        found = self._trusted((chain, counterparty)).get(height)
        return found is not None and self._context.time < found.added_time + self._delay

    def trusted_below(self, chain: int, counterparty: int, height: int) -> int | None:
        """Return the greatest trusted height below ``height``, or None."""
        if counterparty < 0 or find_row(self._lanes, connection_key(chain, counterparty)) < 0:
            return None
        found = self._trusted((chain, counterparty)).below(height)
        return None if found is None else found.height

    def frozen(self, chain: int, counterparty: int) -> bool:
        """Return True if the connection is frozen."""
        return (chain, counterparty) in self._frozen

    def update_header(self, chain: int, counterparty: int, header: bytes) -> Refusal:
        """Submit a header of a counterparty to its light client (``updateHeader``, 3.1).

        Returns:
            ``ACCEPTED``, also for a header that contradicts a trusted one and so freezes the connection (X-3); ``NoOp``
            for a header that is trusted already; else the reason of refusal.
        """
        pair, offered = (chain, counterparty), read_header(header)
        client = LightClient(self._options_of(counterparty), self._trusted(pair), pair in self._frozen)
        if client.status(self._context.time) is ClientStatus.EXPIRED:
            return Refusal.ClientExpired
        if offered.signed_header.header.chain_id != client.options.chain_id:
            return Refusal.InvalidHeader
        trusted = self._trusted(pair).get(offered.height)
        if trusted is not None and trusted.header_hash == offered.signed_header.header.hash:
            return Refusal.NoOp
        try:
            base = client.trusted_below(offered.height)
        except NoTrustedHeader as error:
            return _refusal(error)
        found = self._verified(client, counterparty, base, header)
        if isinstance(found, Refusal):
            return found
        client.trust(found)
        if client.frozen:
            self._frozen.add(pair)
        return Refusal.ACCEPTED

    def submit_misbehaviour(self, chain: int, counterparty: int, evidence: Misbehaviour) -> Refusal:
        """Freeze a connection if two headers prove its fork (``submitMisbehaviour``, X-3)."""
        pair = (chain, counterparty)
        client = LightClient(self._options_of(counterparty), self._trusted(pair), pair in self._frozen)
        first, second = (self._on_trusted(pair, header) for header in (evidence.header_1, evidence.header_2))
        try:
            client.submit_misbehaviour(Misbehaviour(first, second), self._context.time)
        except (*REFUSED, InvalidMisbehaviour) as error:
            return _refusal(error)
        self._frozen.add(pair)
        return Refusal.ACCEPTED

    def _on_trusted(self, pair: tuple[int, int], offered: HeaderUpdate) -> HeaderUpdate:
        """Return a header as an update of the next trusted one below it, if there is one."""
        base = self._trusted(pair).below(offered.height)
        if base is None:
            return replace(offered, trusted_height=max(offered.height - 1, 0))
        return self._on(base, pair[1], offered)

    def _on(self, base: TrustedHeader, counterparty: int, offered: HeaderUpdate) -> HeaderUpdate:
        """Return a header as an update of a trusted one, with the validators of the latter."""
        believed = offered.trusted_validators
        if believed.hash != base.validators_hash:
            believed, _ = validators_of_zone(counterparty, base.height, self._context)
        return HeaderUpdate.on(base.height, believed, offered.signed_header, offered.validators)

    def _verified(
        self, client: LightClient, counterparty: int, base: TrustedHeader, header: bytes
    ) -> TrustedHeader | Refusal:
        """Return a header as an open client that trusts ``base`` verifies it, or the refusal.

        Results are cached: all zones of a block have one clock, and most trust the same headers.
        """
        key = (counterparty, id(base), header)  # the value references `base`, so its id stays unique
        known = self._offered.get(key)
        if known is None:
            known = self._offered[key] = base, self._verify(client, counterparty, base, header)
        return known[1]

    def _verify(
        self, client: LightClient, counterparty: int, base: TrustedHeader, header: bytes
    ) -> TrustedHeader | Refusal:
        context, offered = self._context, read_header(header)
        update = self._on(base, counterparty, offered)
        try:
            client.valid(update, context.time, cached_signature_check(header))
        except REFUSED as error:
            return _refusal(error)
        cache_header(header, offered)
        return TrustedHeader.of(update.signed_header.header, context.time, context.height)

    def _trusted(self, pair: tuple[int, int]) -> TrustRows:
        found = self._trusts.get(pair)
        if found is None:
            key = connection_key(*pair)
            first, stop = np.searchsorted(self._lanes, np.array([key, key + 1], dtype=np.uint64)).tolist()
            found = self._trusts[pair] = TrustRows(self._headers, first, stop)
        return found

    def _options_of(self, counterparty: int) -> TrustOptions:
        found = self._options.get(counterparty)
        if found is None:
            found = TrustOptions(self._context.zones.names[counterparty], self._period)
            self._options[counterparty] = found
        return found

    def after(self) -> tuple[Frame, Frame]:
        """Return ``trust`` and ``connections`` after the block.

        A chain with a new trusted header prunes expired headers and those beyond the limit, except the newest of each
        connection. Headers within their delay do not count and stay, so each becomes usable (X-11).
        """
        trust, connections = self._trust, self._connections
        added = {pair: headers for pair, client in self._trusts.items() if (headers := client.added)}
        if added:
            trust = concat([trust, _rows(added)])
            trust = trust.take(stable_order(*(trust[name] for name in (*CONNECTION, "height"))))
            lanes = group_rows(*(trust[name] for name in CONNECTION))
            newest = lanes.ranks() == lanes.spread(lanes.counts) - 1
            old = is_period_over(trust["time"], np.uint64(self._period), np.uint64(self._context.time))
            options = self._context.options
            settled = trust["added_time"] + np.uint64(options.delay_ns) <= np.uint64(self._context.time)
            until = np.cumsum(settled)
            newer = lanes.spread(until[lanes.starts + lanes.counts - 1]) - until
            old |= settled & (newer >= options.trusted_headers)
            row = connection_rows(connections, *(np.array(column) for column in zip(*added, strict=True)))
            here = np.isin(trust["chain"], list({chain for chain, _ in added}))
            trust = trust.filter(newest | ~old | ~here)
            latest = connections["latest"].copy()
            highest = [max(header.height for header in headers) for headers in added.values()]
            latest[row] = np.maximum(latest[row], np.array(highest, dtype=np.uint64))
            connections = connections.with_columns(latest=latest)
        frozen_now = sorted(self._frozen - self._frozen_before)
        if frozen_now:
            row = connection_rows(connections, *(np.array(column) for column in zip(*frozen_now, strict=True)))
            frozen = connections["frozen"].copy()
            frozen[row] |= FROZEN
            connections = connections.with_columns(frozen=frozen)
        return trust, connections


REFUSED = (ClientExpired, ConnectionFrozen, InvalidHeader, NoTrustedHeader, NeedIntermediateHeader)
"""The errors of a light client's header check."""


def _refusal(error: NotProven) -> Refusal:
    """Return the refusal of an error; a missing base header was pruned because of its age."""
    return Refusal.InvalidHeader if isinstance(error, NoTrustedHeader) else Refusal[error.name]


def _digests(values: Iterable[bytes]) -> Digests:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _rows(added: Mapping[tuple[int, int], list[TrustedHeader]]) -> Frame:
    """Return added headers of connections as trust table rows."""
    headers = [header for some in added.values() for header in some]

    columns: dict[str, Any] = {
        "chain": np.array([chain for (chain, _), some in added.items() for _ in some], dtype=np.uint32),
        "counterparty": np.array([other for (_, other), some in added.items() for _ in some], dtype=np.uint32),
        "height": np.array([header.height for header in headers], dtype=np.uint64),
        "time": np.array([header.time for header in headers], dtype=np.uint64),
        "added": np.array([header.added_height for header in headers], dtype=np.uint64),
        "added_time": np.array([header.added_time for header in headers], dtype=np.uint64),
        "root": _digests([header.root for header in headers]),
        "validators_hash": _digests([header.validators_hash for header in headers]),
        "next_validators_hash": _digests([header.next_validators_hash for header in headers]),
        "header_hash": _digests([header.header_hash for header in headers]),
    }
    return Frame(columns, len(headers)).select(TRUST_SCHEMA.names)
