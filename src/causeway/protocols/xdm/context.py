"""What a block may know besides its chains' states and its inputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from causeway.protocols.execution import ProgramRunner
from causeway.protocols.xdm.chains import CONSENSUS_POSITION, Network
from causeway.protocols.xdm.fees import Fees
from causeway.protocols.xdm.operators import Operators
from causeway.protocols.xdm.options import XdmOptions
from causeway.protocols.xdm.planned import NONE_AGAIN, Again, Planned
from causeway.protocols.xdm.signing import ChainSigners


def block_number(tick: int) -> int:
    """Return the number of the blocks that chains make in a tick; genesis is block 0."""
    return tick + 1


@dataclass(frozen=True)
class Context:
    """A block's height and tick, the chains that make it (positions, ascending), the network, its programs, what
    the scenario plans, what requests cost, the operators of chains, and who signs for chains. ``again``: of chains the
    earlier ticks whose planned calls a fork took back, and their next block makes."""

    height: int
    tick: int
    seed: int
    chains: npt.NDArray[np.uint32]
    network: Network
    options: XdmOptions
    programs: ProgramRunner
    planned: Planned
    fees: Fees
    operators: Operators
    signers: ChainSigners
    again: Again = field(default_factory=lambda: NONE_AGAIN)

    @property
    def number(self) -> int:
        """Return the number of the block that every chain makes now."""
        return block_number(self.tick)

    @property
    def has_consensus(self) -> bool:
        """Return whether the consensus chain is among the chains."""
        return bool(len(self.chains)) and int(self.chains[0]) == CONSENSUS_POSITION
