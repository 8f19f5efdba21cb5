"""What a served lake says of itself, whatever its protocol, as objects that JSON can hold.

Bytes are hexadecimal, times are nanoseconds of block time. All is read from committed heights, by any number of
threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from causeway.model.errors import InvalidInput
from causeway.model.ledger import Event, Kind
from causeway.network.opened import OpenedLake
from causeway.pipeline.record import Record

KEPT_MANIFESTS = 64


class LakeViews:
    """The views of one lake. ``external``: the names of the chains that another lake runs."""

    def __init__(self, opened: OpenedLake) -> None:
        self.opened = opened
        chains = opened.topology.chains
        rows = zip(chains["name"].to_pylist(), chains["number"].to_pylist(), strict=True)
        self.external = frozenset(name for name, number in rows if number in opened.topology.external)
        self.manifest = lru_cache(maxsize=KEPT_MANIFESTS)(opened.lake.manifest)

    def own(self) -> list[str]:
        """Return the names of the chains that this lake runs."""
        return [name for name in self.opened.names if name not in self.external]

    def height(self) -> int:
        """Return the last committed height."""
        return self.opened.last_height()

    def time(self, height: int) -> int:
        """Return the block time of a height in nanoseconds."""
        manifest = self.manifest(height)
        return (manifest.tick + 1) * self.opened.tick_ns if height else 0

    def status(self) -> dict[str, Any]:
        """Return what the network is, and how far it has come."""
        height = self.height()
        return {
            "protocol": self.opened.protocol,
            "lake": self.opened.lake.identity,
            "height": height,
            "tick": self.manifest(height).tick,
            "time": self.time(height),
            "tick_ns": self.opened.tick_ns,
            "chains": [{"name": name, "external": name in self.external} for name in self.opened.names],
        }

    def outcome(self, height: int, sender: int) -> list[dict[str, Any]]:
        """Return what the block of a height refused, or a program failed on, of what a sender (by number) asked for.

        ``program``: its name; ``what``: ``refused``, a call of the program's, or ``failed``, the program itself on the
        message; ``why``: the refusal's name, or the error; ``count``: how often; ``where``: on which chain. A block
        does not tell whose message led to a call: where others asked the same program in it, refusals of theirs are
        told, too.
        """
        manifest, opened = self.manifest(height), self.opened
        numbers = opened.topology.chains["number"].to_numpy()
        asked = Record(opened.lake).rows(opened.lake.outside(manifest), "ingress", numbers)
        asked = asked.filter(pc.equal(asked["sender"], pa.scalar(sender, pa.uint64())))
        found: Counter[tuple[str, str, str, str]] = Counter()
        ends = set(zip(asked["chain"].to_pylist(), asked["receiver"].to_pylist(), strict=True))
        by_number = {int(item["number"]): row for row, item in enumerate(opened.about["chains"])}
        for chain, program in sorted(ends):
            name, position = opened.program_names.get(program) or str(program), by_number[chain]
            where = opened.names[position]
            found.update((name, *fault, where) for fault in self._refused(height, position, program))
            found.update((name, *fault, where) for fault in self._failed(height, position, program, sender))
        names = ("program", "what", "why", "where")
        return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in sorted(found.items())]

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return what the block of a height refused of a transaction that ``carrier`` (by number) brought to ``chain``,
        as ``outcome`` does of a message; ``program`` is empty, ``where``: the chain, and which item of it.

        Protocols whose chains take transactions have their own.
        """
        raise InvalidInput(f"transaction: {self.opened.protocol} has none that are carried")

    def _refused(self, height: int, position: int, program: int) -> Iterator[tuple[str, str]]:
        refused = int(Event.SENT | Event.REJECTED)

        def chosen(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["sender"].to_numpy() == program)
            mask &= batch["kind"].to_numpy() == Kind.REQUEST
            return mask & ((batch["events"].to_numpy() & refused) == refused)

        names = ["chain", "kind", "events", "sender", "reason"]
        rows = self.opened.log_rows("events", height, position, names, chosen)
        yield from (("refused", why) for why in ([] if rows is None else rows["reason"].to_pylist()))

    def _failed(self, height: int, position: int, program: int, sender: int) -> Iterator[tuple[str, str]]:
        def chosen(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["program"].to_numpy() == program)
            mask &= batch["sender"].to_numpy() == sender
            return mask & (batch["kind"].to_numpy() == Kind.INGRESS)

        names = ["chain", "kind", "program", "sender", "error"]
        rows = self.opened.log_rows("failures", height, position, names, chosen)
        yield from (("failed", why) for why in ([] if rows is None else rows["error"].to_pylist()))

    def known(self, chain: str, height: int | None) -> int:
        """Return ``height``, or the last; of a chain that is here.

        Raises:
            InvalidInput: there is no such chain here (``LakeError``: no such height).
        """
        self.opened.position(chain)
        if chain in self.external:
            raise InvalidInput(f"chain: another lake runs {chain}; ask it there")
        return self.height() if height is None else self.manifest(height).height
