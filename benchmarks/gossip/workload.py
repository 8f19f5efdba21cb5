"""A flood: queues of one relay block, each kept by one node, over random links, until all nodes have all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from causeway_proofs.errors import InvalidInput
from causeway_proofs.hashing import HashFunction, digest_rows

from benchmarks.process import BenchmarkFailed
from causeway.core.frame import Frame
from causeway.gossip.leaves import on_leaves
from causeway.gossip.options import GossipOptions
from causeway.gossip.queues import needs_hashing, on_queues
from causeway.gossip.state import GossipState, start_nodes
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import StepOutput

SIZE = 100
"""Bytes of a queue."""


@dataclass(frozen=True)
class Flood:
    """``nodes`` in a ring with random links besides, ``degree`` of a node on average; ``queues`` of one block."""

    nodes: int
    degree: int
    queues: int
    seed: int = 1

    def __post_init__(self) -> None:
        if self.nodes < 3 or self.degree < 2 or self.queues < 1:
            raise InvalidInput("nodes, degree, queues: allowed are at least 3, 2 and 1")

    @cached_property
    def links(self) -> npt.NDArray[np.uint32]:
        """Return both directions of each link, ascending, shape (n, 2)."""
        draw = np.random.default_rng(self.seed)
        ring = np.stack([np.arange(self.nodes), np.roll(np.arange(self.nodes), -1)], axis=1)
        some = draw.integers(0, self.nodes, (self.nodes * (self.degree - 2) // 2, 2))
        both = np.concatenate([ring, some[some[:, 0] != some[:, 1]]])
        both = np.unique(np.concatenate([both, both[:, ::-1]]), axis=0)
        return both.astype(np.uint32)

    @cached_property
    def keepers(self) -> npt.NDArray[np.uint32]:
        """Return the node that keeps each queue."""
        return np.random.default_rng(self.seed + 1).integers(0, self.nodes, self.queues).astype(np.uint32)

    @property
    def node_queues(self) -> int:
        """Return how many queues reach how many nodes."""
        return self.nodes * self.queues


def hashes(first: int, count: int) -> npt.NDArray[np.uint8]:
    """Return digests that stand for blocks or roots."""
    numbers = np.arange(first, first + count, dtype=np.uint64).reshape(-1, 1)
    return digest_rows(HashFunction.BLAKE2B_256, numbers.view(np.uint8))


def leaves(nodes: int, number: int, roots: npt.NDArray[np.uint8]) -> tuple[Frame, Frame, Frame]:
    """Return what ``on_leaves`` takes: nodes that have a block of this number as their leaf, which lists ``roots``."""
    block = hashes(2**40 + number, 1)
    blocks = Frame(
        {"hash": block, "number": np.array([number], np.uint64), "ancestors": np.zeros((1, 0, 32), np.uint8)}
    )
    listed = {"block": np.repeat(block, len(roots), 0), "issued": np.repeat(hashes(2**40, 1), len(roots), 0)}
    mine = {"node": np.arange(nodes, dtype=np.uint32), "hash": np.repeat(block, nodes, 0)}
    return Frame(mine), blocks, Frame({**listed, "root": roots})


def flood(work: Flood, options: GossipOptions) -> float:
    """Return the processor time (s) that the state machine takes for a flood. Roots of bodies are given."""
    roots = hashes(0, work.queues)
    size = np.full(work.queues, SIZE, np.uint64)
    kept = Frame({"node": work.keepers, "root": roots, "size": size})
    links = Frame({"node": work.links[:, 0].copy(), "peer": work.links[:, 1].copy()})
    inputs = StepInputs(connect=links, leaves=leaves(work.nodes, 1, roots), kept=kept)
    state, reached, spent = start_nodes(np.arange(work.nodes, dtype=np.uint32), options), 0, 0.0
    while True:
        begin = time.process_time()
        state, out = step(state, inputs, 0, options)
        spent += time.process_time() - begin
        reached += len(out.got)
        if not len(out.heads) and not len(out.queues):
            break
        inputs = carried(out)
    if reached != work.node_queues:
        raise BenchmarkFailed(f"{reached} queues reached nodes, expected {work.node_queues}")
    return spent


def carried(out: StepOutput) -> StepInputs:
    """Return what goes out as what comes in."""
    heads, queues = out.heads, out.queues
    return StepInputs(
        heads=heads.with_columns(node=heads["peer"], peer=heads["node"], malformed=np.zeros(len(heads), bool)),
        queues=arrivals(queues["peer"], queues["node"], queues["topic"], queues["root"]),
    )


def arrivals(
    node: npt.NDArray[np.uint32],
    peer: npt.NDArray[np.uint32],
    topic: npt.NDArray[np.uint8],
    root: npt.NDArray[np.uint8],
) -> Frame:
    """Return queues that come to nodes, with right bodies."""
    count = len(node)
    columns = {"node": node, "peer": peer, "topic": topic, "root": root, "found": root}
    one = {"messages": np.ones(count, np.uint64), "size": np.full(count, SIZE, np.uint64)}
    return Frame({**columns, **one, "malformed": np.zeros(count, bool)}, count)


def took(function: Callable[[], object], repeats: int) -> float:
    """Return the processor time (ms) of a call, the median of several."""
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        times.append(time.process_time() - begin)
    return 1000 * float(np.median(times))


def listed(nodes: int, queues: int, repeats: int) -> dict[str, float | int]:
    """Return what it costs (ms) where a leaf lists so many ``queues``: an update of the leaves of ``nodes`` by a block
    of which one in a hundred queues is new, and to judge 1,000 queues that are expected, and 1,000 that are not."""
    options = GossipOptions(max_step_packets=2**20, max_leaf_queues=2**20)
    roots = hashes(0, queues + queues // 100)
    state = start_nodes(np.arange(nodes, dtype=np.uint32), options)
    node = np.arange(nodes, dtype=np.uint32)
    state, _ = step(state, StepInputs(connect=Frame({"node": node, "peer": node + np.uint32(nodes)})), 0, options)
    state, _ = on_leaves(state, *leaves(nodes, 1, roots[:queues]), options)
    update = took(lambda: on_leaves(state, *leaves(nodes, 2, roots[queues // 100 :]), options), repeats)
    some = np.arange(1_000) % nodes
    told = [
        _told(state, some, roots[:1_000] if known else hashes(2**41, 1_000), options, repeats)
        for known in (True, False)
    ]
    return {"nodes": nodes, "queues": queues, "update": update, "expected": told[0], "unexpected": told[1]}


def _told(
    state: GossipState,
    nodes: npt.NDArray[np.int64],
    roots: npt.NDArray[np.uint8],
    options: GossipOptions,
    repeats: int,
) -> float:
    node = nodes[: len(roots)].astype(np.uint32)
    topic = np.repeat(state.listed.topics[:1], len(roots), 0)
    rows = arrivals(node, node + np.uint32(len(state.nodes)), topic, roots)

    def judged() -> None:
        needs_hashing(state, rows, options)
        on_queues(state, rows, options)

    return took(judged, repeats)
