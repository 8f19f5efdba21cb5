"""Certification, blocks ahead of it, payload limits and malicious parties, round by round.

Honest messages arrive once, in order and answered, and rejections are named. Hazards 5, 11, 12, 13 and 35 to 37 in
whole networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.spec.ic import guarantees
from tests.spec.ic.certified import PARTS
from tests.spec.ic.payloads import MAKERS
from tests.support.ic.ic_network import ACTOR, Network, OracleNetwork, Played, of

TWO = {1: (0, ACTOR), 2: (1, ACTOR)}
THREE = {1: (0, ACTOR), 2: (1, ACTOR), 3: (2, ACTOR)}
ON = {"certification": "bls", "vsr": "deployed", "sender_mismatch": "deployed"}

Engine = Callable[..., Played]


def networks(kind: type[Network] | type[OracleNetwork]) -> Iterator[Engine]:
    """Create certifying networks; check invariants at the end."""
    made: list[Played] = []

    def network(*args: Any, options: dict[str, Any] | None = None, **scenario: Any) -> Played:
        made.append(kind(*args, options={**ON, **(options or {})}, **scenario))
        return made[-1]

    yield network
    for net in made:
        net.check()
        if isinstance(net, OracleNetwork) and net.run.proposals:
            assert guarantees.g12_payloads(net.run.proposals, net.events) == []
        if isinstance(net, Network):
            assert net.run.payloads.violations() == []


@pytest.fixture(params=[Network, OracleNetwork])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Return kernel and oracle in turn."""
    yield from networks(request.param)


def inducted_requests(net: Played, chain: int) -> list[int]:
    """Return the counted callbacks of requests that a subnet inducted from streams."""
    return [event[5] for event in of(net.happened, chain, "received", "REQUEST")]


@pytest.mark.parametrize("delay", [0, 1, 4])
def test_messages_are_inducted_once_certified(engine: Engine, delay: int) -> None:
    one_call(engine(TWO, options={"certification_delay": delay}), 1 + delay)


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("delay", [0, 4])
def test_messages_are_inducted_once_their_block_is_executed(engine: Engine, delay: int, ahead: int) -> None:
    one_call(engine(TWO, options={"certification_delay": delay, "blocks_ahead": ahead}), 1 + delay + ahead)


def one_call(net: Played, hop: int) -> None:
    """Assert that a call and its answer take ``hop`` rounds each way."""
    net.call(1, 2, cycles=7)
    net.rounds(hop)
    assert inducted_requests(net, 1) == []
    net.rounds(1)
    assert inducted_requests(net, 1) == [0], "at tick 1 + hop"
    net.rounds(hop - 1)
    assert net.answers(1) == []
    net.rounds(1)
    assert net.answers(1) == [(0, 0)]


@pytest.mark.parametrize("ahead", [0, 2])
def test_traffic_in_every_round_arrives_once_and_in_order(engine: Engine, ahead: int) -> None:
    net = engine(THREE, options={"certification_delay": 1, "blocks_ahead": ahead})
    for _ in range(6):
        net.call(1, 2)
        net.call(2, 1)
        net.call(3, 1)
        net.rounds(1)
    net.rounds(3 * (3 + ahead))
    for canister in (1, 2, 3):
        assert net.answers(canister) == [(callback, 0) for callback in range(6)]
    assert of(net.happened, ..., "slice refused") == []


@pytest.mark.parametrize("ahead", [0, 2])
def test_hazard_12_halted_subnet_retains_agreed_payloads(engine: Engine, ahead: int) -> None:
    net = engine(TWO, options={"blocks_ahead": ahead}, halts=[(1, 3, 6)])
    for _ in range(4):
        net.call(1, 2)
        net.rounds(1)
    net.rounds(2)
    assert inducted_requests(net, 1) == [0][ahead > 0 :], "nothing while it is halted"
    net.rounds(8 + 2 * ahead)
    assert net.answers(1) == [(callback, 0) for callback in range(4)]


@pytest.mark.parametrize("part", PARTS)
def test_hazard_5_altered_slices_are_rejected_and_the_next_ones_arrive(engine: Engine, part: str) -> None:
    net = engine(TWO, carriers=[("alter", 0, 1, 2, 4, {"part": part})])
    net.call(1, 2, "take", cycles=7)
    net.call(1, 2)
    net.rounds(4)
    assert of(net.happened, 1, "slice refused") == [(1, "slice refused", 0, "InvalidStream")] * 3
    assert inducted_requests(net, 1) == []
    net.rounds(4)
    assert net.answers(1) == [(0, 0), (1, 0)]
    assert net.balances() == {1: 997, 2: 1_003}


REFUSED = {
    "gap": "UnexpectedMessages",
    "replay": "UnexpectedMessages",
    "reorder": "InvalidStream",
    "foreign": "InvalidStream",
    "oversized": "PayloadTooLarge",
    "stale": "UnexpectedMessages",
    "altered": "InvalidStream",
}


@pytest.mark.parametrize("does", MAKERS)
def test_malicious_proposals_are_notarized_by_nobody(engine: Engine, does: str) -> None:
    """Subnet 0 inducts nothing of subnet 1 for a while, so that its stream holds earlier messages."""
    withheld = frozenset((tick, 1, 0) for tick in range(1, 9))
    limit = {"payload_bytes": 700} if does == "oversized" else {}
    net = engine(TWO, options=limit, makers=[(does, 1, 4, 8)], withheld=withheld)
    for _ in range(6):
        for _ in range(3):
            net.call(1, 2)
        net.rounds(1)
    net.rounds(2)
    names = {event[3] for event in of(net.happened, 1, "slice refused")}
    assert names == {REFUSED[does]}
    net.rounds(16)
    assert net.answers(1) == [(callback, 0) for callback in range(18)]


@pytest.mark.parametrize("ahead", [0, 1])
def test_hazard_13_payloads_respect_their_limit_and_everything_arrives(engine: Engine, ahead: int) -> None:
    net = engine(THREE, options={"payload_bytes": 800, "blocks_ahead": ahead}, makers=[("oversized", 1, 1, 20)])
    for _ in range(8):
        net.call(1, 2, payload=bytes(100))
        net.call(3, 2, payload=bytes(100))
    net.rounds(60)
    for canister in (1, 3):
        assert net.answers(canister) == [(callback, 0) for callback in range(8)]
    assert {event[3] for event in of(net.happened, 1, "slice refused")} == {"PayloadTooLarge"}
    assert isinstance(net, Network | OracleNetwork)
    log = net.run.payloads.proposals if isinstance(net, Network) else net.run.proposals
    assert 600 < max(row.size for row in log if row.error is None) <= 800


def test_payloads_too_small_for_a_message_still_carry_signals(engine: Engine) -> None:
    net = engine(TWO, options={"payload_bytes": 500})
    net.call(1, 2)
    net.call(1, 2, payload=bytes(600))
    net.rounds(12)
    assert inducted_requests(net, 1) == [0], "the second one never fits, and nothing is taken before it"
    assert net.answers(1) == [(0, 0)]
    assert of(net.happened, 0, "collected") != []


def test_hazard_35_each_subnet_counts_its_own_heights(engine: Engine) -> None:
    """A halted subnet makes no height; its certified data is still served."""
    net = engine(TWO, halts=[(1, 3, 5)])
    net.call(2, 1)
    net.rounds(3)
    assert len(of(net.happened, 0, "received", "REQUEST", 2, 1)) == 1, "from the last height before"
    numbers = []
    for _ in range(4):
        net.rounds(1)
        numbers.append(own_heights(net))
    assert numbers == [{0: 4, 1: 2}, {0: 5, 1: 2}, {0: 6, 1: 3}, {0: 7, 1: 4}]
    assert net.answers(2) == [(0, 0)]


def own_heights(net: Played) -> dict[int, int]:
    if isinstance(net, OracleNetwork):
        return {subnet: state.number for subnet, state in net.run.states.items()}
    assert isinstance(net, Network)
    heads = net.state.frames()["heads"]
    return {
        net.run.numbers[chain]: number
        for chain, number in zip(heads["chain"].tolist(), heads["number"].tolist(), strict=True)
    }
