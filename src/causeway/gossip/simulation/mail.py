"""Mail between simulated nodes: arrival, conversion to step inputs, and dispatch.

It also implements fallback requests (ICMP reference 3.9, 3; ``fallback_request``). The validators of
a queue's recipient, or its collators if it has no validators, request a missing queue from a random
collator of the sending parachain over a separate connection, so no link is needed. They request it
``fallback_after`` after the first block that lists it, and repeat at that interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from causeway_proofs.hashing import Digests
from causeway_proofs.order import U64, Rows, distinct, group_rows, stable_order

from causeway.core.frame import Frame, concat, empty_frame, repeat_bytes
from causeway.core.joins import expand_ranges
from causeway.gossip.fallback import fallback_requests
from causeway.gossip.listings import Mask
from causeway.gossip.simulation.state import (
    ASK,
    BODIES,
    CLOSED,
    DECLARED,
    JUNK,
    MORE,
    PACKETS,
    PAYMENTS,
    REPLY,
    REQUEST,
    SKETCH,
    SKETCHES,
    SUBSCRIBED,
    TENDERS,
    TRADED_UNDER_WAY,
    heads_bytes,
)
from causeway.gossip.simulation.world import SimulationWorld
from causeway.gossip.state import GossipState
from causeway.gossip.step_io import StepOutput, admit_packets
from causeway.protocols.shared.random_numbers import SimulationDraw, uniforms, words

SAID = tuple(name for name in SKETCHES.names if name not in ("order", "at"))
"""Columns of sketches before dispatch."""


def fallback_bodies_requested(
    world: SimulationWorld, gossip: GossipState, there: npt.NDArray[np.uint32], time: int
) -> Frame:
    """Build the fallback requests of one slice.

    Args:
        world: The simulation.
        gossip: State of the nodes.
        there: Numbers of the present nodes.
        time: End of the slice in ms.

    Returns:
        Rows of ``SKETCHES`` before dispatch.
    """
    none = empty_frame(SKETCHES).select(SAID)
    if world.options.gossip.fallback_request == "off":
        return none
    node, entry = _needed_entries(world, gossip, there)
    after = max(world.options.gossip.fallback_after, world.options.slice)
    waiting_time = time - world.arrivals[world.relay.first_listing_block[entry], node]
    turn = waiting_time // after
    due = (waiting_time >= after) & (turn > (waiting_time - world.options.slice) // after)
    node, entry, waiting_time, turn = node[due], entry[due], waiting_time[due], turn[due]
    queue = world.relay.requested_queue(entry)
    identity = {"topic": world.relay.queue_topic[queue], "root": world.relay.roots[world.relay.root[entry]]}
    rows = Frame({"node": node.astype(np.uint32), **identity}, len(node))
    missing = fallback_requests(gossip, rows, waiting_time.astype(np.uint64), world.options.gossip)
    node, entry, turn = node[missing], entry[missing], turn[missing]
    keepers, begins = world.keepers
    sender = world.relay.sources[entry]
    count = begins[sender + 1] - begins[sender]
    chosen = words(world.seed, SimulationDraw.HOLDER, node, entry, turn) % count.astype(np.uint64)
    holder = keepers[begins[sender] + chosen.astype(np.int64)]
    return _sketch_rows(node, holder, REQUEST, entry) if len(node) else none


def _needed_entries(world: SimulationWorld, gossip: GossipState, present: npt.NDArray[np.uint32]) -> tuple[Rows, Rows]:
    """Return requesting nodes and the unrouted entries at their leaves for their parachain."""
    node = gossip.nodes["node"].astype(np.int64)
    requesting = np.isin(gossip.nodes["node"], present) & world.asks[node]
    row, place = ((gossip.leaf != gossip.listed.nothing) & requesting[:, None]).nonzero()
    block = world.relay.block_numbers(gossip.listed.blocks)[gossip.leaf[row, place]]
    nodes, entries = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for one in distinct(block).tolist():
        mine = node[row[block == one]]
        listed = world.relay.unrouted[one]
        listed = listed[np.argsort(world.relay.destinations[listed], kind="stable")]
        to, para = world.relay.destinations[listed], world.needs[mine]
        index, at = expand_ranges(to.searchsorted(para), to.searchsorted(para, side="right"))
        nodes.append(mine[index])
        entries.append(listed[at])
    pairs = np.unique(np.stack([np.concatenate(nodes), np.concatenate(entries)], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def answer_requests(world: SimulationWorld, rows: Frame, time: int) -> Frame:
    """Build the answers of keepers that have the queue and the block that posted it.

    Args:
        world: The simulation.
        rows: Arrived sketches and requests.
        time: Time in ms.

    Returns:
        Rows of ``SKETCHES`` before dispatch.
    """
    some = rows.filter(rows["kind"] == REQUEST)
    entry, keeper = some["value"].astype(np.int64), some["destination"].astype(np.int64)
    has = world.keeps[keeper] == world.relay.sources[entry]
    has &= world.arrivals[world.relay.issued[entry], keeper] <= time
    return _sketch_rows(keeper[has], some["source"][has], REPLY, entry[has])


def answers_input(world: SimulationWorld, rows: Frame) -> Frame | None:
    """Convert answers to an input of ``step``."""
    some = rows.filter(rows["kind"] == REPLY)
    if len(some) == 0:
        return None
    relay, entry = world.relay, some["value"].astype(np.int64)
    root = relay.root[entry]
    columns = {
        "node": some["destination"],
        "peer": some["source"],
        "topic": relay.queue_topic[relay.requested_queue(entry)],
    }
    columns |= {"root": relay.roots[root], "found": relay.roots[root]}
    return Frame({**columns, "messages": relay.messages[root], "size": relay.sizes[root]}, len(some))


def _sketch_rows(
    source: npt.NDArray[np.generic], destination: npt.NDArray[np.generic], kind: int, entry: Rows
) -> Frame:
    ends = {"source": source.astype(np.uint32), "destination": destination.astype(np.uint32)}
    kinds, nothing = np.full(len(source), kind, dtype=np.uint8), repeat_bytes(b"", len(source))
    return Frame({**ends, "kind": kinds, "value": entry.astype(np.uint64), "data": nothing}, len(source))


_TICKS, _EACH = 24, 16
"""Bits of a tick, and of the queues that a spammer sends in one, in the number of a queue that nobody posted."""


@dataclass(frozen=True)
class ArrivedMail:
    """Mail that arrived at the nodes, in order of arrival, and rows still ``waiting``, by table.

    ``trades`` holds offers and payments (``TRADED_UNDER_WAY``) if tickets are on.
    """

    packets: Frame
    bodies: Frame
    sketches: Frame
    waiting: Mapping[str, Frame]
    trades: tuple[Frame, ...]


def receive_mail(
    rows: Mapping[str, Frame], time: int, there: npt.NDArray[np.uint32], world: SimulationWorld
) -> ArrivedMail:
    """Deliver the mail that is due; mail to absent nodes is lost.

    A step accepts a limited number of bodies from each peer; the rest waits.

    Args:
        rows: Rows in flight, by table (``UNDER_WAY``).
        time: Time in ms.
        there: Numbers of the present nodes.
        world: The simulation.
    """
    due = {name: _split_due(some, time, there) for name, some in rows.items()}
    waiting = {"waiting_" + name: later for name, (_, later) in due.items()}
    bodies, waiting_bodies = due["bodies"]
    if len(bodies):
        _, size = describe_bodies(world, bodies["queue"])
        pending = Frame({"node": bodies["destination"], "peer": bodies["source"], "size": size}, len(bodies))
        admitted = admit_packets(pending, world.options.gossip)
        if not admitted.all():
            waiting["waiting_bodies"] = _ordered(concat([bodies.filter(~admitted), waiting_bodies]))
            bodies = bodies.filter(admitted)
    trades = tuple(due[name][0] for name in TRADED_UNDER_WAY if name in due)
    return ArrivedMail(due["packets"][0], bodies, due["sketches"][0], waiting, trades)


def _split_due(rows: Frame, time: int, present: npt.NDArray[np.uint32]) -> tuple[Frame, Frame]:
    """Split rows into due ones at present nodes and later ones, each in ``waiting`` order."""
    now = rows["at"] <= np.uint64(time)
    due = rows.filter(now)
    return _ordered(due.filter(np.isin(due["destination"], present))), _ordered(rows.filter(~now))


def _ordered(rows: Frame) -> Frame:
    return rows.take(stable_order(rows["destination"], rows["at"], rows["source"], rows["order"]))


def describe_bodies(world: SimulationWorld, queues: U64) -> tuple[U64, U64]:
    """Return the message counts and the sizes in bytes of bodies."""
    relay, posted = world.relay, queues < np.uint64(JUNK)
    messages = np.ones(len(queues), dtype=np.uint64)
    size = np.full(len(queues), world.options.relay.bytes, dtype=np.uint64)
    root = relay.queue_root[queues[posted].astype(np.int64)]
    messages[posted], size[posted] = relay.messages[root], relay.sizes[root]
    return messages, size


def subscriptions_input(world: SimulationWorld, packets: Frame) -> Frame:
    """Convert subscriptions to an input of ``step``; a node's subscriptions never change."""
    ends = {"node": packets["destination"], "peer": packets["source"]}
    labels = world.interests[packets["source"].astype(np.int64)]
    return Frame({**ends, "labels": labels, "malformed": np.zeros(len(packets), dtype=bool)}, len(packets))


def queues_input(world: SimulationWorld, bodies: Frame) -> Frame:
    """Convert bodies to an input of ``step``, with their actual roots."""
    relay, queue = world.relay, bodies["queue"]
    messages, size = describe_bodies(world, queue)
    root, topic = _junk(world, queue)
    posted = np.flatnonzero(queue < np.uint64(JUNK))
    number = queue[posted].astype(np.int64)
    root[posted], topic[posted] = relay.roots[relay.queue_root[number]], relay.queue_topic[number]
    found = root.copy()
    if relay.bodies is not None:
        for row, of, altered in zip(
            posted.tolist(), relay.queue_root[number].tolist(), bodies["altered"][posted].tolist(), strict=True
        ):
            found[row] = np.frombuffer(relay.body_root(of, bool(altered)), dtype=np.uint8)
    else:
        found[bodies["altered"] > 0, 0] ^= 1
    columns = {"node": bodies["destination"], "peer": bodies["source"], "topic": topic, "root": root, "found": found}
    malformed = np.zeros(len(bodies), dtype=bool)
    return Frame({**columns, "messages": messages, "size": size, "malformed": malformed}, len(bodies))


def _junk(world: SimulationWorld, queue: U64) -> tuple[Digests, Digests]:
    """Return root and topic of unposted queues.

    Every other one has the topic of the newest queue.
    """
    relay = world.relay
    root, topic = (np.zeros((len(queue), 32), dtype=np.uint8) for _ in range(2))
    rows = np.flatnonzero(queue >= np.uint64(JUNK))
    if len(rows) == 0:
        return root, topic
    number = queue[rows] - np.uint64(JUNK)
    low, high = number & np.uint64(2**32 - 1), number >> np.uint64(32)
    random_words = words(world.seed, SimulationDraw.JUNK, low[:, None], high[:, None], np.arange(8)[None, :])
    random_words = np.ascontiguousarray(random_words).astype("<u8")
    root[rows], topic[rows] = random_words[:, :4].copy().view(np.uint8), random_words[:, 4:].copy().view(np.uint8)
    time = ((number >> np.uint64(_EACH)) & np.uint64(2**_TICKS - 1)).astype(np.int64) * world.options.slice
    block_count = relay.times.searchsorted(time, side="right")
    newest = relay.queue_issued.searchsorted(block_count) - 1
    some = (number % np.uint64(2) == 0) & (newest >= 0)
    topic[rows[some]] = relay.queue_topic[newest[some]]
    return root, topic


@dataclass(frozen=True)
class OutgoingMail:
    """Mail that nodes send in a slice, in order: rows without ``order`` and ``at``.

    Attributes:
        packets: Rows of ``PACKETS``.
        bodies: Rows of ``BODIES``.
        sketches: Rows of ``SKETCHES``.
        trades: Rows of ``TENDERS`` and ``PAYMENTS`` if tickets are on.
    """

    packets: Frame
    bodies: Frame
    sketches: Frame
    trades: tuple[Frame, Frame] | None = None

    def with_bodies(self, source: Rows, destination: Rows, queue: U64) -> OutgoingMail:
        """Add altered bodies, as if the sender had the queues.

        Args:
            source: Senders.
            destination: Recipients.
            queue: Numbers of the queues.
        """
        more = body_rows(source.astype(np.uint32), destination.astype(np.uint32), queue, 1, np.uint8(1))
        return replace(self, bodies=concat([self.bodies, more]))


def collect_outgoing(world: SimulationWorld, out: StepOutput, hops: npt.NDArray[np.uint8]) -> OutgoingMail:
    """Convert the output of a step to outgoing mail.

    Args:
        world: The simulation.
        out: Output of the step.
        hops: Hop count of each outgoing queue.
    """
    relay = world.relay
    packets = [
        _packets(
            out.heads["node"], out.heads["peer"], DECLARED, out.heads["count"], heads_bytes(relay, out.heads["heads"])
        )
    ]
    disconnected = out.disconnected
    nothing = np.full((len(disconnected), 20), 255, dtype=np.uint8)
    packets.append(
        _packets(
            disconnected["node"], disconnected["peer"], CLOSED, np.zeros(len(disconnected), dtype=np.uint64), nothing
        )
    )
    subscriptions = out.subscriptions
    nothing = np.full((len(subscriptions), 20), 255, dtype=np.uint8)
    packets.append(
        _packets(
            subscriptions["node"],
            subscriptions["peer"],
            SUBSCRIBED,
            np.zeros(len(subscriptions), dtype=np.uint64),
            nothing,
        )
    )
    queue = relay.queue_numbers(out.queues["root"], out.queues["topic"]).astype(np.uint64)
    bodies = body_rows(out.queues["node"], out.queues["peer"], queue, 0, hops)
    # Sketches, requests for larger ones, short ids.
    found = [empty_frame(SKETCHES).select(SAID)]
    for kind, rows, column in ((SKETCH, out.sketches, "capacity"), (MORE, out.more, "capacity"), (ASK, out.asks, "id")):
        if len(rows):
            data = rows["sketch"].cast(pa.binary()) if kind == SKETCH else repeat_bytes(b"", len(rows))
            ends = {"source": rows["node"], "destination": rows["peer"], "kind": np.full(len(rows), kind, np.uint8)}
            found.append(Frame({**ends, "value": rows[column], "data": data}, len(rows)))
    return OutgoingMail(concat(packets), bodies, concat(found))


def _packets(
    source: npt.NDArray[np.uint32],
    destination: npt.NDArray[np.uint32],
    kind: int,
    count: U64,
    heads: npt.NDArray[np.uint8],
) -> Frame:
    kinds = np.full(len(source), kind, dtype=np.uint8)
    return Frame(
        {"source": source, "destination": destination, "kind": kinds, "count": count, "heads": heads}, len(source)
    )


def body_rows(
    source: npt.NDArray[np.uint32],
    destination: npt.NDArray[np.uint32],
    queue: U64,
    altered: int,
    hops: npt.NDArray[np.uint8] | np.uint8,
) -> Frame:
    """Build rows of outgoing bodies."""
    rows = Frame({"source": source, "destination": destination, "queue": queue}, len(source))
    return rows.with_columns(
        altered=np.full(len(source), altered, dtype=np.uint8), hops=np.broadcast_to(hops, (len(source),))
    )


def junk_queues(tick: int, source: Rows, index: Rows) -> U64:
    """Return numbers for the unposted queues of a spammer, one for each recipient of a tick."""
    number = (source << (_TICKS + _EACH)) | (tick << _EACH) | index
    return number.astype(np.uint64) + np.uint64(JUNK)


def post_mail(world: SimulationWorld, rows: OutgoingMail, time: int, tick: int) -> dict[str, Frame]:
    """Dispatch outgoing mail: assign order and arrival times, and drop lost rows.

    Args:
        world: The simulation.
        rows: Outgoing mail.
        time: Time in ms.
        tick: The tick.

    Returns:
        Rows in flight, by table.
    """
    found = {}
    kinds = (("packets", rows.packets, PACKETS), ("bodies", rows.bodies, BODIES), ("sketches", rows.sketches, SKETCHES))
    traded = zip(TRADED_UNDER_WAY, rows.trades or (), (TENDERS, PAYMENTS), strict=False)
    for part, (name, sent, schema) in enumerate((*kinds, *traded)):
        if len(sent) == 0:
            found[name] = empty_frame(schema)
            continue
        order = np.argsort(sent["source"], kind="stable")
        sent = sent.take(order)
        rank = group_rows(sent["source"]).ranks()
        source, destination = sent["source"].astype(np.int64), sent["destination"].astype(np.int64)
        at = (time + world.latency(source, destination)).astype(np.uint64)
        sent = sent.with_columns(order=rank.astype(np.uint32), at=at).select(schema.names)
        if world.options.links.loss:
            chance = uniforms(world.seed, SimulationDraw.LOST, source, destination, tick, len(kinds) * rank + part)
            sent = sent.filter((chance >= world.options.links.loss) | _is_reliable(sent))
        found[name] = sent
    return found


def _is_reliable(sent: Frame) -> Mask:
    """Return a mask of rows that are never lost: both ends notice a closed connection."""
    if "heads" not in sent:
        return np.zeros(len(sent), dtype=bool)
    return np.asarray(sent["kind"] == CLOSED)


def sketches_input(sketches: Frame) -> dict[str, Frame]:
    """Convert sketches, requests for larger sketches, and short ids to inputs of ``step``."""
    found = {}
    for kind, name, column in ((SKETCH, "sketches", "capacity"), (MORE, "more", "capacity"), (ASK, "asks", "id")):
        some = sketches.filter(sketches["kind"] == kind)
        rows = Frame({"node": some["destination"], "peer": some["source"], column: some["value"]}, len(some))
        found[name] = rows.with_columns(sketch=some["data"]) if kind == SKETCH else rows
    return found
