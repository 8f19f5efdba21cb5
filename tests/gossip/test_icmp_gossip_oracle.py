"""Gossip oracle: its networks against 1.2 and 1.3, its options and its packets."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from causeway_proofs.substrate import ordered_root

from tests.spec.icmp.errors import GOSSIP, IcmpError
from tests.spec.icmp.events import Consumed, Fetch, Got, Peer, Pool, Reported
from tests.spec.icmp.gossip import on_chain_heads, on_new_leaf, on_queues
from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS, l1_reach
from tests.spec.icmp.gossip_network import GossipNetwork
from tests.spec.icmp.guarantees import RUNTIME_CHECKS
from tests.spec.icmp.history import Finding, Record
from tests.spec.icmp.node import Node, PeerState, Unrouted, allowed
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Declaration, Envelope
from tests.spec.icmp.relay import Block, Hash
from tests.spec.icmp.trie import R, queueTopic
from tests.spec.icmp.wire import decode, encode
from tests.support.gossip.icmp_gossip_engines import (
    block,
    declares,
    everybody,
    key,
    queue,
    registered,
    rows,
    sent_to,
    tells,
    verdicts,
)
from tests.support.gossip.icmp_gossip_networks import NODES, World, run
from tests.vectors import decode_all, load_vectors

SETTINGS = (
    Options(),
    Options(topic_mode="root"),
    Options(ancestors=1, propagate_on_leaf="on", seen_until="purge"),
    Options(topic_mode="root", heads_diff="new_only", mistrust_unimplied="on", ancestors=2),
    Options(fallback_request="on", ingress_upper="inclusive", allowed_by="root"),
    Options(reconciliation="minisketch"),
)


def test_all_guarantees_hold_on_any_network() -> None:
    """Use forks, breaking links, lost packets and a stranger; every event occurs."""
    seen: Counter[str] = Counter()
    for seed in range(15):
        options = SETTINGS[seed % len(SETTINGS)]
        w = run(seed, options, 10, loss=0.05)
        found = [f for check in (*RUNTIME_CHECKS, *GOSSIP_CHECKS) for f in check(Record(w.g.log, options))]
        assert found == [], f"seed {seed}"
        for row in w.g.log:
            if isinstance(row, Got):
                seen.update((row.verdict, row.error or "good"))
            elif isinstance(row, Reported):
                seen[row.error] += 1
            elif isinstance(row, Pool | Peer):
                seen[row.change] += 1
            elif isinstance(row, Consumed):
                seen["consumed"] += 1
            elif isinstance(row, Fetch):
                seen["partly"] += row.wanted != row.complete_prefix
    wanted = {*GOSSIP, "good", "wasteful", "duplicate", "disallowed", "purge", "disconnect", "consumed", "partly"}
    assert {name for name in wanted if not seen[name]} == set(), seen


def count_unreached(options: Options, late: float) -> int:
    """Count queues missing somewhere at the end of a slot, over networks without breaks or losses."""
    found: list[Finding] = []
    for seed in range(4):
        w = World(seed, options)
        for _ in range(8):
            w.slot(late=late)
            found += l1_reach(Record(w.g.log, options), NODES)
    return len(found)


@pytest.mark.parametrize("mode", ["block", "root"])
def test_every_queue_reaches_every_node(mode: str) -> None:
    """L1: within the time of 1.4 under the reference rules.

    With nodes a block late it holds only if an own new leaf counts as a declaration, unexpected queues are not sent,
    and purged queues are forgotten.
    """
    options = Options(topic_mode=mode)  # type: ignore[arg-type]
    assert count_unreached(options, late=0) == 0
    assert count_unreached(options, late=0.3) > 0
    mended = replace(options, propagate_on_leaf="on", allowed_by="root", seen_until="purge")
    assert (
        count_unreached(mended, late=0.3)
        == count_unreached(replace(mended, reconciliation="minisketch"), late=0.3)
        == 0
    )


def count_rejected_honest(options: Options) -> int:
    """Count packets of honest nodes that others rejected, without link breaks."""
    logs = [run(seed, options, 10, churn=0).g.log for seed in range(4)]
    return sum(isinstance(row, Got) and row.peer != "s" and row.error is not None for log in logs for row in log)


def test_honest_peers_are_rejected_when_a_topic_has_several_roots() -> None:
    assert count_rejected_honest(Options()) > 0
    assert count_rejected_honest(Options(allowed_by="root")) == 0
    assert count_rejected_honest(Options(topic_mode="root")) == 0
    assert count_rejected_honest(Options(topic_mode="root", seen_until="purge")) == 0


@pytest.mark.parametrize(("by", "sent"), [("topic", [b"q", b"r"]), ("root", [b"r"])])
def test_topic_with_one_routed_root(by: str, sent: list[bytes]) -> None:
    """Two queues of one block; on the stranger's fork chain 2 has consumed its queue."""
    g = GossipNetwork(Options(allowed_by=by))  # type: ignore[arg-type]
    first = registered(g, 1, 2, 3)
    x = block(g, first, {1: [(2, b"q"), (3, b"r")]})
    t1 = block(g, x)
    routed, unrouted = block(g, t1, consumes=[2]), block(g, t1, seal=b"2")
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x, t1, routed, unrouted)
    declares(g, "s", "a", routed)
    assert sorted(sent_to(g, "s")) == sorted(key(queue(g, x, message)) for message in sent)


@pytest.mark.parametrize("switch", ["off", "on"])
def test_leading_peer_is_served_by_lagging_peers_only_on_new_leaf(switch: str) -> None:
    """Connect collator c, then a, then v, who has every block first."""
    g = GossipNetwork(Options(propagate_on_leaf=switch))  # type: ignore[arg-type]
    first = registered(g, 1, 2)
    x = block(g, first, {1: [(2, b"q")]})
    t1 = block(g, x)
    t2 = block(g, t1)
    t3 = block(g, t2)
    for name, paras in (("c", (1,)), ("a", ()), ("v", ())):
        g.add(name, *paras)
    g.connect("c", "a")
    g.connect("a", "v")
    everybody(g, "cav", first, x)
    for names, new in (("va", t1), ("v", t2), ("c", t1), ("a", t2), ("v", t3), ("a", t3)):
        everybody(g, names, new)
    m = queue(g, x, b"q")
    assert key(m) in g.pool("a")
    assert (key(m) in g.pool("v")) == (switch == "on")


def lagging_collator(**options: object) -> tuple[GossipNetwork, Hash, Envelope]:
    """Build collator a, whose stranger declared the block of the queue's leaf before a had it."""
    g = GossipNetwork(Options(**options))  # type: ignore[arg-type]
    first = registered(g, 1, 2)
    x = block(g, first, {1: [(2, b"q")]})
    t1 = block(g, x)
    t2 = block(g, t1)
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x, t1)
    declares(g, "s", "a", t2)
    g.imports("a", t2)
    g.settle()
    return g, t2, queue(g, x, b"q")


@pytest.mark.parametrize(("diff", "sent"), [("all", 1), ("new_only", 0)])
def test_heads_declared_again(diff: str, sent: int) -> None:
    """D-7."""
    g, t2, _ = lagging_collator(heads_diff=diff)
    assert sent_to(g, "s") == []
    declares(g, "s", "a", t2)
    assert len(sent_to(g, "s")) == sent


@pytest.mark.parametrize(("a", "one_by_one", "sent"), [(0, True, 0), (1, True, 1), (1, False, 0), (2, False, 0)])
def test_ancestors_that_were_leaves(a: int, one_by_one: bool, sent: int) -> None:
    """5.1 (1): a peer one block behind is served its unrouted queues if the state was read in time."""
    g = GossipNetwork(Options(ancestors=a))
    first = registered(g, 1, 2)
    x = block(g, first, {1: [(2, b"q")]})
    t1 = block(g, x)
    t2 = block(g, t1, consumes=[2])
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x)
    for blocks in ((t1,), (t2,)) if one_by_one else ((t1, t2),):
        g.imports("a", *blocks)
    declares(g, "s", "a", t1)
    assert len(sent_to(g, "s")) == sent
    assert (queue(g, x, b"q").topic in g.expected("a")) == bool(sent)


def test_ancestors_of_peer_heads() -> None:
    """A peer is one block ahead, on a block with a known header that is no leaf any more."""
    for a, sent in ((0, 0), (1, 1)):
        g = GossipNetwork(Options(ancestors=a))
        first = registered(g, 1, 2)
        x = block(g, first, {1: [(2, b"q")]})
        t1 = block(g, x)
        left, right = block(g, t1, seal=b"l"), block(g, t1, seal=b"r")
        g.add("a", 1)
        g.stranger("s")
        g.connect("a", "s")
        for new in (first, x, t1, right):
            g.imports("a", new)
        declares(g, "s", "a", left)
        assert sent_to(g, "s") == []
        g.imports("a", left)
        g.reverts("a", right)
        g.reverts("a", left)
        g.imports("a", right)
        declares(g, "s", "a", t1)
        assert len(sent_to(g, "s")) == sent


@pytest.mark.parametrize("switch", ["off", "on"])
def test_topics_implied_by_no_declared_head(switch: str) -> None:
    """Open question of 3.7."""
    g, t2, m = lagging_collator(mistrust_unimplied=switch)
    g.add("v")
    g.connect("v", "s")
    g.imports("v", *[b.hash for b in g.base.rt.relay.chain(t2)[1:]])
    extra = -100 if switch == "on" else 0
    tells(g, "s", "v", Envelope(m.topic, b"r" * 32, ()))
    tells(g, "s", "v", m)
    declares(g, "s", "v", t2)
    tells(g, "s", "v", Envelope(m.topic, b"r" * 32, ()))
    assert [cost for _, _, cost in verdicts(g, "v")] == [-100 + extra, 50 + extra, -100]


@dataclass
class FixedChain:
    """Chain whose leaves have given unrouted roots."""

    roots: dict[Hash, list[Hash]]
    reads: list[Hash] = field(default_factory=list)

    def unrouted(self, leaf: Hash) -> list[Unrouted]:
        self.reads.append(leaf)
        return [Unrouted(1, b"b" * 32, i, 0, root) for i, root in enumerate(self.roots[leaf], 1)]

    def ingress(self, leaf: Hash, p: int) -> Sequence[Unrouted]:
        return self.unrouted(leaf) if p == 0 else []

    def egress(self, leaf: Hash, p: int) -> Sequence[Unrouted]:
        return [u for u in self.unrouted(leaf) if u.sender == p]

    def parent(self, block: Hash) -> Hash | None:
        return None


def leaf(i: int) -> Block:
    return Block(bytes([i]) * 32, b"p" * 32, i)


@pytest.mark.parametrize("overlap", [False, True])
def test_leaves_are_replaced(overlap: bool) -> None:
    """Replace leaves 0 and 1 by 2, 3 and 4, with other roots and with some equal ones (D-6)."""
    names = [R([bytes([i])]) for i in range(5)]
    chain = FixedChain({leaf(i).hash: [names[i]] for i in range(5)})
    if overlap:
        chain.roots[leaf(1).hash].append(names[2])
    node = Node("n", Options(topic_mode="root"), peers={"k": PeerState()})
    on_new_leaf(node, chain, 0, [leaf(0), leaf(1)])
    assert set(node.expected) == {queueTopic(root) for i in (0, 1) for root in chain.roots[leaf(i).hash]}
    if overlap:
        on_queues(node, chain, 0, [("k", Envelope(queueTopic(names[2]), names[2], (b"\2",)))])
    on_new_leaf(node, chain, 1, [leaf(2), leaf(3), leaf(4)])
    assert node.expected == {queueTopic(names[i]): {names[i]: overlap and i == 2} for i in (2, 3, 4)}
    on_new_leaf(node, chain, 2, [leaf(3), leaf(4)])
    assert queueTopic(names[2]) not in node.expected
    assert [chain.reads.count(leaf(i).hash) for i in range(5)] == [1] * 5
    on_new_leaf(node, chain, 3, [leaf(2)])
    assert node.expected == {queueTopic(names[2]): {names[2]: overlap}}


def test_substrate_vector_queues_are_accepted_on_their_topics() -> None:
    """Accept them only under the root of layout V0."""
    cases = load_vectors("substrate_roots")["egress_queues"]
    roots = [root for case in cases for root in decode_all(case["roots"])]
    chain = FixedChain({leaf(1).hash: roots})
    node = Node("n", Options(topic_mode="root"), peers={"k": PeerState()})
    on_new_leaf(node, chain, 0, [leaf(1)])
    for case in cases:
        messages = tuple(decode_all(case["messages"]))
        topic, v0, v1 = decode_all([case["topic"], *case["roots"]])
        if v1 != v0:
            wrong = on_queues(node, chain, 0, [("k", Envelope(queueTopic(v1), v1, messages))])
            assert [row.error for row in wrong.rows if isinstance(row, Got)] == ["RootMismatch"]
        on_queues(node, chain, 0, [("k", Envelope(topic, v0, messages))])
        assert node.pool[topic] == {v0: messages}, case["case"]
    assert len(node.pool) == len(cases) == 4


@pytest.mark.parametrize("count", [1, 10_000])
def test_30_decision_cost_is_independent_of_the_number_of_queues(count: int) -> None:
    roots = [i.to_bytes(32, "big") for i in range(count)]
    for mode in ("block", "root"):
        node = Node("n", Options(topic_mode=mode), peers={"k": PeerState()})
        chain = FixedChain({leaf(i).hash: roots for i in range(5)})
        on_new_leaf(node, chain, 0, [leaf(i) for i in range(5)])
        on_chain_heads(node, chain, 0, [("k", Declaration(tuple(leaf(i).hash for i in range(5))))])
        topic = queueTopic(b"b" * 32 if mode == "block" else roots[-1])
        assert sum(map(len, node.expected.values())) == count
        assert allowed(node, chain, "k", topic, roots[-1]) == (True, 7)
        assert allowed(node, chain, "k", b"t" * 32, roots[-1]) == (False, 21)


def test_packets_round_trip_as_bytes() -> None:
    heads = Declaration((b"h" * 32, b"i" * 32))
    assert encode(heads) == b"\1\1\x08" + b"h" * 32 + b"i" * 32
    m = Envelope(b"t" * 32, R([b"ab", b""]), (b"ab", b""))
    assert encode(m) == b"\3" + m.root + b"\x08\x08ab\0"
    wide = Envelope(b"t" * 32, b"r" * 32, (b"x" * 70, *[b""] * 70))
    for packet in (heads, m, wide, Declaration(()), Declaration((b"h" * 32,) * 9)):
        assert decode(b"t" * 32, encode(packet)) == packet


MALFORMED = {
    "nothing": b"",
    "another kind": b"\2",
    "another version": b"\1\2\0",
    "half a head": b"\1\1\4" + b"h" * 31,
    "more heads than bytes": b"\1\1\xfe\xff\xff\xff",
    "left over": b"\1\1\0\0",
    "no root": b"\3" + b"r" * 31,
    "a long form": b"\3" + b"r" * 32 + b"\1\0",
    "a length too long": b"\3" + b"r" * 32 + b"\x07" + b"\xff" * 5,
    "a message cut short": b"\3" + b"r" * 32 + b"\4\x08a",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_undecodable_bytes_are_malformed(name: str) -> None:
    with pytest.raises(IcmpError, match="Malformed"):
        decode(b"t" * 32, MALFORMED[name])


def test_malformed_precedes_other_verdicts_and_is_penalized() -> None:
    g, _, m = lagging_collator()
    for data in (*MALFORMED.values(), b"\1\1\x18" + b"h" * 191):
        g.says("s", "a", (m.topic, data))
    g.settle()
    assert {(row.error, row.reputation) for row in rows(g, Reported, "a")} == {("Malformed", -500)}
    assert len(rows(g, Reported, "a")) == 11
    g.says("s", "a", (m.topic, encode(Declaration((b"h" * 32,) * 6))))
    g.settle()
    assert rows(g, Reported, "a")[-1].error == "BadNeighborPacket"


@pytest.mark.parametrize("count", [63, 64, 65, 16_385])
def test_22_keys_of_two_and_four_bytes(count: int) -> None:
    messages = [b"%d" % (i % 5) for i in range(count)]
    assert R(messages) == ordered_root(messages)


def test_23_values_of_any_size() -> None:
    for size in (0, 31, 32, 33, 63, 64, 2**20):
        messages = [b"m" * size, b"n" * size]
        assert R(messages) == ordered_root(messages), size
        assert R(messages[:1]) == ordered_root(messages[:1]), size
