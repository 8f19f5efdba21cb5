"""What operators prove of their chain to others in a block (XDM reference 3.10, X-5).

Each block they move the storage that they prove under on to what is final, look at both sides of every channel, and
prove what the other side has not received: at most so many nonces of a channel, of at most so many channels.
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
"""In ``since``: nothing of the lane is proved again."""

ABANDONED = "RequestAbandoned"
"""What a notice says of a request to open or to close that operators give up."""


def provable_number(chain: int, view: View) -> int | None:
    """Return the number of the block of a chain under which operators prove now, None for none."""
    anchor, anchored = view.tables["anchor"], view.tables["anchored"]
    if len(anchor) == 0:
        return None
    if chain == CONSENSUS_POSITION:
        return int(anchor["number"][0])
    rows = np.flatnonzero(anchored["domain"] == chain)
    return int(anchored["number"][rows[0]]) if len(rows) else None


def abandoned_lanes(relaying: Frame) -> Frame:
    """Return the lanes (``LANE``) of requests that operators have given up (``RELAYING_SCHEMA``)."""
    return relaying.filter(relaying["since"] >= np.uint64(NEVER)).select(LANE)


@dataclass(frozen=True)
class ProvenMessages:
    """What operators prove in a block: the tables ``envelopes``, ``nodes``, ``bases`` and ``relaying``, whether
    more is provable already that they have not taken up, and the number of the first block in which they prove again
    what has not arrived, None where all has. ``abandoned``: requests that they give up."""

    tables: dict[str, Frame]
    more: bool
    again: int | None = None
    abandoned: Sequence[ChainEvent] = ()


def prove(state: State, tries: ChainTries, view: View, context: Context) -> ProvenMessages:
    """Return what the operators of the chains of a block prove to others."""
    empty = {
        "envelopes": empty_frame(ENVELOPES_SCHEMA),
        "nodes": empty_frame(NODES_SCHEMA),
        "bases": empty_frame(BASES_SCHEMA),
    }
    anchor = view.tables["anchor"]
    if len(anchor) == 0:
        return ProvenMessages(empty, more=False)
    wanted, relaying, more, again, abandoned = _wanted(state, tries, view, context)
    if len(wanted) == 0:
        return ProvenMessages({**empty, "relaying": relaying}, more, again, abandoned)
    starts = group_rows(wanted["source"], wanted["destination"]).starts
    pairs = wanted.select(["source", "destination"]).take(starts)
    chains = wanted["source"]
    numbers = np.array([tries.provable.get(chain, 0) for chain in range(int(chains.max()) + 1)], dtype=np.int64)
    proofs = prove_storage(tries.tries, numbers[chains], message_keys(wanted))
    pair = lookup_rows(pairs, wanted, ("source", "destination"))
    of_node = np.repeat(pair, np.diff(proofs.offsets))
    node_keys = of_node.astype(np.uint64) << np.uint64(32) | proofs.members.astype(np.uint64)
    once, local = distinct_with_codes(node_keys)
    owner = (once >> np.uint64(32)).astype(np.int64)
    groups = group_rows(owner)
    number = groups.ranks().astype(np.uint32)
    nodes = pairs.take(owner).with_columns(
        number=number,
        node=proofs.nodes.take(pa.array((once & np.uint64(2**32 - 1)).astype(np.int64))).cast(pa.binary()),
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
        again,
        abandoned,
    )


def _wanted(
    state: State, tries: ChainTries, view: View, context: Context
) -> tuple[Frame, Frame, bool, int | None, list[ChainEvent]]:
    """Return the messages (lane, ``index``, ``tag``) that are proved now, what operators remember after, whether
    more could be, in which block they prove again what has not arrived, and what they give up."""
    options = context.options
    # What can be proved now.
    provable = np.array([tries.number.get(chain, -1) for chain in range(len(context.network.names))], dtype=np.int64)
    tables, numbers, waiting_lanes = {}, {}, []
    for name in ("outbox", "responses"):
        table = tables[name] = LaneTable.of(state[name])
        own = np.flatnonzero(_are_here(table.lanes, context))
        heads = table.first_from(own, np.zeros(len(own), dtype=np.uint64))
        own, heads = own[heads >= 0], heads[heads >= 0]
        sent = table.column_at("sent", heads).astype(np.int64)
        numbers[name] = own[sent <= provable[table.lanes["source"][own]]]
        waiting_lanes.append(table.lanes.take(numbers[name]))
    every = concat(waiting_lanes)
    order = stable_order(*(every[key] for key in LANE))
    every = every.take(order)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    parts = np.split(place, [len(waiting_lanes[0])])
    of_table = {name: (part, numbers[name]) for name, part in zip(tables, parts, strict=True)}
    waits = _Waiting(every, tables, of_table, provable[every["source"]])
    lanes = waits.lanes
    known = lookup_rows(state["relaying"], lanes, LANE)
    proved, before, since, until = _remembered(state["relaying"], known)
    # The nonce that the other side of each lane expects next, as its channel says; 0 without one.
    channels = view.tables["channels"]
    expected = next_nonces(channels, _theirs(lanes, channels), is_response(lanes["substream"]))
    # Each time that the other side has gone on, its operators have so many blocks again to take what was brought.
    number = np.uint64(context.number)
    stays = (known >= 0) & (expected == before) & (proved > expected)
    since = np.where(stays, since, number)
    again = stays & (since + np.uint64(options.resubmit_after) <= number)
    # Which of the lanes `again` have as the message that comes next one that opens a channel that is there, or
    # closes one that is closed: both sides have asked at once, and neither can be answered.
    channels = view.tables["channels"]
    found = np.zeros(len(again), dtype=bool)
    if len(channels) == 0 or not again.any():
        is_refused_for_ever = found
    else:
        theirs = _theirs(waits.lanes, channels)
        ever_counts, ever_messages = waits.between(expected, np.where(again, expected + np.uint64(1), expected))
        request = (ever_counts > 0) & (theirs >= 0) & ~is_response(waits.lanes["substream"])
        closed = channels["state"][theirs] == ChannelState.CLOSED
        tag = (
            ever_messages["tag"][np.maximum(ever_counts.cumsum() - 1, 0)]
            if len(ever_messages)
            else np.zeros(len(again), dtype=np.uint64)
        )
        is_refused_for_ever = np.asarray(request & ((tag == Tag.CHANNEL_OPEN) | ((tag == Tag.CHANNEL_CLOSE) & closed)))
    stuck = again & is_refused_for_ever
    since = np.where(stuck, np.uint64(NEVER), since)
    again &= ~stuck
    # What was proved so long ago and has not arrived is proved again, from what the other side says it expects; what
    # was proved since then is not: it may be on its way.
    first = np.where(again, expected, np.maximum(proved, expected))
    stop = first + np.uint64(options.max_future_nonces + 1)
    # What is proved beyond what the other side may keep until then is for nothing.
    stop = np.minimum(stop, expected + np.uint64(2 * (options.max_future_nonces + 1)))
    stop = np.where(again, np.minimum(stop, until), stop)
    counts, messages = waits.between(first, stop)
    some = counts > 0
    # Whose destinations will know the block that is proved under now: after a pause it may be too old.
    best, final = (int(view.tables["anchor"][name][0]) for name in ("best", "final"))
    under = np.where(lanes["destination"] == CONSENSUS_POSITION, best, final)
    now = best + 1 if context.network.follows else context.number
    fresh = np.asarray(now - under < context.options.mmr_roots)
    stale, some, again = some & ~fresh, some & fresh, again & fresh
    chosen = some & _chosen(lanes, some, context)
    taken = messages.filter(chosen.repeat(counts))
    again &= chosen
    since = np.where(again, number, since)
    proved = proved.copy()
    proved[chosen] = np.maximum(proved[chosen], taken["index"][counts[chosen].cumsum() - 1] + np.uint64(1))
    # What the other side does not expect any more it has: nobody need prove it.
    known_there = np.maximum(proved, expected)
    until = np.where(stays & ~again, until, known_there)
    remembered = lanes.with_columns(proved=known_there, expected=expected, since=since, until=until)
    relaying = remembered.filter(known_there > 0)
    due = since[(proved > expected) & (since < NEVER)] + np.uint64(options.resubmit_after)
    more = bool(stale.any() or (some & ~chosen).any() or len(taken))
    after = int(due.min()) if len(due) else None
    abandoned = message_events(lanes.with_columns(index=expected).filter(stuck), ABANDONED)
    return taken, relaying.select(RELAYING_SCHEMA.names), more, after, abandoned


@dataclass(frozen=True)
class _Waiting:
    """The lanes with messages that can be proved. ``tables``: of messages; ``of_table``: the lanes of each, and their
    numbers in it; ``latest``: the number of the last block whose messages can be proved, of each lane's chain."""

    lanes: Frame
    tables: Mapping[str, LaneTable]
    of_table: Mapping[str, tuple[Rows, Rows]]
    latest: Rows

    def between(self, first: U64, stop: U64) -> tuple[Rows, Frame]:
        """Return how many messages of each lane can be proved from one index to another, exclusive, and these (lane,
        ``index``, ``tag``), lane by lane."""
        counts, parts, places = np.zeros(len(self.lanes), dtype=np.int64), [], []
        for name, (own, numbers) in self.of_table.items():
            table = self.tables[name]
            place, rows = table.window(numbers, first[own], stop[own])
            place = own[place]
            provable = table.column_at("sent", rows).astype(np.int64) <= self.latest[place]
            place, rows = place[provable], rows[provable]
            found = table.rows_at(rows)
            parts.append(found.select([*LANE, "index"]).with_columns(tag=message_tags(name, found)))
            places.append(place)
            counts += np.bincount(place, minlength=len(counts))
        return counts, concat(parts).take(np.argsort(np.concatenate(places), kind="stable"))


def _remembered(relaying: Frame, rows: Rows) -> tuple[U64, U64, U64, U64]:
    """Return ``proved``, ``expected``, ``since`` and ``until`` of rows of what operators remember, 0 for -1."""
    if len(relaying) == 0:
        zero = np.zeros(len(rows), dtype=np.uint64)
        return zero, zero, zero, zero
    names = ("proved", "expected", "since", "until")
    found = [np.where(rows >= 0, relaying[name][rows], np.uint64(0)) for name in names]
    return found[0], found[1], found[2], found[3]


def _are_here(lanes: Frame, context: Context) -> np.ndarray:
    """Return which lanes are from chains of the block to chains of this lake; what is for another lake's, relay
    processes prove and carry."""
    from_here = np.isin(lanes["source"], context.chains)
    return np.asarray(from_here & ~np.isin(lanes["destination"], context.network.external))


def _theirs(lanes: Frame, channels: Frame) -> Rows:
    """Return the row of the other side's channel of each lane, -1 without one."""
    return channel_rows(channels, lanes["destination"], lanes["source"], lane_channels(lanes["substream"]))


def _chosen(lanes: Frame, some: np.ndarray, context: Context) -> np.ndarray:
    """Return the lanes that operators take up in this block: of each chain and destination so many channels, in turns.

    Which are first moves on by as many a block, so that each has its turn.
    """
    channel = lane_channels(lanes["substream"])
    rows = np.flatnonzero(some)
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
    rank = (position - base - context.number % most * (limit % most)) % most  # the product is of numbers of rows
    chosen = np.zeros(len(some), dtype=bool)
    chosen[rows[rank < limit]] = True
    return chosen


def bases_between(pairs: Frame, view: View) -> Frame:
    """Return what the proofs of each pair of chains have in common."""
    anchor, anchored = view.tables["anchor"], view.tables["anchored"]
    to_consensus = pairs["destination"] == CONSENSUS_POSITION
    domain = lookup_rows(anchored, Frame({"domain": pairs["source"]}, len(pairs)), ["domain"])
    known = anchored.take(domain[domain >= 0])
    under = np.repeat(anchor["number"][:1], len(pairs))  # of the consensus chain: where it runs there is one
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
    """Return the next tick at which operators can prove something that they could not, or prove again what has not
    arrived; None where nothing waits for them.

    Every chain makes a block in every tick that is run, so that the numbers of a chain's own blocks are those of the
    consensus chain's. Receipts that were taken in anew (``pruned``) are so in a later block than the next; of a domain
    whose receipts are not confirmed any more (``unbooked``) nothing is ever proved.
    """
    found: int | None = None
    if context.network.follows:
        return None  # nothing can, before more is known of the consensus chain
    pruned, unbooked = view.tables["pruned"], set(view.tables["unbooked"]["domain"].tolist())
    history = state["history"]
    # Return, of each chain that has made messages which are not proved, the number of the first block with one.
    unproved_first = np.full(len(context.network.names), NEVER, dtype=np.uint64)
    relaying = state["relaying"]
    for name in ("outbox", "responses"):
        table = LaneTable.of(state[name])
        own = np.flatnonzero(_are_here(table.lanes, context))
        known = lookup_rows(relaying, table.lanes.take(own), LANE)
        rows = table.first_from(own, _remembered(relaying, known)[0])
        own, rows = own[rows >= 0], rows[rows >= 0]
        np.minimum.at(unproved_first, table.lanes["source"][own], table.column_at("sent", rows))
    for chain, sent in {
        unproved_chain: int(unproved_first[unproved_chain])
        for unproved_chain in np.flatnonzero(unproved_first < NEVER).tolist()
    }.items():
        if chain in unbooked:
            continue
        first, end = np.searchsorted(history["chain"], (chain, chain + 1))
        numbers = history["number"][first:end]
        depth, period = context.options.archiving_depth, context.options.challenge_period
        step = sent if chain == CONSENSUS_POSITION else _taken_again(pruned, chain, sent) or _after(numbers, sent)
        if step is not None and chain != CONSENSUS_POSITION:
            if context.number < step + period:
                found = _least(found, step + period)
                continue
            step = _after(numbers, step + period - 1)
        if step is not None:
            step = _after(numbers, step)
        due = context.number + 1 if step is None else max(context.number + 1, step + depth)
        found = _least(found, due)
    return None if found is None else found - 1


def _taken_again(pruned: Frame, chain: int, number: int) -> int | None:
    """Return the block that has the receipt of a domain's block after a fraud; None where the first one stands."""
    mine = (pruned["domain"] == chain) & (pruned["first"] <= number) & (pruned["last"] >= number)
    found = pruned["found"][mine]
    return int(found.max()) if len(found) else None


def _after(numbers: U64, number: int) -> int | None:
    """Return the first of the numbers of blocks, ascending, that is above a number; None where there is none yet."""
    at = int(np.searchsorted(numbers, number, side="right"))
    return int(numbers[at]) if at < len(numbers) else None


def _least(first: int | None, second: int) -> int:
    return second if first is None else min(first, second)
