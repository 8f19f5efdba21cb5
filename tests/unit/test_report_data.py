"""What a report says of a ledger, as plain data, before anything is drawn."""

from __future__ import annotations

from pathlib import Path

import causeway as cw
from causeway.report.data import report_data
from tests.faces.ledgers import both_ends, stored

LAST_INDEX = (1 << 64) - 1


def test_a_lane_may_lack_as_many_messages_as_there_are_indices(tmp_path: Path) -> None:
    rows = [row for index in (0, 2) for row in both_ends("a", "x", "y", index)]
    far = [{**row, "index": LAST_INDEX, "time": None} for row in both_ends("b", "x", "y", 1)]
    promises = [{"promise": "numbered", "protocol": "bridge"}]
    place = stored(tmp_path, [*rows, *both_ends("b", "x", "y", 0), *far], promises=promises)
    with cw.open(place) as opened:
        found = report_data(opened)["completeness"]
    assert [(row["lane"], row["missing"]) for row in found["gaps"]["rows"]] == [("b", LAST_INDEX - 1), ("a", 1)]
    assert found["missing"] == LAST_INDEX
