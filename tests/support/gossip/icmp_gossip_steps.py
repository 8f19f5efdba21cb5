"""Oracle and kernel of gossip on steps of many events: one call of the kernel for all nodes, the oracle one by one."""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from causeway.core.frame import Frame
from causeway.gossip.listings import TO
from causeway.gossip.options import GossipOptions
from causeway.gossip.state import NO_INTEREST, start_nodes, state_to_tables
from causeway.gossip.step import StepInputs, step
from tests.spec.icmp import gossip_step
from tests.spec.icmp.events import Got, NodeId, Pool, Reported
from tests.spec.icmp.gossip_nodes import Client
from tests.spec.icmp.gossip_step import Arrived
from tests.spec.icmp.node import Label, Node, best
from tests.spec.icmp.options import MAX_CHAIN_HEADS, Options
from tests.spec.icmp.packets import Declaration, Envelope, Garbled, Out, Subscriptions
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.trie import R
from tests.support.gossip.icmp_gossip_kernel import column, flagged, number, serialized
from tests.support.gossip.icmp_gossip_rows import by_node, grouped

PACKETS = ("heads", "queues", "subscriptions", "sketches", "more", "asks")
"""Of these the order counts that each peer sees."""


def rules(options: Options) -> GossipOptions:
    given = {name: getattr(options, name) for name in GossipOptions.model_fields if hasattr(options, name)}
    return GossipOptions.model_validate(given)


def label(of: Label) -> int:
    side, para = of
    return para + (TO if side == "to" else 0)


class Stepped:
    """Nodes, of the oracle and as one state of the kernel, to whom the same comes in the same steps."""

    def __init__(self, options: Options, nodes: Mapping[NodeId, frozenset[ParaId]], clients: Mapping[NodeId, Client]):
        self.options, self.rules, self.clients = options, rules(options), clients
        self.nodes = {name: Node(name, options, collates) for name, collates in sorted(nodes.items())}
        self.state = start_nodes(np.array([number(name) for name in self.nodes], np.uint32), self.rules)
        self.names: dict[int, NodeId] = {number(name): name for name in self.nodes}
        self.seen: Counter[str] = Counter()

    def step(self, now: int, arrived: Mapping[NodeId, Arrived], r: Random) -> dict[NodeId, Out]:
        inputs = self._inputs(arrived, r)
        self.state, out = step(self.state, inputs, now, self.rules)
        outs = {
            name: gossip_step.step(node, self.clients[name], now, arrived.get(name, Arrived()))
            for name, node in self.nodes.items()
        }
        told = by_node(out)
        held = {table: grouped(frame) for table, frame in state_to_tables(self.state).items() if "node" in frame.names}
        for name, one in outs.items():
            self._same_out(name, one, told)
            self._same_state(name, held)
        return outs

    # what goes in

    def _inputs(self, arrived: Mapping[NodeId, Arrived], r: Random) -> StepInputs:
        """The nodes' rows in any order, each node's own in order."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        queues = [(name, name, event) for name in arrived for event in _events(arrived[name])]
        turns = [name for name, _, _ in queues]
        r.shuffle(turns)
        waiting = {name: iter([event for at, _, event in queues if at == name]) for name in arrived}
        for name in turns:
            kind, *row = next(waiting[name])
            found.setdefault(kind, []).append((name, *row))
        frames = {kind: getattr(self, f"_{kind}")(rows) for kind, rows in found.items()}
        come = [name for name in arrived if arrived[name].leaves is not None]
        if come:
            frames["leaves"], frames["kept"] = self._leaves(come, arrived), self._kept(come, arrived)
        subscribing = [(name, own.subscribes) for name, own in arrived.items() if own.subscribes is not None]
        if subscribing:
            pairs = [(number(name), label(one)) for name, own in subscribing for one in sorted(own)]
            nodes, labels = zip(*pairs, strict=True)
            frames["subscribe"] = Frame({"node": np.array(nodes, np.uint32), "label": np.array(labels, np.uint64)})
        return StepInputs(**frames)

    def _pairs(self, rows: list[tuple[Any, ...]]) -> Frame:
        self.names |= {number(k): k for _, k, *_ in rows}
        sides = {name: np.array([number(row[i]) for row in rows], np.uint32) for i, name in enumerate(("node", "peer"))}
        return Frame(sides, len(rows))

    def _disconnect(self, rows: list[tuple[Any, ...]]) -> Frame:
        return self._pairs(rows)

    def _connect(self, rows: list[tuple[Any, ...]]) -> Frame:
        return self._pairs(rows).with_columns(**column("salt", *(row[2] for row in rows)))

    def _heads(self, rows: list[tuple[Any, ...]]) -> Frame:
        heads = np.zeros((len(rows), MAX_CHAIN_HEADS, 32), dtype=np.uint8)
        for at, (_, _, m) in enumerate(rows):
            for place, head in enumerate(m.heads[:MAX_CHAIN_HEADS] if isinstance(m, Declaration) else ()):
                heads[at, place] = np.frombuffer(head, dtype=np.uint8)
        count = np.array([len(m.heads) if isinstance(m, Declaration) else 0 for *_, m in rows], dtype=np.uint64)
        malformed = np.array([isinstance(m, Garbled) for *_, m in rows])
        return self._pairs(rows).with_columns(count=count, heads=heads, malformed=malformed)

    def _queues(self, rows: list[tuple[Any, ...]]) -> Frame:
        came = [row[2] for row in rows]
        return self._pairs(rows).with_columns(
            **column("topic", *(m.topic for m in came)),
            **column("root", *(m.root for m in came)),
            **column("found", *(R(m.messages) for m in came)),
            messages=np.array([len(m.messages) for m in came], dtype=np.uint64),
            size=np.array([m.size for m in came], dtype=np.uint64),
            malformed=np.zeros(len(came), dtype=bool),
        )

    _answers = _queues

    def _subscriptions(self, rows: list[tuple[Any, ...]]) -> Frame:
        most = self.options.max_subscriptions
        labels = np.full((len(rows), most), NO_INTEREST)
        for at, (_, _, m) in enumerate(rows):
            for place, one in enumerate(m.labels[:most]):
                labels[at, place] = label(one)
        malformed = np.array([len(m.labels) > most for *_, m in rows])
        return self._pairs(rows).with_columns(labels=labels, malformed=malformed)

    def _sketches(self, rows: list[tuple[Any, ...]]) -> Frame:
        bodies = pa.array([serialized(m) for *_, m in rows], pa.large_binary())
        capacity = np.array([m.capacity for *_, m in rows], dtype=np.uint64)
        return self._pairs(rows).with_columns(capacity=capacity, sketch=bodies)

    def _more(self, rows: list[tuple[Any, ...]]) -> Frame:
        return self._pairs(rows).with_columns(capacity=np.array([m.capacity for *_, m in rows], dtype=np.uint64))

    def _asks(self, rows: list[tuple[Any, ...]]) -> Frame:
        each = [(name, k, one) for name, k, m in rows for one in m.ids]
        return self._pairs(each).with_columns(id=np.array([one for *_, one in each], dtype=np.uint64))

    def _leaves(self, names: list[NodeId], arrived: Mapping[NodeId, Arrived]) -> tuple[Frame, Frame, Frame]:
        pairs = [(name, leaf) for name in names for leaf in arrived[name].leaves or ()]
        mine = Frame(
            {
                "node": np.array([number(name) for name, _ in pairs], np.uint32),
                **column("hash", *(leaf.hash for _, leaf in pairs)),
            },
            len(pairs),
        )
        blocks = {leaf.hash: (name, leaf) for name, leaf in pairs}
        older = np.zeros((len(blocks), self.options.ancestors, 32), dtype=np.uint8)
        listed = []
        for at, (name, leaf) in enumerate(blocks.values()):
            listed += [(leaf.hash, u) for u in self.clients[name].unrouted(leaf.hash)]
            parent = self.clients[name].parent(leaf.hash)
            for depth in range(self.options.ancestors):
                if parent is not None:
                    older[at, depth] = np.frombuffer(parent, dtype=np.uint8)
                    parent = self.clients[name].parent(parent)
        numbers = np.array([leaf.number for _, leaf in blocks.values()], dtype=np.uint64)
        unrouted = Frame(
            {
                **column("block", *(block for block, _ in listed)),
                **column("issued", *(u.block for _, u in listed)),
                **column("root", *(u.root for _, u in listed)),
                "sender": np.array([u.sender for _, u in listed], dtype=np.uint32),
                "recipient": np.array([u.recipient for _, u in listed], dtype=np.uint32),
            },
            len(listed),
        )
        return mine, Frame({**column("hash", *blocks), "number": numbers, "ancestors": older}, len(blocks)), unrouted

    def _kept(self, names: list[NodeId], arrived: Mapping[NodeId, Arrived]) -> Frame:
        """Of each node what its chains post at the leaves that are new to it."""
        found: list[tuple[NodeId, Hash]] = []
        for name in names:
            node, client = self.nodes[name], self.clients[name]
            new = [leaf for leaf in best(arrived[name].leaves or ()) if leaf not in node.leaves]
            roots = {u.root for leaf in new for p in node.collates for u in client.egress(leaf, p)} & node.kept.keys()
            found += [(name, root) for root in sorted(roots)]
        return Frame(
            {
                "node": np.array([number(name) for name, _ in found], np.uint32),
                **column("root", *(root for _, root in found)),
                "size": np.array([sum(map(len, self.nodes[n].kept[root])) for n, root in found], dtype=np.uint64),
            },
            len(found),
        )

    # what comes out

    def _same_out(self, name: NodeId, one: Out, told: Mapping[str, Mapping[int, list[tuple[Any, ...]]]]) -> None:
        def kernel(kind: str) -> list[tuple[Any, ...]]:
            rows = told[kind].get(number(name), [])
            return sorted(rows, key=lambda row: row[0]) if kind in PACKETS else rows

        said = sorted(((number(k), m) for k, m in one.packets), key=lambda packet: packet[0])
        assert [(k, m.heads) for k, m in said if isinstance(m, Declaration)] == kernel("heads"), name
        assert [(k, m.topic, m.root) for k, m in said if isinstance(m, Envelope)] == kernel("queues"), name
        told_labels = [(k, tuple(map(label, m.labels))) for k, m in said if isinstance(m, Subscriptions)]
        assert told_labels == kernel("subscriptions"), name
        sketches = [(k, m.capacity, serialized(m)) for k, m in said if isinstance(m, Sketch)]
        assert sketches == kernel("sketches"), name
        assert [(k, m.capacity) for k, m in said if isinstance(m, More)] == kernel("more"), name
        assert [(k, i) for k, m in said if isinstance(m, Ask) for i in m.ids] == kernel("asks"), name
        assert sorted(map(number, one.dropped)) == sorted(k for k, _ in kernel("disconnected")), name
        pools = [row for row in one.rows if isinstance(row, Pool)]
        for change, table in (("put", "got"), ("purge", "purged")):
            assert [(row.topic, row.root) for row in pools if row.change == change] == kernel(table), (name, change)
        verdicts = Counter(
            (number(row.peer), row.error or {"good": "OK", "duplicate": "Duplicate"}[row.verdict], row.reputation)
            if isinstance(row, Got)
            else (number(row.peer), row.error, row.reputation)
            for row in one.rows
            if isinstance(row, Got | Reported)
        )
        assert verdicts == Counter(kernel("verdicts")), name
        good = [
            (number(row.peer), row.topic, row.root, row.size)
            for row in one.rows
            if isinstance(row, Got) and row.verdict == "good"
        ]
        assert good == kernel("beneficial"), name
        self.seen.update(error for _, error, _ in verdicts.elements() if error)
        self.seen.update(type(m).__name__ for _, m in said)
        self.seen.update(row.change for row in pools)
        self.seen["dropped"] += len(one.dropped)

    def _same_state(self, name: NodeId, held: Mapping[str, Mapping[int, list[dict[str, Any]]]]) -> None:
        node = self.nodes[name]

        def kernel(table: str, *columns: str) -> list[tuple[Any, ...]]:
            return [tuple(row[key] for key in columns) for row in held[table].get(number(name), [])]

        assert node.leaves == tuple(leaf for (leaf,) in kernel("leaves", "hash")), name
        assert {*node.views} == {block for (block,) in kernel("own", "hash")}, name
        pairs = {(t, root) for t, roots in node.expected.items() for root in roots}
        assert pairs == {*kernel("expected", "topic", "root")}, name
        pool = {(t, root) for t, roots in node.pool.items() for root in roots}
        assert pool == {*kernel("pool", "topic", "root")}, name
        ((total,),) = kernel("nodes", "bytes")
        assert node.pool_bytes == total <= self.options.max_pool_bytes, name
        peers = [
            (number(k), peer.reputation, peer.impolite, len(peer.leaves), peer.leaves)
            for k, peer in sorted(node.peers.items())
        ]
        rows = kernel("peers", "peer", "reputation", "impolite", "count", "heads")
        assert peers == [(*row[:4], tuple(h.tobytes() for h in row[4][: row[3]])) for row in rows], name
        if self.options.topology == "from_to":
            interests = [[*sorted(map(label, peer.interests))] for _, peer in sorted(node.peers.items())]
            told = [sorted(n for n in row.tolist() if n != NO_INTEREST) for (row,) in kernel("peers", "interests")]
            assert interests == told, name
        flags = {
            (number(k), *key): bit for k, peer in node.peers.items() for bit, keys in flagged(peer) for key in keys
        }
        mine = {row[:3]: row[3] for row in kernel("seen", "peer", "topic", "root", "flags")}
        assert mine.keys() == flags.keys(), name
        for (k, *key), bits in mine.items():
            peer = node.peers[self.names[k]]
            there = sum(int(bit) for bit, keys in flagged(peer) if tuple(key) in keys)
            assert there == bits, (name, self.names[k])
        assert sorted((number(k), until) for k, until in node.banned.items()) == kernel("banned", "peer", "until"), name


def _events(own: Arrived) -> list[tuple[Any, ...]]:
    kinds = {
        Declaration: "heads",
        Garbled: "heads",
        Envelope: "queues",
        Subscriptions: "subscriptions",
        Sketch: "sketches",
        More: "more",
        Ask: "asks",
    }
    return [
        *(("disconnect", k) for k in own.left),
        *(("connect", k, salt) for k, salt in own.came),
        *((kinds[type(m)], k, m) for k, m in own.said),
        *(("answers", "who", m) for m in own.answers),
    ]
