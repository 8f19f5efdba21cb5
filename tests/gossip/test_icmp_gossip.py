"""Rules of gossip (ICMP reference 3.5 to 3.8), one node at a time."""

from __future__ import annotations

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput

from causeway.core.frame import Frame
from causeway.gossip.fallback import complete_prefix, fallback_requests, is_in_pool, on_answers
from causeway.gossip.heads import on_heads
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import connect
from causeway.gossip.pool import purge
from causeway.gossip.queues import needs_hashing, on_queues
from causeway.gossip.state import GossipState, state_to_tables
from causeway.protocols.shared.digests import digests
from tests.support.gossip.icmp_gossip import (
    Block,
    arrivals,
    changes,
    context,
    gone,
    got,
    h,
    kept_rows,
    leaf_rows,
    name,
    packets,
    pairs,
    pool,
    ready,
    sent,
    told,
    topic,
    verdicts,
)

SEED = GossipOptions()
A, B = "A", "B"
LISTED = {A: (7, (), [("B1", "r1"), ("B1", "r2"), ("B2", "r3")]), B: (7, (), [("B2", "r3"), ("B3", "r4")])}


def create_node(options: GossipOptions = SEED, kept: tuple[str, ...] = ("r1",)) -> GossipState:
    """Return node 1 with leaf A and the peers 8 and 9."""
    return ready(options, {1: [A]}, LISTED, [(1, 8), (1, 9)], [(1, root) for root in kept])


def declare_heads(state: GossipState, *heads: str, peer: int = 8, options: GossipOptions = SEED) -> GossipState:
    return on_heads(state, packets((1, peer, heads)), options)[0]


def test_new_leaves_are_announced_to_every_peer() -> None:
    state = ready(SEED, {1: [A], 2: [A]}, LISTED, [(1, 8), (1, 9), (2, 8)])
    _, out = on_leaves(state, leaf_rows({1: [A, B]}), *context(LISTED), SEED)
    assert [row[:2] for row in told(out)] == [(1, 8), (1, 9)] and {*told(out)[0][2]} == {A, B}


def test_five_highest_leaves_remain_and_ties_prefer_lower_hashes() -> None:
    blocks: dict[str, Block] = {f"L{n}": (3 if n < 4 else 9, (), []) for n in range(8)}
    state = ready(SEED, {1: [*blocks, *blocks]}, blocks)
    low, high = (sorted(some, key=h) for some in ([f"L{n}" for n in range(4)], [f"L{n}" for n in range(4, 8)]))
    assert [*map(name, state_to_tables(state)["leaves"]["hash"])] == [*high, low[0]]


def test_undescribed_leaves_are_rejected_by_name() -> None:
    with pytest.raises(InvalidInput, match=h(B).hex()):
        on_leaves(create_node(), leaf_rows({1: [B]}), *context({A: LISTED[A]}), SEED)


def test_no_queue_is_allowed_before_a_common_leaf_is_declared() -> None:
    state = create_node()
    assert sent(on_own_queues(state, kept_rows((1, "r2")), SEED)[1]) == []
    assert sent(on_heads(state, packets((1, 8, [B])), SEED)[1]) == []
    assert sent(on_heads(state, packets((1, 8, [B, A])), SEED)[1]) == [(1, 8, "r1")]


def test_declared_common_leaves_allow_each_topic_once() -> None:
    state = ready(SEED, {1: [A, B]}, LISTED, [(1, 8)], [(1, root) for root in ("r1", "r3", "r4")])
    state, out = on_heads(state, packets((1, 8, [B])), SEED)
    assert {*sent(out)} == {(1, 8, "r3"), (1, 8, "r4")}
    state, out = on_heads(state, packets((1, 8, [B, A])), SEED)
    assert sent(out) == [(1, 8, "r1")]
    assert sent(on_heads(state, packets((1, 8, [A])), SEED)[1]) == []


def test_new_only_skips_queues_pooled_by_other_means() -> None:
    results = {}
    for diff in ("all", "new_only"):
        options = GossipOptions.model_validate({"heads_diff": diff, "propagate_on_leaf": "off"})
        state = ready(options, {1: [B]}, LISTED, [(1, 8)], [(1, "r3")])
        state = declare_heads(state, A, options=options)
        # A becomes a leaf of the node too: r3 is allowed now, but unsent until the peer declares again.
        state, out = on_leaves(state, leaf_rows({1: [A]}), *context(LISTED), options)
        assert sent(out) == []
        results[diff] = sent(on_heads(state, packets((1, 8, [A])), options)[1])
    assert results == {"all": [(1, 8, "r3")], "new_only": []}


def test_valid_queues_are_pooled_and_forwarded_to_all_but_the_sender() -> None:
    state = declare_heads(declare_heads(create_node(), A, peer=8), A, peer=9)
    rows = arrivals((1, 8, "B1", "r2", "r2"))
    assert needs_hashing(state, rows, SEED).tolist() == [True]
    state, out = on_queues(state, rows, SEED)
    assert verdicts(out) == ["OK"] and changes(out) == [50] and got(out) == [(1, "r2")]
    assert sent(out) == [(1, 9, "r2")]
    asked = Frame({"node": np.array([1], np.uint32), "topic": digests([topic("B1")]), "root": digests([h("r2")])}, 1)
    assert is_in_pool(state, asked).tolist() == [True]
    # The other peer returns a queue that the node sent: no reward, no news, no reply.
    state, out = on_queues(state, arrivals((1, 9, "B1", "r2", "r2")), SEED)
    assert verdicts(out) == ["Duplicate"] and changes(out) == [0] and not sent(out) and not got(out)
    assert verdicts(on_queues(state, arrivals((1, 9, "B1", "r2", "r2")), SEED)[1]) == ["Impolite"]


def test_repeated_queues_are_impolite_whatever_the_second_body() -> None:
    rows = [(1, 8, "B1", "r2", wrong) for wrong in ("X", "r2", "X", "r2")]
    together = on_queues(create_node(), arrivals(*rows), SEED)[1]
    state, apart = create_node(), []
    for row in rows:
        state, out = on_queues(state, arrivals(row), SEED)
        apart += verdicts(out)
    assert verdicts(together) == apart == ["RootMismatch", "OK", "Impolite", "Impolite"]
    assert got(together) == [(1, "r2")]


def test_verdict_precedence() -> None:
    state, _ = on_queues(create_node(), arrivals((1, 8, "B1", "r2", "r2")), SEED)
    rows = arrivals(
        (1, 7, "B1", "r2", "r2"),  # nobody
        (1, 8, "B1", "r2", "X"),  # received before
        (1, 8, "B3", "r2", "r2"),  # received before, but on another topic
        (1, 8, "B2", "r1", "r1"),  # listed, but on another topic
        (1, 8, "B1", "r9", "r9"),  # a valid body of a root that nobody posted (hazard 28)
        (1, 8, "B1", "r1", "X"),
        (1, 8, "B1", "r2", "r2"),
    )
    assert needs_hashing(state, rows, SEED).tolist() == [False, False, False, False, False, True, False]
    out = on_queues(state, rows, SEED)[1]
    assert verdicts(out) == [
        "NotConnected",
        "Impolite",
        "UnexpectedQueue",
        "UnexpectedQueue",
        "UnexpectedQueue",
        "RootMismatch",
        "Impolite",
    ]
    assert changes(out) == [0, 0, -100, -100, -100, -300, 0]
    assert got(out) == []


def test_empty_queue_costs_as_much_as_one_message() -> None:
    assert changes(on_queues(create_node(), arrivals((1, 8, "B1", "r2", "X"), messages=0), SEED)[1]) == [-150]


def test_oversized_or_undecodable_packets_are_malformed_and_not_hashed() -> None:
    options = GossipOptions(max_queue_bytes=9, max_queue_messages=1)
    for rows in (arrivals((1, 8, "B1", "r2", "r2"), messages=1), arrivals((1, 8, "B1", "r2", "r2"), size=9)):
        assert needs_hashing(create_node(), rows, options).tolist() == [False]
        out = on_queues(create_node(), rows, options)[1]
        assert verdicts(out) == ["Malformed"] and changes(out) == [-500]
    # 10 bytes and 2 messages each exceed the limit by one.
    rows, enough = arrivals((1, 8, "B1", "r2", "r2")), GossipOptions(max_queue_bytes=10, max_queue_messages=2)
    assert needs_hashing(create_node(), rows, enough).all() and verdicts(on_queues(create_node(), rows, enough)[1]) == [
        "OK"
    ]
    rows = rows.with_columns(malformed=np.ones(1, dtype=bool))
    assert verdicts(on_queues(create_node(), rows, SEED)[1]) == ["Malformed"]


def test_six_heads_are_rejected_and_unknown_heads_are_retained() -> None:
    state = create_node(kept=())
    out = on_heads(state, packets((1, 8, [*"ABCDEF"]), (1, 9, [B]), malformed=[]), SEED)
    assert verdicts(out[1]) == ["BadNeighborPacket", "OK"] and changes(out[1]) == [-300, 0]
    state, _ = on_leaves(out[0], leaf_rows({1: [B]}), *context(LISTED), SEED)
    # Peer 9 declared B when it was unknown to the node; nothing of peer 8 was accepted.
    assert sent(on_own_queues(state, kept_rows((1, "r4")), SEED)[1]) == [(1, 9, "r4")]


def test_heads_behind_declared_heads_are_dropped() -> None:
    rows = packets((1, 8, [B, A, *"CDE"])).with_columns(count=np.ones(1, dtype=np.uint64))
    state, out = on_heads(create_node(), rows, SEED)
    assert sent(out) == [] and not state.peers["heads"][0, 1:].any()


def test_last_declaration_of_a_step_counts() -> None:
    state = on_heads(create_node(kept=()), packets((1, 8, [A]), (1, 9, []), (1, 8, []), (1, 9, [A])), SEED)[0]
    assert sent(on_own_queues(state, kept_rows((1, "r1")), SEED)[1]) == [(1, 9, "r1")]


def test_topics_stay_expected_while_one_leaf_lists_them() -> None:
    state = ready(SEED, {1: [A, B]}, LISTED, (), [(1, root) for root in ("r1", "r3")])
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(LISTED), SEED)
    state, out = purge(state, 5_000, SEED)
    assert pool(out.purged) == [(1, "r1")] and pool(state_to_tables(state)["pool"]) == [(1, "r3")]
    assert {*pool(state_to_tables(state)["expected"])} == {(1, "r3"), (1, "r4")}


def test_no_longer_expected_queues_stay_with_their_topic() -> None:
    """Topics expire, not queues (3.8, D-9): a fork may expect it again."""
    listed = {A: (7, (), [("B1", "r1"), ("B1", "r2")]), B: (8, (), [("B1", "r2")])}
    state = ready(SEED, {1: [A]}, listed, (), [(1, "r1")])
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(listed), SEED)
    state, out = purge(state, 5_000, SEED)
    assert pool(out.purged) == [] and pool(state_to_tables(state)["pool"]) == [(1, "r1")]


def test_purged_queues_are_accepted_again_on_forks_where_unrouted() -> None:
    state = declare_heads(create_node(), A)
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(LISTED), SEED)
    state, _ = purge(state, 5_000, SEED)
    state, _ = on_leaves(state, leaf_rows({1: [A]}), *context(LISTED), SEED)
    state, out = on_own_queues(state, kept_rows((1, "r1")), SEED)
    assert got(out) == [(1, "r1")] and sent(out) == [(1, 8, "r1")]


def test_purge_waits_for_its_interval_and_removes_unlisted_topics() -> None:
    options = GossipOptions(purge_interval=100)
    state = ready(options, {1: [A]}, LISTED, [(1, 8)], [(1, "r1")])
    state, _ = purge(declare_heads(state, A, options=options), 50, options)
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(LISTED), options)
    early, out = purge(state, 149, options)
    assert pool(out.purged) == [] and early is state
    state, out = purge(state, 150, options)
    assert pool(out.purged) == [(1, "r1")]
    assert state.nodes["bytes"].tolist() == [0] and len(state.listed.blocks) == 1
    assert len(state.listed.roots) == 2 and state.seen.shape == (1, 2)


def test_topic_is_the_root_in_root_mode() -> None:
    options = GossipOptions(topic_mode="root")
    state = ready(options, {1: [A]}, LISTED, [(1, 8)])
    rows = arrivals((1, 8, "r1", "r1", "r1"), (1, 8, "B1", "r2", "r2"), (1, 8, "r1", "r2", "r2"))
    assert verdicts(on_queues(state, rows, options)[1]) == ["OK", "UnexpectedQueue", "UnexpectedQueue"]


@pytest.mark.parametrize(
    ("mode", "by", "expected"),
    [("block", "topic", [(1, 8, "r1")]), ("block", "root", []), ("root", "topic", []), ("root", "root", [])],
)
def test_common_leaf_matches_by_topic_or_root(mode: str, by: str, expected: list[tuple[int, int, str]]) -> None:
    listed = {A: (7, (), [("B1", "r1"), ("B1", "r2")]), B: (7, (), [("B1", "r2")])}
    options = GossipOptions.model_validate({"topic_mode": mode, "allowed_by": by})
    state = ready(options, {1: [A, B]}, listed, [(1, 8)], [(1, "r1")])
    assert sent(on_heads(state, packets((1, 8, [B])), options)[1]) == expected
    # Later pool additions are treated equally.
    state, _ = on_heads(ready(options, {1: [A, B]}, listed, [(1, 8)]), packets((1, 8, [B])), options)
    assert sent(on_own_queues(state, kept_rows((1, "r1")), options)[1]) == expected


def test_body_issued_by_two_blocks_is_a_queue_of_each() -> None:
    listed = {A: (7, (), [("B1", "r1"), ("B2", "r1")])}
    state = declare_heads(ready(SEED, {1: [A]}, listed, [(1, 8), (1, 9)]), A)
    for issued in ("B2", "B1"):
        state, out = on_queues(state, arrivals((1, 9, issued, "r1", "r1")), SEED)
        assert verdicts(out) == ["OK"] and got(out) == [(1, "r1")] and sent(out) == [(1, 8, "r1")]
        assert out.queues["topic"][0].tobytes() == topic(issued) == out.got["topic"][0].tobytes()
    assert len(state_to_tables(state)["pool"]) == 2 and state.nodes["bytes"].tolist() == [20]
    # A holder stores it under both.
    assert got(on_own_queues(ready(SEED, {1: [A]}, listed), kept_rows((1, "r1")), SEED)[1]) == [(1, "r1")] * 2


@pytest.mark.parametrize(("switch", "expected"), [("off", []), ("on", [(1, 8, "r3")])])
def test_new_leaf_sends_allowed_queues_or_awaits_a_declaration(
    switch: str, expected: list[tuple[int, int, str]]
) -> None:
    options = GossipOptions.model_validate({"propagate_on_leaf": switch, "topic_mode": "root"})
    state = ready(options, {1: [A]}, LISTED, [(1, 8), (1, 9)], [(1, "r1"), (1, "r3")])
    state = declare_heads(declare_heads(state, B, options=options), A, peer=9, options=options)
    state, out = on_leaves(state, leaf_rows({1: [A, B]}), *context(LISTED), options)
    assert sent(out) == expected
    assert {*sent(on_heads(state, packets((1, 8, [B])), options)[1])} == {(1, 8, "r3")} - {*expected}


def test_received_queues_repeated_after_new_heads_are_duplicates() -> None:
    row = arrivals((1, 8, "B1", "r2", "r2"))
    for until, expected in (("purge", "Duplicate"), ("disconnect", "Impolite")):
        options = GossipOptions.model_validate({"seen_until": until})
        state, _ = on_queues(declare_heads(create_node(options), A, options=options), row, options)
        same = declare_heads(state, A, options=options)
        assert verdicts(on_queues(same, row, options)[1]) == ["Impolite"]
        state, out = on_queues(declare_heads(state, A, B, options=options), row, options)
        assert verdicts(out) == [expected] and not needs_hashing(state, row, options).any()
        assert verdicts(on_queues(state, row, options)[1]) == ["Impolite"]


def test_alternating_declarations_repeat_a_queue_once_between_purges() -> None:
    row, options = arrivals((1, 8, "B1", "r2", "r2")), GossipOptions(impolite_limit=2**31)
    state, _ = on_queues(declare_heads(create_node(options), A, options=options), row, options)
    for turn in range(2):
        found = []
        for _ in range(5):
            state = declare_heads(declare_heads(state, A, B, options=options), A, options=options)
            state, out = on_queues(state, row, options)
            found += verdicts(out)
        assert found == ["Duplicate", *["Impolite"] * 4]
        state, _ = purge(state, (turn + 1) * options.purge_interval, options)


def test_echo_is_checked_before_all_other_rules() -> None:
    """An echo may arrive when the node no longer expects its queue; its body is not hashed."""
    state = declare_heads(create_node(), A)
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(LISTED), SEED)
    state, out = on_queues(state, arrivals((1, 8, "B1", "r1", "X")), SEED)
    assert verdicts(out) == ["Duplicate"] and changes(out) == [0] and len(out.beneficial) == 0


def test_valid_queues_are_reported_with_bytes() -> None:
    rows = arrivals((1, 8, "B1", "r2", "r2"), (1, 9, "B1", "r2", "r2"), (1, 9, "B1", "r1", "X"), size=17)
    found = on_queues(create_node(kept=()), rows, SEED)[1].beneficial
    assert [*zip(found["peer"].tolist(), map(name, found["root"]), found["size"].tolist(), strict=True)] == [
        (8, "r2", 17),
        (9, "r2", 17),
    ]


ONE_BACK = GossipOptions(ancestors=1)
CHAIN = {
    A: (7, ["Z"], [("B1", "r1")]),
    B: (8, [A], [("B2", "r2")]),
    "C": (9, [B], [("B3", "r3")]),
}


@pytest.mark.parametrize(("options", "expected"), [(SEED, []), (ONE_BACK, [(1, 8, "r1")])])
def test_peer_one_block_behind_gets_its_leafs_queues_with_ancestors(
    options: GossipOptions, expected: list[tuple[int, int, str]]
) -> None:
    state = ready(options, {1: [A]}, CHAIN, [(1, 8)], [(1, "r1")])
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(CHAIN, options.ancestors), options)
    assert sent(on_heads(state, packets((1, 8, [A])), options)[1]) == expected


def test_non_leaf_ancestors_are_unknown_and_old_ancestors_are_dropped() -> None:
    state = ready(ONE_BACK, {1: [A], 2: [B]}, CHAIN)
    state, _ = on_leaves(state, leaf_rows({1: ["C"], 2: ["C"]}), *context(CHAIN, 1), ONE_BACK)
    # Node 1 moved from A to C; node 2 had B as a leaf.
    assert {*pool(state_to_tables(state)["expected"])} == {(1, "r3"), (2, "r2"), (2, "r3")}


def test_ancestors_of_a_common_leaf_count_for_the_peer() -> None:
    state = ready(ONE_BACK, {1: [A]}, CHAIN, [(1, 8)], [(1, "r1")])
    state, _ = on_leaves(state, leaf_rows({1: [B]}), *context(CHAIN, 1), ONE_BACK)
    assert sent(on_heads(state, packets((1, 8, [B])), ONE_BACK)[1]) == [(1, 8, "r1")]


def test_new_peers_are_sent_leaves_and_have_declared_none() -> None:
    state = declare_heads(create_node(), A)
    state, out = connect(state, pairs((1, 8), (1, 3), (1, 3)), SEED)
    assert told(out) == [(1, 3, [A]), (1, 8, [A])] or told(out) == [(1, 8, [A]), (1, 3, [A])]
    assert sent(on_own_queues(state, kept_rows((1, "r2")), SEED)[1]) == []
    assert state.peers["peer"].tolist() == [3, 8, 9]
    # Messages sent to the peer are not repeated over the same connection.
    assert sent(on_heads(state, packets((1, 8, [A])), SEED)[1]) == []


def test_mistrust_penalizes_queues_that_no_declared_leaf_implies() -> None:
    options = GossipOptions(mistrust_unimplied="on")
    state = declare_heads(create_node(options), A, options=options)
    rows = arrivals((1, 8, "B1", "r2", "r2"), (1, 9, "B1", "r2", "r2"), (1, 9, "B3", "r4", "r4"))
    out = on_queues(state, rows, options)[1]
    assert verdicts(out) == ["OK", "OK", "UnexpectedQueue"] and changes(out) == [50, -50, -200]
    assert gone(out) == []
    options = GossipOptions(mistrust_unimplied="on", least_reputation=-50)
    out = on_queues(declare_heads(create_node(options), A, options=options), rows.take(np.array([1])), options)[1]
    assert verdicts(out) == ["OK"] and gone(out) == [(1, 9, "Unimplied")]


def test_prefix_ends_before_the_first_block_with_a_missing_queue() -> None:
    listed = {A: (9, (), [("B1", "r1"), ("B1", "r2"), ("B2", "r3"), ("B3", "r4"), ("B3", "r1")])}
    state = ready(SEED, {1: [A], 2: [A]}, listed, (), [*((1, f"r{n}") for n in (1, 2, 4)), (2, "r1"), (2, "r3")])
    rows = [
        *((node, 5, number, root) for node in (1, 2) for number, root in ((3, "r4"), (2, "r3"), (1, "r2"), (1, "r1"))),
        (1, 6, 3, "r4"),
        (1, 6, 3, "r1"),
        (2, 6, 2, "r3"),
        (2, 6, 3, "r9"),
    ]
    node, para, number = (np.array([row[place] for row in rows]) for place in range(3))
    wanted = Frame(
        {
            "node": node.astype(np.uint32),
            "para": para.astype(np.uint32),
            "number": number.astype(np.uint64),
            "topic": digests([topic(f"B{row[2]}") for row in rows]),
            "root": digests([h(row[3]) for row in rows]),
        }
    )
    # Node 1 lacks block 2 of parachain 5, node 2 a queue of block 1; node 1 has all of parachain 6.
    expected = [False, False, True, True, *[False] * 4, True, True, True, False]
    assert complete_prefix(state, wanted).tolist() == expected
    assert not len(complete_prefix(state, wanted.filter(np.zeros(len(rows), dtype=bool))))


def test_answers_of_holders_are_verified_without_penalty() -> None:
    options = GossipOptions(fallback_request="on", max_queue_bytes=30, max_pool_bytes=20)
    state = declare_heads(create_node(options, kept=()), A, options=options)
    rows = [("B1", "r1", "r1"), ("B1", "r1", "r1"), ("B2", "r1", "r1"), ("B1", "r2", "X"), ("B1", "r2", "r2")]
    answers = arrivals(*((1, 77, *row) for row in rows), size=15)
    state, out = on_answers(state, answers, options)
    assert verdicts(out) == ["OK", "OK", "UnexpectedQueue", "RootMismatch", "PoolFull"]
    assert {*changes(out)} == {0} and got(out) == [(1, "r1")] and sent(out) == [(1, 8, "r1")]
    twice, out = on_answers(create_node(SEED, kept=()), arrivals((1, 77, *rows[0]), (1, 78, *rows[0]), size=15), SEED)
    assert got(out) == [(1, "r1")] and twice.nodes["bytes"].tolist() == [15]
    long = arrivals((1, 77, "B1", "r2", "r2"), size=31)
    assert verdicts(on_answers(state, long, options)[1]) == ["Malformed"]


def test_missing_queues_are_requested_after_a_delay() -> None:
    on = GossipOptions(fallback_request="on", fallback_after=100)
    wanted = arrivals((1, 0, "B1", "r1", ""), (1, 0, "B1", "r2", ""), (1, 0, "B1", "r2", ""))
    waited = np.array([500, 99, 100], dtype=np.uint64)
    assert fallback_requests(create_node(on), wanted, waited, on).tolist() == [False, False, True]
    assert not fallback_requests(create_node(), wanted, waited, SEED).any()
