"""A chain (2.5), registration and headers (3.1), and what all calls share."""

import copy
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from .errors import (
    AlreadyRegistered,
    ClientExpired,
    ConnectionFrozen,
    DelayNotElapsed,
    InvalidChainId,
    InvalidHeader,
    InvalidProof,
    MissingHeader,
    NeedIntermediateHeader,
    SpecError,
    UnregisteredSender,
    WrongChain,
)
from .events import Frozen, HeaderAdded, Root, Row
from .headers import Header, Proof, Stores, Trust, Valid, proves
from .keys import is_id
from .options import Options
from .queue import Queue, Store
from .tree import simple_root
from .values import Packet

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


def updateHeader(zone: Zone, R: str, U: Header, relayer: str = "") -> str:
    """Add U to T. A second valid header for a height freezes (X-3): that is no error, it is the effect."""
    connection = registered(zone, R)
    ensure(not connection.closed, InvalidHeader(f"connection to {R} is closed"))
    newest = max(connection.T, key=lambda pair: pair[0])[1]
    ensure(not is_expired_header(zone, newest), ClientExpired(f"newest trusted header {newest.height}"))
    ensure(U.chain_id == R, InvalidHeader(f"header of {U.chain_id}"))
    answer = zone.valid(connection.T, U)
    ensure(answer is not False, InvalidHeader(f"header {U.height} of {R}"))
    ensure(answer is True, NeedIntermediateHeader(f"header {U.height} of {R}"))
    if any(height == U.height and header != U for height, header in connection.T):
        freeze(zone, R, relayer, U.height)
    elif (U.height, U) not in connection.T:
        connection.T.add((U.height, U))
        connection.added[U.height, U] = zone.time
        zone.log.append(HeaderAdded(zone.chain_id, zone.height, zone.next_tx(), R, U.height, relayer))
    return SUCCESS_


# ----


def freeze(zone: Zone, R: str, relayer: str = "", remote_height: int | None = None) -> None:
    """No send, receive, receipt, update from now on."""
    zone.connections[R].frozen = True
    zone.log.append(Frozen(zone.chain_id, zone.height, zone.next_tx(), R, remote_height, relayer))


def submitEvidence(zone: Zone, R: str, one: Header, other: Header, relayer: str = "") -> str:
    """Two different valid headers for one height freeze at once."""
    connection = registered(zone, R)
    fork = one != other and (one.chain_id, one.height) == (R, other.height) and other.chain_id == R
    ensure(fork, InvalidHeader("no fork"))
    ensure(all(zone.valid(connection.T, header) is True for header in (one, other)), InvalidHeader("not valid"))
    freeze(zone, R, relayer, one.height)
    return SUCCESS_


def unfreeze(zone: Zone, R: str, chosen: Header) -> None:
    """Governance follows one fork: what is trusted from the fork's height on is the chosen header alone."""
    connection = zone.connections[R]
    connection.T = {pair for pair in connection.T if pair[0] < chosen.height} | {(chosen.height, chosen)}
    connection.added.setdefault((chosen.height, chosen), zone.time)
    connection.frozen = False


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
