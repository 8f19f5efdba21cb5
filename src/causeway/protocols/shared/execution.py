"""What a protocol asks of the programs on its chains, and what it keeps of them.

What comes to the programs of chains in a block, and what they make of it, for protocols in which messages between
chains are bytes and those of one chain lie in a local lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.order import U64, Rows, group_rows, stable_order

from causeway.core.frame import Frame, empty_frame, from_table, repeat_value
from causeway.core.queues import Queues
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, RejectCode, Via
from causeway.protocols.contract import Chains, Hosts, StateTable
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE, blank_messages

REJECTED_BY_PROGRAM = 4
"""The code with which a program answers that says no."""

HANDLER_FAILED = 5
"""The code with which a program's handler answers that raised."""


def program_reject_code(code: int, text: bytes) -> RejectCode:
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


def find_outdated_programs(
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


def credit_accounts(accounts: Frame, rows: Rows, high: U64, low: U64) -> Frame:
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


ARRIVALS = [*LANE, "index", *MESSAGE_COLUMNS, "via"]
"""What a program is given, and how it came."""

NO_PROGRAM = "NO_PROGRAM"
"""Why a message from a user is refused whose program is not on its chain."""


def user_arrivals(ingress: pa.Table, chain: npt.NDArray[np.uint32], height: int) -> Frame:
    """Return messages from users as arrivals (``ARRIVALS``); ``chain``: the position of each one's chain. A message's
    number (``callback``) is made of the height and its ``index``, the position in what came to the chain."""
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = _ranks(chain)
    return blank_messages(
        len(chain),
        kind=Kind.INGRESS,
        source=repeat_value(np.uint32(NO_CHAIN), len(chain)),
        destination=chain,
        substream=repeat_value(np.uint64(0), len(chain)),
        index=index,
        via=repeat_value(np.uint8(Via.INGRESS), len(chain)),
        callback=(np.uint64(height) << np.uint64(32)) + index,
        sender=rows["sender"],
        receiver=rows["receiver"],
        method=rows["method"].dictionary_encode(),
        payload=rows["payload"],
    )


def refuse_users(messages: Frame, reason: str, log: EventLog) -> None:
    """Leave an event for each message from a user that is refused."""
    refused = messages.with_columns(callback=messages["index"])
    where = {"chain": refused["destination"], "index": refused["index"], "via": Via.INGRESS}
    log.add(event_rows(refused, Event.REJECTED, reason=reason, **where))


def _ranks(chain: npt.NDArray[np.uint32]) -> U64:
    """Return the position of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = group_rows(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks


def local_arrivals(offered: Frame, lanes: Queues) -> tuple[Frame, Queues]:
    """Return what the local lanes hold for programs (``ARRIVALS``), calls before answers, and the lanes without it."""
    rows = offered.take(stable_order(*(offered[name] for name in LANE_COLUMNS)))
    rejected = rows["queue_index"] == np.uint64(NO_QUEUE)
    via = np.where(rejected, np.uint8(Via.SYNTHETIC), np.uint8(Via.LOOPBACK))
    arrivals = rows.with_columns(via=via).select(ARRIVALS)
    if len(rows) == 0:
        return arrivals, lanes
    groups = group_rows(*(rows[name] for name in LANE))
    last = rows.take(groups.starts + groups.counts - 1)
    return arrivals, lanes.advance(last.select(LANE), last["index"] + np.uint64(1))


class HandlerResult(NamedTuple):
    """What programs made of arrivals: the ``inputs`` as they were given to them, the ``outcome``, and what they
    ``produced`` in the order of arrivals."""

    inputs: Frame
    outcome: Execution
    produced: Frame


def handle(
    arrivals: Frame, programs: ProgramRunner, accounts: Frame, states: Mapping[str, Frame], log: EventLog
) -> HandlerResult:
    """Let programs handle what arrived, each in its order; every arrival leaves an event, and each failure one."""
    order = stable_order(arrivals["receiver"])
    inputs = arrivals.take(order)
    outcome = programs.run(inputs.select(MESSAGE_COLUMNS), accounts, states)
    bits = np.full(len(arrivals), int(Event.RECEIVED | Event.EXECUTED), dtype=np.uint16)
    bits[arrivals["kind"] == Kind.RESPONSE] |= int(Event.ANSWERED)
    of_user = arrivals["source"] == NO_CHAIN
    position = np.where(of_user, arrivals["callback"], arrivals["index"])
    where = {"chain": arrivals["destination"], "via": arrivals["via"], "code": arrivals["code"]}
    ends = {name: np.where(of_user, np.uint32(NO_CHAIN), arrivals[name]) for name in ("source", "destination")}
    log.add(event_rows(arrivals.with_columns(**ends), bits, on_lane=True, queue_index=position, **where))
    failed = order[outcome.failures["row"]]
    if len(failed):
        rows = arrivals.take(failed)
        reason = outcome.failures["text"].dictionary_encode()
        log.add(event_rows(rows, Event.REJECTED, chain=rows["destination"], queue_index=rows["index"], reason=reason))
    log.failures(inputs, outcome.raised, inputs["destination"])
    produced = outcome.produced.take(stable_order(order[outcome.origins].astype(np.uint64)))
    return HandlerResult(inputs, outcome, produced)
