"""What a new version of the registry, and a halt, mean for the states of subnets before a round runs: new subnets, new
canisters, and what becomes of those that run no round.

What happens when a subnet violates a hard invariant: it stops, alone and for good (IC reference X-17).

From the round of the violation on it is halted with the state from before it; the others go on.

The end of canisters that the registry maps to no subnet any more: with its host a canister's state is gone.

Outcomes for what it leaves: requests that wait for it or that it has in hand are rejected, so that their callers have
an answer; responses that it made are sent; all else is lost, each with an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import IndexOverflow, InvariantViolation
from causeway_proofs.ic.messages import RejectCode
from causeway_proofs.order import U64, stable_order

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.queues import Queues
from causeway.core.vocabulary import Event, Kind, Via
from causeway.protocols.contract import NO_HOST, Chains, Inputs, Kernel, Plan
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.commitment import build_trees, certified_roots
from causeway.protocols.ic.execution import arrival_events
from causeway.protocols.ic.input_queues import push_responses
from causeway.protocols.ic.messages import NOT_FOUND, UNROUTABLE, reject_responses
from causeway.protocols.ic.registry import Context
from causeway.protocols.ic.routing import append_onward
from causeway.protocols.ic.scheduler import enqueued_queues, move_behind
from causeway.protocols.ic.state import ONWARD_SCHEMA, HaltedStep, RoundStep, State
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.execution import find_outdated_programs
from causeway.protocols.shared.messages import MESSAGE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA, blank_messages
from causeway.protocols.shared.state_tables import merge_states, select_chains

IcStates = Kernel[State, Any]
"""Whose declaration of tables says how states are cut apart and put together."""


def admit_canisters(kernel: IcStates, state: State, context: Context, installed: Callable[[U64], State]) -> State:
    """Return the state with the canisters that the registry maps to ``context.chains`` for the first time.

    ``installed``: gives the first state of the programs of canisters.
    """
    new = context.registry.newcomers
    if len(new) == 0:
        return state
    new = new[np.isin(context.host_of(new), context.chains.astype(np.int32)) & ~state.installed(new)]
    new = new[context.programs.installed(new)]
    return merge_states(kernel, [state, installed(new)]) if len(new) else state


def change_canister_programs(state: State, context: Context) -> State:
    """Return the state with the canisters of ``context.chains`` to which changes gave another class as what they are
    now."""
    runner, hosts = context.programs, context.host_of(context.programs.changed)
    due = find_outdated_programs(runner, hosts, context.chains, state.accounts, state.programs)
    due = due[state.installed(due)]
    if len(due) == 0:
        return state
    accounts, programs = runner.brought_up(due, state.accounts, state.programs)
    return replace(state, accounts=accounts, programs=programs)


def add_subnets(kernel: IcStates, state: State, context: Context) -> State:
    """Return the state with the roots of those of ``context.chains``, which have a batch, that are new in the registry
    at their height 0. One that is halted then keeps the root that it had before: its canisters make a height of it."""
    if not context.options.certified or context.registry is context.before:
        return state
    new = context.chains[context.registry.has(context.chains) & ~context.before.has(context.chains)]
    if not new.size:
        return state
    context = replace(context, chains=new)
    genesis = build_trees(select_chains(kernel, state, new, context.tick), empty_frame(OUTBOUND_SCHEMA), context)
    roots = state.heads["root"].copy()
    roots[np.isin(state.heads["chain"], new)] = certified_roots(genesis, new, context)
    return replace(state, heads=state.heads.with_columns(root=roots))


def select_step(kernel: IcStates, step: RoundStep, context: Context) -> RoundStep:
    """Return the part of a step that is about ``context.chains``; all its events, which are in their order."""
    chains = context.chains
    return replace(
        step,
        state=select_chains(kernel, step.state, chains, context.tick),
        arrivals=step.arrivals.filter(np.isin(step.arrivals["chain"], chains)),
        onward=step.onward.filter(np.isin(step.onward["source"], chains)),
    )


def halt(kernel: IcStates, removal: RoundStep, context: Context) -> HaltedStep:
    """Return what becomes of ``context.chains``, which run no round: canisters end there, too, and nothing else
    happens. ``removal``: what has ended in all subnets. Rejects wait for their turn behind what waits already (X-4)."""
    step, log = select_step(kernel, removal, context), EventLog()
    log.add(arrival_events(step.arrivals))
    state, outbound = append_onward(step.state, step.onward, context)
    if context.options.messages_per_canister:
        state = replace(state, turns=move_behind(state.turns, enqueued_queues([step.arrivals])))
    return HaltedStep(state, outbound, log)


@dataclass(frozen=True)
class StoppedChains:
    """The chains that stop in a round, and their events."""

    chains: Chains
    log: EventLog


def mark_stopped(state: State, error: IndexOverflow | InvariantViolation, context: Context) -> State:
    """Return the state of before the round in which the chains that an error names have stopped.

    Raises the error again when it names no chain that runs: then it is not a chain's.
    """
    chains = np.setdiff1d(_violators(error, context), state.stopped["chain"]).astype(np.uint32)
    if len(chains) == 0:
        raise error
    causes = pa.array([error.name] * len(chains), pa.string())
    rows = Frame({"chain": chains, "height": np.full(len(chains), context.height, dtype=np.uint64), "cause": causes})
    stopped = concat([state.stopped, rows])
    return replace(state, stopped=stopped.take(stable_order(stopped["chain"])))


def _violators(error: IndexOverflow | InvariantViolation, context: Context) -> Chains:
    """Return the chains whose queues are full, or for which an invariant is false."""
    if isinstance(error, InvariantViolation):
        chains: Chains = np.asarray(error.chains, dtype=np.uint32)
        return chains
    for owner in ("source", "chain"):
        if owner in error.queues:
            found: Chains = error.queues[owner].astype(np.uint32)
            return found
    # A queue of a program is its first key's.
    program = next(iter(error.queues.values()), np.empty(0, dtype=np.uint64))
    hosts = context.registry.last_hosts(program)
    return hosts[hosts >= 0].astype(np.uint32)


def newly_stopped(state: State, height: int) -> StoppedChains:
    """Return the chains of ``state`` that stop in the round of ``height``."""
    log = EventLog()
    if len(state.stopped) == 0:
        return StoppedChains(state.stopped["chain"], log)
    rows = state.stopped.filter(state.stopped["height"] == np.uint64(height))
    control = blank_messages(len(rows), kind=int(Kind.CONTROL))
    log.add(event_rows(control, Event.STOPPED, chain=rows["chain"], reason=rows["cause"].dictionary_encode()))
    return StoppedChains(rows["chain"], log)


def exclude_chains(plan: Plan[XNetPlan], inputs: Inputs[State], chains: Chains) -> tuple[Plan[XNetPlan], Inputs[State]]:
    """Return what a round takes without what ``chains`` would have taken; what they refused they have not seen."""
    offered, own, events = inputs.offered, inputs.own, plan.events
    return (
        replace(plan, content=plan.content.without(chains), events=events.filter(~np.isin(events["chain"], chains))),
        replace(
            inputs,
            offered=offered.filter(~np.isin(offered["destination"], chains)),
            own=own.filter(~np.isin(own["source"], chains)),
        ),
    )


REMOVED = "canister_removed"

MOST = 2**128 - 1
"""The largest amount that a row of the log has."""

Mask = npt.NDArray[np.bool_]


def remove_ended(state: State, context: Context) -> RoundStep:
    """Remove canisters on no subnet, with what they hold, from their last hosts, but for those that have stopped.

    The rejects of requests are pushed or sent on to where the caller is, then what responses there are in their output
    queues is sent, canister by canister.
    """
    if not context.registry.has_ended:
        return RoundStep(state)
    log, ended = EventLog(), EndedCanisters(context, state.stopped["chain"])
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
    return RoundStep(state, log, arrivals, onward=onward.filter(routable))


@dataclass(frozen=True)
class EndedCanisters:
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
    return context.registry.last_hosts(canisters).view(np.uint32)


def _without_ended(state: State, context: Context, ended: EndedCanisters, log: EventLog) -> State:
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
