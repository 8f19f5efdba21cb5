"""The end of canisters that the registry maps to no subnet any more: with its host a canister's state is gone.

Outcomes for what it leaves: requests that wait for it or that it has in hand are rejected, so that their callers have
an answer; responses that it made are sent; all else is lost, each with an event.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat
from causeway.model.ledger import Event, Kind, Via
from causeway.model.order import U64, stable_order
from causeway.model.queues import Queues
from causeway.proofs.ic.messages import RejectCode
from causeway.protocols.contract import NO_HOST, Chains
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.messages import NOT_FOUND, UNROUTABLE, reject_responses
from causeway.protocols.ic.push import push_responses
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import ONWARD_SCHEMA, Step
from causeway.protocols.messages import MESSAGE_COLUMNS, NO_QUEUE, blank_messages

REMOVED = "canister_removed"

MOST = 2**128 - 1
"""The largest amount that a row of the log has."""

Mask = npt.NDArray[np.bool_]


def remove_ended(state: State, context: Context) -> Step:
    """Remove canisters on no subnet, with what they hold, from their last hosts, but for those that have stopped.

    The rejects of requests are pushed or sent on to where the caller is, then what responses there are in their output
    queues is sent, canister by canister.
    """
    if not context.registry.has_ended:
        return Step(state)
    log, ended = EventLog(), Ended(context, state.stopped["chain"])
    inputs, outputs, in_hand = state.input_queues.elements, state.output_queues.elements, state.in_hand
    waiting = inputs.filter(ended.among(inputs["receiver"]) & (inputs["kind"] == Kind.REQUEST))
    # Requests in hand as messages, each as often as it is in hand, in no queue.
    in_hand = in_hand.filter(ended.among(in_hand["respondent"]))
    rows = in_hand.take(np.repeat(np.arange(len(in_hand)), in_hand["count"].astype(np.int64)))
    amounts = {name: rows[name] for name in ("callback", "amount_high", "amount_low", "deadline")}
    ends = {"sender": rows["originator"], "receiver": rows["respondent"]}
    taken = blank_messages(
        len(rows), kind=int(Kind.REQUEST), index=np.full(len(rows), NO_QUEUE, np.uint64), **ends, **amounts
    )
    made = outputs.filter(ended.among(outputs["sender"]) & (outputs["kind"] == Kind.RESPONSE))
    state = _without_ended(state, context, ended, log)
    requests = concat([waiting.select([*MESSAGE_COLUMNS, "index"]), taken])
    requests = requests.take(stable_order(requests["receiver"]))
    at = {"chain": _last_hosts(requests["receiver"], context), "queue_index": requests["index"]}
    log.add(event_rows(requests, Event.REJECTED, code=RejectCode.DestinationInvalid, reason=REMOVED, **at))
    rejects = reject_responses(requests, RejectCode.DestinationInvalid, NOT_FOUND).with_columns(
        source=at["chain"], queue_index=np.uint64(NO_QUEUE), sent_tick=np.uint64(context.tick)
    )
    hosts = context.host_of(rejects["receiver"])
    here = rejects.filter(hosts == rejects["source"].view(np.int32))
    state, arrivals = push_responses(state, here.select(MESSAGE_COLUMNS), here["source"], Via.SYNTHETIC, log)
    made = made.with_columns(source=_last_hosts(made["sender"], context), queue_index=made["index"])
    away = rejects.filter(hosts != rejects["source"].view(np.int32))
    onward = concat([away.select(ONWARD_SCHEMA.names), made.select(ONWARD_SCHEMA.names)])
    onward = onward.take(stable_order(onward["sender"]))
    routable = context.host_of(onward["receiver"]) != NO_HOST
    lost = onward.filter(~routable)
    at = {"chain": lost["source"], "queue_index": lost["queue_index"]}
    log.add(event_rows(lost, Event.DROPPED, reason=UNROUTABLE, **at))
    return Step(state, log, arrivals, onward=onward.filter(routable))


@dataclass(frozen=True)
class Ended:
    """Which canisters end: those on no subnet whose last host has not stopped, for what has stopped changes no more."""

    context: Context
    stopped: Chains

    def among(self, canisters: U64) -> Mask:
        """Return which of ``canisters`` end."""
        gone: Mask = self.context.host_of(canisters) == NO_HOST
        if len(self.stopped) and gone.any():
            gone &= ~np.isin(_last_hosts(canisters, self.context), self.stopped)
        return gone


def _last_hosts(canisters: U64, context: Context) -> npt.NDArray[np.uint32]:
    return context.registry.last_host_of(canisters).view(np.uint32)


def _without_ended(state: State, context: Context, ended: Ended, log: EventLog) -> State:
    """Return the state without the canisters; what is lost of what they held leaves a DROPPED event."""

    def dropped(rows: Frame, canisters: U64, queue_index: U64 | int) -> None:
        chains = _last_hosts(canisters, context)
        log.add(event_rows(rows, Event.DROPPED, chain=chains, queue_index=queue_index, reason=REMOVED))

    def without(queues: Queues, kept: Kind | None) -> Queues:
        owner = queues.keys[0]
        rows = queues.elements.filter(ended.among(queues.elements[owner]))
        lost = rows if kept is None else rows.filter(rows["kind"] != kept)
        dropped(lost, lost[owner], lost["index"])
        queues = queues.keep(~ended.among(queues.elements[owner]))
        return queues.without(ended.among(queues.counters[owner]))

    accounts, calls, in_hand = state.accounts, state.open_calls, state.in_hand
    balances = _balances(accounts.filter(ended.among(accounts["program"])))
    dropped(balances, balances["receiver"], 0)
    return replace(
        state,
        ingress_queues=without(state.ingress_queues, None),
        input_queues=without(state.input_queues, Kind.REQUEST),
        output_queues=without(state.output_queues, Kind.RESPONSE),
        open_calls=calls.without(ended.among(calls.rows["originator"])),
        in_hand=in_hand.filter(~ended.among(in_hand["respondent"])),
        turns=state.turns.filter(~ended.among(state.turns["receiver"])),
        next_sources=state.next_sources.filter(~ended.among(state.next_sources["receiver"])),
        accounts=accounts.filter(~ended.among(accounts["program"])),
        certified_data=state.certified_data.filter(~ended.among(state.certified_data["program"])),
        programs={name: frame.filter(~ended.among(frame["program"])) for name, frame in state.programs.items()},
    )


def _balances(accounts: Frame) -> Frame:
    """Return control rows with the balance of each account as their amount: several where it is past 128 bits."""
    words = (accounts["balance_over"].tolist(), accounts["balance_high"].tolist(), accounts["balance_low"].tolist())
    rows: list[tuple[int, int]] = []
    for program, over, high, low in zip(accounts["program"].tolist(), *words, strict=True):
        whole, rest = divmod((over << 128) + (high << 64) + low, MOST)
        rows += [(program, MOST)] * whole + [(program, rest)] * (rest > 0 or not whole)
    programs = np.array([program for program, _ in rows], dtype=np.uint64)
    amounts = {
        "amount_high": np.array([amount >> 64 for _, amount in rows], dtype=np.uint64),
        "amount_low": np.array([amount % 2**64 for _, amount in rows], dtype=np.uint64),
    }
    return blank_messages(len(rows), kind=int(Kind.CONTROL), sender=programs, receiver=programs, **amounts)
