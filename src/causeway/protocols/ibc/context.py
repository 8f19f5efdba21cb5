"""What a block may know besides its zones' states and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from causeway.protocols.execution import ProgramRunner
from causeway.protocols.ibc.options import IbcOptions
from causeway.protocols.ibc.zones import Zones
from causeway.protocols.secrets import NONE, Secrets


@dataclass(frozen=True)
class Context:
    """A block's height, tick and time, the zones that make it, the network's fixed parts and the programs installed.

    ``chains``: the positions of the zones that make a block now, ascending. ``tick_ns``: nanoseconds a tick.
    ``secrets``: keys of validators that are not drawn from the seed.
    """

    height: int
    tick: int
    tick_ns: int
    seed: int
    chains: npt.NDArray[np.uint32]
    zones: Zones
    options: IbcOptions
    programs: ProgramRunner
    secrets: Secrets = NONE

    @property
    def time(self) -> int:
        """Return the block's time in nanoseconds: one tick after genesis at tick 0; it is the scenario's."""
        return (self.tick + 1) * self.tick_ns
