"""Traces of nodes, played into the oracle's nodes, one input after the other: what each gets is what it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from causeway.gossip.processes.step_trace import ArrivedQueue, Got, ImportedBlock, StepTrace
from causeway.gossip.processes.trace import ProcessRun, RecordedStep, Trace, open_trace
from tests.spec.icmp import gossip, gossip_pool
from tests.spec.icmp.events import Pool
from tests.spec.icmp.node import Node, Unrouted
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope, Out
from tests.spec.icmp.relay import Block as RelayBlock
from tests.spec.icmp.relay import Hash, ParaId
from tests.spec.icmp.wire import decode

MINE: ParaId = 1
"""Stands for all parachains of a node: a trace has the queues that it keeps, not whose they are."""


class Told:
    """The relay chain as the node was told it."""

    def __init__(self) -> None:
        self.blocks: dict[Hash, ImportedBlock] = {}
        self.kept: set[Hash] = set()

    def parent(self, B: Hash) -> Hash | None:  # noqa: N803
        older = self.blocks[B].ancestors if B in self.blocks else ()
        if older:
            return older[0]
        paths = (block.ancestors for block in self.blocks.values() if B in block.ancestors[:-1])
        return next((path[path.index(B) + 1] for path in paths), None)

    def unrouted(self, leaf: Hash) -> Sequence[Unrouted]:
        return [Unrouted(0, issued, 0, 0, root) for issued, root in self.blocks[leaf].unrouted]

    def egress(self, leaf: Hash, p: ParaId) -> Sequence[Unrouted]:
        return [entry for entry in self.unrouted(leaf) if entry.root in self.kept]

    ingress = egress


class OracleLife:
    """One life of a node of the oracle. ``bodies``: packets of queues, by root."""

    def __init__(self, life: ProcessRun, trace: Trace, bodies: dict[Hash, bytes]) -> None:
        given = trace.options.model_dump()
        names = Options.__dataclass_fields__.keys() & given.keys()
        self.node = Node(str(life.node), Options(**{name: given[name] for name in names}), frozenset({MINE}))
        self.chain, self._bodies, self._interval = Told(), bodies, trace.options.purge_interval
        self._due = life.time - life.time % self._interval + self._interval

    def step(self, taken: StepTrace) -> set[Got]:
        now, node, chain = taken.time, self.node, self.chain
        outs: list[Out] = []
        while self._due <= now:
            outs.append(gossip_pool.purge(node, self._due))
            self._due += self._interval
        outs += [gossip_pool.disconnect(node, now, name(peer)) for peer in taken.left if name(peer) in node.peers]
        outs += [gossip_pool.connect(node, now, name(peer)) for peer, _ in taken.came]
        if taken.leaves is not None:
            chain.blocks |= {block.hash: block for block in taken.blocks}
            chain.kept = {root for root, _ in taken.kept}
            node.kept = {root: self._messages(root) for root in chain.kept if root in self._bodies}
            leaves = [RelayBlock(leaf, None, chain.blocks[leaf].number) for leaf in taken.leaves]
            outs.append(gossip.on_new_leaf(node, chain, now, leaves))
        for row in taken.declared:
            outs.append(gossip.on_chain_heads(node, chain, now, [(name(row.peer), Declaration(row.heads))]))
        for queue in taken.arrived:
            outs.append(gossip.on_queues(node, chain, now, [(name(queue.peer), self._envelope(queue))]))
        rows = [row for out in outs for row in out.rows]
        puts = [row for row in rows if isinstance(row, Pool) and row.change == "put"]
        return {(row.topic, row.root) for row in puts if row.topic is not None and row.root is not None}

    def _envelope(self, queue: ArrivedQueue) -> Envelope:
        return Envelope(queue.topic, queue.root, self._messages(queue.root) if queue.root in self._bodies else ())

    def _messages(self, root: Hash) -> tuple[bytes, ...]:
        read = decode(bytes(32), self._bodies[root])
        assert isinstance(read, Envelope)
        return read.messages


def name(peer: int) -> str:
    return f"{peer:03}"


def oracle_differences(folder: Path) -> tuple[int, list[tuple[ProcessRun, int, set[Got]]]]:
    """Return how many queues the nodes of a trace got, and where the oracle's get others: life, time, which."""
    trace = open_trace(folder)
    lives: list[tuple[ProcessRun, list[RecordedStep]]] = [(life, [*steps]) for life, steps in trace.lives()]
    bodies = {root: packet for _, steps in lives for step in steps for root, packet in step.bodies.items()}
    count, found = 0, []
    for life, steps in lives:
        oracle = OracleLife(life, trace, bodies)
        for step in steps:
            count += len(step.got)
            other = oracle.step(step.taken) ^ {*step.got}
            # A queue that no peer ever took of those who keep it has no body in the trace.
            other = {queue for queue in other if queue[1] in bodies or queue[1] not in oracle.chain.kept}
            if other:
                found.append((life, step.taken.time, other))
    return count, found
