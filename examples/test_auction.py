"""How to test programs of one's own: a handler alone on trial, and all of them on a small network in this process."""

from __future__ import annotations

from pathlib import Path

from auction import Bidder, House

import causeway as cw

SCENARIO = Path(__file__).with_name("auction.toml")


def test_who_is_outbid_gets_the_money_back() -> None:
    house = cw.Trial(House, {"reserve": 50})
    assert house.request(1, "bid", amount=60) == []  # held: no answer yet
    assert house.request(2, "bid", amount=80) == [cw.Answer(1, 1, 60, 0, 4, b"bid at least 81")]
    assert house.state["best"]["amount"] == 80 and house.balance == 0


def test_the_hammer_falls_for_the_best_bid() -> None:
    house = cw.Trial(House)
    house.request(1, "bid", amount=60)
    assert house.ingress("close") == [cw.Answer(1, 1, 0, 0, 0, b"sold")]
    assert house.balance == 60 and house.state["sold_to"] == 1
    (late,) = house.request(2, "bid", amount=90)
    assert isinstance(late, cw.Answer) and late.payload == b"closed" and late.refund == 90


def test_a_bidder_stops_at_its_limit() -> None:
    bidder = cw.Trial(Bidder, {"house": 7, "step": 10, "limit": 100}, balance=500)
    (first,) = bidder.ingress("start", b"80")
    assert isinstance(first, cw.Call) and first.receiver == 7 and bidder.balance == 420
    (second,) = bidder.reply(first, b"bid at least 95", code=4, refund=80)
    assert isinstance(second, cw.Call) and second.amount == 100
    assert bidder.reply(second, b"bid at least 120", code=4, refund=100) == []
    assert bidder.balance == 500 and not bidder.state["won"]


def test_on_a_network_the_highest_limit_wins_and_no_money_is_lost(tmp_path: Path) -> None:
    with cw.Network.from_scenario(SCENARIO, {"network.executor": "in_process"}, lake=str(tmp_path / "lake")) as net:
        net.run()
        house = net.program_state("house")
        bidders = {name: net.program_state(name) for name in ("ann", "bob", "cleo")}
    assert [name for name, state in bidders.items() if state["won"]] == ["bob"]
    assert 300 < house["price"] == bidders["bob"]["paid"] <= 450
