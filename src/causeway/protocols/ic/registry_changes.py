"""Changes of the registry and halts applied to subnet states before a round.

They cover new subnets and canisters, removed canisters, and chains that run no round.

A subnet that violates a hard invariant stops alone and for good (IC reference X-17). From the round of the violation on
it is halted with its previous state; the others continue.

A canister that the registry maps to no subnet loses its state. Requests that it holds, pending or popped, are rejected,
so their callers get an answer. Its responses are sent. Everything else is lost, with an event each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.errors import IndexOverflow, InvariantViolation
from causeway_proofs.ic.messages import StreamRejectCode
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
from causeway.protocols.ic.state import ONWARD_SCHEMA, RoundStep, State
from causeway.protocols.shared.events import EventLog, event_rows
from causeway.protocols.shared.execution import find_outdated_programs
from causeway.protocols.shared.messages import MESSAGE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA, blank_messages
from causeway.protocols.shared.state_tables import merge_states, select_chains

IcStates = Kernel[State, Any]
"""The kernel, for its declaration of tables."""


def admit_canisters(kernel: IcStates, state: State, context: Context, installed: Callable[[U64], State]) -> State:
    """Install the canisters that the registry maps to ``context.chains`` for the first time.

    ``installed`` returns the initial state of canisters' programs.
    """
    new = context.registry.newcomers
    new = new[np.isin(context.registry.host_of(new), context.chains.astype(np.int32)) & ~state.installed(new)]
    new = new[context.programs.installed(new)]
    return merge_states(kernel, [state, installed(new)]) if len(new) else state


def change_canister_programs(state: State, context: Context) -> State:
    """Replace the programs of canisters of ``context.chains`` that got another class."""
    runner, hosts = context.programs, context.registry.host_of(context.programs.changed)
    due = find_outdated_programs(runner, hosts, context.chains, state.accounts, state.programs)
    due = due[state.installed(due)]
    if len(due) == 0:
        return state
    accounts, programs = runner.install(due, state.accounts, state.programs)
    return replace(state, accounts=accounts, programs=programs)


def add_subnets(kernel: IcStates, state: State, context: Context) -> State:
    """Set the roots at height 0 of new subnets among ``context.chains``, which have a batch.

    A new subnet that is halted keeps its previous root, and its canisters make another height later.
    """
    new = context.chains[context.registry.has(context.chains) & ~context.before.has(context.chains)]
    if not new.size:
        return state
    context = replace(context, chains=new)
    genesis = build_trees(select_chains(kernel, state, new, context.tick), empty_frame(OUTBOUND_SCHEMA), context)
    roots = state.heads["root"].copy()
    roots[np.isin(state.heads["chain"], new)] = certified_roots(genesis, new, context)
    return replace(state, heads=state.heads.with_columns(root=roots))


def select_step(kernel: IcStates, step: RoundStep, context: Context) -> RoundStep:
    """Select the part of a step for ``context.chains``; all events stay in order."""
    chains = context.chains
    return replace(
        step,
        state=select_chains(kernel, step.state, chains, context.tick),
        arrivals=step.arrivals.filter(np.isin(step.arrivals["chain"], chains)),
        onward=step.onward.filter(np.isin(step.onward["source"], chains)),
    )


def halt(kernel: IcStates, removal: RoundStep, context: Context) -> tuple[State, Frame, EventLog]:
    """Return the state of ``context.chains``, which run no round, after removals of canisters.

    Also return the messages appended to streams, and the events. Nothing else happens on the chains.

    ``removal`` is the removal in all subnets. Rejects queue behind the pending messages (X-4).
    """
    step, log = select_step(kernel, removal, context), EventLog()
    log.add(arrival_events(step.arrivals, np.zeros(len(step.arrivals), dtype=bool)))
    state, outbound = append_onward(step.state, step.onward, context)
    if context.options.messages_per_canister:
        state = replace(state, turns=move_behind(state.turns, enqueued_queues([step.arrivals])))
    return state, outbound, log


def mark_stopped(state: State, error: IndexOverflow | InvariantViolation, context: Context) -> State:
    """Mark the chains of an error as stopped in the state before the round.

    Raises:
        IndexOverflow, InvariantViolation: The error itself, if it names no running chain.
    """
    chains = np.setdiff1d(_violators(error, context), state.stopped["chain"]).astype(np.uint32)
    if len(chains) == 0:
        raise error
    causes = pa.array([error.name] * len(chains), pa.string())
    rows = Frame({"chain": chains, "height": np.full(len(chains), context.height, dtype=np.uint64), "cause": causes})
    stopped = concat([state.stopped, rows])
    return replace(state, stopped=stopped.take(stable_order(stopped["chain"])))


def _violators(error: IndexOverflow | InvariantViolation, context: Context) -> Chains:
    """Return the chains with full queues, or with a violated invariant."""
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


def newly_stopped(state: State, height: int) -> tuple[Chains, EventLog]:
    """Return the chains of ``state`` that stop in the round of ``height``, and their events."""
    log = EventLog()
    rows = state.stopped.filter(state.stopped["height"] == np.uint64(height))
    control = blank_messages(len(rows), kind=int(Kind.CONTROL))
    log.add(event_rows(control, Event.STOPPED, chain=rows["chain"], reason=rows["cause"].dictionary_encode()))
    return rows["chain"], log


def exclude_chains(plan: Plan[XNetPlan], inputs: Inputs[State], chains: Chains) -> tuple[Plan[XNetPlan], Inputs[State]]:
    """Remove the inputs of ``chains`` from a round; their refusals vanish too."""
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
"""The largest amount of a log row."""

Mask = npt.NDArray[np.bool_]


def remove_ended(state: State, context: Context) -> RoundStep:
    """Remove canisters without a host from their last hosts, except from stopped ones.

    The rejects of requests are pushed locally or sent to the caller's subnet; then the responses in output queues are
    sent, canister by canister.
    """
    log, ended = EventLog(), EndedCanisters(context, state.stopped["chain"])
    inputs, outputs, in_hand = state.input_queues.elements, state.output_queues.elements, state.in_hand
    pending = inputs.filter(ended.among(inputs["receiver"]) & (inputs["kind"] == Kind.REQUEST))
    # Popped requests as messages in no queue, repeated by their count.
    in_hand = in_hand.filter(ended.among(in_hand["respondent"]))
    rows = in_hand.take(np.repeat(np.arange(len(in_hand)), in_hand["count"].astype(np.int64)))
    amounts = {name: rows[name] for name in ("callback", "amount_high", "amount_low", "deadline")}
    ends = {"sender": rows["originator"], "receiver": rows["respondent"]}
    popped = blank_messages(
        len(rows), kind=int(Kind.REQUEST), index=np.full(len(rows), NO_QUEUE, np.uint64), **ends, **amounts
    )
    responses = outputs.filter(ended.among(outputs["sender"]) & (outputs["kind"] == Kind.RESPONSE))
    state = _without_ended(state, context, ended, log)
    requests = concat([pending.select([*MESSAGE_COLUMNS, "index"]), popped])
    requests = requests.take(stable_order(requests["receiver"]))
    at = {"chain": _last_hosts(requests["receiver"], context), "queue_index": requests["index"]}
    log.add(event_rows(requests, Event.REJECTED, code=StreamRejectCode.DestinationInvalid, reason=REMOVED, **at))
    rejects = reject_responses(requests, StreamRejectCode.DestinationInvalid, NOT_FOUND).with_columns(
        source=at["chain"], queue_index=np.uint64(NO_QUEUE), sent_tick=np.uint64(context.tick)
    )
    hosts = context.registry.host_of(rejects["receiver"])
    local = rejects.filter(hosts == rejects["source"].view(np.int32))
    state, arrivals = push_responses(state, local.select(MESSAGE_COLUMNS), local["source"], Via.SYNTHETIC, log)
    responses = responses.with_columns(source=_last_hosts(responses["sender"], context), queue_index=responses["index"])
    remote = rejects.filter(hosts != rejects["source"].view(np.int32))
    onward = concat([remote.select(ONWARD_SCHEMA.names), responses.select(ONWARD_SCHEMA.names)])
    onward = onward.take(stable_order(onward["sender"]))
    routable = context.registry.host_of(onward["receiver"]) != NO_HOST
    lost = onward.filter(~routable)
    at = {"chain": lost["source"], "queue_index": lost["queue_index"]}
    log.add(event_rows(lost, Event.DROPPED, reason=UNROUTABLE, **at))
    return RoundStep(state, log, arrivals, onward=onward.filter(routable))


@dataclass(frozen=True)
class EndedCanisters:
    """The removed canisters: those without a host whose last host has not stopped.

    A stopped subnet never changes.
    """

    context: Context
    stopped: Chains

    def among(self, canisters: U64) -> Mask:
        """Return a mask of the removed ones of ``canisters``."""
        is_removed: Mask = self.context.registry.host_of(canisters) == NO_HOST
        if len(self.stopped) and is_removed.any():
            is_removed &= ~np.isin(_last_hosts(canisters, self.context), self.stopped)
        return is_removed


def _last_hosts(canisters: U64, context: Context) -> npt.NDArray[np.uint32]:
    return context.registry.last_hosts(canisters).view(np.uint32)


def _without_ended(state: State, context: Context, ended: EndedCanisters, log: EventLog) -> State:
    """Remove the canisters; their lost messages and balances leave DROPPED events."""

    def dropped(rows: Frame, canisters: U64, queue_index: U64 | int) -> None:
        chains = _last_hosts(canisters, context)
        log.add(event_rows(rows, Event.DROPPED, chain=chains, queue_index=queue_index, reason=REMOVED))

    def without(queues: Queues, kept_kind: Kind | None) -> Queues:
        owner = queues.keys[0]
        rows = queues.elements.filter(ended.among(queues.elements[owner]))
        lost = rows if kept_kind is None else rows.filter(rows["kind"] != kept_kind)
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
    """Return control rows with the balance of each account, several where it exceeds 128 bits."""
    words = (accounts["balance_over"].tolist(), accounts["balance_high"].tolist(), accounts["balance_low"].tolist())
    rows: list[tuple[int, int]] = []
    for program, over, high, low in zip(accounts["program"].tolist(), *words, strict=True):
        full_rows, rest = divmod((over << 128) + (high << 64) + low, MOST)
        rows += [(program, MOST)] * full_rows + [(program, rest)] * (rest > 0 or not full_rows)
    programs = np.array([program for program, _ in rows], dtype=np.uint64)
    amounts = {
        "amount_high": np.array([amount >> 64 for _, amount in rows], dtype=np.uint64),
        "amount_low": np.array([amount % 2**64 for _, amount in rows], dtype=np.uint64),
    }
    return blank_messages(len(rows), kind=int(Kind.CONTROL), sender=programs, receiver=programs, **amounts)
