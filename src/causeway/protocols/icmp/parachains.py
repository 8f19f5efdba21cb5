"""What the kernels of a relay chain and its parachains have in common, whatever messages go through."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from causeway.model.faults import Faults
from causeway.model.frame import Frame, empty_frame
from causeway.model.topology import Topology
from causeway.protocols.block_numbers import LAST_TICK
from causeway.protocols.contract import RANGES_SCHEMA, AnyKernel, Chains, RoundResult, StateTable, Tick
from causeway.protocols.events import EventLog
from causeway.protocols.execution import ProgramRunner, program_tables
from causeway.protocols.hosting import HostedForGood
from causeway.protocols.icmp.chains import Network
from causeway.protocols.icmp.committing import genesis_headers
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.options import IcmpOptions
from causeway.protocols.icmp.state import State
from causeway.protocols.messages import OUTBOUND_SCHEMA
from causeway.protocols.partition import owners


@dataclass(frozen=True)
class ParachainKernel(HostedForGood):
    """A state machine of a relay chain and its parachains. ``faults``: what goes wrong on purpose; ``own_tables``: the
    tables of its states, beside those of programs."""

    topology: Topology
    programs: ProgramRunner
    options: IcmpOptions = field(default_factory=IcmpOptions)
    seed: int = 0
    tick_ns: int = 1_000_000_000
    faults: Faults = field(default_factory=Faults)

    name: ClassVar[str] = "icmp"
    outbound: ClassVar[pa.Schema] = OUTBOUND_SCHEMA
    logs: ClassVar[Mapping[str, pa.Schema]]
    header_heights: ClassVar[int] = 1
    last_tick: ClassVar[int] = LAST_TICK
    own_tables: ClassVar[Mapping[str, StateTable]]

    @cached_property
    def network(self) -> Network:
        """Return the fixed parts of the network."""
        return Network(self.topology)

    @property
    def hosting(self) -> Network:
        """Return the chains, and where programs live."""
        return self.network

    def context(self, chains: Chains, active: Frame, tick: Tick) -> Context:
        """Return what a block of ``chains`` at ``tick`` may know; ``active``: the parachains that are registered, at
        each leaf (``leaf``, ``para``)."""
        return Context(tick.height, tick.tick, chains, self.network, self.options, self.programs, active)

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        return {**self.own_tables, **program_tables(self.programs.schemas())}

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        return State.of_frames(frames, self.own_tables, self.programs.schemas())

    def committed(self, state: State) -> Frame:
        """Return no entries: what is sent is in tables of the state."""
        return empty_frame(RANGES_SCHEMA)

    @abstractmethod
    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's storage (``chain``, ``root``)."""

    @abstractmethod
    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which the scenario has planned something, None if none is."""

    def begun(self, chains: Chains, tables: Mapping[str, Frame], logs: Mapping[str, Frame]) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0: ``tables``, and programs with their accounts; ``logs``: rows of
        tables that events are not."""
        own = self.network.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        rows = {"program_" + name: frame for name, frame in programs.items()}
        state = self.state({"accounts": accounts, **tables, **rows})
        roots = self.roots(state, chains, Tick(0, 0), empty_frame(RANGES_SCHEMA))["root"]
        headers = genesis_headers(self.network.names, chains, roots)
        nothing = empty_frame(OUTBOUND_SCHEMA)
        return RoundResult(state, nothing, {**EventLog().logs(), **logs}, headers, self.next_planned(0))


def owners_of(kernel: AnyKernel, state: State, tick: Tick) -> dict[str, np.ndarray]:
    """Return the chain that each row of each table of a state is of."""
    tables = kernel.tables()
    return {name: owners(kernel, tables[name], frame, tick.tick) for name, frame in state.frames().items()}
