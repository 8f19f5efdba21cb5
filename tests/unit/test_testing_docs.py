"""The page about testing programs says what happens."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import causeway as cw
from causeway.network.scenario import load_scenario
from causeway.protocols.registry import names, protocol

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "test-programs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.causeway(protocols=["ibc"])
def test_the_blocks_of_the_page_are_one_program_that_runs(
    causeway_network: Callable[..., cw.Network], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "test-programs.md", "exec"), program)
    program["test_greets_who_says_a_name"](causeway_network)
    assert load_scenario(tmp_path / "counters.toml").document.changes and (tmp_path / "counters-lake").is_dir()


@pytest.mark.causeway(protocols=["ibc"])
def test_the_timeline_of_the_page_is_what_a_failure_shows(causeway_network: Callable[..., cw.Network]) -> None:
    program: dict[str, Any] = {"__name__": "page"}
    exec(compile(BLOCKS[0], "test-programs.md", "exec"), program)
    made: list[cw.Network] = []

    def keep(*args: Any, **more: Any) -> cw.Network:
        made.append(causeway_network(*args, **more))
        return made[-1]

    program["test_greets_who_says_a_name"](keep)
    shown = PAGE.split("```\n---- messages of ", 1)[1].split("```", 1)[0].splitlines()
    assert shown[0].startswith(repr(made[0]))
    assert [line.split() for line in shown[1:]] == [line.split() for line in made[0].trace().splitlines()]


def test_the_table_of_what_protocols_allow_is_true() -> None:
    table = PAGE.split("\n| | `ic` | `ibc` | `icmp` | `xdm` |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    install, upgrade, remove = ([cell.strip() for cell in line.strip("| ").split(" | ")[1:]] for line in table)
    listed = ["ic", "ibc", "icmp", "xdm"]
    assert sorted(listed) == names()
    assert [cell.startswith("yes") for cell in install] == [protocol(name).changes_programs for name in listed]
    assert [cell.startswith("yes") for cell in upgrade] == [protocol(name).changes_programs for name in listed]
    assert [cell.startswith("yes") for cell in remove] == [protocol(name).moves for name in listed]
    assert ["without a balance" in cell for cell in install] == [protocol(name).fixed_issue for name in listed]
