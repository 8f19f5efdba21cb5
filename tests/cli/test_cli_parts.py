"""Parts of the commands: memory, findings, formatted values, removal by the demo."""

from __future__ import annotations

import errno
import io
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from causeway_proofs.errors import InvalidInput, describe_os_error
from rich.console import Console

from causeway.cli.commands import relay, run
from causeway.cli.commands.demo import DemoFindings, quantile, remove_demo_lake
from causeway.cli.commands.gossip import up
from causeway.cli.commands.state import format_cell, to_json_value
from causeway.cli.output import progress
from causeway.cli.output.tables import show_table
from causeway.cli.peak_memory import PeakMemory
from causeway.gossip.options import NodeProcesses
from causeway.network.network import LakeNetwork
from causeway.storage.lake import Lake, Manifest
from tests.support.common.command_line import Run, command_line


def test_demo_removes_only_its_own_lake(tmp_path: Path) -> None:
    place = tmp_path / "demo-lake"
    remove_demo_lake(place)
    place.mkdir()
    (place / "lake.json").write_text('{"scenario": {"chains": [{"name": "atlas"}, {"name": "birch"}]}}')
    remove_demo_lake(place)
    assert not place.exists()


@pytest.mark.parametrize("content", ["{}", '{"scenario": {"chains": [{"name": "mainnet"}]}}', "not JSON"])
def test_demo_keeps_folders_of_others(tmp_path: Path, content: str) -> None:
    (tmp_path / "lake.json").write_text(content)
    with pytest.raises(InvalidInput, match="not the lake of an earlier demo"):
        remove_demo_lake(tmp_path)
    assert (tmp_path / "lake.json").exists()


def test_peak_memory_counts_children() -> None:
    with PeakMemory() as memory:
        alone = memory.sample()
        with subprocess.Popen(
            [sys.executable, "-c", "x = bytearray(90_000_000); input()"], stdin=subprocess.PIPE
        ) as child:
            deadline = time.monotonic() + 30
            while memory.sample() < alone + 80_000_000 and time.monotonic() < deadline:
                time.sleep(0.05)
            child.communicate(b"\n")
    assert memory.peak_bytes >= alone + 80_000_000


def test_quantile_is_the_least_value_with_enough_at_or_below_it() -> None:
    counts = {2: 50, 3: 49, 9: 1}
    assert [quantile(counts, share) for share in (0.5, 0.51, 0.99, 1.0)] == [2, 3, 3, 9]
    assert quantile({}, 0.5) is None


def test_findings_as_json() -> None:
    found = DemoFindings({2: 3}, {("a", "b"): 4, ("b", "a"): 9}, {0: 13}, {("rejected", "Unknown", 1): 2}, {})
    assert found.as_json() == {
        "delay_ticks": {"p50": 2, "p99": 2, "max": 2},
        "busiest_lanes": [
            {"source": "b", "destination": "a", "messages": 9},
            {"source": "a", "destination": "b", "messages": 4},
        ],
        "troubles": [{"outcome": "rejected", "reason": "Unknown", "code": 1, "calls": 2}],
        "refused": [],
    }


def test_values_for_people_and_for_programs() -> None:
    assert format_cell("payload", bytearray(b"hello")) == "hello"
    assert format_cell("payload", b"\x00\xff") == "00ff"
    assert format_cell("index", 12345) == "12,345"
    assert format_cell("name", "x" * 99) == "x" * 47 + "…"
    assert to_json_value(bytearray(b"\x01")) == "01"


def bar(width: int, ticks: Sequence[int], end: int, busy: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text of a bar after commits of 30,000 messages, 10 seconds each, that end at these ticks."""
    now = 0.0
    console = Console(width=width, force_terminal=True, file=io.StringIO(), record=True, get_time=lambda: now)
    monkeypatch.setattr(progress, "stderr_console", lambda: console)
    monkeypatch.setattr("time.monotonic", lambda: now)
    seen = progress.RunProgress("recorded.toml", 0, end, busy)
    for tick in ticks:
        now += 10.0
        line = SimpleNamespace(rows={"outbound": 30_000})
        work, totals = {"calls_begun": 40_000, "calls_ended": 38_000 - tick}, {"outbound": 1}
        manifest = SimpleNamespace(tick=tick, height=tick + 1, rows=line.rows, lines=[line], work=work, totals=totals)
        seen(cast(Manifest, manifest))
    console.print(seen._progress.get_renderable())
    return console.export_text()


LONG = "height 200; 60,000 messages, 3,000 per second; 2,199 calls open"
SHORT = "height 200; 3,000/s; 2,199 open"
LEAST = "height 200; 3,000/s"


@pytest.mark.parametrize(("width", "said"), [(40, SHORT), (60, SHORT), (67, LONG), (80, LONG), (24, LEAST)])
def test_progress_bar_shows_progress_and_duration_on_a_narrow_terminal(
    width: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    above, below = bar(width, [99, 199], 646, [], monkeypatch).splitlines()
    for part in ("recorded.toml", "tick 199 of 645", "0:20, 0:45 left") if width >= 60 else ():
        assert part in above, above
    assert below.rstrip() == f"  {said}"


@pytest.mark.parametrize("width", [30, 50, 100])
def test_table_truncates_no_cell_on_a_narrow_terminal(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    titles = ["lane", "pending", "waits for", "because"]
    rows = [["a -> b channel-7", "1,234,567", "67.6 days", "open 1,234,567"], ["c", "0", "", ""]]
    show_table(Console(width=width, force_terminal=True), titles, rows, left=["lane", "because"], folds=["because"])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    for text in ("a -> b channel-7", "1,234,567", "67.6 days"):
        assert text in shown
    lines = shown.splitlines()
    assert all(len(line.rstrip()) <= width for line in lines) and "…" not in shown
    assert (lines[0].split()[0] == "lane") == (width > 50)


def test_ticks_without_traffic_are_excluded_from_the_remaining_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [*range(300), *range(900, 1_000)]
    assert "tick 199 of 999" in (text := bar(120, [99, 199], 1_000, busy, monkeypatch)) and "0:20 left" in text, text


def test_ticks_with_traffic_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [0, 3, 4, 9]
    traffic = SimpleNamespace(next_tick=lambda tick: next((busy for busy in ticks if busy >= tick), None))
    network = cast(LakeNetwork, SimpleNamespace(tick=3, deployment=SimpleNamespace(traffic=traffic)))
    assert run.upcoming_traffic_ticks(network, None) == [3, 4, 9]
    assert run.upcoming_traffic_ticks(network, 9) == [3, 4]
    monkeypatch.setattr(run, "MAX_TRAFFIC_TICKS", 2)
    assert run.upcoming_traffic_ticks(network, None) == []


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["check", "lake"], ""),
        (["vacuum", "lake"], "; the next vacuum of this lake frees the rest"),
        (["prove", "lake", "--chain", "left"], ""),
        (["serve", "lake", "--port", "0"], ""),
        (["relay", "http://127.0.0.1:1", "http://127.0.0.1:2"], ""),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else "",
)
def test_interrupt_during_a_command_is_reported(
    cli: Run, monkeypatch: pytest.MonkeyPatch, command: list[str], how: str
) -> None:
    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Lake, "at", interrupted)
    monkeypatch.setattr(relay, "_Process", interrupted)
    assert cli(*command) == (130, "", f"causeway: interrupted{how}\n")


@pytest.mark.parametrize(
    ("width", "titles"), [(80, "node pid leaves coverage"), (24, "node leaves coverage"), (9, "node")]
)
def test_narrow_terminal_keeps_important_columns_whole(width: int, titles: str) -> None:
    rows = [["0", "123456789", "12", "100%"], ["1", "123456790", "13", "99%"]]
    nodes = SimpleNamespace(columns=("node", "pid", "leaves", "coverage"), rows=lambda: rows)
    console = Console(width=width, file=io.StringIO())
    console.print(up._table(cast(NodeProcesses, nodes), width))
    lines = cast(io.StringIO, console.file).getvalue().splitlines()
    assert lines[0].split() == titles.split() and all(len(line) <= width for line in lines)
    assert lines[2].split() == [rows[1][nodes.columns.index(title)] for title in titles.split()]


def test_too_many_open_files_are_reported_with_a_remedy() -> None:
    assert "ulimit -n" in str(describe_os_error(OSError(errno.EMFILE, "Too many open files")))


SIGNALLED = """
import importlib.abc, os, signal, sys

class Signals(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            {how}

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGTERM)

signal.signal(signal.SIGINT, signal.default_int_handler)  # who began the tests may have it ignored
sys.meta_path.insert(0, Signals())
from causeway.cli import main
main(["verify", "nowhere.json"])
"""


@pytest.mark.parametrize(
    ("at", "how"),
    [
        ("causeway.cli.shell", "signal.raise_signal(signal.SIGTERM)"),
        ("causeway.cli.app", "signal.raise_signal(signal.SIGINT)"),
        ("causeway_proofs.documents.verification", "signal.raise_signal(signal.SIGTERM)"),
        ("causeway_proofs.documents.verification", "Dropped()"),
    ],
)
def test_signal_during_an_import_ends_the_command_with_one_line(at: str, how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", SIGNALLED.format(how=how), at], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "causeway: interrupted\n")


def test_interrupt_wrapped_in_an_error_is_an_interrupt(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: object, **named: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("cannot be imported") from error

    monkeypatch.setattr(Lake, "at", interrupted)
    assert cli("check", "lake") == (130, "", "causeway: interrupted\n")


def test_wrapped_interrupt_ends_ingest_with_the_interrupt_message(
    cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*given: object, **named: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise OSError("a call was broken off") from error

    monkeypatch.setattr("causeway.ledger.ingest.ingest.ingest_files", interrupted)
    said = "causeway: interrupted; nothing of it is in the ledger, and it can be run again\n"
    assert cli("ingest", "two-tables", str(tmp_path), "--lake", str(tmp_path / "ledger")) == (130, "", said)
