"""A network that changes while it runs: one kernel before each change, another from its tick on.

What a kernel is made of (faults, programs and where they live) holds at all of its ticks. A change that nobody knew of
before its tick must not act on what was before it, so each stage between two changes has a kernel of its own, and this
one asks the one of the tick. A state has the tables of the programs that there are by then: a stage knows those of the
stages before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64

from causeway.core.frame import Frame, empty_frame
from causeway.protocols.contract import (
    AnyKernel,
    Chains,
    Hosts,
    Inputs,
    NearestState,
    Plan,
    RoundResult,
    StateTable,
    Tick,
    View,
    earliest,
)


@dataclass(frozen=True)
class FullState:
    """The state of a stage with the tables that come with later ones, all ``empty``."""

    inner: Any
    empty: Mapping[str, Frame]

    def frames(self) -> Mapping[str, Frame]:
        """Return the rows of every table by its name."""
        return {**self.inner.frames(), **self.empty}


def _fitted(state: Any, kernel: AnyKernel) -> Any:
    """Return a state with the tables of a stage's kernel, the same one where it has them."""
    state = state.inner if isinstance(state, FullState) else state
    frames, tables = state.frames(), kernel.tables()
    return state if frames.keys() == tables.keys() else kernel.state({n: frames[n] for n in tables if n in frames})


@dataclass(frozen=True)
class ChangingKernel:
    """The kernels of the stages of one network. ``ticks``: the first tick of each, ascending, of which the first is 0;
    ``kernels``: as many. All have the same chains, tables of their own, and logs."""

    ticks: tuple[int, ...]
    kernels: tuple[AnyKernel, ...]

    def at(self, tick: int) -> AnyKernel:
        """Return the kernel of a tick."""
        return self.kernels[bisect_right(self.ticks, tick) - 1]

    @property
    def last(self) -> AnyKernel:
        """Return the kernel after all changes: it knows all tables, and all programs."""
        return self.kernels[-1]

    def __getattr__(self, name: str) -> Any:
        """Return what else a kernel of the protocol has, as it is after all changes."""
        if name.startswith("__") or "kernels" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.last, name)

    # ---- what the network is

    @property
    def name(self) -> str:
        """Return the protocol's name."""
        return self.last.name

    @property
    def outbound(self) -> pa.Schema:
        """Return the columns of outbound entries."""
        return self.last.outbound

    @property
    def logs(self) -> Mapping[str, pa.Schema]:
        """Return the log tables by name."""
        return self.last.logs

    @property
    def last_tick(self) -> int:
        """Return the last tick for which anything may be planned."""
        return self.last.last_tick

    @cached_property
    def past_heights(self) -> int:
        """Return how many heights back any stage may ask for a chain's own state."""
        return max(kernel.past_heights for kernel in self.kernels)

    @cached_property
    def held_heights(self) -> int:
        """Return of how many of the last heights any stage may ask for the state itself."""
        return max(kernel.held_heights for kernel in self.kernels)

    @cached_property
    def header_heights(self) -> int:
        """Return of how many heights the headers are shown, at most; a stage sees those that it asks for."""
        return max(kernel.header_heights for kernel in self.kernels)

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        return self.last.chains()

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        return self.last.numbers()

    def weights(self) -> npt.NDArray[np.float64]:
        """Return how much work each chain is, by position, before any change."""
        return self.kernels[0].weights()

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has at some tick, by name."""
        return self.last.tables()

    def registry_version(self, tick: int) -> int:
        """Return a number that changes whenever programs change chains, in force in the round of ``tick``."""
        return self.at(tick).registry_version(tick)

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the chain of each program in the round of ``tick``: its host, or the last one that it had."""
        return self.at(tick).hosts(programs, tick)

    # ---- states

    def state(self, frames: Mapping[str, Frame]) -> Any:
        """Return the state that has these tables; one that is absent is empty."""
        return self.last.state(frames)

    def fit_tables(self, state: Any, tick: int) -> Any:
        """Return a state with the tables that there are in the round of ``tick``, the same one where it has them."""
        return _fitted(state, self.at(tick))

    def _whole(self, state: Any) -> Any:
        """Return a state of some stage with the tables of all."""
        missing = self.tables().keys() - state.frames().keys()
        return FullState(state, {name: self._empty[name] for name in sorted(missing)}) if missing else state

    @cached_property
    def _empty(self) -> dict[str, Frame]:
        return {name: empty_frame(table.schema) for name, table in self.tables().items()}

    def committed(self, state: Any) -> Frame:
        """Return the outbound entries that the roots of a state commit to."""
        return self.last.committed(state.inner if isinstance(state, FullState) else state)

    def roots(self, state: Any, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's state, as its header has it."""
        # Height 0 is before any change, also before one at tick 0.
        kernel = self.kernels[0] if tick.height == 0 else self.at(tick.tick)
        return kernel.roots(_fitted(state, kernel), chains, tick, committed)

    # ---- rounds

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[Any]:
        """Return the state of ``chains`` at height 0."""
        return self._woken(self.kernels[0].genesis(chains, coming), -1)  # a change may be at tick 0

    def plan(
        self, state: Any, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[Any]:
        """Decide what ``chains`` take from what they see."""
        kernel = self.at(tick.tick)
        if kernel.header_heights < self.header_heights:
            shown = view.headers["height"].astype(np.int64) >= tick.height - kernel.header_heights
            view = replace(view, headers=view.headers.filter(shown))
        return kernel.plan(self.fit_tables(state, tick.tick), chains, view, ingress, carried, tick)

    def round(self, state: Any, chains: Chains, plan: Plan[Any], inputs: Inputs[Any], tick: Tick) -> RoundResult[Any]:
        """Run one round of ``chains`` on what was read."""
        past = {height: self.fit_tables(found, tick.tick) for height, found in inputs.past.items()}
        nearest = {
            table: {
                height: NearestState(self.fit_tables(found.state, tick.tick), found.rows)
                for height, found in rows.items()
            }
            for table, rows in inputs.nearest.items()
        }
        inputs = replace(inputs, past=past, nearest=nearest)
        result = self.at(tick.tick).round(self.fit_tables(state, tick.tick), chains, plan, inputs, tick)
        return self._woken(result, tick.tick)

    def _woken(self, result: RoundResult[Any], tick: int) -> RoundResult[Any]:
        """Return a result that wakes for the next change, and gives nothing up before it."""
        result = replace(result, state=self._whole(result.state))
        place = bisect_right(self.ticks, tick, lo=1)  # the first is that of the beginning
        if place == len(self.ticks):
            return result
        change = self.ticks[place]
        gives_up = None if result.gives_up is None else max(result.gives_up, change + 1)
        return replace(result, wake=earliest(result.wake, change), gives_up=gives_up)
