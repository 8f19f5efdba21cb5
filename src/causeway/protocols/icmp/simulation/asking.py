"""Asking those who keep a queue where gossip does not bring it (ICMP reference 3.9, 3; ``fallback_request``).

The validators of a queue's recipient, or where it has none its collators, ask a collator of the parachain that sent it,
drawn for each request, over a connection of its own: so no link is needed. They ask ``fallback_after`` after they had
the first block that lists the queue, and again after as long, as long as it is missing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from causeway.model.frame import Frame, empty_frame, repeated_bytes
from causeway.model.joins import over
from causeway.model.order import Rows, distinct
from causeway.protocols.icmp.column_draws import Draw, words
from causeway.protocols.icmp.gossip.fallback import requested
from causeway.protocols.icmp.gossip.state import GossipState
from causeway.protocols.icmp.simulation.tables import REPLY, REQUEST, SKETCHES
from causeway.protocols.icmp.simulation.world import World

SAID = tuple(name for name in SKETCHES.names if name not in ("order", "at"))
"""The columns of what is said, before it is under way."""


def requests(world: World, gossip: GossipState, there: npt.NDArray[np.uint32], time: int) -> Frame:
    """Return what nodes that are ``there`` ask for in the slice that ends at ``time`` (ms): rows of ``SKETCHES``."""
    none = empty_frame(SKETCHES).select(SAID)
    if world.options.gossip.fallback_request == "off":
        return none
    node, entry = _wanted(world, gossip, there)
    after = max(world.options.gossip.fallback_after, world.options.slice)
    waited = time - world.arrivals[world.relay.first_listing[entry], node]
    turn = waited // after
    due = (waited >= after) & (turn > (waited - world.options.slice) // after)
    node, entry, waited, turn = node[due], entry[due], waited[due], turn[due]
    queue = world.relay.asked_as(entry)
    asked = {"topic": world.relay.queue_topic[queue], "root": world.relay.roots[world.relay.root[entry]]}
    rows = Frame({"node": node.astype(np.uint32), **asked}, len(node))
    missing = requested(gossip, rows, waited.astype(np.uint64), world.options.gossip)
    node, entry, turn = node[missing], entry[missing], turn[missing]
    keepers, begins = world.keepers
    sender = world.relay.sources[entry]
    count = begins[sender + 1] - begins[sender]
    drawn = words(world.seed, Draw.HOLDER, node, entry, turn) % count.astype(np.uint64)
    holder = keepers[begins[sender] + drawn.astype(np.int64)]
    return _said(node, holder, REQUEST, entry) if len(node) else none


def _wanted(world: World, gossip: GossipState, there: npt.NDArray[np.uint32]) -> tuple[Rows, Rows]:
    """Return the nodes that ask, and the entries that are unrouted at their leaves and addressed to their parachain,
    each pair once."""
    node = gossip.nodes["node"].astype(np.int64)
    asks = np.isin(gossip.nodes["node"], there) & world.asks[node]
    row, place = ((gossip.leaf != gossip.listed.nothing) & asks[:, None]).nonzero()
    block = world.relay.block_numbers(gossip.listed.blocks)[gossip.leaf[row, place]]
    nodes, entries = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for one in distinct(block).tolist():
        mine = node[row[block == one]]
        listed = world.relay.unrouted[one]
        listed = listed[np.argsort(world.relay.destinations[listed], kind="stable")]
        to, para = world.relay.destinations[listed], world.needs[mine]
        of, at = over(to.searchsorted(para), to.searchsorted(para, side="right"))
        nodes.append(mine[of])
        entries.append(listed[at])
    pairs = np.unique(np.stack([np.concatenate(nodes), np.concatenate(entries)], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def answers(world: World, rows: Frame, time: int) -> Frame:
    """Return what those answer who are asked: they do who keep the queue and have the block that posted it."""
    some = rows.filter(rows["kind"] == REQUEST)
    entry, keeper = some["value"].astype(np.int64), some["destination"].astype(np.int64)
    has = world.keeps[keeper] == world.relay.sources[entry]
    has &= world.arrivals[world.relay.issued[entry], keeper] <= time
    return _said(keeper[has], some["source"][has], REPLY, entry[has])


def answers_input(world: World, rows: Frame) -> Frame | None:
    """Return answers as ``step`` takes them."""
    some = rows.filter(rows["kind"] == REPLY)
    if len(some) == 0:
        return None
    relay, entry = world.relay, some["value"].astype(np.int64)
    root = relay.root[entry]
    columns = {"node": some["destination"], "peer": some["source"], "topic": relay.queue_topic[relay.asked_as(entry)]}
    columns |= {"root": relay.roots[root], "found": relay.roots[root]}
    return Frame({**columns, "messages": relay.messages[root], "size": relay.sizes[root]}, len(some))


def _said(source: npt.NDArray[np.generic], destination: npt.NDArray[np.generic], kind: int, entry: Rows) -> Frame:
    ends = {"source": source.astype(np.uint32), "destination": destination.astype(np.uint32)}
    kinds, nothing = np.full(len(source), kind, dtype=np.uint8), repeated_bytes(b"", len(source))
    return Frame({**ends, "kind": kinds, "value": entry.astype(np.uint64), "data": nothing}, len(source))
