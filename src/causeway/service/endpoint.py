"""What a node asks of the protocol of its lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client.core import Metric
from starlette.routing import BaseRoute

from causeway.service.lake_views import LakeViews
from causeway.service.mempool import Message


class Submission(Protocol):
    """A transaction that somebody brings, read and found within its bounds."""

    def nothing_left(self) -> bool:
        """Return whether all that it asks for has happened by the last height."""
        ...

    def message(self, chain: int) -> Message:
        """Return it as what waits for a block of the chain with a number: how many calls it has, and the first tick in
        whose block it may be."""
        ...


class Endpoint(Protocol):
    """A protocol's part of a served lake. The registry names a class, which is called with an ``OpenedLake``.

    ``views``: what the lake says of itself. ``max_transaction_bytes``: the longest transaction.
    """

    @property
    def views(self) -> LakeViews:
        """Return what the lake says of itself."""
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

    def check_message(self, row: Mapping[str, Any]) -> None:
        """Look at a user's message to a program (a row of ``INGRESS_SCHEMA``).

        Raises:
            InvalidInput: it is nothing that users may send.
        """
        ...

    def routes(self) -> Sequence[BaseRoute]:
        """Return the addresses that the protocol adds to those of every lake, all under ``/v1/chains/{chain}``."""
        ...

    def metrics(self, height: int) -> Iterable[Metric]:
        """Yield what Prometheus is told of the queues and carriers at a height."""
        ...
