"""Relayers in bulk: the submissions of each relayer to a zone in one block.

Relayers read only committed heights of both chains: the zone's received and answered entries, the remote chain's sent
and answered entries, its proofs and its header. Their submissions may be wrong in every way; the calls decide them.

Users relay their own packets, and sponsored relayers the rest (IBC reference 3.5). A user's process carries the packets
of its programs, their receipts and timeouts; no headers alone, and no cleanups. A sponsored relayer carries entries of
at least ``min_age`` blocks. In an ordered queue both submit the entries before the first one that they leave to others.

Reference:
    IBC reference 3.5, X-13.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from causeway_proofs.order import group_rows, stable_order

from causeway.config.faults import FaultRule
from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.joins import encode_keys, expand_ranges, lookup_rows
from causeway.core.joins import merge_ranges as stretches
from causeway.protocols.contract import RANGES_SCHEMA
from causeway.protocols.ibc.context import Context
from causeway.protocols.ibc.disconnection import is_final
from causeway.protocols.ibc.fault_kinds import FOREIGN, STALE
from causeway.protocols.ibc.keys import KeyPart
from causeway.protocols.ibc.queue_entries import filter_worthwhile, select_missing, unsettled_ranges
from causeway.protocols.ibc.relay.backoff import drop_backed_off, exclude_backed_off
from causeway.protocols.ibc.relay.delays import newest_known_heights
from causeway.protocols.ibc.relay.evidence import carried_proofs
from causeway.protocols.ibc.relay.maintenance import (
    plan_absence_timeouts,
    plan_cleanups,
    plan_refreshes,
    plan_timeouts,
    plan_updates,
)
from causeway.protocols.ibc.relayer_view import SUBMISSIONS_SCHEMA, Alteration, RelayerView, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, SEND, State, connection_rows, is_frozen, lanes_of, reverse_lanes
from causeway.protocols.shared.interference import DROP, GAP, REPLAY, TAMPER, Interference
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, locate_ranges

__all__ = ["VISIT", "select_own_share"]

ALTERATIONS = {TAMPER: Alteration.TAMPERED, STALE: Alteration.STALE_HEADER, FOREIGN: Alteration.FOREIGN}
"""Faults that alter the content of a submission."""

RELAYER = "relayer"
"""An argument of carriers' faults: the faulty relayer; without it, all relayers."""


def plan_submissions(
    state: State, view: RelayerView, provable: RelayerView, faults: Interference, context: Context
) -> Frame:
    """Return the submissions of all relayers in a block (``SUBMISSIONS_SCHEMA``).

    They are in the order of processing: by zone, relayer, counterparty, call and index.

    Args:
        state: The state of the zones.
        view: The relayers' view of the previous height.
        provable: The view that they can prove (``delays``).
        faults: The scenario's faults.
        context: The metadata of the block.
    """
    seen, wanted = provable, _ahead(state, view, context)
    everything = _with_progress(state, seen, context)
    ordered = context.options.order == "ordered"
    lanes = _pending(everything, seen, context) if ordered else everything
    missing = None if ordered else unsettled_ranges(state, everything, seen, context)
    waiting = state.backoffs.filter(state.backoffs["until"] > np.uint64(context.height))
    pieces: list[Frame] = []
    for relayer in range(len(context.options.relayers)):
        if missing is None:
            mine = _pieces(_share(lanes, relayer, context), seen, relayer)
        else:
            mine = select_missing(exclude_backed_off(missing, relayer, waiting), seen, relayer, context)
        pieces += [mine, *_about_positions(state, seen, mine, everything, relayer, context)]
        pieces += [plan_refreshes(state, view, relayer, context), _shared(wanted, relayer, context)]
    rows = concat(pieces)
    rows = rows.filter(~faults.skipped(rows["destination"], rows["source"], context.height))
    for fault in faults.acting(context.tick, DROP, GAP, REPLAY, *ALTERATIONS):
        rows = _with_fault(rows, everything, seen, fault, faults, context)
    rows = drop_backed_off(rows, waiting, context)
    return rows.take(stable_order(*(rows[name] for name in ("destination", "relayer", "source", "call", "begin"))))


def _ahead(state: State, view: RelayerView, context: Context) -> Frame:
    """Return lanes from the zones whose headers relayers deliver in advance (X-11).

    There is one for each zone that needs the header.

    A header is needed if the current view shows something to relay that the newest known header does not.
    """
    if not context.options.delay_ns:
        return empty_frame(SUBMISSIONS_SCHEMA).select(LANE)
    known = newest_known_heights(state, view, context)
    now, before = (_with_progress(state, seen, context) for seen in (view, known))
    if context.options.order == "ordered":
        row = lookup_rows(before, now, LANE)
        until = np.append(before["stop"], np.uint64(0))[row]
        entries = _pending(now.with_columns(expected=np.maximum(now["expected"], until)), view, context)
    else:
        missing = unsettled_ranges(state, now, view, context)
        height, _ = known.headers_of(missing["destination"], missing["source"], context)
        entries = filter_worthwhile(missing.filter(missing["pushed"] > height), context)
    found = [entries.select(LANE)]
    about = zip(*(_about_positions(state, seen, None, lanes, 0, context)
                  for seen, lanes in ((view, now), (known, before))), strict=True)  # fmt: skip
    found += [rows.filter(~_covered(rows, known_rows)).select(LANE) for rows, known_rows in about]
    lanes = concat(found)
    lanes = lanes.take(stable_order(lanes["destination"], lanes["source"]))
    first = lanes.take(group_rows(lanes["destination"], lanes["source"]).starts)
    return lanes_of(first["source"], first["destination"], RECEIPT)


def _covered(rows: Frame, others: Frame) -> npt.NDArray[np.bool_]:
    """Return a mask of the ranges of lanes (``begin``, ``end``) that lie inside others."""
    row, index = expand_ranges(rows["begin"], rows["end"])
    other, covered_index = expand_ranges(others["begin"], others["end"])
    entries = rows.select(LANE).take(row).with_columns(index=index)
    known, keys = encode_keys(LANE_COLUMNS, others.select(LANE).take(other).with_columns(index=covered_index), entries)
    covered = np.ones(len(rows), dtype=bool)
    covered[row[~np.isin(keys, known)]] = False
    return covered


def _shared(lanes: Frame, relayer: int, context: Context) -> Frame:
    """Return a relayer's share of headers to deliver in advance.

    Partners share the remote zones.
    """
    count, coordination = len(context.options.relayers), context.options.relay.coordination
    if coordination == "leader" and relayer:
        lanes = lanes.slice(0, 0)
    elif coordination == "partition":
        lanes = lanes.filter(lanes["source"] % np.uint32(count) == relayer)
    return plan_updates(lanes, relayer)


def _with_progress(state: State, seen: RelayerView, context: Context) -> Frame:
    """Add the next index (``expected``) and the end (``stop``) to the queues of a view."""
    lanes = seen.queues
    sent = lanes["substream"] == SEND
    own = reverse_lanes(lanes, np.where(sent, RECEIPT, SEND))
    expected = np.where(sent, state.queues.read_counters("next_index", own), state.queues.read_counters("begin", own))
    ordered = context.options.order == "ordered"
    lanes = lanes.with_columns(expected=expected, stop=lanes["ready"] if ordered else lanes["next_index"])
    # A frozen connection accepts nothing; in order, nothing passes a missing packet.
    connection = connection_rows(state.connections, lanes["destination"], lanes["source"])
    open_still = (connection >= 0) & ~is_frozen(state.connections)[connection]
    is_blocked = sent & (lanes["begin"] > expected) if ordered else np.zeros(len(lanes), dtype=bool)
    return lanes.with_columns(stop=np.where(is_blocked, expected, lanes["stop"])).filter(open_still)


def _pending(lanes: Frame, seen: RelayerView, context: Context) -> Frame:
    """Select the queues with entries to relay now.

    Queues with less than a batch may wait (``min_batch``, ``max_wait``); others are limited to ``max_packets``.
    """
    options = context.options.relay
    lanes = lanes.filter(lanes["stop"] > lanes["expected"])
    if options.min_batch > 1 and len(lanes):
        waiting = lanes["stop"] - lanes["expected"] < np.uint64(options.min_batch)
        # The height at which the first entry of each lane that is to be relayed was pushed.
        proofs = seen.proofs
        proofs = proofs.filter(proofs["part"] == KeyPart.INDEX)
        names = (*LANE, "first")
        own, wanted = encode_keys(names, proofs, lanes.select(LANE).with_columns(first=lanes["expected"]))
        rows = np.maximum(np.searchsorted(own, wanted, side="right") - 1, 0)
        patient = np.uint64(context.height - 1) - proofs["pushed"][rows] < np.uint64(options.max_wait)
        lanes = lanes.filter(~(waiting & patient))
    if options.max_packets:
        stop = np.minimum(lanes["stop"], lanes["expected"] + np.uint64(options.max_packets))
        lanes = lanes.with_columns(stop=stop)
    return lanes


def _share(lanes: Frame, relayer: int, context: Context) -> Frame:
    """Return a relayer's share of the pending entries (``coordination``)."""
    count, coordination = len(context.options.relayers), context.options.relay.coordination
    if coordination == "none" or count == 1:
        return lanes
    if coordination == "leader":
        return lanes if relayer == 0 else lanes.slice(0, 0)
    length = lanes["stop"] - lanes["expected"]
    begin = lanes["expected"] + length * np.uint64(relayer) // np.uint64(count)
    stop = lanes["expected"] + length * np.uint64(relayer + 1) // np.uint64(count)
    return lanes.with_columns(expected=begin, stop=stop).filter(stop > begin)


def _pieces(lanes: Frame, seen: RelayerView, relayer: int) -> Frame:
    """Split the ranges ``expected`` to ``stop`` - 1 of lanes at the proofs that cover them."""
    proofs = seen.proofs
    lane = lookup_rows(lanes, proofs, LANE)
    rows = np.flatnonzero((lane >= 0) & (proofs["part"] == KeyPart.INDEX))
    lane = lane[rows]
    begin = np.maximum(proofs["first"][rows], lanes["expected"][lane])
    end = np.minimum((proofs["first"] + proofs["count"])[rows], lanes["stop"][lane])
    is_nonempty = end > begin
    rows_of_lanes = lanes.select(LANE).take(lane[is_nonempty])
    call = np.where(rows_of_lanes["substream"] == SEND, SubmissionKind.RECEIVE, SubmissionKind.RECEIPT).astype(np.uint8)
    return rows_of_lanes.with_columns(
        relayer=repeat_value(np.uint32(relayer), len(lane[is_nonempty])),
        call=call,
        begin=begin[is_nonempty],
        end=end[is_nonempty],
        alteration=repeat_value(np.uint8(Alteration.NONE), len(lane[is_nonempty])),
        proof=rows[is_nonempty].astype(np.int64),
    )


def _about_positions(
    state: State, seen: RelayerView, mine: Frame | None, everything: Frame, relayer: int, context: Context
) -> list[Frame]:
    """Return a relayer's timeouts and cleanups beside ``mine`` (X-1, X-2).

    ``mine`` is None for all entries.
    """
    parts = []
    if context.options.limited and (context.options.relay.coordination != "leader" or relayer == 0):
        by_absence = context.options.absence
        parts.append(
            plan_absence_timeouts(state, seen, everything, relayer, context)
            if by_absence
            else plan_timeouts(state, seen, mine, everything, relayer, context)
        )
    if context.options.cleanup == "on" and (context.options.relay.coordination != "leader" or relayer == 0):
        parts.append(plan_cleanups(state, seen, everything, relayer))
    return parts


def _processed(lanes: Frame, seen: RelayerView, relayer: int) -> Frame:
    """Return processed entries that still have a proof, as submissions of a replaying relayer."""
    before = lanes.with_columns(stop=lanes["expected"], expected=np.uint64(0))
    return _pieces(before, seen, relayer)


def _with_fault(
    rows: Frame, lanes: Frame, seen: RelayerView, fault: FaultRule, faults: Interference, context: Context
) -> Frame:
    """Apply a fault to the submissions of the named relayer, or of all."""
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
        # Timeouts and cleanups have no index to shift.
        gap = (altered["call"] <= SubmissionKind.RECEIPT).astype(np.uint64)
        begin = altered["begin"] + gap
        return concat([honest, altered.with_columns(begin=begin, end=np.maximum(altered["end"], begin + gap))])
    relayers = range(len(names)) if relayer is None else [names.index(relayer)]
    replayed = [_processed(lanes, seen, number) for number in relayers]
    return concat([rows, *(part.filter(faults.hit(fault, part["destination"], part["source"])) for part in replayed)])


def plan_reads(rows: Frame, state: State, seen: RelayerView, context: Context) -> tuple[Frame, Frame]:
    """Return the entries that a block reads, and ranges of its zones' own packets.

    The entries are all runs whose proofs a submission uses, as a whole, also of another chain, and those of local
    lanes. The own packets are the answered ones (lane, ``begin``, ``end``).
    """
    used = np.unique(np.concatenate([rows["proof"], carried_proofs(rows, seen.proofs)]))
    runs = seen.proofs.take(used[used >= 0])
    runs = runs.filter(runs["part"] == KeyPart.INDEX)
    proven = runs.with_columns(height=runs["pushed"], begin=runs["first"], end=runs["first"] + runs["count"])
    queues = state.queues.counters
    local = (queues["source"] == queues["destination"]) & np.isin(queues["source"], context.chains)
    local_runs = queues.filter(local & (queues["next_index"] > queues["begin"]))
    local_runs = locate_ranges(local_runs.with_columns(end=local_runs["next_index"]), state.runs)
    is_answered = (rows["call"] == SubmissionKind.RECEIPT) | (rows["call"] == SubmissionKind.TIMEOUT)
    receipts = rows.filter(is_answered & (rows["proof"] >= 0))
    own = reverse_lanes(receipts, SEND)
    begin = np.maximum(receipts["begin"], state.queues.read_counters("begin", own))
    end = np.minimum(receipts["end"], state.queues.read_counters("next_index", own))
    own = own.with_columns(begin=begin, end=end)
    return concat([proven.select(RANGES_SCHEMA.names), local_runs.select(RANGES_SCHEMA.names)]), merge_ranges(own)


def merge_ranges(ranges: Frame) -> Frame:
    """Merge overlapping and adjacent ranges of lanes."""
    ranges = ranges.filter(ranges["end"] > ranges["begin"])
    if len(ranges) < 2:
        return ranges
    ranges = ranges.take(stable_order(*(ranges[name] for name in (*LANE, "begin"))))
    lanes = ranges.select(LANE)
    begin, end = encode_keys((*LANE, "at"), *(lanes.with_columns(at=ranges[name]) for name in ("begin", "end")))
    starts = np.flatnonzero(np.append(True, begin[1:] > np.maximum.accumulate(end)[:-1]))
    return ranges.take(starts).with_columns(end=np.maximum.reduceat(ranges["end"], starts))


Mask = npt.NDArray[np.bool_]

VISIT = ("destination", "relayer", "source")
"""The key of all submissions of a relayer to a zone about a counterparty."""


def select_own_share(rows: Frame, offered: Frame, own: Frame, context: Context) -> Frame:
    """Remove the entries that relayers leave to others (``SUBMISSIONS_SCHEMA``).

    Args:
        rows: The submissions.
        offered: The entries that the proofs cover, by lane and index.
        own: The zones' answered packets.
        context: The metadata of the block.
    """
    relay, names = context.options.relay, context.options.relayers
    users = np.array([name in relay.users for name in names])
    choosy = users | np.array([name in relay.sponsored for name in names])
    if not len(rows) or not choosy[rows["relayer"]].any():
        return rows
    by_entry = rows["call"] < SubmissionKind.CLEANUP
    chosen = choosy[rows["relayer"]] & by_entry
    rest = rows.filter(~choosy[rows["relayer"]] | ~(by_entry | users[rows["relayer"]]))
    mine = rows.filter(chosen)
    row, index = expand_ranges(mine["begin"], mine["end"])
    entries = mine.take(row).with_columns(index=index)
    is_carried = _is_carried(entries, offered, own, context)
    if context.options.order == "ordered":
        is_carried = _before_the_first_gap(entries, is_carried)
    at, begin, end = stretches(index[is_carried], row[is_carried])
    mine = mine.take(row[is_carried][at]).with_columns(begin=begin, end=end)
    rows = concat([rest, mine])
    return rows.take(stable_order(*(rows[name] for name in (*VISIT, "call", "begin"))))


def _is_carried(entries: Frame, offered: Frame, own: Frame, context: Context) -> Mask:
    """Return a mask of the entries of a relayer's programs, or old enough for a sponsored one."""
    relay = context.options.relay
    packets = reverse_lanes(entries, SEND).with_columns(index=entries["index"])
    received, timed_out = (entries["call"] == kind for kind in (SubmissionKind.RECEIVE, SubmissionKind.TIMEOUT))
    sender = _first_of("sender", (entries, _of_programs(offered), received), (packets, _of_programs(own), ~received))
    pushed = _first_of("sent_height", (entries, offered, ~timed_out), (packets, own, timed_out))
    is_carried = np.zeros(len(entries), dtype=bool)
    for number, name in enumerate(context.options.relayers):
        mine = entries["relayer"] == number
        if name in relay.users:
            is_carried |= mine & sender[0] & np.isin(sender[1], context.zones.users[name])
        elif name in relay.sponsored:
            latest = context.height - relay.sponsored[name].min_age
            is_carried |= mine & pushed[0] & (pushed[1] < np.uint64(max(latest, 0)))
    return is_carried


def _of_programs(table: Frame) -> Frame:
    """Select entries that programs sent, without final packets."""
    return table.filter(~is_final(table))


def _first_of(name: str, *tables: tuple[Frame, Frame, Mask]) -> tuple[Mask, Any]:
    """Return a mask of known entries, and a column of theirs, 0 for unknown ones.

    ``tables``: entries, a table of entries, and a mask of the entries to look up.
    """
    known, values = np.zeros(len(tables[0][0]), dtype=bool), np.zeros(len(tables[0][0]), dtype=np.uint64)
    for entries, table, of in tables:
        at = np.flatnonzero(of)
        found = lookup_rows(table, entries.take(at), LANE_COLUMNS, ordered=False)
        at, found = at[found >= 0], found[found >= 0]
        known[at], values[at] = True, table[name][found]
    return known, values


def _before_the_first_gap(entries: Frame, is_carried: Mask) -> Mask:
    """Return a mask of the entries before the first one of their queue that is left to others.

    A timeout comes after all receipts, so it is left too where receipts are.
    """
    groups = group_rows(*(entries[name] for name in (*VISIT, "call")))
    left = np.add.accumulate(~is_carried)
    before = left - groups.spread(left[groups.starts] - ~is_carried[groups.starts])
    is_carried = is_carried & (before == 0)
    timed_out = entries["call"] == SubmissionKind.TIMEOUT
    if timed_out.any():
        receipts = entries.filter((entries["call"] == SubmissionKind.RECEIPT) & ~is_carried)
        if len(receipts):
            first = receipts.take(group_rows(*(receipts[name] for name in VISIT)).starts)
            is_carried &= ~(timed_out & (lookup_rows(first, entries, VISIT) >= 0))
    return is_carried
