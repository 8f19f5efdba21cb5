"""How to test programs that settle across chains: alone, together under every protocol, and when things fail."""

from __future__ import annotations

from typing import Any

import pytest
from orders import Book, Trader, Vault

import causeway as cw

pytestmark = pytest.mark.causeway(
    protocols="all",
    options={"xdm": {"archiving_depth": 1, "challenge_period": 1}},  # blocks until a message counts there; else hours
)


def market(make: cw.MakeNetwork, **takes: bool) -> cw.Network:
    """Return a market on four chains: a book, a vault in which ann and cleo have a lot, and three traders."""
    book = cw.Deploy(Book, chain="market")
    vault = cw.Deploy(Vault, chain="vault", options={"lots": {"ann": 1, "cleo": 1}})
    traders = []
    for name, chain in (("ann", "north"), ("bob", "south"), ("cleo", "south")):
        options = {"book": cw.ref("book"), "takes": takes.get(name, True)}
        traders.append(cw.Deploy(Trader, name=name, chain=chain, options=options, balance=100))
    return make(["market", "vault", "north", "south"], [book, vault, *traders])


def heard(net: cw.Network, trader: str) -> list[str]:
    found: list[str] = net.state_of(trader)["heard"]
    return found


def test_a_trade_settles_at_the_price_of_the_order_that_was_there(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network)
    net.send("ann", "sell", "8")
    net.until(lambda net: net.state_of("book")["asks"])
    net.send("bob", "buy", "10")
    net.until(lambda net: heard(net, "ann"))
    assert heard(net, "bob") == ["bought at 8"] and heard(net, "ann") == ["sold at 8"]
    assert net.state_of("bob")["spent"] == net.state_of("ann")["earned"] == 8
    assert net.state_of("vault")["lots"] == {"ann": 0, "bob": 1, "cleo": 1}
    assert net.state_of("book")["trades"] == {}


def test_who_has_nothing_to_sell_is_told_and_the_buyer_meets_the_next(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network)
    net.send("bob", "sell", "5")  # he has no lot
    net.send("cleo", "sell", "9")
    net.until(lambda net: len(net.state_of("book")["asks"]) == 2)
    net.send("ann", "buy", "9")
    net.until(lambda net: net.state_of("book")["settled"] == 1)
    net.run()
    assert heard(net, "bob") == ["not delivered: refused"] and heard(net, "ann") == ["bought at 9"]
    assert net.state_of("vault")["lots"] == {"ann": 2, "cleo": 0}


def test_what_was_delivered_comes_back_when_the_seller_does_not_take_the_money(
    causeway_network: cw.MakeNetwork,
) -> None:
    net = market(causeway_network, ann=False)
    net.send("ann", "sell", "8")
    net.send("bob", "buy", "8")
    net.until(lambda net: net.state_of("book")["undone"] == 1)
    net.run()
    assert heard(net, "ann") == ["the money came back"]
    assert net.state_of("vault")["lots"] == {"ann": 1, "bob": 0, "cleo": 1}
    bob: dict[str, Any] = net.state_of("bob")
    assert bob["spent"] == bob["earned"] == 8
    refusal = net.messages(receiver="book", kind="response", sender="ann")[0]
    assert refusal.reject == cw.RejectCode.REFUSED.name and refusal.payload == b"no, thank you"


def test_a_vault_that_stands_still_delays_a_trade_and_settles_it_once(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network)
    net.send("ann", "sell", "8")
    net.send("bob", "buy", "8")
    net.until(lambda net: net.state_of("book")["trades"])
    halt = net.inject("halt", chain="vault")
    net.tick(12)
    assert net.state_of("vault")["lots"] == {"ann": 1, "cleo": 1} and not heard(net, "bob")
    net.heal(halt)
    net.until(lambda net: net.state_of("book")["settled"])
    assert net.state_of("vault")["lots"] == {"ann": 0, "bob": 1, "cleo": 1}
    (move,) = net.messages(method="move")
    assert move.status == "answered"


@pytest.mark.causeway(protocols=["ic"])
def test_both_ends_of_a_trade_from_one_point(causeway_network: cw.MakeNetwork) -> None:
    net = market(causeway_network)
    net.send("ann", "sell", "8")
    net.until(lambda net: net.state_of("book")["asks"])
    other = net.fork()
    net.send("bob", "buy", "8")
    other.send("bob", "buy", "7")
    for each in (net, other):
        each.tick(60)
    assert heard(net, "bob") == ["bought at 8"] and heard(other, "bob") == []
    assert other.state_of("book")["bids"][0]["price"] == 7


def test_the_book_alone_matches_by_price_then_by_time() -> None:
    book = cw.Trial(Book)
    assert (
        book.request("ann", "sell", b"9")
        == book.request("bob", "sell", b"8")
        == book.request("cleo", "sell", b"8")
        == []
    )
    (move,) = book.request("dan", "buy", b"10", amount=10)
    assert isinstance(move, cw.Call) and move.to == "vault"
    assert move.payload == b"%d %d" % (book.number_of("bob"), book.number_of("dan"))
    answer, pay = book.reply(move, b"moved")
    assert isinstance(answer, cw.Answer) and (answer.payload, answer.refund) == (b"bought at 8", 2)
    assert isinstance(pay, cw.Call) and (pay.to, pay.method, pay.amount) == ("bob", "pay", 8)
    (poor,) = book.request("eve", "buy", b"10", amount=9)
    assert isinstance(poor, cw.Answer) and poor.payload == b"9 does not pay 10"
