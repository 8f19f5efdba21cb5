"""``causeway --version`` and ``causeway completion``: versions and shell completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import causeway
from causeway.cli import completion
from causeway.cluster.java import find_java
from causeway.protocols.registry import protocol_names
from tests.support.common.command_line import Run, command_line

SCRIPT = """\
source <(causeway completion bash)
complete() {
  COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMPREPLY=()
  _causeway_completion causeway; echo "${COMPREPLY[*]}"
}
complete causeway run sc
"""


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield from command_line(capsys, tmp_path, monkeypatch)


def test_versions_for_people_and_for_programs(cli: Run) -> None:
    code, out, err = cli("--version")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"causeway {causeway.__version__}"
    code, told, _ = cli("--version", "--json")
    found = json.loads(told)
    assert code == 0 and found["spark"] == found["pyspark"] == "4.3.0"
    assert found["java"]["version"] == find_java().version and found["java"]["error"] is None
    assert {*found["protocols"]} == {*protocol_names()}
    for about in found["protocols"].values():
        assert about["reference"] and about["title"] in out and about["reference"] in out
    for text in (found["java"]["version"], found["python"], found["optional"]["duckdb"]):
        assert text in out


def test_version_reports_a_java_problem_without_failing(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, out, _ = cli("--version")
    assert code == 0 and "JAVA_HOME is /nowhere, but no Java is there" in out


@pytest.mark.parametrize("arguments", [["--json"], ["--json", "run", "x.toml"]])
def test_json_without_a_command_applies_to_the_version(cli: Run, arguments: list[str]) -> None:
    code, out, err = cli(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1) and "only with --version" in err


def in_shell(arguments: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder)}
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_bash_completes_names_and_files(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").touch()
    (tmp_path / "scene").mkdir()
    (tmp_path / "scratch.txt").touch()
    assert in_shell(["bash", "--norc", "-c", SCRIPT], tmp_path) == "scenario.toml scene/\n"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["audit", "place", "--check", "ex"], ["exactly_once"]),
        (["run", "--protocol", "x"], ["xdm"]),
        (["ledger", "place", "--table", "wat"], ["watermarks"]),
        (["ingest", "ibc"], ["ibc-events", "ibc-packets"]),
        (["ledg"], ["ledger"]),
        (["run", "--prot"], ["--protocol"]),
    ],
    ids=lambda given: given[0],
)
def test_names_are_completed(cli: Run, monkeypatch: pytest.MonkeyPatch, typed: list[str], found: list[str]) -> None:
    monkeypatch.setenv(completion.COMPLETE, "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["causeway", *typed]))
    monkeypatch.setenv("COMP_CWORD", str(len(typed)))
    code, out, err = cli()
    assert (code, out.split(), err) == (0, found, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_names(tmp_path: Path) -> None:
    script = 'causeway completion fish | source; complete -C "causeway ingest "'
    assert "xcm-journeys" in in_shell(["fish", "-c", script], tmp_path).split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_calls_the_command(cli: Run, shell: str) -> None:
    code, out, err = cli("completion", shell)
    assert (code, err) == (0, "") and completion.COMPLETE in out and f"complete_{shell}" in out


def test_completion_install_writes_into_the_home_folder_only(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    code, out, err = cli("completion", "bash", "--install")
    assert (code, out) == (0, "")
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written and all(path.startswith("home/") for path in written)
    place = re.search(r"are in (\S+);", err)
    assert place is not None and completion.COMPLETE in Path(place[1]).read_text()
    said = "causeway: SHELL: 'tcsh' is not one of 'bash', 'zsh', 'fish' (see causeway completion --help)\n"
    assert cli("completion", "tcsh") == (2, "", said)


def test_folder_completes_as_a_path_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner" / ".hidden").mkdir(parents=True)
    (tmp_path / "inner" / "a.toml").touch()
    (tmp_path / "inner" / "b.csv").touch()
    assert completion.complete_scenarios("in") == ["inner/", "inner/a.toml"]
    assert completion.complete_scenarios("inner/") == ["inner/a.toml"]
    assert completion.complete_scenarios(f"{tmp_path}/in")[0] == f"{tmp_path}/inner/"
    assert completion.complete_scenarios("nowhere/x") == completion.complete_scenarios("~nobody/") == []
    assert completion.complete_places("in") == ["inner/"]


def test_completion_lists_no_tables_for_a_missing_lake(tmp_path: Path) -> None:
    for place in (str(tmp_path), "s3://bucket/lake", None):
        context: Any = SimpleNamespace(params={"lake": place}, args=[])
        assert completion.complete_state_tables(cast(Any, context), "") == []
