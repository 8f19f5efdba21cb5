"""Options of gossip (reference 4.1), resource limits, and the contract of protocols whose nodes run as processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from causeway_proofs.limits import MAX_PROOF_BYTES
from causeway_proofs.sketches import MAX_DECODED
from pydantic import Field

from causeway.config.section import ScenarioSection

if TYPE_CHECKING:
    from causeway.programs.user_modules import ModuleSources

MOST_ANCESTORS = 16
"""Maximum number of ancestors of a leaf whose topics are kept."""

MOST_STRINGS = 1 << 16
"""Maximum number of messages of a queue that the decoder reads."""


class GossipOptions(ScenarioSection):
    """Options of gossip. Times are in milliseconds; reputation is in the units of X-1.

    Attributes:
        topic_mode: Hash that determines a queue's topic.
        heads_diff: Scope of the queues sent after a declaration.
        ancestors: a of 5.1, 1.
        topology: Topics of a queue.
        reconciliation: Reconciliation of pools by sketches.
        mistrust_unimplied: Penalty for queues that no leaf of the peer implies.
        fallback_request: Requests to keepers of missing queues.
        fallback_after: Age of a missing queue before it is requested (3.9, 3).
        propagate_on_leaf: Send newly allowed queues after a new leaf, as after a declaration (3.5: off).
        allowed_by: Part of a queue that a common block must list (3.8, D-5: topic).
        seen_until: Lifetime of the flags of a queue (G8: disconnect, where memory grows with the age of a
            connection). With the reference's value of this option or the previous two, some queues do not
            reach every node (L1).
        purge_interval: Interval between purges of the pool.
        impolite_limit: Number of impolite messages at which a peer is disconnected.
        least_reputation: Reputation at which a peer is disconnected.
        most_reputation: Upper bound of a peer's reputation, so that its credit does not grow with age.
        ban_time: Duration of a ban after a disconnection; 0 for none.
        max_banned: Banned peers a node remembers.
        max_peers: Peers of a node.
        max_leaf_queues: Entries of a leaf's listing.
        max_pool_bytes: Size of a node's pool.
        max_queue_messages: Messages of a queue.
        max_queue_bytes: Size of a queue.
        max_step_packets: Packets accepted from a peer in a step.
        max_step_bytes: Bytes accepted from a peer in a step (``step_io.admit_packets``).
        max_subscriptions: Subscriptions of a node and of each peer.
        max_step_sketches: Sketches decoded by a node in a step; beyond it, queues are pushed.
        max_sketch_capacity: Capacity of a sketch; decoding takes quadratic time (0.1 s for 64).
    """

    topic_mode: Literal["block", "root"] = "block"
    heads_diff: Literal["all", "new_only"] = "all"
    ancestors: int = Field(default=0, ge=0, le=MOST_ANCESTORS)
    topology: Literal["flat", "from_to"] = "flat"
    reconciliation: Literal["off", "minisketch"] = "off"
    mistrust_unimplied: Literal["off", "on"] = "off"
    fallback_request: Literal["off", "on"] = "off"
    fallback_after: int = Field(default=4_000, ge=0, le=2**40)
    propagate_on_leaf: Literal["off", "on"] = "on"
    allowed_by: Literal["topic", "root"] = "root"
    seen_until: Literal["disconnect", "purge"] = "purge"
    purge_interval: int = Field(default=2_000, ge=1, le=2**40)
    impolite_limit: int = Field(default=16, ge=1, le=2**31)
    least_reputation: int = Field(default=-10_000, ge=-(2**40), le=-1)
    most_reputation: int = Field(default=50_000, ge=0, le=2**40)
    ban_time: int = Field(default=30_000, ge=0, le=2**40)
    max_banned: int = Field(default=1_000, ge=1, le=2**20)
    max_peers: int = Field(default=50, ge=1, le=10_000)
    max_leaf_queues: int = Field(default=20_000, ge=1, le=2**20)
    max_pool_bytes: int = Field(default=1 << 30, ge=1, le=2**50)
    max_queue_messages: int = Field(default=MOST_STRINGS, ge=1, le=MOST_STRINGS)
    max_queue_bytes: int = Field(default=MAX_PROOF_BYTES, ge=1, le=MAX_PROOF_BYTES)
    max_step_packets: int = Field(default=4_096, ge=1, le=2**20)
    max_step_bytes: int = Field(default=16 << 20, ge=1, le=2**32)
    max_subscriptions: int = Field(default=16, ge=1, le=1_024)
    max_step_sketches: int = Field(default=4, ge=1, le=1_000)
    max_sketch_capacity: int = Field(default=64, ge=4, le=MAX_DECODED)


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

    def stage(self) -> str:
        """Return a short progress text."""

    async def run(self, stop: asyncio.Event) -> RunVerdict:
        """Run the network to its end, or until ``stop`` is set; no process remains on return."""


class GossipProcesses(Protocol):
    """Node processes of a protocol, named in the registry and used by ``causeway gossip``."""

    def processes(self, scenario: Path, wanted: ProcessOptions) -> NodeProcesses:
        """Create the network of a scenario.

        Raises:
            InvalidInput: The scenario or an option is invalid.
        """

    def relay_chain(self, lake: str, sources: ModuleSources, out: Path) -> Mapping[str, int]:
        """Write the relay chain of a lake to a file for simulations and return its figures.

        Raises:
            InvalidInput: The lake has no usable relay chain, or the file cannot be written.
        """

    def replayed(self, trace: Path) -> RunVerdict:
        """Replay a trace in the protocol's state machine and compare the results.

        Raises:
            InvalidInput: There is no valid trace.
        """
