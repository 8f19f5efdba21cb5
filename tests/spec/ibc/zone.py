"""A chain (2.5), registration and headers (3.1), and what all calls share."""

import copy
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.spec.ibc.errors import (
    AlreadyRegistered,
    ClientExpired,
    ConnectionFrozen,
    DelayNotElapsed,
    InvalidChainId,
    InvalidHeader,
    InvalidMisbehaviour,
    InvalidProof,
    MissingHeader,
    NeedIntermediateHeader,
    SpecError,
    UnregisteredSender,
    WrongChain,
)
from tests.spec.ibc.events import Frozen, HeaderAdded, Recovered, Root, Row
from tests.spec.ibc.headers import Header, Proof, Stores, Trust, Valid, proves
from tests.spec.ibc.keys import is_id
from tests.spec.ibc.options import Options
from tests.spec.ibc.queue import Queue, Store
from tests.spec.ibc.tree import simple_root
from tests.spec.ibc.values import Packet

SUCCESS_: Final = "Success"
NOOP: Final = "NoOp"
LATER: Final = object()
"""What a handler gives back when the receipt comes later (X-9)."""


def ensure(condition: bool, error: SpecError) -> None:
    if not condition:
        raise error


@dataclass(frozen=True)
class Arrived:
    """A packet and where it stands: (type, data) of the remote's queue, or of ours in commit and rollback."""

    remote: str
    index: int
    type: str
    data: bytes


def nothing(*_: Any) -> None:
    """commit or rollback that does nothing."""


@dataclass
class Handler:
    """f_type, commit_type, rollback_type.

    f(arrived) -> (result, err), err None for success and else a code, which undoes the handler's writes; or LATER; or
    a Receipt, whose writes stand whatever its code is. commit(arrived, result). rollback(arrived, code, result). They
    may change `zone.app` and may send.
    """

    f: Callable[[Arrived], Any]
    commit: Callable[[Arrived, bytes], None] = nothing
    rollback: Callable[[Arrived, int, bytes], None] = nothing


@dataclass
class Connection:
    """Connection to `remote`. `added`: when a trusted header came (own time, ns). `unwritten`: slots of the receipt
    queue that are allocated and wait for their value (X-9)."""

    remote: str
    T: Trust
    send: Queue
    receipt: Queue
    frozen: bool = False
    disconnecting: bool = False
    closed: bool = False
    added: dict[tuple[int, Header], int] = field(default_factory=dict)
    unwritten: set[int] = field(default_factory=set)


@dataclass
class Zone:
    """Chain. `app`: the state of the modules. `stores`: every committed store of every chain, which stands for proof
    bytes. `valid`: valid(T, U)."""

    chain_id: str
    stores: Stores
    valid: Valid
    options: Options = field(default_factory=Options)
    height: int = 0
    time: int = 0
    store: Store = field(default_factory=dict)
    connections: dict[str, Connection] = field(default_factory=dict)
    handlers: dict[str, Handler] = field(default_factory=dict)
    permissions: dict[str, Set[int | str]] = field(default_factory=dict)
    app: Any = None
    log: list[Row] = field(default_factory=list)
    tx: int = 0

    def next_tx(self) -> int:
        self.tx += 1
        return self.tx


def begin_block(zone: Zone, height: int, time: int) -> None:
    assert height > zone.height and time >= zone.time
    zone.height, zone.time, zone.tx = height, time, 0


def commit_block(zone: Zone, app_entries: dict[bytes, bytes] | None = None) -> bytes:
    """Commit the store, once a block; gives the root. `app_entries`: what other modules keep in the store."""
    assert not any(key.startswith(b"ibc:") for key in app_entries or {}), "the prefix is protected (G7)"
    if zone.options.forget == "on" and any(isinstance(row, HeaderAdded) for row in zone.log):
        for connection in zone.connections.values():
            forget(zone, connection)
    entries = {**zone.store, **(app_entries or {})}
    root = simple_root(entries)
    zone.stores[zone.chain_id, root] = entries
    zone.log.append(Root(zone.chain_id, zone.height, zone.time, root))
    return root


@contextmanager
def transaction(zone: Zone) -> Iterator[None]:
    """What is inside happens as a whole or not at all."""
    store, app, log, tx = dict(zone.store), copy.deepcopy(zone.app), len(zone.log), zone.tx
    unwritten = {remote: set(connection.unwritten) for remote, connection in zone.connections.items()}
    try:
        yield
    except BaseException:
        zone.store.clear()
        zone.store.update(store)
        zone.app, zone.tx = app, tx
        del zone.log[log:]
        for remote, connection in zone.connections.items():
            connection.unwritten = unwritten[remote]
        raise


# ---- 3.1


def registerChain(zone: Zone, R: str, H: Header) -> None:
    """T <- {H}; both queues are created."""
    ensure(is_id(R) and zone.chain_id != R, InvalidChainId(f"chain id {R!r}"))
    ensure(R not in zone.connections, AlreadyRegistered(R))
    connection = Connection(R, {(H.height, H)}, Queue(zone.store, R, "send"), Queue(zone.store, R, "receipt"))
    connection.added[H.height, H] = zone.time
    connection.send.init()
    connection.receipt.init()
    zone.connections[R] = connection


def updateHeader(zone: Zone, R: str, U: Header | None, relayer: str = "") -> str:
    """Add U to T; None: bytes that are no header. A second valid header for a height freezes (X-3): that is no error,
    it is the effect."""
    connection = registered(zone, R)
    if U is None:
        raise InvalidHeader("no header")
    ensure(not connection.closed, InvalidHeader(f"connection to {R} is closed"))
    ensure_not_expired(zone, connection)
    ensure(U.chain_id == R, InvalidHeader(f"header of {U.chain_id}"))
    if (U.height, U) in connection.T:
        return SUCCESS_
    below, drift = base_of(zone, connection, U), zone.options.drift
    in_time = below.time < U.time and (drift is None or U.time < zone.time + drift)
    ensure(in_time, InvalidHeader(f"time of header {U.height} of {R}"))
    ensure_valid(zone, connection, U)
    if contradicts(connection.T, U):
        freeze(zone, R, relayer, U.height)
    else:
        connection.T.add((U.height, U))
        connection.added[U.height, U] = zone.time
        zone.log.append(HeaderAdded(zone.chain_id, zone.height, zone.next_tx(), R, U.height, relayer))
    return SUCCESS_


def forget(zone: Zone, connection: Connection) -> None:
    """Keep what can be used, and of that the newest; the very newest in any case, and what waits for its delay."""
    newest = newest_trusted(connection)
    kept = [pair for pair in connection.T if pair[1] is newest or not is_expired_header(zone, pair[1])]
    kept.sort(key=lambda pair: pair[0])
    over = [pair for pair in kept if zone.time - connection.added[pair] >= zone.options.delay]
    connection.T = set(kept) - set(over[: -(zone.options.trusted_headers or len(over))] if over else ())


def newest_trusted(connection: Connection) -> Header:
    """The trusted header of the greatest height."""
    return max(connection.T, key=lambda pair: pair[0])[1]


def ensure_not_expired(zone: Zone, connection: Connection) -> None:
    """X-11: Expired is a client whose newest trusted header is too old."""
    newest = newest_trusted(connection)
    ensure(not is_expired_header(zone, newest), ClientExpired(f"newest trusted header {newest.height}"))


def base_of(zone: Zone, connection: Connection, U: Header) -> Header:
    """The trusted header next below U, which it is held against (X-4)."""
    below = [header for height, header in connection.T if height < U.height]
    ensure(bool(below), InvalidHeader(f"no trusted header of {connection.remote} is below {U.height}"))
    base = max(below, key=lambda header: header.height)
    ensure(not is_expired_header(zone, base), ClientExpired(f"trusted header {base.height}"))
    return base


def ensure_valid(zone: Zone, connection: Connection, U: Header) -> None:
    """X-4: valid(T, U)."""
    ensure(U.chain_id == connection.remote, InvalidHeader(f"header of {U.chain_id}"))
    answer = zone.valid(connection.T, U)
    ensure(answer is not False, InvalidHeader(f"header {U.height} of {U.chain_id}"))
    ensure(answer is True, NeedIntermediateHeader(f"header {U.height} of {U.chain_id}"))


def contradicts(T: Trust, U: Header) -> bool:
    """X-3: another header of that height is trusted, or the next one above is not later."""
    if any(height == U.height and header != U for height, header in T):
        return True
    above = [header for height, header in T if height > U.height]
    return bool(above) and min(above, key=lambda header: header.height).time <= U.time


# ----


def freeze(zone: Zone, R: str, relayer: str = "", remote_height: int | None = None) -> None:
    """No send, receive, receipt, update from now on."""
    zone.connections[R].frozen = True
    zone.log.append(Frozen(zone.chain_id, zone.height, zone.next_tx(), R, remote_height, relayer))


def submitMisbehaviour(zone: Zone, R: str, one: Header | None, other: Header | None, relayer: str = "") -> str:
    """Two valid headers that contradict each other freeze at once: of one height, or the higher one not later. None:
    bytes that are no header."""
    connection = registered(zone, R)
    if one is None or other is None:
        raise InvalidMisbehaviour("no two headers")
    ensure(not connection.closed, InvalidHeader(f"connection to {R} is closed"))
    fork = one.height == other.height and one != other
    backwards = one.height > other.height and one.time <= other.time
    ensure(fork or backwards, InvalidMisbehaviour(f"headers {one.height} and {other.height} of {R}"))
    for header in (one, other):
        base_of(zone, connection, header)
        ensure_valid(zone, connection, header)
    freeze(zone, R, relayer, one.height)
    return SUCCESS_


def recover(zone: Zone, R: str, chosen: Header) -> None:
    """The zone's own decision, frozen or expired: it trusts the chosen header and no other, and goes on from there.
    Both forks are never followed. The queues stay."""
    connection = zone.connections[R]
    connection.T = {(chosen.height, chosen)}
    connection.added = {(chosen.height, chosen): zone.time}
    connection.frozen = False
    zone.log.append(Recovered(zone.chain_id, zone.height, zone.next_tx(), R, chosen.height))


# ---- what calls share


def registered(zone: Zone, R: str) -> Connection:
    """Step 1 of every call with a proof: registered (D-9), and not frozen (X-3)."""
    ensure(R in zone.connections, UnregisteredSender())
    ensure(not zone.connections[R].frozen, ConnectionFrozen(f"connection to {R}"))
    return zone.connections[R]


def for_this_chain(zone: Zone, d: str) -> None:
    ensure(d == zone.chain_id, WrongChain())


def is_expired_header(zone: Zone, header: Header) -> bool:
    """X-4: older than the unbonding period."""
    return zone.options.unbonding is not None and zone.time - header.time > zone.options.unbonding


def trusted_header(zone: Zone, connection: Connection, h: int) -> Header:
    """(H_h, ·) in T, and usable (X-4, X-11)."""
    found = [header for height, header in connection.T if height == h]
    ensure(len(found) == 1, MissingHeader(h))
    ensure(not is_expired_header(zone, found[0]), ClientExpired(f"header {h} of {connection.remote}"))
    elapsed = zone.time - connection.added[h, found[0]]
    ensure(elapsed >= zone.options.delay, DelayNotElapsed(f"{elapsed} ns of {zone.options.delay}"))
    return found[0]


def check_proof(zone: Zone, header: Header, M: Proof) -> bytes:
    """valid(H_h, M); gives the value. Only existence is proven (2.5), but for the time-outs of X-6."""
    if M.value is None or not proves(header, M, zone.stores):
        raise InvalidProof
    return M.value


def expired(zone: Zone, height: int, time: int, packet: Packet) -> bool:
    """X-1, D-15. The height and time are those of a header of the receiving chain."""
    pairs = [(height, packet.max_height), (time, packet.max_time)]
    if zone.options.expiry == "inclusive":
        return any(limit is not None and now >= limit for now, limit in pairs)
    return any(limit is not None and now > limit for now, limit in pairs)
