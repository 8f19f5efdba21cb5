"""What is brought to a served lake and waits for a block: messages from users, and what somebody carries."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from causeway.model.errors import CausewayError
from causeway.model.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.protocols.limits import MAX_BLOCK_BYTES, MAX_BLOCK_CALLS, MAX_WAITING_BYTES

OVERHEAD = 256
"""Bytes that a message is counted for beside its payload: what is kept of it."""


class MempoolFull(CausewayError):
    """There are too many messages that wait for a block."""


class QuotaExceeded(CausewayError):
    """One sender has as much waiting for a block as a sender may have."""


@dataclass(frozen=True)
class Limits:
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

    def shares(self, message: Message) -> Iterator[tuple[Share, int, int]]:
        """Yield those with whom the sender of a message shares room, and how much there is for all of them."""
        if not message.carried:
            yield Share("users", "relayers"), self.user_messages, self.user_size
            return
        yield Share("relayers", "users"), self.carried_messages, self.carried_size
        if message.new:
            yield Share("new relayers", "others"), self.new_messages, self.new_size


class Share(NamedTuple):
    """Those who share room, and for whom the rest is kept."""

    who: str
    others: str


@dataclass(frozen=True)
class Message:
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


def rows_of(messages: Iterable[Message]) -> tuple[pa.Table, pa.Table]:
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
class Waiting:
    """How many messages wait, and their bytes."""

    messages: int = 0
    size: int = 0

    def change(self, message: Message, sign: int = 1) -> None:
        """Count a message in, or out again."""
        self.messages += sign * message.count
        self.size += sign * message.size

    def passes(self, message: Message, messages: int, size: int) -> bool:
        """Return whether a further message would be too much."""
        return self.messages + message.count > messages or self.size + message.size > size


class Mempool:
    """Messages that wait for a block, in the order in which they came."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._waiting: list[Message] = []
        self._all, self._shared = Waiting(), defaultdict[Share, Waiting](Waiting)
        self._of: dict[bytes, Waiting] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._all.messages

    @property
    def size(self) -> int:
        """Return how many bytes wait."""
        return self._all.size

    def add(self, message: Message) -> None:
        """Let a message wait.

        Raises:
            QuotaExceeded: its sender has too much waiting.
            MempoolFull: too much waits.
        """
        most = self.limits
        with self._lock:
            own = self._of.get(message.key, Waiting())
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

    def _count(self, message: Message, sign: int) -> None:
        self._all.change(message, sign)
        for share, _, _ in self.limits.shares(message):
            self._shared[share].change(message, sign)
        own = self._of.setdefault(message.key, Waiting())
        own.change(message, sign)
        if not own.messages:
            del self._of[message.key]

    def not_before(self) -> int:
        """Return the first tick whose block the message that has waited longest may be in; 0 when none waits."""
        with self._lock:
            return self._waiting[0].not_before if self._waiting else 0

    def take(self, tick: int) -> list[Message]:
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
