"""What is fixed in a network of parachains: which is the relay chain, the parachains' numbers, where programs live.

Chains are positions here and in every column of the kernel: the relay chain is 0, the parachains follow in the order of
their numbers in the topology, and the parachain at position p has the ParaId p.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Topology
from causeway.protocols.shared.state_tables import Hosting, add_role_chain

RELAY = "relay"
"""The role of the relay chain, and the name of one that the scenario does not name."""

RELAY_POSITION = 0


def add_relay_chain(topology: Topology) -> Topology:
    """Return the topology with a relay chain, where it has none. Raises ``InvalidInput`` for two of them."""
    return add_role_chain(topology, RELAY, "the relay chain")


@dataclass(frozen=True)
class ParachainNetwork(Hosting):
    """The chains of a completed topology. Raises ``InvalidInput`` where programs move, or live on the relay chain."""

    def __post_init__(self) -> None:
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under icmp programs stay on their chain; leave them out")
        if RELAY_POSITION in self.hosting_chains:
            name = self.names[RELAY_POSITION]
            raise InvalidInput(f"programs: {name!r} is the relay chain, on which no program runs; allowed: parachains")

    def _rank(self, name: str, number: int) -> tuple[bool, int]:
        return self.topology.roles.get(number) != RELAY, number
