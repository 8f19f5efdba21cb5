"""Value sent by a domain whose operator omits it from receipts.

The value is not credited, its sender stops only itself, and balances equal the books.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causeway_proofs.xdm.messages import CollectedFee, DispatchError, EndpointRequest, EndpointResponse, Message

from causeway.protocols.xdm.value.books import Book
from tests.service.test_domain_lakes import executed_again, issued, total
from tests.support.common.domain_lakes import HOME, DomainLakes, both, sending
from tests.support.common.hostile_domain import HostileDomain, Transfers, Undeclared, id_of

POOR = "root_balance = 0"
"""So that a domain that passes on what it was never given is seen at once."""

SENDS = {
    "near": sending("alice", "treasury", tick=20, method="transporter.transfer", amount=60_000)
    + sending("alice", "carol", tick=21, method="transporter.transfer", amount=60_000)
    + sending("alice", "echo-third", 2, tick=22),
    "far": sending("bob", "alice", method="transporter.transfer", amount=90_000)
    + sending("bob", "echo-left", amount=5_000)
    + sending("carol", "echo-left", 2, tick=20, amount=10),
}


def account(lakes: DomainLakes, program: str, chain: str) -> int:
    """Return the balance of a program."""
    node = lakes.nodes[HOME[chain]]
    names = node.network.topology.programs
    number = names["number"].to_pylist()[names["name"].to_pylist().index(program)]
    position = node.opened.position(chain)
    rows = node.opened.state_rows(node.network.manifest, "accounts", position, lakes.views["near"].network.host_of)
    at = rows["program"].tolist().index(number)
    return total({name: rows[name][at] for name in rows.names}, "balance")


def booked(lakes: DomainLakes) -> dict[tuple[str, str, str], int]:
    """Return the nonzero books by book and chains."""
    node = lakes.nodes["near"]
    rows = node.opened.state_rows(node.network.manifest, "books", 0, lakes.views["near"].network.host_of)
    names, words = node.opened.names, zip(rows["amount_high"].tolist(), rows["amount_low"].tolist(), strict=True)
    keys = zip(rows["what"].tolist(), rows["source"].tolist(), rows["foreign"].tolist(), strict=True)
    return {
        (Book(what).name, names[source], "" if what == Book.BALANCE else names[foreign]): high << 64 | low
        for (what, source, foreign), (high, low) in zip(keys, words, strict=True)
    }


def last_confirmed(lakes: DomainLakes, domain: str) -> int:
    """Return the number of a domain's last confirmed block."""
    return int(lakes.views["near"].receipted(domain)["confirmed"])


def stopped(lakes: DomainLakes) -> list[str]:
    """Return the domains without further confirmed receipts."""
    node = lakes.nodes["near"]
    rows = node.opened.state_rows(node.network.manifest, "unbooked", 0, lakes.views["near"].network.host_of)
    return [node.opened.names[domain] for domain in rows["domain"].tolist()]


def declare_nothing(transfers: Transfers) -> Transfers:
    """Declare no value."""
    return {name: [] for name in transfers}


def declare_fees_only(transfers: Transfers) -> Transfers:
    """Declare only fees as sent."""
    out = [{**one, "amount": min(one["amount"], 4)} for one in transfers["transfers_out"]]
    return {**transfers, "transfers_out": out}


@pytest.mark.parametrize("says", [declare_nothing, pytest.param(declare_fees_only, marks=pytest.mark.slow)])
def test_value_without_a_receipt_is_never_credited(tmp_path: Path, says: Any) -> None:
    """A recipient could pass it on and would be stopped: alice is to send 120,000."""
    with both(tmp_path, SENDS, options=POOR) as lakes:
        lies = Undeclared("right", says)
        for _ in range(45):
            lakes.around(lies)
        refused = lakes.refusals("near")
        assert set(stopped(lakes)) <= {"right"}
        assert "LowBalanceOnDomain" not in refused
        if says is declare_nothing:
            assert refused["FailedToNoteTransferIn"] == 2
        else:
            assert refused["BalanceUnderflow"] >= 2, "both requests are answered so"
        # All others continue, including the destination chain.
        assert lakes.program("alice")["answered"] == 3
        assert lakes.program("carol")["answered"] == 2
        for domain in ("left", "third"):
            assert last_confirmed(lakes, domain) > 35
            assert booked(lakes)["BALANCE", domain, ""] == issued(lakes, domain)
        executed_again(lakes, "near")


FEE = 2
"""What is minted for a request under the options of these lakes."""

TAKEN = EndpointResponse(b"")
REFUSED = EndpointResponse(DispatchError("Module", bytes([61, 5, 0, 0, 0])))
"""Responses to a transfer; the error is the transporter's InvalidAccountId."""


def transfer(nonce: int, amount: int, fee: int = FEE) -> Message:
    """Return a transfer from bob on right to alice on left, in channel 0."""
    ends = ((id_of("right"), 3), (id_of("left"), 1))
    places = (chain.encode() + bytes(1) + program.to_bytes(32, "little") for chain, program in ends)
    payload = amount.to_bytes(16, "little") + b"".join(places)
    request = EndpointRequest(1, 1, payload, CollectedFee(FEE, fee))
    return Message(id_of("right"), id_of("left"), 0, nonce, request)


def response(nonce: int, payload: EndpointResponse) -> Message:
    """Return right's response to a request of left."""
    return Message(id_of("right"), id_of("left"), 0, nonce, payload)


@pytest.mark.slow
def test_exactly_the_value_in_receipts_is_credited(tmp_path: Path) -> None:
    """Nonces continue after any outcome; later declarations cover later messages."""
    with both(tmp_path, options=POOR) as lakes:
        given = account(lakes, "alice", "left")
        right = HostileDomain(lakes, "right")
        for nonce in range(4):
            right.holds(transfer(nonce, 100))
        right.declare(transfers_out={"left": 4 * FEE + 250})
        assert right.deliver(*(transfer(nonce, 100) for nonce in range(3))) == {"BalanceUnderflow": 1}
        assert account(lakes, "alice", "left") == given + 200
        # 52 are left of the declarations: enough for the fee.
        assert right.deliver(transfer(3, 100)) == {"BalanceUnderflow": 1}
        for nonce in (4, 5):
            right.holds(transfer(nonce, 100))
        dear = transfer(6, 100, 2**64)
        right.holds(dear)
        right.declare(transfers_out={"left": 100})
        right.lakes.produce()
        assert right.deliver(transfer(4, 100)) == {}
        assert account(lakes, "alice", "left") == given + 300
        assert right.deliver(transfer(5, 100)) == {"BalanceUnderflow": 1}
        assert right.deliver(dear) == {"BadProof": 1}, "fees have 64 bits"
        (row,) = lakes.views["near"].channels("left", "right", None)["channels"]
        assert row["next_inbox"] == 6
        right.around(12)
        assert stopped(lakes) == []
        assert booked(lakes)["BALANCE", "left", ""] == issued(lakes, "left")
        executed_again(lakes, "near")


@pytest.mark.slow
@pytest.mark.parametrize("rejected", [0, 1_000])
def test_refunds_equal_the_rejected_amounts_in_the_receipt(tmp_path: Path, rejected: int) -> None:
    """A domain that accepts a transfer and reports its rejection would have it twice."""
    sends = {"near": sending("alice", "bob", method="transporter.transfer", amount=1_000)}
    with both(tmp_path, sends, options=POOR) as lakes:
        right = HostileDomain(lakes, "right")
        right.around(12)
        given = account(lakes, "alice", "left")
        right.holds(response(0, REFUSED))
        refused = {"left": rejected} if rejected else {}
        right.declare(transfers_in={"left": FEE + 1_000 - rejected}, transfers_rejected=refused)
        found = right.deliver(response(0, REFUSED))
        assert found.get("BalanceUnderflow", 0) == (0 if rejected else 1)
        assert lakes.program("alice")["rejected"] == 1
        assert account(lakes, "alice", "left") == given + rejected
        right.around(12)
        assert stopped(lakes) == []
        assert booked(lakes)["BALANCE", "left", ""] == issued(lakes, "left")
        executed_again(lakes, "near")
