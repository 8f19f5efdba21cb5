"""One block of a set of parachains (ICMP reference 3.4): what is consumed, what programs make of it, what goes out.

The steps and their order are those of ``docs/protocols/icmp.md``, "One block of one parachain".

Messages from users: those for programs that are not on their chain are refused with an event, and so are those for a
chain that makes no block any more; the others wait for the chain's next block.

The lists that the relay chain offers, and how much of them a parachain can take (ICMP reference 3.2, 3.3, 3.9).

What a parachain's block sends: egress queues with their roots, messages of the chain itself (ICMP reference 2.1).

Outcomes for a message of a program: into the queue to the chain of who receives it; into the local lane; refused, and
then a call's program gets a reject in the chain's next block; dropped, if it answers to a chain that is not registered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, find_positions, group_rows, stable_order
from causeway_proofs.substrate import ordered_roots
from causeway_proofs.work import count_proof_bytes

from causeway.core.frame import Frame, concat, repeat_text, repeat_value
from causeway.core.joins import lookup_rows
from causeway.core.vocabulary import NO_CHAIN, Event, Kind, Via
from causeway.protocols.contract import NO_HOST, Chains
from causeway.protocols.relay_chain.errors import (
    CHAIN_HALTED,
    NO_DESTINATION,
    NO_HANDLER,
    REASONS,
    REJECTED,
    TOO_LARGE,
    Validation,
)
from causeway.protocols.relay_chain.options import IcmpOptions
from causeway.protocols.relay_chain.parachains import Context
from causeway.protocols.relay_chain.state import CURSORS_SCHEMA, POOL_SCHEMA, RUNS_SCHEMA, STATE_TABLES, State
from causeway.protocols.shared.contents import encode_contents, is_within_limit, truncate_answers
from causeway.protocols.shared.digests import rows_equal
from causeway.protocols.shared.events import EventLog, event_rows, names_column
from causeway.protocols.shared.execution import (
    ARRIVALS,
    NO_PROGRAM,
    find_outdated_programs,
    handle,
    local_arrivals,
    refuse_users,
    user_arrivals,
)
from causeway.protocols.shared.messages import (
    LANE,
    LANE_COLUMNS,
    MESSAGE_COLUMNS,
    NO_QUEUE,
    OUTBOUND_SCHEMA,
    blank_messages,
)


def changed_programs(state: State, context: Context) -> U64:
    """Return the programs that changes installed on ``context.chains``, or gave another class, and whose chain has not
    made a block since: it makes one for them."""
    hosts = context.network.host_of(context.programs.changed)
    return find_outdated_programs(context.programs, hosts, context.chains, state["accounts"], state.programs)


def chains_to_change(state: State, context: Context) -> Chains:
    """Return the chains of these programs."""
    return context.network.host_of(changed_programs(state, context)).view(np.uint32)


def pool_messages(ingress: pa.Table, state: State, context: Context, log: EventLog) -> State:
    """Return the state with messages from users in the pool, in the order of their numbers (``callback``)."""
    if ingress.num_rows == 0:
        return state
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    messages = user_arrivals(ingress, chain, context.height)
    here = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    installed = find_positions(state["accounts"]["program"], messages["receiver"]) >= 0
    here &= installed | np.isin(messages["receiver"], changed_programs(state, context))
    refuse_users(messages.filter(~here), NO_PROGRAM, log)
    messages = messages.with_columns(chain=chain, place=messages["callback"])
    taken = messages.filter(here).select(POOL_SCHEMA.names)
    if len(taken) == 0:
        return state
    joined = concat([state["pool"], taken])
    order = stable_order(*(joined[name] for name in STATE_TABLES["pool"].order))
    return state.with_tables(pool=joined.take(order))


def refuse_stranded(state: State, halted: Sequence[int], log: EventLog) -> State:
    """Refuse messages that wait for parachains which make no block any more, and return the state without them.

    Args:
        state: The state, with what users sent in this tick in the pool.
        halted: Parachains that are halted for ever.
        log: Gets an event a message, as of one that another protocol refuses because its chain is halted.
    """
    pool = state["pool"]
    stranded = np.isin(pool["chain"], halted) if halted else np.zeros(len(pool), dtype=bool)
    if not stranded.any():
        return state
    rows = pool.filter(stranded)
    refuse_users(rows.with_columns(destination=rows["chain"], index=rows["place"]), CHAIN_HALTED, log)
    return state.with_tables(pool=pool.filter(~stranded))


Number = TypeVar("Number", int, npt.NDArray[np.int64])


def last_listed(now: Number, options: IcmpOptions) -> Number:
    """Return the last number that the lists of a relay block of number ``now`` may have, -1 for none (D-2)."""
    return now if options.ingress_upper == "inclusive" else now - 1


def list_ingress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``ingress(B, p)`` of all parachains at a leaf, whose block B has the number ``now``: rows of ``unrouted``,
    by (to, number, source).

    What lies at or below a watermark, or is for nobody, is not in ``unrouted``: pending ingress is what there is.
    """
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["to"], rows["number"], rows["source"]))


def list_egress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``egress(B, p)`` of all parachains at a leaf: the rows of ``ingress``, by (source, number, to)."""
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["source"], rows["number"], rows["to"]))


def locate_bodies(listed: Frame, segments: Frame) -> Frame:
    """Return entries of ``ingress`` with where their bodies lie: lane, ``height``, ``first``, ``count`` (0: nobody has
    the body).

    ``segments``: the queues that their senders keep, one a lane and block of the sender. The root says whether a queue
    is the one that was posted.
    """
    count = len(listed)
    entries = listed.with_columns(destination=listed["to"], substream=np.zeros(count, dtype=np.uint64))
    names = (*LANE, "number")
    held = segments.take(stable_order(*(segments[name] for name in names)))
    found = lookup_rows(held, entries.with_columns(number=entries["issued"]), names)
    there = found >= 0
    there[there] = rows_equal(entries["root"][there], held["root"][found[there]])
    columns = {}
    for name in ("height", "first", "count"):
        columns[name] = np.zeros(count, dtype=np.uint64)
        columns[name][there] = held[name][found[there]]
    return entries.with_columns(**columns)


def complete_prefix(entries: Frame, missing: np.ndarray) -> Frame:
    """Return, of each chain, the entries of the longest run of blocks of which every queue is there (3.9; G2).

    ``entries``: by (to, number, source); ``missing``: which are not there.
    """
    if not missing.any():
        return entries
    stop = np.full(int(entries["to"].max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(stop, entries["to"][missing], entries["number"][missing])
    return entries.filter(entries["number"] < stop[entries["to"]])


def queue_roots(rows: Frame) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return R of each run of neighbours of one lane and ``first`` (the first index of its queue), and where each run
    begins.

    ``rows``: messages in the order of their queues.
    """
    groups = group_rows(*(rows[name] for name in (*LANE, "first")))
    return ordered_roots(encode_contents(rows), groups), groups.starts


def send_egress(
    state: State, produced: Frame, rejects: Frame, bases: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Return the state with what a block sends in its lanes, and what is outbound (``OUTBOUND_SCHEMA``).

    ``produced``: what programs made, in the order of production; ``rejects``: answers that chains made themselves, to
    calls that nobody could take; ``bases``: what the blocks are built on (``forks.Standing``).
    """
    network = context.network
    of_program = np.arange(len(produced) + len(rejects)) < len(produced)
    rows = concat([produced.select(MESSAGE_COLUMNS), rejects.select(MESSAGE_COLUMNS)])
    source = np.concatenate([network.host_of(produced["sender"]).view(np.uint32), rejects["chain"]])
    host = network.host_of(rows["receiver"])
    call = rows["kind"] == Kind.REQUEST
    leaf = bases["leaf"][np.searchsorted(bases["chain"], source)]
    known = Frame({"leaf": leaf, "para": host.view(np.uint32)}, len(rows))
    away = (lookup_rows(context.active, known, ("leaf", "para")) < 0) & (host != source.view(np.int32))
    nowhere = away & call
    lost = away & ~call & (host != NO_HOST)
    destination = np.where(host == NO_HOST, source.view(np.int32), host).view(np.uint32)
    local = source == destination
    missing = local & call & ~nowhere & (find_positions(state["accounts"]["program"], rows["receiver"]) < 0)
    limit = context.options.content_limit
    large = ~local & call & ~is_within_limit(rows, limit)
    rows = rows.with_columns(source=source, destination=destination, substream=np.zeros(len(rows), dtype=np.uint64))
    failures, reasons = [], []
    for mask, reason in ((nowhere, NO_DESTINATION), (missing, NO_HANDLER), (large, TOO_LARGE)):
        failures.append(rows.filter(mask))
        reasons.append(np.full(int(mask.sum()), REASONS.index(reason)))
    # The answers that programs get for calls that were refused; each leaves an event.
    failed = concat(failures)
    if len(failed) == 0:
        refused = failed
    else:
        names = names_column(REASONS, np.concatenate(reasons))
        log.add(event_rows(failed, Event.SENT | Event.REJECTED, chain=failed["source"], code=REJECTED, reason=names))
        refused = reject_answers(failed, names).with_columns(destination=failed["source"])
    if lost.any():
        dropped = rows.filter(lost)
        log.add(event_rows(dropped, Event.DROPPED, chain=dropped["source"], reason=NO_DESTINATION))
    good = ~(nowhere | missing | large | lost)
    away = truncate_answers(rows.filter(good & ~local), REJECTED, limit)
    inside = concat([rows.filter(good & local), refused.select(rows.names)])
    inside = inside.with_columns(substream=(inside["kind"] == Kind.RESPONSE).astype(np.uint64))
    by_program = np.concatenate([of_program[good & ~local], of_program[good & local], np.zeros(len(refused), bool)])
    return _into_lanes(state, concat([away, inside.select(away.names)]), by_program, bases, context)


def reject_answers(calls: Frame, reasons: pa.DictionaryArray) -> Frame:
    """Return the rejects of calls; what was attached goes back."""
    return calls.with_columns(
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(calls)),
        sender=calls["receiver"],
        receiver=calls["sender"],
        code=repeat_value(np.uint8(REJECTED), len(calls)),
        payload=reasons.dictionary_decode().cast(pa.binary()),
    )


def _into_lanes(
    state: State, rows: Frame, by_program: npt.NDArray[np.bool_], bases: Frame, context: Context
) -> tuple[State, Frame]:
    """Return the state with messages at the ends of their lanes, the queues with their roots, and what is outbound."""
    if len(rows) == 0:
        return state, Frame({name: rows[name] if name in rows else np.empty(0, np.uint64) for name in _OUT}, 0)
    order = stable_order(*(rows[name] for name in LANE))
    rows, by_program = rows.take(order), by_program[order]
    index, queues = state.lanes().number_grouped(rows)
    rows = rows.with_columns(
        index=index,
        queue_index=np.where(by_program, index, np.uint64(NO_QUEUE)),
        sent_tick=np.full(len(rows), context.tick, dtype=np.uint64),
    )
    groups = group_rows(*(rows[name] for name in LANE))
    runs = rows.select(LANE).take(groups.starts)
    first = rows["index"][groups.starts]
    local = runs["source"] == runs["destination"]
    roots = np.zeros((len(groups), 32), dtype=np.uint8)
    if not local.all():
        apart = rows.filter(groups.spread(~local))
        roots[~local] = queue_roots(apart.with_columns(first=groups.spread(first)[groups.spread(~local)]))[0]
    runs = runs.with_columns(
        height=np.full(len(runs), context.height, dtype=np.uint64),
        first=first,
        count=groups.counts.astype(np.uint64),
        number=bases["number"][np.searchsorted(bases["chain"], runs["source"])] + np.uint64(1),
        root=roots,
    )
    state = state.with_lanes(queues.add_segments(runs.select(RUNS_SCHEMA.names)))
    rows = rows.take(stable_order(rows["destination"], rows["source"], rows["substream"], rows["index"]))
    return state, rows.select(_OUT)


_OUT = OUTBOUND_SCHEMA.names
assert _OUT[: len(LANE_COLUMNS)] == LANE_COLUMNS


_LISTED = ("to", "number", "source")

ROOT_ENTRY_BYTES = 4 + 32
"""An entry of ``egress_queue_roots``: a ParaId and a digest (ICMP reference 2.2)."""


def verify_bodies(entries: Frame, bodies: Frame, log: EventLog) -> tuple[Frame, Frame]:
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
    count_proof_bytes(ROOT_ENTRY_BYTES * len(queues))
    wrong = ~rows_equal(roots, queues["root"])
    if wrong.any():
        refused = queues.filter(wrong)
        control = blank_messages(len(refused), kind=np.full(len(refused), Kind.CONTROL, dtype=np.uint8))
        control = control.with_columns(**{name: refused[name] for name in LANE}, index=refused["first"])
        where = {"chain": refused["to"], "reason": Validation.IngressRootMismatch.name, "via": Via.LANE}
        log.add(event_rows(control, Event.REJECTED, on_lane=True, **where))
        missing = np.zeros(len(entries), dtype=bool)
        missing[order] = wrong
        entries = complete_prefix(entries, missing)
        bodies = bodies.filter(lookup_rows(entries, bodies.with_columns(to=bodies["destination"]), _LISTED) >= 0)
    order = stable_order(bodies["destination"], bodies["number"], bodies["source"], bodies["index"])
    return entries, bodies.take(order)


def advance_cursors(state: State, entries: Frame, bases: Frame) -> State:
    """Return the state in which what is consumed is behind the cursors of its lanes."""
    if len(entries) == 0:
        return state
    rows = entries.take(stable_order(*(entries[name] for name in ("destination", "source", "substream", "first"))))
    groups = group_rows(rows["destination"], rows["source"], rows["substream"])
    last = rows.take(groups.starts + groups.counts - 1)
    number = bases["number"][np.searchsorted(bases["chain"], last["to"])] + np.uint64(1)
    moved = last.select(LANE).with_columns(index=last["first"] + last["count"], number=number)
    moved = moved.select(CURSORS_SCHEMA.names)
    cursors = state["cursors"]
    stays = cursors.filter(lookup_rows(moved, cursors, ("destination", "source", "substream")) < 0)
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
    state = advance_cursors(state, entries, bases)
    arrivals, lanes = local_arrivals(local, state.lanes())
    state = state.with_lanes(lanes) if len(arrivals) else state
    via = np.full(len(bodies), Via.LANE, dtype=np.uint8)
    came = bodies.with_columns(via=via).select(ARRIVALS)
    state, users = _from_pool(state, context)
    installed = find_positions(state["accounts"]["program"], came["receiver"]) >= 0
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
    rejects = reject_answers(unserved, repeat_text(NO_HANDLER, len(unserved))).with_columns(
        chain=unserved["destination"]
    )
    given = concat([came.filter(~nobody), arrivals, users])
    _, outcome, produced = handle(given, context.programs, state["accounts"], state.programs, log)
    state = state.with_programs(outcome.accounts, outcome.programs)
    return send_egress(state, produced, rejects, bases, context, log)


def _from_pool(state: State, context: Context) -> tuple[State, Frame]:
    """Return the state without what users sent to the chains of ``context``, and that as arrivals."""
    pool = state["pool"]
    mine = np.isin(pool["chain"], context.chains)
    rows = pool.filter(mine)
    count = len(rows)
    users = rows.with_columns(
        source=repeat_value(np.uint32(NO_CHAIN), count),
        destination=rows["chain"],
        substream=repeat_value(np.uint64(0), count),
        index=rows["place"],
        via=repeat_value(np.uint8(Via.INGRESS), count),
    )
    state = state.with_tables(pool=pool.filter(~mine).select(POOL_SCHEMA.names)) if count else state
    return state, users.select(ARRIVALS)
