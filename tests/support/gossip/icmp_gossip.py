"""Inputs of gossip for tests, made of short names: what nodes hear, and what they say, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from causeway_proofs.hashing import blake2_256

from causeway.core.frame import Frame
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import connect
from causeway.gossip.state import GossipState, start_nodes
from causeway.gossip.step_io import StepOutput
from causeway.protocols.relay_chain.errors import PeerVerdict
from causeway.protocols.shared.digests import digests
from tests.oracles.topics import queue_topic

MAX = 5


def h(name: str) -> bytes:
    """Return the hash that stands for a block or a root of this name."""
    return blake2_256(name.encode())


NAMES: dict[bytes, str] = {
    h(name): name for name in (*"ABCDEFGHXYZ", *(f"{letter}{n}" for letter in "BLrq" for n in range(200)))
}


def name(digest: np.ndarray) -> str:
    found: bytes = digest.tobytes()
    return NAMES.get(found, found.hex())


def topic(of: str) -> bytes:
    """Return the topic of what a block (or, in the other mode, a root) of this name has."""
    return queue_topic(h(of))


Block = tuple[int, Sequence[str], Sequence[tuple[str, str]]]
"""A relay block: its number, its ancestors from the nearest on, the queues unrouted at it (issued in, root)."""


def context(blocks: Mapping[str, Block], ancestors: int = 0) -> tuple[Frame, Frame]:
    """Return ``blocks`` and ``unrouted`` as nodes give them."""
    older = np.zeros((len(blocks), ancestors, 32), dtype=np.uint8)
    for row, (_, before, _) in enumerate(blocks.values()):
        for place, ancestor in enumerate(before[:ancestors]):
            older[row, place] = np.frombuffer(h(ancestor), dtype=np.uint8)
    numbers = np.array([number for number, _, _ in blocks.values()], dtype=np.uint64)
    frame = Frame({"hash": digests([h(block) for block in blocks]), "number": numbers, "ancestors": older}, len(blocks))
    rows = [(block, issued, root) for block, (_, _, listed) in blocks.items() for issued, root in listed]
    columns = [digests([h(row[place]) for row in rows]) for place in range(3)]
    return frame, Frame(dict(zip(("block", "issued", "root"), columns, strict=True)), len(rows))


def u32(values: Iterable[int]) -> np.ndarray:
    return np.array([*values], dtype=np.uint32)


def leaf_rows(leaves: Mapping[int, Sequence[str]]) -> Frame:
    rows = [(node, leaf) for node, several in leaves.items() for leaf in several]
    return Frame({"node": u32(node for node, _ in rows), "hash": digests([h(leaf) for _, leaf in rows])}, len(rows))


def pairs(*rows: tuple[int, int]) -> Frame:
    return Frame({"node": u32(node for node, _ in rows), "peer": u32(peer for _, peer in rows)}, len(rows))


def packets(*rows: tuple[int, int, Sequence[str]], malformed: Iterable[int] = ()) -> Frame:
    """Return declarations: node, peer, heads."""
    heads = np.zeros((len(rows), MAX, 32), dtype=np.uint8)
    for row, (_, _, declared) in enumerate(rows):
        for place, head in enumerate(declared[:MAX]):
            heads[row, place] = np.frombuffer(h(head), dtype=np.uint8)
    count = np.array([len(declared) for _, _, declared in rows], dtype=np.uint64)
    bad = np.isin(np.arange(len(rows)), [*malformed])
    return pairs(*(row[:2] for row in rows)).with_columns(count=count, heads=heads, malformed=bad)


def arrivals(*rows: tuple[int, int, str, str, str], size: int = 10, messages: int = 2) -> Frame:
    """Return queues that came: node, peer, what the topic is of, root, the body's root."""
    count = len(rows)
    return pairs(*(row[:2] for row in rows)).with_columns(
        topic=digests([topic(row[2]) for row in rows]),
        root=digests([h(row[3]) for row in rows]),
        found=digests([h(row[4]) for row in rows]),
        messages=np.full(count, messages, dtype=np.uint64),
        size=np.full(count, size, dtype=np.uint64),
        malformed=np.zeros(count, dtype=bool),
    )


def kept_rows(*rows: tuple[int, str], size: int = 10) -> Frame:
    columns = {"node": u32(row[0] for row in rows), "root": digests([h(row[1]) for row in rows])}
    return Frame({**columns, "size": np.full(len(rows), size, dtype=np.uint64)}, len(rows))


def sent(out: StepOutput) -> list[tuple[int, int, str]]:
    """Return the queues that go out: node, peer, root."""
    rows = out.queues
    return [*zip(rows["node"].tolist(), rows["peer"].tolist(), map(name, rows["root"]), strict=True)]


def told(out: StepOutput) -> list[tuple[int, int, list[str]]]:
    """Return the declarations that go out: node, peer, heads."""
    rows = out.heads
    heads = [[*map(name, some[:count])] for some, count in zip(rows["heads"], rows["count"].tolist(), strict=True)]
    return [*zip(rows["node"].tolist(), rows["peer"].tolist(), heads, strict=True)]


def verdicts(out: StepOutput) -> list[str]:
    return [PeerVerdict(code).name for code in out.verdicts["code"].tolist()]


def changes(out: StepOutput) -> list[int]:
    return [*out.verdicts["change"].tolist()]


def gone(out: StepOutput) -> list[tuple[int, int, str]]:
    rows = out.disconnected
    codes = [PeerVerdict(code).name for code in rows["code"].tolist()]
    return [*zip(rows["node"].tolist(), rows["peer"].tolist(), codes, strict=True)]


def got(out: StepOutput) -> list[tuple[int, str]]:
    return [*zip(out.got["node"].tolist(), map(name, out.got["root"]), strict=True)]


def pool(table: Frame) -> list[tuple[int, str]]:
    return [*zip(table["node"].tolist(), map(name, table["root"]), strict=True)]


def ready(
    options: GossipOptions,
    leaves: Mapping[int, Sequence[str]],
    blocks: Mapping[str, Block],
    peers: Sequence[tuple[int, int]] = (),
    kept: Sequence[tuple[int, str]] = (),
) -> GossipState:
    """Return the state of nodes that have leaves, peers and own queues."""
    state = start_nodes(u32(leaves), options)
    state, _ = connect(state, pairs(*peers), options)
    state, _ = on_leaves(state, leaf_rows(leaves), *context(blocks, options.ancestors), options)
    return on_own_queues(state, kept_rows(*kept), options)[0]
