"""Hazards 9 to 15, 23, 24 and 33 of section 6 of the reference: opening, closing and full channels.

On every engine. Test names carry the hazard number.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.spec.xdm.guarantees import violations
from tests.spec.xdm.options import CHANNELS_A_BLOCK
from tests.spec.xdm.proofs import Kind
from tests.spec.xdm.reported import abandoned
from tests.spec.xdm.state import ChannelState
from tests.spec.xdm.values import CONSENSUS, Chain, decode_xdm
from tests.support.xdm.properties.xdm_hazards import (
    FAST,
    ONE_WAY,
    ROUND_TRIP,
    Make,
    opened,
    refusals,
    results,
    rows,
    sound,
)
from tests.support.xdm.properties.xdm_hazards import every_engine as every_engine
from tests.support.xdm.properties.xdm_networks import ALICE, BOB, ROOT

INITIATED, OPEN, CLOSED = ChannelState.INITIATED, ChannelState.OPEN, ChannelState.CLOSED


@pytest.mark.parametrize("inbox", ["stored", "pool"])
def test_09_both_sides_initiate_at_once(make: Make, inbox) -> None:
    e = make(replace(FAST, inbox=inbox))
    e.initiate(0, 1)
    e.initiate(1, 0)
    e.step(ROUND_TRIP)
    assert set(refusals(e, 0)) == {"InvalidCall"} == set(refusals(e, 1))
    e.close(0, 1, 0)
    e.close(1, 0, 0)
    e.step(2 * ROUND_TRIP)
    for here, there in ((0, 1), (1, 0)):
        assert e.channel(here, there, 0).state == CLOSED
        assert e.channel(here, there, 0).next_inbox_nonce == 0
        assert [row.deposit for row in rows(e, "ChannelClosed", here)] == [(0, 8, 2)]
    assert not rows(e, "InboxMessage") and not rows(e, "ChannelOpen")
    sound(e)


def test_10_id_beyond_the_next(make: Make) -> None:
    e = make(FAST)
    e.relaying(False)
    e.initiate(0, 1)
    e.initiate(0, 1)
    e.step(ONE_WAY)
    first, second = (e.proof("request", 0, 1, channel, 0) for channel in (0, 1))
    assert e.deliver("request", second) == ["Custom(203)"]
    assert e.deliver("request", first) == []
    assert e.deliver("request", second) == []
    sound(e)


def test_11_opening_rejected_by_the_allow_list(make: Make) -> None:
    e = make(replace(FAST, allowlist="on"), allowlists={0: {1}})
    before = e.balance(0, ROOT)
    e.initiate(0, 1)
    e.initiate(1, 0)
    e.step(ROUND_TRIP)
    assert refusals(e, 1, "initiate_channel") == ["ChainNotAllowed"]
    assert results(e, 0) == ["ChainNotAllowed"]
    assert e.channel(0, 1, 0).state == INITIATED
    e.close(0, 1, 0)
    e.step(ROUND_TRIP)
    assert e.balance(0, ROOT) == before - 2
    sound(e)


def test_12_endpoint_request_on_an_initiated_channel(make: Make) -> None:
    e = make(replace(FAST, allowlist="on"), allowlists={0: {1}})
    e.initiate(0, 1)
    e.step(ROUND_TRIP)
    e.rogue_state(0, 1, 0, OPEN)  # an honest runtime sends none
    e.send(0, 1, b"x")
    e.step(ROUND_TRIP)
    assert set(refusals(e, 1)) == {"InvalidCall"}
    assert e.channel(1, 0, 0).next_inbox_nonce == 1
    assert any(sentence.startswith("G5: OutboxMessage endpoint") for sentence in violations(e.record()))


def test_13_other_side_closes_with_requests_in_flight(make: Make) -> None:
    e = opened(make)
    before = e.balance(0, ALICE)
    e.transfer(0, 1, BOB, 100)
    e.transfer(0, 1, BOB, 200)
    e.close(1, 0, 0)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok", "InvalidChannelState", "InvalidChannelState"]
    assert [row.amount for row in rows(e, "Transfer", 0) if row.kind == "back"] == [100, 200]
    fees = sum(row.src_fee + row.dst_fee for row in rows(e, "OutboxMessage", 0))
    assert fees and e.balance(0, ALICE) == before - fees
    e.send(0, 1, b"late")
    e.step()
    assert refusals(e, 0, "send_message") == ["NoOpenChannel"]
    sound(e)


def test_14_both_sides_close_at_once(make: Make) -> None:
    e = opened(make)
    e.close(0, 1, 0)
    e.close(1, 0, 0)
    e.step(ROUND_TRIP)
    assert e.channel(0, 1, 0).state == CLOSED == e.channel(1, 0, 0).state
    assert set(refusals(e, 0)) == {"InvalidCall"} == set(refusals(e, 1))
    assert abandoned(e.record()) == [(0, 1, 0, 1), (1, 0, 0, 0)]
    assert [row.deposit for row in rows(e, "ChannelClosed")] == [(0, 10, 0), (0, 0, 0)]
    sound(e)


@pytest.mark.parametrize("force", ["off", "on"])
def test_15_closing_with_a_full_outbox(make: Make, force) -> None:
    e = opened(make, replace(FAST, max_outgoing_messages=1, force_close=force))
    e.send(0, 1, b"x")
    e.step()
    e.close(0, 1, 0)
    e.step()
    if force == "on":
        assert e.channel(0, 1, 0).state == CLOSED
        assert len(rows(e, "OutboxMessage", 0)) == 2
    else:
        assert refusals(e, 0) == ["OutboxFull"]
        assert e.channel(0, 1, 0).state == OPEN
    e.step(ROUND_TRIP)
    sound(e)


def test_23_one_message_at_a_time(make: Make) -> None:
    e = opened(make, replace(FAST, max_outgoing_messages=1))
    e.send(0, 1, b"first")
    e.send(0, 1, b"second")
    e.step(ROUND_TRIP)
    assert refusals(e, 0, "send_message") == ["NoOpenChannel"]
    e.send(0, 1, b"third")
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok"] * 3
    sound(e)


def test_24_newest_channel_with_capacity(make: Make) -> None:
    e = opened(make, replace(FAST, max_outgoing_messages=1))
    e.initiate(0, 1)
    e.step(ROUND_TRIP)
    e.send(0, 1, b"newest")
    e.send(0, 1, b"older")
    e.step()
    assert [row.channel_id for row in rows(e, "OutboxMessage", 0) if row.kind == "endpoint"] == [1, 0]


def test_33_more_channels_than_a_block_takes(make: Make) -> None:
    """Use 20 channels with 3 messages each: work per block is bounded, and all is delivered.

    100 channels with 200 messages each are in ``test_xdm_many_channels``.
    """
    e = make(replace(FAST, max_outgoing_messages=3), domains=1)  # so each of them accepts 3
    taken: list[set[tuple[int, int]]] = [set()]

    def hook(data: bytes, kind: Kind, dst: Chain, relayer: str) -> list[tuple[int, bytes]]:
        x = decode_xdm(data)
        taken[-1].add((x.src, x.channel_id))
        return [(0, data)]

    e.gossip(hook)
    for _ in range(20):  # one per block: the other side's pool accepts only the next id (hazard 10)
        e.initiate(0, CONSENSUS)
        e.step()
    e.step(2 * ROUND_TRIP)
    for _ in range(60):
        e.send(0, CONSENSUS, b"x")
    for _ in range(3 * ROUND_TRIP):
        e.step()
        taken.append(set())
    assert results(e, 0) == ["Ok"] * 80
    for block in taken[1:]:  # the first set has all blocks of the opening
        assert max(Counter(src for src, _ in block).values(), default=0) <= CHANNELS_A_BLOCK
    assert max(map(len, taken[1:])) >= CHANNELS_A_BLOCK
    sound(e)
