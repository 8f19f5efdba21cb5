"""What a new version of the registry, and a halt, mean for the states of subnets before a round runs: new subnets, new
canisters, and what becomes of those that run no round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from causeway.model.frame import empty_frame
from causeway.model.order import U64
from causeway.protocols.contract import Kernel
from causeway.protocols.events import EventLog
from causeway.protocols.execution import outdated_on
from causeway.protocols.ic.certified_state import roots_of, with_trees
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.execute import received_only
from causeway.protocols.ic.post_process import append_onward
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import Halted, Step
from causeway.protocols.ic.turns import behind, enqueued
from causeway.protocols.messages import OUTBOUND_SCHEMA
from causeway.protocols.partition import part, union

IcStates = Kernel[State, Any]
"""Whose declaration of tables says how states are cut apart and put together."""


def with_newcomers(kernel: IcStates, state: State, context: Context, installed: Callable[[U64], State]) -> State:
    """Return the state with the canisters that the registry maps to ``context.chains`` for the first time.

    ``installed``: gives the first state of the programs of canisters.
    """
    new = context.registry.newcomers
    if len(new) == 0:
        return state
    new = new[np.isin(context.host_of(new), context.chains.astype(np.int32)) & ~state.installed(new)]
    new = new[context.programs.installed(new)]
    return union(kernel, [state, installed(new)]) if len(new) else state


def with_changed_programs(state: State, context: Context) -> State:
    """Return the state with the canisters of ``context.chains`` to which changes gave another class as what they are
    now."""
    runner, hosts = context.programs, context.host_of(context.programs.changed)
    due = outdated_on(runner, hosts, context.chains, state.accounts, state.programs)
    due = due[state.installed(due)]
    if len(due) == 0:
        return state
    accounts, programs = runner.brought_up(due, state.accounts, state.programs)
    return replace(state, accounts=accounts, programs=programs)


def with_new_subnets(kernel: IcStates, state: State, context: Context) -> State:
    """Return the state with the roots of those of ``context.chains``, which have a batch, that are new in the registry
    at their height 0. One that is halted then keeps the root that it had before: its canisters make a height of it."""
    if not context.options.certified or context.registry is context.before:
        return state
    new = context.chains[context.registry.has(context.chains) & ~context.before.has(context.chains)]
    if not new.size:
        return state
    context = replace(context, chains=new)
    genesis = with_trees(part(kernel, state, new, context.tick), empty_frame(OUTBOUND_SCHEMA), context)
    roots = state.heads["root"].copy()
    roots[np.isin(state.heads["chain"], new)] = roots_of(genesis, new, context)
    return replace(state, heads=state.heads.with_columns(root=roots))


def step_of(kernel: IcStates, step: Step, context: Context) -> Step:
    """Return the part of a step that is about ``context.chains``; all its events, which are in their order."""
    chains = context.chains
    return replace(
        step,
        state=part(kernel, step.state, chains, context.tick),
        arrivals=step.arrivals.filter(np.isin(step.arrivals["chain"], chains)),
        onward=step.onward.filter(np.isin(step.onward["source"], chains)),
    )


def halt(kernel: IcStates, removal: Step, context: Context) -> Halted:
    """Return what becomes of ``context.chains``, which run no round: canisters end there, too, and nothing else
    happens. ``removal``: what has ended in all subnets. Rejects wait for their turn behind what waits already (X-4)."""
    step, log = step_of(kernel, removal, context), EventLog()
    log.add(received_only(step.arrivals))
    state, outbound = append_onward(step.state, step.onward, context)
    if context.options.messages_per_canister:
        state = replace(state, turns=behind(state.turns, enqueued([step.arrivals])))
    return Halted(state, outbound, log)
