"""What goes from node to node: rows that are under way, what of it is there, and what nodes send in a slice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from causeway.model.frame import Frame, concat, empty_frame, repeated_bytes
from causeway.model.order import U64, Rows, groups_of, stable_order
from causeway.proofs.hashing import Digests
from causeway.protocols.icmp.column_draws import Draw, uniforms, words
from causeway.protocols.icmp.gossip.listed import Mask
from causeway.protocols.icmp.gossip.output import Output
from causeway.protocols.icmp.gossip.waiting import admitted
from causeway.protocols.icmp.simulation.asking import SAID
from causeway.protocols.icmp.simulation.state import heads_bytes
from causeway.protocols.icmp.simulation.tables import (
    ASK,
    BODIES,
    CLOSED,
    DECLARED,
    JUNK,
    MORE,
    PACKETS,
    PAYMENTS,
    SKETCH,
    SKETCHES,
    SUBSCRIBED,
    TENDERS,
    TRADED_UNDER_WAY,
)
from causeway.protocols.icmp.simulation.world import World

_TICKS, _EACH = 24, 16
"""Bits of a tick, and of the queues that a spammer sends in one, in the number of a queue that nobody posted."""


@dataclass(frozen=True)
class Mail:
    """What is there for nodes at a time, in the order in which it came, and what ``waits``. ``trades``: offers and
    payments, with tickets (``TRADED_UNDER_WAY``)."""

    packets: Frame
    bodies: Frame
    sketches: Frame
    waiting: Mapping[str, Frame]
    trades: tuple[Frame, ...]


def arrived(rows: Mapping[str, Frame], time: int, there: npt.NDArray[np.uint32], world: World) -> Mail:
    """Return what of ``rows`` (of the tables ``UNDER_WAY``) is there at a ``time``; for who is not ``there`` it is
    lost. Of bodies a step takes as many from each peer as it may: the rest waits."""
    due = {name: _due(some, time, there) for name, some in rows.items()}
    waiting = {"waiting_" + name: later for name, (_, later) in due.items()}
    bodies, waiting_bodies = due["bodies"]
    if len(bodies):
        _, size = described(world, bodies["queue"])
        asked = Frame({"node": bodies["destination"], "peer": bodies["source"], "size": size}, len(bodies))
        taken = admitted(asked, world.options.gossip)
        if not taken.all():
            waiting["waiting_bodies"] = _ordered(concat([bodies.filter(~taken), waiting_bodies]))
            bodies = bodies.filter(taken)
    trades = tuple(due[name][0] for name in TRADED_UNDER_WAY if name in due)
    return Mail(due["packets"][0], bodies, due["sketches"][0], waiting, trades)


def _due(rows: Frame, time: int, there: npt.NDArray[np.uint32]) -> tuple[Frame, Frame]:
    """Return the rows that are there and those that are not yet, in the order of ``waiting``."""
    now = rows["at"] <= np.uint64(time)
    due = rows.filter(now)
    return _ordered(due.filter(np.isin(due["destination"], there))), _ordered(rows.filter(~now))


def _ordered(rows: Frame) -> Frame:
    return rows.take(stable_order(rows["destination"], rows["at"], rows["source"], rows["order"]))


def described(world: World, queues: U64) -> tuple[U64, U64]:
    """Return how many messages bodies have, and their sizes."""
    relay, posted = world.relay, queues < np.uint64(JUNK)
    messages = np.ones(len(queues), dtype=np.uint64)
    size = np.full(len(queues), world.options.relay.bytes, dtype=np.uint64)
    root = relay.queue_root[queues[posted].astype(np.int64)]
    messages[posted], size[posted] = relay.messages[root], relay.sizes[root]
    return messages, size


def subscriptions_input(world: World, packets: Frame) -> Frame:
    """Return what peers subscribe to as ``step`` takes it: no node ever changes that."""
    ends = {"node": packets["destination"], "peer": packets["source"]}
    labels = world.interests[packets["source"].astype(np.int64)]
    return Frame({**ends, "labels": labels, "malformed": np.zeros(len(packets), dtype=bool)}, len(packets))


def queues_input(world: World, bodies: Frame) -> Frame:
    """Return bodies as ``step`` takes them, with the roots that they have."""
    relay, queue = world.relay, bodies["queue"]
    messages, size = described(world, queue)
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


def _junk(world: World, queue: U64) -> tuple[Digests, Digests]:
    """Return root and topic of queues that nobody posted: every other one has the topic of the newest queue."""
    relay = world.relay
    root, topic = (np.zeros((len(queue), 32), dtype=np.uint8) for _ in range(2))
    rows = np.flatnonzero(queue >= np.uint64(JUNK))
    if len(rows) == 0:
        return root, topic
    number = queue[rows] - np.uint64(JUNK)
    low, high = number & np.uint64(2**32 - 1), number >> np.uint64(32)
    drawn = words(world.seed, Draw.JUNK, low[:, None], high[:, None], np.arange(8)[None, :])
    drawn = np.ascontiguousarray(drawn).astype("<u8")
    root[rows], topic[rows] = drawn[:, :4].copy().view(np.uint8), drawn[:, 4:].copy().view(np.uint8)
    time = ((number >> np.uint64(_EACH)) & np.uint64(2**_TICKS - 1)).astype(np.int64) * world.options.slice
    made = relay.times.searchsorted(time, side="right")
    newest = relay.queue_issued.searchsorted(made) - 1
    some = (number % np.uint64(2) == 0) & (newest >= 0)
    topic[rows[some]] = relay.queue_topic[newest[some]]
    return root, topic


@dataclass(frozen=True)
class Sending:
    """What nodes send in a slice, in the order in which they say it: ``PACKETS``, ``BODIES`` and ``SKETCHES`` without
    ``order`` and ``at``. ``trades``: so are ``TENDERS`` and ``PAYMENTS``, with tickets."""

    packets: Frame
    bodies: Frame
    sketches: Frame
    trades: tuple[Frame, Frame] | None = None

    def with_bodies(self, source: Rows, destination: Rows, queue: U64) -> Sending:
        """Return it with altered bodies besides, as if the sender had the queues of itself."""
        more = body_rows(source.astype(np.uint32), destination.astype(np.uint32), queue, 1, np.uint8(1))
        return replace(self, bodies=concat([self.bodies, more]))


def sending(world: World, out: Output, hops: npt.NDArray[np.uint8]) -> Sending:
    """Return what a step's output sends. ``hops``: of each queue that goes out."""
    relay = world.relay
    packets = [
        _packets(
            out.heads["node"], out.heads["peer"], DECLARED, out.heads["count"], heads_bytes(relay, out.heads["heads"])
        )
    ]
    gone = out.disconnected
    nothing = np.full((len(gone), 20), 255, dtype=np.uint8)
    packets.append(_packets(gone["node"], gone["peer"], CLOSED, np.zeros(len(gone), dtype=np.uint64), nothing))
    told = out.subscriptions
    nothing = np.full((len(told), 20), 255, dtype=np.uint8)
    packets.append(_packets(told["node"], told["peer"], SUBSCRIBED, np.zeros(len(told), dtype=np.uint64), nothing))
    queue = relay.queue_numbers(out.queues["root"], out.queues["topic"]).astype(np.uint64)
    bodies = body_rows(out.queues["node"], out.queues["peer"], queue, 0, hops)
    # What a step sends of sketches.
    found = [empty_frame(SKETCHES).select(SAID)]
    for kind, rows, column in ((SKETCH, out.sketches, "capacity"), (MORE, out.more, "capacity"), (ASK, out.asks, "id")):
        if len(rows):
            data = rows["sketch"].cast(pa.binary()) if kind == SKETCH else repeated_bytes(b"", len(rows))
            ends = {"source": rows["node"], "destination": rows["peer"], "kind": np.full(len(rows), kind, np.uint8)}
            found.append(Frame({**ends, "value": rows[column], "data": data}, len(rows)))
    return Sending(concat(packets), bodies, concat(found))


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
    """Return bodies that nodes send."""
    rows = Frame({"source": source, "destination": destination, "queue": queue}, len(source))
    return rows.with_columns(
        altered=np.full(len(source), altered, dtype=np.uint8), hops=np.broadcast_to(hops, (len(source),))
    )


def junk(tick: int, source: Rows, which: Rows) -> U64:
    """Return numbers of queues that nobody posted, one for each of what a spammer sends in a tick."""
    number = (source << (_TICKS + _EACH)) | (tick << _EACH) | which
    return number.astype(np.uint64) + np.uint64(JUNK)


def posted(world: World, rows: Sending, time: int, tick: int) -> dict[str, Frame]:
    """Return what was sent as rows of the tables ``UNDER_WAY``: without what is lost."""
    found = {}
    kinds = (("packets", rows.packets, PACKETS), ("bodies", rows.bodies, BODIES), ("sketches", rows.sketches, SKETCHES))
    traded = zip(TRADED_UNDER_WAY, rows.trades or (), (TENDERS, PAYMENTS), strict=False)
    for part, (name, sent, schema) in enumerate((*kinds, *traded)):
        if len(sent) == 0:
            found[name] = empty_frame(schema)
            continue
        order = np.argsort(sent["source"], kind="stable")
        sent = sent.take(order)
        rank = groups_of(sent["source"]).ranks()
        source, destination = sent["source"].astype(np.int64), sent["destination"].astype(np.int64)
        at = (time + world.latency(source, destination)).astype(np.uint64)
        sent = sent.with_columns(order=rank.astype(np.uint32), at=at).select(schema.names)
        if world.options.links.loss:
            chance = uniforms(world.seed, Draw.LOST, source, destination, tick, len(kinds) * rank + part)
            sent = sent.filter((chance >= world.options.links.loss) | _lasting(sent))
        found[name] = sent
    return found


def _lasting(sent: Frame) -> Mask:
    """Return which rows are never lost: that a connection ended is noticed at last."""
    if "heads" not in sent:
        return np.zeros(len(sent), dtype=bool)
    return np.asarray(sent["kind"] == CLOSED)


def sketches_input(sketches: Frame) -> dict[str, Frame]:
    """Return sketches, wishes for larger ones and short ids that are asked for, as ``step`` takes them."""
    found = {}
    for kind, name, column in ((SKETCH, "sketches", "capacity"), (MORE, "more", "capacity"), (ASK, "asks", "id")):
        some = sketches.filter(sketches["kind"] == kind)
        rows = Frame({"node": some["destination"], "peer": some["source"], column: some["value"]}, len(some))
        found[name] = rows.with_columns(sketch=some["data"]) if kind == SKETCH else rows
    return found
