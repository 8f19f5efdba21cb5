"""Bounds of reconciliation against hostile peers (ICMP reference 5.1, 4; hazard 27)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.sketches import Minisketch

from causeway.core.frame import Frame, concat
from causeway.gossip.heads import on_heads
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import connect
from causeway.gossip.reconcile import CHECK, FIRST_CAPACITY, on_body_requests, on_larger_sketch_requests, on_sketches
from causeway.gossip.state import GossipState, start_nodes
from causeway.gossip.step import StepInputs, step
from causeway.protocols.relay_chain.errors import PeerVerdict
from tests.support.gossip.icmp_gossip import (
    changes,
    context,
    gone,
    kept_rows,
    leaf_rows,
    packets,
    pairs,
    sent,
    u32,
    verdicts,
)

OPTIONS = GossipOptions(reconciliation="minisketch", max_step_sketches=2)
LISTED = {"A": (7, (), [("B1", f"r{n}") for n in range(12)])}


def salted(*rows: tuple[int, int]) -> Frame:
    salts = np.array([[peer] * 32 for _, peer in rows], dtype=np.uint8)
    return pairs(*rows).with_columns(salt=salts)


def node_with_pool(options: GossipOptions = OPTIONS) -> GossipState:
    """Return node 1, whose pool has twelve queues, and peers 7, 8 and 9, all with leaf A."""
    state, _ = connect(start_nodes(u32([1]), options), salted((1, 7), (1, 8), (1, 9)), options)
    state, _ = on_leaves(state, leaf_rows({1: ["A"]}), *context(LISTED), options)
    state, _ = on_own_queues(state, kept_rows(*((1, f"r{n}") for n in range(12))), options)
    state, out = on_heads(state, packets((1, 7, ["A"]), (1, 8, ["A"]), (1, 9, ["A"])), options)
    assert sent(out) == [] and out.sketches["capacity"].tolist() == [FIRST_CAPACITY] * 3
    return state


def sketches(*rows: tuple[int, int, bytes]) -> Frame:
    """Return sketches of peers of node 1: peer, capacity, bytes."""
    return pairs(*((1, peer) for peer, _, _ in rows)).with_columns(
        capacity=np.array([capacity for _, capacity, _ in rows], dtype=np.uint64),
        sketch=pa.array([data for _, _, data in rows], pa.large_binary()),
    )


def of(capacity: int, *elements: int) -> bytes:
    sketch = Minisketch(32, capacity + CHECK)
    sketch.add_all(np.array(elements, dtype=np.uint64))
    return sketch.serialize()


def larger(peer: int, capacity: int) -> Frame:
    return pairs((1, peer)).with_columns(capacity=np.array([capacity], dtype=np.uint64))


def test_invalid_sketches_are_malformed_and_finally_disconnect() -> None:
    wrong = [(8, 0, b""), (8, 4, bytes(16)), (8, 65, bytes(4 * 66)), (8, 2**63, bytes(8)), (6, 4, of(4))]
    state, out = on_sketches(node_with_pool(), sketches(*wrong), OPTIONS)
    assert verdicts(out) == ["Malformed"] * 4 + ["NotConnected"] and changes(out) == [-500] * 4 + [0]
    assert len(out.asks) == len(out.more) == 0
    strict = GossipOptions(reconciliation="minisketch", least_reputation=-1_000)
    state, out = on_sketches(node_with_pool(strict), sketches(*wrong[:3], (8, 4, of(4, 5))), strict)
    assert gone(out) == [(1, 8, "Malformed")] and 8 not in state.peers["peer"].tolist() and len(out.asks) == 0


def test_no_sketch_is_sent_without_a_common_block() -> None:
    assert len(on_heads(node_with_pool(), packets((1, 8, ["X"])), OPTIONS)[1].sketches) == 0


def test_leaving_peers_do_not_shift_requests_to_others() -> None:
    strict = GossipOptions(reconciliation="minisketch", least_reputation=-500)
    _, out = on_sketches(node_with_pool(strict), sketches((7, 0, b""), (8, 16, of(16, 3)), (9, 16, of(16, 4))), strict)
    assert gone(out) == [(1, 7, "Malformed")]
    assert [*zip(out.asks["peer"].tolist(), out.asks["id"].tolist(), strict=True)] == [(8, 3), (9, 4)]
    _, out = on_sketches(node_with_pool(strict), sketches((7, 16, of(16, 3)), (7, 0, b"")), strict)
    assert gone(out) == [(1, 7, "Malformed")] and len(out.asks) == 0


def test_decoded_sketches_are_limited_per_node_and_last_per_peer() -> None:
    rows = sketches((7, 16, of(16, 1)), (8, 16, of(16, 3)), (9, 16, of(16, 4)), (7, 16, of(16, 2)))
    state, out = on_sketches(node_with_pool(), rows, OPTIONS)
    assert [*zip(out.asks["peer"].tolist(), out.asks["id"].tolist(), strict=True)] == [(7, 2), (8, 3)]
    assert [*zip(out.more["peer"].tolist(), out.more["capacity"].tolist(), strict=True)] == [(9, 65)]
    assert {*verdicts(out)} == {PeerVerdict.OK.name}
    # A peer asked for more than the largest sketch sends everything, once.
    state, out = on_larger_sketch_requests(state, larger(9, 65), OPTIONS)
    assert len(sent(out)) == 12 and len(out.sketches) == 0
    assert sent(on_larger_sketch_requests(state, larger(9, 65), OPTIONS)[1]) == []


def test_sketch_columns_may_be_slices() -> None:
    rows = sketches((7, 16, of(16, 1)), (8, 16, of(16, 3)), (9, 16, of(16, 4))).slice(1, 3)
    assert on_sketches(node_with_pool(), rows, OPTIONS)[1].asks["id"].tolist() == [3, 4]


def test_larger_sketches_are_limited_per_step_and_other_peers_get_all() -> None:
    options = OPTIONS.model_copy(update={"max_step_sketches": 2})
    rows = concat([larger(peer, 16) for peer in (7, 8, 9)])
    state, out = on_larger_sketch_requests(node_with_pool(options), rows, options)
    assert out.sketches["peer"].tolist() == [7, 8] and {row[1] for row in sent(out)} == {9}
    assert len(on_larger_sketch_requests(state, larger(9, 16), options)[1].sketches) == 1


def test_larger_sketch_covers_the_same_set() -> None:
    state, out = on_larger_sketch_requests(node_with_pool(), larger(8, 16), OPTIONS)
    capacity, data = out.sketches["capacity"].tolist(), out.sketches["sketch"].to_pylist()
    mine = Minisketch.deserialize(32, 16 + CHECK, data[0]).decode()
    assert capacity == [16] and len(mine) == 12
    asked = pairs(*[(1, 8)] * 4).with_columns(id=np.array([*mine[:2], mine[0], 5], dtype=np.uint64))
    state, out = on_body_requests(state, asked, OPTIONS)
    assert len(sent(out)) == 2
    # Sent messages are not repeated, and salts differ: another peer has other ids.
    assert sent(on_body_requests(state, asked, OPTIONS)[1]) == []
    other = asked.with_columns(peer=np.full(4, 9, dtype=np.uint32))
    assert sent(on_body_requests(state, other, OPTIONS)[1]) == []
    stranger = asked.with_columns(peer=np.full(4, 6, dtype=np.uint32))
    assert (
        sent(on_body_requests(state, stranger, OPTIONS)[1]) == []
        and sent(on_larger_sketch_requests(state, larger(6, 65), OPTIONS)[1]) == []
    )


def test_excessive_differences_are_always_detected() -> None:
    """Without the sum beyond the capacity, one in two of these would decode to other elements."""
    state = node_with_pool()
    own = Minisketch.deserialize(
        32, 12 + CHECK, on_larger_sketch_requests(state, larger(8, 12), OPTIONS)[1].sketches["sketch"][0].as_py()
    )
    for seed in range(20):
        sketch = Minisketch(32, 2 + CHECK)
        draw = np.random.default_rng(seed).integers(1, 2**32, 3, dtype=np.uint64)
        sketch.add_all(np.array([*own.decode(), *draw.tolist()], dtype=np.uint64))
        out = on_sketches(state, sketches((8, 2, sketch.serialize())), OPTIONS)[1]
        assert len(out.asks) == 0 and out.more["capacity"].tolist() == [4]


def test_sketches_need_the_option() -> None:
    off = GossipOptions()
    with pytest.raises(InvalidInput, match="reconciliation = off"):
        step(start_nodes(u32([1]), off), StepInputs(more=larger(8, 4)), 0, off)


def test_reconnected_peer_has_another_salt() -> None:
    state = node_with_pool()
    first = on_larger_sketch_requests(state, larger(8, 16), OPTIONS)[1].sketches["sketch"].to_pylist()
    again = salted((1, 8)).with_columns(salt=np.full((1, 32), 3, dtype=np.uint8))
    state, _ = connect(state, again, OPTIONS)
    state, _ = on_heads(state, packets((1, 8, ["A"])), OPTIONS)
    assert on_larger_sketch_requests(state, larger(8, 16), OPTIONS)[1].sketches["sketch"].to_pylist() != first


@pytest.mark.parametrize(("by", "expected"), [("root", ["r2"]), ("topic", ["r1", "r2"])])
def test_requests_must_be_allowed(by: str, expected: list[str]) -> None:
    """The peer's leaf has the topic, for one of its two queues."""
    options = GossipOptions.model_validate({"reconciliation": "minisketch", "allowed_by": by})
    listed = {"A": (7, (), [("B1", "r1"), ("B1", "r2")]), "B": (7, (), [("B1", "r2")])}
    state, _ = connect(start_nodes(u32([1]), options), salted((1, 8)), options)
    state, _ = on_leaves(state, leaf_rows({1: ["A", "B"]}), *context(listed), options)
    state, _ = on_own_queues(state, kept_rows((1, "r1"), (1, "r2")), options)
    state, _ = on_heads(state, packets((1, 8, ["B"])), options)
    state, out = on_larger_sketch_requests(state, larger(8, 4), options)
    ids = Minisketch.deserialize(32, 4 + CHECK, out.sketches["sketch"][0].as_py()).decode()
    asked = pairs(*[(1, 8)] * 2).with_columns(id=np.array(ids, dtype=np.uint64))
    state, out = on_body_requests(state, asked, options)
    assert sorted(root for _, _, root in sent(out)) == expected
    # Sent messages are not repeated (G8).
    assert sent(on_body_requests(state, asked, options)[1]) == []
