"""What a served lake remembers of senders and of their messages, so that nothing is taken twice.

Each block's messages lie in the lake's record before the block is made (``taken``): name, sender, nonce, height. So
what no block has taken before a kill may come again, and what one has taken may not. Every ``BETWEEN`` such files the
last nonces of all senders are written, too (``senders``), so that a start reads few files, however long the lake is.

So many senders are remembered, ``MOST_SENDERS``; of those whose last message is longest ago only the largest nonce is
kept (``floor``), and whoever is not remembered goes on above it. A nonce may be at most ``MOST_STEP`` above the last
one: nobody drives the floor up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from causeway.model.errors import CausewayError
from causeway.pipeline.record import SENDERS_SCHEMA, TAKEN_SCHEMA, Record
from causeway.service.mempool import Message
from causeway.service.signing import MAX_NONCE, carrier_number

MOST_SENDERS = 100_000

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

    def __init__(self, record: Record, last_tick: int) -> None:
        """Read what blocks up to ``last_tick`` have taken."""
        self._record = record
        self.floor = 0
        self._nonces: OrderedDict[bytes, int] = OrderedDict()
        self._pending: dict[bytes, tuple[int, int]] = {}
        self._heights: OrderedDict[str, int] = OrderedDict()
        self._owners: dict[int, bytes] = {}
        self._files = 0
        self._read(last_tick)

    def _read(self, last_tick: int) -> None:
        # Of a tick with several files, all but one are of attempts that failed: their heights' manifests tell which.
        kept = {tick: paths for tick, paths in self._record.files("senders").items() if tick <= last_tick}
        kept = {tick: paths for tick, paths in kept.items() if len(paths) == 1}
        taken = {tick: paths for tick, paths in self._record.files("taken").items() if tick <= last_tick}
        since = max(kept, default=-1)
        if kept:
            rows = self._record.read("senders", kept[since][0])
            self._nonces.update(zip(rows["sender"].to_pylist(), rows["nonce"].to_pylist(), strict=True))
            self.floor = self._nonces.pop(b"", 0)
            self._owners.update((carrier_number(key), key) for key in self._nonces)
        newest = sorted(taken)[-LOOKED_AT:]
        self._files = sum(tick > since for tick in taken)
        for tick in sorted({*newest, *(tick for tick in taken if tick > since)}):
            for row in self._taken_in(taken[tick]):
                if tick > since:
                    self._take(row["sender"], row["nonce"])
                self._remember(row["hash"].hex(), row["height"])

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
        return waiting[0] if waiting is not None else self._nonces.get(key, self.floor)

    def check(self, key: bytes, nonce: int) -> None:
        """Raise ``NonceRefused`` unless a sender may use a nonce next, ``NumberTaken`` if another has its number."""
        if self._owners.get(carrier_number(key), key) != key:
            text = f"number {carrier_number(key)}, which follows from it, is another key's on this lake"
            raise NumberTaken(f"sender: {text}; make a new key")
        last = self.last(key)
        most = min(last + MOST_STEP, MAX_NONCE)
        if not last < nonce <= most:
            raise NonceRefused(f"nonce: {nonce}; this sender's last one is {last}: allowed are {last + 1} to {most}")

    def wait(self, message: Message) -> None:
        """Take notice of a message that waits for a block."""
        _, count = self._pending.get(message.key, (0, 0))
        self._owners[carrier_number(message.key)] = message.key
        self._pending[message.key] = message.nonce, count + 1

    # ---- a block

    def rows(self, messages: Sequence[Message], height: int) -> tuple[pa.Table, pa.Table | None]:
        """Return what the record keeps of a block's messages (``TAKEN_SCHEMA``), and every so often of all senders
        (``SENDERS_SCHEMA``), as they will be once the block is made."""
        rows = [
            {"hash": bytes.fromhex(message.hash), "sender": message.key, "nonce": message.nonce, "height": height}
            for message in messages
        ]
        self._files += 1
        if self._files < BETWEEN:
            return pa.Table.from_pylist(rows, TAKEN_SCHEMA), None
        self._files = 0
        nonces = OrderedDict(self._nonces)
        for message in messages:
            nonces[message.key] = message.nonce
            nonces.move_to_end(message.key)
        columns = {"sender": [b"", *nonces], "nonce": [self.floor, *nonces.values()]}
        return pa.Table.from_pylist(rows, TAKEN_SCHEMA), pa.Table.from_pydict(columns, SENDERS_SCHEMA)

    def taken(self, messages: Sequence[Message], height: int) -> None:
        """Take notice of a block that has messages."""
        for message in messages:
            last, count = self._pending[message.key]
            if count > 1:
                self._pending[message.key] = last, count - 1
            else:
                del self._pending[message.key]
            self._take(message.key, message.nonce)
            self._remember(message.hash, height)

    def height_of(self, name: str) -> int | None:
        """Return the height of the block that has a message, None for one that is not remembered."""
        return self._heights.get(name)

    def _take(self, key: bytes, nonce: int) -> None:
        self._nonces[key] = nonce
        self._nonces.move_to_end(key)
        self._owners[carrier_number(key)] = key
        while len(self._nonces) > MOST_SENDERS:
            forgotten, last = self._nonces.popitem(last=False)
            self.floor = max(self.floor, last)
            self._owners.pop(carrier_number(forgotten), None)

    def _remember(self, name: str, height: int) -> None:
        self._heights[name] = height
        while len(self._heights) > REMEMBERED:
            self._heights.popitem(last=False)
