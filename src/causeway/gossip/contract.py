"""Contract of protocols whose nodes gossip and run as separate processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from causeway.programs.user_modules import ModuleSources


@dataclass(frozen=True)
class ProcessOptions:
    """Command-line options of a network of node processes; None keeps the scenario's value.

    Attributes:
        nodes: Number of processes.
        kill: Number of processes that are killed and restarted.
        blocks: Number of blocks to make.
        seconds: Duration of block production in seconds.
        keys: Further keys of the scenario.
        trace: Folder for traces.
        metrics_port: Metrics port of the first node, the others follow it; 0 for free ports.
    """

    nodes: int | None = None
    kill: int | None = None
    blocks: int | None = None
    seconds: float | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    trace: Path | None = None
    metrics_port: int | None = None


@dataclass(frozen=True)
class RunVerdict:
    """Result of a run or a replay.

    Attributes:
        holds: True if the guarantee holds.
        statement: One-sentence summary.
        more: Further lines.
        plain: Result for ``--json``.
        stopped: True if the run was interrupted.
    """

    holds: bool
    statement: str
    more: Sequence[str]
    plain: Mapping[str, Any]
    stopped: bool = False


class NodeProcesses(Protocol):
    """Network of node processes; ``columns`` are the status table's, numeric but for the first."""

    columns: Sequence[str]

    def rows(self) -> Sequence[Sequence[str]]:
        """Return the current status table, one row a node."""
        ...

    def stage(self) -> str:
        """Return a short progress text."""
        ...

    async def run(self, stop: asyncio.Event) -> RunVerdict:
        """Run the network to its end, or until ``stop`` is set; no process remains on return."""
        ...


class GossipProcesses(Protocol):
    """Node processes of a protocol, named in the registry and used by ``causeway gossip``."""

    def processes(self, scenario: Path, wanted: ProcessOptions) -> NodeProcesses:
        """Create the network of a scenario.

        Raises:
            InvalidInput: The scenario or an option is invalid.
        """
        ...

    def relay_chain(self, lake: str, sources: ModuleSources, out: Path) -> Mapping[str, int]:
        """Write the relay chain of a lake to a file for simulations and return its figures.

        Raises:
            InvalidInput: The lake has no usable relay chain, or the file cannot be written.
        """
        ...

    def replayed(self, trace: Path) -> RunVerdict:
        """Replay a trace in the protocol's state machine and compare the results.

        Raises:
            InvalidInput: There is no valid trace.
        """
        ...
