"""Wrong clocks, and heights that restart with a chain upgrade."""

from __future__ import annotations

import pytest

from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge, Row, table

SKEWED: list[Row] = [
    *(("lock", 1, 6), ("mint", 1, 12), ("lock", 2, 18.001), ("mint", 2, 18)),
    *(("lock", 3, 24), ("mint", 3, 22.5), ("lock", 4, 30), ("mint", 4, 36)),
]
"""Receipts up to 1.5 s before their sendings."""

WRONG = {"causality": {"received_before_sent": 2}}
ORDERED = "".join(
    f'[[promises]]\npromise = "{name}"\n'
    for name in ("numbered", "ordered_sends", "ordered_receives", "ordered_acknowledgements", "answered")
)
PARTED = MAPPING.replace('"block", optional', '"block", split = "-", part = 1, optional')


def upgraded(revisions: bool, back: int = 0) -> list[Row]:
    """Ten packets, each acknowledged; after the fifth the heights of ``left`` begin at 1 again. With ``revisions``
    heights have them; ``back``: seconds by which the clock is set back with the upgrade."""

    def block(second: int) -> str | int:
        height, revision = (2_241_400 + second, 1) if second < 60 else (second - 59, 2)
        return f"{revision}-{height}" if revisions else height

    rows: list[Row] = []
    for n in range(1, 11):
        for what, second in (("lock", 10 * n + 5), ("mint", 10 * n + 7), ("settle", 10 * n + 9)):
            at = second - (back if second >= 60 else 0)
            other = f"1-{900 + at}" if revisions else 900 + at
            rows.append((what, n, at, {"block": other if what == "mint" else block(second)}))
    return rows


CASES = {
    "clocks that differ by 1.5 s": Case("FAILED: 2 violations of causality", 1, WRONG, SKEWED),
    "a tolerance of the command": Case("PASSED", 0, {}, SKEWED, options=("--tolerance", "750ms")),
    "a tolerance of one chain": Case("PASSED", 0, {}, SKEWED, options=("--tolerance", "right=1500ms")),
    "a tolerance that is too small": Case(
        "FAILED: 1 violation of causality", 1, {"causality": {"received_before_sent": 1}}, SKEWED,
        options=("--tolerance", "500ms"),
    ),
    "a tolerance of the mapping": Case(
        "PASSED", 0, {}, SKEWED, mapping=MAPPING + TOGETHER + NUMBERED + '[clocks]\n"*" = "750ms"\n'
    ),
    "heights with revisions": Case("PASSED", 0, {}, upgraded(True), mapping=MAPPING + TOGETHER + ORDERED),
    "the part behind the revision": Case("PASSED", 0, {}, upgraded(True), mapping=PARTED + TOGETHER + ORDERED),
    "heights alone": Case("PASSED", 0, {}, upgraded(False), mapping=MAPPING + TOGETHER + ORDERED),
    "heights alone, in windows of heights": Case(
        "PASSED", 0, {}, upgraded(False), mapping=MAPPING + '[windows]\nby = "height"\ngap = 600\n' + ORDERED
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_clocks_and_heights(name: str, judge: Judge) -> None:
    judge.check(CASES[name])


def test_event_earlier_by_height_and_time_is_out_of_order(judge: Judge) -> None:
    """A clock set back with the upgrade, too: times no longer order the second half after the first."""
    judge.ingest(table(upgraded(False, back=60)), "events.csv", "bridge", MAPPING + TOGETHER + ORDERED)
    code, found = judge.audit("--check", "order")
    assert (code, found["verdict"]) == (1, "FAILED")
