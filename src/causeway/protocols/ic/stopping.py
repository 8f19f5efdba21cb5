"""What happens when a subnet violates a hard invariant: it stops, alone and for good (IC reference X-17).

From the round of the violation on it is halted with the state from before it; the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from causeway.model.errors import IndexOverflow, InvariantViolation
from causeway.model.frame import Frame, concat
from causeway.model.ledger import Event, Kind
from causeway.model.order import stable_order
from causeway.protocols.contract import Chains, Inputs, Plan
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.batch import XNetPlan
from causeway.protocols.ic.context import Context
from causeway.protocols.ic.state import State
from causeway.protocols.messages import blank_messages


@dataclass(frozen=True)
class Stops:
    """The chains that stop in a round, and their events."""

    chains: Chains
    log: EventLog


def with_stopped(state: State, error: IndexOverflow | InvariantViolation, context: Context) -> State:
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
    hosts = context.registry.last_host_of(program)
    return hosts[hosts >= 0].astype(np.uint32)


def just_stopped(state: State, height: int) -> Stops:
    """Return the chains of ``state`` that stop in the round of ``height``."""
    log = EventLog()
    if len(state.stopped) == 0:
        return Stops(state.stopped["chain"], log)
    rows = state.stopped.filter(state.stopped["height"] == np.uint64(height))
    control = blank_messages(len(rows), kind=int(Kind.CONTROL))
    log.add(event_rows(control, Event.STOPPED, chain=rows["chain"], reason=rows["cause"].dictionary_encode()))
    return Stops(rows["chain"], log)


def without(plan: Plan[XNetPlan], inputs: Inputs[State], chains: Chains) -> tuple[Plan[XNetPlan], Inputs[State]]:
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
