"""Fixed properties of a network of parachains: relay chain, numbers, hosts of programs.

Chains are positions in every column of the kernel: the relay chain is 0, the parachains follow by their numbers in the
topology. The parachain at position p has ParaId p.
"""

from __future__ import annotations

from dataclasses import dataclass

from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Topology
from causeway.protocols.shared.state_tables import Hosting, add_role_chain

RELAY = "relay"
"""Role of the relay chain, and its default name."""

RELAY_POSITION = 0


def add_relay_chain(topology: Topology) -> Topology:
    """Return the topology with a relay chain added if it has none.

    Args:
        topology: Chains and their roles.

    Raises:
        InvalidInput: There are two relay chains.
    """
    return add_role_chain(topology, RELAY, "the relay chain")


@dataclass(frozen=True)
class ParachainNetwork(Hosting):
    """The chains of a completed topology.

    Raises:
        InvalidInput: A program moves, or is on the relay chain.
    """

    def __post_init__(self) -> None:
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under icmp programs stay on their chain; leave them out")
        if RELAY_POSITION in self.hosting_chains:
            name = self.names[RELAY_POSITION]
            raise InvalidInput(f"programs: {name!r} is the relay chain, on which no program runs; allowed: parachains")

    def _rank(self, name: str, number: int) -> tuple[bool, int]:
        return self.topology.roles.get(number) != RELAY, number
