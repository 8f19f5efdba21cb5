"""The kernel contract: the interface between the pipeline and a protocol.

A kernel is a pure function of its arguments: no I/O, no clock, no global state, no Spark. Every column of chains holds
positions, so one call serves any set of chains. The result for a chain never depends on the other chains of the call.

A round has two steps. ``plan`` selects the inputs from small tables and lists the rows to read; the pipeline reads
them; ``round`` verifies them before use, and may still refuse. A refusal is an event with the name of its error.

The end of the module decides the tick of a network's next round. It serves protocols that cannot predict the exact tick
at which a pending message moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64

from causeway.config.traffic import INGRESS_SCHEMA
from causeway.core.frame import Frame, empty_frame

Chains = npt.NDArray[np.uint32]
"""Positions of chains: rows in the kernel's list of chains, ascending."""

Hosts = npt.NDArray[np.int32]
"""Positions of the hosting chains of programs; ``NO_HOST`` for a program that never had one."""

NO_HOST = -1


class Visibility(Enum):
    """Visibility of the rows of a state table to other chains at the next height."""

    NOBODY = "nobody"
    DESTINATION = "destination"
    EVERYONE = "everyone"


@dataclass(frozen=True)
class StateTable:
    """Schema, row order, ownership and visibility of a state table.

    Attributes:
        schema: The columns.
        owner: The column that assigns a row to a chain, either directly or as the host of a program.
        order: The columns of the ascending sort key, which is unique.
        chains: The columns with positions of chains.
        programs: The columns with numbers of programs.
        shown: The visibility of the rows.
        shown_to: The column with the one chain that sees a row, if ``shown`` is ``DESTINATION``.
    """

    schema: pa.Schema
    owner: str
    order: tuple[str, ...]
    chains: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    shown: Visibility = Visibility.NOBODY
    shown_to: str = "destination"

    @property
    def belongs_to_program(self) -> bool:
        """Return True if a row belongs to the chain that hosts a program."""
        return self.owner in self.programs


UINT8, UINT32, UINT64 = pa.uint8(), pa.uint32(), pa.uint64()
BYTES, DIGEST, TEXT = pa.binary(), pa.binary(32), pa.string()
"""The types of columns of state and log tables."""


def table_schema(*fields: pa.Field, **columns: pa.DataType) -> pa.Schema:
    """Return the schema of a table without nulls.

    Args:
        fields: The first fields.
        columns: The types of further columns by name, in order.
    """
    return pa.schema([*fields, *(pa.field(name, kind, nullable=False) for name, kind in columns.items())])


HEADERS_SCHEMA = table_schema(chain=UINT32, number=UINT64, hash=BYTES, parent=BYTES, root=DIGEST, certification=BYTES)
"""Headers of a height: block number, state root and certification.

A chain may produce several headers at one height, or none. ``hash`` and ``parent`` identify the block and its
predecessor on chains with forks; both are empty where the block number identifies the block.
"""

SEEN_HEADERS_SCHEMA = pa.schema([pa.field("height", UINT64, nullable=False), *HEADERS_SCHEMA])
"""Headers visible to all chains, each with its ``height``.

They ascend by chain, height, number.
"""

RANGES_SCHEMA = table_schema(
    source=UINT32, destination=UINT32, substream=UINT64, height=UINT64, begin=UINT64, end=UINT64
)
"""Outbound entries ``begin`` to ``end`` - 1 of a lane, produced by the source at ``height``.

``shared.messages.locate_ranges`` splits arbitrary ranges accordingly. Ranges are disjoint and not empty.
"""

HEIGHTS_SCHEMA = table_schema(chain=UINT32, first=UINT64, last=UINT64)
"""The heights ``first`` to ``last`` of a chain, both inclusive."""


PAST_SCHEMA = table_schema(chain=UINT32, height=UINT64)
"""One chain at one height."""


@dataclass(frozen=True)
class Tick:
    """Height and time of a round, set by the driver.

    Attributes:
        height: The height, one more than the previous height.
        tick: The scenario's time.
        coming: The next tick after this one with external input; None if none is known.
        quiet_since: The first tick of the current quiet period: no chain moved and no input arrived after it. Input of
            this very tick counts.
    """

    height: int
    tick: int
    coming: int | None = None
    quiet_since: int = 0


@dataclass(frozen=True)
class View:
    """State of other chains at the previous height, as visible to the chains of a call.

    Attributes:
        tables: The visible rows of each shared state table, in the table's order.
        headers: The headers of all chains at the last ``header_heights`` heights (``SEEN_HEADERS_SCHEMA``).
    """

    tables: Mapping[str, Frame]
    headers: Frame


@dataclass(frozen=True)
class Reads:
    """Rows and states that a round reads, over all chains of the call.

    Attributes:
        offered: Outbound entries of any chain to the chains of the call (``RANGES_SCHEMA``).
        own: Outbound entries of the chains themselves (``RANGES_SCHEMA``).
        rows: Rows of log tables at earlier heights, by log table (``HEIGHTS_SCHEMA``).
        past: Heights of required own states (``PAST_SCHEMA``).
        nearest: By log table, heights whose state may be replaced by an earlier state plus the table's rows of the
            blocks since (``PAST_SCHEMA``). Nothing is executed for it.
        headers: Heights of required headers of any chain, unless the view contains them (``PAST_SCHEMA``).
        ingress: Heights of required user messages of abandoned blocks (``HEIGHTS_SCHEMA``).
    """

    offered: Frame = field(default_factory=lambda: empty_frame(RANGES_SCHEMA))
    own: Frame = field(default_factory=lambda: empty_frame(RANGES_SCHEMA))
    rows: Mapping[str, Frame] = field(default_factory=dict)
    past: Frame = field(default_factory=lambda: empty_frame(PAST_SCHEMA))
    nearest: Mapping[str, Frame] = field(default_factory=dict)
    headers: Frame = field(default_factory=lambda: empty_frame(PAST_SCHEMA))
    ingress: Frame = field(default_factory=lambda: empty_frame(HEIGHTS_SCHEMA))


State_co = TypeVar("State_co", covariant=True)
State = TypeVar("State", bound="ChainState")
Content = TypeVar("Content")


class ChainState(Protocol):
    """The state of a set of chains at one height.

    A state may hold indexes derived from its tables (a trie, a forest) that are in no frame:
    ``kernel.state(state.frames())`` gives the same results.
    """

    def frames(self) -> Mapping[str, Frame]:
        """Return the rows of every table by name.

        A round returns unchanged tables as the same objects.
        """


@dataclass(frozen=True)
class Plan(Generic[Content]):
    """Decisions of a set of chains for a round.

    Attributes:
        reads: The rows to read.
        content: The decisions, opaque to the pipeline.
        events: The events of early refusals.
    """

    reads: Reads
    content: Content
    events: Frame


@dataclass(frozen=True)
class NearestState(Generic[State]):
    """Closest available state of chains at or before a height.

    Attributes:
        state: The state at that height, or at an earlier height that none of the chains has abandoned.
        rows: The rows of a log table since that state, with ``height`` and ``tick``, ascending by height. Rows of
            abandoned blocks are left out.
    """

    state: State
    rows: Frame


@dataclass(frozen=True)
class Inputs(Generic[State]):
    """Inputs of a round: external messages and the rows that the plan requested.

    Attributes:
        ingress: Messages from users (``INGRESS_SCHEMA``).
        carried: Wire bytes from outside (``CARRIED_SCHEMA``), in order of arrival.
        offered: Rows of the kernel's ``outbound`` columns from any chain. Their order depends on the bucket partition.
        own: Rows of the kernel's ``outbound`` columns from the chains themselves, in such an order too.
        rows: Rows by log table, with ``height`` and ``tick``; those of one chain in log order.
        past: States by height, of the chains that requested that height.
        headers: Headers (``SEEN_HEADERS_SCHEMA``).
        again: Messages from users at earlier heights (``INGRESS_SCHEMA``), ascending by height.
        nearest: Closest states by log table and height.
    """

    ingress: pa.Table
    carried: pa.Table
    offered: Frame
    own: Frame
    rows: Mapping[str, Frame] = field(default_factory=dict)
    past: Mapping[int, State] = field(default_factory=dict)
    headers: Frame = field(default_factory=lambda: empty_frame(SEEN_HEADERS_SCHEMA))
    again: pa.Table = field(default_factory=INGRESS_SCHEMA.empty_table)
    nearest: Mapping[str, Mapping[int, NearestState[State]]] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundResult(Generic[State_co]):
    """Result of a round.

    Attributes:
        state: The next state.
        outbound: Entries appended to lanes, ascending by (destination, source, substream, index).
        logs: Rows of the kernel's log tables, those of the ledger (``events``, ``collected``) included.
        headers: The new headers (``HEADERS_SCHEMA``).
        wake: The next tick with internal activity; None if only external input can cause any.
        needs: The lowest height whose outbound entries may still be read; None if none may.
        gives_up: The idle limit: from this tick on, a round without movement or expected input is the last, whatever
            ``wake`` says. None for no limit. Only the driver sees all chains, so the driver ends the run.
        upkeep: Log tables with rows in every block; such rows do not count as movement.
        work: Work counters of the round (``causeway_proofs.work``), recorded by the caller.
    """

    state: State_co
    outbound: Frame
    logs: Mapping[str, Frame]
    headers: Frame
    wake: int | None = None
    needs: int | None = None
    gives_up: int | None = None
    upkeep: tuple[str, ...] = ()
    work: Mapping[str, int] = field(default_factory=dict)


class Kernel(Protocol[State, Content]):
    """One protocol over one network, as driven by the pipeline. Picklable."""

    name: ClassVar[str]
    outbound: ClassVar[pa.Schema]
    """Columns of outbound entries.

    ``source``, ``destination``, ``substream``, ``index`` come first.
    """
    logs: ClassVar[Mapping[str, pa.Schema]]
    """Log tables by name, those of the ledger included.

    The column ``chain`` holds the owner of a row.
    """
    last_tick: ClassVar[int]
    """The last tick that a scenario may use."""

    @property
    def past_heights(self) -> int:
        """Return the maximum age in heights of an own state that a plan may request; 0 for none.

        Applies to ``Reads.past`` and ``Reads.nearest``.
        """

    @property
    def retained_heights(self) -> int:
        """Return the number of recent states that a process keeps in memory for ``Reads.past``.

        Such requests read and execute nothing.
        """

    @property
    def header_heights(self) -> int:
        """Return the number of recent heights whose headers all chains see."""

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""

    def weights(self) -> npt.NDArray[np.float64]:
        """Return the relative load of each chain, by position, to balance buckets."""

    def tables(self) -> Mapping[str, StateTable]:
        """Return every state table by name, those of the program classes in use included."""

    def registry_version(self, tick: int) -> int:
        """Return a number that changes with every move of a program, for the round of ``tick``."""

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the current or last host of each program in the round of ``tick``.

        Args:
            programs: Numbers of programs.
            tick: The tick of the round.

        Returns:
            Positions of chains, int32. The state of a removed program stays on its last host until that chain's round
            has processed the removal.
        """

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0, with headers and the next tick.

        Args:
            chains: Positions of chains.
            coming: The first tick with external input; None if none is known.
        """

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state with these tables; absent tables are empty."""

    def committed(self, state: State) -> Frame:
        """Return the outbound entries under the state roots that are in no table of the state.

        Returns:
            Ranges (``RANGES_SCHEMA``) of the entries that ``roots`` needs.
        """

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the state roots of chains, as in their headers.

        Args:
            state: The result of the round of ``tick``, or of genesis.
            chains: Positions of chains.
            tick: The tick of the round.
            committed: The entries listed by ``committed``.

        Returns:
            A frame (``chain``, ``root``): several rows for a chain with several headers at the height, none for a chain
            of another lake.
        """

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[Content]:
        """Select the inputs of ``chains`` from their view.

        Each refusal is an event with the name of its error.

        Args:
            state: The state of the chains at the previous height.
            chains: Positions of chains.
            view: The visible state of other chains.
            ingress: Messages from users (``INGRESS_SCHEMA``).
            carried: Wire bytes from outside (``CARRIED_SCHEMA``).
            tick: The tick of the round.

        Returns:
            The plan of the round.
        """

    def round(
        self, state: State, chains: Chains, plan: Plan[Content], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one round of ``chains`` on the rows that the plan requested.

        Args:
            state: The state of the chains at the previous height.
            chains: Positions of chains.
            plan: The plan of the same round.
            inputs: The messages and the requested rows.
            tick: The tick of the round.

        Returns:
            The next state, outbound entries, logs and headers.
        """


AnyKernel = Kernel[Any, Any]
"""A kernel with opaque states and plans."""


QUIET_TICKS = 1_000
"""Idle ticks after which no pending message is expected to move."""


def next_wake_tick(tick: Tick, *, idle: bool, planned: int | None, pause: int | None = None) -> int | None:
    """Return the next tick with internal activity, or None if there is none.

    Args:
        tick: The current tick.
        idle: True if no message is pending.
        planned: The next tick of a planned change (a fault, a move of a program), if any.
        pause: The maximum interval between two rounds while input is expected, in ticks.
    """
    following = tick.tick + 1
    if not idle:
        return following
    if pause is None or (planned is None and tick.coming is None):
        return planned
    return earliest(planned, max(following, tick.tick + pause))


def earliest(*ticks: int | None) -> int | None:
    """Return the earliest of some ticks or heights, ignoring None; None if all are None."""
    return min((tick for tick in ticks if tick is not None), default=None)


def idle_limit_tick(tick: Tick, *, settled: int, idle_limit: int = QUIET_TICKS) -> int:
    """Return the tick from which on a round without movement ends the run.

    Args:
        tick: The current tick.
        settled: The tick from which on no planned change can have an effect.
        idle_limit: The required number of idle rounds. It exceeds the longest rest of a pending message, for example
            the time to its timeout.
    """
    return max(tick.quiet_since, settled) + idle_limit - 1
