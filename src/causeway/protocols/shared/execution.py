"""Program execution for kernels: the runner interface, accounts and arrivals.

``handle`` serves protocols with messages between chains as bytes, and messages of one chain in a local lane.
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
from causeway.protocols.contract import BYTES, UINT64, Chains, Hosts, StateTable, table_schema
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE, blank_messages

REJECTED_BY_PROGRAM = 4
"""The code of an answer that refuses a request."""

HANDLER_FAILED = 5
"""The code of the answer of a handler that raised."""


def program_reject_code(code: int, text: bytes) -> RejectCode:
    """Return the portable meaning of a program's reject code.

    Protocols without codes of their own use it.

    Args:
        code: The code.
        text: The text of the reject.
    """
    return {REJECTED_BY_PROGRAM: RejectCode.REFUSED, HANDLER_FAILED: RejectCode.FAILED}.get(code, RejectCode.OTHER)


MAX_CERTIFIED_DATA_BYTES = 32
"""Maximum size of a program's certified data.

It is that of the deployed system (``ic0.certified_data_set``).
"""

CERTIFIED_DATA_SCHEMA = table_schema(program=UINT64, data=BYTES)
"""Certified data of programs, at most ``MAX_CERTIFIED_DATA_BYTES`` each."""

_ATTACHED = ("before_high", "before_low", "after_high", "after_low")

ACCEPTED_SCHEMA = table_schema(
    row=pa.int64(), **dict.fromkeys(("program", "sender", "callback", "deadline", *_ATTACHED), UINT64)
)
"""Amounts that programs accepted from open requests, one row each.

``row``: the input whose handler accepted; ``before``: the attached amount before the handler; ``after``: after it.
"""


@dataclass(frozen=True)
class Execution:
    """Result of running the programs.

    Attributes:
        produced: The produced messages (the protocol's message columns; ``sender`` is the program), in each program's
            order.
        origins: The input row of each produced message.
        failures: Handlers that raised on an input without an answer (``row`` of the input, ``text``).
        accounts: The accounts afterwards.
        programs: The program states afterwards, by class.
        raised: All handler calls that raised (``row`` of the input, ``handler``, ``error``, ``file``, ``line``), for
            the log.
        asked: For each produced message, ``late`` (1 if it answers another request than the input), and the amount
            attached to that request before the handler (``asked_high``, ``asked_low``).
        certified: Certified data (``CERTIFIED_DATA_SCHEMA``) in the order of setting; the last row of a program counts.
        accepted: Amounts accepted from open requests (``ACCEPTED_SCHEMA``).
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
    """The programs of a network. Picklable; holds no state of any chain."""

    def installed(self, programs: U64) -> npt.NDArray[np.bool_]:
        """Return a mask of the ``programs`` (numbers) with a class, which can be installed."""

    def schemas(self) -> Mapping[str, pa.Schema]:
        """Return the schema of the state table of every program class in use."""

    @property
    def changed(self) -> U64:
        """Return the programs installed, or given another class, after genesis, ascending."""

    def outdated(self, programs: U64, accounts: Frame, states: Mapping[str, Frame]) -> U64:
        """Return the ``programs`` (among ``changed``) to install, or with a state of an old class."""

    def install(self, programs: U64, accounts: Frame, states: Mapping[str, Frame]) -> tuple[Frame, Mapping[str, Frame]]:
        """Return accounts and states with the outdated ``programs`` installed or replaced."""

    def genesis(self, programs: U64) -> tuple[Frame, Mapping[str, Frame]]:
        """Return the accounts and the states of ``programs`` (numbers) at genesis."""

    def run(self, inputs: Frame, accounts: Frame, states: Mapping[str, Frame]) -> Execution:
        """Run the handlers.

        Args:
            inputs: Message columns; the inputs of one program in order of consumption.
            accounts: The accounts.
            states: The program states by class.
        """


ACCOUNTS_SCHEMA = table_schema(
    program=UINT64, next_callback=UINT64, balance_over=UINT64, balance_high=UINT64, balance_low=UINT64
)
"""The account of every installed program; a program without a row is not installed.

The balance is in 64-bit words; ``balance_over`` is non-zero only after refunds to a full balance.
"""

ACCOUNTS = StateTable(ACCOUNTS_SCHEMA, "program", ("program",), programs=("program",))

PROGRAM_TABLE = "program_"
"""Prefix of the state tables of program classes."""


def find_outdated_programs(
    programs: ProgramRunner, hosts: Hosts, chains: Chains, accounts: Frame, states: Mapping[str, Frame]
) -> U64:
    """Return the programs that a change installed or replaced since their chain's last block.

    Args:
        programs: The program runner.
        hosts: The hosts of ``programs.changed``.
        chains: Positions of chains.
        accounts: The accounts.
        states: The program states by class.
    """
    if len(programs.changed) == 0:
        return programs.changed
    return programs.outdated(programs.changed[np.isin(hosts, chains.astype(np.int32))], accounts, states)


def program_tables(schemas: Mapping[str, pa.Schema]) -> dict[str, StateTable]:
    """Return the state tables of program classes from their schemas (first column ``program``)."""
    return {
        PROGRAM_TABLE + name: StateTable(schema, "program", ("program",), programs=("program",))
        for name, schema in sorted(schemas.items())
    }


def program_frames(frames: Mapping[str, Frame]) -> dict[str, Frame]:
    """Return the tables of program classes of a state, by class name."""
    return {name.removeprefix(PROGRAM_TABLE): frame for name, frame in frames.items() if name.startswith(PROGRAM_TABLE)}


def credit_accounts(accounts: Frame, rows: Rows, high: U64, low: U64) -> Frame:
    """Add amounts to balances, exactly.

    The excess over 128 bits goes to ``balance_over``, like a refund to a full balance.

    Args:
        accounts: The accounts (``ACCOUNTS_SCHEMA``).
        rows: The row of each amount's account.
        high: The upper 64 bits of each amount.
        low: The lower 64 bits of each amount.
    """
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    # Add 32-bit halves: a sum of fewer than 2**32 of them fits a 64-bit word.
    sums = np.zeros((5, len(accounts)), dtype=np.uint64)
    for half_index, part in enumerate((low & mask, low >> half, high & mask, high >> half)):
        np.add.at(sums[half_index], rows, part)
    before = (accounts["balance_low"], accounts["balance_high"])
    for half_index in range(4):
        word = before[half_index // 2]
        sums[half_index] += word & mask if half_index % 2 == 0 else word >> half
        sums[half_index + 1] += sums[half_index] >> half
        sums[half_index] &= mask
    return accounts.with_columns(
        balance_low=sums[0] | (sums[1] << half),
        balance_high=sums[2] | (sums[3] << half),
        balance_over=accounts["balance_over"] + sums[4],
    )


ARRIVALS = [*LANE, "index", *MESSAGE_COLUMNS, "via"]
"""The columns of an arrival: a message for a program and its path."""

NO_PROGRAM = "NO_PROGRAM"
"""Reason of refusing a user's message to a program that is not on its chain."""


def user_arrivals(ingress: pa.Table, chain: npt.NDArray[np.uint32], height: int) -> Frame:
    """Return messages from users as arrivals (``ARRIVALS``).

    Args:
        ingress: The messages.
        chain: The position of each one's chain.
        height: The height, which is part of a message's number (``callback``), with its ``index`` in the chain's input.
    """
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = ranks_by_chain(chain)
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
    """Log the refusal of users' messages.

    Args:
        messages: The messages, as arrivals.
        reason: The reason.
        log: The log of events.
    """
    refused = messages.with_columns(callback=messages["index"])
    where = {"chain": refused["destination"], "index": refused["index"], "via": Via.INGRESS}
    log.add(event_rows(refused, Event.REJECTED, reason=reason, **where))


def ranks_by_chain(chain: npt.NDArray[np.uint32]) -> U64:
    """Return the rank of each row among those of its chain, from 1, in row order."""
    order = stable_order(chain)
    ranks: U64 = np.empty(len(chain), dtype=np.uint64)
    ranks[order] = group_rows(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks


def local_arrivals(offered: Frame, lanes: Queues) -> tuple[Frame, Queues]:
    """Consume the messages of the local lanes.

    Args:
        offered: The messages.
        lanes: The local lanes.

    Returns:
        The arrivals (``ARRIVALS``), calls before answers, and the lanes without them.
    """
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
    """Result of handling arrivals.

    Attributes:
        inputs: The inputs as given to the programs.
        outcome: The result of their execution.
        produced: The produced messages, in the order of arrivals.
    """

    inputs: Frame
    outcome: Execution
    produced: Frame


def handle(
    arrivals: Frame, programs: ProgramRunner, accounts: Frame, states: Mapping[str, Frame], log: EventLog
) -> HandlerResult:
    """Run the programs on arrivals, and log every arrival and failure.

    Args:
        arrivals: The arrivals (``ARRIVALS``); those of one program in order of consumption.
        programs: The program runner.
        accounts: The accounts.
        states: The program states by class.
        log: The log of events.
    """
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
