"""Honest ledgers with all endings of messages that violate no guarantee."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.spec.audit.ledger import Row
from tests.support.properties.audit_ledgers import Case, content

TICK = 1_000
DEADLINE = 9 * TICK
"""No receipt is later than 6 ticks after its sending; an acknowledgement may be later than the deadline."""

LAST = 60
"""The last tick that the input covers."""

OFFSETS = {"a": 0, "b": 1_000, "c": 70, "d": 30}
"""The height of each chain at tick 0."""

WINDOWS = {"a": "declared", "b": "declared", "c": "inferred"}
"""The source of the window of a chain; chain d has none."""

DECLARED, UNDECLARED = (("a", "b"), ("b", "a")), (("a", "c"), ("c", "d"))
"""Ends of lanes whose destination has a declared window, and of those whose destination has none."""

FLAGS = ("conserved", "refunds_recorded", "ordered_receives", "may_drop")
"""Guarantees that a lane may have."""

WAYS = (*("delivered",) * 4, "unacknowledged", "received", "failed", "refused", "rejected", "timed_out")
"""Endings of messages."""


class Endings:
    """A ledger of lanes with each kind of deadline, over chains with declared windows and without.

    Messages are acknowledged, fail, are rejected, time out and are refunded, are dropped for a declared cause, or are
    pending at the end. Limits are as narrow as allowed, and clocks as wrong as allowed.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: list[Row] = []
        self.slack = {chain: random.choice((0, random.randrange(TICK // 2))) for chain in OFFSETS}
        self.promises: list[Row] = [
            {"source": chain, "promise": "clock_tolerance", "number": slack} for chain, slack in self.slack.items()
        ]
        for deadline in ("received", "expected", "settled", None):
            for source, destination in (random.choice(DECLARED), random.choice(UNDECLARED)):
                self.lane(source, destination, deadline)

    def lane(self, source: str, destination: str, deadline: str | None) -> None:
        random = self.random
        lane = {"protocol": "r", "source": source, "destination": destination, "lane": str(deadline)}
        names = {"numbered", "ordered_sends", *(flag for flag in FLAGS if random.random() < 0.5)}
        details = {"may_drop": "expired"}
        self.promises += [{**lane, "promise": name, "detail": details.get(name)} for name in sorted(names)]
        if deadline:
            self.promises.append({**lane, "promise": deadline, "number": DEADLINE if deadline != "settled" else None})
        sent, received, count = 1, 1, random.randrange(6, 9)
        for index in range(count):
            sent += random.randrange(4)
            received = max(received, sent + 2 + random.randrange(5))
            way = random.choice((*WAYS, *("dropped",) * ("may_drop" in names)))
            self.message(lane, index, way, sent * TICK, received * TICK, refund="refunds_recorded" in names)
        if deadline != "settled":
            self.message(lane, count, "pending", (LAST - 3) * TICK, LAST * TICK)

    def message(self, lane: Row, index: int, way: str, sent: int, received: int, *, refund: bool = False) -> None:
        """Add a message that is received at a time, or ends otherwise after it."""
        random, source, destination = self.random, lane["source"], lane["destination"]
        known = received + random.randrange(1, 6) * TICK
        height = OFFSETS[destination]
        limits: Row = random.choice(
            ({}, {"timeout_time": received + 1}, {"timeout_height": height + received // TICK + 1})
        )
        came: list[Any] = [("received", destination, received, {})]
        executed = [*came, ("executed", destination, received, {})]
        answered = [*executed, ("answered", destination, received, {})]
        erred = [("acknowledged", source, known, {"code": 5}), *[("refunded", source, known, {})] * refund]
        events = {
            "delivered": [*answered, ("acknowledged", source, known, {"code": 0})],
            "unacknowledged": random.choice((executed, answered)),
            "received": came,
            "failed": [*came, random.choice((("failed", destination, received, {}), (*executed[1][:3], {"code": 5})))],
            "refused": [*came, ("failed", destination, received, {}), *erred],
            "rejected": [("rejected", destination, received, {})],
            "dropped": [*came * random.randrange(2), ("dropped", destination, received, {"detail": "expired"})],
            "timed_out": [("timed_out", source, known, {}), *[("refunded", source, known, {})] * refund],
            "pending": [],
        }[way]
        if way == "timed_out":
            slack = self.slack[source] + self.slack[destination]
            reached = {"timeout_time": known + slack}, {"timeout_height": height + known // TICK}
            limits = {**{"timeout_time": 2**40, "timeout_height": 2**30}, **random.choice(reached)}
            limits = random.choice((limits, *reached))
        elif way == "pending":
            limits = {}
        for event, chain, time, columns in [("sent", source, sent, {}), *events]:
            row: Row = {
                **lane, **limits, "index": index, "message_id": None, "kind": "request", "event": event, "chain": chain,
                "height": OFFSETS[chain] + time // TICK, "position": None, "time": time, "payload_hash": content(index),
                "asset": "gold", "amount": 1_000 + index, "transaction": f"{chain} {time}", "detail": None,
            }  # fmt: skip
            self.rows.append({**row, **columns})

    def case(self) -> Case:
        observed = [
            {
                **{"chain": chain, "how": how, "first_time": TICK, "last_time": LAST * TICK},
                **{"first_height": OFFSETS[chain] + 1, "last_height": OFFSETS[chain] + LAST},
            }
            for chain, how in WINDOWS.items()
        ]
        return Case(self.rows, observed, self.promises)
