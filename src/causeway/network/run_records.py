"""What carriers of messages did in a lake, and what they left: for protocols in which chains do not carry them.

The handlers of programs that raised in a run, read from the lake without Spark.

The chains of a lake that stopped because they violated an invariant of their protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from causeway.config.topology import Topology
    from causeway.storage.lake import Lake, Manifest


@dataclass(frozen=True)
class CarrierFee:
    """What carriers paid in all for one reason, in whole units of an asset."""

    asset: str
    why: str
    amount: int


@dataclass(frozen=True)
class CarrierSummary:
    """What is reported about carriers after a run.

    ``content``: what ``--json`` prints of them; ``lines``: what a person reads; ``fees``: what they paid that is no
    movement of value in the ledger. All are empty where the protocol has no carriers, or where they did nothing and
    left nothing.
    """

    content: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    fees: Sequence[CarrierFee] = ()


CarrierFigures: TypeAlias = "Callable[[Lake, Manifest], CarrierSummary]"
"""Sums up the carriers of one protocol at the last height of a commit. The registry names it."""


def carrier_summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Return what is reported about the carriers of a lake at the last height of a commit, without Spark."""
    from causeway.protocols.registry import find_protocol

    sum_up: CarrierFigures | None = find_protocol(lake.about()["protocol"]).part("carriers")
    return CarrierSummary() if sum_up is None else sum_up(lake, manifest)


DEFAULT_FAILURES = 3

FAILURES = "failures"


@dataclass(frozen=True)
class HandlerFailure:
    """A handler call that raised: of which program, where and when, and what it raised at which line of the program."""

    tick: int
    chain: str
    program: str
    kind: str
    handler: str
    error: str
    file: str
    line: int


@dataclass(frozen=True)
class HandlerFailures:
    """How many handler calls raised, and the first ones."""

    count: int = 0
    first: tuple[HandlerFailure, ...] = ()


def read_failures(lake: Lake, topology: Topology, shown: int = DEFAULT_FAILURES) -> HandlerFailures:
    """Return how many handler calls raised in a lake so far, and the ``shown`` first ones by tick; what forks took back
    does not count.

    Of a long log only the first files are read: the manifest knows how many rows there are.
    """
    import pyarrow as pa

    from causeway.storage.layout import last_folder_height
    from causeway.storage.reorgs import find_reverted

    manifest = lake.last_manifest()
    count = manifest.totals.get(FAILURES, 0)
    first: list[dict[str, Any]] = []
    undone = find_reverted(lake, manifest) if count else None
    for path, seal in lake.log_files(FAILURES).items() if count else ():
        if undone is not None:
            rows = lake.sealed_table(path, seal)
            hit = undone.hits(rows, "chain")
            count -= int(hit.sum())
            first.extend(rows.filter(pa.array(~hit)).slice(0, shown).to_pylist())
            continue
        # Files ascend by their first height, and one holds heights that follow each other.
        if len(first) == shown and last_folder_height(path) >= first[-1]["height"]:
            break
        first.extend(lake.sealed_table(path, seal).slice(0, shown).to_pylist())
        first = _first(first, shown)
    first = _first(first, shown)
    chains = [item["name"] for item in lake.about()["chains"]]
    return HandlerFailures(count, tuple(_failure(row, chains, topology) for row in first))


def _first(rows: list[dict[str, Any]], shown: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["tick"], row["chain"], row["program"]))[:shown]


def _failure(row: dict[str, Any], chains: list[str], topology: Topology) -> HandlerFailure:
    from causeway.core.vocabulary import Kind

    numbers = topology.programs["number"].to_numpy()
    named = topology.programs.filter(numbers == row["program"])["name"].to_pylist()
    return HandlerFailure(
        int(row["tick"]),
        chains[row["chain"]],
        named[0] if named and named[0] else str(row["program"]),
        Kind(row["kind"]).name.lower(),
        row["handler"],
        row["error"],
        row["file"],
        int(row["line"]),
    )


@dataclass(frozen=True)
class StoppedChain:
    """A chain that stopped: at which height, and the name of the error."""

    chain: str
    height: int
    cause: str


def stopped_chains(lake: Lake, manifest: Manifest) -> tuple[StoppedChain, ...]:
    """Return the chains that have stopped by the last height of a commit, in the order in which they did.

    A protocol whose chains can stop has a state table ``stopped`` (``chain``, ``height``, ``cause``).
    """
    names = [item["name"] for item in lake.about()["chains"]]
    rows = [row for table in lake.state(manifest, "stopped") for row in table.to_pylist()]
    rows.sort(key=lambda row: (row["height"], row["chain"]))
    return tuple(StoppedChain(names[row["chain"]], int(row["height"]), row["cause"]) for row in rows)
