"""What the pipeline asks of a protocol: the kernel contract.

A protocol's kernel is a pure function of its arguments: no I/O, no clock, no global state, no Spark. Columns carry the
chain, so one call serves any set of chains; what happens on one never depends on which others are in the call.

A round has two steps. ``plan`` decides from small tables what to take and what must be read for it; the pipeline reads;
``round`` verifies what was read before it uses it, and may still refuse. A refusal is an event with its error's name.

When a network's next round is due, for protocols that cannot tell exactly when what waits will move.
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
"""Positions of the chains that host programs; ``NO_HOST`` for a program that never had one."""

NO_HOST = -1


class Visibility(Enum):
    """Who else sees the rows of a state table at the next height."""

    NOBODY = "nobody"
    DESTINATION = "destination"
    EVERYONE = "everyone"


@dataclass(frozen=True)
class StateTable:
    """What a state table is made of, whose its rows are, and who sees them.

    ``owner``: the column that says where a row belongs: to that chain, or to the chain that hosts that program.
    ``order``: the columns by which the rows ascend; no two rows agree in all of them. ``chains``, ``programs``: the
    columns that hold positions of chains and numbers of programs. ``shown_to``: the column with the chain that sees a
    row, where ``shown`` is ``DESTINATION``.
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
        """Return whether a row belongs to the chain that hosts a program."""
        return self.owner in self.programs


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


HEADERS_SCHEMA = pa.schema(
    [
        _field("chain", pa.uint32()),
        _field("number", pa.uint64()),
        _field("hash", pa.binary()),
        _field("parent", pa.binary()),
        _field("root", pa.binary(32)),
        _field("certification", pa.binary()),
    ]
)
"""A header that a chain made at a height: the number of its block, the root of its state, and what certifies it to
others. A chain may make several at one height, or none. ``hash`` and ``parent`` name the block and the one before it
where a chain can have forks; both are empty where its blocks follow each other by number alone."""

SEEN_HEADERS_SCHEMA = pa.schema([_field("height", pa.uint64()), *HEADERS_SCHEMA])
"""Headers as others see them: with the height at which they were made, ascending by chain, height, number."""

RANGES_SCHEMA = pa.schema(
    [
        _field("source", pa.uint32()),
        _field("destination", pa.uint32()),
        _field("substream", pa.uint64()),
        _field("height", pa.uint64()),
        _field("begin", pa.uint64()),
        _field("end", pa.uint64()),
    ]
)
"""Outbound entries ``begin`` to ``end`` - 1 of a lane, all of which the source made at ``height``
(``protocols.segments.located`` cuts any ranges so). No range is empty, and no entry is in two of them."""

HEIGHTS_SCHEMA = pa.schema([_field("chain", pa.uint32()), _field("first", pa.uint64()), _field("last", pa.uint64())])
"""The heights ``first`` to ``last``, both included, of one chain."""


PAST_SCHEMA = pa.schema([_field("chain", pa.uint32()), _field("height", pa.uint64())])
"""One chain at one height."""


@dataclass(frozen=True)
class Tick:
    """When a round happens, as the driver says.

    ``height``: one more than the height before. ``tick``: the scenario's time. ``coming``: the next tick after this one
    that brings something from outside, None when none is known. ``quiet_since``: the first tick from which on nothing
    has moved on any chain, and after which nothing has come from outside; what comes in this very tick counts.
    """

    height: int
    tick: int
    coming: int | None = None
    quiet_since: int = 0


@dataclass(frozen=True)
class View:
    """What chains see of the height before.

    ``tables``: of every state table that is shown, the rows shown to one of the chains, or to everyone, in the table's
    order. ``headers``: the headers of all chains at the last ``header_heights`` heights (``SEEN_HEADERS_SCHEMA``).
    """

    tables: Mapping[str, Frame]
    headers: Frame


@dataclass(frozen=True)
class Reads:
    """What a round must read, over the chains of the call.

    ``offered``: outbound entries of any chain to them (``RANGES_SCHEMA``). ``own``: outbound entries of their own, that
    the round must see again. ``rows``: of log tables, the rows of the chains at heights (``HEIGHTS_SCHEMA``).
    ``past``: the heights at which a chain's own state is wanted (``PAST_SCHEMA``). ``nearest``: by log table, heights
    for which a chain's own state of an earlier height will do, with what the table has of the blocks since
    (``PAST_SCHEMA``): nothing is executed for it. ``headers``: the heights at which the headers of any chain are
    wanted, those of which the view does not show (``PAST_SCHEMA``). ``ingress``: the earlier heights of which the
    messages from users are wanted again, because a chain has abandoned them (``HEIGHTS_SCHEMA``).
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

    What is derived from the tables for speed (a trie, a forest) may lie beside them in a state and is in no frame:
    ``kernel.state(state.frames())`` is a state that gives the same results.
    """

    def frames(self) -> Mapping[str, Frame]:
        """Return the rows of every table by its name. A round that does not change a table keeps the object."""
        ...


@dataclass(frozen=True)
class Plan(Generic[Content]):
    """What a set of chains will take in this round: what must be read for it, what the protocol itself keeps of its
    decision (``content``), and the events of what it refused already."""

    reads: Reads
    content: Content
    events: Frame


@dataclass(frozen=True)
class NearestState(Generic[State]):
    """What is at hand of chains at a height: their ``state`` then, or at an earlier height that none of them has
    abandoned since, and the ``rows`` of a log table of the heights after that one, with their ``height`` and ``tick``,
    by height, but for what was abandoned."""

    state: State
    rows: Frame


@dataclass(frozen=True)
class Inputs(Generic[State]):
    """What a round takes in.

    ``ingress``: messages from users (``INGRESS_SCHEMA``). ``carried``: wire bytes that came from outside
    (``CARRIED_SCHEMA``), in the order in which they came. Then what the plan asked for: ``offered`` and ``own``, rows
    of the kernel's ``outbound`` columns, in an order that depends on how chains are cut into buckets; ``rows``, by log
    table, with their ``height`` and ``tick``, those of one chain in the order in which it logged them; ``past``, by
    height, the states of the chains for which that height was asked; ``nearest``, by log table and height;
    ``headers`` (``SEEN_HEADERS_SCHEMA``); ``again``, messages from users that came to the chains at earlier heights
    (``INGRESS_SCHEMA``), by height.
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
    """What a round gave.

    ``state``: the next state. ``outbound``: what was appended to lanes, ascending by (destination, source, substream,
    index). ``logs``: rows of the kernel's log tables, those of the ledger (``events``, ``collected``) among them.
    ``headers``: ``HEADERS_SCHEMA``. ``wake``: the next tick at which something happens of itself, None when nothing
    will before something comes from outside. ``needs``: the lowest height whose outbound entries may still be read,
    None when none may. ``gives_up``: the tick from which on a round that moves nothing on any chain, with nothing known
    to come from outside, is the last, whatever ``wake`` says; None for never. Whether anything moved on the others no
    call can know, so that it is the driver who ends the run. ``upkeep``: log tables whose rows come with every block,
    and are no movement. ``work``: what was counted while it was made (``proofs.work``); who runs the round notes it.
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
    """One protocol over one network, as the pipeline drives it. Picklable."""

    name: ClassVar[str]
    outbound: ClassVar[pa.Schema]
    """Columns of outbound entries; ``source``, ``destination``, ``substream``, ``index`` are the first."""
    logs: ClassVar[Mapping[str, pa.Schema]]
    """Log tables by name, those of the ledger among them. Each has a column ``chain``: the chain whose a row is."""
    last_tick: ClassVar[int]
    """The last tick for which a scenario may plan anything."""

    @property
    def past_heights(self) -> int:
        """Return how many heights back a plan may ask for a chain's own state (``Reads.past``, ``Reads.nearest``); 0:
        never."""
        ...

    @property
    def held_heights(self) -> int:
        """Return of how many of the last heights a plan may ask for the state itself (``Reads.past``): a process that
        makes heights keeps so many states in memory, and reads or executes nothing for them."""
        ...

    @property
    def header_heights(self) -> int:
        """Return of how many heights the headers are shown to all chains."""
        ...

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        ...

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        ...

    def weights(self) -> npt.NDArray[np.float64]:
        """Return how much work each chain is, by position: chains are cut into buckets of about equal weight."""
        ...

    def tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        ...

    def registry_version(self, tick: int) -> int:
        """Return a number that changes whenever programs change chains, in force in the round of ``tick``."""
        ...

    def hosts(self, programs: U64, tick: int) -> Hosts:
        """Return the chain of each program in the round of ``tick``: its host, or the last one that it had.

        So the state of a program that is on no chain any more stays where it was, until that chain's round has dealt
        with its end.
        """
        ...

    def genesis(self, chains: Chains, coming: int | None = None) -> RoundResult[State]:
        """Return the state of ``chains`` at height 0, with its headers, when it wakes, and nothing outbound.

        ``coming``: the first tick that brings something from outside, None when none is known.
        """
        ...

    def state(self, frames: Mapping[str, Frame]) -> State:
        """Return the state that has these tables; one that is absent is empty."""
        ...

    def committed(self, state: State) -> Frame:
        """Return the outbound entries that the roots of a state commit to, and that are not in its tables
        (``RANGES_SCHEMA``): ``roots`` needs them."""
        ...

    def roots(self, state: State, chains: Chains, tick: Tick, committed: Frame) -> Frame:
        """Return the root of each chain's state, as its header has it (``chain``, ``root``); several of one whose
        headers of a height have several.

        ``state``: what the round of ``tick`` made, or genesis; ``committed``: the entries that it commits to. Of chains
        that are run elsewhere there is none.
        """
        ...

    def plan(
        self, state: State, chains: Chains, view: View, ingress: pa.Table, carried: pa.Table, tick: Tick
    ) -> Plan[Content]:
        """Decide what ``chains`` take from what they see; every refusal is an event with its error's name."""
        ...

    def round(
        self, state: State, chains: Chains, plan: Plan[Content], inputs: Inputs[State], tick: Tick
    ) -> RoundResult[State]:
        """Run one round of ``chains`` on what was read."""
        ...


AnyKernel = Kernel[Any, Any]
"""A kernel whose states and plans only it looks into."""


QUIET_TICKS = 1_000
"""After so many ticks in which nothing moved, nothing is expected to move of itself any more."""


def next_wake_tick(tick: Tick, *, idle: bool, planned: int | None, pause: int | None = None) -> int | None:
    """Return the next tick at which something happens of itself, None when nothing does any more.

    ``idle``: nothing waits to move. ``planned``: the next tick at which something is planned (a fault, a move of a
    program). ``pause``: the most ticks between two rounds as long as anything is still to come.
    """
    following = tick.tick + 1
    if not idle:
        return following
    if pause is None or (planned is None and tick.coming is None):
        return planned
    return earliest(planned, max(following, tick.tick + pause))


def earliest(*ticks: int | None) -> int | None:
    """Return the earliest of ticks, or heights, of which each may be none; None where all are."""
    return min((tick for tick in ticks if tick is not None), default=None)


def idle_limit_tick(tick: Tick, *, settled: int, idle_limit: int = QUIET_TICKS) -> int:
    """Return the tick from which on a round in which nothing moves is the last: what waits will not move any more.

    ``settled``: the tick from which on nothing that is planned can still have an effect. ``idle_limit``: how many
    rounds in which nothing moves there are before; more than what waits may rest, by a time-out at the latest.
    """
    return max(tick.quiet_since, settled) + idle_limit - 1
