"""The kernel's state machine as nodes of the oracle's network: one state of all nodes, an event of one at a time."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from causeway_proofs.sketches import Minisketch
from causeway_proofs.substrate import ordered_root

from causeway.core.frame import Frame, concat
from causeway.gossip.fallback import complete_prefix, fallback_requests, is_in_pool
from causeway.gossip.options import GossipOptions
from causeway.gossip.queues import needs_hashing
from causeway.gossip.reconcile import CHECK
from causeway.gossip.state import (
    EXCUSED,
    FRESH,
    RECEIVED,
    SENT,
    GossipState,
    start_nodes,
    state_from_tables,
    state_to_tables,
)
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import QUEUE, StepOutput
from causeway.protocols.relay_chain.errors import PeerVerdict as Code
from causeway.protocols.shared.digests import digests
from tests.spec.icmp.candidates import Found
from tests.spec.icmp.errors import IcmpError
from tests.spec.icmp.events import Fetch, Got, Heads, Leaf, NodeId, Peer, Pool, Read, Reported, Row, Sent, Verdict
from tests.spec.icmp.gossip_nodes import Client, Nodes, Said
from tests.spec.icmp.network import messages_hash
from tests.spec.icmp.node import Key, PeerState, Unrouted, topic_of
from tests.spec.icmp.options import MAX_CHAIN_HEADS, Options
from tests.spec.icmp.packets import Declaration, Envelope, Out, Wanted
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.wire import decode

NEVER = 2**40
"""A purge interval that is over only when a test says so."""

VERDICTS: dict[Code, tuple[Verdict, str | None]] = {
    Code.OK: ("good", None),
    Code.UnexpectedQueue: ("wasteful", "UnexpectedQueue"),
    Code.RootMismatch: ("wasteful", "RootMismatch"),
    Code.Duplicate: ("duplicate", None),
    Code.Impolite: ("disallowed", "Impolite"),
}


def flagged(peer: PeerState) -> tuple[tuple[Any, set[Key]], ...]:
    """The kernel's flags of what is seen with a peer, and the oracle's sets."""
    return (RECEIVED, peer.received), (SENT, peer.sent), (FRESH, peer.fresh), (EXCUSED, peer.excused)


def number(name: NodeId) -> int:
    """Names order like their numbers."""
    return int.from_bytes(name.encode()[:4].ljust(4, b"\0"), "big")


def kernel_options(options: Options) -> GossipOptions:
    names = (
        "topic_mode",
        "reconciliation",
        "heads_diff",
        "ancestors",
        "mistrust_unimplied",
        "propagate_on_leaf",
        "allowed_by",
        "seen_until",
        "impolite_limit",
        "fallback_request",
        "fallback_after",
    )
    return GossipOptions.model_validate(
        {
            **{name: getattr(options, name) for name in names},
            "least_reputation": -NEVER,
            "most_reputation": NEVER,
            "ban_time": 0,
            "purge_interval": NEVER,
        }
    )


def arrived(pair: Frame, m: Envelope) -> Frame:
    return pair.with_columns(
        **column("topic", m.topic),
        **column("root", m.root),
        messages=np.array([len(m.messages)], dtype=np.uint64),
        size=np.array([m.size], dtype=np.uint64),
        malformed=np.zeros(1, dtype=bool),
    )


def column(name: str, *values: bytes) -> dict[str, np.ndarray]:
    return {name: digests(list(values))}


class KernelNodes:
    def __init__(self, options: Options) -> None:
        self.options, self.rules = options, kernel_options(options)
        self.clients: dict[NodeId, Client] = {}
        self.collates: dict[NodeId, frozenset[ParaId]] = {}
        self.kept: dict[NodeId, dict[Hash, tuple[bytes, ...]]] = {}
        self.bodies: dict[Hash, tuple[bytes, ...]] = {}
        self.names: dict[int, NodeId] = {}
        self.state: GossipState = start_nodes(np.empty(0, np.uint32), self.rules)
        self._tables = self.state, state_to_tables(self.state)

    def add(self, name: NodeId, collates: frozenset[ParaId], client: Client) -> None:
        self.clients[name], self.collates[name], self.kept[name] = client, collates, {}
        self._number(name)
        both = (
            state_to_tables(self.state),
            state_to_tables(start_nodes(np.array([number(name)], np.uint32), self.rules)),
        )
        self.state = state_from_tables({table: concat([some[table] for some in both]) for table in both[0]})

    def _number(self, name: NodeId) -> int:
        assert self.names.setdefault(number(name), name) == name
        return number(name)

    def keeps(self, name: NodeId, messages: Sequence[bytes]) -> None:
        self.kept[name][ordered_root(messages)] = tuple(messages)

    # what happens to a node

    def _step(self, inputs: StepInputs, now: int) -> StepOutput:
        self.state, out = step(self.state, inputs, now, self.rules)
        return out

    def _pair(self, name: NodeId, k: NodeId) -> Frame:
        numbers = (number(name), self._number(k))
        return Frame({key: np.array([n], np.uint32) for key, n in zip(("node", "peer"), numbers, strict=True)})

    def connect(self, name: NodeId, now: int, k: NodeId, salt: Hash) -> Out:
        pair = self._pair(name, k).with_columns(**column("salt", salt))
        return self._told(name, now, self._step(StepInputs(connect=pair), now), [Peer(name, k, now, "connect")])

    def disconnect(self, name: NodeId, now: int, k: NodeId) -> Out:
        self._step(StepInputs(disconnect=self._pair(name, k)), now)
        return Out(rows=[Peer(name, k, now, "disconnect")])

    def new_leaf(self, name: NodeId, now: int) -> Out:
        client, before = self.clients[name], set(self.leaves(name))
        viewed = {row.tobytes() for row in self._mine("own", name)["hash"]}
        leaves = client.leaves()
        best = sorted(leaves, key=lambda block: (-block.number, block.hash))[:MAX_CHAIN_HEADS]
        older = np.zeros((len(leaves), self.options.ancestors, 32), dtype=np.uint8)
        for row, leaf in enumerate(leaves):
            parent = client.parent(leaf.hash)
            for depth in range(self.options.ancestors):
                if parent is not None:
                    older[row, depth] = np.frombuffer(parent, dtype=np.uint8)
                    parent = client.parent(parent)
        listed = [(leaf.hash, u) for leaf in leaves for u in client.unrouted(leaf.hash)]
        unrouted = Frame(
            {
                **column("block", *(block for block, _ in listed)),
                **column("issued", *(u.block for _, u in listed)),
                **column("root", *(u.root for _, u in listed)),
            },
            len(listed),
        )
        numbers = np.array([leaf.number for leaf in leaves], dtype=np.uint64)
        blocks = Frame({**column("hash", *(leaf.hash for leaf in leaves)), "number": numbers, "ancestors": older})
        mine = Frame({"node": np.full(len(leaves), number(name), np.uint32), "hash": blocks["hash"]})
        out = self._told(name, now, self._step(StepInputs(leaves=(mine, blocks, unrouted)), now), [])
        told: list[Row] = [Leaf(name, now, tuple(self.leaves(name)))]
        told += [Read(name, now, block.hash) for block in best if block.hash not in viewed]
        new = [block for block in self.leaves(name) if block not in before]
        kept = self.kept[name]
        roots = sorted({u.root for B in new for p in self.collates[name] for u in client.egress(B, p)} & kept.keys())
        rows = Frame(
            {
                "node": np.full(len(roots), number(name), np.uint32),
                **column("root", *roots),
                "size": np.array([sum(map(len, kept[root])) for root in roots], dtype=np.uint64),
            },
            len(roots),
        )
        self.bodies |= {root: kept[root] for root in roots}
        own = self._told(name, now, self._step(StepInputs(kept=rows), now), [])
        return Out(out.packets + own.packets, told + out.rows + own.rows)

    def said(self, name: NodeId, now: int, k: NodeId, packet: Said) -> Out:
        malformed = False
        if isinstance(packet, tuple):
            try:
                packet = decode(*packet)
            except IcmpError:
                packet, malformed = Declaration(()), True
        if isinstance(packet, Declaration):
            return self._heads(name, now, k, packet, malformed)
        if isinstance(packet, Envelope):
            return self._queue(name, now, k, packet)
        pair = self._pair(name, k)
        if isinstance(packet, Ask):
            rows = pair.take(np.zeros(len(packet.ids), np.int64)).with_columns(id=np.array(packet.ids, np.uint64))
            return self._told(name, now, self._step(StepInputs(asks=rows), now), [])
        assert isinstance(packet, Sketch | More)
        pair = pair.with_columns(capacity=np.array([packet.capacity], dtype=np.uint64))
        if isinstance(packet, More):
            return self._told(name, now, self._step(StepInputs(more=pair), now), [])
        rows = pair.with_columns(sketch=pa.array([serialized(packet)], pa.large_binary()))
        return self._told(name, now, self._step(StepInputs(sketches=rows), now), [])

    def _heads(self, name: NodeId, now: int, k: NodeId, packet: Declaration, malformed: bool) -> Out:
        heads = np.zeros((1, MAX_CHAIN_HEADS, 32), dtype=np.uint8)
        for place, head in enumerate(packet.heads[:MAX_CHAIN_HEADS]):
            heads[0, place] = np.frombuffer(head, dtype=np.uint8)
        count = np.array([len(packet.heads)], dtype=np.uint64)
        rows = self._pair(name, k).with_columns(count=count, heads=heads, malformed=np.array([malformed]))
        out = self._step(StepInputs(heads=rows), now)
        code, change = Code(int(out.verdicts["code"][0])), int(out.verdicts["change"][0])
        told: list[Row] = []
        if code is not Code.Malformed:
            told.append(Heads(name, k, now, packet.heads, code.name if code else None))
        told += [Reported(name, k, now, code.name, change)] if code else []
        return self._told(name, now, out, told)

    def _queue(self, name: NodeId, now: int, k: NodeId, m: Envelope) -> Out:
        rows = arrived(self._pair(name, k), m)
        # What need not be hashed is refused whatever its body is: also if that would be right.
        asked = bool(needs_hashing(self.state, rows, self.rules)[0])
        found = ordered_root(m.messages) if asked else m.root
        out = self._step(StepInputs(queues=rows.with_columns(**column("found", found))), now)
        assert out.verdicts["kind"].tolist() == [QUEUE]
        verdict, error = VERDICTS[Code(int(out.verdicts["code"][0]))]
        if verdict == "good":
            self.bodies[m.root] = m.messages
            assert asked and out.beneficial["size"].tolist() == [m.size]
        got = Got(name, k, now, m.topic, m.root, m.size, verdict, error, int(out.verdicts["change"][0]), 0)
        return self._told(name, now, out, [got])

    def purge(self, name: NodeId, now: int) -> Out:
        due = np.where(self.state.nodes["node"] == number(name), 0, 2 * NEVER).astype(np.uint64)
        self.state = replace(self.state, nodes=self.state.nodes.with_columns(purge=due))
        out = self._step(StepInputs(), now)
        keys = sorted((t.tobytes(), root.tobytes()) for t, root in zip(*both(out.purged), strict=True))
        return Out(
            rows=[*(Pool(name, now, t, root, "purge") for t, root in keys), Pool(name, now, None, None, "sweep")]
        )

    def _told(self, name: NodeId, now: int, out: StepOutput, rows: Sequence[Row]) -> Out:
        """What goes out of one step of one node, with its rows, which come after others."""
        found = Out(rows=[*rows])
        for frame in (out.heads, out.queues, out.disconnected, out.got):
            assert {*frame["node"].tolist()} <= {number(name)}
        for peer, count, heads in zip(out.heads["peer"], out.heads["count"], out.heads["heads"], strict=True):
            declared = Declaration(tuple(head.tobytes() for head in heads[: int(count)]))
            found.packets.append((self.names[int(peer)], declared))
        for topic, root in zip(*both(out.got), strict=True):
            body = self.bodies[root.tobytes()]
            found.rows.append(Pool(name, now, topic.tobytes(), root.tobytes(), "put", messages_hash(body)))
        for peer, topic, root in zip(out.queues["peer"], *both(out.queues), strict=True):
            k, m = self.names[int(peer)], self._envelope(topic.tobytes(), root.tobytes())
            found.packets.append((k, m))
            found.rows.append(Sent(name, k, now, m.topic, m.root, m.size, 0))
        for peer, capacity, data in rows_of(out.sketches, "peer", "capacity", "sketch"):
            found.packets.append((self.names[peer], RawSketch(capacity, data)))  # type: ignore[arg-type]
        for peer, capacity in rows_of(out.more, "peer", "capacity"):
            found.packets.append((self.names[peer], More(capacity)))
        asked: dict[int, list[int]] = {}
        for peer, number_ in rows_of(out.asks, "peer", "id"):
            asked.setdefault(peer, []).append(number_)
        found.packets += [(self.names[peer], Ask(tuple(ids))) for peer, ids in asked.items()]
        found.dropped = [self.names[int(peer)] for peer in out.disconnected["peer"]]
        return found

    def _envelope(self, topic: Hash, root: Hash) -> Envelope:
        return Envelope(topic, root, self.bodies[root])

    # collecting

    def _wanted(self, name: NodeId, B: Hash, p: ParaId) -> tuple[list[Unrouted], Frame]:  # noqa: N803
        wanted = self.clients[name].ingress(B, p)
        columns = {
            "node": np.full(len(wanted), number(name), np.uint32),
            "para": np.full(len(wanted), p, np.uint32),
            "number": np.array([u.number for u in wanted], dtype=np.uint64),
            **column("topic", *(topic_of(self.options, u) for u in wanted)),
            **column("root", *(u.root for u in wanted)),
        }
        return wanted, Frame(columns, len(wanted))

    def fetch(self, name: NodeId, now: int, B: Hash, p: ParaId) -> tuple[Out, Found]:  # noqa: N803
        wanted, rows = self._wanted(name, B, p)
        there, prefix = is_in_pool(self.state, rows), complete_prefix(self.state, rows)
        found: Found = {(u.number, u.root): self.bodies[u.root] for u, yes in zip(wanted, there, strict=True) if yes}
        blocks = tuple(dict.fromkeys(u.number for u in wanted))
        whole = tuple(dict.fromkeys(u.number for u, yes in zip(wanted, prefix, strict=True) if yes))
        return Out(rows=[Read(name, now, B), Fetch(name, now, B, p, blocks, whole)]), found

    def requests(self, name: NodeId, B: Hash, p: ParaId, waited: int) -> list[Wanted]:  # noqa: N803
        wanted, rows = self._wanted(name, B, p)
        asked = fallback_requests(self.state, rows, np.full(len(rows), waited, np.uint64), self.rules)
        return [(u.number, u.sender, u.root) for u, yes in zip(wanted, asked, strict=True) if yes]

    def on_request(self, name: NodeId, root: Hash) -> tuple[bytes, ...] | None:
        return self.kept[name].get(root)

    def on_answer(self, name: NodeId, now: int, m: Envelope) -> tuple[Out, str | None]:
        rows = arrived(self._pair(name, "who"), m).with_columns(**column("found", ordered_root(m.messages)))
        out = self._step(StepInputs(answers=rows), now)
        code = Code(int(out.verdicts["code"][0]))
        self.bodies |= {m.root: m.messages} if code is Code.OK else {}
        return self._told(name, now, out, []), code.name if code else None

    # what a test looks at

    def _mine(self, table: str, name: NodeId) -> Frame:
        if self._tables[0] is not self.state:
            self._tables = self.state, state_to_tables(self.state)
        frame = self._tables[1][table]
        return frame.filter(frame["node"] == number(name))

    def pool(self, name: NodeId) -> dict[Key, tuple[bytes, ...]]:
        return {key: self.bodies[key[1]] for key in self._keys("pool", name)}

    def _keys(self, table: str, name: NodeId) -> list[Key]:
        frame = self._mine(table, name)
        return [(t.tobytes(), root.tobytes()) for t, root in zip(*both(frame), strict=True)]

    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]:
        found: dict[Hash, set[Hash]] = {}
        for topic, root in self._keys("expected", name):
            found.setdefault(topic, set()).add(root)
        return found

    def leaves(self, name: NodeId) -> Sequence[Hash]:
        state = self.state
        leaf = state.leaf[int(state.nodes["node"].searchsorted(number(name)))]
        return tuple(state.listed.blocks[block].tobytes() for block in leaf if block != state.listed.nothing)

    def held(self, name: NodeId) -> int:
        """The bytes of the arrays that a peer's messages could make longer."""
        state = self.state
        arrays = (state.pool, state.seen, state.listed.roots, state.listed.topics, state.listed.lists, state.own.blocks)
        return sum(array.nbytes for array in (*arrays, *(state.peers[name] for name in state.peers.names)))


@dataclass(frozen=True)
class RawSketch:
    """A sketch as it travels."""

    capacity: int
    data: bytes


def serialized(packet: Sketch) -> bytes:
    sketch = Minisketch(32, packet.capacity + CHECK)
    sketch.add_all(sorted(packet.elements))
    return sketch.serialize()


def rows_of(frame: Frame, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(frame[name].tolist() for name in names), strict=True)


def both(frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    return frame["topic"], frame["root"]


class BothNodes:
    """Oracle and kernel on the same events: after each they must have said the same and be in the same state."""

    def __init__(self, options: Options) -> None:
        self.oracle, self.kernel = Nodes(options), KernelNodes(options)

    def add(self, name: NodeId, collates: frozenset[ParaId], client: Client) -> None:
        self.oracle.add(name, collates, client)
        self.kernel.add(name, collates, client)

    def keeps(self, name: NodeId, messages: Sequence[bytes]) -> None:
        self.oracle.keeps(name, messages)
        self.kernel.keeps(name, messages)

    def _same(self, name: NodeId, one: Out, other: Out) -> Out:
        assert [(k, RawSketch(m.capacity, serialized(m)) if isinstance(m, Sketch) else m) for k, m in one.packets] == (
            other.packets
        )
        assert one.dropped == other.dropped
        assert comparable(one) == comparable(other)
        node, state = self.oracle.nodes[name], self.kernel.state
        assert node.leaves == self.kernel.leaves(name)
        assert {*node.views} == {row.tobytes() for row in self.kernel._mine("own", name)["hash"]}
        pairs = {(t, root) for t, roots in node.expected.items() for root in roots}
        assert pairs == {*self.kernel._keys("expected", name)}
        assert self.oracle.pool(name) == self.kernel.pool(name)
        mine = np.flatnonzero(state.peers["node"] == number(name))
        # The oracle's network disconnects from those whom a node drops, after the event.
        peers = {k: peer for k, peer in sorted(node.peers.items()) if k not in one.dropped}
        assert [*peers] == [self.kernel.names[int(k)] for k in state.peers["peer"][mine]]
        for row, peer in zip(mine.tolist(), peers.values(), strict=True):
            heads = state.peers["heads"][row, : int(state.peers["count"][row])]
            assert peer.leaves == tuple(head.tobytes() for head in heads)
            assert peer.impolite == state.peers["impolite"][row] and peer.reputation == state.peers["reputation"][row]
            for flag, keys in flagged(peer):
                queues = np.flatnonzero(state.seen[row] & flag)
                listed = state.listed
                topics, roots = listed.topics[listed.topic_of[queues]], listed.roots[listed.root_of[queues]]
                assert keys == {(t.tobytes(), root.tobytes()) for t, root in zip(topics, roots, strict=True)}
        return one

    def connect(self, name: NodeId, now: int, k: NodeId, salt: Hash) -> Out:
        return self._same(name, self.oracle.connect(name, now, k, salt), self.kernel.connect(name, now, k, salt))

    def disconnect(self, name: NodeId, now: int, k: NodeId) -> Out:
        return self._same(name, self.oracle.disconnect(name, now, k), self.kernel.disconnect(name, now, k))

    def new_leaf(self, name: NodeId, now: int) -> Out:
        return self._same(name, self.oracle.new_leaf(name, now), self.kernel.new_leaf(name, now))

    def said(self, name: NodeId, now: int, k: NodeId, packet: Said) -> Out:
        return self._same(name, self.oracle.said(name, now, k, packet), self.kernel.said(name, now, k, packet))

    def purge(self, name: NodeId, now: int) -> Out:
        return self._same(name, self.oracle.purge(name, now), self.kernel.purge(name, now))

    def fetch(self, name: NodeId, now: int, B: Hash, p: ParaId) -> tuple[Out, Found]:  # noqa: N803
        (one, found), (other, again) = self.oracle.fetch(name, now, B, p), self.kernel.fetch(name, now, B, p)
        assert found == again
        return self._same(name, one, other), found

    def requests(self, name: NodeId, B: Hash, p: ParaId, waited: int) -> list[Wanted]:  # noqa: N803
        found = self.oracle.requests(name, B, p, waited)
        assert found == self.kernel.requests(name, B, p, waited)
        return found

    def on_request(self, name: NodeId, root: Hash) -> tuple[bytes, ...] | None:
        found = self.oracle.on_request(name, root)
        assert found == self.kernel.on_request(name, root)
        return found

    def on_answer(self, name: NodeId, now: int, m: Envelope) -> tuple[Out, str | None]:
        (one, error), (other, again) = self.oracle.on_answer(name, now, m), self.kernel.on_answer(name, now, m)
        assert error == again
        return self._same(name, one, other), error

    def pool(self, name: NodeId) -> dict[Key, tuple[bytes, ...]]:
        return self.oracle.pool(name)

    def expected(self, name: NodeId) -> Mapping[Hash, Collection[Hash]]:
        return self.oracle.expected(name)

    def leaves(self, name: NodeId) -> Sequence[Hash]:
        return self.oracle.leaves(name)

    def held(self, name: NodeId) -> int:
        return self.kernel.held(name)


def comparable(out: Out) -> list[Row]:
    """The rows of what happened. Table accesses are the oracle's to count, and the kernel may know a block already."""
    rows = [row for row in out.rows if not isinstance(row, Read)]
    return [replace(row, accesses=0) if isinstance(row, Sent | Got) else row for row in rows]
