"""The common part of the kernels with parachains: context, tables, genesis, planned calls."""

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
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions, ParaCall, ParachainNetwork
from causeway.protocols.relay_chain.runtime import ParachainCall, ParachainCallKind
from causeway.protocols.relay_chain.state import State
from causeway.protocols.shared.events import EventLog
from causeway.protocols.shared.execution import ProgramRunner, program_tables
from causeway.protocols.shared.limits import LAST_TICK
from causeway.protocols.shared.messages import OUTBOUND_SCHEMA
from causeway.protocols.shared.state_tables import StaticHosting, row_owners


@dataclass(frozen=True)
class Context:
    """The inputs of a block besides its state.

    Attributes:
        height: Height of the lake.
        tick: Tick of the block.
        chains: Positions of the chains that make the block, ascending.
        network: Fixed properties of the network.
        options: Options of the protocol.
        programs: Executor of the programs.
        active: Registered parachains at each leaf of the relay chain.
    """

    height: int
    tick: int
    chains: npt.NDArray[np.uint32]
    network: ParachainNetwork
    options: IcmpOptions
    programs: ProgramRunner
    active: Frame
    """Registered parachains at each leaf (``leaf``, ``para``), ascending."""


@dataclass(frozen=True)
class ParachainKernel(StaticHosting):
    """A state machine of a relay chain and its parachains.

    Attributes:
        topology: Chains, their roles and the programs on them.
        programs: Executor of the programs.
        options: Options of the protocol.
        seed: Seed of all random numbers.
        tick_ns: Duration of a tick (ns).
        faults: Planned faults.
        own_tables: State tables besides those of programs.
    """

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
        """Return the fixed properties of the network."""
        return ParachainNetwork(self.topology)

    @property
    def hosting(self) -> ParachainNetwork:
        """Return the hosting chain of each program."""
        return self.network

    def context(self, chains: Chains, active: Frame, tick: Tick) -> Context:
        """Create the context of a block.

        Args:
            chains: Positions of the chains that make the block, ascending.
            active: Registered parachains at each leaf (``leaf``, ``para``).
            tick: Height and tick of the block.
        """
        return Context(tick.height, tick.tick, chains, self.network, self.options, self.programs, active)

    def tables(self) -> Mapping[str, StateTable]:
        """Return all state tables by name, including those of programs."""
        return {**self.own_tables, **program_tables(self.programs.schemas())}

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Create a state from frames.

        Args:
            frames: Tables by name; missing tables are empty.
        """
        return State.from_frames(frames, self.own_tables, self.programs.schemas())

    def committed(self, state: State) -> Frame:
        """Return no ranges: tables hold all committed data.

        Args:
            state: Ignored; part of the kernel contract.
        """
        return empty_frame(RANGES_SCHEMA)

    @abstractmethod
    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Compute the storage root of each chain.

        Args:
            state: State of ``chains``.
            chains: Positions of the chains, ascending.
            tick: Height and tick of the state.
            committed: Ignored; part of the kernel contract.

        Returns:
            ``chain``, ``root``.
        """

    @abstractmethod
    def next_planned(self, tick: int) -> int | None:
        """Return the first tick with a planned event, or None.

        Args:
            tick: First tick to consider.
        """

    def complete_genesis(
        self, chains: Chains, tables: Mapping[str, Frame], logs: Mapping[str, Frame]
    ) -> RoundResult[State]:
        """Complete the state at height 0 with programs, accounts and headers.

        Args:
            chains: Positions of the chains, ascending.
            tables: Tables of the protocol.
            logs: Rows of log tables other than events.
        """
        own = self.network.programs_on(chains)
        accounts, programs = self.programs.genesis(own[self.programs.installed(own)])
        rows = {"program_" + name: frame for name, frame in programs.items()}
        state = self.state({"accounts": accounts, **tables, **rows})
        roots = self.roots(state, chains, Tick(0, 0), empty_frame(RANGES_SCHEMA))["root"]
        headers = genesis_headers(self.network.names, chains, roots)
        nothing = empty_frame(OUTBOUND_SCHEMA)
        return RoundResult(state, nothing, {**EventLog().logs(), **logs}, headers, self.next_planned(0))


def table_owners(kernel: AnyKernel, state: State, tick: Tick) -> dict[str, np.ndarray]:
    """Return the chain of each row of each state table.

    Args:
        kernel: Kernel of the state.
        state: State of any chains.
        tick: Height and tick of the state.
    """
    tables = kernel.tables()
    return {name: row_owners(kernel, tables[name], frame, tick.tick) for name, frame in state.frames().items()}


class PlannedParachainCalls:
    """The planned calls on parachains (``IcmpOptions.para_calls``), by tick.

    Args:
        options: Options of the protocol.
        network: Fixed properties of the network.

    Raises:
        InvalidInput: A call names an unknown chain.
    """

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
                value = "missing" if call.other is None else repr(call.other)
                raise InvalidInput(f"{key}.other: {value}; allowed with {call.do}: {allowed}")
            other = self._chain(f"{key}.other", call.other)
        elif call.other is not None:
            raise InvalidInput(f"{key}.other: {call.other!r}; allowed with block and unblock only")
        return ParachainCall(kind, para, other, genesis=genesis_hash(call.chain))

    @cached_property
    def late(self) -> set[int]:
        """Return the parachains that are unregistered at genesis: their first call registers them."""
        first: dict[int, ParachainCallKind] = {}
        for _, call in self._calls:
            if call.kind in (ParachainCallKind.REGISTER, ParachainCallKind.DEREGISTER):
                first.setdefault(call.para, call.kind)
        return {para for para, kind in first.items() if kind is ParachainCallKind.REGISTER}

    def between(self, first: int, last: int) -> Sequence[ParachainCall]:
        """Return the calls of a range of ticks, by tick, then in scenario order.

        Args:
            first: First tick.
            last: Last tick.
        """
        found = slice(bisect_left(self._ticks, first), bisect_right(self._ticks, last))
        return [call for _, call in self._calls[found]]

    @property
    def changes_parachains(self) -> bool:
        """Return True if a call registers or deregisters a parachain."""
        return any(call.kind in (ParachainCallKind.REGISTER, ParachainCallKind.DEREGISTER) for _, call in self._calls)

    def next_tick(self, tick: int) -> int | None:
        """Return the first tick with a call, or None.

        Args:
            tick: First tick to consider.
        """
        at = bisect_left(self._ticks, tick)
        return self._ticks[at] if at < len(self._ticks) else None

    @property
    def last_tick(self) -> int:
        """Return the last tick with a call, 0 without any."""
        return self._ticks[-1] if self._ticks else 0
