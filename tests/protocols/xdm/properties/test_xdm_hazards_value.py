"""Hazards 18 to 22 and 25 to 29 of section 6 of the reference: answers, fees and transfers.

On every engine. Test names carry the hazard number.
"""

from dataclasses import replace

import pytest

from tests.spec.xdm.guarantees import violations
from tests.spec.xdm.reported import held_fees, leftovers
from tests.spec.xdm.values import CONSENSUS
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
from tests.support.xdm.properties.xdm_networks import ALICE, BOB


def test_18_no_handler_at_the_other_side(make: Make) -> None:
    e = opened(make)
    e.send(0, 1, b"x", endpoint=9)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok", "NoMessageHandler"]
    minted = [row.amount for row in rows(e, "FeeMint", 1)]
    assert minted == [rows(e, "OutboxMessage", 0)[-1].dst_fee] and not rows(e, "FeePay", 1)
    e.send(0, 1, b"next")
    e.step(ROUND_TRIP)
    assert sum(row.amount for row in rows(e, "FeePay", 1)) == minted[0]
    sound(e)


def test_19_panicking_or_overweight_handler(make: Make) -> None:
    e = opened(make)
    for payload in (b"*", b"#", b"fine"):
        e.send(0, 1, payload)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok", "Other", "Exhausted" if e.weighs else "Other", "Ok"]
    sound(e)


def test_20_mint_rejected_by_the_books(make: Make) -> None:
    e = opened(make, src=0, dst=CONSENSUS)
    e.relaying(False)
    e.send(0, CONSENSUS, b"x")
    e.step(ONE_WAY)
    e.rogue_books(0, CONSENSUS)
    e.step()
    e.relaying(True)
    e.step(ROUND_TRIP)
    assert "FailedToNoteTransferIn" in refusals(e, CONSENSUS, "relay_message")
    assert e.channel(CONSENSUS, 0, 0).next_inbox_nonce == 2
    assert results(e, 0) == ["Ok"]
    assert "G3: (-1, 0, 0, 1) was processed 1 times, answered 0" in violations(e.record())


def test_21_acknowledging_unstored_messages(make: Make) -> None:
    e = opened(make)
    for _ in range(3):
        e.send(0, 1, b"x")
    e.step(ONE_WAY)
    deleted = len(rows(e, "ResponseDeleted", 1))
    e.rogue_acknowledge(1, 0, 0, 77)
    e.step()
    assert len(rows(e, "ResponseDeleted", 1)) == deleted
    e.rogue_acknowledge(1, 0, 0, 2)  # accepts 2 and 1
    e.step()
    assert [row.nonce for row in rows(e, "ResponseDeleted", 1)] == [0, 2, 1]
    assert leftovers(e.record()) == []
    record = e.record()  # and if 2 had been lost before, 1 would remain below 3
    without = [row for row in record.events if (row.event, row.nonce) != ("ResponseDeleted", 1)]
    assert leftovers(replace(record, events=without)) == [(1, 0, 0, 1)]


def test_22_channel_that_falls_silent(make: Make) -> None:
    e = opened(make)
    e.send(0, 1, b"the last")
    e.step(2 * ROUND_TRIP)
    fee = rows(e, "OutboxMessage", 0)[-1].dst_fee
    assert held_fees(e.record()) == {(1, 0, 0): fee}
    sound(e)


def test_25_sender_with_exactly_the_fees(make: Make) -> None:
    e = opened(make)
    e.send(0, 1, b"x")
    e.step()
    sent = rows(e, "OutboxMessage", 0)[-1]
    e.rogue_mint(0, b"exact", sent.src_fee + sent.dst_fee)
    e.rogue_mint(0, b"alive", sent.src_fee + sent.dst_fee + 1)
    e.send(0, 1, b"x", by=b"exact")
    e.send(0, 1, b"x", by=b"alive")
    e.step()
    assert refusals(e, 0, "send_message") == ["FundsUnavailable"]
    assert (e.balance(0, b"alive"), e.balance(0, b"exact")) == (1, sent.src_fee + sent.dst_fee)


def test_25_overflowing_fees(make: Make) -> None:
    e = opened(make, weights={0: (2**128, 5)})
    e.send(0, 1, b"x")
    e.step()
    assert refusals(e, 0, "send_message") == ["BalanceOverflow"]
    assert not rows(e, "FeeBurn")
    sound(e)


@pytest.mark.parametrize("mint", ["collected", "recomputed"])
def test_26_differing_weights_let_supply_drift(make: Make, mint) -> None:
    e = opened(make, replace(FAST, v0_mint=mint), weights={1: (900, 5)})
    e.send(0, 1, b"x")
    e.step(ROUND_TRIP)
    found = violations(e.record())
    if mint == "collected":
        assert found == []
    else:
        assert any(sentence.startswith("G7: all value together") for sentence in found)


def test_26_recomputed_fees_are_equal_where_weights_are(make: Make) -> None:
    e = opened(make, replace(FAST, v0_mint="recomputed"))
    e.send(0, 1, b"x")
    e.transfer(1, 0, BOB, 50)
    e.step(ROUND_TRIP)
    assert results(e, 0) == ["Ok", "Ok"] and results(e, 1) == ["Ok"]
    sound(e)


def test_27_unclaimable_transfers(make: Make) -> None:
    e = opened(make)
    before = e.balance(0, ALICE)
    e.transfer(0, 1, bytes(32), 100)
    e.transfer(0, 1, BOB, 1)
    e.transfer(0, 1, b"x" * 20, 100)
    e.transfer(0, 1, BOB, 10**9)
    e.step(ROUND_TRIP)
    assert refusals(e, 0, "transfer") == ["InvalidAccountId", "MinimumTransferAmount", "LowBalance"]
    assert results(e, 0) == ["Ok", "InvalidAccountId"]
    fees = sum(row.src_fee + row.dst_fee for row in rows(e, "OutboxMessage", 0))
    assert e.balance(0, ALICE) == before - fees
    sound(e)


def test_28_domain_exporting_more_than_it_received(make: Make) -> None:
    e = opened(make)
    e.rogue_mint(0, ALICE, 10**9)
    e.transfer(0, 1, BOB, 10**8)
    before = e.balance(1, BOB)
    e.step(2 * ROUND_TRIP)
    assert "LowBalanceOnDomain" in refusals(e, CONSENSUS, "submit_receipt")
    assert e.balance(1, BOB) == before
    assert e.channel(1, 0, 0).next_inbox_nonce == 1


def test_29_rejected_transfer_with_a_late_response(make: Make) -> None:
    e = opened(make)
    before = e.balance(0, ALICE)
    e.gossip(lambda data, kind, dst, relayer: [] if kind == "response" else [(0, data)])
    e.transfer(0, 1, b"no account", 100)
    e.step(3 * ROUND_TRIP)
    assert e.cancelled(0, 1) == 100 and results(e, 0) == ["Ok"]
    sound(e)
    e.relaying(False)
    response = e.proof("response", 1, 0, 0, 1)
    assert e.deliver("response", response) == []
    assert e.deliver("response", response) == ["Custom(201)"]
    e.step(ONE_WAY)
    assert e.cancelled(0, 1) == 0
    assert [row.kind for row in rows(e, "Transfer", 0)] == ["out", "back"]
    assert e.balance(0, ALICE) == before - sum(row.src_fee + row.dst_fee for row in rows(e, "OutboxMessage", 0))
    sound(e)
