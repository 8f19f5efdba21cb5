"""Topics and subscriptions of senders and recipients (ICMP reference 5.1, 3)."""

from __future__ import annotations

import numpy as np
import pytest
from causeway_proofs.errors import InvalidInput
from causeway_proofs.sketches import Minisketch

from causeway.core.frame import Frame, concat
from causeway.gossip.fallback import on_answers
from causeway.gossip.heads import on_subscriptions, subscribe
from causeway.gossip.leaves import on_leaves, on_own_queues
from causeway.gossip.options import GossipOptions
from causeway.gossip.peers import connect
from causeway.gossip.pool import purge
from causeway.gossip.queues import needs_hashing, on_queues
from causeway.gossip.reconcile import CHECK, FIRST_CAPACITY
from causeway.gossip.state import NO_INTEREST, GossipState, start_nodes, state_from_tables, state_to_tables
from causeway.gossip.step import StepInputs, step
from causeway.gossip.step_io import StepOutput
from causeway.protocols.shared.digests import digests
from tests.oracles.topics import from_topic, to_topic
from tests.support.gossip.icmp_gossip import (
    arrivals,
    changes,
    gone,
    got,
    h,
    kept_rows,
    leaf_rows,
    packets,
    pairs,
    pool,
    sent,
    u32,
    verdicts,
)

OPTIONS = GossipOptions(topology="from_to", max_subscriptions=2)
TO = 2**32
# Chain 5 sends r1 to 6 and r2 to 7, chain 6 sends r3 to 7; one queue of 5 to 6 equals that of 6 to 7.
QUEUES = [("B1", "r1", 5, 6), ("B1", "r2", 5, 7), ("B1", "r3", 6, 7), ("B2", "r3", 5, 6)]


def leaf(name: str, queues: list[tuple[str, str, int, int]]) -> tuple[Frame, Frame]:
    number = np.array([7], dtype=np.uint64)
    block = Frame({"hash": digests([h(name)]), "number": number, "ancestors": np.zeros((1, 0, 32), np.uint8)})
    columns = [digests([h(of) for of in some]) for some in ([name] * len(queues), *list(zip(*queues, strict=True))[:2])]
    sides = [np.array([row[place] for row in queues], dtype=np.uint32) for place in (2, 3)]
    names = ("block", "issued", "root", "sender", "recipient")
    return block, Frame(dict(zip(names, (*columns, *sides), strict=True)))


def labels(*rows: tuple[int, int]) -> Frame:
    return Frame({"node": u32(row[0] for row in rows), "label": np.array([row[1] for row in rows], dtype=np.uint64)})


def announcements(out: StepOutput) -> Frame:
    """Return the subscriptions that nodes announce to their peers."""
    rows = out.subscriptions
    back = {"node": rows["peer"], "peer": rows["node"], "malformed": np.zeros(len(rows), dtype=bool)}
    return rows.with_columns(**back)


def node_with_leaf(options: GossipOptions = OPTIONS, *rows: tuple[int, int]) -> GossipState:
    """Return node 1 with leaf A, shared with its peers 7, 8 and 9."""
    state, _ = connect(start_nodes(u32([1]), options), pairs((1, 7), (1, 8), (1, 9)), options)
    state, _ = on_leaves(state, leaf_rows({1: ["A"]}), *leaf("A", QUEUES), options)
    state, _ = step(state, StepInputs(heads=packets((1, 7, ["A"]), (1, 8, ["A"]), (1, 9, ["A"]))), 0, options)
    return subscribe(state, labels(*rows), options)[0] if rows else state


def peer_announcements(*rows: tuple[int, list[int]], malformed: bool = False) -> Frame:
    found = np.full((len(rows), 2), NO_INTEREST)
    for row, (_, some) in enumerate(rows):
        found[row, : len(some)] = some
    frame = pairs(*((1, peer) for peer, _ in rows))
    return frame.with_columns(labels=found, malformed=np.full(len(rows), malformed))


def test_node_expects_subscribed_queues_on_topics_of_both_sides() -> None:
    state = node_with_leaf(OPTIONS, (1, 5), (1, TO + 7))
    expected = state_to_tables(state)["expected"]
    found = {*zip((t.tobytes() for t in expected["topic"]), (r.tobytes() for r in expected["root"]), strict=True)}
    one, two = from_topic(h("B1"), 5), to_topic(h("B1"), 7)
    assert found == {
        (one, h("r1")),
        (one, h("r2")),
        (two, h("r2")),
        (two, h("r3")),
        (from_topic(h("B2"), 5), h("r3")),
    }
    rows = arrivals(*((1, 8, "B1", root, root) for root in ("r2", "r2", "r1")))
    topics = digests([two, to_topic(h("B1"), 6), to_topic(h("B1"), 6)])
    assert needs_hashing(state, rows.with_columns(topic=topics), OPTIONS).tolist() == [True, False, False]
    assert verdicts(on_queues(state, rows.with_columns(topic=topics), OPTIONS)[1]) == [
        "OK",
        "UnexpectedQueue",
        "UnexpectedQueue",
    ]
    assert len(state_to_tables(node_with_leaf())["expected"]) == 0
    asked = rows.with_columns(topic=topics)
    assert verdicts(on_answers(state, asked, OPTIONS)[1]) == ["OK", "UnexpectedQueue", "UnexpectedQueue"]


def test_holder_serves_both_topics_by_subscription() -> None:
    state, out = on_subscriptions(node_with_leaf(), peer_announcements((8, [TO + 6]), (9, [5, TO + 7])), OPTIONS)
    assert verdicts(out) == ["OK", "OK"]
    state, out = on_own_queues(state, kept_rows((1, "r1"), (1, "r2")), OPTIONS)
    assert len(got(out)) == 4
    # Peer 7 has not announced anything; r2 goes to 9 on both of its topics.
    assert sorted(sent(out)) == [(1, 8, "r1"), (1, 9, "r1"), (1, 9, "r2"), (1, 9, "r2")]
    # Late subscribers are sent existing queues once.
    rows = peer_announcements((7, [6]), (7, [TO + 6, TO + 7]))
    state, out = on_subscriptions(state, rows, OPTIONS)
    assert sorted(sent(out)) == [(1, 7, "r1"), (1, 7, "r2")]
    assert sent(on_subscriptions(state, rows, OPTIONS)[1]) == []
    # Pools drop queues that no block lists, regardless of subscriptions.
    assert purge(state, 2_000, OPTIONS)[1].purged["node"].tolist() == []


def test_subscriptions_are_bounded_and_invalid_ones_are_penalized() -> None:
    with pytest.raises(InvalidInput, match="node 1 has 3; allowed: up to 2"):
        node_with_leaf(OPTIONS, (1, 5), (1, 6), (1, 7))
    state = node_with_leaf(OPTIONS, (1, 5), (1, 6), (1, 5))
    assert state.nodes["interests"].tolist() == [[5, 6]]
    assert subscribe(state, labels((1, 7)), OPTIONS)[0].nodes["interests"].tolist() == [[7, NO_INTEREST]]
    strict = GossipOptions(topology="from_to", max_subscriptions=2, least_reputation=-500)
    state, out = on_subscriptions(
        node_with_leaf(strict), peer_announcements((8, [5]), (6, [5]), malformed=True), strict
    )
    assert verdicts(out) == ["Malformed", "NotConnected"] and changes(out) == [-500, 0]
    assert gone(out) == [(1, 8, "Malformed")] and state.peers["peer"].tolist() == [7, 9]
    ended = peer_announcements((8, [5]), (8, [5])).with_columns(malformed=np.array([False, True]))
    state, out = on_subscriptions(node_with_leaf(strict), ended, strict)
    assert gone(out) == [(1, 8, "Malformed")] and (state.peers["interests"] == NO_INTEREST).all()
    mixed = peer_announcements((8, [5]), (9, [6]), (8, [7])).with_columns(malformed=np.array([True, False, False]))
    state, out = on_subscriptions(node_with_leaf(strict), mixed, strict)
    assert verdicts(out) == ["Malformed", "OK", "NotConnected"]
    assert state.peers["interests"][:, 0].tolist() == [NO_INTEREST, 6]
    with pytest.raises(InvalidInput, match="topology = flat"):
        step(start_nodes(u32([1]), GossipOptions()), StepInputs(subscribe=labels((1, 5))), 0, GossipOptions())


def test_reconnected_peer_has_no_subscriptions() -> None:
    state, _ = on_subscriptions(node_with_leaf(), peer_announcements((8, [5])), OPTIONS)
    state, out = step(state, StepInputs(connect=pairs((1, 8), (1, 3))), 0, OPTIONS)
    assert out.subscriptions["peer"].tolist() == [3, 8]
    assert (state.peers["interests"] == NO_INTEREST).all() and state.peers["interests"].shape == (4, 2)


def test_queues_reach_only_nodes_that_need_them() -> None:
    """Line of a collator of 5, nodes that need queues to 6, to 7 and to both, and one that needs none."""
    line = [(1, 2), (2, 3), (3, 4), (4, 5)]
    both = pairs(*sorted([*line, *((b, a) for a, b in line)]))
    state = start_nodes(u32(range(1, 6)), OPTIONS)
    leaves = (leaf_rows({node: ["A"] for node in range(1, 6)}), *leaf("A", QUEUES))
    subscribed = labels((2, TO + 6), (2, TO + 7), (3, TO + 6), (4, TO + 7))
    kept = kept_rows((1, "r1"), (1, "r2"), (1, "r3"))
    inputs, seen = StepInputs(connect=both, leaves=leaves, subscribe=subscribed, kept=kept), []
    for time in range(12):
        state, out = step(state, inputs, time, OPTIONS)
        if time == 3:
            # Tables give equal results.
            apart = state_to_tables(state)
            state = state_from_tables({name: concat([frame, frame.slice(0, 0)]) for name, frame in apart.items()})
            assert all(np.array_equal(state_to_tables(state)[t][c], apart[t][c]) for t in apart for c in apart[t].names)
        assert {*verdicts(out)} <= {"OK", "Duplicate"}
        seen += sent(out)
        heads, queues, count = out.heads, out.queues, np.ones(len(out.queues), dtype=np.uint64)
        inputs = StepInputs(
            subscriptions=announcements(out),
            heads=heads.with_columns(
                node=heads["peer"], peer=heads["node"], malformed=np.zeros(len(heads), dtype=bool)
            ),
            queues=queues.with_columns(
                node=queues["peer"],
                peer=queues["node"],
                found=queues["root"],
                messages=count,
                size=count,
                malformed=np.zeros(len(queues), dtype=bool),
            ),
        )
    assert sent(out) == [] and len(out.subscriptions) == 0
    there = {*pool(state_to_tables(state)["pool"])}
    assert {root for node, root in there if node == 2} == {"r1", "r2", "r3"}
    assert {root for node, root in there if node == 3} == {"r1", "r3"}
    # Node 4 needs queues to 7, which its neighbours lack: operators link nodes that need a topic.
    assert not {root for node, root in there if node in (4, 5)}


def test_missing_option_dependencies_are_named() -> None:
    block, unrouted = leaf("A", QUEUES)
    with pytest.raises(InvalidInput, match="unrouted: topology = from_to needs the columns sender"):
        on_leaves(
            start_nodes(u32([1]), OPTIONS),
            leaf_rows({1: ["A"]}),
            block,
            unrouted.select(("block", "issued", "root")),
            OPTIONS,
        )
    salted = GossipOptions(reconciliation="minisketch")
    with pytest.raises(InvalidInput, match="connect: reconciliation = minisketch needs the column salt"):
        connect(start_nodes(u32([1]), salted), pairs((1, 2)), salted)


def test_sketch_covers_the_receivers_subscriptions() -> None:
    options = GossipOptions(topology="from_to", max_subscriptions=2, reconciliation="minisketch")
    links = pairs((1, 8)).with_columns(salt=np.zeros((1, 32), dtype=np.uint8))
    state, _ = connect(start_nodes(u32([1]), options), links, options)
    state, _ = on_leaves(state, leaf_rows({1: ["A"]}), *leaf("A", QUEUES), options)
    state, _ = on_own_queues(state, kept_rows((1, "r1"), (1, "r2"), (1, "r3")), options)
    state, _ = step(state, StepInputs(heads=packets((1, 8, ["A"]))), 0, options)
    _, out = on_subscriptions(state, peer_announcements((8, [TO + 6])), options)
    # Queues of blocks B1 and B2 to 6: r1 and r3.
    sketch = Minisketch.deserialize(32, FIRST_CAPACITY + CHECK, out.sketches["sketch"][0].as_py())
    assert len(sketch.decode()) == 2


def test_labels_stay_with_their_topics_when_a_leaf_is_added() -> None:
    """Include that of chain 0, whose two labels are the ends of the two ranges."""
    more = [("B3", "r4", 0, 9), ("B3", "r5", 9, 0), ("B0", "r1", 4, 3)]
    state = node_with_leaf(OPTIONS, (1, TO), (1, 0))
    state, _ = on_leaves(state, leaf_rows({1: ["A", "C"]}), *(leaf("C", more)), OPTIONS)
    rows = state_to_tables(state)["labels"]
    topics = {
        topic: label
        for block, _, sender, recipient in (*QUEUES, *more)
        for topic, label in ((from_topic(h(block), sender), sender), (to_topic(h(block), recipient), TO + recipient))
    }
    assert {topic.tobytes(): int(label) for topic, label in zip(rows["topic"], rows["label"], strict=True)} == topics
    assert {root for _, root in pool(state_to_tables(state)["expected"])} == {"r4", "r5"}
