"""The hazards of section 6 that concern gossip, on every engine. Test names carry the hazard number."""

from dataclasses import replace

import pytest

from tests.spec.icmp.candidates import collect
from tests.spec.icmp.events import Fetch, Got, Heads, Peer, Read, Reported
from tests.spec.icmp.gossip_guarantees import GOSSIP_CHECKS
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.spec.icmp.packets import Envelope
from tests.spec.icmp.reconcile import Ask, More, Sketch
from tests.spec.icmp.relay import GENESIS
from tests.spec.icmp.trie import EMPTY_ROOT, R
from tests.support.gossip.icmp_gossip_engines import (
    GOSSIP_ENGINES,
    GossipEngine,
    Make,
    block,
    declares,
    everybody,
    key,
    posted,
    queue,
    registered,
    rows,
    sent_to,
    tells,
    verdicts,
    watched,
)

MODES = ("block", "root")


@pytest.fixture(params=list(GOSSIP_ENGINES))
def make(request: pytest.FixtureRequest) -> Make:
    return lambda *args, **options: GOSSIP_ENGINES[request.param](*args, **options)


def assert_guarantees(g: GossipEngine) -> None:
    assert [f for check in GOSSIP_CHECKS for f in check(Record(g.log, g.options))] == []


@pytest.mark.parametrize("mode", MODES)
def test_06_queue_routed_on_one_fork_only(make: Make, mode: str) -> None:
    g = make(Options(topic_mode=mode))  # type: ignore[arg-type]
    first, x, top = posted(g)
    routed, unrouted = block(g, top, consumes=[2]), block(g, top, seal=b"2")
    for name, paras in (("a", (1,)), ("b", ())):
        g.add(name, *paras)
    g.connect("a", "b")
    everybody(g, "ab", first, x, top)
    everybody(g, "ab", routed, unrouted)
    m = queue(g, x, b"a", b"b")
    g.run(g.options.purge_interval)
    assert key(m) in g.pool("b") and m.root in g.expected("b")[m.topic]
    g.reverts("b", unrouted)
    assert m.topic not in g.expected("b")
    g.run(g.options.purge_interval)
    assert g.pool("b") == {}
    assert key(m) in g.pool("a")
    assert_guarantees(g)


@pytest.mark.parametrize("mode", MODES)
def test_07_two_leaves_list_one_queue(make: Make, mode: str) -> None:
    """Leaves with different and with the same roots; one is dropped (D-6)."""
    g = make(Options(topic_mode=mode))  # type: ignore[arg-type]
    first, x, top = posted(g)
    on_l, on_r = block(g, top, {1: [(2, b"left")]}, seal=b"l"), block(g, top, {1: [(2, b"right")]}, seal=b"r")
    left, right = block(g, on_l), block(g, on_r)
    g.add("a", 1)
    g.imports("a", first, x, top, on_l, on_r, left, right)
    same = queue(g, x, b"a", b"b")
    on_left, on_right = queue(g, on_l, b"left"), queue(g, on_r, b"right")
    assert set(g.leaves("a")) == {left, right}
    assert {key(same), key(on_left), key(on_right)} == set(g.pool("a"))
    g.reverts("a", on_l)
    assert same.root in g.expected("a")[same.topic]
    g.purge()
    assert {key(same), key(on_right)} == set(g.pool("a"))
    assert_guarantees(g)


def test_08_28_unexpected_or_altered_queues(make: Make) -> None:
    """Use a valid trie with an unposted root, and an expected root with other messages."""
    g = make()
    x, _ = watched(g)
    tells(g, "s", "v", queue(g, x, b"nobody posted this"))
    m = queue(g, x, b"a", b"b")
    tells(g, "s", "v", Envelope(m.topic, m.root, (b"x", b"y", b"z")))
    assert verdicts(g, "v") == [("wasteful", "UnexpectedQueue", -100), ("wasteful", "RootMismatch", -450)]
    assert g.pool("v") == {}
    tells(g, "s", "v", m)
    assert verdicts(g, "v")[2:] == [("good", None, 50)]
    assert set(g.pool("v")) == {key(m)}
    assert {row.accesses for row in rows(g, Got, "v")} == {2}
    assert_guarantees(g)


def test_08_topic_belongs_to_its_block(make: Make) -> None:
    """Block mode: use a posted root on the topic of another block."""
    g = make()
    _, top = watched(g)
    tells(g, "s", "v", queue(g, top, b"a", b"b"))
    assert verdicts(g, "v") == [("wasteful", "UnexpectedQueue", -100)]


@pytest.mark.parametrize(
    "messages", [(b"b", b"a"), (b"a",), (b"a", b"b", b"b")], ids=["reordered", "dropped", "repeated"]
)
def test_09_other_messages(make: Make, messages: tuple[bytes, ...]) -> None:
    g = make()
    x, _ = watched(g)
    m = queue(g, x, b"a", b"b")
    tells(g, "s", "v", Envelope(m.topic, m.root, messages))
    assert verdicts(g, "v") == [("wasteful", "RootMismatch", -150 * len(messages))]
    assert g.pool("v") == {}


def test_10_empty_lists(make: Make) -> None:
    g = make()
    x, _ = watched(g)
    m = queue(g, x, b"a", b"b")
    assert all(EMPTY_ROOT not in roots for roots in g.expected("v").values())
    tells(g, "s", "v", Envelope(m.topic, EMPTY_ROOT, ()))
    tells(g, "s", "v", Envelope(m.topic, m.root, ()))
    assert verdicts(g, "v") == [("wasteful", "UnexpectedQueue", -100), ("wasteful", "RootMismatch", -150)]


def test_11_no_queue_without_a_common_leaf(make: Make) -> None:
    g = make()
    first, x, top = posted(g)
    on_fork = block(g, x, {1: [(2, b"fork")]}, seal=b"f")
    fork = block(g, on_fork)
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x, top, on_fork, fork)
    g.settle()
    declares(g, "s", "a", first, x)
    assert sent_to(g, "s") == []
    declares(g, "s", "a", top)
    assert sent_to(g, "s") == [key(queue(g, x, b"a", b"b"))]
    declares(g, "s", "a", top, fork)
    assert sent_to(g, "s")[1:] == [key(queue(g, on_fork, b"fork"))]
    assert_guarantees(g)


def test_12_heads(make: Make) -> None:
    """Six heads are rejected in any case and the previous list remains; unknown heads cost nothing."""
    g = make()
    first, x, top = posted(g)
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x, top)
    unknown = [bytes([i]) * 32 for i in range(5)]
    declares(g, "s", "a", *unknown)
    declares(g, "s", "a", *unknown, top)
    assert [row.error for row in rows(g, Heads, "a")] == [None, "BadNeighborPacket"]
    assert [(row.error, row.reputation) for row in rows(g, Reported, "a")] == [("BadNeighborPacket", -300)]
    assert sent_to(g, "s") == []
    declares(g, "s", "a", top)
    declares(g, "s", "a", *unknown, first)
    g.stranger("other")
    g.connect("a", "other")
    tells(g, "other", "a", queue(g, x, b"c"))
    assert sent_to(g, "s") == [key(queue(g, x, b"a", b"b")), key(queue(g, x, b"c"))]
    assert_guarantees(g)


def test_13_echo(make: Make) -> None:
    """A first echo is a duplicate, a second one impolite, and the limit ends the connection."""
    g = make()
    first, x, top = posted(g)
    g.add("a", 1)
    g.stranger("s")
    g.connect("a", "s")
    g.imports("a", first, x, top)
    declares(g, "s", "a", top)
    m = queue(g, x, b"a", b"b")
    assert sent_to(g, "s") == [key(m)]
    for i in range(1, 5):
        assert g.connected("a") == ["s"]
        tells(g, "s", "a", m)
        expected = [("duplicate", None, 0)] + [("disallowed", "Impolite", 0)] * (i - 1)
        assert verdicts(g, "a") == expected
    assert {row.accesses for row in rows(g, Got, "a")} == {1}
    assert g.connected("a") == []
    assert [row.change for row in rows(g, Peer, "a")] == ["connect", "disconnect"]
    assert sent_to(g, "s") == [key(m)]
    assert_guarantees(g)


def test_14_flood_of_unknown_topics(make: Make) -> None:
    g = make()
    watched(g)
    before = g.held("v")
    for i in range(200):
        root = R([bytes([i])])
        g.says("s", "v", Envelope(bytes([i]) * 32, root, (bytes([i]),)))
    g.settle()
    assert len(rows(g, Got, "v")) == 200
    assert {row.error for row in rows(g, Got, "v")} == {"UnexpectedQueue"}
    assert {row.accesses for row in rows(g, Got, "v")} == {2}
    assert g.held("v") == before


@pytest.mark.parametrize("mode", MODES)
def test_15_identical_queues(make: Make, mode: str) -> None:
    """Equal messages of two senders, and again in a later block: each is collected under its own block."""
    g = make(Options(topic_mode=mode))  # type: ignore[arg-type]
    first = registered(g, 1, 2, 3)
    x = block(g, first, {1: [(2, b"same")], 3: [(2, b"same")]})
    y = block(g, x, {1: [(2, b"same")]})
    top = block(g, y)
    for name, paras in (("a", (1,)), ("v", ()), ("b", (2,))):
        g.add(name, *paras)
    g.connect("a", "v")
    g.connect("v", "b")
    everybody(g, "avb", first, x)
    everybody(g, "avb", y)
    everybody(g, "avb", top)
    m, later = queue(g, x, b"same"), queue(g, y, b"same")
    assert set(g.pool("b")) == {key(m), key(later)}
    assert len(g.pool("b")) == (1 if mode == "root" else 2)
    found = g.fetch("b", top, 2)
    assert rows(g, Fetch, "b")[-1].complete_prefix == (2, 3)
    assert collect(((2, ((1, m.root), (3, m.root))), (3, ((1, m.root),))), found)[1] == (3, [(1, (b"same",))])
    assert_guarantees(g)


def test_16_node_joins_late(make: Make) -> None:
    g = make()
    first, x, top = posted(g)
    done = block(g, top, consumes=[2])
    y = block(g, done, {1: [(2, b"live")]})
    end = block(g, y)
    g.add("a", 1)
    g.imports("a", first, x, top)
    g.imports("a", done, y)
    g.imports("a", end)
    g.add("late")
    g.imports("late", first, x, top, done, y, end)
    g.connect("late", "a")
    g.settle()
    assert set(g.pool("late")) == {key(queue(g, y, b"live"))}
    assert {row.block for row in rows(g, Read, "late")} == {GENESIS.hash, end}
    assert_guarantees(g)


def test_17_holders_offline(make: Make) -> None:
    """The prefix stops at a body without holder, and grows when a holder returns."""
    g = make()
    first, x, top = posted(g)
    y = block(g, top, {3: [(2, b"later")], 1: [(3, b"lost")]})
    g.base.lost = {(y, 1, 3)}
    end = block(g, y)
    for name, paras in (("a", (1,)), ("c", (3,)), ("b", (2,))):
        g.add(name, *paras)
    g.connect("c", "b")
    for blocks in ((first, x, top), (y,), (end,)):
        everybody(g, "acb", *blocks)
    g.fetch("b", end, 2)
    g.connect("a", "b")
    g.settle()
    g.fetch("b", end, 2)
    seen = [(row.wanted, row.complete_prefix) for row in rows(g, Fetch, "b")]
    assert seen == [((2, 4), ()), ((2, 4), (2, 4))]
    assert all(key(queue(g, y, b"lost")) not in g.pool(name) for name in "abc")
    assert_guarantees(g)


@pytest.mark.parametrize("purged", ["before", "after"])
def test_24_purge_coincides_with_a_new_leaf(make: Make, purged: str) -> None:
    g = make()
    first, x, top = posted(g)
    y = block(g, top, {1: [(2, b"live")]})
    done = block(g, y, consumes=[2])
    g.add("a", 1)
    g.imports("a", first, x, top, y)
    old, live = key(queue(g, x, b"a", b"b")), key(queue(g, y, b"live"))
    assert set(g.pool("a")) == {old}
    end = block(g, done)
    if purged == "before":
        g.purge("a")
    g.imports("a", done, end)
    if purged == "after":
        g.purge("a")
    assert live in g.pool("a")
    g.purge("a")
    assert set(g.pool("a")) == {live}
    assert_guarantees(g)


@pytest.mark.parametrize("purges", [False, True])
def test_25_reverted_state(make: Make, purges: bool) -> None:
    """The routing block is found invalid, and another of its height routes nothing.

    A purged queue is sent again only if the purge removed the record of sending it.
    """
    g = make(Options(seen_until="purge" if purges else "disconnect"))
    first, x, top = posted(g)
    routed, other = block(g, top, consumes=[2]), block(g, top, seal=b"other")
    for name, paras in (("a", (1,)), ("v", ())):
        g.add(name, *paras)
    g.connect("a", "v")
    everybody(g, "av", first, x, top)
    m = queue(g, x, b"a", b"b")
    everybody(g, "av", routed)
    if purges:
        g.run(g.options.purge_interval)
        assert g.pool("v") == g.pool("a") == {}
    assert m.topic not in g.expected("v")
    for name in "av":
        g.reverts(name, routed)
        g.imports(name, other)
    g.settle()
    assert set(g.pool("v")) == {key(m)}
    assert m.root in g.expected("v")[m.topic]
    assert_guarantees(g)


@pytest.mark.parametrize("count", [3, 5, 40, 80])
def test_27_undersized_sketch(make: Make, count: int) -> None:
    """The sketch is doubled until the difference fits, and everything arrives once."""
    g = make(Options(reconciliation="minisketch"))
    first = registered(g, *range(1, count + 2))
    x = block(g, first, {1: [(to, bytes([to])) for to in range(2, count + 2)]})
    top = block(g, x)
    g.add("a", 1)
    g.add("v")
    everybody(g, "av", first, x, top)
    g.connect("a", "v")
    g.settle()
    assert len(g.pool("v")) == count
    assert verdicts(g, "v") == [("good", None, 50)] * count
    assert rows(g, Got, "a") == []
    assert_guarantees(g)


def test_27_sketch_claims_are_verified_by_root(make: Make) -> None:
    """A stranger's sketch has an element of no queue; the answer to its request is rejected."""
    g = make(Options(reconciliation="minisketch"))
    x, _ = watched(g)
    g.says("s", "v", Sketch(2, frozenset({7, 8, 9})))
    g.settle()
    assert ("v", More(4)) in g.heard["s"]
    g.says("s", "v", Sketch(4, frozenset({7, 8, 9})))
    g.settle()
    assert ("v", Ask((7, 8, 9))) in g.heard["s"]
    tells(g, "s", "v", replace(queue(g, x, b"a", b"b"), messages=(b"b",)))
    assert verdicts(g, "v") == [("wasteful", "RootMismatch", -150)]
    heard = len(g.heard["s"])
    g.says("s", "v", Ask((7, 2**32 - 1)))
    g.settle()
    assert len(g.heard["s"]) == heard


def test_27_differences_beyond_the_largest_sketch_push_all(make: Make) -> None:
    g = make(Options(reconciliation="minisketch"))
    x, _ = watched(g)
    g.stranger("other")
    g.connect("v", "other")
    m = queue(g, x, b"a", b"b")
    g.disconnect("v", "s")
    tells(g, "other", "v", m)
    g.connect("v", "s")
    declares(g, "s", "v", *g.leaves("v"))
    most = Options().max_sketch_capacity
    for capacity, packet in ((most, Sketch), (most + 1, Envelope)):
        g.says("s", "v", More(capacity))
        g.settle()
        assert isinstance(g.heard["s"][-1][1], packet)
    assert sent_to(g, "s") == [key(m)]


def test_29_more_than_five_leaves(make: Make) -> None:
    """Higher leaves come first, then lower hashes; queues of other leaves are not expected."""
    g = make()
    first = registered(g, 1, 2)
    forks = [block(g, first, {1: [(2, bytes([i]))]}, seal=bytes([i])) for i in range(7)]
    tips = [block(g, B) for B in forks]
    high = block(g, tips[0])
    g.add("a", 1)
    g.imports("a", first, *forks, *tips, high)
    low = sorted(tips[1:])
    assert list(g.leaves("a")) == [high, *low[:4]]
    queues = {key(queue(g, B, bytes([i]))): tips[i] for i, B in enumerate(forks)}
    assert {queues[k] for k in g.pool("a")} == {tips[0], *low[:4]}
    assert_guarantees(g)


def build_request_scene(make: Make, switch: str, lies: bool = False) -> GossipEngine:
    """Build collator b of 2 with its neighbour v; the two holders are connected to nobody."""
    g = make(Options(fallback_request=switch))  # type: ignore[arg-type]
    first = registered(g, 1, 2)
    x = block(g, first, {1: [(2, b"q")]})
    top = block(g, x)
    for name, paras in (("a", (1,)), ("b", (2,)), ("d", (1,)), ("v", ())):
        g.add(name, *paras)
    g.connect("b", "v")
    if lies:
        g.lies["a"] = (b"another",)
    everybody(g, "abdv", first, x, top)
    for _ in range(3):
        g.fetch("b", top, 2)
        g.run(g.options.fallback_after)
    return g


@pytest.mark.parametrize(("switch", "prefixes"), [("off", [(), (), ()]), ("on", [(), (), (2,)])])
def test_missing_queues_are_requested_from_holders(make: Make, switch: str, prefixes: list[tuple[int, ...]]) -> None:
    """3.9 step 3: the request follows a delay, and its answer is gossiped here."""
    g = build_request_scene(make, switch)
    assert [row.complete_prefix for row in rows(g, Fetch, "b")] == prefixes
    assert len(g.pool("v")) == (switch == "on")


def test_answers_with_other_messages_are_rejected(make: Make) -> None:
    g = build_request_scene(make, "on", lies=True)
    assert list(g.pool("v").values()) == [(b"q",)]
