"""Relayers in bulk: what each of them submits to a zone in one block (IBC reference 3.5, X-13).

Relayers read committed heights of both chains and nothing else: how far the zone has received and been answered, how
far the remote chain has sent and answered, the proofs and the header that it offers. What they submit may be wrong in
every way: ``judge`` says what becomes of it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.faults import Fault
from causeway.model.frame import Frame, concat, empty_frame, repeated
from causeway.model.joins import codes, lookup, over
from causeway.model.order import groups_of, stable_order
from causeway.protocols.contract import RANGES_SCHEMA
from causeway.protocols.ibc.backing_off import held_back, not_waiting
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.delays import newest_known
from causeway.protocols.ibc.evidence import shown_proof
from causeway.protocols.ibc.fault_kinds import FOREIGN, STALE
from causeway.protocols.ibc.keys import Part
from causeway.protocols.ibc.seen import SUBMISSIONS_SCHEMA, Alteration, CallKind, Seen
from causeway.protocols.ibc.state import RECEIPT, SEND, State, answering, connection_rows, is_frozen, lanes_of
from causeway.protocols.ibc.unordered import bring, unsettled, worth_bringing
from causeway.protocols.ibc.upkeep import absences, cleanups, refreshes, timeouts, updates
from causeway.protocols.interference import DROP, GAP, REPLAY, TAMPER, Interference
from causeway.protocols.messages import LANE, LANE_COLUMNS
from causeway.protocols.segments import located

ALTERATIONS = {TAMPER: Alteration.TAMPERED, STALE: Alteration.STALE_HEADER, FOREIGN: Alteration.FOREIGN}
"""Faults that change what a submission carries."""

RELAYER = "relayer"
"""In the arguments of a fault of carriers: the relayer whose it is; all relayers' without."""


def submissions(state: State, shown: Seen, provable: Seen, faults: Interference, context: Context) -> Frame:
    """Return what all relayers submit in a block: rows of ``SUBMISSIONS_SCHEMA``.

    ``shown``: what they see of the height before; ``provable``: what of the other zones they can prove (``delays``). In
    the order in which the zones process them: by zone, relayer, counterparty, call and index.
    """
    seen, wanted = provable, _ahead(state, shown, context)
    everything = _with_progress(state, seen, context)
    ordered = context.options.order == "ordered"
    lanes = _pending(everything, seen, context) if ordered else everything
    missing = None if ordered else unsettled(state, everything, seen, context)
    waiting = state.backoffs.filter(state.backoffs["until"] > np.uint64(context.height))
    pieces: list[Frame] = []
    for relayer in range(len(context.options.relayers)):
        if missing is None:
            mine = _pieces(_share(lanes, relayer, context), seen, relayer)
        else:
            mine = bring(not_waiting(missing, relayer, waiting), seen, relayer, context)
        pieces += [mine, *_about_positions(state, seen, mine, everything, relayer, context)]
        pieces += [refreshes(state, shown, relayer, context), _shared(wanted, relayer, context)]
    rows = concat(pieces)
    rows = rows.filter(~faults.skipped(rows["destination"], rows["source"], context.height))
    for fault in faults.acting(context.tick, DROP, GAP, REPLAY, *ALTERATIONS):
        rows = _with_fault(rows, everything, seen, fault, faults, context)
    rows = held_back(rows, waiting, context)
    return rows.take(stable_order(*(rows[name] for name in ("destination", "relayer", "source", "call", "begin"))))


def _ahead(state: State, shown: Seen, context: Context) -> Frame:
    """Return the zones whose headers are brought ahead (X-11): a lane of each for each zone that has a use for it.

    Of those that show, now, something to relay that the newest header which relayers know of does not show.
    """
    if not context.options.delay_ns:
        return empty_frame(SUBMISSIONS_SCHEMA).select(LANE)
    known = newest_known(state, shown, context)
    now, before = (_with_progress(state, seen, context) for seen in (shown, known))
    if context.options.order == "ordered":
        row = lookup(before, now, LANE)
        until = np.append(before["stop"], np.uint64(0))[row]
        entries = _pending(now.with_columns(expected=np.maximum(now["expected"], until)), shown, context)
    else:
        missing = unsettled(state, now, shown, context)
        height, _ = known.headers_of(missing["destination"], missing["source"], context)
        entries = worth_bringing(missing.filter(missing["pushed"] > height), context)
    found = [entries.select(LANE)]
    about = zip(*(_about_positions(state, seen, None, lanes, 0, context)
                  for seen, lanes in ((shown, now), (known, before))), strict=True)  # fmt: skip
    found += [rows.filter(~_covered(rows, known_rows)).select(LANE) for rows, known_rows in about]
    lanes = concat(found)
    lanes = lanes.take(stable_order(lanes["destination"], lanes["source"]))
    first = lanes.take(groups_of(lanes["destination"], lanes["source"]).starts)
    return lanes_of(first["source"], first["destination"], RECEIPT)


def _covered(rows: Frame, others: Frame) -> npt.NDArray[np.bool_]:
    """Return which ranges of lanes (``begin``, ``end``) lie in others whole."""
    row, index = over(rows["begin"], rows["end"])
    other, held = over(others["begin"], others["end"])
    entries = rows.select(LANE).take(row).with_columns(index=index)
    known, asked = codes(LANE_COLUMNS, others.select(LANE).take(other).with_columns(index=held), entries)
    covered = np.ones(len(rows), dtype=bool)
    covered[row[~np.isin(asked, known)]] = False
    return covered


def _shared(lanes: Frame, relayer: int, context: Context) -> Frame:
    """Return the headers that a relayer brings ahead, of those that are wanted; partners share the remote zones."""
    count, coordination = len(context.options.relayers), context.options.relay.coordination
    if coordination == "leader" and relayer:
        lanes = lanes.slice(0, 0)
    elif coordination == "partition":
        lanes = lanes.filter(lanes["source"] % np.uint32(count) == relayer)
    return updates(lanes, relayer)


def _with_progress(state: State, seen: Seen, context: Context) -> Frame:
    """Return the queues seen with ``expected``, the index that comes next, and ``stop``, where they end."""
    lanes = seen.queues
    sent = lanes["substream"] == SEND
    own = answering(lanes, np.where(sent, RECEIPT, SEND))
    expected = np.where(sent, state.queues.count_of("next_index", own), state.queues.count_of("begin", own))
    ordered = context.options.order == "ordered"
    lanes = lanes.with_columns(expected=expected, stop=lanes["ready"] if ordered else lanes["next_index"])
    # Of a frozen connection nothing is accepted, and while packets that are waited for are gone, nothing behind them.
    connection = connection_rows(state.connections, lanes["destination"], lanes["source"])
    open_still = (connection >= 0) & ~is_frozen(state.connections)[connection]
    gone = sent & (lanes["begin"] > expected) if ordered else np.zeros(len(lanes), dtype=bool)
    return lanes.with_columns(stop=np.where(gone, expected, lanes["stop"])).filter(open_still)


def _pending(lanes: Frame, seen: Seen, context: Context) -> Frame:
    """Return the queues from which something is to be relayed now.

    Those are left out that have too little for a batch and can wait (``min_batch``, ``max_wait``); of others no more
    than ``max_packets`` are taken.
    """
    options = context.options.relay
    lanes = lanes.filter(lanes["stop"] > lanes["expected"])
    if options.min_batch > 1 and len(lanes):
        waiting = lanes["stop"] - lanes["expected"] < np.uint64(options.min_batch)
        # The height at which the first entry of each lane that is to be relayed was pushed.
        proofs = seen.proofs
        proofs = proofs.filter(proofs["part"] == Part.INDEX)
        names = (*LANE, "first")
        own, asked = codes(names, proofs, lanes.select(LANE).with_columns(first=lanes["expected"]))
        rows = np.maximum(np.searchsorted(own, asked, side="right") - 1, 0)
        patient = np.uint64(context.height - 1) - proofs["pushed"][rows] < np.uint64(options.max_wait)
        lanes = lanes.filter(~(waiting & patient))
    if options.max_packets:
        stop = np.minimum(lanes["stop"], lanes["expected"] + np.uint64(options.max_packets))
        lanes = lanes.with_columns(stop=stop)
    return lanes


def _share(lanes: Frame, relayer: int, context: Context) -> Frame:
    """Return the part of what is pending that a relayer submits (``coordination``)."""
    count, coordination = len(context.options.relayers), context.options.relay.coordination
    if coordination == "none" or count == 1:
        return lanes
    if coordination == "leader":
        return lanes if relayer == 0 else lanes.slice(0, 0)
    length = lanes["stop"] - lanes["expected"]
    begin = lanes["expected"] + length * np.uint64(relayer) // np.uint64(count)
    stop = lanes["expected"] + length * np.uint64(relayer + 1) // np.uint64(count)
    return lanes.with_columns(expected=begin, stop=stop).filter(stop > begin)


def _pieces(lanes: Frame, seen: Seen, relayer: int) -> Frame:
    """Return the ranges ``expected`` to ``stop`` - 1 of lanes, cut at the proofs that cover them."""
    proofs = seen.proofs
    lane = lookup(lanes, proofs, LANE)
    rows = np.flatnonzero((lane >= 0) & (proofs["part"] == Part.INDEX))
    lane = lane[rows]
    begin = np.maximum(proofs["first"][rows], lanes["expected"][lane])
    end = np.minimum((proofs["first"] + proofs["count"])[rows], lanes["stop"][lane])
    kept = end > begin
    taken = lanes.select(LANE).take(lane[kept])
    call = np.where(taken["substream"] == SEND, CallKind.RECEIVE, CallKind.RECEIPT).astype(np.uint8)
    return taken.with_columns(
        relayer=repeated(np.uint32(relayer), len(lane[kept])),
        call=call,
        begin=begin[kept],
        end=end[kept],
        alteration=repeated(np.uint8(Alteration.NONE), len(lane[kept])),
        proof=rows[kept].astype(np.int64),
    )


def _about_positions(
    state: State, seen: Seen, mine: Frame | None, everything: Frame, relayer: int, context: Context
) -> list[Frame]:
    """Return the time-outs and cleanups that a relayer submits beside ``mine`` (X-1, X-2); None: beside everything."""
    parts = []
    if context.options.limited and (context.options.relay.coordination != "leader" or relayer == 0):
        by_absence = context.options.absence
        parts.append(
            absences(state, seen, everything, relayer, context)
            if by_absence
            else timeouts(state, seen, mine, everything, relayer, context)
        )
    if context.options.cleanup == "on" and (context.options.relay.coordination != "leader" or relayer == 0):
        parts.append(cleanups(state, seen, everything, relayer))
    return parts


def _processed(lanes: Frame, seen: Seen, relayer: int) -> Frame:
    """Return what was processed already and is still offered with a proof, as a relayer would submit it again."""
    before = lanes.with_columns(stop=lanes["expected"], expected=np.uint64(0))
    return _pieces(before, seen, relayer)


def _with_fault(rows: Frame, lanes: Frame, seen: Seen, fault: Fault, faults: Interference, context: Context) -> Frame:
    """Return the submissions as a fault leaves them: of the relayer it names, or of all."""
    hit = faults.hit(fault, rows["destination"], rows["source"])
    names, relayer = context.options.relayers, fault.args.get(RELAYER)
    if relayer is not None:
        hit &= rows["relayer"] == names.index(relayer)
    honest, altered = rows.filter(~hit), rows.filter(hit)
    if fault.kind == DROP:
        return honest
    if fault.kind in ALTERATIONS:
        return concat([honest, altered.with_columns(alteration=np.uint8(ALTERATIONS[fault.kind]))])
    if fault.kind == GAP:
        # A time-out or a cleanup names no index that could be another.
        gap = (altered["call"] <= CallKind.RECEIPT).astype(np.uint64)
        begin = altered["begin"] + gap
        return concat([honest, altered.with_columns(begin=begin, end=np.maximum(altered["end"], begin + gap))])
    relayers = range(len(names)) if relayer is None else [names.index(relayer)]
    again = [_processed(lanes, seen, number) for number in relayers]
    return concat([rows, *(part.filter(faults.hit(fault, part["destination"], part["source"])) for part in again)])


def reads_of(rows: Frame, state: State, seen: Seen, context: Context) -> tuple[Frame, Frame]:
    """Return the entries that a block must see (``RANGES_SCHEMA``), and ranges of its zones' own packets.

    Offered: every run of which a submission uses the proof, whole, also another chain's; and what the local lanes hold.
    Own: the packets that are answered: lane, ``begin``, ``end``.
    """
    used = np.unique(np.concatenate([rows["proof"], shown_proof(rows, seen.proofs)]))
    runs = seen.proofs.take(used[used >= 0])
    runs = runs.filter(runs["part"] == Part.INDEX)
    proven = runs.with_columns(height=runs["pushed"], begin=runs["first"], end=runs["first"] + runs["count"])
    queues = state.queues.counters
    local = (queues["source"] == queues["destination"]) & np.isin(queues["source"], context.chains)
    held = queues.filter(local & (queues["next_index"] > queues["begin"]))
    held = located(held.with_columns(end=held["next_index"]), state.runs)
    asked = (rows["call"] == CallKind.RECEIPT) | (rows["call"] == CallKind.TIMEOUT)
    receipts = rows.filter(asked & (rows["proof"] >= 0))
    own = answering(receipts, SEND)
    begin = np.maximum(receipts["begin"], state.queues.count_of("begin", own))
    end = np.minimum(receipts["end"], state.queues.count_of("next_index", own))
    own = own.with_columns(begin=begin, end=end)
    return concat([proven.select(RANGES_SCHEMA.names), held.select(RANGES_SCHEMA.names)]), merged(own)


def merged(ranges: Frame) -> Frame:
    """Return ranges of lanes that several relayers ask for without overlaps: those that overlap or touch become one."""
    ranges = ranges.filter(ranges["end"] > ranges["begin"])
    if len(ranges) < 2:
        return ranges
    ranges = ranges.take(stable_order(*(ranges[name] for name in (*LANE, "begin"))))
    lanes = ranges.select(LANE)
    begin, end = codes((*LANE, "at"), *(lanes.with_columns(at=ranges[name]) for name in ("begin", "end")))
    starts = np.flatnonzero(np.append(True, begin[1:] > np.maximum.accumulate(end)[:-1]))
    return ranges.take(starts).with_columns(end=np.maximum.reduceat(ranges["end"], starts))
