"""Mempool of a served lake, and the nonces that prevent replays.

The names, senders and nonces of a block's messages are written to the lake's record (``taken``) before
the block is made. After a kill, messages without a block can thus be resent and others cannot. Every
``BETWEEN`` such files, the last nonces of all senders are written (``senders``), which bounds the files
read at a start.

At most ``MOST_SENDERS`` senders are stored. Of the evicted ones (least recent first) only the largest
nonce is kept (``floor``); an unknown sender continues above it. A nonce is at most ``MOST_STEP`` above
the previous one, so no sender can inflate the floor.

A carrier's fees are accounted under a number of 31 bits, for which colliding keys can be found. A
carrier's number therefore belongs to its key while the carrier is stored (``carriers`` in the record).
There are ``MOST_CARRIERS`` places. If all are used, the carriers with the fewest transactions lose
theirs, among equals the least recent. Keys are free, but an attacker must carry as much with each key as
useful carriers do.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from causeway_proofs.errors import CausewayError

from causeway.config.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.protocols.shared.limits import MAX_BLOCK_BYTES, MAX_BLOCK_CALLS, MAX_WAITING_BYTES
from causeway.service.keys.signing import MAX_NONCE, carrier_number
from causeway.storage.external_input import CARRIERS_SCHEMA, INPUT_SCHEMA, SENDERS_SCHEMA, InputRecord

OVERHEAD = 256
"""Bytes counted for a message besides its payload."""


class MempoolFull(CausewayError):
    """Too many pending messages."""


class QuotaExceeded(CausewayError):
    """Too many pending messages of one sender."""


@dataclass(frozen=True)
class MempoolLimits:
    """Limits of pending messages and bytes.

    Attributes:
        messages: Messages in total.
        size: Bytes in total.
        sender_messages: Messages of one sender.
        sender_size: Bytes of one sender.
        user_messages: Messages of all users; the rest is reserved for carriers.
        user_size: Bytes of all users.
        carried_messages: Transactions of all carriers; the rest is reserved for users.
        carried_size: Bytes of all carriers.
        new_messages: Transactions of carriers without a transaction in a block; keys are free.
        new_size: Bytes of such carriers.
    """

    messages: int = 1_000
    size: int = MAX_WAITING_BYTES
    sender_messages: int = 250
    sender_size: int = MAX_WAITING_BYTES // 4
    user_messages: int = 750
    user_size: int = MAX_WAITING_BYTES // 4 * 3
    carried_messages: int = 750
    carried_size: int = MAX_WAITING_BYTES // 4 * 3
    new_messages: int = 375
    new_size: int = MAX_WAITING_BYTES // 8 * 3

    def shares(self, message: PendingMessage) -> Iterator[tuple[QuotaShare, int, int]]:
        """Yield the quotas that apply to a message: group, messages, bytes."""
        if not message.carried:
            yield QuotaShare("users", "relayers"), self.user_messages, self.user_size
            return
        yield QuotaShare("relayers", "users"), self.carried_messages, self.carried_size
        if message.new:
            yield QuotaShare("new relayers", "others"), self.new_messages, self.new_size


class QuotaShare(NamedTuple):
    """Group of senders with a quota, and the group for which the rest is reserved."""

    who: str
    others: str


@dataclass(frozen=True)
class PendingMessage:
    """Message from a user to a program, or transaction of a carrier for a chain.

    Attributes:
        chain: Number of the chain.
        sender: Number of the user or carrier.
        payload: Bytes of the message or transaction.
        receiver: Number of the program; None for a transaction.
        method: Called method.
        calls: Calls in a transaction.
        not_before: Earliest tick of its block.
        count: Number of equal messages.
        key: Public key of the sender.
        nonce: Nonce of the sender.
        hash: Name of the message.
        new: True if no block has a message of its sender yet.
    """

    chain: int
    sender: int
    payload: bytes
    receiver: int | None = None
    method: str = ""
    calls: int = 1
    not_before: int = 0
    count: int = 1
    key: bytes = b""
    nonce: int = 0
    hash: str = ""
    new: bool = False

    @property
    def carried(self) -> bool:
        """True for a transaction."""
        return self.receiver is None

    @property
    def size(self) -> int:
        """Counted size in bytes."""
        return (len(self.payload) + OVERHEAD) * self.count

    @property
    def work(self) -> int:
        """Number of calls and messages in a block."""
        return self.calls * self.count


def block_rows(messages: Iterable[PendingMessage]) -> tuple[pa.Table, pa.Table]:
    """Convert messages to a block's input, in order of arrival.

    Args:
        messages: The messages.

    Returns:
        Users' messages (``INGRESS_SCHEMA``) and transactions (``CARRIED_SCHEMA``).
    """
    ingress, carried = [], []
    for message in messages:
        row = {"chain": message.chain, "payload": message.payload}
        if message.carried:
            carried.append({**row, "carrier": message.sender})
        else:
            to = {"receiver": message.receiver, "method": message.method}
            ingress += [{**row, "sender": message.sender, **to}] * message.count
    return pa.Table.from_pylist(ingress, INGRESS_SCHEMA), pa.Table.from_pylist(carried, CARRIED_SCHEMA)


@dataclass
class PendingCounts:
    """Number and bytes of pending messages."""

    messages: int = 0
    size: int = 0

    def change(self, message: PendingMessage, sign: int = 1) -> None:
        """Add a message, or remove it with ``sign`` -1."""
        self.messages += sign * message.count
        self.size += sign * message.size

    def passes(self, message: PendingMessage, messages: int, size: int) -> bool:
        """Return True if a further message would exceed the limits."""
        return self.messages + message.count > messages or self.size + message.size > size


class Mempool:
    """Pending messages in order of arrival."""

    def __init__(self, limits: MempoolLimits | None = None) -> None:
        self.limits = limits or MempoolLimits()
        self._waiting: list[PendingMessage] = []
        self._all, self._shared = PendingCounts(), defaultdict[QuotaShare, PendingCounts](PendingCounts)
        self._by_sender: dict[bytes, PendingCounts] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._all.messages

    @property
    def size(self) -> int:
        """Counted bytes."""
        return self._all.size

    def add(self, message: PendingMessage) -> None:
        """Add a message.

        Args:
            message: The message.

        Raises:
            QuotaExceeded: Its sender has too many pending messages.
            MempoolFull: The mempool, or the quota of the sender's group, is full.
        """
        most = self.limits
        with self._lock:
            own = self._by_sender.get(message.key, PendingCounts())
            if own.passes(message, most.sender_messages, most.sender_size):
                text = f"of one sender at most {most.sender_messages} messages and {most.sender_size} bytes wait"
                raise QuotaExceeded(f"{text} for a block, {own.messages} and {own.size} do; try again later")
            if self._all.passes(message, most.messages, most.size):
                text = f"{self._all.messages} messages, {self._all.size} bytes wait for a block"
                raise MempoolFull(f"{text}; no more than {most.messages}, {most.size} are kept; try again later")
            for share, messages, size in most.shares(message):
                waiting = self._shared[share]
                if waiting.passes(message, messages, size):
                    text = f"{waiting.messages} messages, {waiting.size} bytes of {share.who} wait for a block"
                    limit_text = f"no more than {messages}, {size} are kept, the rest is for {share.others}"
                    raise MempoolFull(f"{text}; {limit_text}; try again later")
            self._waiting.append(message)
            self._count(message, 1)

    def _count(self, message: PendingMessage, sign: int) -> None:
        self._all.change(message, sign)
        for share, _, _ in self.limits.shares(message):
            self._shared[share].change(message, sign)
        own = self._by_sender.setdefault(message.key, PendingCounts())
        own.change(message, sign)
        if not own.messages:
            del self._by_sender[message.key]

    def not_before(self) -> int:
        """Return the earliest tick of the oldest message, or 0."""
        with self._lock:
            return self._waiting[0].not_before if self._waiting else 0

    def take(self, tick: int) -> list[PendingMessage]:
        """Pop the messages for the block of a tick.

        These are the first ones, up to one that is too early or exceeds the block's limits.

        Args:
            tick: Tick of the block.
        """
        with self._lock:
            work = size = count = 0
            for message in self._waiting:
                full = work + message.work > MAX_BLOCK_CALLS or size + message.size > MAX_BLOCK_BYTES
                if message.not_before > tick or (count and full):
                    break
                work, size, count = work + message.work, size + message.size, count + 1
            popped, self._waiting = self._waiting[:count], self._waiting[count:]
            for message in popped:
                self._count(message, -1)
            return popped


MOST_SENDERS = 100_000

MOST_CARRIERS = 10_000
"""Maximum number of stored carriers."""

GIVEN_UP = 1_000
"""Places freed at a time; freeing many costs as much as freeing one."""

MOST_STEP = 2**32

BETWEEN = 256

REMEMBERED = 50_000
"""Messages whose block is stored."""

LOOKED_AT = 2_000
"""Blocks with messages whose names are read at a start."""


class NonceRefused(CausewayError):
    """Nonce at or below the sender's last one, or too far above it."""


class NumberTaken(CausewayError):
    """Account number that belongs to another key."""


class Senders:
    """Last nonces, and blocks of recent messages, of one lake; not thread-safe."""

    def __init__(self, record: InputRecord, last_tick: int) -> None:
        """Load the messages of blocks up to ``last_tick``."""
        self._record = record
        self.floor = 0
        self._nonces: OrderedDict[bytes, int] = OrderedDict()
        self._carriers: OrderedDict[bytes, int] = OrderedDict()
        self._carried: Counter[bytes] = Counter()
        self._pending: dict[bytes, tuple[int, int]] = {}
        self._heights: OrderedDict[str, int] = OrderedDict()
        self._owners: dict[int, bytes] = {}
        self._files = 0
        self._read(last_tick)

    def _read(self, last_tick: int) -> None:
        # If a tick has several files, all but one belong to failed attempts; the manifest names the valid one.
        snapshots = (known for known in self._record.newest("senders") if known[0] <= last_tick and len(known[1]) == 1)
        since, files = next(snapshots, (-1, []))
        paths_by_tick: dict[int, list[str]] = {}
        for tick, paths in self._record.newest("taken"):
            if tick <= since and len(paths_by_tick) >= LOOKED_AT:
                break
            if tick <= last_tick:
                paths_by_tick[tick] = paths
        if files:
            rows = self._record.read("senders", files[0])
            self._nonces.update(zip(rows["sender"].to_pylist(), rows["nonce"].to_pylist(), strict=True))
            self.floor = self._nonces.pop(b"", 0)
        for tick, paths in reversed([*self._record.newest("carriers", max(since, 0))]):
            if tick <= last_tick:
                for path in paths:
                    self._restore_places(self._record.read("carriers", path)["sender"].to_pylist())
        newest = sorted(paths_by_tick)[-LOOKED_AT:]
        self._files = sum(tick > since for tick in paths_by_tick)
        for tick in sorted({*newest, *(tick for tick in paths_by_tick if tick > since)}):
            for row in self._messages_in(paths_by_tick[tick]):
                if tick > since:
                    self._set_nonce(row["sender"], row["nonce"])
                if row["sender"] in self._carriers:
                    self._carriers.move_to_end(row["sender"])
                    self._carried[row["sender"]] += 1
                self._remember(row["hash"].hex(), row["height"])
        self._evict_carriers()

    def _restore_places(self, keys: Sequence[bytes]) -> None:
        """Restore carriers' places; a later key with the same number replaces the earlier one."""
        for key in keys:
            before = self._owners.get(carrier_number(key), key)
            if before != key:
                self._nonces[before] = self._carriers.pop(before)
            self._owners[carrier_number(key)] = key
            if key not in self._carriers:
                self._carriers[key] = self._nonces.pop(key, self.floor)

    def _messages_in(self, paths: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of a tick's messages, from the attempt that became a block."""
        found: list[list[dict[str, Any]]] = [self._record.read("taken", path).to_pylist() for path in paths]
        if len(paths) == 1:
            return found[0]
        for path, rows in zip(paths, found, strict=True):
            if rows and path in self._record.lake.manifest(rows[0]["height"]).outside.values():
                return rows
        return []

    # ---- pending messages

    def last(self, key: bytes) -> int:
        """Return the last nonce of a sender, including pending messages."""
        waiting = self._pending.get(key)
        return waiting[0] if waiting is not None else self._last_nonce(key)

    def _last_nonce(self, key: bytes) -> int:
        return self._carriers[key] if key in self._carriers else self._nonces.get(key, self.floor)

    def check_carrier(self, key: bytes) -> None:
        """Verify that a carrier's number is not another key's.

        Raises:
            NumberTaken: It is.
        """
        number = carrier_number(key)
        if self._owners.get(number, key) != key:
            text = f"number {number}, which follows from it, is another key's on this lake"
            raise NumberTaken(f"sender: {text}; make a new key")

    def is_new(self, key: bytes) -> bool:
        """Return True if no stored block has a transaction of this key."""
        return key not in self._carriers

    def check(self, key: bytes, nonce: int) -> None:
        """Verify a sender's next nonce.

        Raises:
            NonceRefused: The nonce is not allowed.
        """
        last = self.last(key)
        most = min(last + MOST_STEP, MAX_NONCE)
        if not last < nonce <= most:
            raise NonceRefused(f"nonce: {nonce}; this sender's last one is {last}: allowed are {last + 1} to {most}")

    def wait(self, message: PendingMessage) -> None:
        """Record a pending message."""
        _, count = self._pending.get(message.key, (0, 0))
        if message.carried:
            self._owners[carrier_number(message.key)] = message.key
        self._pending[message.key] = message.nonce, count + 1

    # ---- blocks

    def rows(self, messages: Sequence[PendingMessage], height: int) -> dict[str, pa.Table]:
        """Return a block's tables for the record: ``taken``, ``carriers``, sometimes ``senders``.

        The tables describe the state after the block (``TAKEN_SCHEMA``, ``CARRIERS_SCHEMA``,
        ``SENDERS_SCHEMA``).
        """
        rows = [
            {"hash": bytes.fromhex(message.hash), "sender": message.key, "nonce": message.nonce, "height": height}
            for message in messages
        ]
        tables = {"taken": pa.Table.from_pylist(rows, INPUT_SCHEMA)}
        carriers = dict.fromkeys(one.key for one in messages if one.carried and one.key not in self._carriers)
        self._files += 1
        if self._files >= BETWEEN:
            self._files = 0
            nonces = OrderedDict(self._nonces | self._carriers)
            for message in messages:
                nonces[message.key] = message.nonce
                nonces.move_to_end(message.key)
            columns = {"sender": [b"", *nonces], "nonce": [self.floor, *nonces.values()]}
            tables["senders"] = pa.Table.from_pydict(columns, SENDERS_SCHEMA)
            carriers = dict.fromkeys([*self._carriers, *carriers])
        return {**tables, "carriers": pa.Table.from_pydict({"sender": list(carriers)}, CARRIERS_SCHEMA)}

    def record_block(self, messages: Sequence[PendingMessage], height: int) -> None:
        """Record a block with messages."""
        for message in messages:
            last, count = self._pending[message.key]
            if count > 1:
                self._pending[message.key] = last, count - 1
            else:
                del self._pending[message.key]
            if message.carried:
                self._carriers.setdefault(message.key, self._nonces.pop(message.key, 0))
                self._carriers.move_to_end(message.key)
                self._carried[message.key] += 1
            self._set_nonce(message.key, message.nonce)
            self._remember(message.hash, height)
        self._evict_carriers()

    def _evict_carriers(self) -> None:
        """Demote the carriers with the fewest transactions to users if there are too many."""
        if len(self._carriers) <= MOST_CARRIERS:
            return
        idle = (key for key in self._carriers if key not in self._pending)
        count = len(self._carriers) - MOST_CARRIERS + GIVEN_UP
        for key in heapq.nsmallest(count, idle, key=self._carried.__getitem__):
            del self._owners[carrier_number(key)], self._carried[key]
            self._set_nonce(key, self._carriers.pop(key))

    def height_of(self, name: str) -> int | None:
        """Return the height of the block with a message, or None if it is not stored."""
        return self._heights.get(name)

    def sent(self, name: str, height: int) -> tuple[bytes, int] | None:
        """Return the sender's public key and nonce of a message in the block of a height."""
        path = self._record.lake.manifest(height).outside.get("taken")
        rows = [] if path is None else self._record.read("taken", path).to_pylist()
        return next(((row["sender"], row["nonce"]) for row in rows if row["hash"].hex() == name), None)

    def _set_nonce(self, key: bytes, nonce: int) -> None:
        if key in self._carriers:
            self._carriers[key] = nonce
            return
        self._nonces[key] = nonce
        self._nonces.move_to_end(key)
        while len(self._nonces) > MOST_SENDERS:
            _, last = self._nonces.popitem(last=False)
            self.floor = max(self.floor, last)

    def _remember(self, name: str, height: int) -> None:
        self._heights[name] = height
        while len(self._heights) > REMEMBERED:
            self._heights.popitem(last=False)
