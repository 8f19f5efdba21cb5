"""Bounds of gossip against hostile peers and for any set of nodes (ICMP reference G7, G8, L1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from causeway.core.frame import Frame, concat
from causeway.gossip import pool as pool_module
from causeway.gossip import pool as sending
from causeway.gossip.heads import on_heads
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.listings import digest_positions, merge_digests
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import connect
from causeway.gossip.pool import purge
from causeway.gossip.queues import needs_hashing, on_queues
from causeway.gossip.state import GossipState, start_nodes, state_from_tables, state_to_tables
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import StepOutput, admit_packets
from causeway.protocols.relay_chain.errors import PeerVerdict
from tests.support.gossip.icmp_gossip import (
    arrivals,
    changes,
    context,
    gone,
    got,
    kept_rows,
    leaf_rows,
    name,
    packets,
    pairs,
    pool,
    ready,
    sent,
    told,
    u32,
    verdicts,
)

SEED = GossipOptions()
LISTED = {"A": (7, (), [("B1", f"r{n}") for n in range(40)])}


def count_bytes(state: GossipState) -> int:
    """Return the bytes of all state that grows with knowledge of peers and queues."""
    listed = state.listed
    arrays: tuple[np.ndarray, ...] = (
        state.own.blocks,
        state.leaf,
        state.pool,
        state.seen,
        listed.roots,
        listed.topics,
        listed.lists,
    )
    arrays += tuple(state.peers[name] for name in state.peers.names)
    return sum(int(array.nbytes) for array in arrays)


def test_flood_of_unknown_packets_uses_no_memory_or_hashing() -> None:
    options = GossipOptions(least_reputation=-(2**40), impolite_limit=2**31)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8)])
    before = count_bytes(state)
    rows = arrivals(*((1, 8, f"B{n % 150 + 2}", f"q{n % 200}", f"q{n % 200}") for n in range(1_000)))
    assert not needs_hashing(state, rows, options).any()
    state, out = on_queues(state, rows, options)
    assert {*verdicts(out)} == {"UnexpectedQueue"}
    for n in range(20):
        state, _ = on_heads(state, packets((1, 8, [f"L{5 * n + place}" for place in range(5)])), options)
    assert count_bytes(state) == before


def test_peer_is_disconnected_at_the_impolite_limit_and_ignored_after() -> None:
    options = GossipOptions(impolite_limit=2)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8), (1, 9)])
    again = (1, 8, "B1", "r1", "r1")
    rows = arrivals(again, again, again, (1, 8, "B1", "r2", "r2"), (1, 9, "B1", "r3", "r3"))
    state, out = on_queues(state, rows, options)
    assert verdicts(out) == ["OK", "Impolite", "Impolite", "NotConnected", "OK"]
    assert gone(out) == [(1, 8, "Impolite")] and {*got(out)} == {(1, "r1"), (1, "r3")}
    assert state.peers["peer"].tolist() == [9] and state.seen.shape[0] == 1
    assert verdicts(on_queues(state, arrivals(again), options)[1]) == ["NotConnected"]


def test_impolite_limit_accumulates_over_steps() -> None:
    options = GossipOptions(impolite_limit=2)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8)])
    again = arrivals((1, 8, "B1", "r1", "r1"))
    found = []
    for _ in range(4):
        state, out = on_queues(state, again, options)
        found += gone(out)
    assert found == [(1, 8, "Impolite")]


def test_wasteful_peers_are_disconnected_for_the_last_penalty() -> None:
    options = GossipOptions(least_reputation=-250)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8), (1, 9)])
    rows = [(1, 8, "B1", "q1", "q1")] * 3 + [(1, 8, "B1", "r1", "r1"), (1, 9, "B1", "r1", "X")]
    _, out = on_queues(state, arrivals(*rows), options)
    # One valid queue first would have saved the first peer: the sending order decides.
    assert verdicts(out) == [*["UnexpectedQueue"] * 3, "NotConnected", "RootMismatch"]
    assert gone(out) == [(1, 8, "UnexpectedQueue"), (1, 9, "RootMismatch")] and changes(out)[3] == 0
    state, out = on_queues(state, arrivals(*(rows[3:4] + rows[:2])), options)
    assert gone(out) == [] and state.peers["reputation"].tolist() == [-150, 0]


def test_valid_queues_do_not_offset_unlimited_waste() -> None:
    options = GossipOptions(least_reputation=-250, most_reputation=60)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8), (1, 9)])
    good = [(1, 8, "B1", name, name) for name in ("r1", "r2", "r3")]
    bad, other = (1, 8, "B1", "q1", "q1"), (1, 9, "B1", "r1", "r1")
    # In one call: 50, 60, -40, 10.
    state, out = on_queues(state, arrivals(good[0], other, good[1], bad, good[2]), options)
    assert gone(out) == [] and state.peers["reputation"].tolist() == [10, 50]
    state, out = on_queues(state, arrivals(bad, bad, bad, bad), options)
    assert verdicts(out) == [*["UnexpectedQueue"] * 3, "NotConnected"] and gone(out) == [(1, 8, "UnexpectedQueue")]


def test_invalid_packets_disconnect_and_later_ones_are_ignored() -> None:
    options = GossipOptions(least_reputation=-300)
    state = ready(options, {1: ["A"]}, LISTED, [(1, 8), (1, 9)], [(1, "r1")])
    state, out = on_heads(state, packets((1, 8, [*"ABCDEF"]), (1, 8, ["A"]), (1, 9, ["A"])), options)
    assert verdicts(out) == ["BadNeighborPacket", "NotConnected", "OK"]
    assert gone(out) == [(1, 8, "BadNeighborPacket")] and sent(out) == [(1, 9, "r1")]


def test_banned_peers_wait_and_the_ban_list_is_bounded() -> None:
    options = GossipOptions(impolite_limit=1, ban_time=100, max_banned=2, purge_interval=2**40)
    state = ready(options, {1: ["A"], 2: ["A"]}, LISTED, [(1, 6), (1, 7), (1, 8), (1, 9), (2, 9)])

    def rude(*peers: int) -> StepInputs:
        return StepInputs(queues=arrivals(*((1, peer, "B1", "r1", "r1") for peer in peers for _ in range(2))))

    def back(state: GossipState, time: int) -> tuple[GossipState, list[tuple[int, int, str]]]:
        state, out = step(state, StepInputs(connect=pairs((1, 7), (1, 8), (1, 9), (2, 8))), time, options)
        return state, gone(out)

    state, out = step(state, rude(8), 10, options)
    assert gone(out) == [(1, 8, "Impolite")] and back(state, 109)[1] == [(1, 8, "Banned")]
    assert back(state, 110)[1] == [] and len(back(state, 110)[0].banned) == 0
    # Vain reconnection attempts extend nothing; a peer told to leave is not banned.
    state, _ = back(state, 50)
    state, _ = step(state, StepInputs(disconnect=pairs((1, 6))), 60, options)
    assert state.banned["until"].tolist() == [110]
    state, _ = step(state, rude(7, 9), 60, options)
    assert [*zip(state.banned["peer"].tolist(), state.banned["until"].tolist(), strict=True)] == [(7, 160), (9, 160)]
    state = state_from_tables(state_to_tables(state))
    assert back(state, 120)[1] == [(1, 7, "Banned"), (1, 9, "Banned")]
    never = GossipOptions(impolite_limit=1, ban_time=0)
    assert len(step(ready(never, {1: ["A"]}, LISTED, [(1, 8)]), rude(8), 10, never)[0].banned) == 0


def test_peers_beyond_the_limit_are_rejected_latest_first() -> None:
    options = GossipOptions(max_peers=2)
    state, _ = connect(start_nodes(u32([1, 2]), options), pairs((1, 9)), options)
    state, out = connect(state, pairs((1, 8), (2, 5), (1, 7), (1, 9), (2, 6)), options)
    assert gone(out) == [(1, 7, "TooManyPeers")]
    assert [*zip(state.peers["node"].tolist(), state.peers["peer"].tolist(), strict=True)] == [
        (1, 8),
        (1, 9),
        (2, 5),
        (2, 6),
    ]


def test_oversized_leaf_expects_its_first_queues_only() -> None:
    options = GossipOptions(max_leaf_queues=3)
    state = ready(options, {1: ["A"]}, LISTED)
    assert {root for _, root in pool(state_to_tables(state)["expected"])} == {"r0", "r1", "r2"}


def test_leaf_limit_is_independent_of_leaf_order() -> None:
    options = GossipOptions(max_leaf_queues=2)
    both = {1: ["A", "B"]}
    blocks, unrouted = context({"A": (7, (), [("B1", f"r{n}") for n in range(4)]), "B": (7, (), [("B2", "q1")])})
    mixed = unrouted.take(np.array([0, 4, 1, 2, 3]))
    for rows in (unrouted, mixed):
        state, _ = on_leaves(start_nodes(u32(both), options), leaf_rows(both), blocks, rows, options)
        assert {root for _, root in pool(state_to_tables(state)["expected"])} == {"r0", "r1", "q1"}


def test_seen_queues_persist_until_the_purge_of_their_node() -> None:
    blocks = {**LISTED, "B": (8, (), [])}
    state = ready(SEED, {1: ["A"], 2: ["A"]}, blocks, [(1, 8)], [(1, "r1")])
    state, out = on_heads(state, packets((1, 8, ["A"])), SEED)
    assert sent(out) == [(1, 8, "r1")]
    late = np.array([9_000, 0], dtype=np.uint64)
    state = replace(state, nodes=state.nodes.with_columns(purge=late), pool=np.zeros_like(state.pool))
    for leaf in ("B", "A"):
        state, _ = on_leaves(state, leaf_rows({1: [leaf], 2: [leaf]}), *context(blocks), SEED)
        # Tables include it too, and only blocks that a node has.
        assert [*map(name, state_to_tables(state)["blocks"]["hash"])] == [leaf]
        state = state_from_tables(state_to_tables(purge(state, 5_000, SEED)[0]))
    assert sent(on_own_queues(state, kept_rows((1, "r1")), SEED)[1]) == []


def test_full_pool_rejects_queues_until_a_purge() -> None:
    options = GossipOptions(max_pool_bytes=25, purge_interval=10)
    blocks = {**LISTED, "B": (8, (), [("B2", "r1"), ("B2", "r5")])}
    state = ready(options, {1: ["A"]}, blocks, [(1, 8)], [(1, "r1")])
    rows = [(1, 8, "B1", f"r{n}", f"r{n}") for n in (2, 3, 2, 4)]
    state, out = on_queues(state, arrivals(*rows), options)
    assert verdicts(out) == ["OK", "PoolFull", "Impolite", "PoolFull"] and got(out) == [(1, "r2")]
    assert state.nodes["bytes"].tolist() == [20]
    last = arrivals((1, 8, "B1", "r5", "r5"), size=5)
    assert on_queues(state, last, options)[0].nodes["bytes"].tolist() == [25]
    state, _ = on_leaves(state, leaf_rows({1: ["B"]}), *context(blocks), options)
    state, _ = purge(state, 10, options)
    assert state.nodes["bytes"].tolist() == [0]
    assert got(on_own_queues(state, kept_rows((1, "r5")), options)[1]) == [(1, "r5")]


def test_nodes_without_leaves_and_empty_networks_accept_any_input() -> None:
    options = GossipOptions(ancestors=2, mistrust_unimplied="on")
    rows = arrivals((1, 8, "B1", "r1", "r1"), (1, 9, "B1", "r1", "r1"), (3, 8, "B1", "r1", "r1"))
    inputs = StepInputs(kept=kept_rows((1, "r1")), heads=packets((1, 8, ["A"])), queues=rows)
    state, _ = step(start_nodes(u32([1, 2]), options), StepInputs(connect=pairs((1, 8))), 0, options)
    state, out = step(state, inputs, 0, options)
    assert verdicts(out) == ["OK", "UnexpectedQueue", "NotConnected", "NotConnected"] and changes(out)[1] == -200
    assert not needs_hashing(state, rows, options).any() and sent(out) == []
    nothing = StepInputs(connect=pairs(), kept=kept_rows(), heads=packets(), queues=rows)
    state, out = step(start_nodes(u32([]), options), nothing, 0, options)
    assert verdicts(out) == ["NotConnected"] * 3 and len(state_to_tables(state)["expected"]) == 0


def test_each_peer_has_a_step_quota() -> None:
    options = GossipOptions(max_step_packets=2, max_step_bytes=100)
    rows = pairs((1, 8), (1, 9), (1, 8), (1, 8), (2, 8), (2, 8), (1, 9))
    sizes = np.array([10, 101, 10, 10, 60, 60, 0], dtype=np.uint64)
    assert admit_packets(rows.with_columns(size=sizes), options).tolist() == [
        True,
        True,
        True,
        False,
        True,
        False,
        False,
    ]
    huge = np.full(7, 2**64 - 1, dtype=np.uint64)
    assert admit_packets(rows.with_columns(size=huge), options).tolist() == [
        True,
        True,
        False,
        False,
        True,
        False,
        False,
    ]


NODES = 24


def _random_inputs(seed: int, ancestors: int) -> tuple[GossipOptions, list[tuple[StepInputs, int]]]:
    """Return random inputs of many nodes: honest and hostile, over a few blocks of a forked chain."""
    draw = np.random.default_rng(seed)
    blocks = {}
    for number in range(8):
        older = [f"L{n}" for n in range(number - 1, -1, -1) if (number - n) % 2 or number < 3]
        listed = [(f"B{n % 15}", f"r{n}") for n in sorted(draw.choice(30, 12, replace=False))]
        blocks[f"L{number}"] = (number // 2, older, listed)
    options = GossipOptions(
        topic_mode=draw.choice(["block", "root"]),
        heads_diff=draw.choice(["all", "new_only"]),
        mistrust_unimplied=draw.choice(["on", "off"]),
        ancestors=ancestors,
        impolite_limit=3,
        least_reputation=-1500,
        max_peers=6,
        max_pool_bytes=150,
        purge_interval=3,
        ban_time=2,
        max_banned=3,
    )
    steps = []
    for time in range(10):

        def some(count: int) -> list[tuple[int, int]]:
            return [(int(draw.integers(NODES)), int(draw.integers(6))) for _ in range(count)]

        leaves = {node: [f"L{n}" for n in draw.choice(8, draw.integers(1, 7), replace=False)] for node, _ in some(12)}
        rows = []
        for node, peer in some(150):
            number = int(draw.integers(32))
            of, root = f"B{(number + draw.integers(5) // 4) % 15}", f"r{number}"
            rows.append(
                (node, peer, of if options.topic_mode == "block" else root, root, draw.choice([root, root, "X"]))
            )
        declared = [(*pair, [f"L{n}" for n in draw.integers(9, size=draw.integers(7))]) for pair in some(60)]
        inputs = StepInputs(
            disconnect=pairs(*some(3)),
            connect=pairs(*some(100 if time == 0 else 10)),
            leaves=(leaf_rows(leaves), *context(blocks, ancestors)),
            kept=kept_rows(*((node, f"r{draw.integers(30)}") for node, _ in some(30)), size=20),
            heads=packets(*declared, malformed=[0]),
            queues=arrivals(*rows, size=20),
        )
        steps.append((inputs, time))
    return options, steps


def _rows_of_nodes(rows: Frame | None, nodes: np.ndarray) -> Frame | None:
    return None if rows is None else rows.filter(np.isin(rows["node"], nodes))


def _part(inputs: StepInputs, nodes: np.ndarray) -> StepInputs:
    assert inputs.leaves is not None
    leaves = _rows_of_nodes(inputs.leaves[0], nodes)
    assert leaves is not None
    columns = {
        key: _rows_of_nodes(getattr(inputs, key), nodes) for key in ("disconnect", "connect", "kept", "heads", "queues")
    }
    return StepInputs(**columns, leaves=(leaves, *inputs.leaves[1:]))


def _rows_by_node(frame: Frame) -> list[tuple[object, ...]]:
    """Return the rows of a frame by node, those of one node in their order."""
    if len(frame) == 0:
        return []
    columns = [frame[key].reshape(len(frame), -1).tolist() for key in frame.names if key != "row"]
    rows = [tuple(map(tuple, row)) for row in zip(*columns, strict=True)]
    place = frame.names.index("node")
    return sorted(rows, key=lambda row: str(row[place]))


@pytest.mark.parametrize(("seed", "ancestors"), [(1, 0), (2, 1), (3, 0), (4, 2), (5, 0), (6, 1)])
def test_node_results_are_independent_of_other_nodes_in_the_call(
    seed: int, ancestors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, steps = _random_inputs(seed, ancestors)
    everyone = u32(range(NODES))
    parts = [everyone[:1], everyone[1:9], everyone[9:]]
    whole, cut = start_nodes(everyone, options), [start_nodes(part, options) for part in parts]
    counted: set[int] = set()
    purged = 0
    for inputs, time in steps:
        with monkeypatch.context() as small:
            # Large tables are processed in chunks, and so are these.
            small.setattr(sending, "PIECE", 40)
            small.setattr(pool_module, "PIECE", 40)
            whole, out = step(whole, inputs, time, options)
        purged += len(out.purged)
        apart: list[StepOutput] = []
        for row, part in enumerate(parts):
            cut[row], told_apart = step(cut[row], _part(inputs, part), time, options)
            apart.append(told_apart)
        for field in StepOutput.__dataclass_fields__:
            assert _rows_by_node(getattr(out, field)) == _rows_by_node(
                concat([getattr(item, field) for item in apart])
            ), field
        apart_tables = [state_to_tables(state) for state in cut]
        united = {table: concat([some[table] for some in apart_tables]) for table in apart_tables[0]}
        for table, frame in state_to_tables(whole).items():
            if "node" in frame:
                assert _rows_by_node(frame) == _rows_by_node(united[table]), table
        # The merged parts equal the whole, and continue like it.
        joined = state_from_tables(united)
        for table, frame in state_to_tables(joined).items():
            assert _assert_equal(frame, state_to_tables(whole)[table]), table
        whole = joined if time % 2 else whole
        counted |= {*out.verdicts["code"].tolist()}
        _check(whole, options)
    assert purged and counted >= {int(verdict) for verdict in PeerVerdict} - {
        PeerVerdict.TooManyPeers,
        PeerVerdict.Duplicate,
        PeerVerdict.Banned,
        PeerVerdict.Unimplied,
    }


def _assert_equal(one: Frame, other: Frame) -> bool:
    return one.names == other.names and all(np.array_equal(one[key], other[key]) for key in one.names)


def _check(state: GossipState, options: GossipOptions) -> None:
    """Check invariants after every step."""
    held = [node for node, _ in {*pool(state_to_tables(state)["pool"])}]
    assert state.nodes["bytes"].tolist() == [20 * held.count(node) for node in state.nodes["node"].tolist()]
    assert state.nodes["bytes"].max() <= options.max_pool_bytes
    assert np.diff(state.peer_begins).max() <= options.max_peers
    assert (state.peers["reputation"] > options.least_reputation).all()
    assert (state.peers["impolite"] < options.impolite_limit).all()


@pytest.mark.parametrize("mode", ["block", "root"])
def test_every_queue_reaches_every_node_and_each_peer_once(mode: str) -> None:
    options = GossipOptions.model_validate({"topic_mode": mode})
    draw = np.random.default_rng(11)
    edges = {(n, (n + 1) % NODES) for n in range(NODES)} | {
        tuple(sorted(draw.choice(NODES, 2, False))) for _ in range(20)
    }
    both = sorted({(int(a), int(b)) for a, b in edges} | {(int(b), int(a)) for a, b in edges})
    state = start_nodes(u32(range(NODES)), options)
    kept = kept_rows(*((int(draw.integers(NODES)), f"r{n}") for n in range(40)))
    leaves = (leaf_rows({node: ["A"] for node in range(NODES)}), *context(LISTED))
    inputs, seen = StepInputs(connect=pairs(*both), leaves=leaves, kept=kept), []
    for time in range(NODES):
        state, out = step(state, inputs, time, options)
        assert {*verdicts(out)} <= {"OK", "Duplicate"} and gone(out) == []
        seen += sent(out)
        heads, queues = out.heads, out.queues
        back = {"node": heads["peer"], "peer": heads["node"], "malformed": np.zeros(len(heads), dtype=bool)}
        count = np.ones(len(queues), dtype=np.uint64)
        there = {"node": queues["peer"], "peer": queues["node"], "found": queues["root"], "messages": count}
        inputs = StepInputs(
            heads=heads.with_columns(**back),
            queues=queues.with_columns(**there, size=count, malformed=np.zeros(len(queues), dtype=bool)),
        )
    assert told(out) == [] and sent(out) == []
    assert len(state_to_tables(state)["pool"]) == NODES * 40
    assert len(seen) == len({*seen}) > (NODES - 1) * 40


@pytest.mark.parametrize("alike", [False, True])
def test_digests_with_equal_prefixes_are_distinguished(alike: bool) -> None:
    """Attackers can create roots with equal prefixes; unlisted topics or roots may share a prefix too."""
    draw = np.random.default_rng(3)
    known = merge_digests(draw.integers(0, 256, (100, 32), dtype=np.uint8))
    if alike:
        known[1::2, :8] = known[::2, :8]
        known = merge_digests(known)
    wrong = known.copy()
    wrong[:, 31] ^= 1
    asked = np.concatenate([known[::-1], wrong])
    assert digest_positions(known, asked).tolist() == [*range(99, -1, -1), *[-1] * 100]
    assert digest_positions(known, asked[95:105]).tolist() == [4, 3, 2, 1, 0, *[-1] * 5]
