"""An escrow pays the seller before it answers the buyer, under every protocol."""

from __future__ import annotations

import pytest
from escrow import Buyer, Escrow, Seller

import causeway as cw

pytestmark = pytest.mark.causeway(
    protocols="all",
    options={"xdm": {"archiving_depth": 1, "challenge_period": 1}},  # blocks until a message counts there; else hours
)


def market(make: cw.MakeNetwork, takes: bool) -> cw.Network:
    programs = [
        cw.Deploy(Buyer, chain="home", balance=100, options={"escrow": cw.ref("escrow")}),
        cw.Deploy(Escrow, chain="bank", options={"seller": cw.ref("seller")}),
        cw.Deploy(Seller, chain="shop", options={"open": takes}),
    ]
    net = make(["home", "bank", "shop"], programs)
    net.send("buyer", "go", "60")
    net.run()
    return net


def balances(net: cw.Network) -> dict[str, int]:
    return {name: net.balance(name) for name in ("buyer", "escrow", "seller")}


def test_the_seller_is_paid_before_the_buyer_has_its_answer(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network, takes=True)
    assert balances(net) == {"buyer": 40, "escrow": 0, "seller": 60}
    assert net.state_of("buyer") == {"bought": 1, "refused": 0}
    (paid,) = net.messages(kind="response", sender="seller")
    (sold,) = net.messages(kind="response", sender="escrow")
    assert paid.ended is not None and sold.tick is not None
    assert paid.ended <= sold.tick and sold.amount == 0


def test_the_buyer_has_its_money_back_when_the_seller_does_not_take_it(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network, takes=False)
    assert balances(net) == {"buyer": 100, "escrow": 0, "seller": 0}
    assert net.state_of("buyer") == {"bought": 0, "refused": 1}


def test_a_handler_that_raises_accepts_nothing() -> None:
    escrow = cw.Trial(Escrow, {})  # without its option the handler raises behind ``accept``
    (answer,) = escrow.request("buyer", "buy", amount=60)
    assert isinstance(answer, cw.Answer) and answer.refund == 60 and escrow.balance == 0
