"""Fixed properties of a network: consensus chain, domain numbers, hosts of programs.

Chains are positions in every column of the kernel: the consensus chain is 0, the domains follow by their numbers in the
topology. Domain ``p - 1`` has position p.

Endpoint numbers follow the reference (XDM, X-3); the transporter has the deployed number.
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
"""Role of the consensus chain, and its default name."""

CONSENSUS_POSITION = 0


def add_consensus_chain(topology: Topology) -> Topology:
    """Return the topology with a consensus chain added if it has none.

    Args:
        topology: Chains and their roles.

    Raises:
        InvalidInput: There are two consensus chains.
    """
    return add_role_chain(topology, CONSENSUS, "the consensus chain")


@dataclass(frozen=True)
class DomainNetwork(Hosting):
    """The chains of a completed topology.

    Other lakes may run some of them. A lake without the consensus chain follows it and stores its delivered rows at its
    position.

    Raises:
        InvalidInput: A program moves.
    """

    def __post_init__(self) -> None:
        if self.topology.moves.num_rows:
            raise InvalidInput("moves: under xdm programs stay on their chain; leave them out")

    def _rank(self, name: str, number: int) -> tuple[bool, int]:
        return self.topology.roles.get(number) != CONSENSUS, number

    @cached_property
    def external(self) -> Chains:
        """Return the positions of chains of other lakes, ascending."""
        mask = np.isin(self.numbers, np.array(self.topology.external, dtype=np.uint64))
        return np.flatnonzero(mask).astype(np.uint32)

    @cached_property
    def follows(self) -> bool:
        """Return True if another lake runs the consensus chain."""
        return bool(len(self.external)) and int(self.external[0]) == CONSENSUS_POSITION

    def own(self, chains: Chains) -> Chains:
        """Return the local chains among ``chains``."""
        return chains[~np.isin(chains, self.external)] if len(self.external) else chains

    @cached_property
    def pairs(self) -> tuple[Chains, Chains]:
        """Return all ordered pairs of different hosting chains, ascending: (chain, foreign)."""
        hosts = self.hosting_chains
        chain, foreign = hosts.repeat(len(hosts)), np.tile(hosts, len(hosts))
        distinct = chain != foreign
        return chain[distinct], foreign[distinct]


def chain_ids(positions: npt.NDArray[np.unsignedinteger]) -> pa.UInt32Array:
    """Return chain positions as a wire column: the domain, null for the consensus chain."""
    numbers = positions.astype(np.int64)
    return pa.array(np.maximum(numbers - 1, 0).astype(np.uint32), pa.uint32(), mask=numbers == CONSENSUS_POSITION)


def positions_of_ids(ids: pa.UInt32Array) -> npt.NDArray[np.int64]:
    """Return the positions of a wire column of chains, without a range check."""
    filled: npt.NDArray[np.int64] = ids.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False) + 1
    return filled


PROGRAMS_ENDPOINT = 2
TRANSPORTER_ENDPOINT = 1
"""Endpoint numbers."""
