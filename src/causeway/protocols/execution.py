"""What a protocol asks of the programs on its chains, and what it keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, empty_frame
from causeway.model.order import U64, Rows
from causeway.model.reject_codes import RejectCode
from causeway.protocols.contract import Chains, Hosts, StateTable

REJECTED_BY_PROGRAM = 4
"""The code with which a program answers that says no."""

HANDLER_FAILED = 5
"""The code with which a program's handler answers that raised."""


def by_program(code: int, text: bytes) -> RejectCode:
    """Return what the codes mean that programs answer with, where no protocol says more."""
    return {REJECTED_BY_PROGRAM: RejectCode.REFUSED, HANDLER_FAILED: RejectCode.FAILED}.get(code, RejectCode.OTHER)


MAX_CERTIFIED_DATA_BYTES = 32
"""Most bytes of certified data that a program has, as in the deployed system (``ic0.certified_data_set``)."""

CERTIFIED_DATA_SCHEMA = pa.schema(
    [pa.field("program", pa.uint64(), nullable=False), pa.field("data", pa.binary(), nullable=False)]
)
"""What programs want their chains to certify for them, at most ``MAX_CERTIFIED_DATA_BYTES`` each."""

_ATTACHED = ("before_high", "before_low", "after_high", "after_low")

ACCEPTED_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.uint64(), nullable=False)
            for name in ("program", "sender", "callback", "deadline", *_ATTACHED)
        ),
    ]
)
"""What programs accepted, in the handler of the input ``row``, of requests of ``sender`` that stay open: what was
attached to them ``before`` the handler, and what is ``after`` it."""


@dataclass(frozen=True)
class Execution:
    """What running the programs gave.

    ``produced``: messages in the order of production for each program (the protocol's message columns; ``sender`` is
    the program). ``origins``: the row of the input that each of them was produced for. ``asked``: for each of them
    whether it is a ``late`` answer (1), to another request than that input, and what was attached to that request
    before the handler (``asked_high``, ``asked_low``). ``failures``: a frame (``row``
    of the input, ``text``) of handlers that raised on an input that has no answer. ``accounts`` and ``programs``: the
    states after. ``raised``: a frame of all handler calls that raised (``row`` of the input, ``handler``, ``error``,
    ``file``, ``line``), for the log alone. ``certified``: what programs set as their certified data
    (``CERTIFIED_DATA_SCHEMA``), in the order in which they did: of several rows of one program the last counts.
    ``accepted``: what programs accepted of requests that stay open (``ACCEPTED_SCHEMA``).
    """

    produced: Frame
    origins: npt.NDArray[np.int64]
    failures: Frame
    accounts: Frame
    programs: Mapping[str, Frame]
    raised: Frame
    asked: Frame
    certified: Frame = field(default_factory=lambda: empty_frame(CERTIFIED_DATA_SCHEMA))
    accepted: Frame = field(default_factory=lambda: empty_frame(ACCEPTED_SCHEMA))


class ProgramRunner(Protocol):
    """The programs of a network, as the kernels see them. Picklable; holds no state of any chain."""

    def installed(self, programs: U64) -> npt.NDArray[np.bool_]:
        """Return which of ``programs`` (numbers) have a class, so that there is something to install."""
        ...

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schema of the state table of every program class in use."""
        ...

    @property
    def changed(self) -> U64:
        """Return the numbers of the programs that were installed, or got another class, after genesis, ascending."""
        ...

    def outdated(self, programs: U64, accounts: Frame, states: Mapping[str, Frame]) -> U64:
        """Return which of ``programs`` (of those that ``changed``) are to be installed, or have a state of another
        class than theirs."""
        ...

    def brought_up(
        self, programs: U64, accounts: Frame, states: Mapping[str, Frame]
    ) -> tuple[Frame, Mapping[str, Frame]]:
        """Return the accounts and states with those of ``programs``, which are ``outdated``, as they are to be."""
        ...

    def genesis(self, programs: U64) -> tuple[Frame, Mapping[str, Frame]]:
        """Return the accounts and the programs' states of ``programs`` (numbers) at genesis."""
        ...

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers over ``inputs``: message columns, one program's inputs in the order it consumes them."""
        ...


ACCOUNTS_SCHEMA = pa.schema(
    [
        pa.field("program", pa.uint64(), nullable=False),
        pa.field("next_callback", pa.uint64(), nullable=False),
        pa.field("balance_over", pa.uint64(), nullable=False),
        pa.field("balance_high", pa.uint64(), nullable=False),
        pa.field("balance_low", pa.uint64(), nullable=False),
    ]
)
"""What execution keeps for every installed program besides its state; a program without a row is not installed. The
balance is in words of 64 bits; ``balance_over`` is 0 but where refunds came to a full balance."""

ACCOUNTS = StateTable(ACCOUNTS_SCHEMA, "program", ("program",), programs=("program",))

PROGRAM_TABLE = "program_"
"""The name of the state table of a program class is this and the name of the class."""


def outdated_on(
    programs: ProgramRunner, hosts: Hosts, chains: Chains, accounts: Frame, states: Mapping[str, Frame]
) -> U64:
    """Return the programs on ``chains`` that a change installed or gave another class, and whose chain has not made a
    block since. ``hosts``: of those that ``changed``."""
    if len(programs.changed) == 0:
        return programs.changed
    return programs.outdated(programs.changed[np.isin(hosts, chains.astype(np.int32))], accounts, states)


def program_tables(schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return the state tables of the program classes with these schemas (first column ``program``)."""
    return {
        PROGRAM_TABLE + name: StateTable(schema, "program", ("program",), programs=("program",))
        for name, schema in sorted(schemas.items())
    }


def program_frames(frames: Mapping[str, Frame]) -> dict[str, Frame]:
    """Return, of a state's tables, those of program classes by the name of the class."""
    return {name.removeprefix(PROGRAM_TABLE): frame for name, frame in frames.items() if name.startswith(PROGRAM_TABLE)}


def credited(accounts: Frame, rows: Rows, high: U64, low: U64) -> Frame:
    """Return the accounts with amounts (words of 64 bits) added to the balances of ``rows``, exactly.

    What is beyond 128 bits goes to ``balance_over``, like a refund that comes to a full balance.
    """
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    # Halves of words: a sum of fewer than 2**32 of them fits a word.
    sums = np.zeros((5, len(accounts)), dtype=np.uint64)
    for place, part in enumerate((low & mask, low >> half, high & mask, high >> half)):
        np.add.at(sums[place], rows, part)
    before = (accounts["balance_low"], accounts["balance_high"])
    for place in range(4):
        word = before[place // 2]
        sums[place] += word & mask if place % 2 == 0 else word >> half
        sums[place + 1] += sums[place] >> half
        sums[place] &= mask
    return accounts.with_columns(
        balance_low=sums[0] | (sums[1] << half),
        balance_high=sums[2] | (sums[3] << half),
        balance_over=accounts["balance_over"] + sums[4],
    )
