"""The same flood by the oracle of the tests: each node by itself, in plain sets and dictionaries."""

from __future__ import annotations

import time
from collections import deque
from unittest import mock

from benchmarks.gossip.workload import SIZE, Flood, hashes
from benchmarks.process import BenchmarkFailed
from tests.spec.icmp import gossip, gossip_pool
from tests.spec.icmp.events import Pool
from tests.spec.icmp.node import Node, Unrouted
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope, Out
from tests.spec.icmp.relay import Block


class Leaf:
    """A relay chain whose one leaf lists queues of chain 1 to chain 2."""

    def __init__(self, roots: list[bytes]) -> None:
        self.listed = [Unrouted(1, b"b" * 32, 1, 2, root) for root in roots]

    def unrouted(self, leaf: bytes) -> list[Unrouted]:
        """Return what is unrouted at the leaf."""
        return self.listed

    def ingress(self, leaf: bytes, p: int) -> list[Unrouted]:
        """Return what chain 2 may consume."""
        return self.listed if p == 2 else []

    def egress(self, leaf: bytes, p: int) -> list[Unrouted]:
        """Return what chain 1 has sent."""
        return self.listed if p == 1 else []

    def parent(self, block: bytes) -> None:
        """Return no header."""


def flood(work: Flood) -> float:
    """Return the processor time (s) that the oracle takes for a flood. Roots of bodies are given."""
    options = Options(propagate_on_leaf="on", allowed_by="root", seen_until="purge")
    roots = [root.tobytes() for root in hashes(0, work.queues)]
    chain, body = Leaf(roots), bytes(SIZE - 8)
    bodies = {root: (body, number.to_bytes(8, "little")) for number, root in enumerate(roots)}
    root_of = {messages: root for root, messages in bodies.items()}
    nodes = {f"{n:06}": Node(f"{n:06}", options, frozenset({1})) for n in range(work.nodes)}
    for root, keeper in zip(roots, work.keepers.tolist(), strict=True):
        nodes[f"{keeper:06}"].kept[root] = bodies[root]
    waiting: deque[tuple[str, str, Declaration | Envelope]] = deque()
    reached = 0

    def said(name: str, out: Out) -> None:
        nonlocal reached
        reached += sum(isinstance(row, Pool) for row in out.rows)
        for k, packet in out.packets:
            assert isinstance(packet, Declaration | Envelope)
            waiting.append((name, k, packet))

    known = mock.patch.object(gossip, "R", root_of.__getitem__)
    with known, mock.patch.object(gossip_pool, "messages_hash", root_of.__getitem__):
        begin = time.process_time()
        for a, b in work.links.tolist():
            gossip_pool.connect(nodes[f"{a:06}"], 0, f"{b:06}")
        for name, node in nodes.items():
            said(name, gossip.on_new_leaf(node, chain, 0, [Block(b"l" * 32, b"p" * 32, 1)]))
        while waiting:
            a, name, packet = waiting.popleft()
            if isinstance(packet, Declaration):
                said(name, gossip.on_chain_heads(nodes[name], chain, 0, [(a, packet)]))
            else:
                said(name, gossip.on_queues(nodes[name], chain, 0, [(a, packet)]))
        spent = time.process_time() - begin
    if reached != work.node_queues:
        raise BenchmarkFailed(f"{reached} queues reached nodes, expected {work.node_queues}")
    return spent
