"""What goes wrong between the ends of HRMP channels (X-6): each of it leaves the network alive, and every call ends."""

from __future__ import annotations

from typing import Any

from causeway.model.ledger import Event, Kind
from tests.unit.icmp_hrmp_network import Hrmp

CHAINS = {"a": {1: "caller"}, "b": {2: "echo"}}


def with_a_resume(halts: list[tuple[str, int, int]], closes: int | None) -> tuple[Hrmp, int]:
    """A network in which "b" suspends "a" and resumes it; and the tick after which the signal is in the channel."""
    calls = [] if closes is None else [{"tick": closes, "do": "close", "sender": "b", "recipient": "a"}]
    small: dict[str, Any] = {"max_message_size": 256, "max_total_size": 25_600, "pages_per_block": 1}
    net = Hrmp(CHAINS, halts=[("b", 11, 21), *halts], session_blocks=2, channel_calls=calls, **small)
    net.tell(1, 2)
    found = 0
    while net.tick < 70:
        if 10 <= net.tick < 26:
            net.tell(1, 2, 3, bytes(60))
        net.step()
        found = found or net.tick * any(row["data"] == b"\x02\x01" for row in net.table("contents"))
    return net, found


def test_a_sender_whose_resumption_went_with_a_closed_channel_goes_on() -> None:
    _, tick = with_a_resume([], None)
    net, _ = with_a_resume([("a", tick, tick + 14)], tick)
    assert net.reasons()["ChannelClosed"] > 0
    net.settle()
    made = net.count(Event.EXECUTED, Kind.INGRESS)
    assert made == 49 == net.count(Event.EXECUTED, Kind.RESPONSE) + net.count(Event.DROPPED)
    assert not net.table("pages")
