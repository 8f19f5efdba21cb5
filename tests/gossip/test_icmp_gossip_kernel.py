"""Gossip kernel against its oracle in random networks: equal states and sends after every event."""

from collections import Counter

import pytest

from tests.spec.icmp.events import Got, Pool
from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS, l1_reach
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.support.gossip.icmp_gossip_kernel import BothNodes
from tests.support.gossip.icmp_gossip_networks import NODES, World, run
from tests.tiers import sized

MENDED = Options(propagate_on_leaf="on", allowed_by="root", seen_until="purge")
SETTINGS = (
    MENDED,
    Options(),
    Options(topic_mode="root"),
    Options(ancestors=1, propagate_on_leaf="on", seen_until="purge"),
    Options(topic_mode="root", heads_diff="new_only", mistrust_unimplied="on", ancestors=2),
    Options(allowed_by="root", mistrust_unimplied="on", fallback_request="on"),
    Options(heads_diff="new_only", ancestors=2, propagate_on_leaf="on", allowed_by="root", seen_until="purge"),
    Options(reconciliation="minisketch", ancestors=1, propagate_on_leaf="on", allowed_by="root", seen_until="purge"),
)


def compare_networks(seeds: range, slots: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        options = SETTINGS[seed % len(SETTINGS)]
        late = 0.1 + 0.2 * (seed % 2)
        w = run(seed, options, slots, loss=0.05, late=late, nodes=BothNodes)
        assert [f for check in GOSSIP_CHECKS for f in check(Record(w.g.log, options))] == [], seed
        for row in w.g.log:
            if isinstance(row, Got):
                seen[row.error or row.verdict] += 1
            elif isinstance(row, Pool):
                seen[row.change] += 1
    return seen


def test_kernel_equals_oracle_after_every_event() -> None:
    """Use forks, lagging nodes, breaking links, lost packets and a stranger."""
    seen = compare_networks(range(len(SETTINGS)), 4)
    assert {name for name in ("good", "duplicate", "UnexpectedQueue", "put", "purge") if not seen[name]} == set()


@pytest.mark.slow
def test_kernel_equals_oracle_in_many_networks() -> None:
    seen = compare_networks(range(8, sized(16, 28)), 10)
    assert seen["Impolite"] and seen["RootMismatch"] and seen["duplicate"]


@pytest.mark.slow
def test_every_queue_reaches_every_node_with_lagging_nodes() -> None:
    """L1, with the kernel's defaults."""
    for seed in range(3):
        w = World(seed, MENDED, nodes=BothNodes)
        for _ in range(8):
            w.slot(late=0.3)
            assert l1_reach(Record(w.g.log, MENDED), NODES) == []
