"""Contract between a node and its lake's protocol, and the views of every served lake.

Views are objects that JSON can hold: bytes are hexadecimal, times are nanoseconds of block time. They
read committed heights only and are thread-safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.errors import InvalidInput
from prometheus_client.core import Metric
from starlette.types import ASGIApp

from causeway.core.vocabulary import Event, Kind
from causeway.network.opened_lake import OpenedLake
from causeway.protocols.shared.execution import ProgramRunner
from causeway.protocols.shared.limits import MAX_TRANSACTION_BYTES
from causeway.protocols.shared.state_tables import Hosting
from causeway.service.http.answers import StatusAnswer
from causeway.service.http.requests import Address
from causeway.service.node.mempool import PendingMessage
from causeway.storage.external_input import InputRecord
from causeway.storage.lake import Manifest

KEPT_MANIFESTS = 64


class LakeViews:
    """Views of one lake; ``external`` names the chains of other lakes."""

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
        """Return the block time of a height in ns."""
        manifest = self.manifest(height)
        return (manifest.tick + 1) * self.opened.tick_ns if height else 0

    def status(self) -> dict[str, Any]:
        """Return the network's identity and progress."""
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
        """Return the refusals and failures that a block caused for a sender's messages.

        Each row has ``program`` (name), ``what`` (``refused``: a call of the program; ``failed``: the program on
        the message), ``why`` (name of the refusal, or the error), ``where`` (chain) and ``count``. A block does
        not record the origin of a call: refusals of other senders' messages to the same program are included.

        Args:
            height: The height.
            sender: Number of the sender.
        """
        manifest, opened = self.manifest(height), self.opened
        numbers = opened.topology.chains["number"].to_numpy()
        ingress = InputRecord(opened.lake).rows(opened.lake.outside(manifest), "ingress", numbers)
        ingress = ingress.filter(pc.equal(ingress["sender"], pa.scalar(sender, pa.uint64())))
        found: Counter[tuple[str, str, str, str]] = Counter()
        ends = set(zip(ingress["chain"].to_pylist(), ingress["receiver"].to_pylist(), strict=True))
        by_number = {int(item["number"]): row for row, item in enumerate(opened.about["chains"])}
        for chain, program in sorted(ends):
            name, position = opened.program_names.get(program) or str(program), by_number[chain]
            chain_name = opened.names[position]
            found.update((name, *fault, chain_name) for fault in self._refused(height, position, program))
            found.update((name, *fault, chain_name) for fault in self._failed(height, position, program, sender))
        names = ("program", "what", "why", "where")
        return [{**dict(zip(names, key, strict=True)), "count": count} for key, count in sorted(found.items())]

    def refused(self, height: int, chain: str, carrier: int, transaction: bytes) -> list[dict[str, Any]]:
        """Return the refusals of a transaction in its block, in the form of ``outcome``.

        ``program`` is empty; ``where`` names the chain and the item. Protocols with transactions override it.

        Args:
            height: The height.
            chain: Name of the chain.
            carrier: Number of the carrier.
            transaction: The transaction.

        Raises:
            InvalidInput: The protocol has no transactions.
        """
        raise InvalidInput(f"transaction: {self.opened.protocol} has none that are carried")

    def _refused(self, height: int, position: int, program: int) -> Iterator[tuple[str, str]]:
        refused = int(Event.SENT | Event.REJECTED)

        def select(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["sender"].to_numpy() == program)
            mask &= batch["kind"].to_numpy() == Kind.REQUEST
            return mask & ((batch["events"].to_numpy() & refused) == refused)

        names = ["chain", "kind", "events", "sender", "reason"]
        rows = self.opened.log_rows("events", height, position, names, select)
        yield from (("refused", reason) for reason in ([] if rows is None else rows["reason"].to_pylist()))

    def _failed(self, height: int, position: int, program: int, sender: int) -> Iterator[tuple[str, str]]:
        def select(batch: pa.RecordBatch) -> Any:
            mask = (batch["chain"].to_numpy() == position) & (batch["program"].to_numpy() == program)
            mask &= batch["sender"].to_numpy() == sender
            return mask & (batch["kind"].to_numpy() == Kind.INGRESS)

        names = ["chain", "kind", "program", "sender", "error"]
        rows = self.opened.log_rows("failures", height, position, names, select)
        yield from (("failed", error) for error in ([] if rows is None else rows["error"].to_pylist()))

    def known(self, chain: str, height: int | None) -> int:
        """Validate a chain of this lake and a height; return the height, by default the last.

        Args:
            chain: Name of the chain.
            height: A height.

        Raises:
            InvalidInput: This lake has no such chain.
            LakeError: The height is not committed.
        """
        self.opened.position(chain)
        if chain in self.external:
            raise InvalidInput(f"chain: another lake runs {chain}; ask it there")
        return self.height() if height is None else self.manifest(height).height


class Submission(Protocol):
    """Transaction that is decoded and within its bounds."""

    def nothing_left(self) -> bool:
        """Return True if the last height already has all its effects."""

    def message(self, chain: int) -> PendingMessage:
        """Convert to a pending message for a chain, with call count and earliest tick."""


@dataclass(frozen=True)
class ExtraAddress:
    """Additional listening address: its configuration key, host, port and application."""

    key: str
    host: str
    port: int
    app: ASGIApp


class ExchangeLog(Protocol):
    """Log of an exchange (``service.node.api.ServingLog``)."""

    def failed(self, path: str, error: BaseException) -> None:
        """Log a local fault."""

    def stands_still(self, exchange: str, seconds: float, again: float, failures: Mapping[str, int], look: str) -> None:
        """Log a stall: its duration, seconds until the next attempt, failures by name, hint."""

    def goes_on(self, exchange: str, seconds: float) -> None:
        """Log the end of a stall."""


class LakeExchange(Protocol):
    """Exchange of a served lake with others: additional addresses, input for its blocks."""

    def addresses(self) -> Sequence[ExtraAddress]:
        """Return the additional addresses."""

    def carried(self) -> pa.Table:
        """Pop the input for the next block (``CARRIED_SCHEMA``)."""

    @property
    def waits(self) -> bool:
        """True if input for the next block is pending."""

    def committed(self, manifest: Manifest) -> None:
        """Process a new height."""

    async def run(self, news: Callable[[], None], log: ExchangeLog) -> None:
        """Fetch until cancelled; local faults are logged and retried.

        Args:
            news: Callback for new input.
            log: Log of the exchange.
        """


def require_installed(row: Mapping[str, Any], network: Hosting, programs: ProgramRunner) -> None:
    """Require that the receiver of a user's message is installed on the chain of the message.

    Args:
        row: The message, with ``chain`` and ``receiver`` as numbers.
        network: Hosts of the programs.
        programs: Programs of the kernel.

    Raises:
        InvalidInput: It is not; the text names the field.
    """
    program = np.array([row["receiver"]], dtype=np.uint64)
    chain = int(network.positions_of(np.array([row["chain"]], dtype=np.uint64))[0])
    if int(network.host_of(program)[0]) != chain:
        raise InvalidInput(f"content: to: no program {row['receiver']} is on {network.names[chain]}")
    if not programs.installed(program)[0]:
        raise InvalidInput(f"content: to: no program is installed as number {row['receiver']}")


class Endpoint(ABC):
    """Protocol part of a served lake.

    The registry names a subclass, which is called with an ``OpenedLake`` and the network's kernel.

    Attributes:
        status_answer: Schema of the lake's status.
        max_transaction_bytes: Maximum size of a transaction in bytes.
        views: Views of the lake.
        exchange: Exchange with other lakes; None if relay processes connect them.
        followed: Chains of other lakes that accept transactions here: this lake follows them.
    """

    status_answer: ClassVar[type[StatusAnswer]]
    max_transaction_bytes = MAX_TRANSACTION_BYTES
    views: LakeViews
    exchange: LakeExchange | None = None
    followed: frozenset[str] = frozenset()

    @abstractmethod
    def submission(self, chain: str, user: int, transaction: bytes) -> Submission:
        """Decode a transaction.

        Args:
            chain: Name of the chain.
            user: Number of the carrier.
            transaction: The transaction.

        Raises:
            InvalidInput: The transaction is invalid, or the number is not allowed.
        """

    @abstractmethod
    def require_possible(self, row: Mapping[str, Any]) -> None:
        """Reject a user's message that no block could execute.

        Args:
            row: The message, a row of ``INGRESS_SCHEMA``.

        Raises:
            InvalidInput: The message is impossible; the text names the field.
        """

    @abstractmethod
    def next_planned(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on with a planned event other than traffic, or None."""

    @abstractmethod
    def addresses(self) -> Sequence[Address]:
        """Return the protocol's addresses, all under ``/v1/chains/{chain}``."""

    @abstractmethod
    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield Prometheus metrics of queues and carriers at a height."""
