"""What a parachain's block sends: egress queues with their roots, messages of the chain itself (ICMP reference 2.1).

Outcomes for a message of a program: into the queue to the chain of who receives it; into the local lane; refused, and
then a call's program gets a reject in the chain's next block; dropped, if it answers to a chain that is not registered.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, repeated
from causeway.model.joins import lookup
from causeway.model.ledger import Event, Kind
from causeway.model.order import groups_of, positions_in, stable_order
from causeway.proofs.hashing import Digests
from causeway.proofs.substrate import ordered_roots
from causeway.protocols.contents import encode_contents, fits, shortened
from causeway.protocols.contract import NO_HOST
from causeway.protocols.events import EventLog, event_rows, names_column
from causeway.protocols.icmp.context import Context
from causeway.protocols.icmp.errors import NO_DESTINATION, NO_HANDLER, REASONS, REJECTED, TOO_LARGE
from causeway.protocols.icmp.state import State
from causeway.protocols.icmp.tables import RUNS_SCHEMA
from causeway.protocols.messages import LANE, LANE_COLUMNS, MESSAGE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA


def queue_roots(rows: Frame) -> tuple[Digests, npt.NDArray[np.int64]]:
    """Return R of each run of neighbours of one lane and ``first`` (the first index of its queue), and where each run
    begins.

    ``rows``: messages in the order of their queues.
    """
    groups = groups_of(*(rows[name] for name in (*LANE, "first")))
    return ordered_roots(encode_contents(rows), groups), groups.starts


def send(
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
    away = (lookup(context.active, known, ("leaf", "para")) < 0) & (host != source.view(np.int32))
    nowhere = away & call
    lost = away & ~call & (host != NO_HOST)
    destination = np.where(host == NO_HOST, source.view(np.int32), host).view(np.uint32)
    local = source == destination
    missing = local & call & ~nowhere & (positions_in(state["accounts"]["program"], rows["receiver"]) < 0)
    limit = context.options.content_limit
    large = ~local & call & ~fits(rows, limit)
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
        refused = answers_of(failed, names).with_columns(destination=failed["source"])
    if lost.any():
        dropped = rows.filter(lost)
        log.add(event_rows(dropped, Event.DROPPED, chain=dropped["source"], reason=NO_DESTINATION))
    good = ~(nowhere | missing | large | lost)
    away = shortened(rows.filter(good & ~local), REJECTED, limit)
    inside = concat([rows.filter(good & local), refused.select(rows.names)])
    inside = inside.with_columns(substream=(inside["kind"] == Kind.RESPONSE).astype(np.uint64))
    by_program = np.concatenate([of_program[good & ~local], of_program[good & local], np.zeros(len(refused), bool)])
    return _into_lanes(state, concat([away, inside.select(away.names)]), by_program, bases, context)


def answers_of(calls: Frame, reasons: pa.DictionaryArray) -> Frame:
    """Return the rejects of calls; what was attached goes back."""
    return calls.with_columns(
        kind=repeated(np.uint8(Kind.RESPONSE), len(calls)),
        sender=calls["receiver"],
        receiver=calls["sender"],
        code=repeated(np.uint8(REJECTED), len(calls)),
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
    groups = groups_of(*(rows[name] for name in LANE))
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
