"""What a served lake remembers of senders and of their messages, so that nothing is taken twice.

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
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from causeway.model.errors import CausewayError
from causeway.pipeline.record import CARRIERS_SCHEMA, SENDERS_SCHEMA, TAKEN_SCHEMA, Record
from causeway.service.mempool import Message
from causeway.service.signing import MAX_NONCE, carrier_number

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

    def __init__(self, record: Record, last_tick: int) -> None:
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

    def wait(self, message: Message) -> None:
        """Take notice of a message that waits for a block."""
        _, count = self._pending.get(message.key, (0, 0))
        if message.carried:
            self._owners[carrier_number(message.key)] = message.key
        self._pending[message.key] = message.nonce, count + 1

    # ---- a block

    def rows(self, messages: Sequence[Message], height: int) -> dict[str, pa.Table]:
        """Return what the record keeps of a block's messages: ``taken`` (``TAKEN_SCHEMA``), ``carriers``
        (``CARRIERS_SCHEMA``), and every so often of all ``senders`` (``SENDERS_SCHEMA``), as they will be once the
        block is made."""
        rows = [
            {"hash": bytes.fromhex(message.hash), "sender": message.key, "nonce": message.nonce, "height": height}
            for message in messages
        ]
        found = {"taken": pa.Table.from_pylist(rows, TAKEN_SCHEMA)}
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

    def taken(self, messages: Sequence[Message], height: int) -> None:
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
