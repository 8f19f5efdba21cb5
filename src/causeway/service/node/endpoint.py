"""What a node asks of the protocol of its lake.

What a served lake says of itself, whatever its protocol, as objects that JSON can hold.

Bytes are hexadecimal, times are nanoseconds of block time. All is read from committed heights, by any number of
threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from prometheus_client.core import Metric
from starlette.types import ASGIApp

from causeway.core.vocabulary import Event, Kind
from causeway.network.opened_lake import OpenedLake
from causeway.service.http.answers import StatusAnswer
from causeway.service.http.requests import Address
from causeway.service.node.mempool import PendingMessage
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Manifest

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
        asked = InputRecord(opened.lake).rows(opened.lake.outside(manifest), "ingress", numbers)
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


class Submission(Protocol):
    """A transaction that somebody brings, read and found within its bounds."""

    def nothing_left(self) -> bool:
        """Return whether all that it asks for has happened by the last height."""
        ...

    def message(self, chain: int) -> PendingMessage:
        """Return it as what waits for a block of the chain with a number: how many calls it has, and the first tick in
        whose block it may be."""
        ...


@dataclass(frozen=True)
class ExtraAddress:
    """An address that a served lake listens at besides its own: the key that names it, where it is, what answers."""

    key: str
    host: str
    port: int
    app: ASGIApp


class ExchangeLog(Protocol):
    """Is told how an exchange goes (``service.serving_log``)."""

    def failed(self, path: str, error: BaseException) -> None:
        """Tell of a fault of this side."""
        ...

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        """Tell that an exchange has stood still for so long: in how many seconds somebody is asked again, what failed,
        how often, and what to look at."""
        ...

    def goes_on(self, exchange: str, seconds: float) -> None:
        """Tell that an exchange goes on that stood still for so long."""
        ...


class LakeExchange(Protocol):
    """What a served lake does besides answering at its address: it answers at others, and fetches what comes into its
    blocks from other lakes."""

    def addresses(self) -> Sequence[ExtraAddress]:
        """Return where else it answers."""
        ...

    def carried(self) -> pa.Table:
        """Return what goes into the next block (``CARRIED_SCHEMA``); it is let go of."""
        ...

    @property
    def waits(self) -> bool:
        """Return whether anything waits for the next block."""
        ...

    def committed(self, manifest: Manifest) -> None:
        """Take notice of a new height."""
        ...

    async def run(self, news: Callable[[], None], log: ExchangeLog) -> None:
        """Fetch until cancelled; ``news`` is called when something waits for the next block. What fails on this side is
        told (``log``), stops nothing else, and is tried again."""
        ...


class Endpoint(Protocol):
    """A protocol's part of a served lake. The registry names a class, which is called with an ``OpenedLake`` and the
    network's kernel.

    ``views``: what the lake says of itself. ``status_answer``: the schema of its status. ``max_transaction_bytes``: the
    longest transaction. ``exchange``: what it does besides answering, None if that is all.
    """

    status_answer: ClassVar[type[StatusAnswer]]

    @property
    def exchange(self) -> LakeExchange | None:
        """Return what the lake does besides answering."""
        ...

    @property
    def views(self) -> LakeViews:
        """Return what the lake says of itself."""
        ...

    @property
    def followed(self) -> frozenset[str]:
        """Return the chains of other lakes to which something may be carried here: this lake follows them."""
        ...

    @property
    def max_transaction_bytes(self) -> int:
        """Return how many bytes a transaction has at most."""
        ...

    def submission(self, chain: str, user: int, transaction: bytes) -> Submission:
        """Return a transaction for a chain by the bearer with the number ``user``.

        Raises:
            InvalidInput: it is none, or the number is not allowed.
        """
        ...

    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Refuse a user's message (a row of ``INGRESS_SCHEMA``) that no block could carry out.

        Raises:
            InvalidInput: it names the field.
        """
        ...

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` for which the scenario has planned something that is no traffic,
        None when there is none."""
        ...

    def addresses(self) -> Sequence[Address]:
        """Return the addresses that the protocol adds to those of every lake, all under ``/v1/chains/{chain}``."""
        ...

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield what Prometheus is told of the queues and carriers at a height."""
        ...
