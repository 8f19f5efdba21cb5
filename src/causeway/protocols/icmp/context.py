"""What a block may know besides its chains' states and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.protocols.execution import ProgramRunner
from causeway.protocols.icmp.chains import Network
from causeway.protocols.icmp.options import IcmpOptions


@dataclass(frozen=True)
class Context:
    """A block's height and tick, the chains that make it (positions, ascending), the network and its programs."""

    height: int
    tick: int
    chains: npt.NDArray[np.uint32]
    network: Network
    options: IcmpOptions
    programs: ProgramRunner
    active: Frame
    """The parachains that are registered, at each leaf of the relay chain (``leaf``, ``para``), ascending."""
