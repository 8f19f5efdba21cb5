"""Options of a gossip simulation: the sections of its scenario.

Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from causeway.config.section import ScenarioSection
from causeway.gossip.options import GossipOptions
from causeway.gossip.simulation.relay_table import RelayTable, read_relay_table
from causeway.gossip.tickets.trading import TicketOptions
from causeway.protocols.shared.option_values import option_error

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0, lt=1)]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]

MOST_NODES = 65_535
MOST_QUEUES = 1 << 18
"""Maximum number of queues in a run."""


class GossipNodesSection(ScenarioSection):
    """``[nodes]``: number of nodes and their roles.

    The first nodes are collators, one parachain after the other, then validators; the rest have no
    parachain. Attackers are the last nodes.
    """

    count: int = Field(100, ge=2, le=MOST_NODES, description="How many nodes there are, attackers among them.")
    parachains: int = Field(10, ge=2, le=10_000, description="How many parachains there are.")
    collators: int = Field(
        2, ge=1, le=1_000_000, description="Collators a parachain: they keep its queues, and need those to it."
    )
    validators: Count = Field(0, description="Validators a parachain: they need the queues to it, and keep none.")
    carried: int = Field(
        1,
        ge=0,
        le=1_024,
        description='With `gossip.topology = "from_to"`: to how many parachains a node that has none carries what '
        "goes there.",
    )


class TopologySection(ScenarioSection):
    """``[topology]``: links between nodes."""

    kind: Literal["regular", "small_world", "ring"] = Field(
        "regular",
        description="`regular`: the union of random cycles. `ring`: the nearest on a ring. `small_world`: a ring of "
        "which links are rewired.",
    )
    degree: int = Field(8, ge=2, le=64, description="Peers a node, even; links that coincide count once.")
    rewired: Share = Field(0.1, description="Of a small world: the share of links that go to a random node instead.")
    entries: int = Field(
        2,
        ge=1,
        le=64,
        description='With `gossip.topology = "from_to"`: links that a collator has to those who carry what goes to '
        "each other parachain.",
    )

    @model_validator(mode="after")
    def _validate_degree(self) -> Self:
        if self.degree % 2:
            raise option_error("degree", f"{self.degree}: must be even")
        return self


class LinksSection(ScenarioSection):
    """``[links]``: latency, drawn for each link and equal both ways, and loss."""

    distribution: Literal["constant", "uniform", "exponential"] = Field(
        "constant", description="How latencies are spread between `least` and `most`; `constant`: all are `most`."
    )
    least: int = Field(100, ge=1, le=3_600_000, description="The least latency; a slice of time is no longer.")
    most: int = Field(500, ge=1, le=3_600_000, description="The largest latency.")
    mean: Milliseconds = Field(200, description="Of the exponential distribution, above `least`; cut off at `most`.")
    loss: Share = Field(0.0, description="The share of packets that are lost.")


class RelaySection(ScenarioSection):
    """``[relay]``: the relay chain."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    interval: int = Field(5_000, ge=10, le=3_600_000, description="Time between two blocks.")
    blocks: int = Field(6, ge=1, le=4_096, description="Blocks that post queues.")
    queues: int = Field(20, ge=1, le=20_000, description="Queues that a block posts.")
    bytes: int = Field(1_000, ge=1, le=1 << 20, description="Mean size of a queue's body.")
    messages: int = Field(4, ge=1, le=1_000, description="Messages of a queue.")
    listed: int = Field(2, ge=1, le=64, description="How many blocks list a queue before it is routed.")
    forks: Share = Field(0.0, description="Probability that a block has a sibling, which posts the same queues.")
    finality: int = Field(2, ge=1, le=64, description="A leaf so many numbers below the best one is dropped.")
    propagation: Milliseconds = Field(2_000, description="Nodes have a block up to so much later, evenly spread.")
    update: Milliseconds = Field(100, description="Time that a node takes to update its leaves.")
    table: Annotated[RelayTable | None, BeforeValidator(read_relay_table)] = Field(
        None,
        description="The relay chain of a run, a file that `causeway gossip relay-chain` wrote: its blocks, forks and "
        "queues instead of drawn ones.",
    )
    bodies: Literal["drawn", "hashed"] = Field(
        "drawn",
        description="`hashed`: bodies are bytes, of which each node that judges one computes the root. `drawn`: a body "
        "has a size and a root, and an altered one another root.",
    )

    @model_validator(mode="after")
    def _validate_table(self) -> Self:
        """Reject generator options next to a recorded relay chain."""
        if self.table is None:
            return self
        for key in ("blocks", "queues", "bytes", "messages", "listed", "forks", "bodies"):
            if key in self.model_fields_set:
                raise option_error(key, f"{getattr(self, key)!r}: it does nothing with relay.table, which has its own")
        if self.interval != self.table.interval:
            raise option_error(
                "interval", f"{self.interval}: the blocks of relay.table are {self.table.interval} ms apart"
            )
        return self


class ChurnSection(ScenarioSection):
    """``[churn]``: nodes that leave and return with empty state."""

    share: Share = Field(0.0, description="The share of nodes that are away in any period after their first.")
    period: int = Field(10_000, ge=100, le=3_600_000, description="How long a node is away or there, at least.")


class AttackersSection(ScenarioSection):
    """``[[attackers]]``: nodes that break the rules."""

    kind: Literal["silent", "lie", "spam", "eclipse", "selfish", "withhold"] = Field(
        ...,
        description="`silent`: forwards nothing. `lie`: sends altered bodies of all that is expected. `spam`: sends "
        "what nobody expects. `eclipse`: takes the places of its victims' peers, and lies. `selfish`: forwards only "
        "what earns more than it costs (`tickets`). `withhold`: forwards, and never pays for what it gets.",
    )
    count: int = Field(1, ge=1, le=10_000, description="How many nodes do so.")
    rate: int = Field(4, ge=1, le=1_000, description="Of spam: queues that are sent to each peer in a slice.")
    victims: Count = Field(1, description="Of an eclipse: how many nodes it is against.")
    honest_links: int = Field(1, ge=1, le=64, description="Of an eclipse: links to others that a victim keeps.")


class SimulationOptions(ScenarioSection):
    """Options of a simulation without ``[network]``."""

    slice: int = Field(100, ge=1, le=60_000, description="A slice of time, one tick; no longer than the least latency.")
    tail: int = Field(2, ge=0, le=1_000, description="Intervals that are simulated after the last block with queues.")
    sample: int = Field(1_000, ge=1, le=3_600_000, description="Every so often pools and work are noted.")
    events: Literal["coverage", "all"] = Field(
        "coverage", description="What is logged: who got what when, or also all that was sent, judged and purged."
    )
    nodes: GossipNodesSection = Field(default_factory=lambda: GossipNodesSection.model_validate({}))
    topology: TopologySection = Field(default_factory=lambda: TopologySection.model_validate({}))
    links: LinksSection = Field(default_factory=lambda: LinksSection.model_validate({}))
    relay: RelaySection = Field(default_factory=lambda: RelaySection.model_validate({}))
    churn: ChurnSection = Field(default_factory=lambda: ChurnSection.model_validate({}))
    attackers: list[AttackersSection] = Field(default_factory=list)
    gossip: GossipOptions = Field(default_factory=lambda: GossipOptions.model_validate({}))
    tickets: TicketOptions = Field(default_factory=lambda: TicketOptions.model_validate({}))

    @model_validator(mode="after")
    def _validate_limits(self) -> Self:
        links, nodes, relay = self.links, self.nodes, self.relay
        least = links.most if links.distribution == "constant" else links.least
        if self.slice > least:
            raise option_error("slice", f"{self.slice}: must be at most the least latency, {least} ms")
        if links.least > links.most and links.distribution != "constant":
            raise option_error("links", f"least = {links.least} must not be above most = {links.most}")
        if relay.interval % self.slice:
            raise option_error("slice", f"{self.slice}: relay.interval = {relay.interval} must be a multiple of it")
        if self.gossip.topology == "from_to":
            self._validate_topics()
        if self.topology.degree >= nodes.count:
            raise option_error("topology", f"degree = {self.topology.degree} must be below nodes.count = {nodes.count}")
        if relay.blocks * relay.queues > MOST_QUEUES:
            raise option_error(
                "relay", f"blocks * queues = {relay.blocks * relay.queues}; allowed: up to {MOST_QUEUES}"
            )
        if relay.table is not None and nodes.parachains != relay.table.parachains:
            text = f"parachains = {nodes.parachains}: relay.table has {relay.table.parachains}"
            raise option_error("nodes", text)
        if self.tickets.mode == "on":
            self._validate_tickets()
        honest = nodes.count - sum(attackers.count for attackers in self.attackers)
        placed = nodes.parachains * (nodes.collators + nodes.validators)
        if honest < placed:
            text = f"{nodes.count}, of them {nodes.count - honest} attackers; parachains have {placed} collators and "
            raise option_error(
                "nodes", f"count = {text}validators, which are honest (allowed: so many honest nodes or more)"
            )
        for row, attackers in enumerate(self.attackers):
            if attackers.kind == "eclipse" and attackers.victims > honest:
                raise option_error("attackers", f"[{row}].victims = {attackers.victims}; allowed: up to {honest}")
            if attackers.rate > self.gossip.max_step_packets:
                raise option_error("attackers", f"[{row}].rate must be at most gossip.max_step_packets")
        return self

    def _validate_topics(self) -> None:
        nodes, topology, gossip = self.nodes, self.topology, self.gossip
        if topology.kind != "regular":
            raise option_error("topology", f'kind = "{topology.kind}": with gossip.topology = "from_to" only "regular"')
        if nodes.carried > gossip.max_subscriptions:
            raise option_error("nodes", f"carried = {nodes.carried} must be at most gossip.max_subscriptions")
        links = topology.degree + topology.entries * (nodes.parachains - 1)
        if links > gossip.max_peers:
            text = f"degree + entries * (nodes.parachains - 1) = {links} must be at most gossip.max_peers"
            raise option_error("topology", f"{text} = {gossip.max_peers}")

    def _validate_tickets(self) -> None:
        """Reject options that trading excludes: loss, churn, other topologies, sketches."""
        for section, key, value, allowed in (
            ("links", "loss", self.links.loss, 0.0),
            ("churn", "share", self.churn.share, 0.0),
            ("gossip", "topology", self.gossip.topology, "flat"),
            ("gossip", "reconciliation", self.gossip.reconciliation, "off"),
        ):
            if value != allowed:
                raise option_error(section, f'{key} = {value!r}: with tickets.mode = "on" only {allowed!r}')
        if self.tickets.deposit < self.tickets.prize:
            text = f"deposit = {self.tickets.deposit} must be at least price * odds = {self.tickets.prize}"
            raise option_error("tickets", text)

    @property
    def end(self) -> int:
        """Last tick."""
        last = self.relay.blocks if self.relay.table is None else int(self.relay.table.times[-1]) // self.relay.interval
        return math.ceil((last + 1 + self.tail) * self.relay.interval / self.slice)
