"""What a node asks of the protocol of its lake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa
from prometheus_client.core import Metric
from starlette.types import ASGIApp

from causeway.pipeline.lake import Manifest
from causeway.service.answers import StatusAnswer
from causeway.service.lake_views import LakeViews
from causeway.service.mempool import Message
from causeway.service.requests import Address


class Submission(Protocol):
    """A transaction that somebody brings, read and found within its bounds."""

    def nothing_left(self) -> bool:
        """Return whether all that it asks for has happened by the last height."""
        ...

    def message(self, chain: int) -> Message:
        """Return it as what waits for a block of the chain with a number: how many calls it has, and the first tick in
        whose block it may be."""
        ...


@dataclass(frozen=True)
class FurtherAddress:
    """An address that a served lake listens at besides its own: the key that names it, where it is, what answers."""

    key: str
    host: str
    port: int
    app: ASGIApp


class Log(Protocol):
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


class Exchange(Protocol):
    """What a served lake does besides answering at its address: it answers at others, and fetches what comes into its
    blocks from other lakes."""

    def addresses(self) -> Sequence[FurtherAddress]:
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

    async def run(self, news: Callable[[], None], log: Log) -> None:
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
    def exchange(self) -> Exchange | None:
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
