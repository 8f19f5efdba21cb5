"""The hazards of section 6 that concern the relay chain, on every engine. Test names carry the hazard number."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.spec.icmp.candidates import Candidate
from tests.spec.icmp.guarantees import RUNTIME_CHECKS
from tests.spec.icmp.history import Record
from tests.spec.icmp.options import Options
from tests.spec.icmp.relay import GENESIS, Hash, Mark, block_on
from tests.spec.icmp.runtime import Call
from tests.spec.icmp.trie import EMPTY_ROOT, R
from tests.support.icmp.icmp_engines import ENGINES, Engine

Make = Callable[..., Engine]


@pytest.fixture(params=list(ENGINES))
def make(request: pytest.FixtureRequest) -> Make:
    return lambda options=None: ENGINES[request.param](options or Options())


def registered(e: Engine, *paras: int) -> Hash:
    return e.make(calls=[Call("register", p, head=b"head") for p in paras]).block.hash


def two_blocks(e: Engine) -> tuple[Hash, Hash, Hash]:
    """Build block a with queues of 2, 3 and 4 for 1, block b with one of 2, and an empty block on top."""
    first = registered(e, 1, 2, 3, 4)
    a = e.make(first, [e.candidate(first, x, [(1, bytes([x])), (1, b"z")]) for x in (2, 3, 4)]).block.hash
    b = e.make(a, [e.candidate(a, 2, [(1, b"later")])]).block.hash
    return a, b, e.make(b).block.hash


def assert_guarantees(e: Engine) -> None:
    assert [f for check in RUNTIME_CHECKS for f in check(Record(e.log, e.options))] == []


def with_watermark(c: Candidate, watermark: Mark) -> Candidate:
    return replace(c, receipt=replace(c.receipt, watermark=watermark))


def test_01_missing_bodies_end_the_prefix(make: Make) -> None:
    e = make()
    a, b, top = two_blocks(e)
    for lost, prefix in (((a, 3, 1), []), ((b, 2, 1), [2])):
        e.lost = {lost}
        assert [n for n, _ in e.candidate(top, 1).lists] == prefix
    e.lost = set()
    whole = e.candidate(top, 1)
    assert e.validate(replace(whole, lists=whole.lists[1:])) == "NotAPrefix"


def test_02_block_with_one_missing_queue_is_not_consumed(make: Make) -> None:
    e = make()
    a, _, top = two_blocks(e)
    e.lost = {(a, 4, 1)}
    c = e.candidate(top, 1)
    assert c.lists == []
    assert e.make(top, [c]).errors == []
    assert_guarantees(e)


def test_03_two_of_three_queues(make: Make) -> None:
    e = make()
    c = e.candidate(two_blocks(e)[2], 1, take=1)
    n, queues = c.lists[0]
    assert e.validate(replace(c, lists=[(n, queues[:2])])) == "IngressCountMismatch"
    assert e.validate(replace(c, lists=[(n, queues[::-1])])) == "IngressChainMismatch"


def test_04_repeated_prefix(make: Make) -> None:
    e = make()
    top = two_blocks(e)[2]
    c, other = e.candidate(top, 1), e.candidate(top, 1, [(2, b"other")])
    assert e.make(top, [c, other]).errors == [(1, "DuplicateCandidate")]
    assert e.make(e.make(top, [c], seal=b"2").block.hash, [other]).errors == [(1, "ParentMismatch")]
    assert_guarantees(e)


def test_05_watermarks(make: Make) -> None:
    e = make()
    a, b, top = two_blocks(e)
    fork = e.make(b, seal=b"fork").block
    done = e.make(top, [e.candidate(top, 1, take=1)]).block
    c = e.candidate(done.hash, 1, take=0)
    including = block_on(done, b"3")
    for seal, (mark, errors) in enumerate(
        (
            (GENESIS.mark, [(1, "WatermarkRegressed")]),
            (c.receipt.watermark, []),
            (fork.mark, [(1, "WatermarkNotAncestor")]),
            (including.mark, [(1, "WatermarkNotAncestor")]),
            (Mark(3, a), [(1, "WatermarkNotAncestor")]),
        )
    ):
        changed = with_watermark(c, mark)
        assert e.make(done.hash, [changed], seal=b"%d" % seal, attested=[changed.receipt.candidate]).errors == errors
    assert e.validate(with_watermark(e.candidate(done.hash, 1), done.mark)) == "NotAPrefix"


def test_20_egress_errors_are_named_in_order(make: Make) -> None:
    """Check pair by pair: unsorted, to itself, empty, unknown."""
    e = make()
    first = registered(e, 1, 2, 3)
    good = R([b"x"])
    for roots, error in (
        (((3, good), (2, EMPTY_ROOT)), "EgressOutOfOrder"),
        (((2, EMPTY_ROOT), (9, good)), "SelfAddressed"),
        (((9, EMPTY_ROOT),), "EmptyTrieRoot"),
        (((9, good),), "DestinationDoesNotExist"),
    ):
        c = e.candidate(first, 2)
        c = replace(c, receipt=replace(c.receipt, egress_queue_roots=roots))
        assert e.make(first, [c], seal=error.encode(), attested=[c.receipt.candidate]).errors == [(2, error)]


def test_15_identical_queues_are_consumed_each(make: Make) -> None:
    e = make()
    first = registered(e, 1, 2, 3)
    a = e.make(first, [e.candidate(first, x, [(1, b"same")]) for x in (2, 3)]).block.hash
    top = e.make(e.make(a, [e.candidate(a, 2, [(1, b"same")])]).block.hash).block.hash
    root = R([b"same"])
    assert e.ingress(top, 1) == ((2, ((2, root), (3, root))), (3, ((2, root),)))
    e.make(top, [e.candidate(top, 1)])
    assert_guarantees(e)


def test_18_any_prefix_of_many_blocks(make: Make) -> None:
    e = make()
    top = registered(e, 1, 2)
    for _ in range(60):
        top = e.make(top, [e.candidate(top, 2, [(1, b"x")])]).block.hash
    top = e.make(top).block.hash
    assert len(e.ingress(top, 1) or ()) == 60
    top = e.make(top, [e.candidate(top, 1, take=17)]).block.hash
    assert len(e.ingress(top, 1) or ()) == 43
    assert_guarantees(e)


def test_19_deregistered_and_registered_again(make: Make) -> None:
    e = make()
    top = two_blocks(e)[2]
    gone = e.make(top, calls=[Call("deregister", 1), Call("deregister", 2)]).block.hash
    assert e.ingress(gone, 1) is None
    assert e.egress(gone, 2) == ()
    back = e.make(gone, calls=[Call("register", 1, head=b"new")]).block.hash
    assert e.ingress(back, 1) == ()
    assert e.make(back, [e.candidate(back, 1)]).errors == []
    kept = e.make(top, calls=[Call("deregister", 2)], seal=b"kept").block.hash
    assert [n for n, _ in e.ingress(kept, 1) or ()] == [2, 3]
    assert e.make(kept, [e.candidate(kept, 1)]).errors == []
    assert_guarantees(e)


def test_21_inactive_chain_is_not_addressed(make: Make) -> None:
    e = make()
    first = registered(e, 1)
    c = e.candidate(first, 1, [(7, b"x")])
    assert e.make(first, [c]).errors == [(1, "DestinationDoesNotExist")]
    later = e.make(first, calls=[Call("register", 7)], seal=b"later").block.hash
    assert e.ingress(e.make(later).block.hash, 7) == ()


def test_26_censored_pair(make: Make) -> None:
    e = make()
    top = registered(e, 1, 2)
    seen = []
    for calls in ([], [Call("block", 1, 2)], [], [Call("unblock", 1, 2)], []):
        top = e.make(top, [e.candidate(top, 2, [(1, b"x")])], calls).block.hash
        seen.append(top)
    top = e.make(top).block.hash
    assert [n for n, _ in e.ingress(top, 1) or ()] == [2, 5, 6]
    assert [n for n, _ in e.egress(top, 2)] == [2, 5, 6]
    e.make(top, [e.candidate(top, 1)])
    assert_guarantees(e)
