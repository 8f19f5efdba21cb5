"""Run records of a lake, read without Spark: carriers, handler failures, stopped chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from causeway.config.topology import Topology
    from causeway.storage.lake import Lake, Manifest


@dataclass(frozen=True)
class CarrierFee:
    """The total that carriers paid for one reason, in whole units of an asset."""

    asset: str
    why: str
    amount: int


@dataclass(frozen=True)
class CarrierSummary:
    """Summary of carriers after a run; empty without carriers, or without activity.

    Attributes:
        content: Output of ``--json``.
        lines: Text for people.
        fees: Fees that are no value movement in the ledger.
    """

    content: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    fees: Sequence[CarrierFee] = ()


CarrierFigures: TypeAlias = "Callable[[Lake, Manifest], CarrierSummary]"
"""Summarizes a protocol's carriers at the last height of a commit; named by the registry."""


def carrier_summary(lake: Lake, manifest: Manifest) -> CarrierSummary:
    """Summarize the carriers of a lake.

    Args:
        lake: The lake.
        manifest: The commit, at its last height.
    """
    from causeway.protocols.registry import find_protocol

    sum_up: CarrierFigures | None = find_protocol(lake.about()["protocol"]).part("carriers")
    return CarrierSummary() if sum_up is None else sum_up(lake, manifest)


DEFAULT_FAILURES = 3

FAILURES = "failures"


@dataclass(frozen=True)
class HandlerFailure:
    """A handler call that raised: program, time, exception and source line."""

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
    """Number of handler calls that raised, and the first ones."""

    count: int = 0
    first: tuple[HandlerFailure, ...] = ()


def read_failures(lake: Lake, topology: Topology, shown: int = DEFAULT_FAILURES) -> HandlerFailures:
    """Count the handler calls that raised, except reverted ones, and return the first by tick.

    Only the first files of a long log are read: the manifest has the row count.

    Args:
        lake: The lake.
        topology: Its topology, for names.
        shown: Number of failures to return.
    """
    import pyarrow as pa

    from causeway.storage.layout import last_folder_height
    from causeway.storage.reorgs import find_reverted

    manifest = lake.last_manifest()
    count = manifest.totals.get(FAILURES, 0)
    first: list[dict[str, Any]] = []
    reverted = find_reverted(lake, manifest) if count else None
    for path, seal in lake.log_files(FAILURES).items() if count else ():
        if reverted is not None:
            rows = lake.sealed_table(path, seal)
            hit = reverted.hits(rows, "chain")
            count -= int(hit.sum())
            first.extend(rows.filter(pa.array(~hit)).slice(0, shown).to_pylist())
            continue
        # Files ascend by first height, and each holds consecutive heights.
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
    """A chain that stopped, with the height and the name of the error."""

    chain: str
    height: int
    cause: str


def stopped_chains(lake: Lake, manifest: Manifest) -> tuple[StoppedChain, ...]:
    """Return the chains stopped by the last height of a commit, in order of height.

    A protocol whose chains can stop has a state table ``stopped`` (``chain``, ``height``, ``cause``).

    Args:
        lake: The lake.
        manifest: The commit.
    """
    names = [item["name"] for item in lake.about()["chains"]]
    rows = [row for table in lake.state(manifest, "stopped") for row in table.to_pylist()]
    rows.sort(key=lambda row: (row["height"], row["chain"]))
    return tuple(StoppedChain(names[row["chain"]], int(row["height"]), row["cause"]) for row in rows)
