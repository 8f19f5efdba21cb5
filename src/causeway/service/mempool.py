"""What is brought to a served lake and waits for a block: messages from users, and what somebody carries."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from causeway.model.errors import CausewayError
from causeway.model.traffic import CARRIED_SCHEMA, INGRESS_SCHEMA
from causeway.protocols.limits import MAX_BLOCK_BYTES, MAX_BLOCK_CALLS

MOST_WAITING = 1_000
"""Messages that wait at most; further ones are refused with 503."""


class MempoolFull(CausewayError):
    """There are too many messages that wait for a block."""


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
        ticket: tells it from others.
    """

    chain: int
    sender: int
    payload: bytes
    receiver: int | None = None
    method: str = ""
    calls: int = 1
    not_before: int = 0
    ticket: int = 0

    @property
    def carried(self) -> bool:
        """Return whether it is a transaction."""
        return self.receiver is None


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
            ingress.append({**row, "sender": message.sender, **to})
    return pa.Table.from_pylist(ingress, INGRESS_SCHEMA), pa.Table.from_pylist(carried, CARRIED_SCHEMA)


class Mempool:
    """Messages that wait for a block, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: list[Message] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: Message) -> None:
        """Let a message wait.

        Raises:
            MempoolFull: too many do.
        """
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                raise MempoolFull(f"{MOST_WAITING} messages wait for a block, more are not kept; try again later")
            self._waiting.append(message)

    def not_before(self) -> int:
        """Return the first tick whose block the message that has waited longest may be in; 0 when none waits."""
        with self._lock:
            return self._waiting[0].not_before if self._waiting else 0

    def take(self, tick: int) -> list[Message]:
        """Return, and let go of, the messages for the block of ``tick``: the first ones, up to one that comes later."""
        with self._lock:
            calls = size = count = 0
            for message in self._waiting:
                full = calls + message.calls > MAX_BLOCK_CALLS or size + len(message.payload) > MAX_BLOCK_BYTES
                if message.not_before > tick or (count and full):
                    break
                calls, size, count = calls + message.calls, size + len(message.payload), count + 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            return taken
