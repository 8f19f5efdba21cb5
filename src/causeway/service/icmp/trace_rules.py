"""What the records of a trace must keep to, whatever they say: the rules by which a node process writes them, and what
several of them say of one thing.

Whoever can write files can alter what a trace says, and its digests with it. So a record is believed only as far as
others, or the bytes beside it, bear it out: a step is refused that no process would have written, and one that says of
a block, a queue or a connection something else than a record before it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from causeway.proofs.errors import OverLimit
from causeway.proofs.hashing import blake2_256
from causeway.proofs.substrate.errors import BadNeighborPacket, Malformed
from causeway.proofs.substrate.gossip import MAX_CHAIN_HEADS, GossipedQueue, decode_gossip
from causeway.protocols.icmp.gossip.options import GossipOptions
from causeway.service.icmp.taken import NO_DIGEST, Arrived, Block, Declared, Taken
from causeway.service.icmp.trace_records import Life, NoRecord, Recorded
from causeway.service.icmp.wire import message_limit

TOO_MANY_HEADS = MAX_CHAIN_HEADS + 1


@dataclass
class Said:
    """What all lives of a trace have said so far: of blocks, by hash; of queues, by root, how many messages and bytes;
    of connections, by session, which nodes."""

    blocks: dict[bytes, bytes] = field(default_factory=dict)
    messages: dict[bytes, int] = field(default_factory=dict)
    sizes: dict[bytes, int] = field(default_factory=dict)
    sessions: dict[bytes, tuple[int, int]] = field(default_factory=dict)


class LifeRules:
    """The rules that the steps of one life keep to, one after the other."""

    def __init__(self, life: Life, nodes: frozenset[int], options: GossipOptions, said: Said) -> None:
        self._life, self._options, self._said = life, options, said
        self._others = nodes - {life.node}
        self._time = life.time
        self._purge = life.time - life.time % options.purge_interval + options.purge_interval
        self._there: set[int] = set()
        self._sessions: set[bytes] = set()

    def step(self, recorded: Recorded) -> None:
        """Take the next step. Raises ``NoRecord``: a process does not write it, or another record says otherwise."""
        taken = recorded.taken
        self._time_of(taken)
        self._peers(taken)
        self._chain(taken)
        for at, row in enumerate(taken.declared):
            _require_declared(f"declared: {at}", row)
        for at, queue in enumerate(taken.arrived):
            self._require_arrived(f"arrived: {at}", queue)
        self._bodies(recorded)

    def _time_of(self, taken: Taken) -> None:
        if taken.time < self._time:
            raise NoRecord(f"time: {taken.time} ms, after one at {self._time} ms")
        self._time = taken.time
        if taken.time < self._purge:
            return
        if taken != Taken(self._purge):
            raise NoRecord(f"time: {taken.time} ms, without the purge at {self._purge} ms, which takes nothing else")
        self._purge += self._options.purge_interval

    def _peers(self, taken: Taken) -> None:
        came = [peer for peer, _ in taken.came]
        senders = [*(row.peer for row in taken.declared), *(row.peer for row in taken.arrived)]
        for name, peers in (("left", taken.left), ("came", came), ("declared, arrived", senders)):
            for peer in peers:
                if peer not in self._others:
                    raise NoRecord(f"{name}: peer {peer} is none of the other nodes of the trace")
        self._there -= {*taken.left}
        for peer, session in taken.came:
            if peer in self._there:
                raise NoRecord(f"came: peer {peer} was there")
            self._there.add(peer)
            pair = min(peer, self._life.node), max(peer, self._life.node)
            if self._said.sessions.setdefault(session, pair) != pair or session in self._sessions:
                raise NoRecord(f"came: session {session.hex()} is that of another connection")
            self._sessions.add(session)
        for peer, count in Counter(senders).items():
            if peer not in self._there:
                raise NoRecord(f"declared, arrived: peer {peer} is not there")
            if count > self._options.max_step_packets:
                raise NoRecord(f"declared, arrived: {count} packets of peer {peer}, which a step does not take")

    def _chain(self, taken: Taken) -> None:
        if taken.leaves is None:
            if taken.blocks or taken.kept:
                raise NoRecord("leaves: none, where there are blocks or queues that are kept")
            return
        if not taken.leaves or len({*taken.leaves}) != len(taken.leaves):
            raise NoRecord("leaves: none at all, or one is there twice")
        if [block.hash for block in taken.blocks] != [*taken.leaves]:
            raise NoRecord("blocks: others than the leaves")
        for at, block in enumerate(taken.blocks):
            self._require_block(f"blocks: {at}", block)
        if len({root for root, _ in taken.kept}) != len(taken.kept):
            raise NoRecord("kept: one is there twice")
        for at, (root, size) in enumerate(taken.kept):
            _agree(self._said.sizes, root, size, f"kept: {at}: size")

    def _require_block(self, name: str, block: Block) -> None:
        if len(block.ancestors) > self._options.ancestors:
            raise NoRecord(f"{name}: ancestors: {len(block.ancestors)}; at most {self._options.ancestors}")
        said = blake2_256(repr((block.number, block.ancestors, block.unrouted)).encode())
        if self._said.blocks.setdefault(block.hash, said) != said:
            raise NoRecord(f"{name}: {block.hash.hex()} is said to be another block elsewhere")

    def _require_arrived(self, name: str, row: Arrived) -> None:
        if row.malformed:
            if (row.topic, row.root, row.messages, row.found) != (NO_DIGEST, NO_DIGEST, 0, NO_DIGEST):
                raise NoRecord(f"{name}: malformed: true, of a queue that could be read")
            return
        _agree(self._said.messages, row.root, row.messages, f"{name}: messages")
        _agree(self._said.sizes, row.root, row.size, f"{name}: size")

    def _bodies(self, recorded: Recorded) -> None:
        """The bodies of a step are those of the queues that were got of peers, each with its own root."""
        came = {row.root for row in recorded.taken.arrived if row.found == row.root}
        new = {root for _, root in recorded.got} & came
        if recorded.bodies.keys() != new:
            raise NoRecord(f"bodies: of {len(recorded.bodies)} queues; {len(new)} were got of peers")
        limit = message_limit(self._options)
        for root, packet in recorded.bodies.items():
            name = f"bodies: {root.hex()}"
            try:
                queue = decode_gossip(packet, limit)
            except (Malformed, OverLimit, BadNeighborPacket) as error:
                raise NoRecord(f"{name}: {error}") from None
            if not isinstance(queue, GossipedQueue) or queue.root != root:
                raise NoRecord(f"{name}: a packet of something else")
            _agree(self._said.messages, root, len(queue.messages), f"{name}: messages")
            _agree(self._said.sizes, root, sum(map(len, queue.messages)), f"{name}: size")


def _require_declared(name: str, row: Declared) -> None:
    if row.malformed:
        good = not row.heads and row.count == 0
    else:
        good = row.count == len(row.heads) <= MAX_CHAIN_HEADS or (not row.heads and row.count == TOO_MANY_HEADS)
    if not good:
        raise NoRecord(f"{name}: count: {row.count}, malformed: {row.malformed}, with {len(row.heads)} heads")


def _agree(known: dict[bytes, int], root: bytes, value: int, name: str) -> None:
    if known.setdefault(root, value) != value:
        raise NoRecord(f"{name}: {value}, where another record has {known[root]} for {root.hex()}")
