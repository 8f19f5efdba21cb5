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


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Proofs out of a lake", ["run", "prove", "verify"]),
        pytest.param("What a run says", ["run"], marks=pytest.mark.slow),
    ],
)
def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, names: list[str]
) -> None:
    """Roots and counts follow from the rules of every block before: where they change, the page does, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = shown(heading)
    assert [arguments[0] for arguments, _ in commands] == names
    for arguments, printed in commands:
        result = CliRunner().invoke(build(), [*arguments, *(IN_PROCESS if arguments[0] == "run" else [])])
        assert result.exit_code == 0, result.output
        for line in printed:
            assert line == "..." or line in result.output.splitlines()
