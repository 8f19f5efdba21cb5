"""What comes to the programs of chains in a block, and what they make of it, for protocols in which messages between
chains are bytes and those of one chain lie in a local lane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, from_table, repeated
from causeway.model.ledger import NO_CHAIN, Event, Kind, Via
from causeway.model.order import U64, groups_of, stable_order
from causeway.model.queues import Queues
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.execution import Execution, ProgramRunner
from causeway.protocols.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE, blank_messages

ARRIVALS = [*LANE, "index", *MESSAGE_COLUMNS, "via"]
"""What a program is given, and how it came."""

NO_PROGRAM = "NO_PROGRAM"
"""Why a message from a user is refused whose program is not on its chain."""


def from_users(ingress: pa.Table, chain: npt.NDArray[np.uint32], height: int) -> Frame:
    """Return messages from users as arrivals (``ARRIVALS``); ``chain``: the position of each one's chain. A message's
    number (``callback``) is made of the height and its ``index``, the position in what came to the chain."""
    rows = from_table(ingress.select(["receiver", "sender", "method", "payload"]))
    index = _ranks(chain)
    return blank_messages(
        len(chain),
        kind=Kind.INGRESS,
        source=repeated(np.uint32(NO_CHAIN), len(chain)),
        destination=chain,
        substream=repeated(np.uint64(0), len(chain)),
        index=index,
        via=repeated(np.uint8(Via.INGRESS), len(chain)),
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
    ranks[order] = groups_of(chain[order]).ranks().astype(np.uint64) + np.uint64(1)
    return ranks


def from_local(offered: Frame, lanes: Queues) -> tuple[Frame, Queues]:
    """Return what the local lanes hold for programs (``ARRIVALS``), calls before answers, and the lanes without it."""
    rows = offered.take(stable_order(*(offered[name] for name in LANE_COLUMNS)))
    rejected = rows["queue_index"] == np.uint64(NO_QUEUE)
    via = np.where(rejected, np.uint8(Via.SYNTHETIC), np.uint8(Via.LOOPBACK))
    arrivals = rows.with_columns(via=via).select(ARRIVALS)
    if len(rows) == 0:
        return arrivals, lanes
    groups = groups_of(*(rows[name] for name in LANE))
    last = rows.take(groups.starts + groups.counts - 1)
    return arrivals, lanes.advance(last.select(LANE), last["index"] + np.uint64(1))


class Handled(NamedTuple):
    """What programs made of arrivals: the ``inputs`` as they were given to them, the ``outcome``, and what they
    ``produced`` in the order of arrivals."""

    inputs: Frame
    outcome: Execution
    produced: Frame


def handle(
    arrivals: Frame, programs: ProgramRunner, accounts: Frame, states: Mapping[str, Frame], log: EventLog
) -> Handled:
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
    return Handled(inputs, outcome, produced)
