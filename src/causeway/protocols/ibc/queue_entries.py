"""Entries of queues: leaf hashes, pushes, and entries of unordered queues.

The hash of a leaf is SHA256(00 || uvarint(len key) || key || 20 || SHA256(value)), as in ICS-23's Tendermint spec (IBC
reference 2.3, 2.4, 2.6).

Entries of unordered queues (IBC reference X-6) come and go in any order. Neither head nor tail tells which are missing,
so each offered entry is compared with the entries of the receiving queue.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.hashing import DIGEST_BYTES, Digests, HashFunction, binary_rows, digest_chunks, digest_rows, sha256
from causeway_proofs.merkle import LEAF_PREFIX
from causeway_proofs.order import U64, Groups, Rows, group_rows, stable_order
from causeway_proofs.varints import uvarint

from causeway.core.frame import Frame, concat, empty_frame, repeat_value
from causeway.core.joins import expand_ranges, lookup_rows, merge_ranges
from causeway.protocols.contract import UINT64, table_schema
from causeway.protocols.ibc.context import Context, ZoneNetwork
from causeway.protocols.ibc.disconnection import is_final
from causeway.protocols.ibc.expiry import height_limits, is_past_limits, time_limits
from causeway.protocols.ibc.keys import HEAD_KEY, INDEX_BYTES, TAIL_KEY, KeyPart
from causeway.protocols.ibc.leaves import LEAVES_SCHEMA, Leaves, find_row, lane_keys
from causeway.protocols.ibc.options import DISCONNECT_TYPE
from causeway.protocols.ibc.packets import answer_column, call_column, packet_column, receipt_column
from causeway.protocols.ibc.progress import is_processed
from causeway.protocols.ibc.relayer_view import Alteration, RelayerView, SubmissionKind
from causeway.protocols.ibc.state import RECEIPT, RECEIPTS_SCHEMA, RUNS_SCHEMA, SEND, State, reverse_lanes, slot_entries
from causeway.protocols.shared.messages import LANE, LANE_COLUMNS, NO_QUEUE, OUTBOUND_SCHEMA

__all__ = [
    "ENTRIES_SCHEMA",
    "HEAD_KEY",
    "TAIL_KEY",
    "end_leaves",
    "entry_digests",
    "entry_leaf",
    "entry_values",
    "index_leaves",
    "position_hashes",
    "position_leaves",
    "push",
    "type_codes",
    "update_ready",
]


def type_codes(messages: Frame, zones: ZoneNetwork) -> npt.NDArray[np.int32]:
    """Return the packet type of each request, int32, as its row in ``zones.types``.

    It is the request's method, if that is a declared type, else ``call``.

    Args:
        messages: The requests (message columns).
        zones: The network.
    """
    method = messages["method"]
    known = {name: code for code, name in enumerate(zones.types)}
    codes = [known.get(name, 0) for name in method.dictionary.to_pylist()]
    found: npt.NDArray[np.int32] = np.array(codes, dtype=np.int32)[method.indices.to_numpy(zero_copy_only=False)]
    return found


def entry_values(messages: Frame, substream: int, zones: ZoneNetwork, tick_ns: int) -> pa.BinaryArray:
    """Return V_send (``substream`` SEND) or V_receipt of each message.

    Args:
        messages: Message columns; packets with limits also have ``max_height`` and ``sent_tick``.
        substream: SEND or RECEIPT.
        zones: The network.
        tick_ns: The length of a tick in nanoseconds.
    """
    final = is_final(messages)
    if substream == RECEIPT:
        return receipt_column(messages["code"], _emptied(answer_column(messages), final))
    codes = np.where(final, np.int32(len(zones.types)), type_codes(messages, zones))
    types = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([*zones.types, DISCONNECT_TYPE], pa.string()))
    data = _emptied(call_column(messages), final)
    if not zones.options.limited:
        return packet_column(types, data)
    return packet_column(
        types, data, messages["max_height"], time_limits(messages["sent_tick"], tick_ns, zones.options)
    )


def _emptied(values: pa.BinaryArray, chosen: npt.NDArray[np.bool_]) -> pa.BinaryArray:
    return pc.if_else(pa.array(chosen), pa.scalar(b"", pa.binary()), values) if chosen.any() else values


def entry_digests(messages: Frame, zones: ZoneNetwork, tick_ns: int) -> tuple[Digests, Digests]:
    """Return the hash of each message's value, and its leaf hash (``index_leaves``).

    Both have shape (n, 32).

    Args:
        messages: Message columns with lane and ``index`` (see ``entry_values``).
        zones: The network.
        tick_ns: The length of a tick in nanoseconds.
    """
    length = len(messages)
    substream = messages["substream"]
    values, leaves = (np.empty((length, DIGEST_BYTES), dtype=np.uint8) for _ in range(2))
    for kind in (RECEIPT, SEND):
        rows = np.flatnonzero(substream == kind)
        if len(rows) == 0:
            continue
        mine = messages if len(rows) == length else messages.take(rows)
        hashed = _hashed_values(mine, kind, zones, tick_ns)
        found = index_leaves(mine["destination"], mine["index"], kind, hashed, zones)
        if len(rows) == length:
            return hashed, found
        values[rows], leaves[rows] = hashed, found
    return values, leaves


def _hashed_values(messages: Frame, kind: int, zones: ZoneNetwork, tick_ns: int) -> Digests:
    def values(start: int, stop: int) -> pa.BinaryArray:
        return entry_values(messages.slice(start, stop), kind, zones, tick_ns)

    return digest_chunks(HashFunction.SHA256, len(messages), values)


def index_leaves(
    destination: npt.NDArray[np.uint32], index: U64, kind: int, hashed: Digests, zones: ZoneNetwork
) -> Digests:
    """Return the leaf hashes of entries, shape (n, 32).

    Args:
        destination: The position of the zone that each entry's queue is for.
        index: The index of each entry.
        kind: The queues' substream, RECEIPT or SEND.
        hashed: The hashes of the values, shape (n, 32).
        zones: The network.
    """
    names = zones.index_prefixes[kind]

    def preimages(start: int, stop: int) -> pa.BinaryArray:
        tails = np.empty((stop - start, INDEX_BYTES + 1 + DIGEST_BYTES), dtype=np.uint8)
        tails[:, :INDEX_BYTES] = index[start:stop].astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES)
        tails[:, INDEX_BYTES] = DIGEST_BYTES
        tails[:, INDEX_BYTES + 1 :] = hashed[start:stop]
        prefixes = names.take(pa.array(destination[start:stop]))
        return pc.binary_join_element_wise(prefixes, binary_rows(tails), pa.scalar(b"", pa.binary()))

    return digest_chunks(HashFunction.SHA256, len(index), preimages)


def position_leaves(queues: Frame, part: bytes, positions: U64, zones: ZoneNetwork) -> Digests:
    """Return the leaf hash of the head or tail of each lane, shape (n, 32).

    Args:
        queues: The lanes.
        part: ``HEAD_KEY`` or ``TAIL_KEY``.
        positions: The heads or tails.
        zones: The network.
    """
    return end_leaves(queues, part, position_hashes(positions), zones)


def position_hashes(positions: U64) -> Digests:
    """Return the hashes of heads and tails as values.

    Args:
        positions: Heads or tails, shape (n,), uint64.

    Returns:
        Digests, shape (n, 32), uint8.
    """
    return digest_rows(HashFunction.SHA256, positions.astype(">u8").view(np.uint8).reshape(-1, INDEX_BYTES))


def end_leaves(queues: Frame, part: bytes, hashed: Digests, zones: ZoneNetwork) -> Digests:
    """Return the leaf hash of the head or tail of each lane, shape (n, 32).

    Args:
        queues: The lanes.
        part: ``HEAD_KEY`` or ``TAIL_KEY``.
        hashed: The hashes of the values, shape (n, 32).
        zones: The network.
    """
    zone_count = len(zones.names)
    names = zones.end_prefixes[part]
    choice = queues["substream"].astype(np.int64) * zone_count + queues["destination"].astype(np.int64)
    return digest_chunks(
        HashFunction.SHA256,
        len(queues),
        lambda start, stop: pc.binary_join_element_wise(
            names.take(pa.array(choice[start:stop])), binary_rows(hashed[start:stop]), pa.scalar(b"", pa.binary())
        ),
    )


def entry_leaf(key: bytes, value: bytes) -> bytes:
    """Return the leaf hash of one entry of a store, 32 bytes.

    Args:
        key: The key.
        value: The value.
    """
    head = LEAF_PREFIX + uvarint(len(key)) + key + bytes([DIGEST_BYTES])
    return sha256(head + sha256(value))


def unsettled_ranges(state: State, lanes: Frame, seen: RelayerView, context: Context) -> Frame:
    """Return the pending ranges ``begin`` to ``end`` - 1 of offered queues.

    Each range has the row of its ``proof``; ``lanes`` are the queues.

    Pending are packets in time without a receipt or a slot, and receipts of pending packets.
    """
    proofs = seen.proofs
    is_offered = (proofs["part"] == KeyPart.INDEX) & (lookup_rows(lanes, proofs, LANE) >= 0)
    if context.options.absence:
        is_offered &= (proofs["substream"] == RECEIPT) | ~is_past_limits(proofs, context)
    rows = np.flatnonzero(is_offered)
    runs = proofs.take(rows)
    spread, index = expand_ranges(runs["first"], runs["first"] + runs["count"])
    offered = runs.select(LANE).take(spread)
    sent = offered["substream"] == SEND
    own = reverse_lanes(offered, np.where(sent, RECEIPT, SEND))
    wanted = ~is_processed(state, own.with_columns(index=index), sent)
    spread, index = spread[wanted], index[wanted]
    at, begin, end = merge_ranges(index, spread)
    run = spread[at]
    found = runs.select([*LANE, "pushed"]).take(run)
    return found.with_columns(begin=begin, end=end, proof=rows[run].astype(np.int64))


def select_missing(missing: Frame, seen: RelayerView, relayer: int, context: Context) -> Frame:
    """Return a relayer's submissions of ``missing``: batches, limits, shares (``RelayOptions``)."""
    options, count = context.options.relay, len(context.options.relayers)
    size = (missing["end"] - missing["begin"]).astype(np.int64)
    groups, total = _worth(missing, context)
    before = np.cumsum(size) - size
    before -= groups.spread(before[groups.starts])
    if options.max_packets:
        total = np.minimum(total, options.max_packets)
    first, stop = np.zeros_like(total), total
    if options.coordination == "partition":
        first, stop = total * relayer // count, total * (relayer + 1) // count
    elif options.coordination == "leader" and relayer:
        stop = first
    begin = np.clip(groups.spread(first) - before, 0, size).astype(np.uint64)
    end = np.clip(groups.spread(stop) - before, 0, size).astype(np.uint64)
    is_selected = end > begin
    rows = missing.filter(is_selected)
    length = len(rows)
    call = np.where(rows["substream"] == SEND, SubmissionKind.RECEIVE, SubmissionKind.RECEIPT).astype(np.uint8)
    return rows.select(LANE).with_columns(
        relayer=repeat_value(np.uint32(relayer), length),
        call=call,
        begin=rows["begin"] + begin[is_selected],
        end=rows["begin"] + end[is_selected],
        alteration=repeat_value(np.uint8(Alteration.NONE), length),
        proof=rows["proof"],
    )


def filter_worthwhile(missing: Frame, context: Context) -> Frame:
    """Select the missing entries of queues due for service (``min_batch``, ``max_wait``)."""
    groups, total = _worth(missing, context)
    return missing.filter(groups.spread(total) > 0)


def _worth(missing: Frame, context: Context) -> tuple[Groups, Rows]:
    """Return the rows of each queue, and the number of its missing entries.

    The number is 0 for entries that can wait.
    """
    options = context.options.relay
    size = (missing["end"] - missing["begin"]).astype(np.int64)
    groups = group_rows(*(missing[name] for name in LANE))
    total = np.add.reduceat(size, groups.starts) if len(size) else size
    waited = np.uint64(context.height - 1) - missing["pushed"][groups.starts]
    return groups, np.where((total >= options.min_batch) | (waited >= np.uint64(options.max_wait)), total, 0)


def split_present_runs(runs: Frame, leaves: Leaves) -> Frame:
    """Split runs of entries (``first``, ``count``) at removed entries."""
    lanes, ends = runs.select(LANE), runs["first"] + runs["count"]
    present = leaves.ranks(lanes, ends) - leaves.ranks(lanes, runs["first"])
    if np.array_equal(present, runs["count"].astype(np.int64)):
        return runs
    spread, index = expand_ranges(runs["first"], ends)
    is_present = leaves.holds(lanes.take(spread), index)
    spread, index = spread[is_present], index[is_present]
    at, first, stop = merge_ranges(index, spread)
    return runs.take(spread[at]).with_columns(first=first, count=stop - first)


def first_missing(state: State, before: State) -> U64:
    """Return ``ready`` of each queue.

    For receipt queues it is the first index from the head on without an entry.

    Args:
        state: The state.
        before: The state at the start of the block; only changed queues are searched.
    """
    counters, numbers = state.queues.counters, lane_keys(state.queues.counters)
    receipts = (counters["substream"] == RECEIPT) & (counters["source"] != counters["destination"])
    first: U64 = np.maximum(counters["ready"], counters["begin"])
    found: U64 = np.where(receipts, first, counters["next_index"])
    for lane in state.leaves.changed(before.leaves):
        row, entries = find_row(numbers, lane), state.leaves.get(lane)
        if receipts[row] and entries is not None:
            found[row] = entries.first_missing(int(found[row]))
    return found


ENTRIES_SCHEMA = table_schema(*OUTBOUND_SCHEMA, sent_height=UINT64, max_height=UINT64)
"""An entry of a queue of ``source`` for ``destination``, or a local message.

``substream`` is 0 for receipts and 1 for packets.

``max_height``: the destination's height after which a packet has expired, ``NO_LIMIT`` for none. ``queue_index``
repeats the index; it is ``NO_QUEUE`` for a receipt of the protocol itself and for a forged packet.
"""


def push(state: State, sent: Frame, receipts: Frame, context: Context) -> tuple[State, Frame]:
    """Push packets and local messages, and write receipts at their existing indices.

    Args:
        state: The state.
        sent: Message columns with lane and ``of_program`` (produced by a program), in push order.
        receipts: Likewise, with ``index``.
        context: The metadata of the block.

    Returns:
        The state with the new queues, and the outbound entries (``ENTRIES_SCHEMA``).

    Raises:
        IndexOverflow: A queue would reach ``MAX_INDEX``.
    """
    index, queues = state.queues.number(sent)
    sent = sent.with_columns(index=index)
    outbound = concat([sent, receipts.select(sent.names)])
    if len(outbound) == 0:
        return state, empty_frame(ENTRIES_SCHEMA)
    outbound = outbound.with_columns(
        queue_index=np.where(outbound["of_program"], outbound["index"], np.uint64(NO_QUEUE)),
        sent_tick=repeat_value(np.uint64(context.tick), len(outbound)),
        sent_height=repeat_value(np.uint64(context.height), len(outbound)),
        max_height=height_limits(outbound, state.connections, context.options),
    )
    order = stable_order(*(outbound[name] for name in ("destination", "source", "substream", "index")))
    outbound = outbound.take(order).select(ENTRIES_SCHEMA.names)
    leaves, written = _leaves(outbound, context)
    queues = queues.add_segments(_runs(outbound, context))
    receipts = state.receipts
    if len(written):
        receipts = concat([receipts, written])
        receipts = receipts.take(stable_order(*(receipts[name] for name in LANE_COLUMNS)))
    return replace(state, queues=queues, leaves=state.leaves.merge(leaves), receipts=receipts), outbound


def _leaves(outbound: Frame, context: Context) -> tuple[Frame, Frame]:
    """Return the leaves of stored entries, and the receipts to keep.

    Their schemas are ``LEAVES_SCHEMA`` and ``RECEIPTS_SCHEMA``.
    """
    entries = outbound.filter(outbound["source"] != outbound["destination"])
    if len(entries) == 0:
        return empty_frame(LEAVES_SCHEMA), empty_frame(RECEIPTS_SCHEMA)
    values, digests = entry_digests(entries, context.zones, context.tick_ns)
    leaves = entries.with_columns(digest=digests).select(LEAVES_SCHEMA.names)
    if not context.options.absence:
        return leaves, empty_frame(RECEIPTS_SCHEMA)
    receipts = entries.with_columns(value=values).select(RECEIPTS_SCHEMA.names)
    return leaves, receipts.filter(receipts["substream"] == RECEIPT)


def _runs(outbound: Frame, context: Context) -> Frame:
    """Return one run (``RUNS_SCHEMA``) for each new range of indices of a lane."""
    at, first, end = merge_ranges(outbound["index"], *(outbound[name] for name in LANE))
    runs = outbound.select(LANE).take(at)
    return runs.with_columns(
        height=np.uint64(context.height),
        tick=np.uint64(context.tick),
        first=first,
        count=end - first,
        max_height=outbound["max_height"][at],
    ).select(RUNS_SCHEMA.names)


def update_ready(state: State, before: State, ordered: bool) -> State:
    """Update ``ready`` of each queue.

    It is the end of the written entries, in unordered queues of the first gapless range.

    Args:
        state: The state.
        before: The state at the start of the block.
        ordered: True for ordered queues.
    """
    queues = state.queues
    ready = queues.counters["next_index"] if ordered else first_missing(state, before)
    unwritten = slot_entries(state)
    if len(unwritten):
        ready = ready.copy()
        first = unwritten.take(group_rows(*(unwritten[name] for name in LANE)).starts)  # the lowest of each lane
        rows = queues.positions(first)
        ready[rows] = np.minimum(ready[rows], first["index"])
    return replace(state, queues=queues.with_counters(ready=ready))
