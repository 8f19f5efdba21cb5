"""Lost messages: named by every command, and passed only if the protocol may lose them."""

from __future__ import annotations

import json

import pytest

from tests.cases.recorded import MAPPING, NUMBERED, TOGETHER, Case, Judge

DROPPED = [
    *(("lock", n, 6 * n - 6) for n in (1, 2, 3)),
    *((what, n, 6 * n + 6) for n, what in ((1, "mint"), (2, "drop"), (3, "mint"))),
]
CAUSED = MAPPING.replace("amount = { column", 'detail = { text = "full" }\namount = { column')
MAY_DROP = '[[promises]]\npromise = "may_drop"\ncause = "{}"\n'

CASES = {
    "a message was dropped": Case(
        "FAILED: 1 violation of delivery", 1, {"delivery": {"dropped": 1}}, DROPPED,
    ),
    "a message was dropped, and answers are promised": Case(
        "FAILED: 1 violation of delivery, 3 of answers", 1, {"delivery": {"dropped": 1}, "answers": {"unanswered": 3}},
        DROPPED, mapping=MAPPING + TOGETHER + NUMBERED + '[[promises]]\npromise = "answered"\nseconds = 5\n',
    ),
    "the protocol may drop it": Case(
        "PASSED, 1 message dropped as the protocol declares", 0, {"delivery": {"dropped_as_declared": 1}},
        DROPPED, mapping=CAUSED + TOGETHER + NUMBERED + MAY_DROP.format("full"),
    ),
    "the protocol may drop it for another cause": Case(
        "FAILED: 1 violation of delivery", 1, {"delivery": {"dropped": 1}},
        DROPPED, mapping=CAUSED + TOGETHER + NUMBERED + MAY_DROP.format("expired"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_losses(name: str, judge: Judge) -> None:
    case = CASES[name]
    judge.check(case)
    code, out, _ = judge.command("report", judge.lake, "--json")
    assert (code, json.loads(out)["sentence"]) == (case.code, case.sentence)
