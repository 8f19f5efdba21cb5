"""Light clients in bulk: what zones certify, and how the headers of others come to be trusted (IBC reference 3.1, X-3,
X-4).

The rule itself is the light client's of ``proofs/tendermint``; here are the trust sets of many connections as
columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat
from causeway.model.order import U64, groups_of, lane_codes, stable_order
from causeway.proofs.hashing import DIGEST_BYTES, Digests
from causeway.proofs.steps import Step
from causeway.proofs.tendermint.building import make_header, sign_header, validators_of
from causeway.proofs.tendermint.commit import Commit, verify_signatures
from causeway.proofs.tendermint.errors import ClientExpired, InvalidHeader, NeedIntermediateHeader
from causeway.proofs.tendermint.keys import SigningKey
from causeway.proofs.tendermint.trust import SignatureCheck, TrustedHeader, TrustOptions, verify_header
from causeway.proofs.tendermint.update import HeaderUpdate, decode_header_update
from causeway.proofs.tendermint.validators import ValidatorSet
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.errors import Refusal
from causeway.protocols.ibc.state import FROZEN, TRUST_SCHEMA, State, connection_positions

POWER = 10
"""Voting power of each validator of a zone."""

NO_ROOT = bytes(DIGEST_BYTES)
"""The root of the root of trust: it vouches for validators, nothing is proved at height 0."""


@lru_cache(maxsize=4096)
def validators(seed: int, chain_id: str, count: int) -> tuple[ValidatorSet, dict[bytes, SigningKey]]:
    """Return a zone's validators and their keys, which follow from the network's seed and the chain id."""
    keys = {SigningKey.from_name(f"causeway/{seed}/{chain_id}/{number}"): POWER for number in range(count)}
    return validators_of(keys)


def validators_of_zone(chain: int, context: Context) -> tuple[ValidatorSet, dict[bytes, SigningKey]]:
    """Return the validators of the zone at a position."""
    return validators(context.seed, context.zones.names[chain], context.options.validators)


def genesis_trust(chains: Any, context: Context) -> Frame:
    """Return the trust sets of ``chains`` at genesis: for each connection the root of trust of the remote zone."""
    chain, remote = context.zones.connections
    mine = np.isin(chain, chains)
    chain, remote = chain[mine], remote[mine]
    hashes = [validators_of_zone(position, context)[0].hash for position in np.unique(remote).tolist()]
    known = np.frombuffer(b"".join(hashes), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
    of_row = known[np.searchsorted(np.unique(remote), remote)]
    nothing = np.zeros((len(chain), DIGEST_BYTES), dtype=np.uint8)
    zero = np.zeros(len(chain), dtype=np.uint64)
    return Frame(
        {
            "chain": chain,
            "remote": remote,
            "height": zero,
            "time": zero,
            "added": zero,
            "root": nothing,
            "validators_hash": of_row,
            "next_validators_hash": of_row,
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
    own, keys = validators_of_zone(chain, context)
    header = make_header(context.zones.names[chain], height, time, root, own)
    signed = sign_header(header, own, keys)
    return HeaderUpdate.on(max(height - 1, 0), own, signed, own).encode()


def second_header(certification: bytes, chain: int, context: Context) -> bytes:
    """Return another header of the same zone and height, with another root: what validators sign that fork."""
    first = _decoded(certification).signed_header.header
    root = bytes([first.app_hash[0] ^ 1]) + first.app_hash[1:]
    return _signed(chain, first.height, first.time, root, context)


_decoded = lru_cache(maxsize=1024)(decode_header_update)


@lru_cache(maxsize=1024)
def _verified(certification: bytes, chain_id: str) -> Step:
    """Verify the signatures of a header under the validators that come with it."""
    update = _decoded(certification)
    return verify_signatures(update.signed_header.commit, chain_id, update.validators)


def _remembering(certification: bytes) -> SignatureCheck:
    """Return a check of a header's signatures that is made once, however many zones the header is submitted to."""

    def check(commit: Commit, chain_id: str, own: ValidatorSet, first: ValidatorSet | None = None) -> Step:
        del commit, own, first  # they are those of the certification
        return _verified(certification, chain_id)

    return check


def height_in(certification: bytes) -> int:
    """Return the height of a header as it is submitted, whatever it is worth; ``ProofError`` for what is none."""
    return _decoded(certification).height


def header_times(headers: Frame) -> dict[int, int]:
    """Return the time (ns) of each zone's offered header, by its position; none for what is not signed."""
    signed = zip(headers["chain"].tolist(), headers["certification"].to_pylist(), strict=True)
    return {chain: _decoded(data).signed_header.header.time for chain, data in signed if data}


def newest_times(state: State) -> U64:
    """Return for each row of ``connections`` the time (ns) of its newest trusted header."""
    connections, trust = state.connections, state.trust
    keys = lane_codes(trust["chain"], trust["remote"])
    newest = np.searchsorted(keys, lane_codes(connections["chain"], connections["remote"]), side="right") - 1
    times: U64 = trust["time"][newest]
    return times


def expired_clients(state: State, context: Context) -> npt.NDArray[np.bool_]:
    """Return for each row of ``connections`` whether its newest trusted header is too old to build on (X-4, X-11)."""
    until = newest_times(state) + np.uint64(context.options.unbonding_ns)
    over: npt.NDArray[np.bool_] = until <= np.uint64(context.time)
    return over


class Clients:
    """The trust sets of a block's zones as updates move them on."""

    def __init__(self, state: State, context: Context) -> None:
        self._context = context
        self._trust = state.trust
        self._connections = state.connections
        chain, remote, frozen = (state.connections[name].tolist() for name in ("chain", "remote", "frozen"))
        self._frozen_before = dict(zip(zip(chain, remote, strict=True), frozen, strict=True))
        # Each connection's rows of the trust table, from the first to behind the last.
        lanes = groups_of(state.trust["chain"], state.trust["remote"])
        of_lane = (state.trust["chain"][lanes.starts], state.trust["remote"][lanes.starts])
        first, last = lanes.starts.tolist(), (lanes.starts + lanes.counts).tolist()
        names = zip(*(column.tolist() for column in of_lane), strict=True)
        self._rows = dict(zip(names, zip(first, last, strict=True), strict=True))
        self._outcomes: dict[tuple[int, TrustedHeader, bytes], Refusal | TrustedHeader] = {}
        self._period = context.options.unbonding_ns
        self._added: dict[tuple[int, int], list[TrustedHeader]] = {}
        self._frozen: set[tuple[int, int]] = set()

    def root(self, chain: int, remote: int, height: int) -> bytes | None:
        """Return the root of a trusted header, None where none of that height is trusted."""
        found = self._trusted(chain, remote, height)
        return None if found is None else found.root

    def time(self, chain: int, remote: int, height: int) -> int:
        """Return the time (ns) of a trusted header, 0 where none is trusted."""
        found = self._trusted(chain, remote, height)
        return 0 if found is None else found.time

    def frozen(self, chain: int, remote: int) -> bool:
        """Return whether a connection is frozen by now."""
        lane = (chain, remote)
        return lane in self._frozen or self._frozen_before.get(lane) == FROZEN

    def update(self, chain: int, remote: int, certification: bytes) -> Refusal:
        """Update the client of ``remote`` on ``chain`` (``updateHeader``, 3.1).

        Returns ``ACCEPTED``; ``NoOp`` for a header that is trusted already; or why the header is refused.
        ``ConnectionFrozen`` also when this header contradicts a trusted one, which freezes the connection (X-3).
        """
        if (chain, remote) not in self._frozen_before:
            return Refusal.UnregisteredSender
        if self.frozen(chain, remote):
            return Refusal.ConnectionFrozen
        base = self._below(chain, remote, _decoded(certification).height)
        if base is None:  # those below were too old to be kept
            return Refusal.InvalidHeader
        found = self._outcome(remote, base, certification)
        if isinstance(found, Refusal):
            return found
        known = self._trusted(chain, remote, found.height)
        if known is None:
            self._added.setdefault((chain, remote), []).append(found)
            return Refusal.ACCEPTED
        if known.agrees_with(found):
            return Refusal.NoOp
        self._frozen.add((chain, remote))
        return Refusal.ConnectionFrozen

    def _outcome(self, remote: int, base: TrustedHeader, certification: bytes) -> Refusal | TrustedHeader:
        """Return what a header is, verified by a trusted one: trusted from now on, or refused.

        All zones of a block have one clock, so those that trust the same header come to the same result.
        """
        key = (remote, base, certification)
        if key not in self._outcomes:
            self._outcomes[key] = self._verify(remote, base, certification)
        return self._outcomes[key]

    def _verify(self, remote: int, base: TrustedHeader, certification: bytes) -> Refusal | TrustedHeader:
        offered = _decoded(certification)
        own, _ = validators_of_zone(remote, self._context)
        update = HeaderUpdate.on(base.height, own, offered.signed_header, offered.validators)
        options = TrustOptions(self._context.zones.names[remote], self._period)
        try:
            verify_header(base, update, options, self._context.time, signatures=_remembering(certification))
        except (ClientExpired, InvalidHeader, NeedIntermediateHeader) as error:
            return Refusal[error.name]
        return TrustedHeader.of(update.signed_header.header, self._context.time, self._context.height)

    def after(self) -> tuple[Frame, Frame]:
        """Return ``trust`` and ``connections`` after the block; headers too old to build on, and more than are kept,
        are forgotten, but for the newest of each."""
        trust, connections = self._trust, self._connections
        if self._added:
            trust = concat(
                [trust, _rows((lane, header) for lane, headers in self._added.items() for header in headers)]
            )
            trust = trust.take(stable_order(trust["chain"], trust["remote"], trust["height"]))
            codes = lane_codes(trust["chain"], trust["remote"])
            lanes = groups_of(codes)
            newer = lanes.spread(lanes.counts) - 1 - lanes.ranks()
            old = trust["time"] + np.uint64(self._period) <= np.uint64(self._context.time)
            old |= newer >= self._context.options.trusted_headers
            trust = trust.filter((newer == 0) | ~old)
            place = connection_positions(connections, *(np.array(column) for column in zip(*self._added, strict=True)))
            latest = connections["latest"].copy()
            added = [max(header.height for header in headers) for headers in self._added.values()]
            latest[place] = np.maximum(latest[place], np.array(added, dtype=np.uint64))
            connections = connections.with_columns(latest=latest)
        if self._frozen:
            place = connection_positions(connections, *(np.array(column) for column in zip(*self._frozen, strict=True)))
            frozen = connections["frozen"].copy()
            frozen[place] = FROZEN
            connections = connections.with_columns(frozen=frozen)
        return trust, connections

    def _trusted(self, chain: int, remote: int, height: int) -> TrustedHeader | None:
        for header in self._added.get((chain, remote), []):
            if header.height == height:
                return header
        row = self._row_below(chain, remote, height + 1)
        return self._header(row) if row >= 0 and int(self._trust["height"][row]) == height else None

    def _below(self, chain: int, remote: int, height: int) -> TrustedHeader | None:
        """Return the highest trusted header below a height, None where none is."""
        below = [header for header in self._added.get((chain, remote), []) if header.height < height]
        row = self._row_below(chain, remote, height)
        if row >= 0:
            below.append(self._header(row))
        return max(below, key=lambda header: header.height, default=None)

    def _row_below(self, chain: int, remote: int, height: int) -> int:
        """Return the row of the highest header below a height that was trusted before this block, -1 if none was."""
        start, stop = self._rows.get((chain, remote), (0, 0))
        heights = self._trust["height"]
        if stop > start and heights[stop - 1] >= height:
            stop = start + int(np.searchsorted(heights[start:stop], height))
        return stop - 1 if stop > start else -1

    def _header(self, row: int) -> TrustedHeader:
        trust = self._trust
        return TrustedHeader(
            height=int(trust["height"][row]),
            time=int(trust["time"][row]),
            root=trust["root"][row].tobytes(),
            next_validators_hash=trust["next_validators_hash"][row].tobytes(),
            validators_hash=trust["validators_hash"][row].tobytes(),
            header_hash=trust["header_hash"][row].tobytes(),
            added_height=int(trust["added"][row]),
        )


def _rows(added: Iterable[tuple[tuple[int, int], TrustedHeader]]) -> Frame:
    rows = list(added)

    def digests(values: Iterable[bytes]) -> Digests:
        return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(-1, DIGEST_BYTES)

    headers = [header for _, header in rows]
    columns: dict[str, Any] = {
        "chain": np.array([chain for (chain, _), _ in rows], dtype=np.uint32),
        "remote": np.array([remote for (_, remote), _ in rows], dtype=np.uint32),
        "height": np.array([header.height for header in headers], dtype=np.uint64),
        "time": np.array([header.time for header in headers], dtype=np.uint64),
        "added": np.array([header.added_height for header in headers], dtype=np.uint64),
        "root": digests(header.root for header in headers),
        "validators_hash": digests(header.validators_hash for header in headers),
        "next_validators_hash": digests(header.next_validators_hash for header in headers),
        "header_hash": digests(header.header_hash for header in headers),
    }
    return Frame(columns, len(rows)).select(TRUST_SCHEMA.names)
