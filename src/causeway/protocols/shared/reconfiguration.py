"""Scheduled changes of a running network: one kernel for each stage between two changes.

The fixed parts of a kernel (faults, programs and their hosts) hold for all its ticks. A change must not affect earlier
ticks, so each stage has its own kernel, and ``ChangingKernel`` delegates to the kernel of the tick. A state has the
tables of its stage's programs; a stage knows those of earlier stages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
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
    Tick,
    View,
    earliest,
)


@dataclass(frozen=True)
class FullState:
    """The state of a stage, with the tables of later stages added as ``empty``."""

    inner: Any
    empty: Mapping[str, Frame]

    def frames(self) -> Mapping[str, Frame]:
        """Return the rows of every table by name."""
        return {**self.inner.frames(), **self.empty}


def _fitted(state: Any, kernel: AnyKernel) -> Any:
    """Return a state with the tables of a stage's kernel; the same object if it fits."""
    state = state.inner if isinstance(state, FullState) else state
    frames, tables = state.frames(), kernel.tables()
    return state if frames.keys() == tables.keys() else kernel.state({n: frames[n] for n in tables if n in frames})


@dataclass(frozen=True)
class ChangingKernel:
    """The kernels of the stages of one network.

    Attributes:
        ticks: The first tick of each stage, ascending from 0.
        kernels: The kernels; equal chains and logs, own tables.
    """

    ticks: tuple[int, ...]
    kernels: tuple[AnyKernel, ...]

    def at(self, tick: int) -> AnyKernel:
        """Return the kernel of a tick."""
        return self.kernels[bisect_right(self.ticks, tick) - 1]

    @property
    def last(self) -> AnyKernel:
        """Return the kernel after all changes, which knows all tables and programs."""
        return self.kernels[-1]

    def __getattr__(self, name: str) -> Any:
        """Return other attributes of the protocol's kernel, as after all changes."""
        if name.startswith("__") or "kernels" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.last, name)

    # ---- network, besides what is equal in all stages

    @cached_property
    def past_heights(self) -> int:
        """Return the maximum age of an own state that any stage may request."""
        return max(kernel.past_heights for kernel in self.kernels)

    @cached_property
    def retained_heights(self) -> int:
        """Return the maximum number of cached recent states of any stage."""
        return max(kernel.retained_heights for kernel in self.kernels)

    @cached_property
    def header_heights(self) -> int:
        """Return the maximum number of visible heights of headers of any stage."""
        return max(kernel.header_heights for kernel in self.kernels)

    def weights(self) -> npt.NDArray[np.float64]:
        """Return the relative load of each chain, by position, before any change."""
        return self.kernels[0].weights()

    def registry_version(self, tick: int) -> int:
        """Return a number that changes with every move of a program, for the round of ``tick``."""
        return self.at(tick).registry_version(tick)

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the current or last host of each program in the round of ``tick``."""
        return self.at(tick).hosts(programs, tick)

    # ---- states

    def fit_tables(self, state: Any, tick: int) -> Any:
        """Return a state with the tables of the stage of ``tick``; the same object if it fits."""
        return _fitted(state, self.at(tick))

    def _whole(self, state: Any) -> Any:
        """Return a state of a stage with the tables of all stages."""
        missing = self.tables().keys() - state.frames().keys()
        return FullState(state, {name: self._empty[name] for name in sorted(missing)}) if missing else state

    @cached_property
    def _empty(self) -> dict[str, Frame]:
        return {name: empty_frame(table.schema) for name, table in self.tables().items()}

    def committed(self, state: Any) -> Frame:
        """Return the outbound entries that the roots of a state commit to."""
        return self.last.committed(state.inner if isinstance(state, FullState) else state)

    def roots(self, state: Any, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's state, as in its header."""
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
        """Plan the round with the kernel of the tick."""
        kernel = self.at(tick.tick)
        if kernel.header_heights < self.header_heights:
            is_visible = view.headers["height"].astype(np.int64) >= tick.height - kernel.header_heights
            view = replace(view, headers=view.headers.filter(is_visible))
        return kernel.plan(self.fit_tables(state, tick.tick), chains, view, ingress, carried, tick)

    def round(self, state: Any, chains: Chains, plan: Plan[Any], inputs: Inputs[Any], tick: Tick) -> RoundResult[Any]:
        """Run the round with the kernel of the tick."""
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
        """Extend the wake-up and the idle limit of a result to the next change."""
        result = replace(result, state=self._whole(result.state))
        place = bisect_right(self.ticks, tick, lo=1)  # the first is that of the beginning
        if place == len(self.ticks):
            return result
        change = self.ticks[place]
        gives_up = None if result.gives_up is None else max(result.gives_up, change + 1)
        return replace(result, wake=earliest(result.wake, change), gives_up=gives_up)
