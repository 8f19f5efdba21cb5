"""The chains of a lake that stopped because they violated an invariant of their protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causeway.pipeline.lake import Lake, Manifest


@dataclass(frozen=True)
class Stopped:
    """A chain that stopped: at which height, and the name of the error."""

    chain: str
    height: int
    cause: str


def stopped_chains(lake: Lake, manifest: Manifest) -> tuple[Stopped, ...]:
    """Return the chains that have stopped by the last height of a commit, in the order in which they did.

    A protocol whose chains can stop has a state table ``stopped`` (``chain``, ``height``, ``cause``).
    """
    names = [item["name"] for item in lake.about()["chains"]]
    rows = [row for table in lake.state(manifest, "stopped") for row in table.to_pylist()]
    rows.sort(key=lambda row: (row["height"], row["chain"]))
    return tuple(Stopped(names[row["chain"]], int(row["height"]), row["cause"]) for row in rows)
