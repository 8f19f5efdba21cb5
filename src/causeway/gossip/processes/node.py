"""A node without sockets and clocks: what came from peers and from its relay chain client, step by step (ICMP reference
3.5 to 3.9). The rules are the state machine's; here are the bytes that it only knows by their roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from causeway_proofs.errors import OverLimit
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS, GossipedQueue, NeighborPacket, decode_gossip, egress_root
from causeway_proofs.substrate.errors import BadNeighborPacket, Malformed

from causeway.core.frame import Frame
from causeway.gossip.fallback import complete_prefix
from causeway.gossip.listings import Mask, queue_topics
from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.connection import NO_TOPIC, WireError, decode_message, encode_message, message_limit
from causeway.gossip.processes.step_trace import (
    NO_DIGEST,
    QUEUE,
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

TOO_MANY_HEADS = MAX_CHAIN_HEADS + 1
"""Stands for the count of heads of a packet that declares more than may be."""

_QUEUE_KIND = b"\x03"

Wanted = tuple[int, int, bytes, bytes]
"""A queue that a parachain may consume: parachain, number of its relay block, that block's hash, root."""


@dataclass(frozen=True)
class LeavesUpdate:
    """What the relay chain client says when leaves change: all ``leaves``, the ``blocks`` among them that are new to
    the node, ``kept``: egress queues of its own chains, by root, and ``wanted``: what its chains may consume at each
    new leaf, in any order."""

    leaves: tuple[bytes, ...]
    blocks: tuple[ImportedBlock, ...] = ()
    kept: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    wanted: Mapping[bytes, tuple[Wanted, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class StepFrames:
    """What a step makes: bodies of frames by peer, in order; peers to disconnect, and for what; what was new."""

    sends: Sequence[tuple[int, bytes]]
    disconnected: Sequence[tuple[int, str]]
    got: Sequence[Got]


class GossipNode:
    """A node of number ``node``. ``record``: is given what each step takes before anything of it goes out, with the
    queues that it got and the packets of those that came from peers."""

    def __init__(
        self,
        node: int,
        options: GossipOptions,
        time: int,
        record: Callable[[StepTrace, Sequence[Got], Mapping[bytes, bytes]], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Queues ``got`` and ``sent``, verdicts by name, bytes of queues in and out, ``passed``: queues that were
        routed before the node had them."""
        self._node, self._options, self._record = node, options, record
        self._limit = message_limit(options)
        # All nodes purge at the multiples of the interval, whenever they begin.
        self._purge = time - time % options.purge_interval
        self._state, _ = step(
            start_nodes(np.array([node], dtype=np.uint32), options), StepInputs(), self._purge, options
        )
        self._purge += options.purge_interval
        self._time = time
        self._taken = StepTrace(time)
        self._kept: dict[bytes, tuple[int, bytes, int]] = {}
        self._bodies: dict[bytes, bytes] = {}
        # Each message once, however many peers it waits for.
        self._messages: dict[Got, bytes] = {}
        self._blocks: dict[bytes, ImportedBlock] = {}
        self._wanted: dict[bytes, tuple[Wanted, ...]] = {}

    # what came

    def joined(self, peer: int, session: bytes) -> None:
        """Take notice of a peer."""
        self._taken = replace(self._taken, came=(*self._taken.came, (peer, session)))

    def left(self, peer: int) -> None:
        """Take notice that a peer is gone: in a step, that comes before those who came."""
        came = tuple(row for row in self._taken.came if row[0] != peer)
        self._taken = replace(self._taken, left=(*self._taken.left, peer), came=came)

    def told(self, told: LeavesUpdate) -> None:
        """Take new leaves."""
        self._blocks |= {block.hash: block for block in told.blocks}
        self._blocks = {leaf: self._blocks[leaf] for leaf in told.leaves}
        self._wanted = {leaf: rows for leaf, rows in {**self._wanted, **told.wanted}.items() if leaf in self._blocks}
        height = max((block.number for block in self._blocks.values()), default=0)
        for root, messages in told.kept.items():
            packet = GossipedQueue(root, messages).encode()
            self._kept[root] = (height, packet, sum(map(len, messages)))
        self._forget_own()
        kept = tuple((root, size) for root, (_, _, size) in self._kept.items())
        self._taken = replace(self._taken, leaves=told.leaves, blocks=tuple(self._blocks.values()), kept=kept)

    def _forget_own(self) -> None:
        """Keep, of own queues, what a leaf lists, or was new when the lowest leaf's grandchild was."""
        listed = {root for block in self._blocks.values() for _, root in block.unrouted}
        lowest = min((block.number for block in self._blocks.values()), default=0)
        self._kept = {root: row for root, row in self._kept.items() if root in listed or row[0] + 2 >= lowest}

    @property
    def has_input(self) -> bool:
        """Return whether a step has anything to take besides what peers sent."""
        return self._taken != StepTrace(self._taken.time)

    @property
    def purge_due(self) -> int:
        """Return when the next purge is due."""
        return self._purge

    def admits(self, waiting: Sequence[tuple[int, int]]) -> list[bool]:
        """Return which bodies that wait (peer, bytes; in the order in which they came) the next step takes."""
        if not waiting:
            return []
        peer = np.array([peer for peer, _ in waiting], dtype=np.uint32)
        size = np.array([size for _, size in waiting], dtype=np.uint64)
        node = np.full(len(waiting), self._node, dtype=np.uint32)
        rows = Frame({"node": node, "peer": peer, "size": size}, len(waiting))
        found: list[bool] = admit_packets(rows, self._options).tolist()
        return found

    # steps

    def step(self, time: int, heard: Sequence[tuple[int, bytes]] = ()) -> StepFrames:
        """Take all that came, and these bodies of frames, in order; ``time`` (ms) never falls. Purges that were due
        before are made first, each at its own time."""
        self._time = max(time, self._time)
        while self._purge <= self._time:
            self._run(StepTrace(self._purge), {})
            self._purge += self._options.purge_interval
        declared, arrived, bodies = self._decoded(heard)
        taken = replace(self._taken, time=self._time, declared=declared)
        self._taken = StepTrace(self._time)
        return self._run(replace(taken, arrived=arrived), bodies)

    def _decoded(
        self, heard: Sequence[tuple[int, bytes]]
    ) -> tuple[tuple[NeighborDeclaration, ...], tuple[ArrivedQueue, ...], dict[int, tuple[bytes, tuple[bytes, ...]]]]:
        """Return packets and queues, and of each queue that could be read, by its place, packet and messages."""
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

    def _run(self, taken: StepTrace, bodies: Mapping[int, tuple[bytes, tuple[bytes, ...]]]) -> StepFrames:
        """Take a step. What is expected follows from all that comes before queues in a step, so that is taken first."""
        missing = self._missing() if taken.leaves is not None else set()
        alone = [(self._node, replace(taken, arrived=()))]
        self._state, first = step(self._state, step_inputs(alone, self._options), taken.time, self._options)
        arrived = [*taken.arrived]
        rows = queue_arrivals([(self._node, row) for row in arrived])
        out = first
        if rows is not None:
            for at in needs_hashing(self._state, rows, self._options).nonzero()[0].tolist():
                arrived[at] = replace(arrived[at], found=self._root_of(arrived[at].root, *bodies[at]))
            rows = queue_arrivals([(self._node, row) for row in arrived])
            self._state, then = step(self._state, StepInputs(queues=rows), taken.time, self._options)
            out = merge_outputs([first, then])
        taken = replace(taken, arrived=tuple(arrived))
        return self._made(taken, out, bodies, missing)

    def _root_of(self, said: bytes, packet: bytes, messages: tuple[bytes, ...]) -> bytes:
        """Return R of messages; the very bytes that were verified before need not be hashed again."""
        return said if self._bodies.get(said) == packet else egress_root(messages)

    def _made(
        self,
        taken: StepTrace,
        out: StepOutput,
        bodies: Mapping[int, tuple[bytes, tuple[bytes, ...]]],
        missing: set[bytes],
    ) -> StepFrames:
        got = [*zip(list_digests(out.got["topic"]), list_digests(out.got["root"]), strict=True)]
        rows = taken.arrived
        came = {rows[at].root: packet for at, (packet, _) in bodies.items() if rows[at].found == rows[at].root}
        new = {root: came[root] for _, root in got if root in came}
        for _, root in got:
            self._bodies[root] = new[root] if root in new else self._kept[root][1]
        self._record(taken, got, new)
        sends = [(peer, self._encoded(packet)) for _, peer, packet in outgoing_packets(out)]
        if len(out.purged):
            listed = self._state.listed
            held = {*list_digests(listed.roots[np.unique(listed.root_of[self._state.pool[0]])])}
            self._bodies = {root: body for root, body in self._bodies.items() if root in held}
            self._messages = {queue: body for queue, body in self._messages.items() if queue[1] in held}
        self._count(taken, out, {root for _, root in got}, missing)
        codes = [PeerVerdict(code).name for code in out.disconnected["code"].tolist()]
        return StepFrames(sends, [*zip(out.disconnected["peer"].tolist(), codes, strict=True)], got)

    def _encoded(self, packet: Packet) -> bytes:
        if len(packet) == 3 and packet[0] == QUEUE:
            queue = packet[1], packet[2]
            if queue not in self._messages:
                self._messages[queue] = encode_message(packet[1], self._bodies[packet[2]])
            return self._messages[queue]
        return encode_message(NO_TOPIC, NeighborPacket(packet).encode())

    def _count(self, taken: StepTrace, out: StepOutput, got: set[bytes], missing: set[bytes]) -> None:
        counts = self.counts
        counts["got"] += len(out.got)
        counts["sent"] += len(out.queues)
        counts["purged"] += len(out.purged)
        counts["bytes_in"] += sum(row.size for row in taken.arrived)
        counts["bytes_out"] += sum(len(self._bodies.get(root, b"")) for root in list_digests(out.queues["root"]))
        for code in out.verdicts["code"].tolist():
            counts[PeerVerdict(code).name] += 1
        wanted = missing - got
        if wanted:
            counts["passed"] += len(wanted - self._expected_roots())

    # what a node says of itself

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
        """Return how many leaves and peers the node has, how many queues its leaves list (``expected``), how many of
        these it has (``there``), and queues and bytes in its pool."""
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
        """Return how far each parachain of the node could consume at each leaf: the number of the last block of the
        longest run of which the node has all queues (3.9); none of a parachain that lacks the first."""
        rows = [(at, row) for at, leaf in enumerate(self._wanted) for row in self._wanted[leaf]]
        if not rows:
            return {}
        which = [*{(at, row[0]): None for at, row in rows}]
        number = {key: place for place, key in enumerate(which)}
        block_mode = self._options.topic_mode == "block"
        asked = Frame(
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
        for good, (at, row) in zip(complete_prefix(self._state, asked).tolist(), rows, strict=True):
            if good:
                last = found.setdefault(leaves[at], {})
                last[row[0]] = max(row[1], last.get(row[0], 0))
        return found
