"""Ages of pending messages: every face measures them to the time of the audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import causeway as cw
from causeway.analysis.figures.message_rows import PendingAges
from causeway.cli.app import build_app
from causeway.cli.shell import execute
from causeway.ledger.schema import OBSERVED_SCHEMA
from causeway.report.data import report_data
from tests.faces.ledgers import BEGIN, SECOND, both_ends, store_ledger
from tests.support.properties.audit_ledgers import table

LANE = ("p", "x", "y", "a")


def window(chain: str, first: int, last: int) -> dict[str, Any]:
    return {"chain": chain, "first_time": first * SECOND, "last_time": last * SECOND}


def test_age_of_an_open_message_is_equal_for_all_faces_and_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The window of the destination ends before the input does, after 40 s of the open message."""
    rows = (
        both_ends("a", "x", "y", 1, after=5) + both_ends("a", "x", "y", 2)[:1] + both_ends("b", "y", "x", 50, after=5)
    )
    promises = [{"promise": "received", "number": 20 * SECOND}]
    place = store_ledger(tmp_path, rows, [window("x", BEGIN, BEGIN + 900), window("y", BEGIN, BEGIN + 60)], promises)

    def printed(*arguments: str) -> Any:
        execute([arguments[0], place, *arguments[1:]], build_app, "causeway")
        return capsys.readouterr().out

    (delivery,) = (each for each in json.loads(printed("audit", "--json"))["checks"] if each["check"] == "delivery")
    assert (delivery["worst"]["reason"], int(delivery["worst"]["size"])) == ("overdue", 40 * SECOND)
    (lane,) = json.loads(printed("backlog", "--json"))["lanes"]
    assert lane["oldest_pending_seconds"] == 40.0
    assert "40 s" in printed("calls").partition("Oldest open")[2]
    with cw.open(place) as opened:
        assert report_data(opened)["oldest_pending"]["delay"] == 40.0


def test_ages_end_with_the_declared_window_or_the_input() -> None:
    span = {"first_tick": None, "last_tick": None, "first_time": 0, "last_time": 50 * SECOND}
    windows = [{"stated_by": "test", "how": "declared", **window("y", 0, 90)}]
    assert PendingAges(span).age_in_microseconds(LANE, 20 * SECOND) == 30 * SECOND
    assert PendingAges(span, table([], OBSERVED_SCHEMA)).age_in_microseconds(LANE, 20 * SECOND) == 30 * SECOND
    assert PendingAges(span, table(windows, OBSERVED_SCHEMA)).age_in_microseconds(LANE, 20 * SECOND) == 70 * SECOND


def test_ticks_of_a_run_last_until_its_final_height() -> None:
    span = {"first_tick": 0, "last_tick": 5, "first_time": 0, "last_time": 10 * SECOND}
    windows = table([{"stated_by": "test", "how": "declared", **window("y", 0, 158)}], OBSERVED_SCHEMA)
    assert PendingAges(span).age_in_ticks(LANE, 2) == 3
    assert PendingAges(span, windows).age_in_ticks(LANE, 2) == 77
    unrelated = {**span, "last_time": 10 * SECOND + 1}
    assert PendingAges(unrelated, windows).age_in_ticks(LANE, 2) == 3
    assert PendingAges({**span, "last_tick": None}, windows).age_in_ticks(LANE, 2) is None
