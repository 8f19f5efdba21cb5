"""Commands of README print the output it shows, except times, rates, memory and folders."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from causeway.cli.commands import demo
from tests.recordings import Recordings
from tests.support.common.command_line import Run, command_line

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
MEASURED = re.compile(r"[\d,.]+ s\b|[\d,]+ (?=messages per second|per second)|(?<=eak memory ).+|(?<=file://).+")


def mask_lines(text: str) -> list[str]:
    """Return lines without the parts that differ from run to run."""
    return [MEASURED.sub("#", line.rstrip()) for line in text.splitlines()]


def block(first: str) -> str:
    """Return the block of README with this beginning."""
    (found,) = [each for each in BLOCKS if each.startswith(first)]
    return str(found)


def commands(text: str) -> list[tuple[list[str], str]]:
    """Return the commands of a block with the output of each."""
    parts = [part.partition("\n") for part in re.split(r"^\$ causeway ", text, flags=re.M) if part]
    return [(shlex.split(line), printed.rstrip("\n")) for line, _, printed in parts]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("COLUMNS", "200")
    yield from command_line(capsys, tmp_path, monkeypatch)


def test_demo_ends_as_the_page_shows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in this process: all lines are the same for every executor."""
    monkeypatch.setattr(demo, "changed_options", lambda *given: {"network.executor": "in_process"})
    code, printed, errors = run("demo")
    assert code == 0, errors
    faults, rest = printed.split("Injected faults", 1)[1].split("\nExplore\n", 1)
    ending = f"Injected faults{faults}\nSummary\n{rest.split('Summary', 1)[1].lstrip()}"
    shown = [line for line in mask_lines(block("Injected faults")) if line]
    assert [line.strip() for line in mask_lines(ending) if line] == [line.strip() for line in shown]


def test_auction_prints_the_output_of_the_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    auction, state = commands(block("$ causeway run examples/auction.toml"))
    assert (auction[0][0], state[0][0]) == ("run", "state")
    for (arguments, shown), more in (
        (auction, ("--set", "network.executor=in_process")),
        (state, ("--master", "local[2]")),
    ):
        code, printed, errors = run(*arguments, *more)
        assert code == 0, errors
        assert mask_lines(printed) == mask_lines(shown)


def test_bridge_audit_prints_the_output_of_the_page(run: Run, tmp_path: Path, recordings: Recordings) -> None:
    (tmp_path / "nomad.csv").symlink_to(recordings.bridge_events)
    ingest, audit, trace = commands(block("$ causeway ingest bridge-events nomad.csv"))
    codes = []
    for arguments, shown in (ingest, audit, trace):
        code, printed, _ = run(*arguments)
        codes.append(code)
        before, cut, _ = shown.partition("  ...")
        lines = before.rstrip("\n").splitlines()
        found = [line.rstrip() for line in printed.splitlines()]
        assert (found[: len(lines)] if cut else [line for line in found if line in lines]) == lines
    assert codes == [0, 1, 0]
