"""Gossip node without sockets and clocks, driven step by step (ICMP reference 3.5 to 3.9).

The state machine (``gossip.step``) knows queues only by their roots; this module keeps their bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from causeway_proofs.errors import OverLimit
from causeway_proofs.substrate.egress import GossipedQueue, NeighborPacket, decode_gossip, egress_root
from causeway_proofs.substrate.errors import BadNeighborPacket, Malformed

from causeway.core.frame import Frame
from causeway.gossip.fallback import complete_prefix
from causeway.gossip.listings import Mask, queue_topics
from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import NO_TOPIC, WireError, decode_message, encode_message, message_limit
from causeway.gossip.processes.step_trace import (
    NO_DIGEST,
    QUEUE,
    TOO_MANY_HEADS,
    ArrivedQueue,
    Got,
    ImportedBlock,
    NeighborDeclaration,
    Packet,
    StepTrace,
    outgoing_packets,
    queue_arrivals,
    step_inputs,
)
from causeway.gossip.queues import needs_hashing
from causeway.gossip.state import start_nodes
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import StepOutput, admit_packets, merge_outputs
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.digests import digests, list_digests

_QUEUE_KIND = b"\x03"

Wanted = tuple[int, int, bytes, bytes]
"""Consumable queue: parachain, number of its relay block, the block's hash, root."""


@dataclass(frozen=True)
class LeavesUpdate:
    """Change of leaves, as reported by the relay chain client.

    Attributes:
        leaves: Hashes of all leaves.
        blocks: The leaves that are new to the node.
        kept: Messages of the node's own egress queues, by root.
        wanted: Consumable queues of the node's parachains by new leaf, in any order.
    """

    leaves: tuple[bytes, ...]
    blocks: tuple[ImportedBlock, ...] = ()
    kept: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    wanted: Mapping[bytes, tuple[Wanted, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StepFrames:
    """Output of a step.

    Bodies to send by peer, in order; peers to disconnect with the reason; new queues.
    """

    sends: Sequence[tuple[int, bytes]]
    disconnected: Sequence[tuple[int, str]]
    got: Sequence[Got]


class GossipNode:
    """Gossip node.

    Args:
        node: Number of the node.
        options: Options of gossip.
        time: Start time in ms.
        record: Callback for each step before its output leaves the node: the step's input, the new
            queues, and the packets of those that came from peers, by root.
    """

    def __init__(
        self,
        node: int,
        options: GossipOptions,
        time: int,
        record: Callable[[StepTrace, Sequence[Got], Mapping[bytes, bytes]], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Counters by name.

        ``got`` and ``sent`` queues, verdicts, bytes of queues in and out; ``passed`` counts the queues that
        were routed before they arrived.
        """
        self._node, self._options, self._record = node, options, record
        self._limit = message_limit(options)
        # All nodes purge at multiples of the interval, independent of their start.
        self._purge = time - time % options.purge_interval
        self._state, _ = step(
            start_nodes(np.array([node], dtype=np.uint32), options), StepInputs(), self._purge, options
        )
        self._purge += options.purge_interval
        self._time = time
        self._pending = StepTrace(time)
        self._kept: dict[bytes, tuple[int, bytes, int]] = {}
        self._bodies: dict[bytes, bytes] = {}
        # Encoded messages, shared by all peers.
        self._messages: dict[Got, bytes] = {}
        self._blocks: dict[bytes, ImportedBlock] = {}
        self._wanted: dict[bytes, tuple[Wanted, ...]] = {}

    def joined(self, peer: int, session: bytes) -> None:
        """Record a new peer for the next step."""
        self._pending = replace(self._pending, came=(*self._pending.came, (peer, session)))

    def left(self, peer: int) -> None:
        """Record a disconnected peer; a step processes disconnections before connections."""
        came = tuple(row for row in self._pending.came if row[0] != peer)
        self._pending = replace(self._pending, left=(*self._pending.left, peer), came=came)

    def record_leaves(self, update: LeavesUpdate) -> None:
        """Record new leaves for the next step."""
        self._blocks |= {block.hash: block for block in update.blocks}
        self._blocks = {leaf: self._blocks[leaf] for leaf in update.leaves}
        self._wanted = {leaf: rows for leaf, rows in {**self._wanted, **update.wanted}.items() if leaf in self._blocks}
        height = max((block.number for block in self._blocks.values()), default=0)
        for root, messages in update.kept.items():
            packet = GossipedQueue(root, messages).encode()
            self._kept[root] = (height, packet, sum(map(len, messages)))
        self._prune_own_queues()
        own_queues = tuple((root, size) for root, (_, _, size) in self._kept.items())
        self._pending = replace(
            self._pending, leaves=update.leaves, blocks=tuple(self._blocks.values()), kept=own_queues
        )

    def _prune_own_queues(self) -> None:
        """Keep own queues that a leaf lists, or that are recent relative to the lowest leaf."""
        listed = {root for block in self._blocks.values() for _, root in block.unrouted}
        lowest = min((block.number for block in self._blocks.values()), default=0)
        self._kept = {root: row for root, row in self._kept.items() if root in listed or row[0] + 2 >= lowest}

    @property
    def has_input(self) -> bool:
        """True if the next step has input other than peers' packets."""
        return self._pending != StepTrace(self._pending.time)

    @property
    def purge_due(self) -> int:
        """Time of the next purge in ms."""
        return self._purge

    def admits(self, waiting: Sequence[tuple[int, int]]) -> list[bool]:
        """Return a mask of the pending bodies that the next step accepts.

        Args:
            waiting: Peer and size in bytes of each body, in order of arrival.
        """
        if not waiting:
            return []
        peer = np.array([peer for peer, _ in waiting], dtype=np.uint32)
        size = np.array([size for _, size in waiting], dtype=np.uint64)
        node = np.full(len(waiting), self._node, dtype=np.uint32)
        rows = Frame({"node": node, "peer": peer, "size": size}, len(waiting))
        found: list[bool] = admit_packets(rows, self._options).tolist()
        return found

    def step(self, time: int, heard: Sequence[tuple[int, bytes]] = ()) -> StepFrames:
        """Process all input since the last step; overdue purges run first, each at its own time.

        Args:
            time: Time in ms; it never falls.
            heard: Peer and body of each message, in order.
        """
        self._time = max(time, self._time)
        while self._purge <= self._time:
            self._run(StepTrace(self._purge), {})
            self._purge += self._options.purge_interval
        declared, arrived, bodies = self._decode(heard)
        inputs = replace(self._pending, time=self._time, declared=declared)
        self._pending = StepTrace(self._time)
        return self._run(replace(inputs, arrived=arrived), bodies)

    def _decode(
        self, heard: Sequence[tuple[int, bytes]]
    ) -> tuple[tuple[NeighborDeclaration, ...], tuple[ArrivedQueue, ...], dict[int, tuple[bytes, tuple[bytes, ...]]]]:
        """Decode bodies to declarations and queues; return readable queues' bytes by position."""
        declared: list[NeighborDeclaration] = []
        arrived: list[ArrivedQueue] = []
        bodies: dict[int, tuple[bytes, tuple[bytes, ...]]] = {}
        for peer, body in heard:
            packet = b""
            try:
                topic, packet = decode_message(body)
                read = decode_gossip(packet, self._limit)
            except BadNeighborPacket:
                declared.append(NeighborDeclaration(peer, (), TOO_MANY_HEADS))
            except (WireError, Malformed, OverLimit):
                if packet[:1] == _QUEUE_KIND:
                    arrived.append(ArrivedQueue(peer, NO_DIGEST, NO_DIGEST, 0, len(packet), malformed=True))
                else:
                    declared.append(NeighborDeclaration(peer, (), 0, malformed=True))
            else:
                if isinstance(read, NeighborPacket):
                    declared.append(NeighborDeclaration(peer, read.chain_heads, len(read.chain_heads)))
                else:
                    size = sum(map(len, read.messages))
                    bodies[len(arrived)] = packet, read.messages
                    arrived.append(ArrivedQueue(peer, topic, read.root, len(read.messages), size))
        return tuple(declared), tuple(arrived), bodies

    def _run(self, inputs: StepTrace, bodies: Mapping[int, tuple[bytes, tuple[bytes, ...]]]) -> StepFrames:
        """Run one step in two parts: queues are verified against the expectations of all other input."""
        missing = self._missing() if inputs.leaves is not None else set()
        alone = [(self._node, replace(inputs, arrived=()))]
        self._state, first = step(self._state, step_inputs(alone, self._options), inputs.time, self._options)
        arrived = [*inputs.arrived]
        rows = queue_arrivals([(self._node, row) for row in arrived])
        out = first
        if rows is not None:
            for at in needs_hashing(self._state, rows, self._options).nonzero()[0].tolist():
                arrived[at] = replace(arrived[at], found=self._compute_root(arrived[at].root, *bodies[at]))
            rows = queue_arrivals([(self._node, row) for row in arrived])
            self._state, then = step(self._state, StepInputs(queues=rows), inputs.time, self._options)
            out = merge_outputs([first, then])
        inputs = replace(inputs, arrived=tuple(arrived))
        return self._build_frames(inputs, out, bodies, missing)

    def _compute_root(self, declared: bytes, packet: bytes, messages: tuple[bytes, ...]) -> bytes:
        """Compute the root of messages, unless identical bytes were verified before."""
        return declared if self._bodies.get(declared) == packet else egress_root(messages)

    def _build_frames(
        self,
        inputs: StepTrace,
        out: StepOutput,
        bodies: Mapping[int, tuple[bytes, tuple[bytes, ...]]],
        missing: set[bytes],
    ) -> StepFrames:
        got = [*zip(list_digests(out.got["topic"]), list_digests(out.got["root"]), strict=True)]
        rows = inputs.arrived
        came = {rows[at].root: packet for at, (packet, _) in bodies.items() if rows[at].found == rows[at].root}
        new = {root: came[root] for _, root in got if root in came}
        for _, root in got:
            self._bodies[root] = new[root] if root in new else self._kept[root][1]
        self._record(inputs, got, new)
        sends = [(peer, self._encode(packet)) for _, peer, packet in outgoing_packets(out)]
        if len(out.purged):
            listed = self._state.listed
            pooled = {*list_digests(listed.roots[np.unique(listed.root_of[self._state.pool[0]])])}
            self._bodies = {root: body for root, body in self._bodies.items() if root in pooled}
            self._messages = {queue: body for queue, body in self._messages.items() if queue[1] in pooled}
        self._count(inputs, out, {root for _, root in got}, missing)
        codes = [PeerVerdict(code).name for code in out.disconnected["code"].tolist()]
        return StepFrames(sends, [*zip(out.disconnected["peer"].tolist(), codes, strict=True)], got)

    def _encode(self, packet: Packet) -> bytes:
        if len(packet) == 3 and packet[0] == QUEUE:
            queue = packet[1], packet[2]
            if queue not in self._messages:
                self._messages[queue] = encode_message(packet[1], self._bodies[packet[2]])
            return self._messages[queue]
        return encode_message(NO_TOPIC, NeighborPacket(packet).encode())

    def _count(self, inputs: StepTrace, out: StepOutput, got: set[bytes], missing: set[bytes]) -> None:
        counts = self.counts
        counts["got"] += len(out.got)
        counts["sent"] += len(out.queues)
        counts["purged"] += len(out.purged)
        counts["bytes_in"] += sum(row.size for row in inputs.arrived)
        counts["bytes_out"] += sum(len(self._bodies.get(root, b"")) for root in list_digests(out.queues["root"]))
        for code in out.verdicts["code"].tolist():
            counts[PeerVerdict(code).name] += 1
        wanted = missing - got
        if wanted:
            counts["passed"] += len(wanted - self._expected_roots())

    def _expected(self) -> Mask:
        mask: Mask = self._state.own.expected[self._state.own.set_of][0]
        return mask

    def _expected_roots(self) -> set[bytes]:
        listed = self._state.listed
        return {*list_digests(listed.roots[np.unique(listed.root_of[self._expected()])])}

    def _missing(self) -> set[bytes]:
        listed = self._state.listed
        return {*list_digests(listed.roots[np.unique(listed.root_of[self._expected() & ~self._state.pool[0]])])}

    def standing(self) -> dict[str, int]:
        """Return the node's figures by name.

        ``leaves`` and ``peers``; ``expected`` queues listed by the leaves, ``there`` of them in the pool;
        ``pool`` queues and their ``pool_bytes``.
        """
        state, expected = self._state, self._expected()
        return {
            "leaves": int((state.leaf[0] != state.listed.nothing).sum()),
            "peers": len(state.peers),
            "expected": int(expected.sum()),
            "there": int((expected & state.pool[0]).sum()),
            "pool": int(state.pool[0].sum()),
            "pool_bytes": int(state.nodes["bytes"][0]),
        }

    def leaves(self) -> tuple[bytes, ...]:
        """Return the leaves of the node, the best first."""
        state = self._state
        rows = state.leaf[0][state.leaf[0] != state.listed.nothing]
        return tuple(list_digests(state.listed.blocks[rows]))

    def prefixes(self) -> dict[bytes, dict[int, int]]:
        """Return the consumable prefix of each parachain at each leaf (3.9).

        Returns:
            By leaf and parachain, the number of the last block whose queues and all before it are
            complete; absent if the first queue is missing.
        """
        rows = [(at, row) for at, leaf in enumerate(self._wanted) for row in self._wanted[leaf]]
        if not rows:
            return {}
        groups = [*{(at, row[0]): None for at, row in rows}]
        number = {key: place for place, key in enumerate(groups)}
        block_mode = self._options.topic_mode == "block"
        query = Frame(
            {
                "node": np.full(len(rows), self._node, dtype=np.uint32),
                "para": np.array([number[at, row[0]] for at, row in rows], dtype=np.uint32),
                "number": np.array([row[1] for _, row in rows], dtype=np.uint64),
                "topic": queue_topics(digests([row[2] if block_mode else row[3] for _, row in rows])),
                "root": digests([row[3] for _, row in rows]),
            },
            len(rows),
        )
        leaves = [*self._wanted]
        found: dict[bytes, dict[int, int]] = {}
        for good, (at, row) in zip(complete_prefix(self._state, query).tolist(), rows, strict=True):
            if good:
                last = found.setdefault(leaves[at], {})
                last[row[0]] = max(row[1], last.get(row[0], 0))
        return found
