"""Data of a report about a ledger, before rendering."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import causeway as cw
from causeway.cli.app import build_app
from causeway.cli.output.audit import _example, describe_earliest
from causeway.cli.shell import execute
from causeway.ledger.bucket_scan import PassProgressCallback
from causeway.ledger.row_order import drop_repeats
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA, VALUE_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, group_by_bucket, open_ledger
from causeway.report.data import report_data
from causeway.report.findings import finding_phrase, finding_size
from causeway.report.first_screen import time_section
from causeway.report.sections import lanes_section, outcomes_section, report_page
from causeway.report.summary import count_lane_findings, worst_and_first
from tests.analysis.test_figures import case_of
from tests.faces.ledgers import BEGIN, SECOND, both_ends, store_ledger
from tests.support.properties.audit_ledgers import table

LAST_INDEX = (1 << 64) - 1


def test_lane_may_lack_as_many_messages_as_there_are_indices(tmp_path: Path) -> None:
    rows = [row for index in (0, 2) for row in both_ends("a", "x", "y", index)]
    far = [{**row, "index": LAST_INDEX, "time": None} for row in both_ends("b", "x", "y", 1)]
    promises = [{"promise": "numbered", "protocol": "bridge"}]
    place = store_ledger(tmp_path, [*rows, *both_ends("b", "x", "y", 0), *far], promises=promises)
    with cw.open(place) as opened:
        found = report_data(opened)["completeness"]
    assert [(row["lane"], row["missing"]) for row in found["gaps"]["rows"]] == [("b", LAST_INDEX - 1), ("a", 1)]
    assert found["missing"] == LAST_INDEX


def test_protocol_messages_are_counted_apart_from_failed_calls(tmp_path: Path) -> None:
    sent = both_ends("a", "x", "y", 0)
    refused = {**sent[0], "event": "acknowledged", "code": 5, "time": sent[1]["time"]}
    tried = [{**refused, "kind": "control", "index": None, "message_id": f"try-{n}", "event": "rejected"} for n in "ab"]
    for folder, rows in (("own", []), ("tried", tried)):
        (tmp_path / folder).mkdir()
        with cw.open(store_ledger(tmp_path / folder, [*sent, refused, *rows])) as opened:
            data = report_data(opened)
        section, outcomes = time_section(data), outcomes_section(data)
        assert section is not None and outcomes is not None and "Unsuccessful messages" in section.body
        assert data["totals"]["rejected"] == 1 and data["calls"] == {"rejected": 1}
        assert outcomes.lead == ("Messages that are counted apart: 2 of the protocol." if rows else None)


def test_scrolling_lane_table_has_its_row_count(tmp_path: Path) -> None:
    for lanes, said in ((8, False), (28, True)):
        (folder := tmp_path / str(lanes)).mkdir()
        rows = [row for number in range(lanes) for row in both_ends(str(number), "x", "y", 0)]
        with cw.open(store_ledger(folder, rows)) as opened:
            section = lanes_section(report_data(opened))
        assert section is not None and (f"The table has {lanes} lanes" in section.body) is said


def test_lane_findings_are_all_counted_beyond_those_named(tmp_path: Path) -> None:
    forged = [row for index in range(9) for row in both_ends("a", "x", "y", index, amount=1)]
    with cw.open(store_ledger(tmp_path, [*forged, *both_ends("b", "x", "y", 0)])) as opened:
        found = opened.audit(limit=2)
    checks = found.checks.values()
    assert found.violations.arrow().num_rows < found.checks["authenticity"].violated == 9
    counted = count_lane_findings(found.audit)
    of_lane = ("bridge", "x", "y", "a")
    assert counted[of_lane] == (sum(check.violated for check in checks), sum(check.unknown for check in checks))


def test_long_task_reports_the_progress_of_each_step(tmp_path: Path) -> None:
    told: dict[str, tuple[int, int]] = {}

    def begin(step: str) -> PassProgressCallback:
        return lambda done, of: told.update({step: (done, of)})

    place = store_ledger(tmp_path, [row for index in range(9) for row in both_ends("a", "x", "y", index)])
    with cw.open(place, steps=begin) as opened:
        report_data(opened, steps=begin)
        _ = opened.figures
    assert [*told] == ["checking", "counting", "looking up examples"]
    assert all(done == of > 0 for done, of in told.values())


def test_run_length_near_the_largest_index_has_all_its_digits(tmp_path: Path) -> None:
    far = [{**row, "index": LAST_INDEX, "time": None} for row in both_ends("a", "x", "y", 1)]
    place = store_ledger(tmp_path, [*both_ends("a", "x", "y", 0), *far], promises=[{"promise": "numbered"}])
    with cw.open(place) as opened:
        [gap] = [row for row in opened.audit().violations if row["check"] == "gaps"]
        said = finding_phrase(gap)
    assert gap["size"] == str(LAST_INDEX - 1) and f"{LAST_INDEX - 1:,} messages" in said
    assert f"about {1.845} x 10^19 messages" in finding_phrase({**gap, "size": None})


@pytest.mark.parametrize("seed", [3, 8])
def test_report_is_independent_of_buckets_and_files(seed: int, tmp_path: Path) -> None:
    case, random = case_of(seed), Random(seed)
    rows, said = table(case.rows, LEDGER_SCHEMA), set()
    windows = table([{**row, "how": "declared", "stated_by": "test"} for row in case.observed], OBSERVED_SCHEMA)
    promises = table([{**row, "stated_by": "test"} for row in case.promises], PROMISES_SCHEMA)
    for buckets, commits in ((1, 1), (3, 1), (8, 3)):
        place = str(tmp_path / f"{buckets}-{commits}")
        create_ledger(place, buckets)
        order = random.sample(range(rows.num_rows), rows.num_rows)
        for number in range(commits):
            writer = LedgerWriter(open_ledger(place))
            for bucket, own in group_by_bucket(rows.take(pa.array(order[number::commits])), buckets).items():
                writer.write("ledger", drop_repeats(own), bucket)
            for bucket, own in group_by_bucket(table(case.value, VALUE_SCHEMA), buckets, "value").items():
                if not number:
                    writer.write("value", own, bucket)
            writer.write("observed", windows)
            writer.write("promises", promises)
            writer.commit([], {})
        with cw.open(place) as opened:
            said.add(report_page({**report_data(opened), "lake": "l"}))
    assert len(said) == 1


def test_findings_on_the_first_screen_link_to_their_journeys(tmp_path: Path) -> None:
    """Also if the earliest is none of the worst, for checks with many findings."""
    early = [row for index in range(9) for row in both_ends("a", "x", "y", index, after=-(1 + index))]
    promises = [{"promise": "final_after", "number": 10**6}]
    with cw.open(store_ledger(tmp_path, early, promises=promises)) as opened:
        data = report_data(opened)
    shown = [row for check in data["checks"] if check["violated"] for _, row in worst_and_first(check, "violated")]
    assert {row["check"] for row in shown} == {"causality", "finality"} and len(shown) == 4
    assert all(row["message_ident"] is not None for row in shown)


def in_no_lane(folder: Path) -> str:
    """A ledger with three lanes, a receipt of an unsent message, and a message in no lane."""
    rows = [row for lane in "abc" for row in both_ends(lane, "x", "y", 1)] + both_ends("a", "x", "y", 3)[1:]
    lost = {"protocol": "bridge", "kind": "request", "message_id": "m", "chain": "x", "stated_by": "test"}
    rows.append({**lost, "event": "sent", "time": (BEGIN + 1) * SECOND})
    return store_ledger(folder, rows, promises=[{"promise": "numbered"}])


def test_lanes_are_counted_alike_and_unknown_findings_are_no_unknown_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = in_no_lane(tmp_path)
    with cw.open(place) as opened:
        data = report_data(opened)
        lanes = opened.lanes.arrow().to_pylist()
    assert data["lanes"]["total"] == data["totals"]["lanes"] == 3 and len(data["lanes"]["rows"]) == 4
    shown = {(row["lane"]): row for row in data["lanes"]["rows"]}
    assert {row["lane"]: row["unknown"] for row in lanes} == {name: row["unknown"] for name, row in shown.items()}
    assert sum(row["unknown_findings"] for row in shown.values()) > 0
    for command in ("backlog", "latency"):
        execute([command, place], build_app, "causeway")
        out = capsys.readouterr().out
        assert command == "latency" or "in no lane (bridge)" in out
    page = report_page(data)
    assert "in no lane" in page and "delivery median" in page


def test_page_counts_the_lanes_of_its_table(tmp_path: Path) -> None:
    rows = [row for number in range(9) for row in both_ends(f"l{number}", "x", "y", 1)]
    rows.append({"protocol": "bridge", "kind": "request", "message_id": "m", "chain": "x", "event": "sent"})
    with cw.open(store_ledger(tmp_path, rows)) as opened:
        page = report_page(report_data(opened))
    assert "9 lanes between 2 chains" in page and "The table has 9 lanes and rows without a lane;" in page


def test_pending_figure_is_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for index in (1, 60) for row in both_ends("a", "x", "y", index)]
    rows += both_ends("a", "x", "y", 20)[:1] + both_ends("a", "x", "y", 65)[:1]
    windows = [{"chain": name, "first_time": BEGIN * SECOND, "last_time": (BEGIN + 700) * SECOND} for name in "xy"]
    promises = [{"promise": "received", "number": 100 * SECOND}]
    place = store_ledger(tmp_path, rows, windows, promises)
    with cw.open(place) as opened:
        page = report_page(report_data(opened))
    assert "; 1 message pending" in page and "no outcome yet; still in time: 1; " in page
    execute(["backlog", place], build_app, "causeway")
    assert "4 messages were sent; 2 pending (no outcome yet), 2 in flight" in capsys.readouterr().out


def test_one_is_singular_and_years_have_four_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    year_1 = -62_135_596_800 * SECOND
    (one,) = both_ends("a", "x", "y", 1)[:1]
    place = store_ledger(tmp_path, [{**one, "time": year_1}], [{"chain": "y", "last_time": year_1 + 90 * SECOND}])
    execute(["backlog", place], build_app, "causeway")
    out = capsys.readouterr().out
    assert "1 message was sent; 1 pending (no outcome yet)" in out
    assert "At most 1 was pending" in out and "0001-01-01 00:00 UTC" in out
    execute(["latency", place], build_app, "causeway")
    assert "1 message was sent" in capsys.readouterr().out
    assert finding_size({"magnitude": 1.0, "unit": "units", "size": "1", "check": "conservation"}) == "1 unit"
    assert (
        _example({**dict.fromkeys(FINDING), "lane": "a", "index": 3, "magnitude": 1.0, "size": "1", "unit": "messages"})
        == "a 3: 1 message"
    )
    assert "0001-01-01" in describe_earliest({**dict.fromkeys(FINDING), "time": datetime(1, 1, 1, tzinfo=UTC)})


FINDING = ("protocol", "source", "destination", "lane", "index", "message_id", "time", "height", "chain", "magnitude")
