"""One block of a set of parachains: ingress, program execution, egress.

The steps follow ``docs/explanation/protocols/icmp.md``, "One block of one parachain".

Ingress: the relay chain lists queues, and a parachain consumes the available prefix (ICMP 3.2, 3.3, 3.9). Messages from
users wait in a pool for the chain's next block; those to missing programs or permanently halted chains are refused.

Egress: a program's message goes into the queue to its recipient's chain or into the local lane. A refused call returns
a reject in the chain's next block. An answer to an unregistered chain is dropped.

Reference: ICMP, sections 2.1, 3.2 to 3.4 and 3.9.
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
from causeway.protocols.relay_chain.options import RELAY_POSITION, IcmpOptions
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
    locate_ranges,
)


def changed_programs(state: State, context: Context) -> U64:
    """Return the installed or upgraded programs of ``context.chains`` without a block since."""
    hosts = context.network.host_of(context.programs.changed)
    return find_outdated_programs(context.programs, hosts, context.chains, state["accounts"], state.programs)


def chains_to_change(state: State, context: Context) -> Chains:
    """Return the chains with installed or upgraded programs and no block since.

    Args:
        state: State of the parachains.
        context: Context of the block.
    """
    return context.network.host_of(changed_programs(state, context)).view(np.uint32)


def pool_messages(ingress: pa.Table, state: State, context: Context, log: EventLog) -> State:
    """Add messages from users to the pool, in order of their numbers (``callback``).

    Args:
        ingress: Messages from users.
        state: State before.
        context: Context with all chains.
        log: Event log.
    """
    if ingress.num_rows == 0:
        return state
    chain = context.network.positions_of(ingress["chain"].to_numpy())
    messages = user_arrivals(ingress, chain, context.height)
    is_local = context.network.host_of(messages["receiver"]) == chain.view(np.int32)
    installed = find_positions(state["accounts"]["program"], messages["receiver"]) >= 0
    is_local &= installed | np.isin(messages["receiver"], changed_programs(state, context))
    refuse_users(messages.filter(~is_local), NO_PROGRAM, log)
    messages = messages.with_columns(chain=chain, place=messages["callback"])
    pooled = messages.filter(is_local).select(POOL_SCHEMA.names)
    if len(pooled) == 0:
        return state
    joined = concat([state["pool"], pooled])
    order = stable_order(*(joined[name] for name in STATE_TABLES["pool"].order))
    return state.with_tables(pool=joined.take(order))


def refuse_stranded(state: State, halted: Sequence[int], log: EventLog) -> State:
    """Refuse pooled messages of permanently halted parachains.

    Args:
        state: State with this tick's messages in the pool.
        halted: Permanently halted parachains.
        log: Event log.
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
    """Return the last block number in the lists of a relay block, -1 for none (ICMP D-2).

    Args:
        now: Number of the relay block, or of each.
        options: Options of the protocol.
    """
    return now if options.ingress_upper == "inclusive" else now - 1


def list_ingress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``ingress(B, p)`` of all parachains at a leaf.

    The result has rows of ``unrouted`` by (to, number, source). ``unrouted`` has no queues at or below a watermark, so
    they are the pending ingress.

    Args:
        unrouted: Unrouted queues of the leaf.
        now: Number of block B.
        options: Options of the protocol.
    """
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["to"], rows["number"], rows["source"]))


def list_egress(unrouted: Frame, now: int, options: IcmpOptions) -> Frame:
    """Return ``egress(B, p)`` of all parachains at a leaf.

    The result has the rows of the ingress by (source, number, to).

    Args:
        unrouted: Unrouted queues of the leaf.
        now: Number of block B.
        options: Options of the protocol.
    """
    rows = unrouted.filter(unrouted["number"] <= np.uint64(max(last_listed(now, options), 0)))
    return rows.take(stable_order(rows["source"], rows["number"], rows["to"]))


def locate_bodies(listed: Frame, segments: Frame) -> Frame:
    """Locate the bodies of ingress entries: lane, ``height``, ``first``, ``count`` (0: no body).

    A body belongs to an entry with an equal root.

    Args:
        listed: Ingress entries.
        segments: Stored queues, one a lane and block of the sender.
    """
    count = len(listed)
    entries = listed.with_columns(destination=listed["to"], substream=np.zeros(count, dtype=np.uint64))
    names = (*LANE, "number")
    stored = segments.take(stable_order(*(segments[name] for name in names)))
    row = lookup_rows(stored, entries.with_columns(number=entries["issued"]), names)
    available = row >= 0
    available[available] = rows_equal(entries["root"][available], stored["root"][row[available]])
    columns = {}
    for name in ("height", "first", "count"):
        columns[name] = np.zeros(count, dtype=np.uint64)
        columns[name][available] = stored[name][row[available]]
    return entries.with_columns(**columns)


def complete_prefix(entries: Frame, missing: np.ndarray) -> Frame:
    """Return the entries of each chain's longest prefix of complete relay blocks (ICMP 3.9; G2).

    Args:
        entries: Entries by (to, number, source).
        missing: Mask of unavailable entries.
    """
    if not missing.any():
        return entries
    stop = np.full(int(entries["to"].max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(stop, entries["to"][missing], entries["number"][missing])
    return entries.filter(entries["number"] < stop[entries["to"]])


def queue_roots(rows: Frame) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return the root of each queue, and the start row of each.

    A queue is a run of rows with equal lane and ``first``, the index of its first message.

    Args:
        rows: Messages in queue order.

    Returns:
        Roots, uint8, shape (n, 32), and start rows.
    """
    groups = group_rows(*(rows[name] for name in (*LANE, "first")))
    return ordered_roots(encode_contents(rows), groups), groups.starts


def send_egress(
    state: State, produced: Frame, rejects: Frame, bases: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Send the messages of a block.

    Args:
        state: State after program execution.
        produced: Messages of programs, in order of production.
        rejects: The chains' own answers to calls without a handler.
        bases: Blocks to build on (``ChainPositions.rows``).
        context: Context of the block.
        log: Event log.

    Returns:
        The state with the messages in lanes, and the outbound messages (``OUTBOUND_SCHEMA``).
    """
    network = context.network
    by_program_mask = np.arange(len(produced) + len(rejects)) < len(produced)
    rows = concat([produced.select(MESSAGE_COLUMNS), rejects.select(MESSAGE_COLUMNS)])
    source = np.concatenate([network.host_of(produced["sender"]).view(np.uint32), rejects["chain"]])
    host = network.host_of(rows["receiver"])
    call = rows["kind"] == Kind.REQUEST
    leaf = bases["leaf"][np.searchsorted(bases["chain"], source)]
    pairs = Frame({"leaf": leaf, "para": host.view(np.uint32)}, len(rows))
    away = (lookup_rows(context.active, pairs, ("leaf", "para")) < 0) & (host != source.view(np.int32))
    no_destination = away & call
    dropped_answers = away & ~call & (host != NO_HOST)
    destination = np.where(host == NO_HOST, source.view(np.int32), host).view(np.uint32)
    local = source == destination
    missing = local & call & ~no_destination & (find_positions(state["accounts"]["program"], rows["receiver"]) < 0)
    limit = context.options.content_limit
    too_large = ~local & call & ~is_within_limit(rows, limit)
    rows = rows.with_columns(source=source, destination=destination, substream=np.zeros(len(rows), dtype=np.uint64))
    failures, reasons = [], []
    for mask, reason in ((no_destination, NO_DESTINATION), (missing, NO_HANDLER), (too_large, TOO_LARGE)):
        failures.append(rows.filter(mask))
        reasons.append(np.full(int(mask.sum()), REASONS.index(reason)))
    failed = concat(failures)
    if len(failed) == 0:
        refused = failed
    else:
        names = names_column(REASONS, np.concatenate(reasons))
        log.add(event_rows(failed, Event.SENT | Event.REJECTED, chain=failed["source"], code=REJECTED, reason=names))
        refused = reject_answers(failed, names).with_columns(destination=failed["source"])
    if dropped_answers.any():
        dropped = rows.filter(dropped_answers)
        log.add(event_rows(dropped, Event.DROPPED, chain=dropped["source"], reason=NO_DESTINATION))
    is_valid = ~(no_destination | missing | too_large | dropped_answers)
    away = truncate_answers(rows.filter(is_valid & ~local), REJECTED, limit)
    local_rows = concat([rows.filter(is_valid & local), refused.select(rows.names)])
    local_rows = local_rows.with_columns(substream=(local_rows["kind"] == Kind.RESPONSE).astype(np.uint64))
    by_program = np.concatenate(
        [by_program_mask[is_valid & ~local], by_program_mask[is_valid & local], np.zeros(len(refused), bool)]
    )
    return _append_to_lanes(state, concat([away, local_rows.select(away.names)]), by_program, bases, context)


def reject_answers(calls: Frame, reasons: pa.DictionaryArray) -> Frame:
    """Create the rejects of calls, with a refund of the attached value."""
    return calls.with_columns(
        kind=repeat_value(np.uint8(Kind.RESPONSE), len(calls)),
        sender=calls["receiver"],
        receiver=calls["sender"],
        code=repeat_value(np.uint8(REJECTED), len(calls)),
        payload=reasons.dictionary_decode().cast(pa.binary()),
    )


def _append_to_lanes(
    state: State, rows: Frame, by_program: npt.NDArray[np.bool_], bases: Frame, context: Context
) -> tuple[State, Frame]:
    """Append messages to their lanes; return the state and the outbound messages."""
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
        egress_rows = rows.filter(groups.spread(~local))
        roots[~local] = queue_roots(egress_rows.with_columns(first=groups.spread(first)[groups.spread(~local)]))[0]
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
"""Bytes of an entry of ``egress_queue_roots``: ParaId and digest (ICMP reference 2.2)."""


def verify_bodies(entries: Frame, bodies: Frame, log: EventLog) -> tuple[Frame, Frame]:
    """Verify bodies by root (ICMP G1).

    A body with another root is unavailable (ICMP 3.7, G4) and leaves an event. Its relay block and all later ones are
    not consumed (ICMP 3.9).

    Args:
        entries: Entries to consume, by (to, number, source), with the location of their bodies.
        bodies: Their messages.
        log: Event log.

    Returns:
        The entries to consume and their messages, in order.
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
        columns = {"chain": refused["to"], "reason": Validation.IngressRootMismatch.name, "via": Via.LANE}
        log.add(event_rows(control, Event.REJECTED, on_lane=True, **columns))
        missing = np.zeros(len(entries), dtype=bool)
        missing[order] = wrong
        entries = complete_prefix(entries, missing)
        bodies = bodies.filter(lookup_rows(entries, bodies.with_columns(to=bodies["destination"]), _LISTED) >= 0)
    order = stable_order(bodies["destination"], bodies["number"], bodies["source"], bodies["index"])
    return entries, bodies.take(order)


def log_control(sources: Chains, reason: str | pa.Array, log: EventLog, chain: Chains | int | None = None) -> None:
    """Log a control event about the refused block of each parachain.

    Args:
        sources: Positions of the parachains.
        reason: Reason of all events, or of each.
        log: Event log.
        chain: Position of the refusing chain; None for the parachain itself.
    """
    control = blank_messages(len(sources), kind=int(Kind.CONTROL)).with_columns(
        source=sources, destination=np.uint32(RELAY_POSITION), substream=np.uint64(0), index=np.uint64(0)
    )
    chain = sources if chain is None else chain
    log.add(event_rows(control, Event.REJECTED, chain=chain, on_lane=True, reason=reason))


def advance_cursors(state: State, entries: Frame, bases: Frame) -> State:
    """Advance the cursors of lanes past consumed queues."""
    if len(entries) == 0:
        return state
    rows = entries.take(stable_order(*(entries[name] for name in ("destination", "source", "substream", "first"))))
    groups = group_rows(rows["destination"], rows["source"], rows["substream"])
    last = rows.take(groups.starts + groups.counts - 1)
    number = bases["number"][np.searchsorted(bases["chain"], last["to"])] + np.uint64(1)
    moved = last.select(LANE).with_columns(index=last["first"] + last["count"], number=number)
    moved = moved.select(CURSORS_SCHEMA.names)
    cursors = state["cursors"]
    others = cursors.filter(lookup_rows(moved, cursors, ("destination", "source", "substream")) < 0)
    joined = concat([others, moved])
    order = stable_order(*(joined[name] for name in STATE_TABLES["cursors"].order))
    return state.with_tables(cursors=joined.take(order))


def local_ranges(state: State, chains: Chains) -> Frame:
    """Locate the pending messages of local lanes (``RANGES_SCHEMA``).

    Args:
        state: State of the parachains.
        chains: Positions of the parachains.
    """
    queues = state["queues"]
    local = queues.filter((queues["source"] == queues["destination"]) & np.isin(queues["source"], chains))
    return locate_ranges(local.with_columns(end=local["next_index"]), state["runs"])


def process_block(
    state: State, entries: Frame, bodies: Frame, local: Frame, bases: Frame, context: Context, log: EventLog
) -> tuple[State, Frame]:
    """Execute a block of the chains of ``context``.

    Args:
        state: State before the block.
        entries: Consumed queues.
        bodies: Their messages.
        local: Messages of local lanes.
        bases: Blocks to build on.
        context: Context of the block.
        log: Event log.

    Returns:
        The state before its commit, and the outbound messages.
    """
    state = advance_cursors(state, entries, bases)
    arrivals, lanes = local_arrivals(local, state.lanes())
    state = state.with_lanes(lanes) if len(arrivals) else state
    via = np.full(len(bodies), Via.LANE, dtype=np.uint8)
    arrived = bodies.with_columns(via=via).select(ARRIVALS)
    state, users = _take_pool(state, context)
    installed = find_positions(state["accounts"]["program"], arrived["receiver"]) >= 0
    no_handler = ~installed & (arrived["kind"] == Kind.REQUEST)
    unserved = arrived.filter(no_handler)
    if len(unserved):
        columns = {
            "chain": unserved["destination"],
            "queue_index": unserved["index"],
            "via": Via.LANE,
            "reason": NO_HANDLER,
        }
        log.add(event_rows(unserved, Event.REJECTED, on_lane=True, **columns))
    rejects = reject_answers(unserved, repeat_text(NO_HANDLER, len(unserved))).with_columns(
        chain=unserved["destination"]
    )
    messages = concat([arrived.filter(~no_handler), arrivals, users])
    _, outcome, produced = handle(messages, context.programs, state["accounts"], state.programs, log)
    state = state.with_programs(outcome.accounts, outcome.programs)
    return send_egress(state, produced, rejects, bases, context, log)


def _take_pool(state: State, context: Context) -> tuple[State, Frame]:
    """Move messages from users out of the pool; return the state and the arrivals."""
    pool = state["pool"]
    selected = np.isin(pool["chain"], context.chains)
    rows = pool.filter(selected)
    count = len(rows)
    users = rows.with_columns(
        source=repeat_value(np.uint32(NO_CHAIN), count),
        destination=rows["chain"],
        substream=repeat_value(np.uint64(0), count),
        index=rows["place"],
        via=repeat_value(np.uint8(Via.INGRESS), count),
    )
    state = state.with_tables(pool=pool.filter(~selected).select(POOL_SCHEMA.names)) if count else state
    return state, users.select(ARRIVALS)
