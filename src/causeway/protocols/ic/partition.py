"""Taking states of sets of subnets apart and together: for halted chains, moved canisters, and other cuts of the
network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.ledger import EVENTS_SCHEMA, Event, Kind
from causeway.model.order import U64, stable_order
from causeway.model.queues import QueueMap
from causeway.protocols.events import event_rows
from causeway.protocols.ic.registry import NO_HOST, Registry
from causeway.protocols.ic.state import Lanes, State


def part(state: State, chains: npt.NDArray[np.uint32], registry: Registry) -> State:
    """Return the rows of ``state`` that belong to ``chains``: lanes by chain, all else by the host of its canister.

    Rows of a canister on no subnet belong to nobody and are left out: with its removal its state is gone (what its
    queues held is accounted for by ``abandoned``).
    """
    hosted = np.zeros(len(registry.subnets) + 1, dtype=bool)
    hosted[chains] = True

    def of_canister(frame: Frame, column: str) -> Frame:
        return frame.filter(hosted[registry.host_of(frame[column])]) if len(frame) else frame

    def of_chain(frame: Frame) -> Frame:
        return frame.filter(hosted[frame["chain"]]) if len(frame) else frame

    def queues(queue_map: QueueMap) -> QueueMap:
        counters = queue_map.counters
        kept = counters.select(hosted[registry.host_of(counters.first)])
        return replace(queue_map, counters=kept, elements=of_canister(queue_map.elements, queue_map.keys[0]))

    return State(
        ingress_queues=queues(state.ingress_queues),
        input_queues=queues(state.input_queues),
        output_queues=queues(state.output_queues),
        lanes=Lanes(of_chain(state.lanes.rows), state.lanes.base),
        rejects=of_chain(state.rejects),
        runs=of_chain(state.runs),
        strays=of_chain(state.strays),
        accounts=of_canister(state.accounts, "program"),
        programs={name: of_canister(frame, "program") for name, frame in state.programs.items()},
    )


def abandoned(state: State, registry: Registry) -> Frame:
    """Return DROPPED events of canisters that are on no subnet any more: their own, and those of messages held."""
    ended: U64 = state.accounts["program"]
    ended = ended[registry.host_of(ended) == NO_HOST]
    zero = repeated(np.uint64(0), len(ended))
    kind = repeated(np.uint8(Kind.CONTROL), len(ended))
    control = Frame({"kind": kind, "sender": ended, "receiver": ended, "callback": zero}, len(ended))
    parts = [_removed(control, ended, zero, registry)]
    for queues in (state.ingress_queues, state.input_queues, state.output_queues):
        rows = queues.elements.filter(registry.host_of(queues.elements[queues.keys[0]]) == NO_HOST)
        parts.append(_removed(rows, rows[queues.keys[0]], rows["index"], registry))
    return concat([empty_frame(EVENTS_SCHEMA), *parts])


def _removed(rows: Frame, canisters: U64, queue_index: U64, registry: Registry) -> Frame:
    chain = registry.last_host_of(canisters).view(np.uint32)
    return event_rows(rows, Event.DROPPED, chain=chain, queue_index=queue_index, reason="canister_removed")


def union(states: Sequence[State]) -> State:
    """Return the states of disjoint sets of subnets as one state, every table in its canonical order."""
    if len(states) == 1:
        return states[0]

    def joined(frames: Sequence[Frame], *keys: str) -> Frame:
        frame = concat(list(frames))
        order = stable_order(*(frame[key] for key in keys))
        return frame if bool((order[1:] > order[:-1]).all()) else frame.take(order)

    def queues(name: str) -> QueueMap:
        maps: list[QueueMap] = [getattr(state, name) for state in states]
        counters = maps[0].counters
        for other in maps[1:]:
            counters = counters.union(other.counters)
        elements = joined([item.elements for item in maps], *maps[0].keys, "index")
        return replace(maps[0], counters=counters, elements=elements)

    lane = ("chain", "remote", "substream")
    names = sorted({name for state in states for name in state.programs})
    return State(
        ingress_queues=queues("ingress_queues"),
        input_queues=queues("input_queues"),
        output_queues=queues("output_queues"),
        lanes=Lanes(joined([state.lanes.rows for state in states], *lane), states[0].lanes.base),
        rejects=joined([state.rejects for state in states], *lane, "index"),
        runs=joined([state.runs for state in states], *lane, "height"),
        strays=joined([state.strays for state in states], "chain", "receiver", "sender", "index"),
        accounts=joined([state.accounts for state in states], "program"),
        programs={
            name: joined([state.programs[name] for state in states if name in state.programs], "program")
            for name in names
        },
    )
