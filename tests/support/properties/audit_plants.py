"""Honest ledgers whose lanes keep every promise, with headers, watermarks and movements of value."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, content

TICK = 1000
FINAL = 2 * TICK
LIMIT = 60 * TICK
FIRST = 2**18 - 6
"""Lanes begin a few messages before the end of a segment."""

LANES = tuple({"protocol": "p", "source": a, "destination": b, "lane": lane} for a, b, lane in ("abx", "bax", "aby"))
CALLS = {"protocol": "q", "source": "a", "destination": "b", "lane": "calls"}
REPLIES = {"protocol": "q", "source": "b", "destination": "a", "lane": "replies"}
ZONES = "abc"
CAUSAL = tuple(
    {"protocol": "r", "source": a, "destination": b, "lane": lane}
    for a, b, lane in ("abx", "aby", "bax", "bcx", "bcy", "cax", "cbx")
)


class Network:
    """Three chains. Lanes of ``p`` are acknowledged, or time out, and relayers are paid out of their messages; those of
    ``q`` are answered over another lane. What is sent leaves a chain for the other one. Lanes of ``r`` keep the causal
    order of the three.

    ``last``: the last height of all.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: list[Row] = []
        self.promises: list[Row] = []
        self.watermarks: list[Row] = []
        self.value: list[Row] = []
        self.count = random.randrange(8, 14)
        self.last = 1
        for lane in LANES:
            self.acknowledged(lane)
        self.answered()
        for ends in sorted({(lane["source"], lane["destination"]) for lane in CAUSAL}):
            self.in_causal_order([lane for lane in CAUSAL if (lane["source"], lane["destination"]) == ends])
        self.last += LIMIT // TICK + 2
        self.headers = [self.header(chain, height) for chain in ZONES for height in range(1, self.last + 1)]

    def acknowledged(self, lane: Row) -> None:
        places, random = [1, 1, 1], self.random
        flights = []
        for index in range(FIRST, FIRST + self.count):
            places[0] += random.randrange(3)
            places[1] = max(places[1], places[0] + 2) + random.randrange(3)
            places[2] = max(places[2], places[1] + 1) + random.randrange(3)
            came = random.random() < 0.8
            self.travels(lane, index, places[0], places[1] if came else None, fee=random.choice((0, 1, 2**70)))
            self.add(lane, index, "acknowledged" if came else "timed_out", lane["source"], places[2])
            if not came:
                places[1] = places[2]  # nothing is received behind it before that
                back = {"from": "abroad:" + lane["destination"], "to": "account:1"}
                self.moved(lane, index, lane["source"], places[2], value_of(index), "refunded", **back)
            flights.append((places[0], places[2]))
        names = ["numbered", "ordered_sends", "ordered_receives", "conserved"]
        self.promise(lane, flights, *names, *(["ordered_acknowledgements"] if lane["lane"] == "x" else []))
        self.promises.append({**lane, "promise": "answered", "number": LIMIT})

    def answered(self) -> None:
        places, random = [1, 1, 1], self.random
        calls, replies = [], []
        for index in range(FIRST, FIRST + self.count):
            places[0] += random.randrange(3)
            places[1] = max(places[1], places[0] + 2) + random.randrange(3)
            places[2] = max(places[2], places[1] + 2) + random.randrange(3)
            name = f"call {index}"
            self.travels(CALLS, index, places[0], places[1], message_id=name)
            kind = random.choice(("response", "response", "reject"))
            known: Row = {"message_id": f"reply {index}", "answers": name, "kind": kind}
            self.travels(REPLIES, index, places[1], places[2], **known)
            self.add(CALLS, index, "collected", "a", places[2], message_id=name)
            self.add(REPLIES, index, "collected", "b", places[2] + 1, **known)
            calls.append((places[0], places[2]))
            replies.append((places[1], places[2] + 1))
        names = ("numbered", "ordered_sends", "ordered_receives", "conserved")
        self.promise(CALLS, calls, *names)
        self.promise(REPLIES, replies, *names)
        self.promises.append({**CALLS, "promise": "answered", "number": LIMIT})

    def in_causal_order(self, lanes: list[Row]) -> None:
        """Send over lanes between the same two chains, and receive in the same order; some is acknowledged, in order,
        too."""
        places, random = [1, 1, 1], self.random
        last = dict.fromkeys((lane["lane"] for lane in lanes), FIRST)
        for _ in range(self.count):
            lane = random.choice(lanes)
            index = last[lane["lane"]]
            last[lane["lane"]] += 1
            places[0] += random.randrange(3)
            places[1] = max(places[1], places[0] + 1) + random.randrange(3)
            self.add(lane, index, "sent", lane["source"], places[0])
            for event in ("received", "executed"):
                self.add(lane, index, event, lane["destination"], places[1])
            if random.random() < 0.3:
                places[2] = max(places[2], places[1] + 1) + random.randrange(3)
                self.add(lane, index, "acknowledged", lane["source"], places[2])
        self.promises += [{**lane, "promise": "causal"} for lane in lanes]

    def promise(self, lane: Row, flights: list[tuple[int, int]], *names: str) -> None:
        """Promise these, and as much at once as there ever was, or one more."""
        under_way = max(sum(sent <= height < over for sent, over in flights) for height, _ in flights)
        self.promises += [{**lane, "promise": name} for name in names]
        self.promises.append({**lane, "promise": "final_after", "number": FINAL})
        self.promises.append({**lane, "promise": "capacity", "number": under_way + self.random.randrange(2)})

    def travels(self, lane: Row, index: int, sent: int, received: int | None, fee: int = 0, **known: Any) -> None:
        source, target, amount = lane["source"], lane["destination"], value_of(index)
        self.add(lane, index, "sent", source, sent, **known)
        self.add(lane, index, "committed", source, sent, **known)
        self.watermark(lane, source, "sent", sent, index + 1)
        self.moved(lane, index, source, sent, amount, "sent", **{"from": "account:1", "to": "abroad:" + target})
        if fee:
            self.paid(lane, index, target if received else source, received or sent, fee)
        for event in ("received", "executed", "answered") if received else ():
            assert received
            if event != "answered" or known.get("kind", "request") == "request":
                own = {"amount": amount - fee if event == "received" else amount, **known}
                self.add(lane, index, event, target, received, **own)
        if received:
            self.watermark(lane, target, "received", received, index + 1)
            self.moved(lane, index, target, received, amount, "came", **{"from": "abroad:" + source, "to": "account:2"})

    def paid(self, lane: Row, index: int, chain: str, height: int, fee: int) -> None:
        """Pay a fee out of a message, in two parts; perhaps a fork takes it back and it is paid again. What is paid
        beside the message, or into it, is no part of this."""
        relayer: Row = {"from": "message", "to": "relayer"}
        if self.random.random() < 0.3:
            self.moved(lane, index, chain, height, fee + 1, "fee", **relayer)
            self.moved(lane, index, chain, height, fee + 1, "reverted", **{"from": "relayer", "to": "message"})
        for part in (fee // 3, fee - fee // 3):
            self.moved(lane, index, chain, height, part, "fee", **relayer)
        if self.random.random() < 0.3:
            self.moved(lane, index, chain, height, 7, "fee", **{"from": "account:1", "to": "relayer"})
            self.moved(lane, index, chain, height, 7, "attached", **{"from": "account:1", "to": "message"})
            self.moved(lane, index, chain, height, 7, "reverted", **{"from": "message", "to": "account:1"})

    def moved(self, lane: Row, index: int, chain: str, height: int, amount: int, why: str, **ends: str) -> None:
        own = {"chain": chain, "height": height, "time": height * TICK, "asset": "gold", "amount": amount, "why": why}
        self.value.append({**lane, "index": index, "message_id": None, "position": None, **own, **ends})

    def watermark(self, lane: Row, chain: str, name: str, height: int, value: int) -> None:
        own = {"chain": chain, "name": name, "height": height, "time": height * TICK, "value": value}
        self.watermarks.append({**lane, **own})

    def header(self, chain: str, height: int) -> Row:
        own = {"chain": chain, "height": height, "time": height * TICK, "root": f"{height} of {chain}"}
        return {**own, "hash": f"{chain}{height}", "parent": f"{chain}{height - 1}"}

    def add(self, lane: Row, index: int, event: str, chain: str, height: int, **known: Any) -> None:
        row = {
            **lane, "index": index, "message_id": None, "kind": "request", "event": event, "chain": chain,
            "height": height, "position": None, "time": height * TICK, "payload_hash": content(index % 256),
            "asset": "gold", "amount": value_of(index), "detail": None,
        }  # fmt: skip
        self.rows.append({**row, **known})
        self.last = max(self.last, height)

    def case(self) -> Case:
        whole = {"first_height": 1, "last_height": self.last, "first_time": TICK, "last_time": self.last * TICK}
        observed = [{"chain": chain, **whole} for chain in ZONES]
        return Case(self.rows, observed, self.promises, self.watermarks, self.headers, self.value)


def value_of(index: int) -> int:
    """The amount that a message is sent with."""
    return 2**200 + index
