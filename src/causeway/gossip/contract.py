"""What is asked of a protocol whose nodes gossip, and run as processes of their own."""

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
    """What a user says of a network of node processes; None: what the scenario says.

    ``nodes``: how many processes; ``kill``: how many are killed and started again; ``blocks``, ``seconds``: for how
    long blocks are made; ``keys``: further keys of the scenario; ``trace``: the folder of traces; ``metrics_port``:
    where the first node's metrics are, the others at the ports after it; 0: at any that are free.
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
    """What a run or a replay came to: whether it ``holds``, in a sentence, further lines, and as ``--json`` has it.
    ``stopped``: it was stopped before its end."""

    holds: bool
    statement: str
    more: Sequence[str]
    plain: Mapping[str, Any]
    stopped: bool = False


class NodeProcesses(Protocol):
    """A network of node processes. ``columns``: of the table that a person reads, numbers but for the first."""

    columns: Sequence[str]

    def rows(self) -> Sequence[Sequence[str]]:
        """Return the table now, a row a node."""
        ...

    def stage(self) -> str:
        """Return in a few words what the network is doing."""
        ...

    async def run(self, stop: asyncio.Event) -> RunVerdict:
        """Run it to its end, or until ``stop`` is set; no process is left when this returns."""
        ...


class GossipProcesses(Protocol):
    """Node processes of a protocol. The registry names it; ``causeway gossip`` asks it."""

    def processes(self, scenario: Path, wanted: ProcessOptions) -> NodeProcesses:
        """Return the network of a scenario.

        Raises:
            InvalidInput: the scenario, or an option, is not as it must be.
        """
        ...

    def relay_chain(self, lake: str, sources: ModuleSources, out: Path) -> Mapping[str, int]:
        """Write the chain that a run made to a file, for simulations, and return figures of it: ``interval``, others.

        Raises:
            InvalidInput: the lake is of no such network, or cannot be read; the file cannot be written.
        """
        ...

    def replayed(self, trace: Path) -> RunVerdict:
        """Return whether what processes did is what the protocol's state machine does with the same input.

        Raises:
            InvalidInput: there is no trace, or it is damaged.
        """
        ...
