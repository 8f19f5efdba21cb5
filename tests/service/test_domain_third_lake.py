"""A domain of a third lake with a malicious operator, and overflowing amounts.

A lake that follows the consensus chain credits exactly what the domain's confirmed receipts declare. Amounts that no
sum of a chain can hold end nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from causeway_proofs.xdm.messages import CollectedFee, EndpointRequest, EndpointResponse, Message

from causeway.core.vocabulary import Kind
from causeway.protocols.shared.contents import encode_contents
from causeway.protocols.shared.messages import blank_messages
from causeway.protocols.xdm.transactions import RelayedMessages, encode_transaction
from tests.service.test_domain_lakes import executed_again, issued
from tests.service.test_domain_value import FEE, POOR, account, booked, stopped
from tests.support.common.domain_lakes import HOME, both, sending
from tests.support.common.hostile_domain import DAVE, FOURTH, Stranger, id_of

PROGRAMS = {"right": (3, 4, "bob"), "left": (1, 2, "alice"), "main": (0, 0, "treasury")}
"""A program that is credited, one that is called, the name of the first, by chain."""


def transfer(target: str, nonce: int, amount: int, fee: int = FEE) -> Message:
    """Return a transfer to the credited program of a chain."""
    ends = ((id_of("fourth"), DAVE), (id_of(target), PROGRAMS[target][0]))
    places = (chain.encode() + bytes(1) + program.to_bytes(32, "little") for chain, program in ends)
    payload = amount.to_bytes(16, "little") + b"".join(places)
    request = EndpointRequest(1, 1, payload, CollectedFee(FEE, fee))
    return Message(id_of("fourth"), id_of(target), 0, nonce, request)


def content(target: str, nonce: int, amount: int, *, call: bool) -> Message:
    """Return a call of a chain's program, or a late answer, with an amount."""
    receiver = PROGRAMS[target][1 if call else 0]
    row = blank_messages(
        1,
        kind=int(Kind.REQUEST if call else Kind.RESPONSE),
        sender=DAVE,
        receiver=receiver,
        callback=NOBODY_WAITS,
        amount_high=amount >> 64,
        amount_low=amount & 2**64 - 1,
    )
    (payload,) = encode_contents(row).to_pylist()
    fees = CollectedFee(FEE, FEE) if call else CollectedFee(0, 0)
    return Message(id_of("fourth"), id_of(target), 0, nonce, EndpointRequest(2, 2, payload, fees))


@pytest.mark.slow
def test_following_lake_accepts_declared_transfers_of_a_third_lakes_domain(tmp_path: Path) -> None:
    with both(tmp_path, options=POOR, more=FOURTH) as lakes:
        fourth = Stranger(lakes)
        lakes.produce()
        given = account(lakes, "bob", "right")
        for nonce in range(4):
            fourth.holds(transfer("right", nonce, 100))
        fourth.declare("right", transfers_out={"right": 2 * FEE + 150})
        assert fourth.deliver(transfer("right", 0, 100)) == {}
        assert account(lakes, "bob", "right") == given + 100
        assert fourth.deliver(transfer("right", 1, 100)) == {"BalanceUnderflow": 1}
        fourth.declare("right", transfers_out={"right": FEE + 50})
        # Another block is final, with declarations unknown to this lake: messages proved under it wait.
        lakes.produce(2)
        lakes.submit("far", "main", encode_transaction(lakes.read_blocks(lakes.views["far"].followed()["best"])))
        lakes.nodes["far"].produce()
        followed = lakes.views["far"].followed()
        later = lakes.views["near"].anchor(followed["final"], "fourth")
        assert all(later["block"] > one["block"] for one in followed["receipts"])
        envelope = fourth.envelope_under(later, transfer("right", 2, 100)).encode()
        before = lakes.refusals("far").get("BadProof", 0)
        lakes.submit("far", "right", encode_transaction(RelayedMessages((envelope,), (False,))))
        lakes.nodes["far"].produce()
        assert lakes.refusals("far")["BadProof"] == before + 1
        # 50 were left, and 52 more are declared: the fee and 100.
        assert fourth.deliver(transfer("right", 2, 100)) == {}
        assert account(lakes, "bob", "right") == given + 200
        assert fourth.deliver(transfer("right", 3, 100))["FailedToNoteTransferIn"] == 1
        (row,) = lakes.views["far"].channels("right", "fourth", None)["channels"]
        assert row["next_inbox"] == 4
        fourth.around(12)
        assert stopped(lakes) == []
        assert booked(lakes)["BALANCE", "right", ""] == issued(lakes, "right")
        executed_again(lakes)


NOBODY_WAITS = 99
"""A number that no call has: an answer is none to one that is open."""

HALF, WHOLE = 2**127 - 1, 2**128 - 1


def overflowing_messages(target: str) -> list[Message]:
    """Return messages with amounts beyond the sums of a chain, together or alone."""
    amounts = (HALF, HALF, HALF, WHOLE)
    found = [transfer(target, nonce, amount) for nonce, amount in enumerate(amounts)]
    found += [content(target, 4 + row, WHOLE, call=True) for row in range(2)]
    found += [content(target, 6 + row, WHOLE, call=False) for row in range(2)]
    return [*found, transfer(target, 8, HALF, 2**64 - 1), transfer(target, 9, HALF, 2**64 - 1)]


def overflowing_response(nonce: int) -> Message:
    """Return a response to a call of ``left`` with a refund above the payment."""
    payload = content("left", nonce, WHOLE, call=False).payload
    assert isinstance(payload, EndpointRequest)
    return Message(id_of("fourth"), id_of("left"), 0, nonce, EndpointResponse(payload.payload))


@pytest.mark.parametrize(
    "target", [pytest.param("right", marks=pytest.mark.slow), "left", pytest.param("main", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("declares", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_overflowing_amounts_end_nothing(tmp_path: Path, target: str, declares: bool) -> None:
    """Undeclared transfers lose even their fees; the others all but the fees."""
    sends = {"near": sending("alice", "dave", 2, amount=10)}
    with both(tmp_path, sends, options=POOR, more=FOURTH) as lakes:
        lakes.produce()
        fourth = Stranger(lakes)
        messages = overflowing_messages(target)
        answers = [overflowing_response(nonce) for nonce in range(2)] if target == "left" else []
        for message in (*messages, *answers):
            fourth.holds(message)
        fourth.declare(target, transfers_out={target: 6 * FEE} if declares else {})
        had = account(lakes, PROGRAMS[target][2], target)
        refused = fourth.deliver(*messages, *answers)
        assert refused["FailedToNoteTransferIn"] == (2 if declares else 8)
        # Late messages are rejected too, and so are refunds of answers.
        assert refused["BalanceUnderflow"] == (6 if declares else 0) + 2 + len(answers)
        assert account(lakes, PROGRAMS[target][2], target) == had
        fourth.around(12)
        assert stopped(lakes) == []
        if target != "main":
            assert booked(lakes)["BALANCE", target, ""] == issued(lakes, target)
        executed_again(lakes, HOME[target])
