"""Proofs of messages: operators prove pending messages to their destinations.

In each block operators move to the latest final storage and compare both ends of every channel. They prove missing
messages: a limited number of nonces a channel, of a limited number of channels.

Reference: XDM, section 3.10; X-5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from causeway_proofs.order import U64, Rows, distinct_with_codes, group_rows, stable_order
from causeway_proofs.substrate import prove_storage

from causeway.core.frame import Frame, concat, empty_frame
from causeway.core.joins import lookup_rows
from causeway.protocols.contract import View
from causeway.protocols.shared.messages import LANE
from causeway.protocols.xdm.chains import CONSENSUS_POSITION
from causeway.protocols.xdm.context import Context
from causeway.protocols.xdm.events import ChainEvent, message_events
from causeway.protocols.xdm.lane_tables import LaneTable
from causeway.protocols.xdm.state import ChannelState, State, channel_rows, is_response, lane_channels, next_nonces
from causeway.protocols.xdm.storage import ChainTries
from causeway.protocols.xdm.tables import BASES_SCHEMA, ENVELOPES_SCHEMA, NODES_SCHEMA, RELAYING_SCHEMA
from causeway.protocols.xdm.wire import Tag, message_keys, message_tags

NEVER = 2**63
"""Value of ``since`` for a lane without further proofs."""

ABANDONED = "RequestAbandoned"
"""Event name of an open or close request that operators abandon."""


def abandoned_lanes(relaying: Frame) -> Frame:
    """Return the lanes (``LANE``) of abandoned requests (``RELAYING_SCHEMA``)."""
    return relaying.filter(relaying["since"] >= np.uint64(NEVER)).select(LANE)


@dataclass(frozen=True)
class ProvenMessages:
    """The proofs of a block.

    Attributes:
        tables: ``envelopes``, ``nodes``, ``bases`` and ``relaying``.
        more: More messages are provable already.
        again: Number of the next block with a resubmission, or None.
        abandoned: Abandoned requests.
    """

    tables: dict[str, Frame]
    more: bool
    again: int | None = None
    abandoned: Sequence[ChainEvent] = ()


def prove(state: State, tries: ChainTries, view: View, context: Context) -> ProvenMessages:
    """Prove messages of a block's chains to other chains.

    Args:
        state: State after the block's messages.
        tries: Storage of the chains.
        view: Tables that chains published at the previous height.
        context: Context of the block.
    """
    empty = {
        "envelopes": empty_frame(ENVELOPES_SCHEMA),
        "nodes": empty_frame(NODES_SCHEMA),
        "bases": empty_frame(BASES_SCHEMA),
    }
    anchor = view.tables["anchor"]
    if len(anchor) == 0:
        return ProvenMessages(empty, more=False)
    wanted, relaying, more, resubmission, abandoned = _select_messages(state, tries, view, context)
    if len(wanted) == 0:
        return ProvenMessages({**empty, "relaying": relaying}, more, resubmission, abandoned)
    starts = group_rows(wanted["source"], wanted["destination"]).starts
    pairs = wanted.select(["source", "destination"]).take(starts)
    chains = wanted["source"]
    numbers = np.array([tries.provable.get(chain, 0) for chain in range(int(chains.max()) + 1)], dtype=np.int64)
    proofs = prove_storage(tries.tries, numbers[chains], message_keys(wanted))
    pair_of = lookup_rows(pairs, wanted, ("source", "destination"))
    node_pairs = np.repeat(pair_of, np.diff(proofs.offsets))
    node_keys = node_pairs.astype(np.uint64) << np.uint64(32) | proofs.members.astype(np.uint64)
    unique_keys, local = distinct_with_codes(node_keys)
    owner = (unique_keys >> np.uint64(32)).astype(np.int64)
    groups = group_rows(owner)
    number = groups.ranks().astype(np.uint32)
    nodes = pairs.take(owner).with_columns(
        number=number,
        node=proofs.nodes.take(pa.array((unique_keys & np.uint64(2**32 - 1)).astype(np.int64))).cast(pa.binary()),
    )
    members = number[local].astype("<u4")
    packed = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(wanted), [None, pa.py_buffer(proofs.offsets * 4), pa.py_buffer(members.tobytes())]
    )
    envelopes = wanted.select([*LANE, "index"]).with_columns(tag=wanted["tag"], members=packed.cast(pa.binary()))
    return ProvenMessages(
        {
            "envelopes": envelopes.select(ENVELOPES_SCHEMA.names),
            "nodes": nodes.select(NODES_SCHEMA.names),
            "bases": bases_between(pairs, view),
            "relaying": relaying,
        },
        more,
        resubmission,
        abandoned,
    )


def _local_lanes(lanes: Frame, context: Context) -> Rows:
    """Return the lanes from chains of this block to chains of this lake."""
    local = np.isin(lanes["source"], context.chains)
    return np.flatnonzero(local & ~np.isin(lanes["destination"], context.network.external))


def _select_messages(
    state: State, tries: ChainTries, view: View, context: Context
) -> tuple[Frame, Frame, bool, int | None, list[ChainEvent]]:
    """Select the messages to prove (lane, ``index``, ``tag``).

    Returns the messages, the new relay state, the flag and block of further proofs, and the abandoned requests.
    """
    options = context.options
    provable = np.array([tries.number.get(chain, -1) for chain in range(len(context.network.names))], dtype=np.int64)
    tables, numbers, waiting_lanes = {}, {}, []
    for name in ("outbox", "responses"):
        table = tables[name] = LaneTable.of(state[name])
        own = _local_lanes(table.lanes, context)
        heads = table.first_from(own, np.zeros(len(own), dtype=np.uint64))
        own, heads = own[heads >= 0], heads[heads >= 0]
        sent = table.column_at("sent", heads).astype(np.int64)
        numbers[name] = own[sent <= provable[table.lanes["source"][own]]]
        waiting_lanes.append(table.lanes.take(numbers[name]))
    every = concat(waiting_lanes)
    order = stable_order(*(every[key] for key in LANE))
    every = every.take(order)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    parts = np.split(position, [len(waiting_lanes[0])])
    of_table = {name: (part, numbers[name]) for name, part in zip(tables, parts, strict=True)}
    waits = _ProvableLanes(every, tables, of_table, provable[every["source"]])
    lanes = waits.lanes
    known = lookup_rows(state["relaying"], lanes, LANE)
    proved, before, since, until = _relay_state(state["relaying"], known)
    channels, responses = view.tables["channels"], is_response(lanes["substream"])
    peers = channel_rows(channels, lanes["destination"], lanes["source"], lane_channels(lanes["substream"]))
    expected = next_nonces(channels, peers, responses)
    # Each progress of the peer restarts the delay before a resubmission.
    number = np.uint64(context.number)
    unchanged = (known >= 0) & (expected == before) & (proved > expected)
    since = np.where(unchanged, since, number)
    resubmit = unchanged & (since + np.uint64(options.resubmit_after) <= number)
    # Both ends requested at once: the next message opens an existing channel or closes a closed one. The peer can
    # never answer it.
    stuck = np.zeros(len(resubmit), dtype=bool)
    if len(channels) and resubmit.any():
        next_counts, next_messages = waits.between(expected, np.where(resubmit, expected + np.uint64(1), expected))
        if len(next_messages):
            request = (next_counts > 0) & (peers >= 0) & ~responses
            closed = channels["state"][peers] == ChannelState.CLOSED
            tag = next_messages["tag"][np.maximum(next_counts.cumsum() - 1, 0)]
            stuck = resubmit & request & ((tag == Tag.CHANNEL_OPEN) | ((tag == Tag.CHANNEL_CLOSE) & closed))
    since = np.where(stuck, np.uint64(NEVER), since)
    resubmit &= ~stuck
    # Resubmit old proofs from the peer's expected nonce; newer ones may still be in flight.
    first = np.where(resubmit, expected, np.maximum(proved, expected))
    stop = first + np.uint64(options.max_future_nonces + 1)
    # The peer does not store messages beyond its window.
    stop = np.minimum(stop, expected + np.uint64(2 * (options.max_future_nonces + 1)))
    stop = np.where(resubmit, np.minimum(stop, until), stop)
    counts, messages = waits.between(first, stop)
    pending = counts > 0
    # After a pause the provable block may be too old for the destination.
    best, final = (int(view.tables["anchor"][name][0]) for name in ("best", "final"))
    under = np.where(lanes["destination"] == CONSENSUS_POSITION, best, final)
    now = best + 1 if context.network.follows else context.number
    fresh = np.asarray(now - under < context.options.mmr_roots)
    stale, pending, resubmit = pending & ~fresh, pending & fresh, resubmit & fresh
    chosen = pending & _select_lanes(lanes, pending, context)
    selected = messages.filter(chosen.repeat(counts))
    resubmit &= chosen
    since = np.where(resubmit, number, since)
    proved = proved.copy()
    proved[chosen] = np.maximum(proved[chosen], selected["index"][counts[chosen].cumsum() - 1] + np.uint64(1))
    # The peer has every message below its expected nonce.
    known_there = np.maximum(proved, expected)
    until = np.where(unchanged & ~resubmit, until, known_there)
    remembered = lanes.with_columns(proved=known_there, expected=expected, since=since, until=until)
    relaying = remembered.filter(known_there > 0)
    due = since[(proved > expected) & (since < NEVER)] + np.uint64(options.resubmit_after)
    more = bool(stale.any() or (pending & ~chosen).any() or len(selected))
    after = int(due.min()) if len(due) else None
    abandoned = message_events(lanes.with_columns(index=expected).filter(stuck), ABANDONED) if stuck.any() else []
    return selected, relaying.select(RELAYING_SCHEMA.names), more, after, abandoned


@dataclass(frozen=True)
class _ProvableLanes:
    """Lanes with provable messages.

    ``tables`` are the message tables, ``of_table`` the lanes of each with their numbers in it. ``latest`` is the last
    provable block of each lane's chain.
    """

    lanes: Frame
    tables: Mapping[str, LaneTable]
    of_table: Mapping[str, tuple[Rows, Rows]]
    latest: Rows

    def between(self, first: U64, stop: U64) -> tuple[Rows, Frame]:
        """Return the provable messages in an index range: count per lane, and rows lane by lane."""
        counts, parts, places = np.zeros(len(self.lanes), dtype=np.int64), [], []
        for name, (own, numbers) in self.of_table.items():
            table = self.tables[name]
            position, rows = table.window(numbers, first[own], stop[own])
            position = own[position]
            provable = table.column_at("sent", rows).astype(np.int64) <= self.latest[position]
            position, rows = position[provable], rows[provable]
            found = table.rows_at(rows)
            parts.append(found.select([*LANE, "index"]).with_columns(tag=message_tags(name, found)))
            places.append(position)
            counts += np.bincount(position, minlength=len(counts))
        return counts, concat(parts).take(np.argsort(np.concatenate(places), kind="stable"))


def _relay_state(relaying: Frame, rows: Rows) -> tuple[U64, U64, U64, U64]:
    """Return four columns of ``relaying`` for rows, 0 for row -1.

    The columns are ``proved``, ``expected``, ``since`` and ``until``.
    """
    if len(relaying) == 0:
        zero = np.zeros(len(rows), dtype=np.uint64)
        return zero, zero, zero, zero
    names = ("proved", "expected", "since", "until")
    found = [np.where(rows >= 0, relaying[name][rows], np.uint64(0)) for name in names]
    return found[0], found[1], found[2], found[3]


def _select_lanes(lanes: Frame, pending: np.ndarray, context: Context) -> np.ndarray:
    """Select the lanes to prove in this block, round-robin over channels.

    The first channel of each source and destination advances by the limit in every block.
    """
    channel = lane_channels(lanes["substream"])
    rows = np.flatnonzero(pending)
    limit = min(context.options.channels_per_block, len(rows))
    pair = lanes.take(rows)
    groups = group_rows(pair["source"], pair["destination"])
    keys = group_rows(pair["source"], pair["destination"], channel[rows])
    position = np.zeros(len(rows), dtype=np.int64)
    position[keys.starts] = 1
    position = np.cumsum(position) - 1
    base = groups.spread(position[groups.starts]) if len(rows) else position
    count = (
        groups.spread(position[groups.starts + groups.counts - 1] - position[groups.starts] + 1)
        if len(rows)
        else position
    )
    most = np.maximum(count, 1)
    rank = (position - base - context.number % most * (limit % most)) % most  # a product of row counts
    chosen = np.zeros(len(pending), dtype=bool)
    chosen[rows[rank < limit]] = True
    return chosen


def bases_between(pairs: Frame, view: View) -> Frame:
    """Return the common part of the proofs of each pair of chains (``BASES_SCHEMA``)."""
    anchor, anchored = view.tables["anchor"], view.tables["anchored"]
    to_consensus = pairs["destination"] == CONSENSUS_POSITION
    domain = lookup_rows(anchored, Frame({"domain": pairs["source"]}, len(pairs)), ["domain"])
    known = anchored.take(domain[domain >= 0])
    under = np.repeat(anchor["number"][:1], len(pairs))  # a local consensus chain has one anchor
    under[domain >= 0] = known["block"]
    rows = anchor.take(lookup_rows(anchor, Frame({"number": under}, len(pairs)), ["number"]))
    proofs = dict(zip(known["domain"].tolist(), known["domain_proof"].to_pylist(), strict=True))

    def chosen(of_best: str, of_final: str) -> U64:
        return np.asarray(np.where(to_consensus, rows[of_best], rows[of_final]), dtype=np.uint64)

    items = pc.if_else(pa.array(to_consensus), rows["best_items"], rows["final_items"])
    return pairs.with_columns(
        block=chosen("best", "final"),
        block_hash=np.where(to_consensus[:, None], rows["best_hash"], rows["block_hash"]),
        leaf=rows["leaf"],
        leaf_index=rows["leaf_index"],
        leaf_count=chosen("best_leaves", "final_leaves"),
        items=items,
        domain_proof=pa.array([proofs.get(chain, b"") for chain in pairs["source"].tolist()], pa.binary()),
    ).select(BASES_SCHEMA.names)


def next_provable_tick(state: State, view: View, context: Context) -> int | None:
    """Return the next tick with a newly provable or resubmitted message, or None.

    Every chain makes a block in every executed tick, so a chain's block numbers equal those of the consensus chain.
    Replaced receipts (``pruned``) follow later. A domain with an ``unbooked`` receipt never becomes provable.
    """
    if context.network.follows:
        return None  # proofs need further consensus headers
    pruned, unbooked = view.tables["pruned"], set(view.tables["unbooked"]["domain"].tolist())
    history = state["history"]
    # Per chain, the first block with an unproved message.
    unproved_first = np.full(len(context.network.names), NEVER, dtype=np.uint64)
    relaying = state["relaying"]
    for name in ("outbox", "responses"):
        table = LaneTable.of(state[name])
        lanes, own = table.lanes, _local_lanes(table.lanes, context)
        known = lookup_rows(relaying, lanes.take(own), LANE)
        rows = table.first_from(own, _relay_state(relaying, known)[0])
        own, rows = own[rows >= 0], rows[rows >= 0]
        np.minimum.at(unproved_first, lanes["source"][own], table.column_at("sent", rows))
    due = []
    depth, period = context.options.archiving_depth, context.options.challenge_period
    for chain in np.flatnonzero(unproved_first < NEVER).tolist():
        if chain in unbooked:
            continue
        first, end = np.searchsorted(history["chain"], (chain, chain + 1))
        numbers, step = history["number"][first:end], int(unproved_first[chain])
        if chain != CONSENSUS_POSITION:
            replaced = (pruned["domain"] == chain) & (pruned["first"] <= step) & (pruned["last"] >= step)
            accepted = int(pruned["found"][replaced].max()) if replaced.any() else _after(numbers, step)
            if accepted is not None and context.number < accepted + period:
                due.append(accepted + period)
                continue
            confirmed = None if accepted is None else _after(numbers, accepted + period - 1)
        else:
            confirmed = step
        final = None if confirmed is None else _after(numbers, confirmed)
        due.append(context.number + 1 if final is None else max(context.number + 1, final + depth))
    return min(due) - 1 if due else None


def _after(numbers: U64, number: int) -> int | None:
    """Return the first of ascending block numbers above a number, or None."""
    at = int(np.searchsorted(numbers, number, side="right"))
    return int(numbers[at]) if at < len(numbers) else None
