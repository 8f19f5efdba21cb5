"""What is fixed in a network of chains: which is the consensus chain, the domains' numbers, where programs live.

Chains are positions here and in every column of the kernel: the consensus chain is 0, the domains follow in the order
of their numbers in the topology, and domain ``p - 1`` is at position p.

The numbers of endpoints (XDM reference X-3); the transporter's is the deployed one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.config.topology import Topology
from causeway.protocols.contract import Chains
from causeway.protocols.shared.state_tables import Hosting, add_role_chain

CONSENSUS = "consensus"
"""The role of the consensus chain, and the name of one that the scenario does not name."""

CONSENSUS_POSITION = 0


def add_consensus_chain(topology: Topology) -> Topology:
    """Return the topology with a consensus chain, where it has none. Raises ``InvalidInput`` for two of them."""
    return add_role_chain(topology, CONSENSUS, "the consensus chain")


@dataclass(frozen=True)
class DomainNetwork(Hosting):
    """The chains of a completed topology. Raises ``InvalidInput`` where programs move.

    Some may be run by other lakes. A lake that does not run the consensus chain follows it: what others would see of it
    is at its position, as far as it was carried here.
    """

    def __post_init__(self) -> None:
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under xdm programs stay on their chain; leave them out")

    def _rank(self, name: str, number: int) -> tuple[bool, int]:
        return self.topology.roles.get(number) != CONSENSUS, number

    @cached_property
    def external(self) -> Chains:
        """Return the positions of the chains that other lakes run, ascending."""
        mask = np.isin(self.numbers, np.array(self.topology.external, dtype=np.uint64))
        return np.flatnonzero(mask).astype(np.uint32)

    @property
    def follows(self) -> bool:
        """Return whether another lake runs the consensus chain."""
        return bool(len(self.external)) and int(self.external[0]) == CONSENSUS_POSITION

    def own(self, chains: Chains) -> Chains:
        """Return which of ``chains`` are run here."""
        return chains[~np.isin(chains, self.external)] if len(self.external) else chains

    @cached_property
    def pairs(self) -> tuple[Chains, Chains]:
        """Return both ends of every pair of different chains that host programs, ascending: (chain, foreign)."""
        hosts = self.hosting_chains
        chain, foreign = hosts.repeat(len(hosts)), np.tile(hosts, len(hosts))
        apart = chain != foreign
        return chain[apart], foreign[apart]


def chain_ids(positions: npt.NDArray[np.unsignedinteger]) -> pa.UInt32Array:
    """Return the chains at positions as the columns of wire types have them: the domain, null for the consensus
    chain."""
    numbers = positions.astype(np.int64)
    return pa.array(np.maximum(numbers - 1, 0).astype(np.uint32), pa.uint32(), mask=numbers == CONSENSUS_POSITION)


def positions_of_ids(ids: pa.UInt32Array) -> npt.NDArray[np.int64]:
    """Return the positions of chains in columns of wire types; what is no chain of the network is not told here."""
    filled: npt.NDArray[np.int64] = ids.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False) + 1
    return filled


PROGRAMS_ENDPOINT = 2
TRANSPORTER_ENDPOINT = 1
