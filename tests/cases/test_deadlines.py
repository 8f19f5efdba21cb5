"""Stuck messages: deadlines of a mapping, of the command, and the default of one day."""

from __future__ import annotations

from functools import cache

import pytest

from tests.cases.recorded import Case, Judge

SENT, ANSWERED = 30_000, 6_252
STUCK = SENT - ANSWERED
"""23,748 packets of 30,000 that are never acknowledged."""

APART = 15_750
"""Milliseconds between two packets: 229 of them are of the last hour, and 5,486 of the last day."""

FIRST = 1_719_700_000_000


@cache
def packets() -> str:
    """Packets of one channel over five days; none is acknowledged after the first day."""
    lines = ["chain_id,channel_id,sequence,send_height,send_time,ack_height,ack_time"]
    for n in range(SENT):
        at, height = FIRST + n * APART, 17_300_000 + 3 * n
        back = f"{height + 4},{at + 22_000}" if n < ANSWERED else ","
        lines.append(f"osmosis-1,channel-0,{3_389_732 + n},{height},{at},{back}")
    return "\n".join(lines) + "\n"


MAPPING = """
format = "csv"
stated_by = "own"
nulls = ["NaN"]
[fields]
protocol = { text = "ibc" }
source = "chain_id"
lane = "channel_id"
index = "sequence"
chain = "chain_id"
[[events]]
event = { text = "sent" }
height = "send_height"
time = { column = "send_time", unit = "any" }
[[events]]
event = { text = "acknowledged" }
present = ["ack_height"]
height = "ack_height"
time = { column = "ack_time", unit = "any" }
[[promises]]
promise = "numbered"
[[promises]]
promise = "ordered_sends"
[[promises]]
promise = "answered"
seconds = 3600
"""
IN_BLOCKS, IN_TIME = '[windows]\nby = "height"\ngap = 600\nevents = ["sent"]\n', '[windows]\nby = "time"\ngap = 3600\n'
DECLARED = (
    '[[observed]]\nchain = "osmosis-1"\nfirst_time = "2024-06-29T00:00:00Z"\nlast_time = "2024-07-07T00:00:00Z"\n'
)

DAY = {"overdue": STUCK - 5_486, "pending": 5_486}
HOUR = {"unanswered": STUCK - 229, "open": 229}
"""Messages younger than an hour at the end of the input may still be answered in time."""

CASES = {
    **{
        f"stuck for four days, windows in {name}": Case(
            "FAILED: 18,262 violations of delivery, 23,519 of answers; 5,486 messages pending", 1,
            {"delivery": DAY, "exactly_once": {"not_received": STUCK}, "answers": HOUR},
            content=packets(), mapping=MAPPING + windows,
        )
        for name, windows in (("blocks", IN_BLOCKS), ("time", IN_TIME))
    },
    "stuck until the end of a declared window": Case(
        "FAILED: 23,748 violations of delivery, 23,748 of answers", 1,
        {
            "delivery": {"overdue": STUCK}, "exactly_once": {"not_received": STUCK}, "answers": {"unanswered": STUCK},
        },
        content=packets(), mapping=MAPPING + DECLARED,
    ),
    "the built-in kind has a deadline of a day": Case(
        "FAILED: 18,262 violations of delivery; 5,486 messages pending", 1,
        {"delivery": DAY, "exactly_once": {"not_received": STUCK}, "answers": {"open": STUCK}},
        content=packets(), mapping=None, kind="ibc-packets",
    ),
    "deadlines of the command": Case(
        "FAILED: 23,519 violations of delivery, 23,519 of answers; 229 messages pending", 1,
        {
            "delivery": {"overdue": STUCK - 229, "pending": 229}, "exactly_once": {"not_received": STUCK},
            "answers": HOUR,
        },
        content=packets(), mapping=None, kind="ibc-packets",
        options=("--deadline", "received=1h", "--deadline", "answered=1h"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_stuck_packets(name: str, judge: Judge) -> None:
    judge.check(CASES[name])
