"""What users bring to a served lake: messages that wait for a block, and the blocks' record of what went into them.

The record is in the lake (``mempool/<tick>.parquet``), written before the block is made, so that a block is a function
of files alone, whoever makes it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.errors import CausewayError
from causeway.model.traffic import INGRESS_SCHEMA, Traffic
from causeway.pipeline.lake import Lake
from causeway.pipeline.storage import Storage

FOLDER = "mempool"

MOST_WAITING = 1_000
"""Messages that wait at most; who brings another is told to come again."""

MOST_IN_A_BLOCK = 2_000
"""Calls of transactions, and messages, that go into one block at most."""


class MempoolFull(CausewayError):
    """There are too many messages that wait for a block."""


@dataclass(frozen=True)
class Message:
    """A message from a user, as a row of ``INGRESS_SCHEMA``.

    Attributes:
        chain: number of the chain.
        receiver, sender, method, payload: as in ``INGRESS_SCHEMA``.
        calls: how many calls are in it, for a transaction of a relayer.
        not_before: the first tick in whose block it may be.
        ticket: tells it from others.
    """

    chain: int
    receiver: int
    sender: int
    method: str
    payload: bytes
    calls: int = 1
    not_before: int = 0
    ticket: int = 0


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
            calls = count = 0
            for message in self._waiting:
                if message.not_before > tick or (count and calls + message.calls > MOST_IN_A_BLOCK):
                    break
                calls, count = calls + message.calls, count + 1
            taken, self._waiting = self._waiting[:count], self._waiting[count:]
            return taken


def record(lake: Lake, tick: int, messages: list[Message]) -> None:
    """Write down what goes into the block of ``tick``."""
    rows = [{name: getattr(message, name) for name in INGRESS_SCHEMA.names} for message in messages]
    lake.storage.make_folder(FOLDER)
    lake.storage.write_table(_path(tick), pa.Table.from_pylist(rows, schema=INGRESS_SCHEMA))


def forget(lake: Lake, since: int) -> None:
    """Remove the records of ticks from ``since`` on: their blocks were never committed. For the holder of the claim."""
    for name in lake.storage.list(FOLDER):
        if int(name.removesuffix(".parquet")) >= since:
            lake.storage.remove(f"{FOLDER}/{name}")


@dataclass(frozen=True)
class PooledTraffic:
    """The traffic of a scenario, and what the record of a served lake adds to it. Picklable."""

    inner: Traffic
    storage: Storage

    def rows(self, tick: int, chains: npt.NDArray[np.uint64]) -> pa.Table:
        """Return the rows of ``tick`` for ``chains``: the scenario's, then those of the record in its order."""
        rows = self.inner.rows(tick, chains)
        if not self.storage.exists(_path(tick)):
            return rows
        added = self.storage.read_table(_path(tick)).cast(INGRESS_SCHEMA)
        mine = np.isin(added["chain"].to_numpy(), chains)
        return pa.concat_tables([rows, added.filter(pa.array(mine))])

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` for which the scenario has any row.

        What users bring is not known before it comes.
        """
        return self.inner.next_tick(tick)


def pooled(traffic: Traffic, lake: Lake) -> PooledTraffic:
    """Return a scenario's traffic with what the lake's record adds to it."""
    return PooledTraffic(traffic, lake.storage)


def _path(tick: int) -> str:
    return f"{FOLDER}/{tick:020d}.parquet"
