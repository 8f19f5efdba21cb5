"""Light clients in bulk: what zones certify, and how the headers of others come to be trusted (IBC reference 3.1, X-3,
X-4).

The rule itself is the light client's of ``proofs/tendermint``; here are the trust sets of many connections as
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.joins import codes
from causeway.model.order import U64, groups_of, stable_order
from causeway.proofs.errors import NotProven
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.tendermint.errors import (
    ClientExpired,
    ConnectionFrozen,
    InvalidHeader,
    InvalidMisbehaviour,
    MissingHeader,
    NeedIntermediateHeader,
)
from causeway.proofs.tendermint.light_client import LightClient, Status
from causeway.proofs.tendermint.trust import TrustedHeader, TrustOptions, is_over
from causeway.proofs.tendermint.update import HeaderUpdate, Misbehaviour
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.kept_headers import keep_header, read_header, read_own_header, signatures_of
from causeway.protocols.ibc.leaves import row_of
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
from causeway.protocols.ibc.trust_sets import TrustRows, TrustTable
from causeway.protocols.ibc.validator_sets import series_of_zone, validators_of_zone

NO_ROOT = bytes(DIGEST_BYTES)
"""The root of the root of trust: it vouches for validators, nothing is proved at height 0."""


def genesis_trust(chains: Any, context: Context) -> Frame:
    """Return the trust sets of ``chains`` at genesis: for each connection the root of trust of the counterparty."""
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
    """Return what certifies the roots of ``context.chains``: each zone's signed header, with its validators."""
    return pa.array(
        [
            _signed(chain, context.height, context.time, root.tobytes(), context)
            for chain, root in zip(context.chains.tolist(), roots, strict=True)
        ],
        pa.binary(),
    )


def _signed(chain: int, height: int, time: int, root: bytes, context: Context) -> bytes:
    return series_of_zone(chain, height, context).update(height, time, root)


def second_header(certification: bytes, chain: int, context: Context) -> bytes:
    """Return another header of the same zone and height, with another root: what validators sign that fork."""
    first = read_own_header(certification).signed_header.header
    root = bytes([first.app_hash[0] ^ 1]) + first.app_hash[1:]
    return _signed(chain, first.height, first.time, root, context)


def evidence_of(first: bytes, second: bytes) -> bytes:
    """Return the evidence that a zone has signed two headers (X-3), as it is submitted."""
    return Misbehaviour(read_header(first), read_header(second)).encode()


def trust_row(chain: int, counterparty: int, header: bytes, context: Context) -> Frame:
    """Return the row of a trust table of a header that a zone has chosen to trust in this block."""
    found = TrustedHeader.of(read_header(header).signed_header.header, context.time, context.height)
    return _rows({(chain, counterparty): [found]})


def header_times(headers: Frame) -> dict[int, int]:
    """Return the time (ns) of each zone's offered header, by its position; none for what is not signed."""
    signed = zip(headers["chain"].tolist(), headers["certification"].to_pylist(), strict=True)
    return {chain: read_own_header(data).signed_header.header.time for chain, data in signed if data}


def newest_times(state: State) -> U64:
    """Return for each row of ``connections`` the time (ns) of its newest trusted header."""
    connections, trust = state.connections, state.trust
    keys, asked = codes(CONNECTION, trust, connections)
    newest = np.searchsorted(keys, asked, side="right") - 1
    times: U64 = trust["time"][newest]
    return times


class Clients:
    """The light clients of a block's zones, as updates move them on: a trust set of each connection."""

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
        """Return the root of a trusted header, None where none of that height is trusted."""
        found = self._trusted((chain, counterparty)).get(height)
        return None if found is None else found.root

    def time(self, chain: int, counterparty: int, height: int) -> int:
        """Return the time (ns) of a trusted header, 0 where none is trusted."""
        found = self._trusted((chain, counterparty)).get(height)
        return 0 if found is None else found.time

    def expired(self, chain: int, counterparty: int, height: int) -> bool:
        """Return whether a trusted header is too old to be used (X-4), False where none is trusted."""
        found = self._trusted((chain, counterparty)).get(height)
        return found is not None and bool(is_over(found.time, self._period, self._context.time))

    def delayed(self, chain: int, counterparty: int, height: int) -> bool:
        """Return whether a trusted header was added too recently to be used (X-11), False where none is trusted."""
        if not self._delay:
            return False
        found = self._trusted((chain, counterparty)).get(height)
        return found is not None and self._context.time < found.added_time + self._delay

    def trusted_below(self, chain: int, counterparty: int, height: int) -> int | None:
        """Return the greatest trusted height below ``height``, None where there is none."""
        if counterparty < 0 or row_of(self._lanes, connection_key(chain, counterparty)) < 0:
            return None
        found = self._trusted((chain, counterparty)).below(height)
        return None if found is None else found.height

    def frozen(self, chain: int, counterparty: int) -> bool:
        """Return whether a connection is frozen by now."""
        return (chain, counterparty) in self._frozen

    def update_header(self, chain: int, counterparty: int, header: bytes) -> Refusal:
        """Give a header of a counterparty to its light client (``updateHeader``, 3.1).

        Returns ``ACCEPTED``, also when this header contradicts a trusted one, which freezes the connection (X-3);
        ``NoOp`` for a header that is trusted already; or why the header is refused.
        """
        pair, offered = (chain, counterparty), read_header(header)
        client = LightClient(self._options_of(counterparty), self._trusted(pair), pair in self._frozen)
        if client.status(self._context.time) is Status.EXPIRED:
            return Refusal.ClientExpired
        if offered.signed_header.header.chain_id != client.options.chain_id:
            return Refusal.InvalidHeader
        trusted = self._trusted(pair).get(offered.height)
        if trusted is not None and trusted.header_hash == offered.signed_header.header.hash:
            return Refusal.NoOp
        try:
            base = client.trusted_below(offered.height)
        except MissingHeader as error:
            return _refusal(error)
        found = self._verified(client, counterparty, base, header)
        if isinstance(found, Refusal):
            return found
        client.trust(found)
        if client.frozen:
            self._frozen.add(pair)
        return Refusal.ACCEPTED

    def submit_misbehaviour(self, chain: int, counterparty: int, evidence: Misbehaviour) -> Refusal:
        """Freeze a connection by two headers of its counterparty, if they are that (``submitMisbehaviour``, X-3)."""
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
        """Return a header as an update of the trusted one next below it; of none where there is none."""
        base = self._trusted(pair).below(offered.height)
        if base is None:
            return replace(offered, trusted_height=max(offered.height - 1, 0))
        return self._on(base, pair[1], offered)

    def _on(self, base: TrustedHeader, counterparty: int, offered: HeaderUpdate) -> HeaderUpdate:
        """Return a header as an update of a trusted one, with the validators that this vouches for."""
        believed = offered.trusted_validators
        if believed.hash != base.validators_hash:
            believed, _ = validators_of_zone(counterparty, base.height, self._context)
        return HeaderUpdate.on(base.height, believed, offered.signed_header, offered.validators)

    def _verified(
        self, client: LightClient, counterparty: int, base: TrustedHeader, header: bytes
    ) -> TrustedHeader | Refusal:
        """Return a header as an open client that trusts ``base`` verifies it, or why it refuses it.

        Found out once: all zones of a block have one clock, and most trust the same headers.
        """
        key = (counterparty, id(base), header)  # kept beside what is found, so that no other has the number
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
            client.valid(update, context.time, signatures_of(header))
        except REFUSED as error:
            return _refusal(error)
        keep_header(header, offered)
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

        A chain that has come to trust a header forgets those that are too old to build on, and more than are kept, but
        for the newest of each connection. Those that wait for their delay are not counted and stay: however many are
        brought meanwhile, each comes to be of use (X-11).
        """
        trust, connections = self._trust, self._connections
        added = {pair: headers for pair, client in self._trusts.items() if (headers := client.added)}
        if added:
            trust = concat([trust, _rows(added)])
            trust = trust.take(stable_order(*(trust[name] for name in (*CONNECTION, "height"))))
            lanes = groups_of(*(trust[name] for name in CONNECTION))
            newest = lanes.ranks() == lanes.spread(lanes.counts) - 1
            old = is_over(trust["time"], np.uint64(self._period), np.uint64(self._context.time))
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


REFUSED = (ClientExpired, ConnectionFrozen, InvalidHeader, MissingHeader, NeedIntermediateHeader)
"""What a light client may say to a header."""


def _refusal(error: NotProven) -> Refusal:
    """Return the refusal of an error; where no header below is trusted, those were too old to be kept."""
    return Refusal.InvalidHeader if isinstance(error, MissingHeader) else Refusal[error.name]


def _digests(values: Iterable[bytes]) -> Digests:
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, DIGEST_BYTES)


def _rows(added: Mapping[tuple[int, int], list[TrustedHeader]]) -> Frame:
    """Return the rows of a trust table of the headers that connections have added."""
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
