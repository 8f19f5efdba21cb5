"""One block of a set of parachains (ICMP reference 3.4): what is consumed, what programs make of it, what goes out.

The steps and their order are those of ``docs/protocols/icmp.md``, "One block of one parachain".
"""

from __future__ import annotations

import numpy as np

from causeway.model.frame import Frame, concat, repeated, repeated_text
from causeway.model.joins import lookup
from causeway.model.ledger import NO_CHAIN, Event, Kind, Via
from causeway.model.order import groups_of, positions_in, stable_order
from causeway.proofs.work import proved_bytes
from causeway.protocols.arrivals import ARRIVALS, from_local, handle
from causeway.protocols.digests import same
from causeway.protocols.events import EventLog, event_rows
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.egress import answers_of, queue_roots, send
from causeway.protocols.icmp.errors import NO_HANDLER, Validation
from causeway.protocols.icmp.ingress import complete_prefix
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import CURSORS_SCHEMA, POOL_SCHEMA, STATE_TABLES
from causeway.protocols.messages import LANE, LANE_COLUMNS, blank_messages

_LISTED = ("to", "number", "source")

ROOT_ENTRY_BYTES = 4 + 32
"""An entry of ``egress_queue_roots``: a ParaId and a digest (ICMP reference 2.2)."""


def authentic(entries: Frame, bodies: Frame, log: EventLog) -> tuple[Frame, Frame]:
    """Return the entries that candidates consume, and their messages, in order (G1).

    A body that has not the root that was posted is none (3.7, G4): its relay block is not consumed, nor what lies
    behind that, and what lies before is (3.9). Each leaves an event.

    ``entries``: what candidates would consume, by (to, number, source), with where the bodies lie; ``bodies``: messages
    that were read.
    """
    if len(entries) == 0:
        return entries, bodies.slice(0, 0)
    order = stable_order(*(entries[name] for name in (*LANE, "first")))
    queues = entries.take(order)
    bodies = bodies.take(stable_order(*(bodies[name] for name in LANE_COLUMNS)))
    sizes = queues["count"].astype(np.int64)
    bodies = bodies.with_columns(first=queues["first"].repeat(sizes), number=queues["number"].repeat(sizes))
    roots, _ = queue_roots(bodies)
    proved_bytes(ROOT_ENTRY_BYTES * len(queues))
    wrong = ~same(roots, queues["root"])
    if wrong.any():
        refused = queues.filter(wrong)
        control = blank_messages(len(refused), kind=np.full(len(refused), Kind.CONTROL, dtype=np.uint8))
        control = control.with_columns(**{name: refused[name] for name in LANE}, index=refused["first"])
        where = {"chain": refused["to"], "reason": Validation.IngressRootMismatch.name, "via": Via.LANE}
        log.add(event_rows(control, Event.REJECTED, on_lane=True, **where))
        missing = np.zeros(len(entries), dtype=bool)
        missing[order] = wrong
        entries = complete_prefix(entries, missing)
        bodies = bodies.filter(lookup(entries, bodies.with_columns(to=bodies["destination"]), _LISTED) >= 0)
    order = stable_order(bodies["destination"], bodies["number"], bodies["source"], bodies["index"])
    return entries, bodies.take(order)


def consumed(state: State, entries: Frame, bases: Frame) -> State:
    """Return the state in which what is consumed is behind the cursors of its lanes."""
    if len(entries) == 0:
        return state
    rows = entries.take(stable_order(*(entries[name] for name in ("destination", "source", "substream", "first"))))
    groups = groups_of(rows["destination"], rows["source"], rows["substream"])
    last = rows.take(groups.starts + groups.counts - 1)
    number = bases["number"][np.searchsorted(bases["chain"], last["to"])] + np.uint64(1)
    moved = last.select(LANE).with_columns(index=last["first"] + last["count"], number=number)
    moved = moved.select(CURSORS_SCHEMA.names)
    cursors = state["cursors"]
    stays = cursors.filter(lookup(moved, cursors, ("destination", "source", "substream")) < 0)
    joined = concat([stays, moved])
    order = stable_order(*(joined[name] for name in STATE_TABLES["cursors"].order))
    return state.with_tables(cursors=joined.take(order))


def process_block(
    state: State, entries: Frame, bodies: Frame, local: Frame, bases: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state of the chains of ``context`` after a block, not yet committed, and what is outbound.

    ``entries``, ``bodies``: what is consumed (``authentic``); ``local``: what the local lanes hold; ``bases``: what
    the blocks are built on.
    """
    state = consumed(state, entries, bases)
    arrivals, lanes = from_local(local, state.lanes())
    state = state.with_lanes(lanes) if len(arrivals) else state
    via = np.full(len(bodies), Via.LANE, dtype=np.uint8)
    came = bodies.with_columns(via=via).select(ARRIVALS)
    state, users = _from_pool(state, context)
    installed = positions_in(state["accounts"]["program"], came["receiver"]) >= 0
    nobody = ~installed & (came["kind"] == Kind.REQUEST)
    unserved = came.filter(nobody)
    # The answers to calls of programs that are not there.
    if len(unserved):
        where = {
            "chain": unserved["destination"],
            "queue_index": unserved["index"],
            "via": Via.LANE,
            "reason": NO_HANDLER,
        }
        log.add(event_rows(unserved, Event.REJECTED, on_lane=True, **where))
    rejects = answers_of(unserved, repeated_text(NO_HANDLER, len(unserved))).with_columns(chain=unserved["destination"])
    given = concat([came.filter(~nobody), arrivals, users])
    _, outcome, produced = handle(given, context.programs, state["accounts"], state.programs, log)
    state = state.with_programs(outcome.accounts, outcome.programs)
    return send(state, produced, rejects, bases, context, log)


def _from_pool(state: State, context: Context) -> tuple[State, Frame]:
    """Return the state without what users sent to the chains of ``context``, and that as arrivals."""
    pool = state["pool"]
    mine = np.isin(pool["chain"], context.chains)
    rows = pool.filter(mine)
    count = len(rows)
    users = rows.with_columns(
        source=repeated(np.uint32(NO_CHAIN), count),
        destination=rows["chain"],
        substream=repeated(np.uint64(0), count),
        index=rows["place"],
        via=repeated(np.uint8(Via.INGRESS), count),
    )
    state = state.with_tables(pool=pool.filter(~mine).select(POOL_SCHEMA.names)) if count else state
    return state, users.select(ARRIVALS)
