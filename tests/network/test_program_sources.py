"""Lakes are data: a module named by a lake is imported only if the user names it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from causeway_proofs.errors import InvalidInput

from causeway.cli import main
from causeway.cli.commands.serve import _scenario
from causeway.explorer.live import LiveLedger
from causeway.network.network import LakeNetwork
from causeway.network.opened_lake import open_lake
from causeway.network.opened_ledger import open as open_place
from causeway.network.recheck import LakeRecheck, reexecute_lake
from causeway.programs import user_modules
from causeway.programs.catalogue import ProgramNotFound
from causeway.programs.user_modules import BESIDE, ModuleSources
from causeway.scenarios.scenario import load_scenario

TICKS = 6

SCENARIO = """
[network]
executor = "in_process"
commit_every = 3
[[chains]]
name = "a"
[[programs]]
name = "q"
chain = "a"
program = "strange:Quiet"
[traffic]
source = "script"
""" + "".join(f'[[traffic.send]]\ntick = {tick}\nto = "q"\nmethod = "go"\n' for tick in range(TICKS))

STRANGE = """
import pathlib
import causeway as cw
pathlib.Path(__file__).with_name("imported").touch()
class Quiet(cw.Program):
    def on_ingress(self, message, context): ...
class NoProgram: ...
"""


@pytest.fixture
def lake(tmp_path: Path, own_modules: None) -> Path:
    """Return an untrusted lake beside a module that records its import."""
    (tmp_path / "strange.py").write_text(STRANGE)
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    with LakeNetwork(load_scenario(tmp_path / "scenario.toml"), str(tmp_path / "lake")) as network:
        network.run()
    sys.modules.pop("strange")
    BESIDE.folders.clear()
    (tmp_path / "imported").unlink()
    return tmp_path / "lake"


def run_command(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the exit code and output of a command."""
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    told = capfd.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, " ".join((told.out + told.err).split())


@pytest.mark.parametrize(
    "command",
    [
        ["check"], ["check", "--execute"], ["state", "--height", "1"], ["audit", "--reexecute"],
        ["check", "--execute", "--processes", "2"],
    ],
)  # fmt: skip
def test_no_command_imports_modules_named_by_a_lake(
    lake: Path, command: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.parent)
    code, told = run_command(capfd, command[0], str(lake), *command[1:])
    assert not (lake.parent / "imported").exists() and "strange" not in sys.modules
    assert "the module strange is not imported only because a lake names it" in told
    assert "--programs DIR|MODULE" in told
    assert code == (0 if command[0] == "audit" else 2), "an audit that did not execute again is inconclusive"


def test_no_server_imports_modules_named_by_a_lake(lake: Path) -> None:
    with pytest.raises(ProgramNotFound, match="the module strange is not imported"):
        LakeNetwork(_scenario(str(lake), None, (), {}), str(lake), resume=True)
    assert not (lake.parent / "imported").exists()


def test_no_reader_imports_modules_named_by_a_lake(lake: Path) -> None:
    live = LiveLedger(str(lake))
    opened = live.opened
    assert opened is not None
    for read in (
        lambda: opened.replayed.tables(1, "lanes"),
        lambda: [*open_place(str(lake)).state("lanes", height=1)],
        lambda: LakeRecheck(open_lake(str(lake))),
    ):
        with pytest.raises(InvalidInput, match="the module strange is not imported"):
            read()
    assert "the module strange" in str(reexecute_lake(str(lake)).other)
    live.close()
    assert not (lake.parent / "imported").exists()


def test_damaged_file_is_distinguished_from_a_missing_module(lake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, told = run_command(capfd, "check", str(lake))
    assert code == 2 and "INCONCLUSIVE: all files verified" in told
    max((lake / "heights").rglob("*.*"), key=lambda file: file.stat().st_size).write_bytes(b"something else")
    code, told = run_command(capfd, "check", str(lake))
    assert code == 1 and "damaged" in told and "strange" not in told


@pytest.mark.parametrize("said", ["folder", "scenario", "module", "declared"])
def test_module_named_by_the_user_is_imported(lake: Path, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = {"folder": [str(lake.parent)], "scenario": [str(lake.parent / "scenario.toml")]}.get(said, [])
    if not given:  # it is installed
        monkeypatch.syspath_prepend(str(lake.parent))
        given = ["strange"] if said != "declared" else []
    if said == "declared":
        (lake.parent / "strange-1.dist-info").mkdir()
        (lake.parent / "strange-1.dist-info" / "METADATA").write_text("Name: strange\nVersion: 1\n")
        (lake.parent / "strange-1.dist-info" / "entry_points.txt").write_text(
            "[causeway.programs]\nquiet = strange:Quiet\n"
        )
        user_modules._declared.cache_clear()
    try:
        assert LakeRecheck(open_lake(str(lake)), ModuleSources.of(*given)).execute(0, TICKS - 1) is None
    finally:
        user_modules._declared.cache_clear()
    assert (lake.parent / "imported").exists()


def test_installed_module_is_imported_only_if_named(tmp_path: Path, own_modules: None) -> None:
    allowed = ModuleSources.of(tmp_path, "one.two")
    allowed.allow(["echo", "one.two:A", "one.two.three:B"])
    for name in (
        "antigravity:A",
        "json:JSONDecoder",
        "one:A",
        "one.twofold:A",
        "__main__:A",
        "os.path:join",
        ":",
        ":A",
    ):
        with pytest.raises(ProgramNotFound, match="is not imported"):
            allowed.allow([name])
    (tmp_path / "json.py").write_text("raise SystemExit")
    with pytest.raises(ProgramNotFound, match="is not imported"):
        allowed.allow(["json:A"])  # it would differ from the one in the folder
    (tmp_path / "mine.py").touch()
    allowed.allow(["mine:A"])
    assert "antigravity" not in sys.modules


def test_class_other_than_a_program_is_rejected(lake: Path) -> None:
    ModuleSources.of(lake.parent).allow(["strange:NoProgram"])
    from causeway.programs.catalogue import find_program_class

    with pytest.raises(InvalidInput, match="not a subclass"):
        find_program_class("strange:NoProgram")


@pytest.mark.parametrize("given", ["no/such", "a-b", "", "x.toml", "a..b"])
def test_source_other_than_a_folder_or_module_is_rejected(given: str) -> None:
    with pytest.raises(InvalidInput, match="no such file or folder, and no name of a module"):
        ModuleSources.of(given)
