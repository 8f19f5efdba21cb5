"""Commands on the protocol pages print the output shown there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from causeway.cli.app import build_app
from causeway.protocols.registry import find_protocol, protocol_names
from causeway.protocols.shared.semantics import CHECKS, TOPICS

ROOT = Path(__file__).parents[2]
HOW = {"run": ["--set", "network.executor=in_process"], "state": ["--master", "local[2]"]}  # the tests' own session


def page_commands(page: str, heading: str) -> list[tuple[list[str], list[str]]]:
    """Return the commands of the first block under a heading of a page, each with its output lines."""
    text = (ROOT / f"docs/explanation/protocols/{page}.md").read_text()
    (block,) = re.findall(rf"^## {heading}\n.*?^```\n(.*?)^```", text, re.M | re.S)
    commands = [part.splitlines() for part in re.split(r"^\$ ", block, flags=re.M) if part]
    return [(shlex.split(line)[1:], printed) for line, *printed in commands]


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        ("xdm", "Proofs out of a lake", ["run", "prove", "verify"]),
        pytest.param("xdm", "What a run says", ["run"], marks=pytest.mark.slow),
        pytest.param("xdm", "Fees", ["run", "state"], marks=pytest.mark.slow),
        ("icmp", "Proofs out of a lake", ["run", "prove", "verify"]),
        ("icmp", "What a run says", ["run"]),
    ],
)
def test_page_shows_the_printed_output(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    page: str,
    heading: str,
    expected: list[str],
) -> None:
    """Roots and counts follow from the rules of every block before: if they change, the page changes, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = page_commands(page, heading)
    assert [arguments[0] for arguments, _ in commands] == expected
    if "state" in expected:
        request.getfixturevalue("spark")
    for arguments, printed in commands:
        result = CliRunner().invoke(build_app(), [*arguments, *HOW.get(arguments[0], [])])
        assert result.exit_code == 0, result.output
        said = [line.rstrip() for line in result.output.splitlines()]
        for line in printed:
            pattern = re.compile(re.escape(line).replace(re.escape("..."), ".*"))  # times, memory, roots
            assert any(pattern.fullmatch(found) for found in said), line


@pytest.mark.parametrize("name", protocol_names())
def test_page_lists_the_guarantees_and_their_checks(name: str) -> None:
    text = (ROOT / f"docs/explanation/protocols/{name}.md").read_text()
    section = text.split("\n## Guarantees and checks\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    info = find_protocol(name)
    assert [
        [*row[:4], re.sub(r"\[`(.+)`\]\(../../reference/audit/\1\.md\)", r"\1", row[4]).strip("`"), row[5]]
        for row in rows
    ] == [
        [f"`{one.topic}`", TOPICS[one.topic], one.holds, one.how, CHECKS.get(one.topic, "-"), one.reference]
        for one in info.load_semantics().guarantees(info.load_options()())
    ]
