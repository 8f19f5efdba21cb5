"""What the kernels of a relay chain and its parachains have in common, whatever messages go through.

What a block may know besides its chains' states and its inputs.

Calls to the relay chain that a scenario plans, by tick (``IcmpOptions.para_calls``).
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import InvalidInput

from causeway.config.faults import Faults
from causeway.config.topology import Topology
from causeway.core.frame import Frame, empty_frame
from causeway.protocols.contract import RANGES_SCHEMA, AnyKernel, Chains, RoundResult, StateTable, Tick
from causeway.protocols.relay_chain.commitment import genesis_hash, genesis_headers
from causeway.protocols.relay_chain.network import RELAY_POSITION, ParachainNetwork
from causeway.protocols.relay_chain.options import IcmpOptions, ParaCall
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.block_numbers import LAST_TICK
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import ProgramRunner, program_tables
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import StaticHosting, row_owners


@dataclass(frozen=True)
class Context:
    """A block's height and tick, the chains that make it (positions, ascending), the network and its programs."""

    height: int
    tick: int
    chains: npt.NDArray[np.uint32]
    network: ParachainNetwork
    options: IcmpOptions
    programs: ProgramRunner
    active: Frame
    """The parachains that are registered, at each leaf of the relay chain (``leaf``, ``para``), ascending."""


@dataclass(frozen=True)
class ParachainKernel(StaticHosting):
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
    def network(self) -> ParachainNetwork:
        """Return the fixed parts of the network."""
        return ParachainNetwork(self.topology)

    @property
    def hosting(self) -> ParachainNetwork:
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
        return State.from_frames(frames, self.own_tables, self.programs.schemas())

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


def table_owners(kernel: AnyKernel, state: State, tick: Tick) -> dict[str, np.ndarray]:
    """Return the chain that each row of each table of a state is of."""
    tables = kernel.tables()
    return {name: row_owners(kernel, tables[name], frame, tick.tick) for name, frame in state.frames().items()}


class PlannedParachainCalls:
    """The calls of a scenario's options. Raises ``InvalidInput`` for chains that there are not."""

    def __init__(self, options: IcmpOptions, network: ParachainNetwork) -> None:
        self._names = network.names
        self._positions = {name: position for position, name in enumerate(network.names)}
        calls = [(call.tick, self._call(row, call)) for row, call in enumerate(options.para_calls)]
        self._calls = sorted(calls, key=lambda entry: entry[0])
        self._ticks = [tick for tick, _ in self._calls]

    def _chain(self, key: str, name: str) -> int:
        position = self._positions.get(name, RELAY_POSITION)
        if position == RELAY_POSITION:
            allowed = ", ".join(name for name in self._names if self._positions[name] != RELAY_POSITION)
            raise InvalidInput(f"{key}: {name!r} is no parachain; allowed: {allowed}")
        return position

    def _call(self, row: int, call: ParaCall) -> ParachainCall:
        key = f"options.para_calls[{row}]"
        para, other = self._chain(f"{key}.chain", call.chain), 0
        kind = ParachainCallKind(call.do)
        if kind in (ParachainCallKind.BLOCK, ParachainCallKind.UNBLOCK):
            if call.other is None or call.other == call.chain:
                allowed = "the name of the parachain that it does not want to hear, another one"
                given = "missing" if call.other is None else repr(call.other)
                raise InvalidInput(f"{key}.other: {given}; allowed with {call.do}: {allowed}")
            other = self._chain(f"{key}.other", call.other)
        elif call.other is not None:
            raise InvalidInput(f"{key}.other: {call.other!r}; allowed with block and unblock only")
        return ParachainCall(kind, para, other, genesis=genesis_hash(call.chain))

    @cached_property
    def late(self) -> set[int]:
        """Return the parachains that are not registered at genesis: those whose first call registers them."""
        first: dict[int, ParachainCallKind] = {}
        for _, call in self._calls:
            if call.kind in (ParachainCallKind.REGISTER, ParachainCallKind.DEREGISTER):
                first.setdefault(call.para, call.kind)
        return {para for para, kind in first.items() if kind is ParachainCallKind.REGISTER}

    def between(self, first: int, last: int) -> Sequence[ParachainCall]:
        """Return the calls of the ticks ``first`` to ``last``, by tick, then in the order of the scenario."""
        found = slice(bisect_left(self._ticks, first), bisect_right(self._ticks, last))
        return [call for _, call in self._calls[found]]

    @property
    def changes_parachains(self) -> bool:
        """Return whether parachains come or go."""
        return any(call.kind in (ParachainCallKind.REGISTER, ParachainCallKind.DEREGISTER) for _, call in self._calls)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick from ``tick`` on in which a call is made, None if there is none."""
        at = bisect_left(self._ticks, tick)
        return self._ticks[at] if at < len(self._ticks) else None

    @property
    def last_tick(self) -> int:
        """Return the last tick in which a call is made, 0 without any."""
        return self._ticks[-1] if self._ticks else 0
