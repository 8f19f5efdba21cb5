"""What the pipeline asks of a protocol, and what a protocol asks of the programs on its chains.

A protocol's kernel is a pure function of its arguments: no I/O, no clock, no global state, no Spark. Columns carry the
chain, so one call serves any set of chains; what happens on one never depends on which others are in the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame
from causeway.model.order import U64


@dataclass(frozen=True)
class Execution:
    """What running the programs gave.

    ``produced``: messages in the order of production for each program (the protocol's message columns; ``sender`` is
    the program). ``origins``: the row of the input that each of them was produced for. ``failures``: a frame (``row``
    of the input, ``text``) of handlers that raised on an input that has no answer. ``accounts`` and ``programs``: the
    states after.
    """

    produced: Frame
    origins: npt.NDArray[np.int64]
    failures: Frame
    accounts: Frame
    programs: Mapping[str, Frame]


class ProgramRunner(Protocol):
    """The programs of a network, as the kernels see them. Picklable; holds no state of any chain."""

    def installed(self, programs: U64) -> npt.NDArray[np.bool_]:
        """Return which of ``programs`` (numbers) have a class, so that there is something to install."""
        ...

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schema of the state table of every program class in use."""
        ...

    def genesis(self, programs: U64) -> tuple[Frame, Mapping[str, Frame]]:
        """Return the accounts and the programs' states of ``programs`` (numbers) at genesis."""
        ...

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers over ``inputs``: message columns, one program's inputs in the order it consumes them."""
        ...


@dataclass(frozen=True)
class Tick:
    """When a round happens: consecutive ``height``, scenario ``tick`` (time), from the driver."""

    height: int
    tick: int


@dataclass(frozen=True)
class Plan:
    """What a set of chains will take in this round.

    ``headers``, ``details``: what is taken, and what comes with it, in columns of the protocol's own (``ic``: accepted
    slices and the reject signals in them; ``ibc``: submissions of relayers and their proofs). ``wanted``: ranges of
    messages offered to the chains (``chain``: offering chain, ``remote``: taking chain, ``substream``, ``begin``,
    ``end``). ``recalled``: ranges, of the same columns, of the chains' own outbound messages that the round must see
    again. ``events``: refusals.
    """

    headers: Frame
    details: Frame
    wanted: Frame
    recalled: Frame
    events: Frame


@dataclass(frozen=True)
class RoundResult:
    """What a round gave: the next state, outbound messages by destination, event rows, collected ranges, headers."""

    state: Any
    outbound: Frame
    events: Frame
    collected: Frame
    headers: Frame


@dataclass(frozen=True)
class Offers:
    """What all chains show at the height before: the rows of the kernel's offer tables, and the chains' headers.

    ``details``: what goes with the lanes (``ic``: reject signals; ``ibc``: proofs).
    """

    lanes: Frame
    details: Frame
    headers: Frame


HEADERS_SCHEMA = pa.schema(
    [
        pa.field("chain", pa.uint32(), nullable=False),
        pa.field("root", pa.binary(32), nullable=False),
        pa.field("certification", pa.binary(), nullable=False),
    ]
)
"""A chain's header at a height: the root of its state, and what certifies it to others (``ibc``: the signed header;
empty under ``ic``, where carriers are taken at their word)."""


@dataclass(frozen=True)
class StateTable:
    """What a state table is made of, and whose its rows are.

    ``chains``, ``programs``: the columns that hold positions of chains and numbers of programs. ``owner``: the one of
    them that says where a row belongs: to that chain, or to the chain that hosts that program.
    """

    schema: pa.Schema
    owner: str
    chains: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    @property
    def owned_by_program(self) -> bool:
        """Return whether a row belongs to the chain that hosts a program."""
        return self.owner in self.programs


ACCOUNTS_SCHEMA = pa.schema(
    [
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("next_callback", pa.uint64(), nullable=False),
        pa.field("balance_over", pa.uint64(), nullable=False),
        pa.field("balance_high", pa.uint64(), nullable=False),
        pa.field("balance_low", pa.uint64(), nullable=False),
    ]
)
"""What execution keeps for every installed canister besides its program's state; a canister without a row is not
installed. The balance is in words of 64 bits; ``balance_over`` is 0 but where refunds came to a full balance."""

PROGRAM_TABLE = "program_"
"""The name of the state table of a program class is this and the name of the class."""


def program_tables(schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return the state tables of the program classes with these schemas (first column ``program``)."""
    return {
        PROGRAM_TABLE + name: StateTable(schema, "program", (), ("program",))
        for name, schema in sorted(schemas.items())
    }


class Kernel(Protocol):
    """One protocol over one network, as the pipeline drives it. Picklable."""

    name: ClassVar[str]
    outbound_schema: ClassVar[pa.Schema]
    """Columns of outbound messages; ``chain``, ``remote``, ``substream``, ``index`` are among them."""
    offer_tables: ClassVar[tuple[str, str, str]]
    """Names of the state tables that are shown to other chains: lanes, details and runs (``chain``, ``remote``,
    ``substream``, ``height``, ``first``, ``count``: where in the lake the messages in the lanes lie)."""

    def chains(self) -> Sequence[str]:
        """Return the chains' names by position."""
        ...

    def numbers(self) -> U64:
        """Return the chains' numbers in the topology by position."""
        ...

    def state_tables(self) -> Mapping[str, StateTable]:
        """Return every table that a state has, those of the programs in use included, by name."""
        ...

    def genesis(self, chains: npt.NDArray[np.uint32]) -> Any:
        """Return the state of ``chains`` (positions) at height 0."""
        ...

    def parts(self, state: Any) -> Mapping[str, Any]:
        """Return the state's parts by table name. A round that does not change a part keeps the object."""
        ...

    def table(self, name: str, part: Any) -> pa.Table:
        """Return a part of a state as an Arrow table."""
        ...

    def state(self, tables: Mapping[str, pa.Table]) -> Any:
        """Return the state that ``tables`` gave."""
        ...

    def rehomed(self, before: int, tick: int) -> bool:
        """Return whether programs change chains between the round of ``before`` and that of ``tick``."""
        ...

    def part(self, state: Any, chains: npt.NDArray[np.uint32], tick: int) -> Any:
        """Return the part of a state that belongs to ``chains`` under the registry of ``tick``."""
        ...

    def abandoned(self, state: Any, tick: int) -> Frame:
        """Return the events of what ``part`` leaves out at ``tick``: the end of programs that are on no chain now."""
        ...

    def union(self, states: Sequence[Any]) -> Any:
        """Return the states of disjoint sets of chains as one."""
        ...

    def idle(self, state: Any) -> bool:
        """Return whether nothing is left to do for the chains of ``state`` until new ingress comes."""
        ...

    def headers(self, state: Any, chains: npt.NDArray[np.uint32], tick: Tick) -> Frame:
        """Return the headers of ``chains`` with this state (``HEADERS_SCHEMA``)."""
        ...

    def next_planned(self, tick: int) -> int | None:
        """Return the first tick at or after ``tick`` at which something happens of itself (move, fault), or None."""
        ...

    def settled(self, tick: int) -> bool:
        """Return whether nothing that is planned (moves, faults' ends, time-outs) can still come after ``tick``."""
        ...

    def longest_pause(self) -> int | None:
        """Return the most ticks from one round to the next while something is still to come, None for any number."""
        ...

    def patience(self) -> int:
        """Return for how many ticks nothing may move before something happens of itself: the longest time-out."""
        ...

    def plan(self, state: Any, chains: npt.NDArray[np.uint32], offers: Offers, ingress: pa.Table, tick: Tick) -> Plan:
        """Decide what ``chains`` take from what is offered to them; every refusal is an event with its error's name.

        ``ingress``: what comes from users in this round; a protocol may have to look something up for it.
        """
        ...

    def round(
        self,
        state: Any,
        chains: npt.NDArray[np.uint32],
        plan: Plan,
        messages: Frame,
        recalled: Frame,
        ingress: pa.Table,
        tick: Tick,
    ) -> RoundResult:
        """Run one round of ``chains``: take ``messages`` (the ranges ``plan.wanted``), execute, route."""
        ...
