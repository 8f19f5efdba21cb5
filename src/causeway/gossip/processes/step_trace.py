"""Input of a node's step as plain values.

Processes trace it, and the state machine processes it as columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from causeway_proofs.substrate.egress import MAX_CHAIN_HEADS

from causeway.core.frame import Frame
from causeway.gossip.options import GossipOptions
from causeway.gossip.step import StepInputs
from causeway.gossip.step_io import StepOutput
from causeway.protocols.shared.digests import digests, list_digests

NO_DIGEST = bytes(32)

TOO_MANY_HEADS = MAX_CHAIN_HEADS + 1
"""Head count recorded for a packet that declares more heads than allowed."""


@dataclass(frozen=True, slots=True)
class ImportedBlock:
    """Relay block from a node's relay chain client.

    ``unrouted`` holds the issuing block and the root of each unrouted queue of all parachains, in the
    runtime's order. ``ancestors`` starts with the nearest.
    """

    hash: bytes
    number: int
    ancestors: tuple[bytes, ...]
    unrouted: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class NeighborDeclaration:
    """Neighbour packet: the first five ``heads`` and the declared ``count``."""

    peer: int
    heads: tuple[bytes, ...]
    count: int
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class ArrivedQueue:
    """Queue from a peer; ``found`` is the computed root of its body, zeros if not computed."""

    peer: int
    topic: bytes
    root: bytes
    messages: int
    size: int
    found: bytes = NO_DIGEST
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class StepTrace:
    """Input of one step.

    Attributes:
        time: Time in ms.
        left: Disconnected peers.
        came: New peers with their sessions.
        leaves: Hashes of the leaves; None if unchanged.
        blocks: The leaves' blocks.
        kept: Root and size in bytes of the node's own queues.
        declared: Neighbour packets.
        arrived: Queues from peers.
    """

    time: int
    left: tuple[int, ...] = ()
    came: tuple[tuple[int, bytes], ...] = ()
    leaves: tuple[bytes, ...] | None = None
    blocks: tuple[ImportedBlock, ...] = ()
    kept: tuple[tuple[bytes, int], ...] = ()
    declared: tuple[NeighborDeclaration, ...] = ()
    arrived: tuple[ArrivedQueue, ...] = ()


Got = tuple[bytes, bytes]
"""New queue in a node's pool: topic and root."""

Packet = tuple[bytes, ...]
"""Packet between nodes: the declared heads, or ``QUEUE`` with a queue's topic and root."""

QUEUE = b"queue"


def step_inputs(steps: Sequence[tuple[int, StepTrace]], options: GossipOptions) -> StepInputs:
    """Convert the input of nodes, one step each, to columns."""
    some = [(node, one) for node, one in steps if one.leaves is not None]
    return StepInputs(
        disconnect=_pairs([(node, peer) for node, one in steps for peer in one.left]),
        connect=_pairs([(node, peer) for node, one in steps for peer, _ in one.came]),
        leaves=_leaves(some, options) if some else None,
        kept=_build_own_queues([(node, root, size) for node, one in steps for root, size in one.kept]),
        heads=_heads([(node, row) for node, one in steps for row in one.declared]),
        queues=queue_arrivals([(node, row) for node, one in steps for row in one.arrived]),
    )


def _pairs(rows: Sequence[tuple[int, int]]) -> Frame | None:
    if not rows:
        return None
    node, peer = (np.array(column, dtype=np.uint32) for column in zip(*rows, strict=True))
    return Frame({"node": node, "peer": peer}, len(rows))


def _leaves(steps: Sequence[tuple[int, StepTrace]], options: GossipOptions) -> tuple[Frame, Frame, Frame]:
    rows = [(node, leaf) for node, one in steps for leaf in one.leaves or ()]
    node = np.array([node for node, _ in rows], dtype=np.uint32)
    blocks = [*{block.hash: block for _, one in steps for block in one.blocks}.values()]
    older = np.zeros((len(blocks), options.ancestors, 32), dtype=np.uint8)
    for row, block in enumerate(blocks):
        for place, ancestor in enumerate(block.ancestors[: options.ancestors]):
            older[row, place] = np.frombuffer(ancestor, dtype=np.uint8)
    listed = [(block.hash, issued, root) for block in blocks for issued, root in block.unrouted]
    names = ("block", "issued", "root")
    return (
        Frame({"node": node, "hash": digests([leaf for _, leaf in rows])}, len(rows)),
        Frame(
            {
                "hash": digests([block.hash for block in blocks]),
                "number": np.array([block.number for block in blocks], dtype=np.uint64),
                "ancestors": older,
            },
            len(blocks),
        ),
        Frame({name: digests([row[at] for row in listed]) for at, name in enumerate(names)}, len(listed)),
    )


def _build_own_queues(rows: Sequence[tuple[int, bytes, int]]) -> Frame | None:
    if not rows:
        return None
    columns = {
        "node": np.array([node for node, _, _ in rows], dtype=np.uint32),
        "root": digests([root for _, root, _ in rows]),
        "size": np.array([size for _, _, size in rows], dtype=np.uint64),
    }
    return Frame(columns, len(rows))


def _heads(rows: Sequence[tuple[int, NeighborDeclaration]]) -> Frame | None:
    found = _pairs([(node, row.peer) for node, row in rows])
    if found is None:
        return None
    heads = np.zeros((len(rows), MAX_CHAIN_HEADS, 32), dtype=np.uint8)
    for at, (_, row) in enumerate(rows):
        some = row.heads[:MAX_CHAIN_HEADS]
        heads[at, : len(some)] = digests([*some])
    return found.with_columns(
        count=np.array([row.count for _, row in rows], dtype=np.uint64),
        heads=heads,
        malformed=np.array([row.malformed for _, row in rows], dtype=bool),
    )


def queue_arrivals(rows: Sequence[tuple[int, ArrivedQueue]]) -> Frame | None:
    """Convert arrived queues to columns; None for no rows."""
    found = _pairs([(node, row.peer) for node, row in rows])
    if found is None:
        return None
    return found.with_columns(
        topic=digests([row.topic for _, row in rows]),
        root=digests([row.root for _, row in rows]),
        found=digests([row.found for _, row in rows]),
        messages=np.array([row.messages for _, row in rows], dtype=np.uint64),
        size=np.array([row.size for _, row in rows], dtype=np.uint64),
        malformed=np.array([row.malformed for _, row in rows], dtype=bool),
    )


def outgoing_packets(out: StepOutput) -> Iterator[tuple[int, int, Packet]]:
    """Yield node, peer and packet of a step's output.

    Declarations come first, so a peer verifies the queues against them.
    """
    rows = out.heads
    for at, (node, peer, count) in enumerate(_listed(rows, "node", "peer", "count")):
        yield node, peer, tuple(list_digests(rows["heads"][at, :count]))
    rows = out.queues
    for at, (node, peer) in enumerate(_listed(rows, "node", "peer")):
        yield node, peer, (QUEUE, rows["topic"][at].tobytes(), rows["root"][at].tobytes())


def _listed(rows: Frame, *names: str) -> Iterator[tuple[int, ...]]:
    return zip(*(rows[name].tolist() for name in names), strict=True)
