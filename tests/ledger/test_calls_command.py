"""``causeway calls``, ``latency``, ``backlog``: figures against other counts, filters, plots."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from causeway_proofs.errors import InvalidInput
from rich.console import Console

import causeway as cw
from causeway.cli.commands.calls import parse_threshold
from causeway.cli.output import tables
from causeway.cli.output.rows import show_rows
from causeway.ledger.row_order import sort_rows
from causeway.ledger.schema import LEDGER_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, group_by_bucket
from tests.support.common.command_line import Run, command_line
from tests.support.properties.audit_ledgers import table

HOSTILE = "evil\x1b[31m"
LANES = {"east": ("a", "b"), "west": ("b", "a"), HOSTILE: (HOSTILE, "a")}
SECOND = 1_000_000
Row = dict[str, Any]


def call_rows(lane: str, index: int, at: int, **ends: int) -> list[Row]:
    """Return the events of a call. ``ends``: events a number of seconds after the send."""
    source, destination = LANES[lane]
    row = {
        "protocol": "p", "source": source, "destination": destination, "lane": lane, "index": index, "kind": "request",
        "stated_by": "t", "sender": f"s{index % 3}", "receiver": "r", "message_id": f"{lane[:4]}-{index}",
    }  # fmt: skip
    rows = [{**row, "event": "sent", "chain": source, "time": at * SECOND}]
    for event, later in ends.items():
        chain = destination if event in ("received", "executed") else source
        code = 7 if event == "rejected" else None
        rows.append({**row, "event": event, "chain": chain, "time": (at + later) * SECOND, "code": code})
    return rows


def traffic() -> list[Row]:
    rows = []
    for index in range(40):
        rows += call_rows("east", index, 1_000 + index, received=2, acknowledged=10 + index)
        if index < 10:
            rows += call_rows("west", index, 2_000 + index, received=1, acknowledged=3)
        if index < 5:
            rows += call_rows(HOSTILE, index, 3_000 + index)
    rows += call_rows("west", 99, 1_500, received=2, rejected=30)
    return rows


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    return store_ledger(tmp_path_factory.mktemp("calls"), traffic())


def store_ledger(folder: Path, rows: list[Row]) -> str:
    place = str(folder / "ledger")
    writer = LedgerWriter(create_ledger(place, 4))
    for bucket, own in group_by_bucket(table(rows, LEDGER_SCHEMA), 4).items():
        writer.write("ledger", sort_rows(own), bucket)
    promise = {"protocol": "p", "promise": "answered", "stated_by": "t"}
    writer.write("promises", table([promise], PROMISES_SCHEMA))
    writer.commit([], {})
    return place


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def lines(cli: Run, *arguments: object) -> list[Row]:
    code, out, err = cli(*arguments, "--json")
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_each_call_is_printed_once_with_its_outcome(cli: Run, ledger: str, tmp_path: Path) -> None:
    found = lines(cli, "calls", ledger)
    with cw.open(ledger) as opened:
        totals = opened.figures.totals
    counts = {name: sum(row["outcome"] == name for row in found) for name in ("answered", "rejected", "pending")}
    assert counts == {"answered": 50, "rejected": 1, "pending": 5} == {name: totals[name] for name in counts}
    assert len({(row["lane"], row["index"]) for row in found}) == len(found) == 56
    code, out, _ = cli("calls", ledger, "--csv")
    assert code == 0 and len([*csv.DictReader(io.StringIO(out))]) == 56
    code, _, err = cli("calls", ledger, "--parquet", tmp_path / "calls.parquet", "--outcome", "answered")
    assert code == 0 and pq.read_metadata(tmp_path / "calls.parquet").num_rows == 50 and "50 calls written" in err


def test_calls_are_filtered_and_sorted(cli: Run, ledger: str) -> None:
    slow = lines(cli, "calls", ledger, "--slower-than", "45s")
    assert sorted(row["index"] for row in slow) == [36, 37, 38, 39]
    assert {row["round_trip_seconds"] > 45 for row in slow} == {True}
    first = lines(cli, "calls", ledger, "--slowest", 3)
    assert [row["index"] for row in first] == [39, 38, 37]
    assert [row["index"] for row in lines(cli, "calls", ledger, "--slowest", 12)] == [*range(39, 27, -1)]
    assert {row["lane"] for row in lines(cli, "calls", ledger, "--open")} == {HOSTILE}
    chosen = lines(cli, "calls", ledger, "--source", "b", "--outcome", "rejected")
    assert [(row["index"], row["code"]) for row in chosen] == [(99, 7)]
    assert len(lines(cli, "calls", ledger, "--sender", "s0", "--lane", "west")) == 5
    assert len(lines(cli, "calls", ledger, "--limit", 7)) == 7
    assert lines(cli, "calls", ledger, "--slower-than", "99h") == []
    unknown = "of none of 56 calls it is known how long the answer took in ticks, but in seconds"
    assert cli("calls", ledger, "--slower-than", "2ticks", "--json") == (0, "", f"causeway: --slower-than: {unknown}\n")
    code, out, err = cli("calls", ledger, "--slowest", 3, "--outcome", "pending")
    assert (code, out) == (0, "no calls\n") and err.startswith("causeway: --slowest: of none of 5 calls it is known")


@pytest.mark.parametrize("command", ["calls", "latency", "backlog"])
@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (["--chain", "a", "--from", 3, "--to", 8], lambda row: 3 <= row["index"] <= 8),
        (["--chain", HOSTILE], lambda row: row["source"] == HOSTILE),
        (["--chain", "b", "--message", "west-3"], lambda row: row["message_id"] == "west-3"),
        (["--from-time", "1970-01-01T00:33:20"], lambda row: row["sent_time"] >= "1970-01-01T00:33:20"),
        (
            ["--from-time", "1970-01-01T00:16:50+00:00", "--to-time", "1970-01-01T00:25:00"],
            lambda row: "1970-01-01T00:16:50" <= row["sent_time"] <= "1970-01-01T00:25:00+00:00",
        ),
        (["--from-tick", 0], lambda row: False),
        (["--to-height", 9], lambda row: False),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_all_commands_filter_messages_alike(
    cli: Run, ledger: str, command: str, options: list[object], chosen: Callable[[Row], bool]
) -> None:
    wanted = [row for row in lines(cli, "calls", ledger) if chosen(row)]
    found = lines(cli, command, ledger, *options)
    if command == "calls":
        assert found == wanted
    elif command == "backlog":
        assert found[0]["totals"]["messages"] == len(wanted)
    else:
        answered = sum(row["round_trip_seconds"] is not None for row in wanted)
        told = [row["count"] for row in found[0]["latency"] if (row["scope"], row["measure"]) == ("all", "round_trip")]
        assert told == [answered] * bool(answered)


def test_command_filters_equal_library_filters(cli: Run, ledger: str) -> None:
    with cw.open(ledger) as opened:
        asked = opened.where(chain="a").where(chain="b").between(index=(3, None), sent_time=(None, "1970-01-01T00:30"))
        found = asked.calls.arrow()
    options = ["--from", 3, "--to-time", "1970-01-01T00:30", "--lane", "east", "--lane", "west"]
    assert [(row["lane"], row["index"]) for row in lines(cli, "calls", ledger, *options)] == [
        *zip(found["lane"].to_pylist(), found["index"].to_pylist(), strict=True)
    ]
    assert found.num_rows == 38
    said = "<messages of .* where from or to a, from or to b, index from 3, sent_time to 1970-01-01 00:30:00; .*>"
    assert re.fullmatch(said, repr(asked))
    for wrong, why in (({"index": (5, 2)}, "is after"), ({"sent_tick": 3}, "must be the first"), ({"at": 1}, "at: ")):
        with pytest.raises(InvalidInput, match=why):
            opened.between(**wrong)


def test_readable_output_has_call_outcomes_and_the_worst_calls(cli: Run, ledger: str) -> None:
    code, out, err = cli("calls", ledger)
    assert (code, err) == (0, "") and "\x1b" not in out
    text = " ".join(out.split())
    assert "56 calls over 3 lanes" in text and "answered 50 89.3 %" in text and "pending 5 8.9 %" in text
    assert "1 rejected: code 7" in text and "49 s a -> b east 39: s0 -> r" in text
    assert "Oldest open" in text and "evil\\x1b[31m -> a" in text
    code, out, _ = cli("calls", ledger, "--list", "--limit", 2)
    assert code == 0 and out.split()[:4] == ["outcome", "took", "sent", "at"] and "more: --limit N lists" in out
    assert cli("calls", ledger, "--lane", "none", "--list")[1] == "no calls\n"
    assert "1 call over 1 lane\n" in cli("calls", ledger, "--outcome", "rejected", "--lane", "west")[1]


def test_only_all_is_a_hundred_percent_and_only_none_is_zero() -> None:
    shares = [tables.format_percent(count, 11_417) for count in (11_417, 11_416, 5_708, 1, 0)]
    assert shares == ["100.0 %", ">99.9 %", "50.0 %", "<0.1 %", "0.0 %"]


def test_latency_matches_the_figures(cli: Run, ledger: str) -> None:
    (found,) = lines(cli, "latency", ledger, "--over-time")
    with cw.open(ledger) as opened:
        wanted = opened.latency.arrow().to_pylist()
    assert found["unit"] == "seconds" and found["latency"] == wanted and found["over_time"]
    (few,) = lines(cli, "latency", ledger, "--limit", 1)
    assert {row["lane"] for row in few["latency"] if row["scope"] == "lane"} == {"east"}
    (one,) = lines(cli, "latency", ledger, "--source", "b")
    assert {row["max"] for row in one["latency"] if row["measure"] == "round_trip"} == {3.0}
    code, out, _ = cli("latency", ledger)
    text = " ".join(out.split())
    assert code == 0 and "delivery 51 1 s" in text and "Slowest of 3 lanes" in text
    assert text.index("a -> b east") < text.index("b -> a west")
    code, out, _ = cli("latency", ledger, "--csv", "--over-time")
    assert code == 0 and out.splitlines()[0].startswith('"axis","tick","time"')


def test_backlog_matches_the_figures_and_is_drawn(cli: Run, ledger: str) -> None:
    (found,) = lines(cli, "backlog", ledger, "--over-time")
    assert (found["totals"]["pending"], found["totals"]["in_flight"]) == (5, 5)
    assert [(row["lane"], row["pending"], row["oldest_pending_index"]) for row in found["lanes"]] == [(HOSTILE, 5, 0)]
    assert sum(each["sent"] for each in found["over_time"]) == 56 and found["over_time"][-1]["pending"] == 5
    code, out, err = cli("backlog", ledger, "--over-time")
    assert (code, err) == (0, "") and "\x1b" not in out
    assert "56 messages were sent; 5 pending (no outcome yet), 5 in flight" in out and "┤" in out and "█" in out
    code, out, _ = cli("backlog", ledger, "--csv")
    assert code == 0 and len(out.splitlines()) == 2


def test_highest_backlog_reports_the_omitted_lanes(cli: Run, tmp_path: Path) -> None:
    """Fewer than are pending at the end, if the start is not known for all of them."""
    unseen = [row | {"time": None} for row in call_rows("east", 50, 1_000)]
    code, out, err = cli("backlog", store_ledger(tmp_path, [*traffic(), *unseen]))
    assert (code, err) == (0, "") and "57 messages were sent; 6 pending" in out
    assert re.search(r"At most \d+ were pending, .* \(1 message left out: when sent was not seen\);", out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calls", "--outcome", "lost"], "--outcome: lost: no such outcome; there are 10: answered"),
        (["calls", "--open", "--outcome", "pending"], "--open: not with --outcome"),
        (["calls", "--slower-than", "soon"], "--slower-than soon: is no time"),
        (["calls", "--slower-than", "5"], "--slower-than 5: is no time"),
        (["calls", "--overwrite"], "--overwrite: only with --parquet"),
        (["latency", "--json", "--csv"], "--json, --csv: give one of them"),
        (["backlog", "--executor", "gpu"], "executor: gpu"),
        (["calls", "--limit", "x\x1b"], "--limit: x\\u001b: must be a valid integer (see causeway calls --help)"),
        (["calls", "--from-height", "-1"], "--from-height -1: must be from 0 to 18446744073709551615"),
        (["latency", "--from-tick", "3", "--to-tick", "2"], "--from-tick 3: is after --to-tick 2: the range is empty"),
        (["backlog", "--from-time", "10000"], "--from-time 10000: is no time; write 2024-10-09"),
        (["backlog", "--kind", "x\x1b"], "--kind: x\\u001b: no such kind; there are"),
        (["calls", "--source"], "requires an argument (see causeway calls --help)"),
        (["calls", "--lane", "\udcff"], "udcff': is no text in UTF-8"),
        (["calls", "--limit", "-1"], "--limit: -1: must be greater than or equal to 0"),
    ],
    ids=lambda given: " ".join(given[:2]) if isinstance(given, list) else "",
)
def test_invalid_request_is_one_line(cli: Run, ledger: str, arguments: list[str], said: str) -> None:
    code, out, err = cli(arguments[0], ledger, *arguments[1:])
    assert (code, out, err.count("\n")) == (2, "", 1) and said.replace(":", "") in err.replace(":", "").replace('"', "")


@pytest.mark.parametrize("command", ["calls", "calls --list", "calls --json", "latency", "backlog"])
def test_unknown_lane_or_chain_is_reported(cli: Run, ledger: str, command: str) -> None:
    name, *more = command.split()
    code, _, err = cli(name, ledger, *more, "--lane", "eastt", "--source", "b", "--source", "n\x1bo")
    assert code == 0
    assert err.splitlines() == [
        'causeway: --source: "n\\u001bo": no such source of a message; there are 3: a, b, evil\\x1b[31m',
        'causeway: --lane: "eastt": no such lane; did you mean east?',
    ]
    assert cli(name, ledger, *more, "--lane", "east", "--source", "b")[2] == "", "both are there, though not together"


@pytest.mark.parametrize("command", ["calls", "latency", "backlog", "ledger", "audit", "trace"])
def test_folder_without_a_ledger_is_bad_input(cli: Run, command: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    more = ["m"] if command == "trace" else []
    for place, why in (("nowhere", "no lake or ledger found"), ("rows.jsonl", "a file, and a lake or")):
        code, out, err = cli(command, place, *more)
        assert (code, out, err.count("\n")) == (2, "", 1) and err.startswith(f"causeway: {place}: {why}")
    assert cli(command, "", *more)[0] == 2
    if command == "audit":
        assert "rows.jsonl: a file, and a lake" in cli(command, "rows.jsonl", "--follow")[2]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("90s", (90.0, "seconds")),
        ("5 min", (300.0, "seconds")),
        ("1.5h", (5400.0, "seconds")),
        ("30ticks", (30, "ticks")),
    ],
)
def test_times_in_user_notation(text: str, found: tuple[float, str]) -> None:
    assert parse_threshold(text) == found
    with pytest.raises(InvalidInput, match="is no time"):
        parse_threshold(f"{text}s")


def test_plot_has_one_column_per_value_and_the_largest_if_there_are_more() -> None:
    assert tables.fit_columns([1, 2], 5) == [1, 1, 2, 2]
    assert tables.fit_columns([1, None, 3, 2, None, None], 3) == [1, 3, None]
    assert tables.fit_columns([], 5) == []
    console = Console(width=30, file=io.StringIO())
    tables.plot_over_time(console, "t", [0, 4, 8], "0", "2", "count")
    drawn = [line.partition("┤")[2] for line in console.file.getvalue().splitlines()[1:-1]]  # type: ignore[attr-defined]
    assert drawn[0] == " " * 10 + "█" * 5 and drawn[-1] == " " * 5 + "█" * 10 and len(drawn) == tables.HEIGHT
    tables.plot_over_time(console, "t", [1.0, 3_652_059 * 86_400.0], "0", "2", "seconds")
    axes = {line.index("┤") for line in console.file.getvalue().splitlines()[-tables.HEIGHT - 1 : -1]}  # type: ignore[attr-defined]
    assert len(axes) == 1, "the axis stands straight beside a long label"


def test_years_have_four_digits(capsys: pytest.CaptureFixture[str]) -> None:
    time = datetime(1, 1, 1, tzinfo=UTC)
    show_rows(Console(width=80), pa.table({"time": pa.array([time], pa.timestamp("us", "UTC"))}))
    assert capsys.readouterr().out.split() == ["time", "0001-01-01", "00:00:00"]
    assert tables.format_span([{"axis": "time", "time": time}]) == ("0001-01-01 00:00", "0001-01-01 00:00")
