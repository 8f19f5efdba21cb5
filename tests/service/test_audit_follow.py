"""Command ``causeway audit --follow``: output and metrics of growing ledgers, running lakes and corruption."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from causeway.audit.backlog import ChainCoverage, LaneBacklog
from causeway.audit.engine import audit_table
from causeway.audit.incremental.watch import LedgerWatch, WatchResult
from causeway.audit.stored import audit_ledger
from causeway.cli.app import build_app
from causeway.cli.shell import BAD_INPUT, FAILED, OK, execute
from causeway.ledger.lake.ingest import open_or_derive_ledger
from causeway.ledger.schema import LEDGER_SCHEMA, OBSERVED_SCHEMA, PROMISES_SCHEMA
from causeway.ledger.store import LedgerWriter, create_ledger, group_by_bucket, open_ledger
from causeway.network.network import LakeNetwork
from causeway.service.audit_metrics import MOST_LANES, OTHERS, AuditCollector, AuditSnapshot, order_lanes, take_snapshot
from tests.support.ic import ic_lake
from tests.support.properties.audit_ledgers import table

HEAD = "direction,side,chain,timestamp,tx_hash,nonce,token_dst,beneficiary,amount\n"
ENOUGH = 300.0
"""Seconds after which something hangs; nothing is measured."""

Labels = tuple[tuple[str, str], ...]


def metrics(text: str) -> dict[tuple[str, Labels], float]:
    """Return metrics as Prometheus parses them; each series is unique."""
    found: dict[tuple[str, Labels], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name.removeprefix("causeway_audit_"), tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def collect_metrics(collector: AuditCollector) -> dict[tuple[str, Labels], float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return metrics(generate_latest(registry).decode())


class Following:
    """Process that follows a ledger."""

    def __init__(self, place: str, *options: str) -> None:
        command = [sys.executable, "-m", "causeway", "audit", place, "--follow", "--interval", "0.1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        self._lines: Queue[str] = Queue()
        for stream in (self.process.stdout, self.process.stderr):
            threading.Thread(target=self._read, args=[stream], daemon=True).start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))

    def line(self, wanted: Callable[[str], bool]) -> str:
        """Return the next matching line."""
        end = time.monotonic() + ENOUGH
        while True:
            try:
                line = self._lines.get(timeout=max(end - time.monotonic(), 0.001))
            except Empty:
                raise AssertionError(f"not said: {self.said}") from None
            self.said.append(line)
            if wanted(line):
                return line

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(ENOUGH)

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.wait()


def ingest(folder: Path, place: str, name: str, events: list[tuple[str, int, int, int]]) -> None:
    chains = {"send": "ethereum", "recv": "moonbeam"}
    rows = [
        f"eth->moonbeam,{side},{chains[side]},{at},0x{side}{nonce},{nonce},a,me,{amount}\n"
        for side, nonce, at, amount in events
    ]
    (folder / name).write_text(HEAD + "".join(rows))
    assert execute(["ingest", "bridge-events", str(folder / name), "--lake", place], build_app, "causeway") == OK


def test_output_and_metrics_follow_external_commits_until_ctrl_c(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    ingest(tmp_path, place, "a.csv", [("send", 1, 10_000, 5), ("recv", 1, 20_000, 5), ("send", 2, 20_100, 5)])
    with Following(place, "--metrics-port", "0") as following:
        where = following.line(lambda line: "metrics at" in line).split("metrics at ")[1].split(";")[0]
        line = following.line(lambda line: line.startswith("commit 0: "))
        assert "3 rows; INCONCLUSIVE" in line and line.endswith("1 open, the oldest for 0 s")

        def scraped() -> dict[tuple[str, Labels], float]:
            with urllib.request.urlopen(where, timeout=ENOUGH) as answer:
                return metrics(answer.read().decode())

        lane = (("destination", "moonbeam"), ("lane", "eth->moonbeam"), ("protocol", "bridge"), ("source", "ethereum"))
        # One more message is sent; when the ledger shows it, the second has waited for 400 seconds.
        ingest(tmp_path, place, "b.csv", [("send", 3, 20_500, 5)])
        following.line(lambda line: line.startswith("commit 1: 4 rows (+1); INCONCLUSIVE"))
        found = scraped()
        assert found["lane_open_messages", lane] == 2 and found["lane_open_oldest_seconds", lane] == 400
        assert found["overdue_seconds", ()] == 0  # its destination has logged nothing since
        assert found["open_messages", ()] == 2 and found["violated", (("check", "authenticity"),)] == 0
        assert found["chain_last_time_seconds", (("chain", "ethereum"),)] == 20_500
        assert found["up", ()] == 1 and found["commit", ()] == 1 and found["rows", ()] == 4
        # Both are delivered, one of them altered.
        ingest(tmp_path, place, "c.csv", [("recv", 2, 23_000, 5), ("recv", 3, 23_500, 6)])
        line = following.line(lambda line: line.startswith("commit 2: "))
        assert "FAILED: authenticity 1 (+1)" in line
        following.line(lambda line: line.startswith("  authenticity: first eth->moonbeam 3 "))
        found = scraped()
        assert found["violated", (("check", "authenticity"),)] == 1
        named = (("check", "authenticity"), ("reason", "content_differs"), ("verdict", "violated"))
        assert found["findings", named] == 1
        assert found["lane_open_messages", lane] == 1 and found["lane_open_oldest_seconds", lane] == 3_000
        assert found["lane_overdue_seconds", lane] == 1_200  # the bridge finalizes a message after 1,800
        # The ledger is unavailable for a while.
        Path(place).rename(tmp_path / "away")
        following.line(lambda line: line.startswith("cannot be read: ") and "no ledger is there" in line)
        assert scraped()["up", ()] == 0 and scraped()["failures_total", ()] >= 1
        (tmp_path / "away").rename(place)
        following.line(lambda line: line == "can be read again")
        assert following.end() == FAILED
        following.line(
            lambda line: line == "causeway: stopped at commit 2: FAILED: 1 violation of authenticity; 1 message pending"
        )
    assert not any("Traceback" in line for line in following.said)


@pytest.mark.slow
def test_json_output_and_exit_code_cover_the_requested_checks(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    ingest(tmp_path, place, "a.csv", [("send", 1, 10_000, 5), ("recv", 1, 20_000, 6)])
    with Following(place, "--json", "--check", "order") as following:
        said = json.loads(following.line(lambda line: line.startswith("{")))
        assert (said["commit"], said["rows"], said["holds"]) == (0, 2, True)
        assert [check["check"] for check in said["checks"]] == ["order"] and said["open"]["messages"] == 1
        assert following.end() == OK


def test_running_lake_is_followed_by_heights(tmp_path: Path) -> None:
    lake = ic_lake.make_lake(tmp_path, certification="off", until=4)
    with LedgerWatch(lake, 1000) as watch:
        first = watch.look()
        assert first is not None and watch.look() is None
        with LakeNetwork.from_scenario(tmp_path / "scenario.toml", lake=lake, resume=True) as network:
            network.run()
        second = watch.look()
        assert first.height is not None and second is not None and second.height is not None
        assert second.height > first.height and watch.look() is None
        with open_or_derive_ledger(lake) as ledger:
            found = audit_ledger(ledger, limit=1000)
    assert {name: check.reasons for name, check in second.audit.checks.items()} == {
        name: check.reasons for name, check in found.checks.items()
    }
    assert second.audit.lanes.equals(found.lanes) and second.audit.sums.equals(found.sums)


Row = dict[str, Any]
LANE: Row = {"protocol": "p", "source": "a", "destination": "b", "lane": "x", "kind": "request", "stated_by": "test"}


def commit_rows(place: str, indices: range, *, new: bool = False, answered: bool = False, turn: int = 0) -> None:
    ledger = create_ledger(place, 4) if new else open_ledger(place)
    writer = LedgerWriter(ledger)
    rows = [
        {**LANE, "index": index << 18, "event": event, "chain": chain, "time": index}
        for index in indices
        for event, chain in (("sent", "a"), ("received", "b"))
    ]
    if answered:  # over another lane
        rows += [
            {**LANE, "source": "b", "destination": "a", "kind": "response", "index": (index << 18) + turn,
             "event": "received", "chain": "a", "time": index + 1, "answers": f"m{index}"}
            for index in indices
        ]  # fmt: skip
        rows = rows if not turn else [row for row in rows if row["source"] == "b"]
        rows = [{**row, "message_id": f"m{row['index'] >> 18}"} if row["source"] == "a" else row for row in rows]
    for bucket, mine in group_by_bucket(table(rows, LEDGER_SCHEMA), 4).items():
        writer.write("ledger", mine, bucket)
    writer.commit([], {})


def test_damaged_file_is_reported_and_the_rest_continues(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    commit_rows(place, range(40), new=True)
    with LedgerWatch(place) as watch:

        def look() -> WatchResult:
            found = watch.look()
            assert found is not None
            return found

        whole = look().audit
        commit_rows(place, range(40, 80))
        damaged = max((tmp_path / "ledger" / "ledger" / "bucket=02").iterdir())
        content = damaged.read_bytes()
        damaged.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        found = look()
        assert [*found.unread] == [2] and damaged.name in found.unread[2]
        # The others have the new values, and this one its previous ones.
        sent = found.audit.lanes["sent"].to_pylist()[0]
        assert whole.lanes["sent"].to_pylist() == [40] and 40 < sent < 80
        commit_rows(place, range(80, 81))
        assert look().audit.lanes["sent"].to_pylist() == [sent + 1]
        # It is retried ever later, and counts again once repaired.
        damaged.write_bytes(content)
        for _ in range(16):
            found_again = watch.look()
            if found_again is not None:
                break
        assert found_again is not None and not found_again.unread
        assert found_again.audit.lanes["sent"].to_pylist() == [81] and watch.look() is None


def test_file_damaged_after_reading_does_not_stop_the_audit(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    commit_rows(place, range(40), new=True, answered=True)
    with LedgerWatch(place) as watch:
        first = watch.look()
        assert first is not None and first.audit.checks["answers_without_request"].violated == 0
        (damaged,) = (tmp_path / "ledger" / "ledger" / "bucket=02").iterdir()
        content = damaged.read_bytes()
        damaged.write_bytes(content[: len(content) // 2])
        commit_rows(place, range(40, 60), answered=True)
        # Second answers match their requests again, in any bucket.
        commit_rows(place, range(40), answered=True, turn=1)
        found = watch.look()
        assert found is not None and damaged.name in found.unread[2]
        # Requests in that bucket may have been sent.
        violated = {name for name, check in found.audit.checks.items() if check.verdict == "FAILED"}
        assert violated == {"exactly_once"} and found.audit.checks["answers_without_request"].unknown > 0
        damaged.write_bytes(content)
        for _ in range(16):
            again = watch.look()
            if again is not None and not again.unread:
                break
        assert again is not None and again.audit.lanes["sent"].to_pylist()[0] == 60


def audit_snapshot(lanes: list[LaneBacklog], chains: list[ChainCoverage]) -> AuditSnapshot:
    return AuditSnapshot(1, None, 10, {}, {}, lanes, chains, len(lanes), 0, 0, 0, 0)


def test_few_lanes_have_own_metrics_and_names_are_escaped() -> None:
    hostile = 'a"b\\c\n\x1b[31m{d="1"} ' + "x" * 5_000
    lanes = [
        LaneBacklog(("p", f"{hostile}{number}", None, f"lane {number}"), 10, 1, 2, 3, 4.0 + number, None, number)
        for number in range(3 * MOST_LANES)
    ]
    twice = LaneBacklog(("p", f"{hostile}another", None, "lane 7"), 10, 1, 2, 3, 9.0, None, None)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=100)
    collector = AuditCollector(now=lambda: 160.0)
    collector.show(
        audit_snapshot(
            [twice, *lanes], [ChainCoverage(hostile, 5, None, at, 0.5), ChainCoverage("b", 5, 7, None, None)]
        )
    )
    found = collect_metrics(collector)
    series = {labels: value for (name, labels), value in found.items() if name == "lane_open_messages"}
    assert len(series) == MOST_LANES and sum(series.values()) == len(lanes) + 1  # two are truncated to one name
    others = (("destination", ""), ("lane", OTHERS), ("protocol", ""), ("source", ""))
    assert series[others] == 2 * MOST_LANES + 1
    assert found["lane_open_oldest_seconds", others] == 3 * MOST_LANES + 3 == found["open_oldest_seconds", ()]
    (lag,) = [value for (name, _), value in found.items() if name == "chain_lag_seconds"]
    assert lag == 60.0 and found["chain_last_height", (("chain", "b"),)] == 7
    assert all(len(value) <= 4 * 128 and value.isprintable() for _, labels in found for _, value in labels)


def test_latest_lanes_have_own_metrics_whatever_their_backlog() -> None:
    many = [LaneBacklog(("p", "a", "b", f"{n}"), 1000, 1000 + n, 0, 0, 5.0, None, 1.0 + n % 2) for n in range(300)]
    late = LaneBacklog(("p", "a", "b", "late"), 2, 1, 0, 0, 90.0, None, 80.0)
    shown_first = order_lanes([*many, late])
    assert shown_first[0] is late and len(shown_first) == 301 and len({lane.lane for lane in shown_first}) == 301
    assert many[299] in shown_first[:MOST_LANES] and many[298] in shown_first[:MOST_LANES]


def test_removed_lanes_report_zero_and_ages_use_data_clocks() -> None:
    rows: list[Row] = [
        {**LANE, "index": 1, "event": "sent", "chain": "a", "time": 10_000_000},
        {**LANE, "index": 2, "event": "sent", "chain": "a", "time": 12_000_000},
        {**LANE, "index": 2, "event": "rejected", "chain": "b", "time": 70_000_000},
        {**LANE, "index": 3, "event": "sent", "chain": "a", "time": 13_000_000},
        {**LANE, "index": 3, "event": "acknowledged", "chain": "a", "time": 14_000_000},
        {**LANE, "index": 4, "event": "sent", "chain": "a", "time": None},
    ]
    stated = {"how": "inferred", "stated_by": "t"}
    windows = [{"chain": "a", "first_height": f, "last_height": f + 9, **stated} for f in (1, 31)]
    collector = AuditCollector(now=lambda: 0.0)

    def look(rows: list[Row]) -> dict[tuple[str, Labels], float]:
        observed, promises = table(windows, OBSERVED_SCHEMA), PROMISES_SCHEMA.empty_table()
        audit = audit_table(table(rows, LEDGER_SCHEMA), observed, promises)
        collector.show(take_snapshot(WatchResult(0, None, audit, observed, promises, {}, 0, {}), [*audit.checks]))
        return collect_metrics(collector)

    found = look(rows)
    assert found["open_messages", ()] == 2 and found["open_oldest_seconds", ()] == 60
    # Number 2 was rejected at its destination, unknown to its source.
    assert found["unacknowledged_messages", ()] == 3 and found["unacknowledged_oldest_seconds", ()] == 60
    assert found["chain_covered_ratio", (("chain", "a"),)] == 0.5
    reason = (("check", "exactly_once"), ("reason", "not_received"), ("verdict", "unknown"))
    assert found["findings", reason] == 2
    found = look([*rows, *({**row, "event": "received", "chain": "b"} for row in rows if row["index"] in (1, 4))])
    assert found["findings", reason] == 0 and found["open_messages", ()] == 0


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_bad_arguments_end_in_one_line(tmp_path: Path, used_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "ledger")
    create_ledger(place, 1)
    for arguments, text in (
        (["--metrics-port", "9464"], "--metrics-port: only with --follow"),
        (["--interval", "3"], "--interval: only with --follow"),
        (["--follow", "--out", "x"], "--out: not with --follow"),
        (["--follow", "--executor", "spark"], "--executor: not with --follow"),
        (["--processes", "2"], "--processes: only with --reexecute"),
        (["--follow", "--interval", "0"], "--interval"),
        (["--follow", "--metrics-port", "99999"], "--metrics-port"),
        (["--follow", "--metrics-port", str(used_port)], f"--metrics-port: 127.0.0.1:{used_port} is in use"),
        (["--follow", "--check", "honesty"], "--check honesty: must be one of"),
    ):
        assert execute(["audit", place, *arguments], build_app, "causeway") == BAD_INPUT, arguments
        err = capsys.readouterr().err
        assert text in err and err.count("\n") == 1, err
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for arguments, text in (
        ([str(tmp_path / "nothing"), "--follow"], "no lake or ledger found"),
        ([""], "LAKE: empty"),
        (["x" * 300], "File name too long"),
        ([str(tmp_path / "loop")], "Too many levels of symbolic links"),
        ([str(tmp_path / "two\nlines")], r"two\nlines: no lake or ledger found"),
        ([place, "--out", str(tmp_path / "file")], f"--out {tmp_path / 'file'}: is no folder"),
    ):
        assert execute(["audit", *arguments], build_app, "causeway") == BAD_INPUT, arguments
        assert text in capsys.readouterr().err
    (tmp_path / "ledger" / "ledger.json").write_text("{")
    for arguments in (["audit", place], ["audit", place, "--follow"], ["trace", place, "x"]):
        assert execute(arguments, build_app, "causeway") == BAD_INPUT
        assert f"causeway: {place}: ledger.json has invalid content" in capsys.readouterr().err


def test_empty_ledger_has_metrics(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger")
    create_ledger(place, 3)
    collector = AuditCollector()
    assert collect_metrics(collector)["up", ()] == 0
    with LedgerWatch(place) as watch:
        watched = watch.look()
        assert watched is not None and watched.commit == -1
        collector.show(take_snapshot(watched, [*watched.audit.checks]))
    found = collect_metrics(collector)
    assert found["rows", ()] == 0 and found["lanes", ()] == 0 and found["open_oldest_seconds", ()] == 0
    assert isinstance(watched.audit.violations, pa.Table)
