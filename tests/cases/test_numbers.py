"""Message indices: shared, never delivered, restarted, skipped and decreasing ones."""

from __future__ import annotations

import pytest

from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge, Row

DESTINATIONS = ("b", "c", "d", "e")


def dispatches(known: bool = True) -> list[Row]:
    """Messages of two chains that share indices among four destinations: every one is dispatched and processed,
    except for the dispatch of x 57 and the processing of y 55."""
    rows: list[Row] = []
    for source in ("x", "y"):
        for n in range(40, 76):
            place = {"source": source, "destination": DESTINATIONS[n * n % 7 % 4] if known else ""}
            if (source, n) != ("x", 57):
                rows.append(("lock", n, 10 * n, {**place, "chain": source}))
            if (source, n) != ("y", 55):
                rows.append(("mint", n, 10 * n + 5, {**place, "chain": DESTINATIONS[n * n % 7 % 4]}))
    return rows


WITHOUT_DESTINATION = MAPPING.replace('destination = "destination"\n', "")
ORDERED = '[[promises]]\npromise = "ordered_receives"\n'
STUCK = [("lock", 0, 0), ("lock", 1, 60), ("mint", 1, 200), ("lock", 2, 90), ("mint", 2, 230)]
SKIPPED = [(what, n, 10 * n + 100 * (what == "mint")) for n in (1, 2, 3, 4, 5) for what in ("lock", "mint")]
SKIPPED.remove(("mint", 3, 130))
COVERED = "".join(
    f'[[observed]]\nchain = "{chain}"\nfirst_time = "2023-11-14T22:00:00Z"\nlast_time = "2023-11-14T23:00:00Z"\n'
    for chain in ("left", "right")
)
IN_BLOCKS = COVERED.replace("first_time", "first_height = 1\nlast_height = 99_999\nfirst_time")
WATERMARKS = """
format = "csv"
stated_by = "relay"
[fields]
protocol = { text = "bridge" }
source = { text = "left" }
destination = { text = "right" }
lane = { text = "0" }
chain = "chain"
height = "block"
[[watermarks]]
name = { text = "received" }
value = "received"
[[watermarks]]
name = { text = "confirmed" }
value = "confirmed"
"""

CASES = {
    "a nonce over all destinations": Case(
        "INCONCLUSIVE (3 lanes incomplete: x -> ? route, x -> c route, y -> c route), 1 message pending", 0,
        {
            "delivery": {"pending": 1}, "exactly_once": {"not_received": 1},
            "authenticity": {"missing_in_sequence": 1}, "gaps": {"missing_on_all_lanes": 1},
        },
        dispatches(), figures=(("missing", 1), ("lanes", 6)),
    ),
    "the same without destinations": Case(
        "INCONCLUSIVE (2 lanes incomplete: x -> ? route, y -> ? route), 1 message pending", 0,
        {
            "delivery": {"pending": 1}, "exactly_once": {"not_received": 1},
            "authenticity": {"missing_in_sequence": 1}, "gaps": {"missing_inside_window": 1},
        },
        dispatches(known=False), mapping=WITHOUT_DESTINATION + TOGETHER + NUMBERED, figures=(("missing", 1),),
    ),
    "nonce zero is never delivered": Case(
        "FAILED: 1 violation of delivery", 1,
        {"delivery": {"overdue": 1}, "exactly_once": {"not_received": 1}},
        [*STUCK, ("lock", 3, 100_000), ("mint", 3, 100_090)],
    ),
    "a relaunched chain counts from 1 again": Case(
        "FAILED: 2 violations of authenticity", 1, {"authenticity": {"number_reused": 2}},
        [
            (what, n, 10 * n + later + 5 * (what == "mint"), {"body": f"{later} {n}", "block": 500 - later // 4000 + n})
            for later, numbers in ((0, (1, 2, 3)), (1_000_000, (1, 2)))
            for n in numbers
            for what in ("lock", "mint")
        ],
    ),
    **{
        f"an ordered lane skips a message, {name}": Case(
            "FAILED: 1 violation of gaps; 1 message pending", 1,
            {"delivery": {"pending": 1}, "exactly_once": {found: 1}, "gaps": {"skipped": 1}},
            SKIPPED, mapping=MAPPING + windows + NUMBERED + ORDERED,
        )
        for name, windows, found in (
            ("windows of the rows", TOGETHER, "not_received"),
            ("windows in time", COVERED, "not_arrived"),
            ("windows in blocks and time", IN_BLOCKS, "not_arrived"),
        )
    },
    "a watermark falls": Case(
        "FAILED: 1 violation of watermarks", 1, {"watermarks": {"fell": 1}},
        content="chain,block,received,confirmed\nright,100,1920,1900\nright,101,14,1920\n",
        mapping=WATERMARKS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, judge: Judge) -> None:
    judge.check(CASES[name])


def test_dispatches_alone_leave_arrivals_unknown(judge: Judge) -> None:
    """No message in an export of dispatches is overdue, although every chain is recorded as a source."""
    rows = [(*row[:2], row[2] * 400, *row[3:]) for row in dispatches() if row[0] == "lock"]
    rows = [
        (what, n, at, {**known, "destination": "y" if known["source"] == "x" else "x"}) for what, n, at, known in rows
    ]
    reasons = {
        "delivery": {"ends_not_recorded": 28, "pending": 43},
        "exactly_once": {"not_received": 71},
        "gaps": {"missing_inside_window": 1},
    }
    sentence = "INCONCLUSIVE (2 lanes incomplete: x -> y route, y -> x route), 43 messages pending"
    judge.check(Case(sentence, 0, reasons, rows, mapping=MAPPING + '[windows]\nby = "time"\n' + NUMBERED))
