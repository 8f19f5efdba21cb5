"""``causeway manual`` and the help texts: examples on their own lines, further reading."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from causeway.cli.app import COMMANDS, build_app
from causeway.cli.commands.manual import manual_page
from causeway.cli.help import SEE_ALSO, fold_help
from tests.support.common.command_line import Run, command_line

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch, "manual")


@pytest.fixture(scope="module")
def pages() -> dict[str | None, str]:
    return {name: manual_page(name) for name in (None, *COMMANDS)}


def test_each_command_links_to_further_reading() -> None:
    assert {*SEE_ALSO} == {*COMMANDS}
    for related, where in SEE_ALSO.values():
        assert {*related.split()} <= {*COMMANDS} and (ROOT / where).is_file(), where


def test_page_has_every_option_and_example_of_its_command(pages: dict[str | None, str]) -> None:
    commands: Any = get_command(build_app())
    for name in COMMANDS:
        found, text = commands.commands[name], pages[name].replace("\\-", "-").replace("\\e", "\\")
        assert text.startswith(f'.TH "CAUSEWAY-{name.upper()}" "1"')
        for each in found.params:
            if each.param_type_name == "option":
                assert f"\\fB{each.opts[0]}\\fR" in text, (name, each.opts)
        for example in re.findall(r"\[bold]Example\[/bold]: (causeway .*)", found.help or ""):
            assert example.replace("'", "\\(aq") in text
        assert not re.search(r"\[/?bold]", text)
    for name in COMMANDS:
        assert f".B {name}\n" in pages[None]


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
@pytest.mark.parametrize("name", [None, "ledger", "audit", "key"])
def test_man_accepts_every_page(pages: dict[str | None, str], name: str | None) -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"], input=pages[name], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "" and "SEE ALSO" in re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)


def test_all_pages_are_written_into_a_folder(cli: Run, tmp_path: Path, pages: dict[str | None, str]) -> None:
    code, out, err = cli("--out", "man1")
    assert (code, out) == (0, "") and f"{len(COMMANDS) + 1} pages written to man1" in err
    assert {path.name for path in (tmp_path / "man1").iterdir()} == {
        "causeway.1",
        *(f"causeway-{name}.1" for name in COMMANDS),
    }
    assert (tmp_path / "man1" / "causeway-run.1").read_text() == pages["run"] == cli("run")[1]
    for arguments, said in (
        (["rnu"], 'COMMAND: "rnu": no such command; did you mean run?'),
        (["run", "--out", "man1"], "--out: all pages are written; give no command"),
        (["--out", "man1/causeway.1"], "--out man1/causeway.1: is no folder"),
    ):
        assert cli(*arguments) == (2, "", f"causeway: {said}\n")


def test_help_text_is_wrapped_by_the_terminal_alone() -> None:
    text = fold_help("""First
    goes on.

    Second
    too.

    [bold]Example[/bold]: one
    [bold]Example[/bold]: two
    """)
    examples = "[bold]Example[/bold]: one\n[bold]Example[/bold]: two"
    assert text == f"First goes on.\n\nSecond too.\n\n{examples}" and fold_help(None) == ""


def single() -> list[tuple[list[str], Any]]:
    """Return all commands, those of groups too, each with the words that name it."""
    found = []
    for name, command in get_command(build_app()).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [([name], command)] if inner is None else [([name, each], one) for each, one in inner.items()]
    return found


def examples() -> list[tuple[list[str], Any, list[str]]]:
    return [
        (words, command, shlex.split(example))
        for words, command in single()
        for example in re.findall(r"\[bold]Example\[/bold]: (causeway .*)", command.help or "")
    ]


def test_every_command_has_a_valid_example() -> None:
    assert {" ".join(words) for words, _, _ in examples()} == {" ".join(words) for words, _ in single()}
    for words, command, (program, *given) in examples():
        assert [program, *given[: len(words)]] == ["causeway", *words]
        rest = given[len(words) :]
        with command.make_context(" ".join(words), rest[: rest.index("|")] if "|" in rest else rest) as context:
            assert not context.args, words


def test_files_named_by_examples_exist() -> None:
    named = [word for _, _, words in examples() for word in words if word.startswith("examples/")]
    assert named and all((ROOT / word).is_file() for word in named)


def test_help_is_grouped_and_names_every_value() -> None:
    for words, command in single():
        options = [each for each in command.params if each.param_type_name == "option"]
        assert all(each.help for each in command.params), words
        for each in options:
            named = each.metavar is not None or each.type_descriptor.is_choice
            assert named, (words, each.opts)
        alone = [each for each in options if not each.rich_help_panel]
        assert len(alone) <= 10, (words, "so many options are hard to read in one list")
