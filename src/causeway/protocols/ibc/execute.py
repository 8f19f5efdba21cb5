"""The handlers of a block: each program runs over what it is given, in the block's order (IBC reference 3.3, 3.4).

Outcomes for a packet: its receipt at once, without a program; handled, with an answer now or later; handled, and undone
because it failed (G10), or because it has no answer where that is not allowed. For an answer: its packet ends; or its
handler failed, and nothing of it happened (``HandlerFault``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from causeway.model.frame import Frame, concat, repeated, repeated_text
from causeway.model.ledger import NO_CHAIN, Event, Kind, Via
from causeway.model.order import Rows, stable_order
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.execution import Execution
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnecting import disconnected, is_final
from causeway.protocols.ibc.inputs import ARRIVAL_COLUMNS, Code, at_home, receipt_texts
from causeway.protocols.ibc.messages.receive import result_codes
from causeway.protocols.ibc.state import RECEIPT, SEND, State, answering
from causeway.protocols.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS

PUSHED = [*LANE, *MESSAGE_COLUMNS, "of_program"]
"""What is pushed to a queue, and whether a program made it."""

CODES = np.array(list(Code))
NAMES = [code.name for code in Code]


@dataclass(frozen=True)
class Handled:
    """What came of the handlers.

    ``state``: with the programs after. ``produced``: message columns, in the order of the arrivals that they came of.
    ``handled``: packets that programs have taken; ``immediate``: receipts (``PUSHED`` and ``index``) of the others.
    ``settled``: answers whose packets have ended.
    """

    state: State
    produced: Frame
    handled: Frame
    immediate: Frame
    settled: Frame


@dataclass(frozen=True)
class Raised:
    """Answers (lane, ``index``) at which handlers raised: they must not have come."""

    answers: Frame


def run_handlers(
    state: State, packets: Frame, answers: Frame, local: Frame, users: Frame, context: Context, log: EventLog
) -> Handled | Raised:
    """Run the programs over a block's packets and answers by ``sequence``, then local messages, then those of users.

    Where a handler of an answer raises, nothing else is known yet: the calls of the block have to be made again without
    that one. The answer to a packet that the zone has forged in the name of a program that it does not have ends the
    packet, and nobody hears it; that to a final packet, too.
    """
    codes = result_codes(packets, state, context)
    served = (codes == 0) & ~is_final(packets)
    while True:
        handled = packets.filter(served).with_columns(via=np.uint8(Via.LANE))
        heard = answers.filter(at_home(answers, state, context))
        from_afar = concat([part.select([*ARRIVAL_COLUMNS, "sequence"]) for part in (handled, heard)])
        by_sequence = stable_order(from_afar["sequence"].view(np.uint64))
        from_afar = from_afar.take(by_sequence)
        arrivals = concat([part.select(ARRIVAL_COLUMNS) for part in (from_afar, local, users)])
        order = stable_order(arrivals["receiver"])
        inputs = arrivals.take(order)
        outcome = context.programs.run(inputs.select(MESSAGE_COLUMNS), state.accounts, state.programs)
        failed = order[outcome.failures["row"]]
        of_answers = _remote_answers(arrivals.take(failed))
        if of_answers.any():
            at = _remote_answers(inputs.take(outcome.raised["row"]))
            log.failures(inputs, outcome.raised.filter(at), inputs["destination"])
            return Raised(arrivals.take(failed[of_answers]).select(LANE_COLUMNS))
        silent = _silent(handled, np.argsort(by_sequence)[: len(handled)], outcome, order, context)
        if silent.any():
            unanswered = np.flatnonzero(served)[silent]
            codes[unanswered], served[unanswered] = Code.HANDLER_FAILED, False
            continue
        break
    _log(arrivals, failed, outcome, log)
    log.failures(inputs, outcome.raised, inputs["destination"])
    _log_unheard(answers.filter(~at_home(answers, state, context)), log)
    produced = outcome.produced.take(stable_order(order[outcome.origins].astype(np.uint64)))
    after = state.with_programs(outcome.accounts, outcome.programs)
    finals = packets.filter(is_final(packets) & (codes == 0))
    after = disconnected(after, finals["destination"], finals["source"])
    # The receipts of packets that no program handles; each leaves an event that says why, if not final.
    packets = packets.filter(~served)
    codes = codes[~served]
    # No program loses anything by a final packet that came too late; a control row that is rejected is a refused call.
    rejected = ~is_final(packets)
    names = names_column(["", *NAMES], np.where(rejected, np.searchsorted(CODES, codes) + 1, 0))
    where = {"chain": packets["destination"], "code": codes, "via": Via.LANE, "reason": names}
    bits = np.where(rejected, int(Event.RECEIVED | Event.REJECTED), int(Event.RECEIVED)).astype(np.uint16)
    log.add(event_rows(packets, bits, on_lane=True, queue_index=packets["index"], **where))
    immediate = as_answers(packets, codes).select([*PUSHED, "index"])
    return Handled(after, produced, handled, immediate, answers)


def _remote_answers(arrivals: Frame) -> np.ndarray:
    """Return which arrivals are answers from another zone: when their handler raises, the packet stays (3.4)."""
    return np.asarray((arrivals["kind"] == Kind.RESPONSE) & (arrivals["source"] != arrivals["destination"]))


def _silent(handled: Frame, rows: Rows, outcome: Execution, order: Rows, context: Context) -> np.ndarray:
    """Return which packets have no answer where they must have one at once (``acknowledgements = synchronous``).

    ``rows``: of each packet among the arrivals; ``order``: of each input. Only an answer that the packet's own run
    made counts: a later one is late, in the same block too.
    """
    if context.options.acknowledgements == "asynchronous" or len(handled) == 0:
        return np.zeros(len(handled), dtype=bool)
    packet = np.full(len(order), -1, dtype=np.int64)
    packet[rows] = np.arange(len(handled))
    packet = packet[order[outcome.origins]]
    given = np.flatnonzero((outcome.produced["kind"] == Kind.RESPONSE) & (packet >= 0))
    asked = packet[given]
    for one, other in (("receiver", "sender"), ("sender", "receiver"), ("callback", "callback")):
        own = outcome.produced[one][given] == handled[other][asked]
        given, asked = given[own], asked[own]
    silent = np.ones(len(handled), dtype=bool)
    silent[asked] = False
    return silent


def _log(arrivals: Frame, failed: Rows, outcome: Execution, log: EventLog) -> None:
    bits = np.full(len(arrivals), int(Event.RECEIVED | Event.EXECUTED), dtype=np.uint16)
    bits[arrivals["kind"] == Kind.RESPONSE] |= int(Event.ANSWERED)
    of_user = arrivals["source"] == NO_CHAIN
    position = np.where(of_user, arrivals["callback"], arrivals["index"])
    where = {"chain": arrivals["destination"], "via": arrivals["via"], "code": arrivals["code"]}
    # A time-out came over no lane: it is what the absence of a receipt means. Its index is that of our own packet.
    timed_out = arrivals["via"] == Via.TIMEOUT
    nowhere = of_user | timed_out
    ends = {name: np.where(nowhere, np.uint32(NO_CHAIN), arrivals[name]) for name in ("source", "destination")}
    substream = np.where(timed_out, np.uint64(SEND), arrivals["substream"])
    rows = arrivals.with_columns(**ends, substream=substream)
    log.add(event_rows(rows, bits, on_lane=True, queue_index=position, **where))
    if len(failed):
        rows = arrivals.take(failed)
        reason = outcome.failures["text"].dictionary_encode()
        where = {"chain": rows["destination"], "code": Code.HANDLER_FAILED, "reason": reason}
        log.add(event_rows(rows, Event.REJECTED, queue_index=rows["index"], **where))


def _log_unheard(answers: Frame, log: EventLog) -> None:
    """Leave an event for each answer to a packet that no program here sent: the zone itself has forged it."""
    bits = np.full(len(answers), int(Event.RECEIVED | Event.DROPPED), dtype=np.uint16)
    final = is_final(answers)
    bits[final] = int(Event.RECEIVED)
    where = {"chain": answers["destination"], "code": answers["code"], "via": answers["via"]}
    reason = names_column(["", Code.NO_PROGRAM.name], ~final)
    # A time-out came over no lane: it is logged with that of the packet.
    timed_out, packets = answers["via"] == Via.TIMEOUT, answering(answers, SEND)
    rows = answers.with_columns(**{name: np.where(timed_out, packets[name], answers[name]) for name in LANE})
    log.add(event_rows(rows, bits, on_lane=True, queue_index=rows["index"], reason=reason, **where))


def as_answers(requests: Frame, codes: np.ndarray) -> Frame:
    """Return the answers that the protocol itself gives to requests; all that was attached goes back."""
    length, lanes = len(requests), answering(requests, RECEIPT)
    return requests.with_columns(
        **{name: lanes[name] for name in LANE},
        kind=np.where(is_final(requests), requests["kind"], np.uint8(Kind.RESPONSE)),
        sender=requests["receiver"],
        receiver=requests["sender"],
        code=codes.astype(np.uint8),
        method=repeated_text("", length),
        payload=receipt_texts(requests, codes),
        of_program=repeated(np.bool_(False), length),
    )
