"""What the page on cross-domain messaging shows of commands is what they print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from causeway.cli.app import build

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/protocols/xdm.md").read_text()
IN_PROCESS = ["--set", "network.executor=in_process"]


def shown(heading: str) -> list[tuple[list[str], list[str]]]:
    """Return the commands of the first block under a heading, each with the lines that it prints."""
    (block,) = re.findall(rf"^## {heading}\n.*?^```\n(.*?)^```", PAGE, re.M | re.S)
    commands = [part.splitlines() for part in re.split(r"^\$ ", block, flags=re.M) if part]
    return [(shlex.split(line)[1:], printed) for line, *printed in commands]


def test_proofs_out_of_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root follows from the rules of every block before: where it changes, the page does in the same commit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = shown("Proofs out of a lake")
    assert [arguments[0] for arguments, _ in commands] == ["run", "prove", "verify"]
    for arguments, printed in commands:
        result = CliRunner().invoke(build(), [*arguments, *(IN_PROCESS if arguments[0] == "run" else [])])
        assert result.exit_code == 0, result.output
        for line in printed:
            assert line in result.output.splitlines()
