"""Scenario of a network of node processes: one TOML file.

Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from causeway.config.document import override_key, read_document, validate_document
from causeway.config.section import U64, ScenarioSection
from causeway.gossip.options import GossipOptions
from causeway.protocols.shared.option_values import option_error

PLAIN = {"reconciliation": "off", "topology": "flat", "fallback_request": "off"}
"""Options of gossip with a single value on the wire: X-3 covers only declarations and queues."""

MOST_NODES = 256
"""Maximum number of processes in a network."""

Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]
Share = Annotated[float, Field(ge=0, lt=1)]


class SeedSection(ScenarioSection):
    """``[network]``."""

    protocol: Literal["icmp"] = Field("icmp", description="The messaging protocol.")
    seed: U64 = Field(0, description="What blocks post, where they fork, who is connected and who is killed follow.")


class ProcessNodesSection(ScenarioSection):
    """``[nodes]``: number of nodes; each collates one parachain, in rotation."""

    count: int = Field(16, ge=2, le=MOST_NODES, description="How many nodes there are.")
    parachains: int = Field(4, ge=2, le=1_000, description="How many parachains there are.")
    killed: int = Field(0, ge=0, le=MOST_NODES, description="How many are killed and restarted, each once.")
    away: Milliseconds = Field(2_000, description="A killed node is started again up to so much later.")


class ProcessTopologySection(ScenarioSection):
    """``[topology]``: links between nodes."""

    degree: int = Field(4, ge=2, le=50, description="Peers a node, even; links that coincide count once.")

    @model_validator(mode="after")
    def _validate_degree(self) -> Self:
        if self.degree % 2:
            raise option_error("degree", f"{self.degree}: must be even")
        return self


class ProcessRelaySection(ScenarioSection):
    """``[relay]``: the relay chain."""

    interval: int = Field(1_000, ge=50, le=3_600_000, description="Time between two blocks.")
    blocks: int = Field(20, ge=1, le=1_000_000, description="Blocks that post queues.")
    queues: int = Field(6, ge=1, le=10_000, description="Queues that a block posts, at most one a pair of parachains.")
    bytes: int = Field(1_000, ge=1, le=1 << 20, description="Mean size of a queue's messages together.")
    messages: int = Field(4, ge=1, le=1_000, description="Messages of a queue.")
    forks: Share = Field(0.2, description="Probability that a block has a sibling, while there is no fork.")
    finality: int = Field(4, ge=1, le=32, description="A leaf so many numbers below the best one is dropped.")
    propagation: Milliseconds = Field(300, description="Nodes have a block up to so much later, each time drawn.")

    @property
    def most_message(self) -> int:
        """Maximum size of a message in bytes; sizes are uniform from 1."""
        return 2 * max(1, self.bytes // self.messages) - 1


class GossipScenario(ScenarioSection):
    """Scenario of a process network."""

    network: SeedSection = Field(default_factory=lambda: SeedSection.model_validate({}))
    nodes: ProcessNodesSection = Field(default_factory=lambda: ProcessNodesSection.model_validate({}))
    topology: ProcessTopologySection = Field(default_factory=lambda: ProcessTopologySection.model_validate({}))
    relay: ProcessRelaySection = Field(default_factory=lambda: ProcessRelaySection.model_validate({}))
    gossip: GossipOptions = Field(default_factory=lambda: GossipOptions.model_validate({}))

    @model_validator(mode="after")
    def _validate_limits(self) -> Self:
        for key, value in PLAIN.items():
            given = getattr(self.gossip, key)
            if given != value:
                raise option_error("gossip", f'{key} = "{given}": node processes have only "{value}"')
        nodes = self.nodes
        if nodes.parachains > nodes.count:
            raise option_error("nodes", f"parachains = {nodes.parachains} must not be above count = {nodes.count}")
        if nodes.killed >= nodes.count:
            raise option_error("nodes", f"killed = {nodes.killed} must be below count = {nodes.count}")
        if self.topology.degree > self.gossip.max_peers:
            raise option_error("topology", f"degree must not be above gossip.max_peers = {self.gossip.max_peers}")
        relay, gossip = self.relay, self.gossip
        # Peers would treat the sender of a longer queue as hostile.
        longest = relay.messages * relay.most_message
        if longest > gossip.max_queue_bytes:
            raise option_error(
                "relay", f"queues of up to {longest} bytes; gossip.max_queue_bytes = {gossip.max_queue_bytes}"
            )
        if relay.messages > gossip.max_queue_messages:
            raise option_error(
                "relay", f"messages must not be above gossip.max_queue_messages = {gossip.max_queue_messages}"
            )
        return self


def load_gossip_scenario(path: Path, overrides: dict[str, Any]) -> GossipScenario:
    """Load the scenario of a TOML file.

    Args:
        path: The file.
        overrides: TOML values by dotted key, from the command line.

    Raises:
        InvalidInput: The file cannot be read, or a key or value is invalid.
    """
    document = read_document(path)
    for key, text in overrides.items():
        override_key(document, key, str(text))
    return validate_document(GossipScenario, document, str(path))
