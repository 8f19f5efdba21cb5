"""The end of canisters that the registry maps to no subnet any more: with its host a canister's state is gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame
from causeway.model.ledger import Event, Kind
from causeway.model.order import U64
from causeway.model.queues import Queues
from causeway.protocols.contract import NO_HOST
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.ic.registry import Registry
from causeway.protocols.ic.state import State
from causeway.protocols.ic.step import Step
from causeway.protocols.messages import blank_messages


def remove_ended(state: State, registry: Registry) -> Step:
    """Remove canisters on no subnet, with what they hold; each leaves a DROPPED event, and so does each message."""
    if not registry.has_ended:
        return Step(state)

    def ended(canisters: U64) -> npt.NDArray[np.bool_]:
        gone: npt.NDArray[np.bool_] = registry.host_of(canisters) == NO_HOST
        return gone

    log = EventLog()

    def dropped(rows: Frame, canisters: U64, queue_index: U64 | int) -> None:
        chains = registry.last_host_of(canisters).view(np.uint32)
        log.add(event_rows(rows, Event.DROPPED, chain=chains, queue_index=queue_index, reason="canister_removed"))

    def without(queues: Queues) -> Queues:
        owner = queues.keys[0]
        rows = queues.elements.filter(ended(queues.elements[owner]))
        dropped(rows, rows[owner], rows["index"])
        queues = queues.keep(~ended(queues.elements[owner]))
        return queues.without(ended(queues.counters[owner]))

    accounts = state.accounts
    programs = accounts["program"][ended(accounts["program"])]
    dropped(blank_messages(len(programs), kind=int(Kind.CONTROL), sender=programs, receiver=programs), programs, 0)
    state = replace(
        state,
        ingress_queues=without(state.ingress_queues),
        input_queues=without(state.input_queues),
        output_queues=without(state.output_queues),
        open_calls=state.open_calls.without(ended(state.open_calls.rows["originator"])),
        accounts=accounts.filter(~ended(accounts["program"])),
        programs={name: frame.filter(~ended(frame["program"])) for name, frame in state.programs.items()},
    )
    return Step(state, log)
