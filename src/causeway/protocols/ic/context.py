"""What a round may know besides its state and its inputs."""

from __future__ import annotations

from dataclasses import dataclass

from causeway.model.order import U64
from causeway.protocols.contract import Chains, Hosts
from causeway.protocols.execution import ProgramRunner
from causeway.protocols.ic.options import IcOptions
from causeway.protocols.ic.registry import Registry
from causeway.protocols.option_values import NANOSECONDS


def lifetime_ticks(options: IcOptions, tick_ns: int) -> int:
    """Return the first number of whole ticks that is not shorter than a request's lifetime."""
    return -(-options.request_lifetime_seconds * NANOSECONDS // tick_ns)


@dataclass(frozen=True)
class Context:
    """The batch's metadata: height, tick, the registry version in force, options, seed, and the programs installed.

    ``chains``: the positions of the chains that run this round. ``tick_ns``: nanoseconds a tick; the batch time is
    ``tick * tick_ns``, from the scenario, never from a clock. ``before``: the registry version of the round before.
    ``splitting``: the positions of the chains whose batch is a splitting batch (X-14), in which they run no round.
    """

    height: int
    tick: int
    tick_ns: int
    seed: int
    chains: Chains
    registry: Registry
    options: IcOptions
    programs: ProgramRunner
    before: Registry
    splitting: Chains

    def host_of(self, canisters: U64) -> Hosts:
        """Return ``subnet_assignment`` of each canister as a chain position, -1 where it is undefined."""
        return self.registry.host_of(canisters)
