"""What lanes of a protocol promise: what a protocol says of its lanes, for whoever checks the traffic of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pydantic import BaseModel

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class Promise:
    """A promise of a name of the ledger's table of promises, of the lanes ``substream`` between chains, or with ``own``
    of a chain to itself; ``substream`` None: of all lanes. ``source``: of the lanes of that chain, None: of any;
    ``number``: microseconds or messages; ``detail``: a cause."""

    promise: str
    substream: int | None = None
    own: bool = False
    source: str | None = None
    number: int | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Lanes(Generic[Options]):
    """The lanes of a network. ``options``: of the protocol; ``chains``: their names; ``roles``: of those that have one;
    ``tick_micros``: microseconds of a tick. ``substreams``: those that messages used, between chains and, with True, of
    a chain to itself."""

    options: Options
    chains: tuple[str, ...]
    roles: Mapping[str, str]
    tick_micros: int
    substreams: tuple[tuple[int, bool], ...]

    def used(self, *, own: bool) -> list[int]:
        """Return the substreams that messages used, between chains or of chains to themselves."""
        return [substream for substream, of_own in self.substreams if of_own == own]


def of_lanes(names: Iterable[str], like: Promise) -> Iterator[Promise]:
    """Yield promises of the same lanes as ``like``."""
    for name in names:
        yield replace(like, promise=name)


def may_drop(causes: Iterable[str]) -> Iterator[Promise]:
    """Yield that lanes drop messages for some causes alone."""
    for cause in causes:
        yield Promise("may_drop", detail=cause)


QUEUE = ("numbered", "ordered_sends", "ordered_receives", "conserved")
"""What a lane promises that is a queue: each message has the next number, and comes in its turn, with what it has."""

__all__ = ["QUEUE", "Lanes", "Promise", "may_drop", "of_lanes"]
