"""Random attacks on a recorded bridge: detectable forgeries are named, honest messages are not."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from causeway.audit.engine import AuditResult, audit_table
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from tests.support.properties.audit_ledgers import table
from tests.tiers import sized

Row = dict[str, Any]
SECOND = 1_000_000
DAY = 86_400
FINAL = 1_800
LANE = {"protocol": "bridge", "source": "here", "destination": "there", "lane": "1"}
NUMBERS = 60
BEFORE = 40
"""Messages sent before the attack; then the bridge stood still for four months."""

ATTACK = 50 * DAY


class Bridge:
    """A bridge whose receiving side accepted anything for some hours.

    Rows of some sends are missing in the input (``unsent``), as if a filter had removed them.
    """

    def __init__(self, random: Random) -> None:
        self.random, self.rows = random, list[Row]()
        self.forged, self.honest = set[int](), set[int]()
        self.unsent = {number for number in range(1, NUMBERS - 1) if random.random() < 0.1}
        for number in range(NUMBERS):
            at = DAY * number + random.randrange(3600) if number < BEFORE else ATTACK + 130 * DAY + number * 600
            if number not in self.unsent:
                self.add("sent", number, at, f"honest {number}")
            late = random.choice((0, 0, 0, 8)) * 3600
            self.honest.add(
                self.add("received", number, at + FINAL + random.randrange(7200) + late, f"honest {number}")
            )

    def add(self, event: str, number: int, seconds: int, what: str) -> int:
        own = {"event": event, "time": seconds * SECOND, "payload_hash": hashlib.sha256(what.encode()).digest()}
        chain = "here" if event == "sent" else "there"
        row = len(self.rows)
        self.rows.append({**LANE, "index": number, "kind": "request", "chain": chain, "source_row": row, **own})
        return row

    def forge(self, number: int, contents: int, repeats: int) -> None:
        """Receive some contents under one index, partly more than once."""
        for content in range(contents):
            for _ in range(1 + self.random.randrange(repeats + 1)):
                at = ATTACK + self.random.randrange(4 * 3600)
                self.forged.add(self.add("received", number, at, f"forged {number} {content}"))

    def audit(self) -> AuditResult:
        """Audit it with inferred windows: a day without rows ends one."""
        observed = []
        for chain in ("here", "there"):
            times = sorted(row["time"] for row in self.rows if row["chain"] == chain)
            firsts = [b for a, b in zip([-9 * DAY * SECOND, *times], times, strict=False) if b - a > 2 * DAY * SECOND]
            lasts = [a for a, b in zip(times, [*times[1:], 9**20], strict=True) if b - a > 2 * DAY * SECOND]
            observed += [{"chain": chain, "first_time": a, "last_time": b} for a, b in zip(firsts, lasts, strict=True)]
        promises: list[Row] = [{"promise": "numbered"}, {"promise": "ordered_sends"}]
        promises.append({"promise": "final_after", "number": FINAL * SECOND})
        windows = [{"how": "inferred", "stated_by": "test", **row} for row in observed]
        rows = [{"stated_by": "test", **row} for row in self.rows]
        promised = table([{"stated_by": "test", **row} for row in promises], PROMISES_SCHEMA)
        return audit_table(table(rows, LEDGER_SCHEMA), table(windows, OBSERVED_SCHEMA), promised)


@settings(max_examples=sized(11, 125))
@given(seed=st.integers(0, 2**32))
def test_forged_messages_are_named_and_honest_ones_are_not(seed: int) -> None:
    random = Random(seed)
    net = Bridge(random)
    for number in random.sample(range(NUMBERS + 30), 12):
        net.forge(number, random.choice((1, 1, 2, 20)), random.choice((0, 0, 2)))
    found = net.audit()
    named = [row for row in found.violations.to_pylist() if row["verdict"] == "violated"]
    rows = {check: {row["source_row"] for row in named if row["check"] == check} for check in found.checks}
    reused = {row["index"]: row["magnitude"] for row in named if row["reason"] == "number_reused"}

    assert not rows["authenticity"] & net.honest
    assert not (rows["finality"] | rows["causality"]) & net.honest
    by_number = defaultdict(set)
    for row in net.forged:
        by_number[net.rows[row]["index"]].add(row)
    for number, forged in by_number.items():
        its = [row for row in net.rows if row["index"] == number and row["event"] == "received"]
        first = min(its, key=lambda row: (row["time"], row["source_row"]))["source_row"]
        later = {row["source_row"] for row in its} - {first}
        if number < NUMBERS and number not in net.unsent:
            assert forged <= rows["authenticity"], number
        elif not set(range(BEFORE, min(number, NUMBERS))) - net.unsent:
            # The input lacks the send: one of the contents may be right, and all others are wrong.
            assert later <= rows["exactly_once"] and not forged & rows["authenticity"]
            assert reused.get(number, 0) == len({row["payload_hash"] for row in its}) - 1
        else:
            # The lane had not reached this index: its send would be later than other recorded ones.
            assert forged <= rows["authenticity"], number
    honest_again = net.honest & rows["exactly_once"]
    assert {net.rows[row]["index"] for row in honest_again} <= by_number.keys() & net.unsent
    assert found.checks["exactly_once"].reasons.get(("unknown", "not_received"), 0) == 0
