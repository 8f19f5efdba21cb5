"""The handlers of programs that raised in a run, read from the lake without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from causeway.model.topology import Topology
    from causeway.pipeline.lake import Lake

SHOWN = 3

FAILURES = "failures"


@dataclass(frozen=True)
class Failure:
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
class Failures:
    """How many handler calls raised, and the first ones."""

    count: int = 0
    first: tuple[Failure, ...] = ()


def failures(lake: Lake, topology: Topology, shown: int = SHOWN) -> Failures:
    """Return how many handler calls raised in a lake so far, and the ``shown`` first ones by tick.

    Of a long log only the first files are read: the manifest knows how many rows there are.
    """
    from causeway.pipeline.layout import whole_before

    count = lake.last_manifest().totals.get(FAILURES, 0)
    first: list[dict[str, Any]] = []
    for path, seal in lake.log_files(FAILURES).items() if count else ():
        # Files ascend by their first height, and one holds heights that follow each other.
        if len(first) == shown and whole_before(path) >= first[-1]["height"]:
            break
        first.extend(lake.sealed_table(path, seal).slice(0, shown).to_pylist())
        first = sorted(first, key=lambda row: (row["tick"], row["chain"], row["program"]))[:shown]
    chains = [item["name"] for item in lake.about()["chains"]]
    return Failures(count, tuple(_failure(row, chains, topology) for row in first))


def _failure(row: dict[str, Any], chains: list[str], topology: Topology) -> Failure:
    from causeway.model.ledger import Kind

    numbers = topology.programs["number"].to_numpy()
    named = topology.programs.filter(numbers == row["program"])["name"].to_pylist()
    return Failure(
        int(row["tick"]),
        chains[row["chain"]],
        named[0] if named and named[0] else str(row["program"]),
        Kind(row["kind"]).name.lower(),
        row["handler"],
        row["error"],
        row["file"],
        int(row["line"]),
    )
