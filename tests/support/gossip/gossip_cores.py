"""Nodes without sockets for tests: what each sends is given to the others at once, over a real relay chain."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from causeway.gossip.options import GossipOptions
from causeway.gossip.processes.node import GossipNode, LeavesUpdate
from causeway.gossip.processes.relay_chain import GeneratedRelayChain, RelayBlock, RelayChainClient
from causeway.gossip.processes.scenario import ProcessRelaySection
from causeway.gossip.processes.trace import ProcessRun, TraceWriter, create_trace

RELAY = ProcessRelaySection.model_validate({"queues": 4, "bytes": 200, "messages": 3, "forks": 0.4})


class Cores:
    """``count`` nodes, all connected with each other; node n is a collator of parachain 1 + n % 2."""

    def __init__(self, count: int, options: GossipOptions, trace: Path | None = None, seed: int = 0) -> None:
        self.options, self.time, self.trace = options, 0, trace
        self.chain = GeneratedRelayChain(seed, 2, RELAY, self._prefix)
        self.clients = [RelayChainClient(self.chain, 4) for _ in range(count)]
        self.got: list[list[tuple[bytes, bytes]]] = [[] for _ in range(count)]
        self.lives = [0] * count
        self.links: dict[frozenset[int], bytes] = {}
        self.under_way: dict[frozenset[int], deque[tuple[int, int, bytes]]] = {}
        self.cores: dict[int, GossipNode] = {}
        self.writers: dict[int, TraceWriter] = {}
        if trace is not None:
            create_trace(trace, options, range(count))
        for node in range(count):
            self.start(node)

    def start(self, node: int) -> None:
        self.lives[node] += 1
        writer = None
        if self.trace is not None:
            writer = self.writers[node] = TraceWriter(self.trace, ProcessRun(node, self.lives[node], self.time))
        self.cores[node] = GossipNode(node, self.options, self.time, writer.step if writer else lambda *_: None)
        for peer in self.cores.keys() - {node}:
            session = bytes([node, peer, self.lives[node], self.lives[peer], 0, 0, 0, 0])
            self.under_way[frozenset((node, peer))] = deque()
            self.cores[node].joined(peer, session)
            self.cores[peer].joined(node, session)
        self.tell(node, [*self.chain.blocks.values()])

    def kill(self, node: int) -> None:
        del self.cores[node]
        for peer, core in self.cores.items():
            core.left(node)
            self.under_way[frozenset((node, peer))].clear()

    def _prefix(self, leaf: bytes, para: int) -> int | None:
        core = self.cores.get(para - 1)
        return None if core is None else core.prefixes().get(leaf, {}).get(para)

    def block(self) -> None:
        """The next blocks, which all nodes have at once."""
        blocks = self.chain.generate_blocks()
        for node, client in enumerate(self.clients):
            for block in blocks:
                client.imports(block)
            if node in self.cores:
                self.tell(node, blocks)

    def tell(self, node: int, blocks: list[RelayBlock]) -> None:
        para, leaves = 1 + node % 2, self.clients[node].leaves()
        kept = {
            entry.root: block.posted[entry.source, entry.destination]
            for block in blocks
            for entry in block.own
            if entry.source == para
        }
        wanted = {leaf.hash: self.chain.wanted(leaf, [para]) for leaf in leaves}
        told = tuple(self.chain.block(leaf, self.options.ancestors) for leaf in leaves)
        self.cores[node].record_leaves(LeavesUpdate(tuple(leaf.hash for leaf in leaves), told, kept, wanted))

    def run(self, steps: int = 8) -> None:
        """Let every node take what is there, so many times, 7 ms apart."""
        for _ in range(steps):
            self.time += 7
            for node, core in sorted(self.cores.items()):
                heard = []
                for pair, packets in self.under_way.items():
                    if node in pair:
                        heard += [(peer, body) for peer, to, body in packets if to == node]
                        self.under_way[pair] = deque(row for row in packets if row[1] != node)
                made = core.step(self.time, heard)
                self.got[node] += made.got
                for peer, body in made.sends:
                    if peer in self.cores:
                        self.under_way[frozenset((node, peer))].append((node, peer, body))
