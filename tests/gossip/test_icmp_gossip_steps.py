"""Gossip kernel on steps of many events and nodes, against the sequential oracle."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS, l1_reach
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.support.gossip.icmp_gossip_slices import NODES, Chances, Slices

MENDED = Options(propagate_on_leaf="on", allowed_by="root", seen_until="purge")
SETTINGS = {
    "mended": MENDED,
    "text": Options(),
    "limits": Options(
        propagate_on_leaf="on",
        allowed_by="root",
        seen_until="purge",
        least_reputation=-1_500,
        most_reputation=70,
        ban_time=3_000,
        max_banned=1,
        max_peers=4,
        max_pool_bytes=120,
        max_queue_messages=4,
        max_queue_bytes=90,
        max_leaf_queues=6,
        impolite_limit=2,
    ),
    "from_to": Options(
        topology="from_to", propagate_on_leaf="on", allowed_by="root", seen_until="purge", max_subscriptions=4
    ),
    "from_to limits": Options(
        topology="from_to",
        max_subscriptions=4,
        heads_diff="new_only",
        max_pool_bytes=120,
        least_reputation=-1_500,
        ban_time=3_000,
        ancestors=1,
    ),
    "ancestors": Options(
        ancestors=2,
        propagate_on_leaf="on",
        allowed_by="root",
        seen_until="purge",
        mistrust_unimplied="on",
        least_reputation=-2_000,
        max_leaf_queues=5,
    ),
    "root": Options(topic_mode="root", heads_diff="new_only", ancestors=1, mistrust_unimplied="on", max_pool_bytes=150),
}
SKETCHES = {
    "flat": Options(
        reconciliation="minisketch",
        propagate_on_leaf="on",
        allowed_by="root",
        seen_until="purge",
        max_sketch_capacity=8,
        max_step_sketches=2,
    ),
    "from_to": Options(
        topology="from_to",
        reconciliation="minisketch",
        propagate_on_leaf="on",
        allowed_by="root",
        seen_until="purge",
        max_sketch_capacity=8,
    ),
}


def compare_steps(seed: int, options: Options, slices: int) -> Counter[str]:
    """Let the steps compare themselves."""
    w = Slices(seed, options)
    for _ in range(slices):
        w.slice()
    assert [f for check in GOSSIP_CHECKS for f in check(Record(w.log, options))] == [], seed
    return w.both.seen


def test_step_of_many_events_equals_sequential_oracle() -> None:
    seen: Counter[str] = Counter()
    for seed, options in enumerate(SETTINGS.values(), 2):
        seen += compare_steps(seed, options, 18)
    needed = {"put", "purge", "Envelope", "dropped", "PoolFull", "Malformed", "BadNeighborPacket"}
    needed |= {"Duplicate", "Impolite", "UnexpectedQueue", "RootMismatch", "Subscriptions"}
    assert {kind for kind in needed if not seen[kind]} == set()


@pytest.mark.parametrize("name", SKETCHES)
def test_steps_equal_the_oracle_with_sketches(name: str) -> None:
    seen = compare_steps(301, SKETCHES[name], 18)
    assert seen["Sketch"] and seen["Ask"]


LATE = Chances(reverts=0.0, answers=0.0, imports=0.25, block=0.35)


@pytest.mark.parametrize(
    ("seed", "chances", "text"),
    [
        (25, Chances(reverts=0.0, answers=0.0), replace(MENDED, propagate_on_leaf="off")),
        (15, LATE, replace(MENDED, allowed_by="topic")),
    ],
)
def test_every_queue_reaches_every_node_among_misbehaving_peers(seed: int, chances: Chances, text: Options) -> None:
    """L1, with forks, lagging nodes and breaking links; under the reference rule it does not hold there."""
    for rules, holds in ((MENDED, True), (text, False)):
        options = replace(rules, least_reputation=-10_000, ban_time=30_000, impolite_limit=16)
        w = Slices(seed, options, chances)
        for _ in range(25):
            w.slice()
        w.settle()
        assert len({node.leaves for node in w.both.nodes.values()}) == 1
        assert (l1_reach(Record(w.log, options), NODES) == []) is holds


@pytest.mark.slow
def test_steps_equal_the_oracle_in_many_networks() -> None:
    seen: Counter[str] = Counter()
    for seed, options in enumerate(SETTINGS.values(), 100):
        seen += compare_steps(seed, options, 40)
    assert seen["Impolite"] and seen["BadNeighborPacket"] and seen["RootMismatch"]
