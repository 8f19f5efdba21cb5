"""Honest ledgers, faults that are planted in them, and windows that are cut out of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.property.audit_ledgers import Case, content
from tests.spec.audit.ledger import Row

TICK = 1000
FINAL = 2 * TICK
LIMIT = 60 * TICK
FIRST = 2**18 - 6
"""Lanes begin a few messages before a cut."""

LANES = tuple({"protocol": "p", "source": a, "destination": b, "lane": lane} for a, b, lane in ("abx", "bax", "aby"))
PROMISES: list[Row] = [
    *({"promise": name} for name in ("numbered", "ordered_sends", "ordered_receives", "ordered_acknowledgements")),
    {"promise": "answered", "number": LIMIT},
    {"promise": "final_after", "number": FINAL},
    {"promise": "conserved"},
]


class Network:
    """Two chains whose lanes keep every promise. ``last``: the last height of both."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: list[Row] = []
        self.count = random.randrange(8, 14)
        height = {"a": 1, "b": 1}
        for lane in LANES:
            places = [1, 1, 1]
            for index in range(FIRST, FIRST + self.count):
                places[0] += random.randrange(3)
                places[1] = max(places[1], places[0] + 2) + random.randrange(3)
                places[2] = max(places[2], places[1] + 1) + random.randrange(3)
                source, target = lane["source"], lane["destination"]
                self.add(lane, index, "sent", source, places[0])
                self.add(lane, index, "received", target, places[1])
                self.add(lane, index, "executed", target, places[1])
                self.add(lane, index, "answered", target, places[1])
                self.add(lane, index, "acknowledged", source, places[2])
                height = {chain: max(at, places[2]) for chain, at in height.items()}
        self.last = max(height.values()) + LIMIT // TICK + 2

    def add(self, lane: Row, index: int, event: str, chain: str, height: int, number: int = 1) -> Row:
        row = {
            **lane, "index": index, "message_id": None, "kind": "request", "event": event, "chain": chain,
            "height": height, "position": None, "time": height * TICK, "payload_hash": content(number),
            "asset": "gold", "amount": 2**200 + index, "detail": None,
        }  # fmt: skip
        self.rows.append(row)
        return row

    def row(self, lane: Row, index: int, event: str) -> Row:
        same = {**lane, "index": index, "event": event}
        return next(row for row in self.rows if all(row[name] == value for name, value in same.items()))

    def remove(self, lane: Row, index: int, *events: str) -> None:
        for event in events:
            self.rows.remove(self.row(lane, index, event))

    def case(self, cut: tuple[str, int, int] | None = None) -> Case:
        """The ledger; with ``cut`` (chain, first, last) without what that chain did in these heights."""
        observed, rows = [], self.rows
        for chain in "ab":
            spans = [(1, self.last)]
            if cut is not None and chain == cut[0]:
                spans = [(1, cut[1] - 1), (cut[2] + 1, self.last)]
                rows = [row for row in rows if row["chain"] != chain or not cut[1] <= row["height"] <= cut[2]]
            for first, last in spans:
                if first <= last:
                    times = {"first_time": first * TICK, "last_time": last * TICK}
                    observed.append({"chain": chain, "first_height": first, "last_height": last, **times})
        return Case(rows, observed, PROMISES)


def received_twice(net: Network, lane: Row, index: int) -> None:
    row = net.row(lane, index, "received")
    net.add(lane, index, "received", row["chain"], row["height"] + 1)


def other_content(net: Network, lane: Row, index: int) -> None:
    row = net.row(lane, index, "received")
    net.add(lane, index, "received", row["chain"], row["height"] - net.random.choice((-1, 0, 1)), 2)


def never_sent(net: Network, lane: Row, index: int) -> int:
    index = FIRST + net.count + net.random.randrange(5) * 2**18
    net.add(lane, index, "received", lane["destination"], net.last - 1, 3)
    return index


def acknowledged_unsent(net: Network, lane: Row, index: int) -> int:
    index = FIRST + net.count + net.random.randrange(5) * 2**18
    net.add(lane, index, "acknowledged", lane["source"], net.last - 1, 3)
    return index


def reused(net: Network, lane: Row, index: int) -> None:
    net.add(lane, index, "sent", lane["source"], net.row(lane, index, "sent")["height"], 2)


def overtaken(net: Network, lane: Row, index: int) -> None:
    """It is sent in the block of the one before, and before that one."""
    before = net.row(lane, index - 1, "sent")
    before["position"] = 1
    net.row(lane, index, "sent").update(height=before["height"], time=before["time"], position=0)


def lost(net: Network, lane: Row, index: int) -> int:
    net.remove(lane, index - 1, "received", "executed", "answered", "acknowledged")
    return index - 1


def early(net: Network, lane: Row, index: int) -> None:
    sent = net.row(lane, index, "sent")
    for event in ("received", "executed", "answered"):
        net.row(lane, index, event).update(height=sent["height"] + 1, time=sent["time"] + TICK)


def before_sent(net: Network, lane: Row, index: int) -> None:
    net.row(lane, index, "received").update(time=net.row(lane, index, "sent")["time"] - 1, height=None)


def answered_late(net: Network, lane: Row, index: int) -> int:
    index = FIRST + net.count - 1  # so that it keeps the order
    height = net.row(lane, index, "sent")["height"] + LIMIT // TICK + 1
    net.row(lane, index, "acknowledged").update(height=height, time=height * TICK)
    return index


def unanswered(net: Network, lane: Row, index: int) -> None:
    net.remove(lane, index, "acknowledged")


def more(net: Network, lane: Row, index: int) -> None:
    net.row(lane, index, "received")["amount"] += 1


def timed_out_too(net: Network, lane: Row, index: int) -> None:
    net.add(lane, index, "timed_out", lane["source"], net.row(lane, index, "acknowledged")["height"])


Plant = Callable[[Network, Row, int], int | None]

PLANTS: tuple[tuple[Plant, str, str], ...] = (
    (received_twice, "exactly_once", "received_again"),
    (received_twice, "conservation", "more_received"),
    (other_content, "authenticity", "content_differs"),
    (never_sent, "authenticity", "not_sent"),
    (never_sent, "conservation", "not_sent"),
    (acknowledged_unsent, "answers_without_request", "not_sent"),
    (reused, "authenticity", "number_reused"),
    (overtaken, "order", "sent_out_of_order"),
    (lost, "gaps", "skipped"),
    (early, "finality", "too_early"),
    (before_sent, "causality", "received_before_sent"),
    (answered_late, "answers", "late"),
    (unanswered, "answers", "unanswered"),
    (more, "conservation", "more_received"),
    (timed_out_too, "exactly_once", "timed_out_and_received"),
    (timed_out_too, "conservation", "received_and_refunded"),
)
"""Faults, and a check that names each with this reason."""
