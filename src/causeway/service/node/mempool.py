"""What is brought to a served lake and waits for a block: messages from users, and what somebody carries.

What a served lake remembers of senders and of their messages, so that nothing is taken twice.

Each block's messages lie in the lake's record before the block is made (``taken``): name, sender, nonce, height. So
what no block has taken before a kill may come again, and what one has taken may not. Every ``BETWEEN`` such files the
last nonces of all senders are written, too (``senders``), so that a start reads few files, however long the lake is.

So many senders are remembered, ``MOST_SENDERS``; of those whose last message is longest ago only the largest nonce is
kept (``floor``), and whoever is not remembered goes on above it. A nonce may be at most ``MOST_STEP`` above the last
one: nobody drives the floor up.

Who carries has an account of fees under a number of 31 bits, which keys can be found for. So a carrier's number is no
other key's as long as the carrier is remembered (``carriers`` in the record). There are places for ``MOST_CARRIERS``,
and everybody finds one: when all are taken, those who carried least often give up theirs, of several the one that
carried longest ago. Keys cost nothing, but whoever makes many has to carry as often with each as those who are of use.
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
"""Bytes that a message is counted for beside its payload: what is kept of it."""


class MempoolFull(CausewayError):
    """There are too many messages that wait for a block."""


class QuotaExceeded(CausewayError):
    """One sender has as much waiting for a block as a sender may have."""


@dataclass(frozen=True)
class MempoolLimits:
    """How much waits at most, in messages and bytes.

    Attributes:
        messages, size: of everybody together.
        sender_messages, sender_size: of one sender.
        user_messages, user_size: of users together; the rest is kept for those who carry messages.
        carried_messages, carried_size: of those together; the rest is kept for users.
        new_messages, new_size: of those of them whose first one has not been in a block; keys cost nothing.
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
        """Yield those with whom the sender of a message shares room, and how much there is for all of them."""
        if not message.carried:
            yield QuotaShare("users", "relayers"), self.user_messages, self.user_size
            return
        yield QuotaShare("relayers", "users"), self.carried_messages, self.carried_size
        if message.new:
            yield QuotaShare("new relayers", "others"), self.new_messages, self.new_size


class QuotaShare(NamedTuple):
    """Those who share room, and for whom the rest is kept."""

    who: str
    others: str


@dataclass(frozen=True)
class PendingMessage:
    """A message from a user to a program, or a transaction that somebody carries to a chain.

    Attributes:
        chain: number of the chain.
        sender: the number of the user, or of who carries it.
        payload: the message's bytes, or the transaction's.
        receiver, method: the program's number, and what is asked of it; a transaction is for no program.
        calls: how many calls are in it, for a transaction.
        not_before: the first tick in whose block it may be.
        count: so many equal messages.
        new: nothing of its sender has been in a block yet.
        key, nonce, hash: the sender's public key, the number that the sender gave it, and its name.
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
        """Return whether it is a transaction."""
        return self.receiver is None

    @property
    def size(self) -> int:
        """Return how many bytes it is counted for."""
        return (len(self.payload) + OVERHEAD) * self.count

    @property
    def work(self) -> int:
        """Return how many calls and messages it is in a block."""
        return self.calls * self.count


def block_rows(messages: Iterable[PendingMessage]) -> tuple[pa.Table, pa.Table]:
    """Return what goes into a block: messages from users (``INGRESS_SCHEMA``), and what is carried
    (``CARRIED_SCHEMA``), each in the order in which it came."""
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
    """How many messages wait, and their bytes."""

    messages: int = 0
    size: int = 0

    def change(self, message: PendingMessage, sign: int = 1) -> None:
        """Count a message in, or out again."""
        self.messages += sign * message.count
        self.size += sign * message.size

    def passes(self, message: PendingMessage, messages: int, size: int) -> bool:
        """Return whether a further message would be too much."""
        return self.messages + message.count > messages or self.size + message.size > size


class Mempool:
    """Messages that wait for a block, in the order in which they came."""

    def __init__(self, limits: MempoolLimits | None = None) -> None:
        self.limits = limits or MempoolLimits()
        self._waiting: list[PendingMessage] = []
        self._all, self._shared = PendingCounts(), defaultdict[QuotaShare, PendingCounts](PendingCounts)
        self._of: dict[bytes, PendingCounts] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._all.messages

    @property
    def size(self) -> int:
        """Return how many bytes wait."""
        return self._all.size

    def add(self, message: PendingMessage) -> None:
        """Let a message wait.

        Raises:
            QuotaExceeded: its sender has too much waiting.
            MempoolFull: too much waits.
        """
        most = self.limits
        with self._lock:
            own = self._of.get(message.key, PendingCounts())
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
                    kept = f"no more than {messages}, {size} are kept, the rest is for {share.others}"
                    raise MempoolFull(f"{text}; {kept}; try again later")
            self._waiting.append(message)
            self._count(message, 1)

    def _count(self, message: PendingMessage, sign: int) -> None:
        self._all.change(message, sign)
        for share, _, _ in self.limits.shares(message):
            self._shared[share].change(message, sign)
        own = self._of.setdefault(message.key, PendingCounts())
        own.change(message, sign)
        if not own.messages:
            del self._of[message.key]

    def not_before(self) -> int:
        """Return the first tick whose block the message that has waited longest may be in; 0 when none waits."""
        with self._lock:
            return self._waiting[0].not_before if self._waiting else 0

    def take(self, tick: int) -> list[PendingMessage]:
        """Return, and let go of, the messages for the block of ``tick``: the first ones, up to one that comes later, or
        that would make the block too long."""
        with self._lock:
            work = size = count = 0
            for message in self._waiting:
                full = work + message.work > MAX_BLOCK_CALLS or size + message.size > MAX_BLOCK_BYTES
                if message.not_before > tick or (count and full):
                    break
                work, size, count = work + message.work, size + message.size, count + 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            for message in taken:
                self._count(message, -1)
            return taken


MOST_SENDERS = 100_000

MOST_CARRIERS = 10_000
"""Carriers that are remembered with their numbers."""

GIVEN_UP = 1_000
"""So many places are made free at once: looking for them costs as much as looking for one."""

MOST_STEP = 2**32

BETWEEN = 256

REMEMBERED = 50_000
"""Messages of which it is remembered in which block they were."""

LOOKED_AT = 2_000
"""Blocks that had messages, of which the names are read at a start."""


class NonceRefused(CausewayError):
    """A message's nonce is not above those of its sender before it, or too far above."""


class NumberTaken(CausewayError):
    """The number under which a sender's transactions would be accounted belongs to another key."""


class Senders:
    """The last nonces, and the blocks of the last messages, of one lake. Not for several threads at once."""

    def __init__(self, record: InputRecord, last_tick: int) -> None:
        """Read what blocks up to ``last_tick`` have taken."""
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
        # Of a tick with several files, all but one are of attempts that failed: their heights' manifests tell which.
        kept = (known for known in self._record.newest("senders") if known[0] <= last_tick and len(known[1]) == 1)
        since, files = next(kept, (-1, []))
        taken: dict[int, list[str]] = {}
        for tick, paths in self._record.newest("taken"):
            if tick <= since and len(taken) >= LOOKED_AT:
                break
            if tick <= last_tick:
                taken[tick] = paths
        if files:
            rows = self._record.read("senders", files[0])
            self._nonces.update(zip(rows["sender"].to_pylist(), rows["nonce"].to_pylist(), strict=True))
            self.floor = self._nonces.pop(b"", 0)
        for tick, paths in reversed([*self._record.newest("carriers", max(since, 0))]):
            if tick <= last_tick:
                for path in paths:
                    self._restore_places(self._record.read("carriers", path)["sender"].to_pylist())
        newest = sorted(taken)[-LOOKED_AT:]
        self._files = sum(tick > since for tick in taken)
        for tick in sorted({*newest, *(tick for tick in taken if tick > since)}):
            for row in self._taken_in(taken[tick]):
                if tick > since:
                    self._take(row["sender"], row["nonce"])
                if row["sender"] in self._carriers:
                    self._carriers.move_to_end(row["sender"])
                    self._carried[row["sender"]] += 1
                self._remember(row["hash"].hex(), row["height"])
        self._give_up_places()

    def _restore_places(self, keys: Sequence[bytes]) -> None:
        """Give carriers their places again; one whose number another key has taken since has none any more."""
        for key in keys:
            before = self._owners.get(carrier_number(key), key)
            if before != key:
                self._nonces[before] = self._carriers.pop(before)
            self._owners[carrier_number(key)] = key
            if key not in self._carriers:
                self._carriers[key] = self._nonces.pop(key, self.floor)

    def _taken_in(self, paths: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of a tick's messages, those of the attempt that became a block."""
        found: list[list[dict[str, Any]]] = [self._record.read("taken", path).to_pylist() for path in paths]
        if len(paths) == 1:
            return found[0]
        for path, rows in zip(paths, found, strict=True):
            if rows and path in self._record.lake.manifest(rows[0]["height"]).outside.values():
                return rows
        return []

    # ---- before a block

    def last(self, key: bytes) -> int:
        """Return the last nonce of a sender, of what waits, too; the next one must be above it."""
        waiting = self._pending.get(key)
        return waiting[0] if waiting is not None else self._last_taken(key)

    def _last_taken(self, key: bytes) -> int:
        return self._carriers[key] if key in self._carriers else self._nonces.get(key, self.floor)

    def check_carrier(self, key: bytes) -> None:
        """Raise ``NumberTaken`` when the number of who wants to carry is another key's."""
        number = carrier_number(key)
        if self._owners.get(number, key) != key:
            text = f"number {number}, which follows from it, is another key's on this lake"
            raise NumberTaken(f"sender: {text}; make a new key")

    def is_new(self, key: bytes) -> bool:
        """Return whether no remembered block has a transaction of this key."""
        return key not in self._carriers

    def check(self, key: bytes, nonce: int) -> None:
        """Raise ``NonceRefused`` unless a sender may use a nonce next."""
        last = self.last(key)
        most = min(last + MOST_STEP, MAX_NONCE)
        if not last < nonce <= most:
            raise NonceRefused(f"nonce: {nonce}; this sender's last one is {last}: allowed are {last + 1} to {most}")

    def wait(self, message: PendingMessage) -> None:
        """Take notice of a message that waits for a block."""
        _, count = self._pending.get(message.key, (0, 0))
        if message.carried:
            self._owners[carrier_number(message.key)] = message.key
        self._pending[message.key] = message.nonce, count + 1

    # ---- a block

    def rows(self, messages: Sequence[PendingMessage], height: int) -> dict[str, pa.Table]:
        """Return what the record keeps of a block's messages: ``taken`` (``TAKEN_SCHEMA``), ``carriers``
        (``CARRIERS_SCHEMA``), and every so often of all ``senders`` (``SENDERS_SCHEMA``), as they will be once the
        block is made."""
        rows = [
            {"hash": bytes.fromhex(message.hash), "sender": message.key, "nonce": message.nonce, "height": height}
            for message in messages
        ]
        found = {"taken": pa.Table.from_pylist(rows, INPUT_SCHEMA)}
        carriers = dict.fromkeys(one.key for one in messages if one.carried and one.key not in self._carriers)
        self._files += 1
        if self._files >= BETWEEN:
            self._files = 0
            nonces = OrderedDict(self._nonces | self._carriers)
            for message in messages:
                nonces[message.key] = message.nonce
                nonces.move_to_end(message.key)
            columns = {"sender": [b"", *nonces], "nonce": [self.floor, *nonces.values()]}
            found["senders"] = pa.Table.from_pydict(columns, SENDERS_SCHEMA)
            carriers = dict.fromkeys([*self._carriers, *carriers])
        return {**found, "carriers": pa.Table.from_pydict({"sender": list(carriers)}, CARRIERS_SCHEMA)}

    def taken(self, messages: Sequence[PendingMessage], height: int) -> None:
        """Take notice of a block that has messages."""
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
            self._take(message.key, message.nonce)
            self._remember(message.hash, height)
        self._give_up_places()

    def _give_up_places(self) -> None:
        """Let those who carried least go from the carriers, when there are too many; of users they still are."""
        if len(self._carriers) <= MOST_CARRIERS:
            return
        idle = (key for key in self._carriers if key not in self._pending)
        many = len(self._carriers) - MOST_CARRIERS + GIVEN_UP
        for key in heapq.nsmallest(many, idle, key=self._carried.__getitem__):
            del self._owners[carrier_number(key)], self._carried[key]
            self._take(key, self._carriers.pop(key))

    def height_of(self, name: str) -> int | None:
        """Return the height of the block that has a message, None for one that is not remembered."""
        return self._heights.get(name)

    def sent(self, name: str, height: int) -> tuple[bytes, int] | None:
        """Return the public key of who sent a message that the block of a height has, and its nonce."""
        path = self._record.lake.manifest(height).outside.get("taken")
        rows = [] if path is None else self._record.read("taken", path).to_pylist()
        return next(((row["sender"], row["nonce"]) for row in rows if row["hash"].hex() == name), None)

    def _take(self, key: bytes, nonce: int) -> None:
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
