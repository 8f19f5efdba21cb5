"""Hazards 30 to 32, 34 and 36 of section 6 of the reference: forks, outages, losses, the last nonces, a missing log.

On every engine. Test names carry the hazard number.
"""

from dataclasses import replace

import pytest

from tests.spec.xdm.guarantees import unchecked, violations
from tests.spec.xdm.keys import outbox_key
from tests.spec.xdm.state import ChannelState
from tests.spec.xdm.values import CONSENSUS
from tests.support.xdm.properties.xdm_hazards import FAST, ROUND_TRIP, Make, opened, refusals, results, rows, sound
from tests.support.xdm.properties.xdm_hazards import every_engine as every_engine
from tests.support.xdm.properties.xdm_networks import ALICE, BOB

CLOSED = ChannelState.CLOSED


@pytest.mark.parametrize("blocks", [5, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 7))])
def test_30_fork_below_the_depth(make: Make, blocks: int) -> None:
    e = opened(make, replace(FAST, archiving_depth=4), 0, CONSENSUS, domains=1)
    e.step(6)
    e.transfer(0, CONSENSUS, BOB, 100)
    e.step(blocks)
    e.reorganise(3)
    e.step(3 * ROUND_TRIP)
    assert results(e, 0) == ["Ok", "Ok"]
    assert [row.nonce for row in rows(e, "InboxMessage", CONSENSUS)] == [0, 1]
    sound(e)


def test_31_relayer_down_for_a_period(make: Make) -> None:
    """For 100 blocks; for 2,000 in ``test_xdm_faults``."""
    e = opened(make)
    e.relaying(False)
    for _ in range(5):
        e.send(0, 1, b"x")
        e.step(20)
    assert results(e, 0) == ["Ok"]
    e.relaying(True)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok"] * 6
    sound(e)


def test_32_every_sixth_gossip_message_is_dropped(make: Make) -> None:
    e = opened(make)
    count = iter(range(10**6))
    e.gossip(lambda data, kind, dst, relayer: [] if next(count) % 6 == 5 else [(0, data)])
    for _ in range(12):
        e.send(0, 1, b"x")
        e.send(1, 0, b"y")
        e.step()
    e.step(3 * ROUND_TRIP)
    assert results(e, 0) == ["Ok"] * 13 and results(e, 1) == ["Ok"] * 12
    assert next(count) > 50
    sound(e)


def test_34_nonces_and_ids_beyond_64_bits(make: Make) -> None:
    """Numbers are exact up to an engine's limit; the last belongs to the close request."""
    e = opened(make)
    far = 2**64 + 2**200 if e.last_nonce is None else e.last_nonce - 1
    closed = [] if e.last_nonce is None else [e.last_nonce]
    e.rogue_nonce(0, 1, 0, far)
    e.step()
    e.send(0, 1, b"x")
    e.step(ROUND_TRIP)
    assert [row.nonce for row in rows(e, "InboxMessage", 1)] == [0, far, *closed]
    assert rows(e, "OutboxMessageResponse", 0)[-1].nonce == [far, *closed][-1]
    if closed:
        before = e.balance(0, ALICE)
        e.send(0, 1, b"x")
        e.transfer(0, 1, BOB, 100)
        e.close(0, 1, 0)
        e.step(2)
        assert sorted(map(str, refusals(e, 0))) == ["InvalidChannelState", "NoOpenChannel", "NoOpenChannel"]
        assert e.balance(0, ALICE) == before and e.channel(0, 1, 0).state == e.channel(1, 0, 0).state == CLOSED
    wide = 2**64 + 2**200
    assert outbox_key(1, wide, wide).endswith(2 * (bytes(8) + b"\1" + bytes(16) + b"\1" + bytes(6)))


def test_36_log_of_one_side_only(make: Make) -> None:
    e = opened(make)
    record = e.record()
    alone = replace(record, events=[row for row in record.events if row.chain == 1], missing=frozenset((0, CONSENSUS)))
    assert unchecked(alone) == ["G2: 1 rows InboxMessage of 1 are not checked: the log of 0 is missing"]
    assert violations(alone) == []


def test_fraudulent_receipt_after_dependent_messages(make: Make) -> None:
    """Beyond the 36: later relayed messages are proved again."""
    e = opened(make)
    e.transfer(0, 1, BOB, 100)
    e.fraud(0)
    e.step(3)
    e.transfer(0, 1, BOB, 100)
    e.step(2 * ROUND_TRIP)
    assert rows(e, "FraudProved")
    assert results(e, 0) == ["Ok"] * 3
    sound(e)
