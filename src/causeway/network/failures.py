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
    """Return how many handler calls raised in a lake so far, and the ``shown`` first ones by tick; what forks took back
    does not count.

    Of a long log only the first files are read: the manifest knows how many rows there are.
    """
    import pyarrow as pa

    from causeway.pipeline.layout import whole_before
    from causeway.pipeline.reverted import reverted

    manifest = lake.last_manifest()
    count = manifest.totals.get(FAILURES, 0)
    first: list[dict[str, Any]] = []
    undone = reverted(lake, manifest) if count else None
    for path, seal in lake.log_files(FAILURES).items() if count else ():
        if undone is not None:
            rows = lake.sealed_table(path, seal)
            hit = undone.hits(rows, "chain")
            count -= int(hit.sum())
            first.extend(rows.filter(pa.array(~hit)).slice(0, shown).to_pylist())
            continue
        # Files ascend by their first height, and one holds heights that follow each other.
        if len(first) == shown and whole_before(path) >= first[-1]["height"]:
            break
        first.extend(lake.sealed_table(path, seal).slice(0, shown).to_pylist())
        first = _first(first, shown)
    first = _first(first, shown)
    chains = [item["name"] for item in lake.about()["chains"]]
    return Failures(count, tuple(_failure(row, chains, topology) for row in first))


def _first(rows: list[dict[str, Any]], shown: int) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["tick"], row["chain"], row["program"]))[:shown]


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
