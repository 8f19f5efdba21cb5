"""The page about testing programs matches the behaviour of the code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from orders import Book, Trader, Vault

import causeway as cw
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.scenarios.scenario import load_scenario

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "test-programs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


@pytest.mark.causeway(protocols=["ibc"])
def test_blocks_of_the_page_form_a_running_program(
    causeway_network: Callable[..., cw.Network], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program: dict[str, Any] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, "test-programs.md", "exec"), program)
    program["test_greets_who_says_a_name"](causeway_network)
    assert load_scenario(tmp_path / "counters.toml").document.changes and (tmp_path / "counters-lake").is_dir()


@pytest.mark.causeway(protocols=["ibc"])
def test_timeline_of_the_page_equals_a_failure_report(causeway_network: Callable[..., cw.Network]) -> None:
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


def test_table_of_protocol_features_is_correct() -> None:
    table = PAGE.split("\n| | `ic` | `ibc` | `icmp` | `xdm` |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    install, upgrade, move, remove = ([cell.strip() for cell in line.strip("| ").split(" | ")[1:]] for line in table)
    listed = ["ic", "ibc", "icmp", "xdm"]
    assert sorted(listed) == protocol_names()
    assert [cell.startswith("yes") for cell in install] == [find_protocol(name).changes_programs for name in listed]
    assert [cell.startswith("yes") for cell in upgrade] == [find_protocol(name).changes_programs for name in listed]
    assert [cell.startswith("yes") for cell in move] == [find_protocol(name).moves for name in listed]
    assert [cell.startswith("yes") for cell in remove] == [find_protocol(name).moves for name in listed]
    assert ["without a balance" in cell for cell in install] == [find_protocol(name).fixed_issue for name in listed]


COMPARED = (Path(__file__).parents[3] / "docs/explanation/test-networks-compared.md").read_text()


def test_line_counts_of_the_comparison_page_are_correct() -> None:
    blocks = {kind: re.search(rf"```{kind}\n(.*?)```", COMPARED, re.S) for kind in ("python", "rust", "go")}
    counts = [sum(1 for line in block[1].splitlines() if line.strip()) for block in blocks.values() if block]
    cells = re.search(r"\| lines of the test \| (\d+) \| (\d+) \| (\d+) \|", COMPARED)
    assert cells is not None and [int(cell) for cell in cells.groups()] == counts
    assert f"{counts[0]}, {counts[1]} and {counts[2]} lines" in PAGE
    orders = (Path(__file__).parents[3] / "examples/orders.py").read_text()
    assert f"examples/orders.py), {len(orders.splitlines())} lines" in COMPARED


@pytest.mark.causeway(protocols="all", options={"xdm": {"archiving_depth": 1, "challenge_period": 1}})
def test_test_of_the_comparison_page_passes(causeway_network: Callable[..., cw.Network]) -> None:
    block = re.search(r"```python\n(.*?)```", COMPARED, re.S)
    assert block is not None
    program: dict[str, Any] = {"pytest": pytest, "cw": cw, "Book": Book, "Trader": Trader, "Vault": Vault}
    exec(compile(block[1], "test-networks-compared.md", "exec"), program)
    program["test_what_was_delivered_comes_back"](causeway_network)


DOCS = Path(__file__).parents[3] / "docs"
PROGRAM_PAGES = [
    "tutorials/application-developer",
    "explanation/test-networks-compared",
    "how-to/test-programs",
    "tutorials/token-transfer",
    "tutorials/write-a-program",
]


def test_examples_and_developer_pages_need_one_module() -> None:
    texts = {path.name: path.read_text() for path in (DOCS.parent / "examples").glob("*.py")}
    for name in PROGRAM_PAGES:
        page = (DOCS / f"{name}.md").read_text()
        texts[name] = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    assert len(texts) >= 11
    used = {text: re.findall(r"^\s*((?:from|import) causeway.*?)\s*$", body, re.M) for text, body in texts.items()}
    assert {line for lines in used.values() for line in lines} == {"import causeway as cw"}
    named = {name for body in texts.values() for name in re.findall(r"\bcw\.([A-Za-z_]+)", body)}
    assert named <= {*cw.__all__} and {"token_supply", "Reject", "Deploy"} <= named


def test_program_of_the_application_developer_page_runs() -> None:
    page = (Path(__file__).parents[3] / "docs/tutorials/application-developer.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(block, "application-developer.md", "exec"), {"__name__": "page"})
